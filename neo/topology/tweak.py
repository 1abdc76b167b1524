"""Cell changes that balance the partition table. Pure functions.

Theory of operation
===================

:func:`tweak` takes the current table and the nodes that may have cells. :mod:`neo.topology.balance`
chooses the nodes of each partition, and tweak returns the cell changes that lead there. It keeps no
state: the states of the cells tell what is in progress.

=============  ==================================  ===========================================
cell           its node is chosen                  its node is not chosen
=============  ==================================  ===========================================
UP_TO_DATE     unchanged                           FEEDING if it must stay until others are
                                                   complete, else DISCARDED
FEEDING        UP_TO_DATE: it is needed again      unchanged if it must stay, else DISCARDED
OUT_OF_DATE    unchanged                           DISCARDED
CORRUPTED      OUT_OF_DATE: to be copied again     DISCARDED
none           OUT_OF_DATE: to be copied           none
=============  ==================================  ===========================================

For each chosen cell that is not readable yet, one readable cell stays as FEEDING, if there is one. So a
partition keeps its number of readable cells after a tweak, or the wanted number if it had more, and never
less than 1. There are never more FEEDING cells than OUT_OF_DATE ones.

When an OUT_OF_DATE cell is complete, :func:`replicated` makes it UP_TO_DATE. When all nodes that were
readable know this, :func:`fed` discards the FEEDING cells that are no longer needed: those beyond the
wanted number of readable cells, and those without an OUT_OF_DATE cell to wait for, but never the last
readable cell. When all cells are complete, none stays FEEDING, and the table is what balance chose.

If a node is removed (:func:`without`) whose cell a FEEDING cell waits for, the FEEDING cell is needed
again.

Partitions without a readable cell do not change. There is nothing to copy, any of their cells may be
the last copy of the data, and the operator must decide.

Cells of nodes in ``keep`` are ignored, as if they could vanish at any moment: no copy is saved, or
dropped, because of them.

Alternatives
------------

* Discard one FEEDING cell for each cell that becomes complete: a node that comes back after a short
  absence would seem to complete the move, and the partition would lose a readable cell too early.
* Keep UP_TO_DATE cells until the new ones are complete, with a list of moves in the master: the states
  carry the same information, and they survive the master.
* Move a few partitions at a time: storage nodes decide how many they replicate at once, and a table
  that shows the final state can be balanced again at any moment.
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
    """Return the changes that balance the table, by partition and node id; empty if it is balanced.

    ``nodes``: topology path by id of each node that may have cells. ``keep``: ids of nodes whose
    cells must not change, even if they are in ``nodes``. All other nodes are emptied. If no node may have
    cells, nothing changes. (specification 9.2, 9.19 to 9.25)
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
    """Yield the changes from the cells of a partition to the chosen nodes. ``row``: without kept
    nodes."""
    incomplete = 0
    for nid in chosen:
        state = row.get(nid)
        if state is CellState.FEEDING:
            yield nid, CellState.UP_TO_DATE
        elif state is None or not state.writable:
            yield nid, CellState.OUT_OF_DATE
        incomplete += state is None or not state.readable
    # FEEDING cells first, so that nothing changes while a move is in progress.
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
    """Return the changes with FEEDING instead of DISCARDED for readable cells; :func:`fed` discards
    them."""
    gentle: list[CellChange] = []
    for partition, nid, state in changes:
        before = table.rows[partition].get(nid)
        if state is CellState.DISCARDED and before is not None and before.readable:
            state = CellState.FEEDING
        if state is not before:
            gentle.append((partition, nid, state))
    return gentle


def replicated(table: PartitionTable, partition: int, nid: int) -> list[CellChange]:
    """Return the changes when a node has all data of a partition (NotifyReplicationDone).

    Empty if the cell is not OUT_OF_DATE: the notification came too late.
    """
    if table.rows[partition].get(nid) is not CellState.OUT_OF_DATE:
        return []
    return [(partition, nid, CellState.UP_TO_DATE)]


def fed(table: PartitionTable) -> list[CellChange]:
    """Return the discard of the FEEDING cells whose successors are complete.

    Call it only after the nodes know the table in which the successors became readable. Otherwise a
    node that missed that table, and comes back when all others are lost, could serve alone (decision
    6).
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
    """Return the changes when nodes are removed: their cells go, and FEEDING cells that waited for them
    become UP_TO_DATE again, up to the wanted number. The caller has checked that each partition stays
    readable."""
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
