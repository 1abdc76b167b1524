"""Summary of the health of a cluster in one line: the answer to AskMonitorInformation.

Scripts of operators parse it, so the form is fixed:
``RUNNING; OUT_OF_DATE=4, UP_TO_DATE=8; DOWN=1; ltid=040d24252187ba31 (2026-11-20 10:45:07.858637)``
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from neo.protocol.enums import CellState, ClusterState, NodeState, NodeType
from neo.protocol.ids import ZERO_TID, time_from_tid, u64
from neo.protocol.packets import PreparedRow
from neo.topology.nodes import Node
from neo.topology.partitions import PartitionTable

#: States in which a cluster serves.
SERVING = (ClusterState.RUNNING, ClusterState.BACKINGUP)


class Health(NamedTuple):
    """``problem``: something does not work now; ``warning``: some copies are not reliable."""

    problem: bool
    warning: bool
    summary: str

    def plus(self, other: Health) -> Health:
        """Return the health of a cluster of which ``other`` describes a part."""
        summary = "; ".join(filter(None, (self.summary, other.summary)))
        return Health(self.problem or other.problem, self.warning or other.warning, summary)


def tid_date(tid: bytes) -> str:
    """Return the time of a tid in UTC, truncated to microseconds, without them when zero."""
    minutes, units = divmod(u64(tid), 2**32)
    days, minute = divmod(minutes, 24 * 60)
    months, day = divmod(days, 31)
    year, month = divmod(months, 12)
    start = datetime(1900 + year, month + 1, 1)
    return str(start + timedelta(days=day, minutes=minute, microseconds=(units * 60_000_000) >> 32))


def count_cells(partitions: PartitionTable) -> Counter[CellState]:
    return Counter(cell for row in partitions.rows for cell in row.values())


def count_down(nodes: Iterable[Node]) -> int:
    """Return the number of masters and storage nodes that are DOWN."""
    return sum(
        node.state is NodeState.DOWN and node.type in (NodeType.MASTER, NodeType.STORAGE)
        for node in nodes
    )


def assess(
    state: ClusterState | None, cells: Mapping[CellState, int], down: int
) -> tuple[bool, bool, list[str]]:
    """Return (problem, warning, first parts of the summary)."""
    parts = [state.name if state else "UNKNOWN"]
    # In the order of the enumeration; nothing for an empty table.
    counts = ", ".join(f"{cell.name}={cells[cell]}" for cell in CellState if cells.get(cell))
    if counts:
        parts.append(counts)
    if down:
        parts.append(f"DOWN={down}")
    incomplete = any(count for cell, count in cells.items() if cell is not CellState.UP_TO_DATE)
    return state not in SERVING or down > 0, incomplete, parts


def lag(tid: bytes | None, last_tid: bytes | None) -> float | None:
    """Return the seconds that a backup is behind its upstream cluster; None if unknown."""
    if tid is None or last_tid is None:
        return None
    return max(0.0, time_from_tid(last_tid) - time_from_tid(tid))


def count_prepared(rows: Iterable[PreparedRow], now: float) -> str:
    """Return how many prepared transactions wait, and for how many seconds the oldest one has; empty if
    there are none. In a synchronous backup they wait for the upstream cluster."""
    waiting = [row for row in rows if row[6] in ("prepared", "kept")]
    if not waiting:
        return ""
    oldest = max(max(0.0, now - row[3]) for row in waiting)
    return f"prepared={len(waiting)}; oldest prepared {oldest:.0f} s ago"


def examine(
    state: ClusterState | None,
    partitions: PartitionTable,
    nodes: Iterable[Node],
    last_tid: bytes | None,
    backup_tid: bytes | None = None,
    max_lag: float = 0.0,
    unheard: float | None = None,
) -> Health:
    """Return the health of one cluster. ``state`` and ``last_tid`` are None while they are unknown.

    ``backup_tid``: the last tid of a backup; ``last_tid`` is then that of the upstream cluster.
    ``max_lag``: a larger lag in seconds is a warning. ``unheard``: seconds since a backup heard its
    upstream cluster, None if it hears it; its lag is unknown while it does not.
    """
    problem, warning, parts = assess(state, count_cells(partitions), count_down(nodes))
    tid = backup_tid or last_tid or ZERO_TID
    parts.append(f"ltid={tid.hex()} ({tid_date(tid)})")
    behind = lag(backup_tid, last_tid) or 0.0
    if unheard is not None:
        parts.append(f"lag=?; upstream not heard for {unheard:.0f} s")
    elif behind:
        parts.append(f"lag={behind:.1f}")
    return Health(problem or unheard is not None, warning or behind > max_lag, "; ".join(parts))
