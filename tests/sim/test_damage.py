"""A cell that is taken out of service, and loses rows, is repaired while others serve."""

from __future__ import annotations

from random import Random

from neo.protocol.enums import CellState
from tests.sim.writing import Counter
from tests.simulator.alarm import alarmed
from tests.simulator.cluster import Cluster, Shape
from tests.simulator.damage import Damage, corrupted
from tests.simulator.history import History
from tests.simulator.memory_disk import MemoryDisk
from tests.simulator.operator import Operator
from tests.simulator.replicas import check_replicas
from tests.simulator.world import World
from tests.simulator.zodb_world import simulated_zodb

SECONDS = 60.0


def test_rows_are_lost_and_come_back_while_a_client_writes() -> None:
    world = World(0)
    cluster = Cluster(world, Shape(2, 1, 1), lambda name: MemoryDisk(world, name))
    operator = Operator(cluster, Random(0), History(world), rewindable=False)
    with alarmed(world), simulated_zodb(cluster.threads):
        cluster.start()
        writer = Counter(cluster)
        try:
            writer.wait_commits(20)
            Damage([cluster], Random(0)).act()
            ((partition, nid),) = corrupted(cluster)
            lost = "loses rows of partition 0"
            world.run_until(lambda: any(lost in line for line in world.story), SECONDS, lost)
            writer.wait_commits(2)
            operator.settle()
            world.run_until(lambda: operator.settled, SECONDS, "the cell is repaired")
            writer.end()
            world.run(5.0)
            master = cluster.master_core
            assert master is not None
            assert master.partitions.state(partition, nid) is CellState.UP_TO_DATE
            check_replicas(master, [(n, disk.tables()) for n, disk in cluster.disks.items()])
        finally:
            writer.kill()
            for disk in cluster.disks.values():
                disk.close()


def test_the_only_copy_is_left_alone() -> None:
    world = World(0)
    cluster = Cluster(world, Shape(2, 2, 0), lambda name: MemoryDisk(world, name))
    with alarmed(world):
        cluster.start()
        Damage([cluster], Random(0)).act()
        assert not corrupted(cluster)
    for disk in cluster.disks.values():
        disk.close()
