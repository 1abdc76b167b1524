"""One copy is lost after the other, and the first comes back alone (specification 4.16), at any
moment."""

from __future__ import annotations

from random import Random

import pytest
from persistent.mapping import PersistentMapping
from ZODB.DB import DB

from neo.protocol.enums import ClusterState
from tests.sim.writing import Writing
from tests.simulator.alarm import alarmed
from tests.simulator.cluster import Cluster, Shape
from tests.simulator.memory_disk import MemoryDisk
from tests.simulator.world import Violation, World
from tests.simulator.zodb_world import simulated_zodb

SEEDS = 10
#: Time within which a wrong master would start with the nodes that are connected.
WAIT_SECONDS = 60.0


class Writer(Writing):
    """Increments an object. The world fails when an acknowledged value is lost."""

    def __init__(self, cluster: Cluster) -> None:
        self.acknowledged = 0
        super().__init__(cluster)

    def step(self, db: DB) -> None:
        with db.transaction() as connection:
            counter = connection.root().setdefault("counter", PersistentMapping(value=0))
            self._compare(counter["value"])
            value = counter["value"] = counter["value"] + 1
        self.acknowledged = value

    def check(self, db: DB) -> None:
        with db.transaction() as connection:
            self._compare(connection.root()["counter"]["value"])

    def _compare(self, found: int) -> None:
        if found < self.acknowledged:
            error = Violation(f"{self.acknowledged} was acknowledged, {found} is there")
            self.cluster.world.fail(error)


def _waiting(cluster: Cluster) -> bool:
    """Return whether the cluster waits and names the node for which it waits."""
    master = cluster.master_core
    assert master is not None
    if master.cluster.state is ClusterState.RUNNING:
        return False
    assert master.cluster.state is ClusterState.RECOVERING
    (absent,) = {1, 2} - master.cluster.identified_storages()
    assert f"S{absent}" in master.recovery._reported
    return True


@pytest.mark.parametrize("master_too", [False, True], ids=["same master", "new master"])
def test_the_commit_survives_or_the_cluster_waits_for_the_node_that_has_it(master_too: bool) -> None:
    waited = sum(_lose_one_after_the_other(seed, master_too) for seed in range(SEEDS))
    # The cluster need not wait if the first node had all acknowledged transactions.
    assert waited > SEEDS / 2


def _lose_one_after_the_other(seed: int, master_too: bool) -> bool:
    """Return whether the cluster waited. The writer fails the world if a commit does not survive."""
    world, choices = World(seed), Random(seed)
    cluster = Cluster(world, Shape(2, 4, 1), lambda name: MemoryDisk(world, name))
    with alarmed(world), simulated_zodb(cluster.threads):
        cluster.start()
        writer = Writer(cluster)
        try:
            writer.wait_commits(2)
            first, second = cluster.storages if choices.random() < 0.5 else cluster.storages[::-1]
            world.run(choices.random() * 0.05)  # at any moment of a commit
            first.kill()
            writer.wait_commits(1 + choices.randrange(3))
            world.run(choices.random() * 0.05)
            second.kill()
            if master_too:
                cluster.master.kill()
                cluster.master.start()
            first.start()
            world.run(WAIT_SECONDS)
            waiting = _waiting(cluster)
            second.start()
            cluster.wait_running()
            writer.wait_commits(2)
            writer.end()
        finally:
            writer.kill()
            for disk in cluster.disks.values():
                disk.close()
    return waiting
