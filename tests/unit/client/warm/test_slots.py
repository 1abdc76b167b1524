"""The folder of kept caches."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import pytest

from neo.client.warm import slots
from neo.client.warm.slots import SLOTS, Slot, take_slot
from neo.client.warm.snapshot import Anchor, read, write
from neo.protocol.ids import p64


def taken(folder: Path, cluster: str = "site/1") -> Slot:
    slot = take_slot(str(folder), cluster)
    assert slot is not None
    return slot


def save(slot: Slot, tid: int) -> None:
    def writes(file: BinaryIO) -> bool:
        write(file, "site/1", Anchor.of(p64(tid), []), [])
        return True

    slot.replace(writes)


def test_each_process_has_a_slot_until_all_are_taken(tmp_path: Path) -> None:
    """Specification 16.51."""
    folder = tmp_path / "made" / "here"
    found = [taken(folder) for _ in range(SLOTS)]
    assert len({slot.path for slot in found}) == SLOTS
    assert take_slot(str(folder), "site/1") is None
    found[3].release()
    found[3].release()
    assert taken(folder).path == found[3].path
    other = taken(folder, "other")
    assert other.path not in {slot.path for slot in found}


def test_a_process_begins_with_its_own_file_or_the_newest_of_others(tmp_path: Path) -> None:
    """Specification 16.51."""
    first, second, third = taken(tmp_path), taken(tmp_path), taken(tmp_path)
    save(first, 5)
    save(second, 9)
    assert third.candidates() == [second.path, first.path]
    save(third, 1)
    assert third.candidates() == [third.path, second.path, first.path]
    second.path.write_bytes(b"nonsense")
    assert first.candidates() == [first.path, third.path]


def test_files_are_readable_for_their_user_alone(tmp_path: Path) -> None:
    slot = taken(tmp_path / "folder")
    save(slot, 5)
    assert slot.path.stat().st_mode & 0o777 == 0o600
    assert slot.path.parent.stat().st_mode & 0o777 == 0o700


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """Specification 16.49: a full disk."""
    slot = taken(tmp_path)
    slot.path.with_suffix(".new").write_bytes(b"of a process that was killed" * 100)
    save(slot, 5)
    before = slot.path.read_bytes()
    assert slot.candidates() == [slot.path]
    with open(slot.path, "rb") as file:
        read(file, "site/1")

    def fails(file: BinaryIO) -> bool:
        file.write(b"some")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        slot.replace(fails)
    slot.replace(lambda file: False)
    assert slot.path.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["site%2F1-0.cache", "site%2F1-0.lock"]


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """Specification 16.49: another process reads the file while it is written."""
    slot = taken(tmp_path)
    save(slot, 5)
    before = slot.path.read_bytes()

    def writes(file: BinaryIO) -> bool:
        file.write(b"half")
        file.flush()
        assert slot.path.read_bytes() == before
        return True

    slot.replace(writes)
    assert slot.path.read_bytes() == b"half"


def test_the_child_of_a_fork_does_not_free_the_slot(tmp_path: Path) -> None:
    slot = taken(tmp_path)
    pid = os.fork()
    if not pid:
        slot.release()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert taken(tmp_path).path != slot.path


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        slots.take_slot(str(tmp_path / "file"), "site")
