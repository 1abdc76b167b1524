"""``neoctl backup``: the storage nodes copy the database into files (specification 27.50 to 27.56)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from neo.master.cluster import Cluster
from neo.master.maintenance.pack import Packs
from neo.master.operations.kinds import Steps
from neo.operations.initiator import Refused
from neo.operations.model import Step
from neo.protocol.enums import CellState, ClusterState
from neo.protocol.ids import ZERO_TID

#: A copy takes hours. After a week, a node that takes part must be lost for good.
SECONDS = 7 * 86400.0
#: Bytes of a path.
PATH_MAX = 1024


class Backup:
    """No pack and no truncation changes what is copied; no cell is moved or dropped."""

    locks = ("history", "table")
    resumable = True
    own = None

    def __init__(self, cluster: Cluster, packs: Packs) -> None:
        self._cluster = cluster
        self._packs = packs

    def plan(self, arguments: Mapping[str, Any]) -> Steps:
        path, full = arguments.get("path"), arguments.get("full")
        if not isinstance(path, str) or not path.startswith("/") or len(path) > PATH_MAX:
            raise Refused(f"the path of a backup must be absolute, not {path!r}")
        cluster = self._cluster
        if cluster.state is not ClusterState.RUNNING:
            raise Refused(f"the cluster must be RUNNING to be backed up, it is {cluster.state.name}")
        if self._packs.running:
            raise Refused("the database is being packed: try again when that is over")
        if cluster.last_tid == ZERO_TID:
            raise Refused("the database is empty: there is nothing to back up")
        readers = self._readers()
        nids = sorted(set(readers.values()))
        chosen = {
            "path": path,
            "full": full is True,
            "tid": cluster.last_tid.hex(),
            "pack": self._packs.tid.hex(),
            "partitions": len(cluster.partitions),
            "readers": [readers[partition] for partition in range(len(cluster.partitions))],
        }
        steps = (
            Step("look at the folder", tuple(nids), False, False),
            Step("copy", tuple(nids), True, True),
            Step("write the manifest", tuple(nids), True, True),
        )
        return Steps(chosen, steps, SECONDS)

    def _readers(self) -> dict[int, int]:
        """Return the node that copies each partition. Each gets about as many. A cell that ends when its
        successor is copied is read only if there is no other. Raise Refused."""
        cluster, load, readers = self._cluster, Counter[int](), {}
        for partition in range(len(cluster.partitions)):
            ready = [nid for nid in cluster.partitions.readable(partition) if nid in cluster.ready]
            if not ready:
                raise Refused(f"no storage node can read partition {partition} now: neoctl status")
            row = cluster.partitions.rows[partition]
            stay = [nid for nid in ready if row[nid] is CellState.UP_TO_DATE]
            readers[partition] = nid = min(stay or ready, key=lambda each: (load[each], each))
            load[nid] += 1
        return readers
