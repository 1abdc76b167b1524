"""Oracle: partition tables change only as they may (specification, *Partition Table*).

Wherever a table lives, in the master, in storages, in the admin node and in clients, each change is the
next version of it, and takes each cell from one state to another that may follow. When nothing happens
any more, all that live have the table of the master.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from neo.protocol.enums import CellState
from neo.protocol.ids import format_nid
from neo.protocol.packets import CellChange
from neo.sim.canaries.base import plant
from neo.sim.cluster import Cluster
from neo.sim.world import Violation, World
from neo.topology.partitions import PartitionTable

_UP, _OUT, _FEEDING = CellState.UP_TO_DATE, CellState.OUT_OF_DATE, CellState.FEEDING
_CORRUPTED, _DISCARDED = CellState.CORRUPTED, CellState.DISCARDED

#: What may follow; None: there is no cell.
FOLLOWS: dict[CellState | None, frozenset[CellState]] = {
    None: frozenset({_OUT}),
    _OUT: frozenset({_UP, _DISCARDED, _CORRUPTED}),
    _UP: frozenset({_OUT, _FEEDING, _DISCARDED, _CORRUPTED}),
    _FEEDING: frozenset({_UP, _OUT, _DISCARDED, _CORRUPTED}),
    _CORRUPTED: frozenset({_OUT, _UP, _DISCARDED}),
}


@contextmanager
def watched_tables(world: World) -> Iterator[None]:
    """Inside the block, the world fails at the first change that may not be."""
    change = PartitionTable.change

    def watched(
        self: PartitionTable, ptid: int, replicas: int, changes: Iterable[CellChange]
    ) -> None:
        changes = list(changes)
        for problem in _problems(self, ptid, changes):
            world.fail(Violation(f"partition table {self.ptid} -> {ptid}: {problem}"))
        change(self, ptid, replicas, changes)

    with plant([(PartitionTable, "change", watched)]):
        yield


def _problems(table: PartitionTable, ptid: int, changes: list[CellChange]) -> Iterator[str]:
    if table.ptid is None or ptid != table.ptid + 1:
        yield "it is not the next version"
        return
    for partition, nid, state in changes:
        before = table.state(partition, nid)
        if state not in FOLLOWS[before]:
            was = "nothing" if before is None else before.name
            yield f"partition {partition} of {format_nid(nid)}: {was} -> {state.name}"


def check_tables(cluster: Cluster) -> None:
    """When nothing happens any more. Raises Violation."""
    master = cluster.master_core
    assert master is not None
    expected = master.partitions.ptid, master.partitions.row_list()
    for process in (*cluster.storages, cluster.admin):
        if process.core is not None:
            table = process.core.partitions
            if (table.ptid, table.row_list()) != expected:
                raise Violation(
                    f"{process.name} has partition table {table.ptid}, which is not that of the"
                    f" master, {expected[0]}"
                )
