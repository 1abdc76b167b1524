"""The state of a simulated cluster, as the simulator sees it."""

from __future__ import annotations

from ZODB.utils import maxtid

from neo.storage.node import StorageNode
from neo.topology.partitions import PartitionTable
from tests.simulator.cluster import Cluster, Shape
from tests.simulator.memory_disk import MemoryDisk
from tests.simulator.world import World


def test_a_pack_is_not_done_while_a_node_has_not_heard_that_its_cells_can_be_read() -> None:
    world = World(0)
    cluster = Cluster(world, Shape(1, 1, 0), lambda name: MemoryDisk(world, name))
    cluster.start()
    core, master = cluster.storages[0].core, cluster.master_core
    assert isinstance(core, StorageNode) and master is not None
    assert cluster.packed
    master.packs.tid = maxtid
    core.cells.partitions = PartitionTable()
    core.cells.partitions.create(1, 0, [2])
    assert not core.cells.readable()
    assert not cluster.packed
    for disk in cluster.disks.values():
        disk.close()


def test_a_node_that_has_ended_is_not_there_although_the_master_has_not_heard_of_it() -> None:
    world = World(0)
    cluster = Cluster(world, Shape(1, 1, 0), lambda name: MemoryDisk(world, name))
    cluster.start()
    cluster.wait_running()
    cluster.storages[0].kill()
    assert cluster.master_core is not None and len(cluster.master_core.cluster.identified_storages()) == 1
    assert not cluster.running
    for disk in cluster.disks.values():
        disk.close()
