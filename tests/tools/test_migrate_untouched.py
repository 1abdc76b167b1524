"""neomigrate writes nothing to a source: no file of it, no metadata, nothing beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import ZEO
from ZODB.FileStorage import FileStorage

from neo.export import main as export
from neo.migrate import main
from neo.simple import Cluster
from tests.support.cluster import simple_cluster
from tests.support.mounts import OWN_MOUNTS
from tests.tools import blobs
from tests.tools.blobs import Source

Capture = pytest.CaptureFixture[str]

#: Everything about a file except the time of its last reading.
Metadata = dict[str, tuple[int, ...]]


#: Mount a folder on itself to be read only, and run a command that must not write there.
READ_ONLY = """
mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" || exit 90
touch "$1/new" 2>/dev/null && exit 91
shift
exec "$@"
"""


def metadata(folder: Path) -> Metadata:
    """Return the metadata of a folder and of everything in it."""
    found: Metadata = {}
    for path in [folder, *folder.rglob("*")]:
        of = path.lstat()
        found[str(path)] = (
            *(of.st_ino, of.st_mode, of.st_uid, of.st_gid, of.st_size, of.st_nlink),
            *(of.st_mtime_ns, of.st_ctime_ns),
        )
    return found


@pytest.fixture
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    """A FileStorage with blobs. One that is ``old`` lacks what a FileStorage of today would add: its
    index, and the marker and the folder ``tmp`` of the blobs, whose layout is ``lawn``."""
    old = getattr(request, "param", "old") == "old"
    folder = tmp_path / "source"
    folder.mkdir()
    found = blobs.make(folder, "lawn" if old else None)
    (folder / "source.fs.lock").unlink()
    if old:
        (folder / "source.fs.index").unlink()
        (found.folder / ".layout").unlink()
        (found.folder / "tmp").rmdir()
    return found


def by_path(source: Source, config: Path) -> list[str]:
    return [str(source.path), "--blobs", str(source.folder)]


def by_uri(source: Source, config: Path) -> list[str]:
    return [f"file://{source.path}?blobstorage_dir={source.folder}"]


def by_section(source: Source, config: Path) -> list[str]:
    config.write_text(
        f"<filestorage old>\n path {source.path}\n blob-dir {source.folder}\n</filestorage>\n"
    )
    return ["old", "--config", str(config)]


def by_wrapper(source: Source, config: Path) -> list[str]:
    config.write_text(
        f"<blobstorage old>\n blob-dir {source.folder}\n <filestorage>\n  path {source.path}\n"
        " </filestorage>\n</blobstorage>\n"
    )
    return ["old", "--config", str(config)]


def by_demo(source: Source, config: Path) -> list[str]:
    """Name the file below a storage that a copy cannot bypass."""
    config.write_text(
        f"<demostorage old>\n <blobstorage>\n  blob-dir {source.folder}\n  <filestorage>\n"
        f"   path {source.path}\n  </filestorage>\n </blobstorage>\n</demostorage>\n"
    )
    return ["old", "--config", str(config)]


Words = Callable[[Source, Path], list[str]]
KINDS: list[Words] = [by_path, by_uri, by_section, by_wrapper, by_demo]


@pytest.mark.parametrize("source", ["old", "bushy"], indirect=True)
@pytest.mark.parametrize("words", KINDS)
def test_a_copy_to_files_changes_nothing(source: Source, tmp_path: Path, words: Words) -> None:
    given = words(source, tmp_path / "storages.conf")
    before = metadata(source.path.parent)
    copy = Source(tmp_path / "copy.fs", tmp_path / "copy-blobs")
    to = [str(copy.path), "--blobs-to", str(copy.folder), "--quiet"]
    for more in (["--dry-run"], ["--verify"], ["--salvage"], ["--verify", "--dry-run"]):
        assert main([given[0], *to, *given[1:], *more]) == 0
        assert metadata(source.path.parent) == before
    with source.open() as storage, copy.open() as copied:
        assert blobs.contents(copied) == blobs.contents(storage)


@pytest.mark.parametrize("words", KINDS)
def test_a_source_that_cannot_be_written_is_copied(
    source: Source, tmp_path: Path, words: Words
) -> None:
    given = words(source, tmp_path / "storages.conf")
    copy = Source(tmp_path / "copy.fs", tmp_path / "copy-blobs")
    to = [str(copy.path), "--blobs-to", str(copy.folder), "--quiet", "--verify"]
    command = [sys.executable, "-m", "neo.migrate", given[0], *to, *given[1:]]
    run = subprocess.run(
        [*OWN_MOUNTS, "sh", "-c", READ_ONLY, "sh", str(source.path.parent), *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "source and destination are equal" in run.stdout


def test_the_file_of_a_running_application_is_copied_by_its_section(
    source: Source, tmp_path: Path
) -> None:
    """No lock is taken, which the application has."""
    given = by_section(source, tmp_path / "storages.conf")
    with closing(FileStorage(str(source.path))):
        before = metadata(source.path.parent)
        assert main([given[0], str(tmp_path / "copy.fs"), *given[1:], "--no-blobs"]) == 1
        assert metadata(source.path.parent) == before


def test_a_source_that_is_not_there_is_not_created(tmp_path: Path, capsys: Capture) -> None:
    missing = Source(tmp_path / "source" / "Data.fs", tmp_path / "source" / "blobs")
    missing.path.parent.mkdir()
    for words in (by_uri, by_section, by_wrapper):
        given = words(missing, tmp_path / "storages.conf")
        assert main([given[0], str(tmp_path / "copy.fs"), *given[1:]]) == 1
        assert "No such file or directory" in capsys.readouterr().err
    assert list(missing.path.parent.iterdir()) == []


@pytest.mark.parametrize("words", [by_uri, by_section, by_wrapper])
def test_a_dry_run_creates_no_destination(tmp_path: Path, words: Words) -> None:
    source = blobs.make(tmp_path)
    copy = Source(tmp_path / "copy" / "Data.fs", tmp_path / "copy" / "blobs")
    copy.path.parent.mkdir()
    given = words(copy, tmp_path / "storages.conf")
    command = [str(source.path), given[0], "--blobs", str(source.folder), *given[1:]]
    assert main([*command, "--dry-run"]) == 0
    assert list(copy.path.parent.iterdir()) == []
    assert main(command) == 0
    before = metadata(copy.path.parent)
    assert main([*command, "--dry-run"]) == 0
    assert main([*command, "--dry-run", "--verify"]) == 0
    assert metadata(copy.path.parent) == before


def test_an_unfinished_transaction_stays_in_the_source(source: Source, tmp_path: Path) -> None:
    """A FileStorage that is opened to be written would truncate it."""
    with source.path.open("ab") as file:
        file.write(b"\x7f" * 10)
    given = by_uri(source, tmp_path / "storages.conf")
    before = metadata(source.path.parent)
    main([*given, str(tmp_path / "copy.fs"), "--no-blobs", "--quiet"])
    assert metadata(source.path.parent) == before


def test_an_export_changes_nothing(source: Source, tmp_path: Path) -> None:
    given = by_section(source, tmp_path / "storages.conf")
    before = metadata(source.path.parent)
    assert export([given[0], "--parquet", str(tmp_path / "tables"), *given[1:]]) == 0
    assert metadata(source.path.parent) == before


def test_a_folder_that_a_zeo_server_shares_stays_as_it_is(source: Source, tmp_path: Path) -> None:
    (host, port), stop = ZEO.server(str(source.path), blob_dir=str(source.folder))
    try:
        before = metadata(source.path.parent)
        copy = Source(tmp_path / "copy.fs", tmp_path / "copy-blobs")
        uri = f"zeo://{host}:{port}?blob_dir={source.folder}&shared_blob_dir=1"
        assert main([uri, str(copy.path), "--blobs-to", str(copy.folder), "--quiet"]) == 0
        assert metadata(source.path.parent) == before
    finally:
        stop()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with simple_cluster(folder, storages=1, partitions=2) as cluster:
        yield cluster


def test_a_cluster_takes_a_copy_of_each_file(cluster: Cluster, tmp_path: Path) -> None:
    """A second name of a file has its mode, its times and its number of names."""
    folder = tmp_path / "source"
    folder.mkdir()
    source = blobs.make(folder)
    for path in blobs.files(source.folder):
        os.chmod(path, 0o640)
    before = metadata(folder)
    given = by_path(source, tmp_path)
    assert main([given[0], cluster.uri, *given[1:], "--quiet", "--verify"]) == 0
    assert metadata(folder) == before
    cache = tmp_path / "cache"
    copy = Source(tmp_path / "copy.fs", tmp_path / "copy-blobs")
    to = [str(copy.path), "--blobs-to", str(copy.folder), "--quiet"]
    assert main([f"{cluster.uri}?blob-dir={cache}", *to]) == 0
    # Nor does a copy share files with the cache of the client that read them.
    assert {path.stat().st_nlink for path in blobs.files(copy.folder)} == {1}
