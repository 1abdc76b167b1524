"""What steps of the master wait for, in words for operators (specification 27.101)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from neo.master.cluster import Cluster
from neo.protocol.enums import CellState, ClusterState
from neo.protocol.ids import format_nid, format_nids
from neo.protocol.words import counted

#: A step that waits for longer than this says so; the usual wait is shorter.
LONG_SECONDS = 60.0
TABLE_NOT_DURABLE = "a node does not have the partition table on its disk yet: neoctl status"


class Open(Protocol):
    """A transaction that is open. ``nid``: of its client. ``since``: by the master's monotonic clock.
    ``waiting``: storage nodes that have not locked it yet."""

    @property
    def ttid(self) -> bytes: ...

    @property
    def nid(self) -> int: ...

    @property
    def since(self) -> float: ...

    @property
    def waiting(self) -> Collection[int]: ...


def why_not_ready(cluster: Cluster) -> str:
    """Return why another partition table cannot be sent to the nodes now; '' if it can."""
    if cluster.state is not ClusterState.RUNNING:
        return f"the cluster must be RUNNING, it is {cluster.state.name}"
    if away := cluster.partitions.nodes() - cluster.ready:
        return f"{format_nids(away)} must operate: neoctl status"
    for partition, row in enumerate(cluster.partitions.rows):
        for nid, state in sorted(row.items()):
            if state is not CellState.UP_TO_DATE:
                return f"partition {partition} is {state.name} on {format_nid(nid)}: neoctl print pt"
    if not cluster.published.complete:
        return TABLE_NOT_DURABLE
    return "a node begins to operate" if cluster.starting else ""


def why_not_idle(prepared: int, transactions: Sequence[Open], now: float) -> str:
    """Return which transaction is waited for; '' if none is under way."""
    if prepared:
        wait = "a transaction is prepared, and waits for its coordinator"
        if prepared > 1:
            wait = counted(
                prepared,
                "transaction is prepared, and waits for its coordinator",
                "transactions are prepared, and wait for their coordinators",
            )
        return f"{wait}: neoctl print prepared"
    if not transactions:
        return ""
    oldest = min(transactions, key=lambda each: each.since)
    text = f"transaction {oldest.ttid.hex()} of {format_nid(oldest.nid)} is open for"
    text += f" {max(0.0, now - oldest.since):.0f} s"
    if oldest.waiting:
        text += f", and is locked by {format_nids(oldest.waiting)}"
    if others := len(transactions) - 1:
        text += f", and {others} {'other' if others == 1 else 'others'}"
    return f"{text}: neoctl print transactions"
