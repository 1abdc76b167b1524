"""The folder of contents on a real disk (specification 26.7, 26.9 to 26.11)."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from neo.protocol.blobs import Content
from neo.storage.backend.api import BackendFailure
from neo.storage.blobs import files, folder
from neo.storage.blobs.disk import ContentMismatch
from neo.storage.blobs.folder import ContentFolder
from tests.unit.storage.blobs.contents import content_of
from tests.unit.storage.blobs.loop import Loop


class Disk:
    """A folder with its loop."""

    def __init__(self, path: Path, fill: bool = False) -> None:
        self.loop = Loop()
        self.folder = ContentFolder(str(path), self.loop, fill)

    def append(self, part: str, offset: int, data: bytes) -> Exception | None:
        found: Exception | None = self.loop.ask(
            lambda done: self.folder.append(part, offset, data, done)
        )
        return found

    def keep(self, part: str, wanted: Content) -> Exception | None:
        found: Exception | None = self.loop.ask(lambda done: self.folder.keep(part, wanted, done))
        return found

    def add(self, data: bytes) -> Content:
        assert self.append("part", 0, data) is None
        made = content_of(data)
        assert self.keep("part", made) is None
        return made

    def read(self, wanted: Content, offset: int = 0, length: int = 1 << 20) -> bytes | Exception:
        found: bytes | Exception = self.loop.ask(
            lambda done: self.folder.read(wanted.checksum, offset, length, done)
        )
        return found

    def verify(self, wanted: Content) -> Exception | None:
        found: Exception | None = self.loop.ask(lambda done: self.folder.verify(wanted, done))
        return found

    def names(self, wanted: Content) -> list[bytes]:
        found: list[bytes] = self.loop.ask(lambda done: self.folder.names(wanted.checksum[0], done))
        return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
def disk(path: Path) -> Iterator[Disk]:
    made = Disk(path)
    made.folder.open(None)
    yield made
    made.folder.close()


def test_a_content_is_kept_and_read_in_pieces(disk: Disk) -> None:
    data = bytes(range(256)) * 40
    assert disk.append("p", 0, data[:5000]) is None
    assert disk.append("p", 5000, data[5000:]) is None
    kept = content_of(data)
    assert disk.keep("p", kept) is None
    assert disk.read(kept) == data
    assert disk.read(kept, 10_000, 1000) == data[10_000:]
    assert disk.read(kept, len(data), 10) == b""
    assert disk.verify(kept) is None
    assert disk.names(kept) == [kept.checksum]
    name = kept.checksum.hex()
    assert disk.folder.file(kept.checksum) == disk.folder.path / name[:2] / name
    assert os.listdir(disk.folder.path / "parts") == []


def test_an_empty_content(disk: Disk) -> None:
    assert disk.read(disk.add(b"")) == b""


def test_an_offset_of_zero_begins_anew(disk: Disk) -> None:
    assert disk.append("p", 0, b"wrong") is None
    assert disk.append("p", 0, b"right") is None
    assert disk.keep("p", content_of(b"right")) is None


@pytest.mark.parametrize("offset", [1, 4, 6])
def test_a_gap_is_refused(disk: Disk, offset: int) -> None:
    assert disk.append("p", 0, b"12345") is None
    assert isinstance(disk.append("p", offset, b"x"), ContentMismatch)
    assert isinstance(disk.append("other", offset, b"x"), ContentMismatch)


@pytest.mark.parametrize("other", [b"1234", b"12344", b""])
def test_another_content_is_not_kept(disk: Disk, other: bytes) -> None:
    wanted = content_of(other)
    assert disk.append("p", 0, b"12345") is None
    assert isinstance(disk.keep("p", wanted), ContentMismatch)
    assert os.listdir(disk.folder.path / "parts") == []
    assert isinstance(disk.read(wanted), FileNotFoundError)
    assert isinstance(disk.keep("p", content_of(b"12345")), ContentMismatch)


def test_a_removed_content_is_gone(disk: Disk) -> None:
    kept = disk.add(b"x")
    assert disk.loop.ask(lambda done: disk.folder.remove(kept.checksum, done)) is None
    assert isinstance(disk.read(kept), FileNotFoundError)
    assert isinstance(disk.verify(kept), FileNotFoundError)
    assert disk.loop.ask(lambda done: disk.folder.remove(kept.checksum, done)) is None


def test_damage_is_found(disk: Disk) -> None:
    kept = disk.add(b"abc" * 1000)
    file = disk.folder.file(kept.checksum)
    for wrong in (b"abd" + b"abc" * 999, b"abc" * 999, b"abc" * 1001):
        file.write_bytes(wrong)
        error = disk.verify(kept)
        assert isinstance(error, ContentMismatch)
        assert kept.checksum.hex() in str(error)


def test_the_part_of_a_fetch_is_resumed_after_a_crash(path: Path) -> None:
    first = Disk(path)
    identity = first.folder.open(None)
    assert first.append("fetch-1", 0, b"12345") is None
    assert first.append("upload", 0, b"12345") is None
    first.folder.close()
    again = Disk(path)
    assert again.folder.open(identity) == identity
    assert os.listdir(path / "parts") == ["fetch-1"]
    assert again.loop.ask(lambda done: again.folder.resume("fetch-1", done)) == 5
    assert again.append("fetch-1", 5, b"678") is None
    assert again.loop.ask(lambda done: again.folder.resume("fetch-1", done)) == 8
    assert again.loop.ask(lambda done: again.folder.resume("none", done)) == 0
    assert again.keep("fetch-1", content_of(b"12345678")) is None
    again.folder.close()


def test_a_folder_is_used_by_one_process(disk: Disk, path: Path) -> None:
    with pytest.raises(BackendFailure, match="used by another process"):
        Disk(path).folder.open(None)


def test_a_folder_belongs_to_one_database(path: Path) -> None:
    made = Disk(path)
    made.folder.open(None)
    made.add(b"x")
    made.folder.close()
    for identity in (None, "0" * 32):
        with pytest.raises(BackendFailure, match="belongs to another database"):
            Disk(path).folder.open(identity)


def test_without_contents_a_database_takes_any_folder_without_contents(path: Path) -> None:
    made = Disk(path)
    identity = made.folder.open("0" * 32, needed=False)
    made.folder.close()
    again = Disk(path)
    assert again.folder.open("1" * 32, needed=False) == identity
    again.add(b"x")
    again.folder.close()
    with pytest.raises(BackendFailure, match="belongs to another database"):
        Disk(path).folder.open("1" * 32, needed=False)


def test_an_empty_folder_is_accepted_only_to_be_filled(path: Path) -> None:
    with pytest.raises(BackendFailure, match="is the disk mounted"):
        Disk(path).folder.open("1" * 32)
    filled = Disk(path, fill=True)
    assert filled.folder.open("1" * 32) == "1" * 32
    filled.folder.close()
    later = Disk(path)
    assert later.folder.open("1" * 32) == "1" * 32
    later.folder.close()


def test_a_condemned_folder_is_emptied_when_its_database_is_erased(path: Path) -> None:
    made = Disk(path)
    identity = made.folder.open(None)
    kept = made.add(b"x")
    made.folder.close()
    again = Disk(path)
    for _ in range(2):  # the database was not erased: the mark counts once
        again.folder.condemn()
        assert again.folder.open(identity) == identity
        assert again.read(kept) == b"x"
        again.folder.close()
    with pytest.raises(BackendFailure, match="belongs to another database"):
        again.folder.open(None)
    again.folder.condemn()
    assert again.folder.open(None) != identity
    assert isinstance(again.read(kept), FileNotFoundError)
    again.folder.close()


def test_a_folder_that_was_being_emptied_is_emptied_later(path: Path) -> None:
    made = Disk(path)
    identity = made.folder.open(None)
    kept, gone = made.add(b"x"), made.add(b"y")
    made.folder.close()
    made.folder.condemn()
    (found,) = path.glob(f"*/{gone.checksum.hex()}")
    found.unlink()
    later = Disk(path)
    later.folder.open(None)
    assert isinstance(later.read(kept), FileNotFoundError)
    later.folder.close()
    assert later.folder.open(None, False) != identity
    later.folder.close()


def test_a_folder_in_use_is_not_condemned(disk: Disk, path: Path) -> None:
    with pytest.raises(BackendFailure, match="used by another process"):
        Disk(path).folder.condemn()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(BackendFailure, match="file/blobs cannot be used"):
        Disk(file / "blobs").folder.open(None)


def test_a_full_disk_fails_the_part_and_frees_its_room(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = disk.add(b"before")
    assert disk.append("p", 0, b"12345") is None

    def full(fd: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(folder, "write_all", full)
        error = disk.append("p", 5, b"678")
    assert isinstance(error, OSError)
    assert error.errno == errno.ENOSPC
    assert "make room on the disk of blob_dir" in str(error)
    assert os.listdir(disk.folder.path / "parts") == []
    assert isinstance(disk.append("p", 5, b"678"), ContentMismatch)
    assert disk.read(kept) == b"before"
    assert disk.read(disk.add(b"after")) == b"after"


def test_a_write_that_failed_later_fails_the_part(
    disk: Disk, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel tells it once: the sync at the end would succeed."""

    def failed(fd: int, offset: int, length: int, flags: int) -> int:
        ctypes.set_errno(errno.EIO)
        return -1

    monkeypatch.setattr(folder, "WRITE_BACK_BYTES", 10)
    assert disk.append("part", 0, b"0123456789") is None
    monkeypatch.setattr(files, "_sync_file_range", failed)
    assert disk.append("part", 10, b"012345678") is None
    error = disk.append("part", 19, b"9")
    assert isinstance(error, OSError) and error.errno == errno.EIO
    assert os.listdir(path / "parts") == []


def test_a_file_system_that_syncs_whole_files_only_is_accepted(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(fd: int, offset: int, length: int, flags: int) -> int:
        ctypes.set_errno(errno.ENOSYS)
        return -1

    monkeypatch.setattr(folder, "WRITE_BACK_BYTES", 1)
    monkeypatch.setattr(files, "_sync_file_range", unknown)
    assert disk.read(disk.add(b"data")) == b"data"


def test_nothing_is_kept_that_cannot_be_synced(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert disk.append("p", 0, b"12345") is None
    order: list[str] = []

    def failing(fd: int) -> None:
        order.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", failing)
        assert isinstance(disk.keep("p", content_of(b"12345")), OSError)
    assert order == ["p"]
    assert isinstance(disk.read(content_of(b"12345")), FileNotFoundError)
    # A sync that follows would succeed without the bytes.
    assert isinstance(disk.keep("p", content_of(b"12345")), ContentMismatch)


def test_data_is_synced_before_its_name_and_the_name_before_the_answer(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 26.6."""
    kept = content_of(b"12345")
    assert disk.append("p", 0, b"12345") is None
    order: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(fd: int) -> None:
        order.append("sync " + os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
        fsync(fd)

    def renamed(source: Any, target: Any) -> None:
        order.append("rename")
        replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", synced)
        patched.setattr(os, "replace", renamed)
        assert disk.keep("p", kept) is None
    assert order == ["sync p", "rename", f"sync {kept.checksum.hex()[:2]}"]


def test_other_files_are_no_contents(disk: Disk) -> None:
    kept = disk.add(b"x")
    bucket = disk.folder.file(kept.checksum).parent
    for name in (kept.checksum.hex()[:-1], kept.checksum.hex() + "0", "README", "zz" * 32):
        (bucket / name).write_text("")
    assert disk.names(kept) == [kept.checksum]


def test_nothing_is_told_after_the_end(path: Path) -> None:
    made = Disk(path)
    made.folder.open(None)
    told: list[Exception | None] = []
    made.folder.append("p", 0, b"x", told.append)
    made.folder.close()
    made.folder.append("p", 1, b"x", told.append)
    made.folder.close()
    assert told == []


def test_free_room_is_that_of_the_disk(disk: Disk) -> None:
    room = disk.folder.room()
    assert room is not None and 0 < room.free <= room.total
