"""The folder of blobs: whose files are in it, and when they are removed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from neo.client.blobs import eviction
from neo.client.blobs.cache import BlobCache
from neo.client.blobs.eviction import Eviction
from neo.client.blobs.owned import OWNER, OwnedFolder, remove_abandoned
from neo.client.errors import ConfigurationError
from neo.client.host.system import System
from neo.protocol.ids import p64
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.unit.client.scripted import scripted

OID, TID = p64(1), p64(50)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def cache_of(path: Path | None, cluster: str = "shop") -> BlobCache:
    return BlobCache(System(1.0), None if path is None else str(path), cluster)


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# -- forks -----------------------------------------------------------------------------------------


def in_child(work: str, cache: BlobCache) -> int:
    """Fork, and let the child do something with the parent's cache. Return its status."""
    pid = os.fork()
    if pid == 0:
        status = 1
        with suppress(BaseException):
            cache.forked()
            if work == "use":
                Path(cache.temporary, "of the child").touch()
            if work != "leave":
                cache.close()
            status = 0
        os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("work", ["close", "use", "leave"])
@pytest.mark.parametrize("given", [True, False])
def test_a_child_touches_nothing_of_its_parent(
    given: bool, work: str, tmp_path: Path, temporary: Path
) -> None:
    root = tmp_path / "blobs"
    cache = cache_of(root if given else None)
    with closing(cache):
        Path(cache.temporary, "BUCparent").touch()
        cache.find(OID, TID, 1)
        watched = root if given else temporary
        before = everything(watched)
        assert in_child(work, cache) == 0
        assert everything(watched) == before
        # The lock is the parent's still: no other client takes its folder for abandoned.
        remove_abandoned(str(root / "processes" if given else temporary), "")
        assert everything(watched) == before
    assert not list(watched.rglob("BUC*"))


def test_the_exit_of_a_child_removes_nothing(tmp_path: Path) -> None:
    """Finalizers run at the exit of a child, too, here without the hook of os.fork()."""
    program = """
import os, sys, tempfile
from neo.client.blobs.cache import BlobCache
from neo.client.host.system import System
tempfile.tempdir = sys.argv[1]
cache = BlobCache(System(1.0), None, "shop")
path = cache.temporary
if os.fork() == 0:
    sys.exit(0)
os.wait()
print(os.path.isdir(path), len(os.listdir(sys.argv[1])))
"""
    ended = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    assert ended.stdout.split() == ["True", "1"]
    assert os.listdir(tmp_path) == []  # the parent's own exit removes it


# -- killed processes ------------------------------------------------------------------------------


@pytest.fixture(params=[True, False], ids=["given", "temporary"])
def killed(request: pytest.FixtureRequest, tmp_path: Path, temporary: Path) -> Iterator[Path]:
    """A folder with files of a client that was killed. Yield what must be empty then."""
    root = tmp_path / "blobs"
    program = """
import os, sys, tempfile, time
from pathlib import Path
from neo.client.blobs.cache import BlobCache
from neo.client.host.system import System
tempfile.tempdir = sys.argv[1]
cache = BlobCache(System(1.0), sys.argv[2] or None, "shop")
for name in ("BUCx", "pending-x"):
    Path(cache.temporary, name).touch()
Path(cache.temporary, "savepointsx").mkdir()
print(cache.temporary, flush=True)
time.sleep(1000)
"""
    argv = [sys.executable, "-c", program, str(temporary), str(root) if request.param else ""]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        used = Path(process.stdout.readline().strip())
        assert (used / "BUCx").exists()
        with closing(cache_of(root if request.param else None)) as living:
            assert living.temporary and (used / "BUCx").exists(), "its process lives"
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_SECONDS)
    assert (used / "savepointsx").exists()
    yield used


def test_files_of_a_killed_client_are_removed_by_the_next_one(
    killed: Path, tmp_path: Path, temporary: Path
) -> None:
    given = killed.is_relative_to(tmp_path / "blobs")
    with closing(cache_of(tmp_path / "blobs" if given else None)) as cache:
        assert cache.temporary and not (killed / "BUCx").exists()
        assert not (killed / "savepointsx").exists()


def test_a_folder_that_is_being_made_or_is_not_ours_stays(tmp_path: Path) -> None:
    for name in ("neo-blobs-making", "neo-blobs-old", "neo-blobs-full", "another"):
        (tmp_path / name).mkdir()
    (tmp_path / "neo-blobs-full" / "x").touch()
    (tmp_path / "another" / OWNER).touch()
    old = time.time() - 10_000
    for name in ("neo-blobs-old", "neo-blobs-full"):
        os.utime(tmp_path / name, (old, old))
    remove_abandoned(str(tmp_path), "neo-blobs-")
    assert sorted(os.listdir(tmp_path)) == ["another", "neo-blobs-full", "neo-blobs-making"]


def test_an_owned_folder_is_removed_once(tmp_path: Path) -> None:
    folder = OwnedFolder.new(str(tmp_path), "x")
    folder.remove()
    folder.remove()
    assert os.listdir(tmp_path) == []


# -- other things ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [False, True])
def test_a_folder_that_was_made_anew_at_the_same_place_stays(kept: bool, tmp_path: Path) -> None:
    """Somebody removed the folder of a client, and another client has one there."""
    first = OwnedFolder.taken(tmp_path) if kept else OwnedFolder.new(str(tmp_path), "neo-blobs-")
    assert first is not None
    shutil.rmtree(first.path)
    first.path.mkdir()
    second = OwnedFolder.taken(first.path)
    assert second is not None
    first.remove()
    assert second.temporary.is_dir()
    second.remove()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".layout", "is the folder of blobs of another storage, such as a FileStorage"),
        ("letter.txt", "is no cache: it has other files, such as 'letter.txt'"),
        (".cluster", "is the cache of cluster 'bank', not of 'scripted'"),
    ],
)
def test_a_folder_that_is_another_thing_is_refused(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("bank")
    with pytest.raises(ConfigurationError, match=text):
        with scripted([1], blob_dir=str(tmp_path)):
            pass
    assert os.listdir(tmp_path) == [name], "nothing is left there"


def test_the_folder_of_an_earlier_release_and_an_empty_one_are_taken(tmp_path: Path) -> None:
    for name in ("tmp", "0a"):
        (tmp_path / name).mkdir()
    (tmp_path / ".lock").touch()
    for _ in range(2):
        with closing(cache_of(tmp_path)) as cache:
            assert cache.temporary
    assert (tmp_path / ".cluster").read_text() == "shop"
    with pytest.raises(ConfigurationError, match="cluster 'shop', not of 'bank'"):
        cache_of(tmp_path, "bank").check()


def test_a_folder_of_another_user_says_what_rights_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def touch(self: Path, mode: int) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "touch", touch)
    with closing(cache_of(tmp_path)) as cache:
        with pytest.raises(ConfigurationError, match="run as the same user"):
            cache.root  # noqa: B018


# -- the bound -------------------------------------------------------------------------------------


def test_the_cache_comes_back_below_its_bound_without_a_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that were spared are removed when they need not be spared any more."""
    monkeypatch.setattr(eviction, "SPARED_SECONDS", 1.0)
    monkeypatch.setattr(eviction, "AGAIN_SECONDS", 0.05)
    with closing(cache_of(tmp_path / "blobs")) as cache:
        evicts = Eviction(System(1.0), cache, 250, 10)
        for number in range(5):
            source = tmp_path / "source"
            source.write_bytes(bytes(100))
            cache.keep(p64(number), TID, str(source))
        files = sorted((tmp_path / "blobs").glob("*/*.blob"))
        assert len(files) == 5, "they were just handed out"
        wait_until(lambda: sum(file.exists() for file in files) <= 2, "too many files")
        wait_until(lambda: not evicts._running, "the eviction does not end")


def test_files_that_come_during_a_look_are_looked_at(tmp_path: Path) -> None:
    with closing(cache_of(tmp_path / "blobs")) as cache:
        evicts = Eviction(System(1.0), cache, 1000, 10)
        looks: list[int] = []

        def evict() -> bool:
            looks.append(evicts._added)
            if len(looks) == 1:
                evicts.added(500)
            return False

        assert cache.root
        evicts.evict = evict  # type: ignore[method-assign]
        evicts.added(500)
        wait_until(lambda: len(looks) == 2 and not evicts._running, "no second look")


def test_files_that_come_while_spared_ones_exceed_the_bound_are_looked_at_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause before the next look at spared files delays no look at new ones."""
    monkeypatch.setattr(eviction, "AGAIN_SECONDS", 10 * PATIENCE_SECONDS)
    with closing(cache_of(tmp_path / "blobs")) as cache:
        evicts = Eviction(System(1.0), cache, 1000, 10)
        looks: list[None] = []

        def evict() -> bool:
            looks.append(None)
            return len(looks) < 3

        assert cache.root
        evicts.evict = evict  # type: ignore[method-assign]
        evicts.added(500)
        wait_until(lambda: len(looks) == 1, "no look")
        evicts.added(500)
        wait_until(lambda: len(looks) == 2, "no second look")
        evicts.added(500)
        wait_until(lambda: len(looks) == 3 and not evicts._running, "no third look")


def test_a_look_that_begins_after_the_end_does_not_make_the_folder_anew(tmp_path: Path) -> None:
    cache = cache_of(tmp_path / "blobs")
    evicts = Eviction(System(1.0), cache, 1000, 10)
    assert cache.root
    cache.close()
    shutil.rmtree(tmp_path / "blobs")
    assert not evicts.evict()
    evicts.added(500)
    wait_until(lambda: not evicts._running, "the eviction does not end")
    assert not (tmp_path / "blobs").exists()
