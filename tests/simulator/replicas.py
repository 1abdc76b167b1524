"""Oracles for cells: the changes of their states are legal, and complete cells have the same rows.

Rows are compared when nothing is in progress, no pack either. Each node has then exactly the rows of
the other nodes, whatever happened to it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from functools import partial
from operator import eq
from typing import Any

from neo.master.primary import PrimaryMaster
from neo.protocol.enums import CellState
from neo.protocol.packets import CellChange
from neo.storage.backend.revisions import Revision, pack
from neo.topology.partitions import PartitionTable
from tests.simulator.disk_check import Rows
from tests.simulator.world import Violation

_UP, _OUT, _FEEDING = CellState.UP_TO_DATE, CellState.OUT_OF_DATE, CellState.FEEDING
_CORRUPTED = CellState.CORRUPTED

#: Pairs of the states of a cell before and after a change; None: no cell.
Transitions = frozenset[tuple[CellState | None, CellState | None]]
#: Transitions of specification 9.2.
SPECIFIED: Transitions = frozenset(
    {
        (None, _OUT),
        (_OUT, _UP),
        (_UP, _OUT),
        (_UP, _FEEDING),
        (_UP, None),
        (_UP, _CORRUPTED),
        (_FEEDING, None),
        (_FEEDING, _CORRUPTED),
    }
)
#: Transitions of this implementation: a cell is moved, or its node dropped, before it is complete; a
#: tweak keeps a feeding cell after all; a corrupted cell is repaired, or given up.
OURS: Transitions = frozenset(
    {(_OUT, None), (_FEEDING, _UP), (_CORRUPTED, _OUT), (_CORRUPTED, None)}
)
#: All legal transitions, on nodes of all types.
LEGAL = SPECIFIED | OURS


def illegal(before: CellState | None, after: CellState | None) -> str | None:
    """Return a description of an illegal change of a cell, or None. DISCARDED: there is no cell."""
    new = None if after is CellState.DISCARDED else after
    if (before, new) in LEGAL:
        return None
    was, is_ = ("nothing" if state is None else state.name for state in (before, new))
    return f"{was} -> {is_}"


def check_changes(
    before: PartitionTable, changes: list[CellChange], damaged: Container[int] = ()
) -> None:
    """Raise Violation for an illegal change. ``before``: the table until now. ``damaged``: partitions
    whose replicas differ, so that a check finds a difference."""
    for partition, nid, state in changes:
        if wrong := illegal(before.rows[partition].get(nid), state):
            raise Violation(f"partition {partition} of node {nid}: {wrong}")
        if state is _CORRUPTED and partition not in damaged:
            raise Violation(f"partition {partition} of node {nid} is sound, and found corrupted")


def check_replicas(master: PrimaryMaster, disks: Iterable[tuple[str, Rows]], packed: int = 0) -> None:
    """Raise Violation unless all readable cells of a partition have the same rows. ``packed``: rows up
    to this tid are not compared, because a pack is in progress."""
    nodes, _ = node_rows(disks)
    for partition in range(len(master.partitions)):
        cells = {
            nodes[nid][0]: cell_rows(nodes[nid][1], partition, packed)
            for nid in master.partitions.readable(partition)
        }
        everything = set().union(*cells.values())
        for name, found in cells.items():
            if missing := everything - found:
                raise Violation(
                    f"partition {partition} of {name} misses {len(missing)} rows that other"
                    f" readable cells have: {_show(missing)}"
                )


def check_packed(master: PrimaryMaster, disks: Iterable[tuple[str, Rows]]) -> None:
    """Raise Violation if a readable cell has a revision that a pack should have removed."""
    for name, rows in disks:
        config: dict[str, str] = dict(rows["config"])
        objects: dict[tuple[int, int], list[Revision]] = {}
        for partition, oid, *rest in rows["obj"]:
            objects.setdefault((partition, oid), []).append(Revision(*rest))
        for partition in range(len(master.partitions)):
            if int(config.get("nid") or 0) not in master.partitions.readable(partition):
                continue
            tid = int(config.get("_pack_wanted") or 0)
            mine = {oid: found for (p, oid), found in objects.items() if p == partition}
            last = max((oid for oid in mine if min(mine[oid]).tid <= tid), default=-1)
            for oid, revisions in mine.items():
                if left := pack(revisions, tid, partial(eq, oid, last)).removed:
                    raise Violation(
                        f"{name} was packed at {tid:016x}, and object {oid:016x} still has"
                        f" {left[0].tid:016x}"
                    )


def node_rows(disks: Iterable[tuple[str, Rows]]) -> tuple[dict[int, tuple[str, Rows]], int]:
    """Return the name and the tables of each node by nid, and the tid of the last pack."""
    nodes = {}
    packed = 0
    for name, rows in disks:
        config: dict[str, str] = dict(rows["config"])
        nodes[int(config.get("nid") or 0)] = name, rows
        packed = max(packed, int(config.get("_pack_tid") or 0))
    return nodes, packed


def cell_rows(rows: Rows, partition: int, packed: int) -> set[tuple[Any, ...]]:
    """Return the rows after the last pack in a form that nodes can be compared by: (table, tid, …)."""
    values = {row[0]: row[1:] for row in rows["data"]}
    found: set[tuple[Any, ...]] = {
        ("trans", tid, *rest) for p, tid, *rest in rows["trans"] if p == partition and tid > packed
    }
    for p, oid, tid, data_id, value_tid in rows["obj"]:
        if p == partition and tid > packed:
            known = value_tid if packed == 0 else None
            found.add(("obj", tid, f"{oid:016x}", known, values.get(data_id)))
    return found


def _show(rows: set[tuple[Any, ...]]) -> str:
    ordered = sorted(rows, key=lambda row: (row[1], row[0]))
    return ", ".join(f"{row[0]} {row[1]:016x} {row[2]}" for row in ordered[:4])
