"""Data that a crash leaves without references is allowed until it is swept, or ``neoctl prune_orphan`` is
run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha1
from random import Random

import pytest

from neo.protocol.ids import ZERO_OID
from neo.storage.maintenance.cleanup import Orphans
from neo.storage.node import StorageNode
from tests.simulator.alarm import alarmed
from tests.simulator.checks import Drills
from tests.simulator.cluster import Cluster, Shape
from tests.simulator.disk import DISKS
from tests.simulator.disk_check import orphans
from tests.simulator.history import History
from tests.simulator.operator import Operator
from tests.simulator.planting import plant
from tests.simulator.world import Violation, World

VALUE = b"stored, and not voted"


@contextmanager
def crashed(kind: str) -> Iterator[Cluster]:
    """Yield a cluster whose node was killed when it had stored and synced data without a vote."""
    world = World(0)
    cluster = Cluster(world, Shape(1, 1, 0), lambda name: DISKS[kind](world, name))
    with alarmed(world):
        cluster.start()
        (process,) = cluster.storages
        assert isinstance(process.core, StorageNode)
        durable: list[bool] = []
        process.core.database.backend.values.store_data(ZERO_OID, 0, sha1(VALUE).digest(), VALUE)
        process.core.database.backend.engine.stored(lambda: durable.append(True))
        world.run_until(lambda: bool(durable), 10.0, "it is durable")
        process.kill()
        # Until the master has noticed.
        world.run(1.0)
        process.start()
        cluster.wait_running()
        try:
            yield cluster
        finally:
            for disk in cluster.disks.values():
                disk.close()


def _drills(cluster: Cluster) -> Drills:
    history = History(cluster.world)
    return Drills(cluster, Operator(cluster, Random(0), history, False), Random(0))


async def _no_sweep(self: Orphans) -> None:
    self._wanted = False


@pytest.mark.parametrize("kind", sorted(DISKS))
def test_what_a_crash_left_is_swept(kind: str) -> None:
    """Specification 14.50."""
    with crashed(kind) as cluster:
        (disk,) = cluster.disks.values()
        cluster.world.run_until(lambda: cluster.swept, 10.0, "it is swept")
        assert not orphans(disk.tables())
        disk.check(quiet=True)


@pytest.mark.parametrize("kind", sorted(DISKS))
def test_what_a_sweep_leaves_is_forgiven_until_it_ends_and_pruned(kind: str) -> None:
    with plant([(Orphans, "_sweep", _no_sweep)]), crashed(kind) as cluster:
        (disk,) = cluster.disks.values()
        assert orphans(disk.tables())
        disk.check(quiet=True)
        cluster.world.run_until(lambda: cluster.swept, 10.0, "it is swept")
        with pytest.raises(Violation, match="nothing refers to data"):
            disk.check(quiet=True)
        _drills(cluster).prune()
        assert not orphans(disk.tables())


def test_what_a_prune_leaves_is_found() -> None:
    prune = Orphans.prune
    wrong = (Orphans, "prune", lambda self, dry_run: prune(self, True))
    sweep = (Orphans, "_sweep", _no_sweep)
    with plant([wrong, sweep]), crashed("memory") as cluster:
        with pytest.raises(Violation, match="nothing refers to data"):
            _drills(cluster).prune()
