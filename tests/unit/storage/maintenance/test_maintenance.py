"""Data of partitions that a node has no more is erased in the background, in small steps."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from hashlib import sha1

import pytest

from neo.protocol.ids import ZERO_OID, ZERO_TID, p64
from neo.protocol.packets import (
    NotifyPartitionChanges,
    NotifyReady,
    NotifyRepair,
    StartOperation,
    StopOperation,
)
from neo.storage.database import COMMIT_SECONDS
from tests.unit.storage.pauses import in_pauses, slow_clock
from tests.unit.storage.requests import commit, load
from tests.unit.storage.world import DISCARDED, OUT, UP, End, World


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neo.storage.maintenance.cleanup.STEP_LENGTH", 1)


def full(world: World, master: End) -> None:
    client = world.client(master)
    for number, oid in enumerate((0, 2, 4, 1)):
        commit(master, client, 10 + 4 * number, 12 + 4 * number, oid)


def rows(world: World, partition: int) -> int:
    backend = world.backend
    objects = backend.replication.objects_ascending(partition, ZERO_TID, ZERO_OID, p64(2**62), 100)
    return len(objects) + len(backend.reads.tids_ascending(ZERO_TID, p64(2**62), 100, partition))


def discard(master: End, ptid: int = 2) -> None:
    master.send(NotifyPartitionChanges(ptid, 0, [(0, 1, DISCARDED), (0, 2, UP)]))


def durable_objects(world: World) -> int:
    """Return how many rows of ``obj`` another process finds in the database."""
    with closing(sqlite3.connect(world.backend.engine.name)) as db:
        return int(db.execute("SELECT COUNT(*) FROM obj").fetchone()[0])


def erased(world: World) -> None:
    world.wait(lambda: not world.core.eraser.working, "the partition is not erased")
    world.settle()


def test_a_dropped_partition_is_erased_in_steps(world: World, master: End) -> None:
    """Specification 9.8, 12.21."""
    full(world, master)
    before = rows(world, 0)
    discard(master)
    assert rows(world, 0) == before - 1
    erased(world)
    assert rows(world, 0) == 0 and rows(world, 1) == 1
    assert world.backend.maintenance.prune_orphans(True, 0, 100)[0] == 0


def test_the_erasure_is_durable_soon_though_nothing_else_is_written(
    world: World, master: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 27.102."""
    monkeypatch.setattr("neo.storage.maintenance.cleanup.STEP_LENGTH", 100)
    full(world, master)
    discard(master)
    world.settle()
    world.wait(lambda: not world.core.eraser.working, "the partition is not erased")
    world.host.advance(COMMIT_SECONDS)
    world.wait(lambda: durable_objects(world) == 1, "the last rows are in no durable transaction")


def test_the_erasure_works_in_small_pieces_with_pauses_while_clients_are_at_work(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neo.storage.maintenance.cleanup.STEP_LENGTH", 100)
    monkeypatch.setattr("neo.storage.background.STEP_LENGTH", 1)
    master = world.operate()
    full(world, master)
    client = world.client(master)
    before = rows(world, 0)
    load(client, 1)
    monkeypatch.setattr(world.host, "monotonic", slow_clock(world, 0.001))
    discard(master)
    counts = in_pauses(world, lambda: load(client, 1), lambda: rows(world, 0))
    assert counts == [before - 1, before - 2, before - 3]
    world.host.advance(1)  # clients are quiet
    erased(world)
    assert rows(world, 0) == 0


def test_what_is_left_is_erased_when_the_operation_begins_again(world: World, master: End) -> None:
    full(world, master)
    discard(master)
    master.send(StopOperation())
    assert rows(world, 0)
    master.send(StartOperation(False))
    master.take(NotifyReady)
    erased(world)
    assert rows(world, 0) == 0


def test_a_partition_that_comes_back_is_not_erased_further(world: World, master: End) -> None:
    full(world, master)
    discard(master)
    left = rows(world, 0)
    master.send(NotifyPartitionChanges(3, 0, [(0, 1, OUT)]))
    erased(world)
    assert rows(world, 0) == left


def test_one_job_for_any_number_of_changes(world: World) -> None:
    master = world.operate([[(1, UP)], [(1, UP)]])
    full(world, master)
    discard(master)
    jobs = len(world.core.background.jobs)
    master.send(NotifyPartitionChanges(3, 0, [(1, 1, DISCARDED), (1, 2, UP)]))
    assert len(world.core.background.jobs) == jobs
    erased(world)
    assert rows(world, 0) == rows(world, 1) == 0


def test_nothing_is_erased_when_that_is_disabled(world: World, master: End) -> None:
    """Specification 12.21."""
    full(world, master)
    world.core.eraser.enabled = False
    before = rows(world, 0)
    discard(master)
    world.settle()
    assert rows(world, 0) == before


def test_orphans_are_deleted_in_small_pieces_with_pauses_while_clients_are_at_work(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("neo.storage.maintenance.cleanup.STEP_LENGTH", 100)
    monkeypatch.setattr("neo.storage.background.STEP_LENGTH", 1)
    master = world.operate()
    client = world.client(master)
    backend = world.backend
    for value in (b"1", b"2", b"3", b"4", b"5"):
        del backend.values.pending[backend.values.store_data(p64(2), 0, sha1(value).digest(), value)]
    commit(master, client, 10, 12, 1)
    load(client, 1)
    monkeypatch.setattr(world.host, "monotonic", slow_clock(world, 0.001))
    master.send(NotifyRepair(False))
    counts = in_pauses(
        world, lambda: load(client, 1), lambda: backend.maintenance.prune_orphans(True, 0, 100)[0]
    )
    assert counts == [4, 3, 2]
    # A reader of the log must not take it for the end.
    caplog.set_level("INFO", "neo.storage")
    master.send(StopOperation())
    assert "repair: 4 orphan records (4 bytes) deleted; not all was looked at" in caplog.text
