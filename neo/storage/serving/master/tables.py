"""The node table and the partition table, as the primary master sends them (specification 4)."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol

from neo.node.handler import on
from neo.node.host import Host
from neo.node.peer import Peer
from neo.protocol.enums import NodeState, NodeType
from neo.protocol.packets import (
    Address,
    FlushLog,
    NotifyClusterInformation,
    NotifyFeatures,
    NotifyNodeInformation,
    NotifyPartitionChanges,
    SendPartitionTable,
)
from neo.storage.cells import Cells
from neo.storage.cluster import Cluster
from neo.storage.database import Database
from neo.storage.events import CellsChanged
from neo.storage.links import Links
from neo.storage.serving.identification import Identification
from neo.topology.mirror import check_changes, check_table
from neo.topology.nodes import Node
from neo.topology.partitions import PartitionTable

logger = logging.getLogger("neo.storage")


class NodeControl(Protocol):
    """This node as a whole, as far as the tables decide about it."""

    @property
    def stopped(self) -> bool: ...

    def cells_changed(self, change: CellsChanged) -> None: ...

    def client_lost(self, nid: int) -> None: ...

    def masters_known(self, addresses: list[Address]) -> None:
        """Remember the addresses of masters for the next start."""

    def stop(self, code: int) -> None: ...

    def erase(self) -> None: ...

    def fail(self, error: Exception) -> None: ...


@dataclass(frozen=True, eq=False, repr=False)
class Tables:
    """Takes the tables, and tells the node what follows from them."""

    node: NodeControl
    host: Host
    database: Database
    cluster: Cluster
    cells: Cells
    links: Links
    identification: Identification

    @on(NotifyNodeInformation)
    def nodes_changed(self, peer: Peer, message_id: int, m: NotifyNodeInformation) -> None:
        known = self.cluster.nodes
        for node in known.update(m.timestamp, m.node_list):
            if node.nid == self.cluster.nid and node.type is NodeType.STORAGE:
                self._own_state(node)
            elif node.state in (NodeState.DOWN, NodeState.UNKNOWN):
                if node.type is NodeType.CLIENT and node.nid is not None:
                    self.node.client_lost(node.nid)
                elif node.type is NodeType.STORAGE:
                    self.links.node_changed(node)
            if self.node.stopped:
                return
        if self.cluster.remember_nids():
            self.database.stored()  # soon, else the next master may allocate it again
        self.node.masters_known(known.addresses(NodeType.MASTER))
        self.identification.recheck()

    def _own_state(self, node: Node) -> None:
        if node.state is NodeState.DOWN:
            logger.info("the master tells this node to stop")
            self.node.stop(0)
        elif node.state is NodeState.UNKNOWN:
            self.node.erase()

    @on(SendPartitionTable)
    def partitions_replaced(self, peer: Peer, message_id: int, m: SendPartitionTable) -> None:
        check_table(m)
        table = PartitionTable()
        table.load(m.ptid, m.num_replicas, m.row_list)
        if table.ptid is None:
            return
        try:
            changed = self.cells.replace(table)
        except ValueError as e:
            self.node.fail(e)
        else:
            self.node.cells_changed(changed)

    @on(NotifyPartitionChanges)
    def partitions_changed(self, peer: Peer, message_id: int, m: NotifyPartitionChanges) -> None:
        check_changes(self.cells.partitions, m)
        changed = self.cells.change(m.ptid, m.num_replicas, m.cell_list)
        self.node.cells_changed(changed)

    @on(NotifyClusterInformation)
    def cluster_state(self, peer: Peer, message_id: int, m: NotifyClusterInformation) -> None:
        logger.info("cluster state: %s", m.state.name)

    @on(NotifyFeatures)
    def features(self, peer: Peer, message_id: int, m: NotifyFeatures) -> None:
        if self.cluster.master is not None:
            self.cluster.master.features = frozenset(m.features)

    @on(FlushLog)
    def flush_log(self, peer: Peer, message_id: int, m: FlushLog) -> None:
        self.host.reopen_logs()
