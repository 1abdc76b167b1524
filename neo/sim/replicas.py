"""Oracles for cells: their states change as they may, and complete ones have the same rows.

A pack removes old revisions of the cells that are readable at that time. One that is replicated
earlier or later, or whose pack was cut short, may keep more: only what is later than the last pack is
compared, and of undos the value but not where it came from, since a pack that removes the source
points to the next revision with the same value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from neo.master.core import MasterCore
from neo.protocol.enums import CellState
from neo.protocol.packets import CellChange
from neo.sim.disk_check import Rows
from neo.sim.world import Violation
from neo.topology.partitions import PartitionTable

_UP, _OUT, _FEEDING = CellState.UP_TO_DATE, CellState.OUT_OF_DATE, CellState.FEEDING

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
        (_FEEDING, None),
    }
)


def check_changes(master: MasterCore, before: PartitionTable, changes: list[CellChange]) -> None:
    """Raises Violation. ``before``: the table until now."""
    for partition, nid, state in changes:
        old = before.rows[partition].get(nid)
        new = None if state is CellState.DISCARDED else state
        if (old, new) not in LEGAL:
            raise Violation(f"partition {partition} of node {nid}: {old} becomes {new}")


def check_replicas(master: MasterCore, disks: Iterable[tuple[str, Rows]]) -> None:
    """Raises Violation unless all readable cells of a partition have the same rows."""
    nodes, packed = node_rows(disks)
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
