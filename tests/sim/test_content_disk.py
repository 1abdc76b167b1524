"""The simulated folder of contents: order, durability, faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from neo.protocol.blobs import Content, content_hash
from neo.storage.backend.api import BackendFailure
from neo.storage.blobs.disk import ContentDisk, ContentMismatch
from tests.simulator.content_disk import SimContentDisk
from tests.simulator.content_volume import ContentVolume, OwnHealth
from tests.simulator.world import Violation, World

DATA = b"a content of a few pieces"


def content(data: bytes = DATA) -> Content:
    found = content_hash()
    found.update(data)
    return Content(len(data), found.digest())


class Host:
    """A process that runs its callbacks in the world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def from_thread(self, callback: Callable[..., None], *args: object) -> object:
        return self._world.call_later(0.0, lambda: callback(*args))


class Machine:
    """A machine with a folder, and the answers of its disk."""

    def __init__(self, seed: int = 0) -> None:
        self.world = World(seed)
        self.health = OwnHealth()
        self.volume = ContentVolume(self.world, "storage1", self.health)
        self.volume.health = self.health
        self.identity: str | None = None
        self.answers: list[Any] = []
        self.disk: ContentDisk = self.boot()

    def boot(self) -> ContentDisk:
        self.disk = SimContentDisk(self.volume, Host(self.world))
        self.identity = self.disk.open(self.identity)
        return self.disk

    def run(self) -> list[Any]:
        """Return the answers of all calls until now."""
        while self.world.step():
            pass
        answers, self.answers = self.answers, []
        return answers

    def keep(self, data: bytes = DATA, part: str = "part") -> None:
        self.disk.append(part, 0, data[:5], self.answers.append)
        self.disk.append(part, 5, data[5:], self.answers.append)
        self.disk.keep(part, content(data), self.answers.append)

    def read(self, data: bytes = DATA) -> Any:
        self.disk.read(content(data).checksum, 0, 100, self.answers.append)
        return self.run()[-1]

    def crash(self) -> None:
        self.volume.crash()
        self.boot()


def test_kept_content_is_read_again_and_survives_every_crash() -> None:
    for seed in range(20):
        machine = Machine(seed)
        machine.keep()
        assert machine.run() == [None, None, None]
        machine.crash()
        assert machine.read() == DATA
        machine.volume.check_durable([content().checksum.hex()])
        assert not machine.volume.parts.now


def test_content_that_is_not_kept_yet_may_be_lost_in_a_crash_and_never_in_part() -> None:
    found = set()
    for seed in range(200):
        machine = Machine(seed)
        machine.keep()
        machine.world.run(0.001 + seed * 0.00005)
        early = not machine.answers[2:]
        machine.crash()
        answer = machine.read()
        found.add((early, "lost" if isinstance(answer, FileNotFoundError) else answer))
    assert found == {(True, "lost"), (True, DATA), (False, DATA)}


def test_record_without_its_content_on_the_disk_is_a_violation() -> None:
    machine = Machine()
    machine.keep()
    machine.world.run(0.002)
    with pytest.raises(Violation, match="refers to content"):
        machine.volume.check_durable([content().checksum.hex()])


def test_parts_of_uploads_end_with_the_process_and_those_of_fetches_go_on() -> None:
    machine = Machine()
    for part in ("upload", "fetch-1"):
        machine.disk.append(part, 0, DATA, machine.answers.append)
    machine.run()
    machine.disk.close()
    machine.boot()
    for part in ("upload", "fetch-1"):
        machine.disk.resume(part, machine.answers.append)
    assert machine.run() == [0, len(DATA)]


def test_part_that_is_not_the_content_is_deleted() -> None:
    machine = Machine()
    machine.disk.append("part", 0, DATA, machine.answers.append)
    machine.disk.keep("part", content(b"other"), machine.answers.append)
    machine.disk.resume("part", machine.answers.append)
    _, kept, length = machine.run()
    assert isinstance(kept, ContentMismatch)
    assert length == 0


def test_piece_that_is_not_at_the_end_of_its_part_is_refused() -> None:
    machine = Machine()
    machine.disk.append("part", 3, DATA, machine.answers.append)
    machine.disk.append("part", 0, DATA, machine.answers.append)
    machine.disk.append("part", 3, DATA, machine.answers.append)
    missing, written, wrong = machine.run()
    assert (type(missing), written, type(wrong)) == (FileNotFoundError, None, OSError)


def test_calls_for_one_content_take_effect_in_their_order() -> None:
    for seed in range(20):
        machine = Machine(seed)
        machine.keep(part="first")
        machine.disk.remove(content().checksum, machine.answers.append)
        machine.keep(part="second")
        machine.run()
        assert machine.read() == DATA


def test_removed_content_may_come_back_in_a_crash() -> None:
    found = set()
    for seed in range(20):
        machine = Machine(seed)
        machine.keep()
        machine.disk.remove(content().checksum, machine.answers.append)
        machine.run()
        machine.crash()
        found.add(type(machine.read()))
    assert found == {bytes, FileNotFoundError}


def test_full_and_failing_disks_refuse_and_lose_nothing_that_was_kept() -> None:
    machine = Machine()
    machine.keep(b"earlier")
    machine.run()
    machine.health.full = machine.health.failing = True
    for _ in range(20):
        machine.keep()
    assert {type(answer) for answer in machine.run()} >= {OSError}
    room = machine.disk.room()
    assert room is not None and room.free == 0
    machine.volume.crash()
    with pytest.raises(BackendFailure, match="cannot be used"):
        machine.boot()
    machine.health.heal()
    machine.boot()
    assert machine.read(b"earlier") == b"earlier"
    assert isinstance(machine.read(), FileNotFoundError)


def test_a_part_whose_sync_failed_is_gone() -> None:
    """What a failed sync did not write, a later one would not write either, and succeed."""
    machine = Machine()
    machine.health.failing = True
    machine.keep()
    assert isinstance(machine.run()[-1], OSError)
    machine.health.heal()
    machine.disk.keep("part", content(), machine.answers.append)
    assert isinstance(machine.run()[-1], FileNotFoundError)
    assert not machine.volume.names()
    machine.keep()
    assert machine.run()[-1] is None
    machine.volume.check_durable([content().checksum.hex()])


def test_damage_is_found_by_a_comparison_and_mended_by_another_copy() -> None:
    found = set()
    for seed in range(20):
        machine = Machine(seed)
        machine.keep()
        machine.run()
        assert machine.volume.damage(content().checksum.hex())
        machine.disk.verify(content(), machine.answers.append)
        found.add(type(machine.run()[0]))
        machine.volume.check_durable([content().checksum.hex()])  # excused
        machine.keep()
        machine.run()
        assert not machine.volume.faulty
        assert machine.read() == DATA
    assert found == {ContentMismatch, FileNotFoundError}


def test_names_are_listed_by_bucket_in_order() -> None:
    machine = Machine()
    for number in range(8):
        machine.keep(bytes([number]) * 9, f"part{number}")
    machine.run()
    for bucket in range(256):
        machine.disk.names(bucket, machine.answers.append)
    found = [name for names in machine.run() for name in names]
    assert sorted(found) == sorted(content(bytes([n]) * 9).checksum for n in range(8))


def test_folder_of_another_database_is_refused() -> None:
    machine = Machine()
    machine.keep()
    machine.run()
    with pytest.raises(BackendFailure, match="another process"):
        SimContentDisk(machine.volume, Host(machine.world)).open(machine.identity)
    machine.disk.close()
    for identity in (None, "other"):
        with pytest.raises(BackendFailure, match="belongs to another database"):
            SimContentDisk(machine.volume, Host(machine.world)).open(identity)


def test_a_condemned_folder_is_emptied_when_its_database_is_erased() -> None:
    machine = Machine()
    machine.keep()
    machine.run()
    machine.disk.close()
    kept = SimContentDisk(machine.volume, Host(machine.world))
    kept.condemn()
    assert kept.open(machine.identity) == machine.identity
    assert machine.volume.contents.now
    kept.close()
    kept.condemn()
    assert kept.open(None) != machine.identity
    assert not machine.volume.contents.now


def test_folder_that_is_empty_though_its_database_has_contents_is_refused() -> None:
    empty = Machine()
    empty.disk.close()
    empty.volume.identity = None
    with pytest.raises(BackendFailure, match="is empty"):
        empty.boot()


def test_copy_and_earlier_state_have_the_contents_of_their_time() -> None:
    machine = Machine()
    machine.keep(b"earlier")
    machine.run()
    machine.disk.close()
    restore = machine.volume.snapshot()
    machine.boot()
    machine.keep(b"later")
    machine.run()
    machine.disk.close()
    copied = machine.volume.copy("storage2", machine.health)
    restore()
    names = [content(data).checksum.hex() for data in (b"earlier", b"later")]
    assert sorted(copied.contents.now) == sorted(names)
    assert list(machine.volume.contents.now) == names[:1]
    assert machine.volume.faulty == {names[1]}
