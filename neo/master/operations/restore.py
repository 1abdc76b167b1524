"""``neoctl restore``: the storage nodes load an archive into an empty database (specification 27.60 to
27.67)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neo.master.cluster import Cluster
from neo.master.operations.backup import PATH_MAX
from neo.master.operations.kinds import Steps
from neo.operations.initiator import Refused
from neo.operations.model import Step
from neo.protocol.enums import CellState, ClusterState, NodeType
from neo.protocol.ids import ZERO_TID, format_nid, format_nids

#: Time after which a restore fails, like a backup.
SECONDS = 7 * 86400.0


class Restore:
    """No client is served meanwhile, nothing else changes the database."""

    locks = ("clients", "history", "table")
    resumable = True
    own = None

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def plan(self, arguments: Mapping[str, Any]) -> Steps:
        path, tid = arguments.get("path"), arguments.get("tid")
        if not isinstance(path, str) or not path.startswith("/") or len(path) > PATH_MAX:
            raise Refused(f"the path of an archive must be absolute, not {path!r}")
        if not isinstance(tid, str) or (tid and not _is_tid(tid)):
            raise Refused(f"{tid!r} is not a moment")
        self._check()
        cluster = self._cluster
        nids = tuple(sorted(cluster.partitions.nodes()))
        steps = (
            Step("look into the archive", nids, False, False),
            Step("load", nids, True, True),
        )
        chosen = {"path": path, "tid": tid, "partitions": len(cluster.partitions)}
        return Steps(chosen, steps, SECONDS)

    def _check(self) -> None:
        """Raise Refused unless the cluster serves an empty database to nobody."""
        cluster = self._cluster
        if cluster.state is not ClusterState.RUNNING:
            raise Refused(
                f"the cluster must be RUNNING to be restored, it is {cluster.state.name}: a new one is"
                " started with 'neoctl start'"
            )
        if cluster.last_tid != ZERO_TID:
            raise Refused("the database is not empty: restore into a new cluster")
        if clients := [peer.node.nid for peer in cluster.of_type(NodeType.CLIENT) if peer.node]:
            names = ", ".join(sorted(format_nid(nid) for nid in clients))
            raise Refused(f"clients are connected, stop them first: {names}")
        if away := cluster.partitions.nodes() - cluster.ready:
            raise Refused(f"{format_nids(away)} must run: neoctl status")
        states = {state for row in cluster.partitions.rows for state in row.values()}
        if states != {CellState.UP_TO_DATE}:
            raise Refused("a partition is being copied: wait until all are up to date")


def _is_tid(text: str) -> bool:
    try:
        return len(bytes.fromhex(text)) == len(ZERO_TID)
    except ValueError:
        return False
