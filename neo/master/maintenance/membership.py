"""Storage nodes come into service, and leave for good."""

from __future__ import annotations

from collections.abc import Iterable

from neo.master.cluster import Cluster
from neo.protocol.enums import ClusterState, NodeState
from neo.protocol.packets import NotifyNodeInformation
from neo.topology.nodes import Node
from neo.topology.tweak import without


class Membership:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def admit(self, nodes: Iterable[Node]) -> None:
        """Let storage nodes operate that are connected and PENDING. The cluster operates, as a backup or
        not."""
        nodes, cluster = list(nodes), self._cluster
        for node in nodes:
            assert node.nid is not None
            backup = cluster.state is not ClusterState.RUNNING
            cluster.start_storage(cluster.connected[node.nid], backup)
        cluster.set_node_states(nodes, NodeState.RUNNING)

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
        cluster.events.storage_dropped(node.nid)
