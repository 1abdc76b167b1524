"""The disk of a simulated storage node is not mounted for a while (docs/decisions, 27)."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest

from neo.protocol.enums import NodeType
from tests.sim.writing import Counter
from tests.simulator.alarm import alarmed
from tests.simulator.cluster import Cluster, Shape
from tests.simulator.disk import DISKS
from tests.simulator.history import History
from tests.simulator.missing_disk import Unmounted
from tests.simulator.operator import Operator
from tests.simulator.replicas import check_replicas
from tests.simulator.table_watch import check_tables, watched_tables
from tests.simulator.world import World
from tests.simulator.zodb_world import simulated_zodb

SETTLED_SECONDS = 60.0


def _is_there(cluster: Cluster, nid: int) -> bool:
    master = cluster.master_core
    return master is not None and nid in master.cluster.identified_storages()


@pytest.mark.parametrize("disk", sorted(DISKS))
def test_an_empty_database_takes_nobody_s_place_and_makes_place_for_it(disk: str) -> None:
    world = World(0)
    cluster = Cluster(world, Shape(2, 2, 1), lambda name: DISKS[disk](world, name))
    operator = Operator(cluster, Random(0), History(world), rewindable=False)
    with alarmed(world), watched_tables(world), simulated_zodb(cluster.threads):
        cluster.start()
        writer = Counter(cluster)
        try:
            writer.wait_commits(2)
            Unmounted([cluster], Random(1)).act()
            assert cluster.unmounted
            world.run_until(lambda: _is_there(cluster, 3), SETTLED_SECONDS, "the empty node comes")
            assert cluster.unmounted
            writer.wait_commits(2)  # the other node has all data
            world.run_until(lambda: not cluster.unmounted, SETTLED_SECONDS, "it is noticed")
            operator.settle()
            world.run_until(lambda: operator.settled, SETTLED_SECONDS, "all cells are complete")
            writer.wait_commits(2)
            writer.end()
            world.run(5.0)
            check_tables(cluster)
            master = cluster.master_core
            assert master is not None and master.partitions.nodes() == {1, 2}
            check_replicas(master, [(n, d.tables()) for n, d in cluster.disks.items()])
        finally:
            writer.kill()
            for each in cluster.disks.values():
                each.close()


def test_the_operator_drops_nobody_while_the_master_takes_another_one_for_there() -> None:
    """The empty node is gone and the master has not noticed: the number of nodes looks right."""
    world = World(0)
    cluster = Cluster(world, Shape(2, 2, 1), lambda name: DISKS["memory"](world, name))
    operator = Operator(cluster, Random(0), History(world), rewindable=False)
    mount = cluster.mounts[0]
    with alarmed(world), watched_tables(world), simulated_zodb(cluster.threads):
        cluster.start()
        writer = Counter(cluster)
        try:
            writer.wait_commits(2)
            mount.process.kill()
            mount.unmount()
            mount.process.revive()
            world.run_until(lambda: _is_there(cluster, 3), SETTLED_SECONDS, "the empty node comes")
            for one, other in permutations((cluster.master.host, mount.process.host)):
                cluster.network.cut(one, other)
            mount.process.kill()
            mount.remount()
            mount.process.revive()
            operator.settle()
            world.run(3.0)
            master = cluster.master_core
            assert master is not None and _is_there(cluster, 3)
            assert {node.nid for node in master.nodes.of_type(NodeType.STORAGE)} == {1, 2, 3}
        finally:
            writer.kill()
