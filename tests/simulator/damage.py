"""Fault: cells become CORRUPTED, lose rows and are repaired, while the workloads write and nodes die.

Drills test that a check finds damage, when no client reads (:mod:`tests.simulator.checks`). Here the
master takes a cell out of service as if a check had found damage; only then the cell is damaged. So
readers and oracles see nothing of it, unless the damaged cell is read after all, or the damage survives
the repair.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random

from neo.master.states import SERVING
from neo.protocol.enums import CellState
from neo.protocol.ids import MAX_TID, ZERO_OID, ZERO_TID
from neo.protocol.packets import RepairCells
from neo.storage.backend.api import BackendFailure
from neo.storage.node import StorageNode
from tests.simulator.cluster import Cluster
from tests.simulator.console import Command
from tests.simulator.process import Process

#: Interval at which it is checked whether the node knows, and whether the cell must be repaired.
LOOK_SECONDS = 0.1
#: Mean time until the operator repairs the cell, which happens at the end at the latest.
REPAIR_SECONDS = 1.0
ROWS_MAX = 1000
#: Part of the rows that are lost.
LOST = 0.3

#: Partition, nid.
Cell = tuple[int, int]


class Damage:
    def __init__(self, clusters: Sequence[Cluster], random: Random) -> None:
        self._clusters = clusters
        self._random = random

    def act(self) -> None:
        """Take a cell out of service that has another copy."""
        cluster = self._random.choice(self._clusters)
        cluster.master.do(lambda: self._take_out(cluster))

    def _take_out(self, cluster: Cluster) -> None:
        master = cluster.master_core
        if master is None or master.cluster.state not in SERVING or corrupted(cluster):
            return
        table = master.partitions
        cells = []
        for partition in range(len(table)):
            ready = sorted(set(table.readable(partition)) & master.cluster.ready)
            if len(ready) > 1:
                cells += [(partition, nid) for nid in ready]
        if not cells:
            return
        partition, nid = self._random.choice(cells)
        cluster.world.log("damage", f"partition {partition} of {nid}")
        cluster.damaged.add(partition)
        master.cluster.change_partitions([(partition, nid, CellState.CORRUPTED)])
        cluster.damaged.discard(partition)
        self._look(cluster, (partition, nid))

    def _look(self, cluster: Cluster, cell: Cell) -> None:
        """Lose rows as soon as the node does not serve the cell any more. Repair it some time later."""
        if cell not in corrupted(cluster):
            return
        for process in cluster.storages:
            if self._knows(process, cell):
                process.do(partial(self._lose, process, cell))
                repair = self._random.expovariate(1 / REPAIR_SECONDS)
                cluster.world.call_later(repair, lambda: self._repair(cluster, cell), "repair")
                return
        cluster.world.call_later(LOOK_SECONDS, lambda: self._look(cluster, cell), "damage")

    @staticmethod
    def _knows(process: Process, cell: Cell) -> bool:
        """Return whether the process is the node of the cell and does not serve the cell any more."""
        core = process.core
        return (
            isinstance(core, StorageNode)
            and core.cluster.nid == cell[1]
            and core.cluster.operational
            and core.cells.partitions.state(*cell) is CellState.CORRUPTED
        )

    def _lose(self, process: Process, cell: Cell) -> None:
        core = process.core
        if not isinstance(core, StorageNode) or not self._knows(process, cell):
            return  # the process was paused meanwhile
        backend, random, partition = core.database.backend, self._random, cell[0]
        try:
            objects = backend.replication.objects_ascending(
                partition, ZERO_TID, ZERO_OID, MAX_TID, ROWS_MAX
            )
            tids = backend.reads.tids_ascending(ZERO_TID, MAX_TID, ROWS_MAX, partition)
            backend.replication.delete_objects([each for each in objects if random.random() < LOST])
            backend.replication.delete_transactions([tid for tid in tids if random.random() < LOST])
        except BackendFailure:
            return  # the disk does not work at all, and the node will notice that
        process.world.log(process.name, f"loses rows of partition {partition}")

    def _repair(self, cluster: Cluster, cell: Cell) -> None:
        if cell in corrupted(cluster):
            Command(cluster, RepairCells([cell]), lambda answer: None)


def corrupted(cluster: Cluster) -> list[Cell]:
    """Return the cells that are CORRUPTED in the master's table."""
    master = cluster.master_core
    if master is None:
        return []
    return [
        (partition, nid)
        for partition, row in enumerate(master.partitions.rows)
        for nid, state in sorted(row.items())
        if state is CellState.CORRUPTED
    ]
