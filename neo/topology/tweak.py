"""Which cells must change so that the partition table is as it should be. Pure functions.

Theory of operation
===================

:func:`tweak` looks at the table as it is and at the nodes that may have cells, lets
:mod:`neo.topology.balance` choose the nodes of each partition, and gives the cell changes that lead
there. Nothing is remembered: the states of the cells tell what is under way.

=============  ==================================  ===========================================
cell           its node is chosen                  its node is not chosen
=============  ==================================  ===========================================
UP_TO_DATE     as it is                            FEEDING if it must stay until others are
                                                   complete, else DISCARDED
FEEDING        UP_TO_DATE: it is needed again      as it is if it must stay, else DISCARDED
OUT_OF_DATE    as it is                            DISCARDED
CORRUPTED      OUT_OF_DATE: to be copied anew      DISCARDED
none           OUT_OF_DATE: to be copied           none
=============  ==================================  ===========================================

One cell stays, as FEEDING, for each chosen cell that cannot be read yet, as far as there are. So a
partition has at least as many readable cells after a tweak as before, or as many as wanted if it
had more; and never less than 1. There are never more FEEDING cells than OUT_OF_DATE ones.

When an OUT_OF_DATE cell has become complete, :func:`replicated` makes it UP_TO_DATE. When all nodes that
were readable know it, :func:`fed` discards the FEEDING cells that are not needed any more: those
that make the readable cells more than are wanted, and those for which there is no OUT_OF_DATE cell
left to wait for, but never the last that can be read. When all cells are complete, none stays FEEDING,
and the table is what balance chose.

A node that goes for ever (:func:`without`) may be the one that a FEEDING cell waits for. That cell is
needed again, then.

Partitions without any readable cell are left alone. There is nothing to copy, any of their cells
may be the last trace of the data, and it is for the operator to decide.

Cells of nodes that are kept count for nothing, as if they could vanish at any moment: no copy is
saved, or dropped, because of them.

Roads not taken
---------------

* One FEEDING cell discarded for each cell that becomes complete, whichever it is: when a node comes
  back after a short absence, its cell would be taken for the end of the move, and the partition
  would have a readable cell less than it could until the move ends.
* UP_TO_DATE cells that stay until the new ones are complete, and a list of moves kept by the master:
  the states say it already, and they survive the master.
* Moving a few partitions at a time: the storages decide how many they replicate at once, and
  a table that says the final aim can be balanced again at any moment, whatever was done of it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping

from neo.protocol.enums import CellState
from neo.protocol.packets import CellChange
from neo.topology.balance import Path, balance
from neo.topology.partitions import PartitionTable


def tweak(
    table: PartitionTable,
    nodes: Mapping[int, Path],
    replicas: int,
    keep: Container[int] = (),
) -> list[CellChange]:
    """The changes that balance the table, by partition and node id; empty if it is.

    ``nodes``: topology path by id of each node that may have cells. ``keep``: ids of nodes whose
    cells must not change, even if they are in ``nodes``. All other nodes are emptied. Nothing is
    changed when no node may have cells. (specification, *Cell States*, *Partition Table Tweak*)
    """
    nodes = {nid: path for nid, path in nodes.items() if nid not in keep}
    if not nodes:
        return []
    partitions = [partition for partition in range(len(table)) if table.readable(partition)]
    cells = [
        {
            nid: state
            for nid, state in table.rows[partition].items()
            if state.writable and nid in nodes
        }
        for partition in partitions
    ]
    chosen = balance(cells, nodes, min(replicas + 1, len(nodes)))
    return [
        (partition, nid, state)
        for partition, nids in zip(partitions, chosen, strict=True)
        for nid, state in sorted(
            _changes(
                {nid: state for nid, state in table.rows[partition].items() if nid not in keep},
                nids,
            )
        )
    ]


def _changes(row: Mapping[int, CellState], chosen: set[int]) -> Iterator[tuple[int, CellState]]:
    """From the cells of a partition, those of kept nodes aside, to the chosen nodes."""
    incomplete = 0
    for nid in chosen:
        state = row.get(nid)
        if state is CellState.FEEDING:
            yield nid, CellState.UP_TO_DATE
        elif state is None or not state.writable:
            yield nid, CellState.OUT_OF_DATE
        incomplete += state is None or not state.readable
    # First those that already feed, so that nothing changes as long as a move is under way.
    leaving = sorted(
        (state is not CellState.FEEDING, nid, state)
        for nid, state in row.items()
        if nid not in chosen and state.readable
    )
    feeding = {nid for _, nid, _ in leaving[:incomplete]}
    for nid, state in row.items():
        if nid in feeding:
            if state is not CellState.FEEDING:
                yield nid, CellState.FEEDING
        elif nid not in chosen:
            yield nid, CellState.DISCARDED


def gently(table: PartitionTable, changes: Iterable[CellChange]) -> list[CellChange]:
    """The same, but what can be read feeds first and is discarded by :func:`fed`."""
    gentle: list[CellChange] = []
    for partition, nid, state in changes:
        before = table.rows[partition].get(nid)
        if state is CellState.DISCARDED and before is not None and before.readable:
            state = CellState.FEEDING
        if state is not before:
            gentle.append((partition, nid, state))
    return gentle


def replicated(table: PartitionTable, partition: int, nid: int) -> list[CellChange]:
    """What changes when a node has all data of a partition (NotifyReplicationDone).

    Empty if the cell is not OUT_OF_DATE: what the node says comes too late.
    """
    if table.rows[partition].get(nid) is not CellState.OUT_OF_DATE:
        return []
    return [(partition, nid, CellState.UP_TO_DATE)]


def fed(table: PartitionTable) -> list[CellChange]:
    """FEEDING cells that are discarded, since the cells that they fed are complete.

    Not in the table in which these become readable: their nodes must have heard of it first. One that
    had not, and comes back when all others are lost, would believe that it needs nobody (decision 6).
    """
    changes: list[CellChange] = []
    for partition, row in enumerate(table.rows):
        states = list(row.values())
        feeding, waiting = _feeding(row), states.count(CellState.OUT_OF_DATE)
        more = len(table.readable(partition)) - (table.replicas + 1)
        redundant = max(more, len(feeding) - waiting)
        if CellState.UP_TO_DATE not in states:
            redundant = min(redundant, len(feeding) - 1)
        changes += [(partition, nid, CellState.DISCARDED) for nid in feeding[: max(redundant, 0)]]
    return changes


def without(table: PartitionTable, nids: Container[int]) -> list[CellChange]:
    """When nodes go for ever: their cells, and what fed these and is needed again, as far as copies are
    wanted. Somebody else must be able to read each partition, as the caller has seen."""
    changes: list[CellChange] = []
    for partition, cells in enumerate(table.rows):
        row = {nid: state for nid, state in cells.items() if nid not in nids}
        if len(row) < len(cells):
            states = list(row.values())
            wanted = table.replicas + 1 - states.count(CellState.UP_TO_DATE)
            feeding, waiting = _feeding(row), states.count(CellState.OUT_OF_DATE)
            again = feeding[waiting : waiting + max(wanted, 0)]
            changes += [(partition, nid, CellState.DISCARDED) for nid in cells if nid in nids]
            changes += [(partition, nid, CellState.UP_TO_DATE) for nid in again]
    return changes


def _feeding(row: Mapping[int, CellState]) -> list[int]:
    return sorted(nid for nid, state in row.items() if state is CellState.FEEDING)
