"""Contents become durable in groups (specification 26.6, 26.27)."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from neo.protocol.blobs import Content
from neo.storage.blobs import keeping
from neo.storage.blobs.folder import SMALL_BYTES, ContentFolder
from neo.storage.blobs.keeping import Keeper, Whole
from tests.support.patience import PATIENCE_SECONDS
from tests.unit.storage.blobs.contents import content_of
from tests.unit.storage.blobs.loop import Loop

FIRST = b"the content that keeps the keeper busy"


class Keeping:
    """A folder whose keeper is held in the sync of a first content, while others come: they are the next
    group. ``events``: syncs, renames and results, in their order."""

    def __init__(self, path: Path, patch: pytest.MonkeyPatch) -> None:
        self.events: list[str] = []
        self.groups: list[int] = []
        self.failing: set[str] = set()
        self.results: dict[str, Exception | None] = {}
        self.loop = Loop()
        self.folder = ContentFolder(str(path), self.loop)
        self.folder.open(None)
        self._busy, self._go_on = Event(), Event()
        self._fsync, self._replace, self._keep = os.fsync, os.replace, Keeper._keep
        patch.setattr(os, "fsync", self._synced)
        patch.setattr(os, "replace", self._renamed)
        patch.setattr(Keeper, "_keep", lambda keeper, group: self._grouped(keeper, group))
        self.keep("first", FIRST)
        assert self._busy.wait(PATIENCE_SECONDS)

    def _synced(self, fd: int) -> None:
        name = os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))
        if name == "first":
            self._busy.set()
            assert self._go_on.wait(PATIENCE_SECONDS)
        if name in self.failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._fsync(fd)
        self.events.append(f"sync {name}")

    def _renamed(self, source: Any, target: Any) -> None:
        self._replace(source, target)
        self.events.append(f"rename {os.path.basename(source)}")

    def _grouped(self, keeper: Keeper, group: list[Whole]) -> None:
        self.groups.append(len(group))
        self._keep(keeper, group)

    def keep(self, part: str, data: bytes) -> Content:
        """Begin to keep a content: append and keep behind one another, as an upload does."""
        content = content_of(data)

        def kept(error: Exception | None) -> None:
            self.events.append(f"told {part}")
            self.results[part] = error

        self.folder.append(part, 0, data, lambda error: None)
        self.folder.keep(part, content, kept)
        return content

    def come(self, parts: list[str]) -> None:
        """Wait until the threads of the folder have handed these parts on."""
        for part in parts:
            assert self.loop.ask(lambda done, p=part: self._behind(p, done)) is not None

    def _behind(self, part: str, done: Any) -> None:
        """Call back when the calls before, for a part, have ended: a gap is refused at once."""
        self.folder.append(part, 1 << 40, b"", done)

    def release(self, count: int) -> None:
        """Let the keeper go on, and wait for the results of so many contents and of the first one."""
        self._go_on.set()
        while len(self.results) < count + 1:
            self.loop.turn()

    def close(self) -> None:
        self._go_on.set()
        self.folder.close()


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Keeping]:
    made = Keeping(tmp_path / "blobs", monkeypatch)
    yield made
    made.close()


def _contents(count: int, bucket: int | None = None) -> dict[str, bytes]:
    """Return contents of distinct folders, or of one, by their parts."""
    found: dict[int, list[bytes]] = {}
    for number in range(10_000):
        data = b"content %d" % number
        found.setdefault(content_of(data).checksum[0], []).append(data)
    if bucket is not None:
        return {f"b{bucket}-{i}": data for i, data in enumerate(found[bucket][:count])}
    distinct = [found[each][0] for each in sorted(found)[10 : 10 + count]]
    return {f"part-{i}": data for i, data in enumerate(distinct)}


def _folder_of(data: bytes) -> str:
    return content_of(data).checksum.hex()[:2]


def _keep_all(kept: Keeping, contents: dict[str, bytes]) -> None:
    for part, data in contents.items():
        kept.keep(part, data)
    kept.come(list(contents))


def test_a_group_syncs_all_files_then_all_folders_and_tells_then(kept: Keeping) -> None:
    contents = _contents(20) | _contents(5, 0xFE)
    _keep_all(kept, contents)
    assert kept.results == {}
    kept.release(len(contents))
    assert kept.groups == [1, len(contents)]
    assert kept.events[:3] == ["sync first", "rename first", f"sync {_folder_of(FIRST)}"]
    group = [each for each in kept.events[3:] if each != "told first"]
    steps = [
        {f"sync {part}" for part in contents},
        {f"rename {part}" for part in contents},
        {f"sync {_folder_of(data)}" for data in contents.values()},
        {f"told {part}" for part in contents},
    ]
    for step in steps:
        done, group = group[: len(step)], group[len(step) :]
        assert sorted(done) == sorted(step)
    assert group == []
    assert set(kept.results.values()) == {None}
    for data in contents.values():
        assert kept.folder.file(content_of(data).checksum).read_bytes() == data
    assert os.listdir(kept.folder.path / "parts") == []


def test_a_file_that_cannot_be_synced_fails_alone(kept: Keeping) -> None:
    contents = _contents(6)
    kept.failing.add("part-2")
    _keep_all(kept, contents)
    kept.release(6)
    assert [part for part, error in kept.results.items() if error is not None] == ["part-2"]
    assert isinstance(kept.results["part-2"], OSError)
    for part, data in contents.items():
        assert kept.folder.file(content_of(data).checksum).exists() == (part != "part-2")
    assert os.listdir(kept.folder.path / "parts") == []


def test_a_folder_that_cannot_be_synced_fails_its_contents_alone(kept: Keeping) -> None:
    shared = _contents(3, 0xFE)
    contents = _contents(4) | shared
    kept.failing.add("fe")
    _keep_all(kept, contents)
    kept.release(len(contents))
    assert {part for part, error in kept.results.items() if error is not None} == set(shared)


def test_groups_and_the_queue_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of contents that wait are open: the threads that bring more of them wait."""
    monkeypatch.setattr(keeping, "GROUP_MAX", 3)
    kept = Keeping(tmp_path / "blobs", monkeypatch)
    contents = _contents(30)
    for part, data in contents.items():
        kept.keep(part, data)
    kept.release(30)
    kept.close()
    assert sum(kept.groups) == 31
    assert max(kept.groups) <= 3
    assert set(kept.results.values()) == {None}


def test_a_large_content_is_synced_before_it_comes_to_the_group(kept: Keeping) -> None:
    """So small ones do not wait for its bytes."""
    data = b"x" * (SMALL_BYTES + 1)
    _keep_all(kept, {"large": data})
    assert kept.events == ["sync large"]
    kept.release(1)
    rest = [each for each in kept.events if each not in ("told first", "sync first", "rename first")]
    assert [each for each in rest if each != f"sync {_folder_of(FIRST)}"] == [
        "sync large",
        "rename large",
        f"sync {_folder_of(data)}",
        "told large",
    ]


def test_later_calls_for_a_part_wait_for_the_keeper(kept: Keeping) -> None:
    """A part that is begun anew under the same name is another one."""
    whole = kept.keep("part", b"whole")
    told: list[Exception | None] = []
    kept.folder.drop("part")
    kept.folder.append("part", 0, b"who", told.append)
    kept.release(1)
    while not told:
        kept.loop.turn()
    assert kept.results["part"] is None and told == [None]
    assert kept.folder.file(whole.checksum).read_bytes() == b"whole"
    assert (kept.folder.path / "parts" / "part").read_bytes() == b"who"


def test_the_end_of_the_folder_waits_for_what_is_kept(kept: Keeping) -> None:
    contents = _contents(5)
    _keep_all(kept, contents)
    kept.close()
    for data in contents.values():
        assert kept.folder.file(content_of(data).checksum).read_bytes() == data
    assert kept.results == {}
