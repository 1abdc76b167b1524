"""What a storage node tells monitoring (docs/monitoring.md)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from neo.node.core import Readiness
from neo.node.figures import COMMON, Sample
from neo.node.meter import Histogram
from neo.protocol.ids import p64
from neo.protocol.packets import (
    AskLockInformation,
    AskObject,
    NotifyUnlockInformation,
    StopOperation,
)
from neo.storage.backend.api import BackendFailure
from neo.storage.figures import STORAGE
from tests.unit.storage.requests import commit, store, store_request, vote
from tests.unit.storage.world import OUT, UP, End, World


def values(samples: Iterable[Sample]) -> dict[str, float]:
    """Return numbers, and how many durations there are, by name and labels."""
    return {
        " ".join((sample.figure.name.removeprefix("neo_storage_"), *sample.labels)): sum(value.counts)
        if isinstance(value := sample.value, Histogram)
        else value
        for sample in samples
    }


def test_locks_and_waits_for_them(world: World, master: End, client: End, other: End) -> None:
    assert store(client, 10, 1) is None
    other.ask_later(store_request(11, 1))
    world.host.advance(3)
    found = values(world.core.samples())
    assert found["transactions_open"] == 2
    assert (found["locks_held"], found["locks_waiting"]) == (1, 1)
    assert found["lock_wait_oldest_seconds"] == 3
    vote(client, 10, 1)
    master.ask(AskLockInformation(p64(10), p64(12)))
    other.ask_later(AskObject(p64(1), None, None))
    assert values(world.core.samples())["locks_waiting"] == 2, "reads of a locked object wait, too"
    master.send(NotifyUnlockInformation(p64(10)))
    world.settle()
    found = values(world.core.samples())
    assert (found["locks_waiting"], found["lock_wait_oldest_seconds"]) == (0, 0)


def test_syncs_are_measured_and_all_figures_are_listed(
    world: World, master: End, client: End
) -> None:
    before = values(world.core.samples())
    commit(master, client, 10, 12, 1)
    found = values(world.core.samples())
    assert found["sync_seconds"] >= before["sync_seconds"] + 2, "the vote and the lock"
    assert found["wal_bytes"] > 0 and found["checkpoints_total"] == 0
    assert 0 < found["disk_free_bytes database"] <= found["disk_size_bytes database"]
    figures = {sample.figure for sample in world.core.samples()}
    assert figures - set(COMMON) == set(STORAGE)


def test_cells_and_whether_the_node_serves(world: World) -> None:
    assert world.core.readiness() == Readiness(False, "no primary master is found")
    master = world.join()
    world.send_table(master, [[(1, UP)], [(1, OUT), (2, UP)], [(2, UP)]])
    assert world.core.readiness() == Readiness(False, "the primary master has not started this node")
    world.core.start_operation(backup=False)
    assert world.core.readiness() == Readiness(True, "S1 serves")
    found = values(world.core.samples())
    assert (found["cells UP_TO_DATE"], found["cells OUT_OF_DATE"]) == (1, 1)
    assert found["background_jobs"] > 0, "a cell is copied"
    master.send(StopOperation())
    assert not world.core.readiness().ready


def test_a_database_that_fails_meanwhile_ends_the_core(
    world: World, master: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> int:
        raise BackendFailure("planted")

    monkeypatch.setattr(world.backend.engine, "size", fail)
    assert "neo_node_ready" in {sample.figure.name for sample in world.core.samples()}
    assert world.core.stopped and world.host.restarts == 1
