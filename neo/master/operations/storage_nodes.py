"""What an operation demands of storage nodes before it begins; a refusal says what to do."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from neo.master.cluster import Cluster
from neo.master.states import SERVING
from neo.operations.initiator import Refused
from neo.protocol.enums import CellState, NodeType
from neo.protocol.ids import format_nid


class StorageNodes:
    """All methods raise Refused."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def check_complete(self, leaving: Collection[int]) -> None:
        """Check that the cluster serves, and that cells are complete, but for nodes that leave."""
        cluster = self._cluster
        if cluster.state not in SERVING:
            raise Refused(f"the cluster must be RUNNING, or a standby; it is {cluster.state.name}")
        for partition, row in enumerate(cluster.partitions.rows):
            for nid, state in row.items():
                if state is not CellState.UP_TO_DATE and nid not in leaving:
                    raise Refused(
                        f"partition {partition} is {state.name} on {format_nid(nid)}: wait until all"
                        " are UP_TO_DATE (neoctl print pt)"
                    )

    def check_known(self, nid: int) -> None:
        node = self._cluster.nodes.get(nid)
        if node is None or node.type is not NodeType.STORAGE:
            raise Refused(f"{format_nid(nid)} is not a storage node: neoctl print node")

    def check_fresh(self, nid: int) -> None:
        """Check that a node is connected and has no cells."""
        self.check_known(nid)
        node = self._cluster.nodes.get(nid)
        if node is None or not node.identified:
            raise Refused(f"{format_nid(nid)} is down: start it")
        if self._cluster.partitions.assigned(nid):
            raise Refused(f"{format_nid(nid)} has cells already: neoctl print pt")


def named(arguments: Mapping[str, Any], key: str) -> int:
    """Return the node that an operator named. Raise Refused."""
    return _nid(arguments.get(key))


def listed(arguments: Mapping[str, Any]) -> list[int]:
    """Return the nodes that an operator named, ascending. Raise Refused."""
    nids = arguments.get("nodes")
    if not isinstance(nids, list) or not nids:
        raise Refused("no node is named")
    return sorted({_nid(nid) for nid in nids})


def _nid(value: object) -> int:
    if type(value) is not int:
        raise Refused(f"{value!r} is not a node")
    return value
