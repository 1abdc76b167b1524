"""What a master tells monitoring (docs/monitoring.md)."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest

from neo.master.figures import MASTER
from neo.node.core import Readiness
from neo.node.figures import COMMON, Sample
from neo.node.meter import Histogram
from neo.protocol.ids import tid_from_time, u64
from neo.protocol.packets import AskBeginTransaction, InvalidateObjects
from tests.unit.master.backup_world import BackupWorld, complete, fetched
from tests.unit.master.cluster import MasterWorld, tid
from tests.unit.master.masters import Masters

NOON = u64(tid_from_time(1_800_000_000.0))
LATER = u64(tid_from_time(1_800_000_007.0))


def values(samples: Iterable[Sample]) -> dict[str, float]:
    return {
        " ".join((sample.figure.name.removeprefix("neo_master_"), *sample.labels)): sample.value
        for sample in samples
        if not isinstance(sample.value, Histogram)
    }


def test_a_cluster_and_its_transactions() -> None:
    world = MasterWorld()
    assert world.master.readiness() == Readiness(False, "primary master; the cluster is RECOVERING")
    world.running(2)
    client = world.client()
    client.ask(AskBeginTransaction(None)).result()
    found = values(world.master.samples())
    assert world.master.readiness() == Readiness(True, "primary master; the cluster is RUNNING")
    assert (found["cluster_state RUNNING"], found["cluster_state RECOVERING"]) == (1, 0)
    assert (found["cells UP_TO_DATE"], found["cells OUT_OF_DATE"]) == (4, 0)
    assert (found["transactions_open BEGUN"], found["transactions_open LOCKING"]) == (1, 0)
    assert (found["neo_connections storage"], found["neo_connections client"]) == (2, 1)
    assert "backup_lag_seconds" not in found


def test_how_far_a_backup_is_behind() -> None:
    world = BackupWorld()
    upstream, (storage,) = world.backingup(last=NOON)
    fetched(storage, NOON, 0, 1, 2, 3)
    complete(NOON, storage)
    found = values(world.master.samples())
    assert (found["backup_following"], found["backup_lag_seconds"]) == (1, 0)
    assert found["last_transaction_timestamp_seconds"] == pytest.approx(1_800_000_000, abs=1)
    upstream.send(InvalidateObjects(tid(LATER), [tid(2)]))
    assert values(world.master.samples())["backup_lag_seconds"] == pytest.approx(7, abs=0.1)
    fetched(storage, LATER, 1, 2)
    complete(LATER, storage)
    upstream.lose()
    found = values(world.master.samples())
    assert (found["backup_following"], found["backup_lag_seconds"]) == (0, 0)
    figures = {sample.figure for sample in world.master.samples()}
    assert figures - set(COMMON) == set(MASTER)


def test_a_backup_that_shows_nothing_yet_is_infinitely_behind() -> None:
    world = BackupWorld()
    world.starting()
    world.upstream(NOON)
    assert values(world.master.samples())["backup_lag_seconds"] == math.inf


def test_masters_that_are_not_primary_are_ready_while_they_know_the_primary() -> None:
    masters = Masters.elected()
    (primary,) = masters.serving()
    other = masters.core(masters.others(primary)[0])
    assert masters.core(primary).readiness().text == "primary master; the cluster is RECOVERING"
    assert other.readiness() == Readiness(True, "this master follows another one")
    found = [values(core.samples())["primary"] for core in masters.cores()]
    assert sorted(found) == [0, 0, 1]
    masters.processes[primary].kill()
    masters.run(1.5)
    assert other.readiness() == Readiness(False, "no primary master is known")
