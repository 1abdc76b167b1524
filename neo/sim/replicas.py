"""Oracles for cells: their states change as they may, and complete ones have the same rows.

They are compared when nothing is in progress, packs included: whatever happened to a node, it has then
all rows of a transaction or a revision that others have, and no other.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from neo.master.core import MasterCore
from neo.protocol.enums import CellState
from neo.protocol.packets import CellChange
from neo.sim.disk_check import Rows
from neo.sim.world import Violation
from neo.storage.backend.revisions import Revision, pack
from neo.topology.partitions import PartitionTable

_UP, _OUT, _FEEDING = CellState.UP_TO_DATE, CellState.OUT_OF_DATE, CellState.FEEDING
_CORRUPTED = CellState.CORRUPTED

#: Transitions of the specification, *Cell States*; None: no cell, before or after.
LEGAL: frozenset[tuple[CellState | None, CellState | None]] = frozenset(
    {
        (None, _OUT),
        (_OUT, _UP),
        (_OUT, None),
        (_UP, _OUT),
        (_UP, _FEEDING),
        (_UP, None),
        (_FEEDING, _UP),
        (_UP, _CORRUPTED),
        (_FEEDING, _CORRUPTED),
        (_CORRUPTED, _OUT),
        (_CORRUPTED, None),
        (_FEEDING, None),
    }
)


def check_changes(
    before: PartitionTable, changes: list[CellChange], damaged: Container[int] = ()
) -> None:
    """Raises Violation. ``before``: the table until now. ``damaged``: partitions whose replicas
    differ, so that a check finds something."""
    for partition, nid, state in changes:
        old = before.rows[partition].get(nid)
        new = None if state is CellState.DISCARDED else state
        if (old, new) not in LEGAL:
            raise Violation(f"partition {partition} of node {nid}: {old} becomes {new}")
        if new is _CORRUPTED and partition not in damaged:
            raise Violation(f"partition {partition} of node {nid} is sound, and found corrupted")


def check_replicas(master: MasterCore, disks: Iterable[tuple[str, Rows]]) -> None:
    """Raises Violation unless all readable cells of a partition have the same rows."""
    nodes, _ = node_rows(disks)
    for partition in range(len(master.partitions)):
        cells = {
            nodes[nid][0]: cell_rows(nodes[nid][1], partition, 0)
            for nid in master.partitions.readable(partition)
        }
        everything = set().union(*cells.values())
        for name, found in cells.items():
            if missing := everything - found:
                raise Violation(
                    f"partition {partition} of {name} misses {len(missing)} rows that other"
                    f" readable cells have: {_show(missing)}"
                )


def check_packed(master: MasterCore, disks: Iterable[tuple[str, Rows]]) -> None:
    """Raises Violation if a readable cell has a revision that a pack should have removed."""
    for name, rows in disks:
        config: dict[str, str] = dict(rows["config"])
        objects: dict[tuple[int, int], list[Revision]] = {}
        for partition, oid, *rest in rows["obj"]:
            objects.setdefault((partition, oid), []).append(Revision(*rest))
        for partition in range(len(master.partitions)):
            if int(config.get("nid") or 0) not in master.partitions.readable(partition):
                continue
            tid = int(config.get("_pack_wanted") or 0)
            for (p, oid), revisions in objects.items():
                if p == partition and (left := pack(revisions, tid).removed):
                    raise Violation(
                        f"{name} was packed at {tid:016x}, and object {oid:016x} still has"
                        f" {left[0].tid:016x}"
                    )


def node_rows(disks: Iterable[tuple[str, Rows]]) -> tuple[dict[int, tuple[str, Rows]], int]:
    """(nid → name and tables, the tid of the last pack)."""
    nodes = {}
    packed = 0
    for name, rows in disks:
        config: dict[str, str] = dict(rows["config"])
        nodes[int(config.get("nid") or 0)] = name, rows
        packed = max(packed, int(config.get("_pack_tid") or 0))
    return nodes, packed


def cell_rows(rows: Rows, partition: int, packed: int) -> set[tuple[Any, ...]]:
    """What is later than the last pack, comparable over nodes: (table, tid, …)."""
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
