"""Storage nodes come into service, and leave for good."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from neo.master.cluster import Cluster
from neo.protocol.enums import NodeState
from neo.protocol.packets import NotifyNodeInformation
from neo.topology.nodes import Node
from neo.topology.tweak import without


class Membership:
    def __init__(
        self, cluster: Cluster, is_backup: Callable[[], bool], removed: Callable[[int], None]
    ) -> None:
        """``is_backup``: whether the cluster follows another one now. ``removed`` is called with the id
        of each node that left for good."""
        self._cluster = cluster
        self._is_backup = is_backup
        self._removed = removed

    def admit(self, nodes: Iterable[Node]) -> None:
        """Let storage nodes operate that are connected and PENDING."""
        nodes = list(nodes)
        for node in nodes:
            assert node.nid is not None
            self._cluster.start_storage(self._cluster.connected[node.nid], self._is_backup())
        self._cluster.set_node_states(nodes, NodeState.RUNNING)

    def take_cells(self, node: Node) -> None:
        """Take all cells of a storage node, without which each partition is readable (specification
        9.12)."""
        assert node.nid is not None
        cluster = self._cluster
        cluster.change_partitions(without(cluster.partitions, {node.nid}))

    def dismiss(self, node: Node) -> None:
        """Forget a storage node without cells. If it is connected, it erases its database (specification
        4.7)."""
        cluster = self._cluster
        assert node.nid is not None
        storage = cluster.connected.get(node.nid)
        if storage is not None:
            row = (node.type, node.address, node.nid, NodeState.UNKNOWN, None)
            storage.send(NotifyNodeInformation(cluster.stamp(), [row]))
            cluster.disconnect(storage)
        if cluster.nodes.get(node.nid) is node:
            cluster.remove_node(node)
        self._removed(node.nid)
