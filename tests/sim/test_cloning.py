"""A copy of a simulated node's database becomes a node of its own (docs/maintenance.md, Clone a node)."""

from __future__ import annotations

from random import Random

import pytest

from neo.protocol.enums import NodeType
from neo.storage.node import StorageNode
from tests.sim.writing import Counter
from tests.simulator import cloning
from tests.simulator.alarm import alarmed
from tests.simulator.cloning import Clone, Cloning
from tests.simulator.cluster import Cluster, Shape
from tests.simulator.disk import DISKS
from tests.simulator.history import History
from tests.simulator.operator import Operator
from tests.simulator.planting import plant
from tests.simulator.replicas import check_replicas
from tests.simulator.table_watch import check_tables, watched_tables
from tests.simulator.world import World
from tests.simulator.zodb_world import simulated_zodb

SETTLED_SECONDS = 60.0
PARTITIONS = 2


@pytest.mark.parametrize("killed", [False, True], ids=["left alone", "killed"])
@pytest.mark.parametrize("disk", sorted(DISKS))
def test_a_copy_joins_and_has_what_the_others_have(disk: str, killed: bool) -> None:
    world = World(0)
    cluster = Cluster(world, Shape(1, PARTITIONS, 1), lambda name: DISKS[disk](world, name))
    operator = Operator(cluster, Random(0), History(world), rewindable=False)
    with (
        alarmed(world), watched_tables(world), simulated_zodb(cluster.threads),
        plant([(cloning, "KILL_CHANCE", 0.0)]),
    ):  # fmt: skip
        cluster.start()
        writer = Counter(cluster)
        try:
            writer.wait_commits(2)
            Cloning([cluster], Random(1)).act()
            (clone,) = cluster.joining
            assert isinstance(clone, Clone)
            if killed:
                world.run_until(lambda: _given(cluster), SETTLED_SECONDS, "it is given an id")
                clone.kill()
                clone.start()
            world.run_until(lambda: clone.joined, SETTLED_SECONDS, "the clone has its id")
            operator.settle()
            world.run_until(lambda: operator.settled, SETTLED_SECONDS, "all cells are complete")
            writer.wait_commits(2)
            writer.end()
            world.run(5.0)
            master = cluster.master_core
            original, second = cluster.storages
            assert master is not None and second is clone
            nids = {
                core.cluster.nid
                for core in (clone.core, original.core)
                if isinstance(core, StorageNode)
            }
            assert len(nids) == 2
            assert all(len(master.partitions.readable(p)) == 2 for p in range(PARTITIONS))
            # The master forgets the id that was given in vain.
            assert len(master.nodes.of_type(NodeType.STORAGE)) == 2
            check_tables(cluster)
            check_replicas(master, [(n, d.tables()) for n, d in cluster.disks.items()])
        finally:
            writer.kill()
            for each in cluster.disks.values():
                each.close()


def _given(cluster: Cluster) -> bool:
    """Return whether the clone has an id that it has not stored yet."""
    master = cluster.master_core
    return master is not None and len(master.nodes.of_type(NodeType.STORAGE)) > 1
