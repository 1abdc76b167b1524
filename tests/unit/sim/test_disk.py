"""Simulated disks: what is acknowledged survives, nothing is half there, the same seed is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha1
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from neo.storage.backend.api import BackendFailure
from tests.simulator import memory_disk
from tests.simulator.disk import DISKS, MemoryDisk, SimDisk, SQLiteDisk
from tests.simulator.disk_check import Rows, check_tables
from tests.simulator.world import Violation, World
from tests.unit.backend.harness import NP, UP, p64
from tests.unit.backend.model import run_machine
from tests.unit.sim.harness import Process, SimHarness, Storm, comparable, contract_tests

SEEDS, STEPS = 25, 200
KINDS = pytest.mark.parametrize("kind", ["memory", "sqlite"])


class Opened(NamedTuple):
    """A disk with a backend that has been opened."""

    disk: SimDisk
    node: SimHarness
    backend: Any


def opened(kind: str, seed: int = 1) -> Opened:
    disk = make(kind, seed)
    node = SimHarness(disk)
    backend = node.ready()
    node.wait(backend.engine.stored)
    return Opened(disk, node, backend)


@pytest.fixture(params=["memory", "sqlite"])
def one(request: pytest.FixtureRequest) -> Iterator[Opened]:
    found = opened(request.param)
    yield found
    found.disk.close()


def make(kind: str, seed: int, lag: float = 0.0) -> SimDisk:
    world = World(seed)
    if kind == "memory":
        return MemoryDisk(world, "disk", lag, dedup=False)
    return SQLiteDisk(world, "disk", dedup=False)


# -- SQLite in simulation is still SQLite ----------------------------------------------------------

globals().update(contract_tests())


@pytest.fixture
def node() -> Iterator[SimHarness]:
    made = SimHarness(make("sqlite", 1))
    yield made
    made.close()
    made.disk.close()


def test_sqlite_in_simulation_behaves_as_the_model(node: SimHarness) -> None:
    run_machine(node, False, 20)


# -- crashes ---------------------------------------------------------------------------------------


def storm(kind: str, seed: int, steps: int, lag: float = 0.0) -> tuple[Storm, Rows, str]:
    disk = make(kind, seed, lag)
    try:
        made = Storm(disk, exact=not lag)
        made.run(steps)
        return made, made.finish(), disk.world.digest
    finally:
        disk.close()


@KINDS
def test_what_is_acknowledged_survives_and_nothing_is_half_there(kind: str) -> None:
    storms = [storm(kind, seed, STEPS)[0] for seed in range(SEEDS)]
    assert all(s.crashes for s in storms)
    for what in "lost", "failures", "failed_opens":
        assert sum(getattr(s, what) for s in storms) > 10, f"nothing was tested: {what}"


def test_tables_stay_consistent_when_writes_are_executed_later() -> None:
    for seed in range(SEEDS):
        assert storm("memory", seed, STEPS, lag=0.002)[0].crashes


@KINDS
def test_the_same_seed_gives_the_same_events_and_the_same_tables(kind: str) -> None:
    for seed in range(3):
        _, tables, digest = storm(kind, seed, STEPS)
        assert (tables, digest) == storm(kind, seed, STEPS)[1:]


def forget_sync(disk: SQLiteDisk, log: bytes) -> None: ...


@pytest.mark.parametrize(
    "kind, target, name, bug",
    [
        ("memory", memory_disk, "apply", lambda image, changes: None),
        ("sqlite", SQLiteDisk, "log_synced", forget_sync),
    ],
    ids=["memory", "sqlite"],
)
def test_these_tests_notice_a_sync_that_is_missing(
    kind: str, target: object, name: str, bug: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, name, bug)
    with pytest.raises(AssertionError, match="lost, or half there"):
        for seed in range(SEEDS):
            storm(kind, seed, STEPS)


@KINDS
def test_a_crash_during_a_sync_keeps_the_commit_or_loses_it(kind: str) -> None:
    found = set()
    for seed in range(20):
        disk, node, backend = opened(kind, seed)
        node.commit(backend, 10, {4: b"x", 5: b"y"})
        backend.engine.stored(lambda: pytest.fail("acknowledged after the crash"))
        disk.crash()
        tables = disk.tables()
        found.add((len(tables["obj"]), len(tables["trans"]), len(tables["data"])))
        disk.world.run(1.0)
        disk.close()
    assert found == {(0, 0, 0), (2, 1, 2)}


# -- faults ----------------------------------------------------------------------------------------


def test_a_full_disk_fails_the_backend_until_there_is_space(one: Opened) -> None:
    disk, node, backend = one
    disk.full = True
    with pytest.raises(BackendFailure, match="disk: no space"):
        backend.tables.set_config("x", "y")
        backend.engine.stored(lambda: None)
    backend.close()
    with pytest.raises(BackendFailure, match="disk"):
        node.open()
    disk.heal()
    assert node.open().tables.get_config("x") is None


def test_a_failed_sync_is_reported_on_the_loop_and_answers_nobody(one: Opened) -> None:
    disk, node, backend = one
    disk.failing = True
    backend.tables.set_config("x", "y")
    backend.engine.stored(lambda: pytest.fail("acknowledged"))
    node.run_until(lambda: node.failures)
    assert str(node.failures[0]).startswith("disk: ")
    with pytest.raises(BackendFailure):
        backend.tables.set_config("x", "z")
    backend.close()
    disk.heal()
    assert node.open().tables.get_config("x") in (None, "y")


def test_a_read_that_fails_fails_the_backend_and_says_so(one: Opened) -> None:
    disk, node, backend = one
    disk.unreadable = True
    with pytest.raises(BackendFailure, match="disk: .*(a read failed|the disk fails or is gone)"):
        for _ in range(1000):
            backend.reads.load(p64(0), None, None)
    disk.unreadable = False
    with pytest.raises(BackendFailure):
        backend.reads.load(p64(0), None, None)
    backend.close()
    assert node.open().reads.load(p64(0), None, None) is None


def test_a_sync_on_a_slow_disk_ends_soon_when_the_disk_is_healed(one: Opened) -> None:
    disk, _, backend = one
    disk.slow = 1000.0
    synced: list[float] = []
    backend.tables.set_config("x", "y")
    backend.engine.stored(lambda: synced.append(disk.world.now))
    disk.world.run(10.0)
    assert not synced
    disk.heal()
    disk.world.run(10.0)
    assert len(synced) == 1


def test_without_anybody_to_tell_a_failure_ends_the_world() -> None:
    disk = make("memory", 1)
    backend = disk.open_backend(Process(disk.world))
    disk.failing = True
    backend.tables.set_config("x", "y")
    backend.engine.stored(lambda: None)
    with pytest.raises(BackendFailure, match="a sync failed"):
        disk.world.run(1.0)


def test_files_are_in_the_given_folder_and_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    disk = SQLiteDisk(World(1), "disk", str(folder))
    assert disk.path.parent == folder
    disk.close()
    assert not folder.exists()


@pytest.mark.parametrize("kind", DISKS)
def test_the_seed_chooses_what_is_not_given(kind: str) -> None:
    disks = [DISKS[kind](World(seed), "disk") for seed in range(20)]
    assert {disk.dedup for disk in disks} == {False, True}
    for disk in disks:
        disk.close()


# -- oracles ---------------------------------------------------------------------------------------


def quiet_tables() -> Rows:
    disk = make("memory", 1)
    node = SimHarness(disk)
    backend = node.ready()
    backend.tables.set_config("nid", "1")
    node.commit(backend, 10, {4: b"x", 5: b"y"})
    node.commit(backend, 13, {4: b"z"})
    node.commit(backend, 16, {4: 10})
    backend.close()
    disk.check()
    return disk.tables()


UNUSED = (99, sha1(b"a").digest(), 0, b"a")
EMPTY_META = (0, None, 0, b"", b"", b"", b"", 18)


def damage_value(tables: Rows) -> None:
    data_id, checksum, compression, _ = tables["data"][0]
    tables["data"][0] = (data_id, checksum, compression, b"other")


DAMAGES: dict[str, tuple[Callable[[Rows], object], str]] = {
    "data gone": (lambda t: t["data"].pop(), "is missing"),
    "data nobody uses": (lambda t: t["data"].append(UNUSED), "nothing refers"),
    "damaged data": (damage_value, "checksum"),
    "half a transaction": (lambda t: remove(t, "obj", 1, 5), "listed and missing"),
    "no transaction": (lambda t: t["trans"].pop(), "not in trans"),
    "a vote left": (lambda t: t["tobj"].append((0, 3, 18, None, None)), "tobj has rows left"),
    "metadata left": (lambda t: t["ttrans"].append(EMPTY_META), "ttrans has rows left"),
    "a mark left": (lambda t: t["prepared"].append((18, b"x", 1.0, b"", b"")), "prepared has rows"),
    "a check without a mark": (lambda t: t["prepared_check"].append((18, 3, 0)), "without a mark"),
    "an undo to nowhere": (lambda t: repoint(t, 11), "which is not there"),
    "an undo to another value": (lambda t: repoint(t, 13), "has not the value"),
    "an undo to the future": (lambda t: repoint(t, 19), "not older"),
    "a wrong partition": (lambda t: t["obj"].append((1, 3, 9, None, None)), "partition 1"),
}


def remove(tables: Rows, table: str, column: int, value: int) -> None:
    tables[table] = [row for row in tables[table] if row[column] != value]


def repoint(tables: Rows, value_tid: int) -> None:
    tables["obj"] = [(*row[:4], value_tid if row[4] is not None else None) for row in tables["obj"]]


@pytest.mark.parametrize("damage", DAMAGES)
def test_tables_that_contradict_themselves_are_found(damage: str) -> None:
    tables = quiet_tables()
    check_tables("disk", tables, quiet=True)
    change, message = DAMAGES[damage]
    change(tables)
    with pytest.raises(Violation, match=message):
        check_tables("disk", tables, quiet=True)


@KINDS
def test_orphans_of_a_crash_are_not_held_against_the_node(kind: str) -> None:
    disk = make(kind, 1)
    node = SimHarness(disk)
    backend = disk.open_backend(Process(disk.world), node.failures.append)
    backend.tables.change_cells(1, 0, [(p, 1, UP) for p in range(NP)], 1, True)
    node.store_data(backend, 4, b"x")
    node.wait(backend.engine.stored)
    with pytest.raises(Violation, match="nothing refers"):
        disk.check()
    disk.crash()
    backend = disk.open_backend(Process(disk.world), node.failures.append)
    disk.check()
    node.store_data(backend, 4, b"y")
    with pytest.raises(Violation, match="nothing refers"):
        disk.check()
    backend.close()
    disk.close()


@KINDS
def test_tables_are_the_same_open_and_closed(kind: str) -> None:
    disk = make(kind, 1)
    node = SimHarness(disk)
    backend = node.ready()
    node.commit(backend, 10, {4: b"x"})
    node.vote(backend, 13, {5: b"y"})
    seen = comparable(disk)
    assert seen["obj"] == [(1, 4, 10, 1 << 48, None)]
    backend.close()
    assert comparable(disk) == seen
    assert node.open().reads.load(p64(4), None, None).data == b"x"
    assert comparable(disk) == seen
    disk.close()
