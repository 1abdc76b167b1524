"""Contents become durable in groups (specification 26.6, 26.27)."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event, current_thread
from typing import Any

import pytest

from neo.protocol.blobs import Content
from neo.storage.blobs import keeping
from neo.storage.blobs.folder import ContentFolder
from neo.storage.blobs.keeping import Keeper, Whole
from tests.support.patience import PATIENCE_SECONDS
from tests.unit.storage.blobs.contents import content_of
from tests.unit.storage.blobs.loop import Loop

FIRST = b"the content that keeps the keeper busy"


class Keeping:
    """A folder whose keeper is held in the sync of a first content, while others come: they are the next
    group. ``events``: syncs, renames and results, in their order. ``threads``: those that synced."""

    def __init__(self, path: Path, patch: pytest.MonkeyPatch) -> None:
        self.events: list[str] = []
        self.groups: list[int] = []
        self.threads: set[str] = set()
        self.failing: set[str] = set()
        self.results: dict[str, Exception | None] = {}
        self.loop = Loop()
        self.folder = ContentFolder(str(path), self.loop)
        self.folder.open(None)
        self._labels: dict[str, str] = {}
        self._busy, self._go_on = Event(), Event()
        self._fsync, self._replace, self._keep = os.fsync, os.replace, Keeper._keep
        patch.setattr(os, "fsync", self._synced)
        patch.setattr(os, "replace", self._renamed)
        patch.setattr(Keeper, "_keep", lambda keeper, group: self._grouped(keeper, group))
        self.store("first", FIRST)
        assert self._busy.wait(PATIENCE_SECONDS)

    def _synced(self, fd: int) -> None:
        name = os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))
        name = self._labels.get(name, name)
        if name == "first":
            self._busy.set()
            assert self._go_on.wait(PATIENCE_SECONDS)
        if name in self.failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._fsync(fd)
        self.threads.add(current_thread().name)
        self.events.append(f"sync {name}")

    def _renamed(self, source: Any, target: Any) -> None:
        self._replace(source, target)
        self.events.append(f"rename {os.path.basename(source)}")

    def _grouped(self, keeper: Keeper, group: list[Whole]) -> None:
        self.groups.append(len(group))
        self._keep(keeper, group)

    def store(self, label: str, data: bytes, lost: bool = False) -> Content:
        """Begin to store a content. Its file is called by the label in the events."""
        content = content_of(data)
        self._labels[content.checksum.hex()] = label

        def stored(error: Exception | None) -> None:
            self.events.append(f"told {label}")
            self.results[label] = error

        self.folder.store(data, content, lost, stored)
        return content

    def store_all(self, contents: dict[str, bytes]) -> None:
        for label, data in contents.items():
            self.store(label, data)

    def release(self, count: int) -> None:
        """Let the keeper go on, and wait for the results of so many contents and of the first one."""
        self._go_on.set()
        while len(self.results) < count + 1:
            self.loop.turn()

    def path(self, data: bytes) -> Path:
        return self.folder.file(content_of(data).checksum)

    def after_first(self) -> list[str]:
        """Return what happened, without the first content, which has a group of its own."""
        own = ("told first", "sync first")
        events = [each for each in self.events if each not in own]
        assert events.pop(0) == f"sync {_folder_of(FIRST)}"
        return events

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
    return {f"content-{i}": data for i, data in enumerate(distinct)}


def _folder_of(data: bytes) -> str:
    return content_of(data).checksum.hex()[:2]


def test_a_group_syncs_all_files_then_all_folders_and_tells_then(kept: Keeping) -> None:
    contents = _contents(20) | _contents(5, 0xFE)
    kept.store_all(contents)
    assert kept.results == {}
    kept.release(len(contents))
    assert kept.groups == [1, len(contents)]
    group = kept.after_first()
    steps = [
        {f"sync {label}" for label in contents},
        {f"sync {_folder_of(data)}" for data in contents.values()},
        {f"told {label}" for label in contents},
    ]
    for step in steps:
        done, group = group[: len(step)], group[len(step) :]
        assert sorted(done) == sorted(step)
    assert group == []
    assert set(kept.results.values()) == {None}
    for data in contents.values():
        assert kept.path(data).read_bytes() == data
    assert os.listdir(kept.folder.path / "parts") == []


@pytest.mark.parametrize("lost", [False, True])
def test_what_has_rows_is_never_replaced_by_a_file_that_is_not_synced(
    kept: Keeping, lost: bool
) -> None:
    """A file with the name, or rows that lost theirs: the content is synced before it gets the name."""
    if not lost:
        kept.path(b"data").write_bytes(b"a file that is here")
    kept.store("content", b"data", lost)
    kept.release(1)
    folder = _folder_of(b"data")
    steps = ["sync whole-0", "rename whole-0", f"sync {folder}", "told content"]
    assert kept.after_first() == steps
    assert kept.path(b"data").read_bytes() == b"data"


def test_a_file_that_cannot_be_synced_fails_alone(kept: Keeping) -> None:
    contents = _contents(6)
    kept.failing.add("content-2")
    kept.store_all(contents)
    kept.release(6)
    assert [label for label, error in kept.results.items() if error is not None] == ["content-2"]
    assert isinstance(kept.results["content-2"], OSError)
    for label, data in contents.items():
        assert kept.path(data).exists() == (label != "content-2")


def test_an_error_removes_no_file_that_came_meanwhile(
    kept: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another transfer may have brought an equal content, to which rows refer."""
    file = kept.path(b"data")
    synced = os.fsync

    def fsync(fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}") == str(file):
            other = file.with_name("other")
            other.write_bytes(b"data")
            other.rename(file)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        synced(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    kept.store("content", b"data")
    kept.release(1)
    assert isinstance(kept.results["content"], OSError)
    assert file.read_bytes() == b"data"


def test_a_folder_that_cannot_be_synced_fails_its_contents_alone(kept: Keeping) -> None:
    shared = _contents(3, 0xFE)
    contents = _contents(4) | shared
    kept.failing.add("fe")
    kept.store_all(contents)
    kept.release(len(contents))
    assert {label for label, error in kept.results.items() if error is not None} == set(shared)


def test_groups_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of a group are open."""
    monkeypatch.setattr(keeping, "GROUP_MAX", 3)
    kept = Keeping(tmp_path / "blobs", monkeypatch)
    kept.store_all(_contents(30))
    kept.release(30)
    kept.close()
    assert kept.groups == [1, *[3] * 10]
    assert set(kept.results.values()) == {None}


@pytest.mark.parametrize(("short", "threads"), [(1e6, 1), (-1.0, keeping.SYNCS)])
def test_other_threads_sync_only_where_syncs_take_long(
    kept: Keeping, monkeypatch: pytest.MonkeyPatch, short: float, threads: int
) -> None:
    """The syncs of the group before are the measure."""
    monkeypatch.setattr(keeping, "SHORT_SECONDS", short)
    kept.store_all(_contents(keeping.SYNCS * 3))
    kept.release(0)
    kept.threads.clear()
    kept.release(keeping.SYNCS * 3)
    assert len(kept.threads) <= threads
    assert all(name.endswith(" keep") == (threads == 1) for name in kept.threads)


def test_a_content_of_several_pieces_does_not_wait_for_the_keeper(kept: Keeping) -> None:
    """Nor do contents of one piece wait for its bytes."""
    content = content_of(b"01234567")
    for offset, data in ((0, b"0123"), (4, b"4567")):
        assert kept.loop.ask(lambda d, o=offset, p=data: kept.folder.append("p", o, p, d)) is None
    assert kept.loop.ask(lambda done: kept.folder.keep("p", content, done)) is None
    assert kept.events == ["sync p", "rename p", f"sync {content.checksum.hex()[:2]}"]
    assert kept.results == {}


def test_the_end_of_the_folder_waits_for_what_is_kept(kept: Keeping) -> None:
    contents = _contents(5)
    kept.store_all(contents)
    kept.close()
    for data in contents.values():
        assert kept.path(data).read_bytes() == data
    assert kept.results == {}
