"""The simulated file system of archives: what a crash leaves, and what oracles see."""

from __future__ import annotations

from collections.abc import Callable
from errno import EIO, ENOSPC, ESTALE
from pathlib import Path
from random import Random

import pytest

from neo.archive.disk import PartFile, make_folder, write_file
from neo.archive.folder import ArchiveFolder
from neo.node.task import Future
from tests.simulator.archive_disk import ArchiveDisk, MountedFiles
from tests.simulator.content_volume import ContentVolume, File, OwnHealth
from tests.simulator.world import World

FOLDER = Path("/archives/1")
DATA = b"some rows of a partition"


class Host:
    """A process that runs its callbacks at once, until it dies."""

    dead = False

    def from_thread(self, callback: Callable[..., None], *args: object) -> None:
        callback(*args)


class Machine:
    def __init__(self, seed: int = 0) -> None:
        self.world = World(seed)
        self.disk = ArchiveDisk(self.world, Random(seed))
        self.volume = ContentVolume(self.world, "storage1", OwnHealth())
        self.host = Host()
        self.files = MountedFiles(self.disk, self.host, self.volume)
        make_folder(self.files, FOLDER)

    def data(self, name: str, durable: bool) -> bytes | None:
        found = self.disk.copy(durable).disk.find(FOLDER / name)
        return found.data if isinstance(found, File) else None


def test_oracles_see_a_file_when_its_data_and_its_name_are_synced() -> None:
    machine = Machine()
    file = PartFile(machine.files, FOLDER / "rows")
    file.write(DATA)
    assert machine.data("rows", durable=False) is None
    file.keep()
    assert (machine.data("rows", False), machine.data("rows", True)) == (DATA, None)
    machine.files.sync_folder(FOLDER)
    assert machine.data("rows", durable=True) == DATA


@pytest.mark.parametrize("how", ["power", "kill"])
def test_what_is_not_synced_is_lost_with_the_server_or_the_process(how: str) -> None:
    lost = 0
    for seed in range(10):
        machine = Machine(seed)
        write_file(machine.files, FOLDER / "old", DATA)
        output = machine.files.create(FOLDER / "new")
        output.write(DATA)
        if how == "power":
            machine.disk.lose_power()
            with pytest.raises(OSError) as raised:
                output.sync()
            assert raised.value.errno == ESTALE
        else:
            machine.host.dead = True
        assert machine.data("old", durable=False) == DATA
        lost += machine.data("new", durable=False) != DATA
    assert 0 < lost < 10


def test_a_full_and_a_failing_disk_fail() -> None:
    machine = Machine()
    machine.disk.full = machine.disk.failing = True
    with pytest.raises(OSError) as raised:
        for _ in range(100):
            machine.files.create(FOLDER / "x").write(DATA)
    assert raised.value.errno == ENOSPC
    machine.disk.full = False
    with pytest.raises(OSError) as raised:
        write_file(machine.files, FOLDER / "x", DATA)
    assert raised.value.errno == EIO
    machine.disk.heal()
    write_file(machine.files, FOLDER / "x", DATA)
    assert machine.data("x", durable=True) == DATA


def test_an_archive_makes_names_durable_that_an_interrupted_call_has_left() -> None:
    """Specification 28.4."""
    machine = Machine()
    folder, tid = ArchiveFolder(str(FOLDER), machine.files), bytes(7) + b"1"
    machine.disk.failing = True
    with pytest.raises(OSError):
        folder.begin(tid)
    machine.disk.heal()
    folder.begin(tid)
    assert ArchiveFolder(str(FOLDER), machine.disk.copy(True)).tids() == [tid]


def test_an_archive_makes_a_removal_durable_that_was_interrupted() -> None:
    """Specification 27.53."""
    machine = Machine()
    folder, tid = ArchiveFolder(str(FOLDER), machine.files), bytes(7) + b"1"
    folder.begin(tid)
    machine.files.remove_folder(folder.copy(tid))  # by a process that dies here
    folder.remove(tid)
    assert not ArchiveFolder(str(FOLDER), machine.disk.copy(True)).tids()


def test_calls_of_a_worker_take_effect_in_their_order_and_none_after_the_death_of_the_process() -> None:
    machine = Machine()
    worker = machine.disk.worker(machine.host, machine.volume)
    done: list[int] = []

    def call(number: int) -> Future[None]:
        return worker.call(lambda: done.append(number))

    futures = [call(number) for number in range(3)]
    assert not done
    machine.world.run_until(lambda: futures[1].done, 1.0, "two calls have ended")
    machine.host.dead = True
    machine.world.run(1.0)
    assert done == [0, 1] and not futures[2].done
