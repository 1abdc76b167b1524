"""How nodes join the cluster (specification 3.10 to 3.23)."""

from __future__ import annotations

import logging
from typing import Protocol

from neo.master.cluster import Cluster
from neo.master.following.mode import BackupMode
from neo.master.maintenance.cloning import accept_clone, check_clone
from neo.master.maintenance.pack import Packs
from neo.master.operations.part import Operations
from neo.master.phases.empty_database import is_blank, settled
from neo.master.settings import MasterSettings
from neo.master.states import hears_of
from neo.net.sockets import format_address
from neo.node.handler import Handler, on
from neo.node.peer import Peer
from neo.protocol.enums import ClusterState, ErrorCode, NodeState, NodeType
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import MAX_TID, ZERO_TID, format_nid, nid_namespace, p64, u64
from neo.protocol.packets import (
    FEATURE_CACHES,
    FEATURE_CHAINS,
    FEATURE_OURS,
    FEATURES,
    GREATEST_NID,
    OPERATIONS,
    SYNC_UNTIL,
    AcceptIdentification,
    NotifyFeatures,
    NotifyNodeInformation,
    NotifyPack,
    RequestIdentification,
    SendPartitionTable,
)
from neo.topology.nodes import LAST_STORAGE, Node

logger = logging.getLogger("neo.master")


class Reception(Protocol):
    """The reaction to nodes that identified themselves."""

    def service_handler(self, node_type: NodeType) -> Handler:
        """Return the handler of its messages."""

    def storage_joined(self, peer: Peer) -> None:
        """Tell a storage node what to do. Call after the tables were sent to it."""


class Identification(Handler):
    """The handler of peers that connected and are not identified yet."""

    def __init__(
        self,
        cluster: Cluster,
        settings: MasterSettings,
        packs: Packs,
        backup: BackupMode,
        operations: Operations,
        reception: Reception,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._packs = packs
        self._backup = backup
        self._operations = operations
        self._reception = reception

    @on(RequestIdentification)
    def identify(self, peer: Peer, message_id: int, request: RequestIdentification) -> None:
        clone: list[int] | None = None
        blank = is_blank(request)
        try:
            self._check(request)
            if isinstance(greatest_nid := request.extra.get(GREATEST_NID), int):
                self._cluster.nodes.heard_of(greatest_nid)
            request = settled(self._cluster, request)
            if request.extra.get("new_nid"):
                self._operations.check("table")  # a clone gets cells
                clone = check_clone(self._cluster, request)
            else:
                node = self._known(request) or self._new(request)
        except ErrorAnswer as e:
            peer.turn_away(message_id, request, e)
            return
        if clone is not None:
            nid = self._free_nid(NodeType.STORAGE)
            accept_clone(self._cluster, peer, message_id, nid, clone)
            return
        node.blank = blank
        self._join(peer, message_id, node, request)

    # -- checks ----------------------------------------------------------------------------------

    def _check(self, request: RequestIdentification) -> None:
        """Raise ErrorAnswer if a node may not join at all, or not now."""
        cluster = self._cluster
        if request.name != cluster.name:
            raise ErrorAnswer(
                ErrorCode.PROTOCOL_ERROR,
                f"invalid cluster name: this is {cluster.name!r}, you asked for {request.name!r}",
            )
        if request.address is not None and request.address == cluster.node.address:
            raise ErrorAnswer(
                ErrorCode.PROTOCOL_ERROR,
                f"address conflict: {format_address(request.address)} is the master's",
            )
        if request.node_type is NodeType.MASTER:
            raise ErrorAnswer(
                ErrorCode.NOT_READY,
                "this master runs alone: 'masters' must name the same addresses on all masters",
            )
        if not cluster.admitted(request.node_type):
            raise ErrorAnswer(ErrorCode.NOT_READY, "Retry Later")
        if request.node_type is NodeType.CLIENT and (why := self._operations.held("clients")):
            raise ErrorAnswer(ErrorCode.NOT_READY, why)

    def _known(self, request: RequestIdentification) -> Node | None:
        """Return the node of the table that sends the request; None if it is new."""
        nodes = self._cluster.nodes
        by_address = nodes.by_address(request.node_type, request.address)
        by_nid = nodes.get(request.nid)
        if by_nid is not None and by_nid.type is not request.node_type:
            by_nid = None  # a temporary id that another node has got meanwhile
        for node in (by_nid, by_address):
            if node is not None and node.identified and self._conflicts(node, request):
                raise ErrorAnswer(
                    ErrorCode.PROTOCOL_ERROR,
                    f"already connected: {format_nid(node.nid)} at {format_address(node.address)}",
                )
        if by_nid is not None and by_nid.identified:
            return None
        if by_nid is None and by_address is not None and request.nid is not None:
            # A known address with another database is another node.
            self._displace(by_address)
            return None
        node = by_nid or by_address
        if node is not None and by_address is not None and by_address is not node:
            self._displace(by_address)
        return node

    def _displace(self, node: Node) -> None:
        """Take its address from a node that is away. A storage node with cells stays known, so that the
        operator sees and can drop it (specification 3.13)."""
        cluster = self._cluster
        if node.type is NodeType.STORAGE and node.nid in cluster.partitions.nodes():
            node.address = None
            cluster.notify_nodes([node])
        else:
            cluster.nodes.remove(node)

    @staticmethod
    def _conflicts(node: Node, request: RequestIdentification) -> bool:
        if request.address is not None and node.address == request.address:
            return True
        # Only storage nodes keep their ids, because partition tables have them.
        return request.node_type is NodeType.STORAGE

    def _new(self, request: RequestIdentification) -> Node:
        nodes = self._cluster.nodes
        nid = request.nid
        if (
            nid is None
            or nodes.get(nid) is not None
            or (request.node_type is NodeType.STORAGE and nid < 0)
            or (
                request.node_type is not NodeType.STORAGE
                and nid >> 24 != nid_namespace(request.node_type) >> 24
            )
        ):
            nid = self._free_nid(request.node_type)
        return nodes.add(Node(request.node_type, nid, request.address))

    def _free_nid(self, node_type: NodeType) -> int:
        """Return an id that neither a node nor a cell of the table has."""
        nid = self._cluster.nodes.free_nid(node_type)
        taken = self._cluster.partitions.nodes()
        if node_type is NodeType.STORAGE and taken:
            # Nodes that are away may have cells, and a node that was dropped may have had an id between.
            nid = max(nid, min(max(taken), LAST_STORAGE) + 1)
        while nid in taken or self._cluster.nodes.get(nid) is not None:
            nid += 1
        return nid

    # -- joining ---------------------------------------------------------------------------------

    def _join(
        self, peer: Peer, message_id: int, node: Node, request: RequestIdentification
    ) -> None:
        cluster = self._cluster
        assert node.nid is not None
        node.address = request.address
        node.id_timestamp = cluster.stamp()
        devpath = request.extra.get("devpath")
        node.devpath = tuple(map(str, devpath)) if isinstance(devpath, list) else ()
        features = request.extra.get(FEATURES)
        node.features = frozenset(map(str, features)) if isinstance(features, list) else frozenset()
        pack_tid = request.extra.get("pack_tid")
        known = isinstance(pack_tid, int) and 0 <= pack_tid <= u64(MAX_TID)
        node.pack_tid = p64(pack_tid) if known else ZERO_TID
        node.backups = _backups(request.extra.get("backup"))
        node.sync_until = request.extra.get(SYNC_UNTIL)
        node.journal = request.extra.get(OPERATIONS, [])
        node.state = self._state(node, request)
        peer.welcome()
        if node.type is not NodeType.STORAGE or node.state is NodeState.RUNNING:
            peer.trust()  # a PENDING storage node is trusted when it becomes RUNNING
        cluster.notify_nodes([node])
        node.identified = True
        peer.node = node
        peer.handler = self._reception.service_handler(node.type)
        cluster.connected[node.nid] = peer
        logger.info("%s joined from %s", format_nid(node.nid), format_address(peer.address))
        peer.answer(message_id, AcceptIdentification(NodeType.MASTER, cluster.node.nid, node.nid))
        self._introduce(peer, node)
        self._backup.introduce(peer, node)
        is_client = node.type is NodeType.CLIENT
        if is_client and FEATURE_OURS in node.features and self._packs.announced is not None:
            peer.send(NotifyPack(self._packs.announced))

    def _state(self, node: Node, request: RequestIdentification) -> NodeState:
        """Return the state of a node that joins. A storage node that an operator added, and that was
        lost before it got a cell, is RUNNING again (specification 3.17)."""
        if node.type is not NodeType.STORAGE:
            return NodeState.RUNNING
        if self._cluster.state is ClusterState.RECOVERING:
            return NodeState.PENDING
        assert node.nid is not None
        if (node.spare and request.nid == node.nid) or self._cluster.partitions.assigned(node.nid):
            return NodeState.RUNNING
        return NodeState.PENDING

    def _introduce(self, peer: Peer, node: Node) -> None:
        """Send the tables to a node that joined; its own row is the first (specification 3.20)."""
        cluster = self._cluster
        others = [n.row() for n in cluster.nodes if n is not node and hears_of(node, n)]
        peer.send(NotifyNodeInformation(cluster.stamp(), [node.row(), *others]))
        if cluster.state is not ClusterState.RECOVERING:
            peer.send(cluster.table())
        elif node.type is NodeType.ADMIN:
            empty = SendPartitionTable(
                None, self._settings.replicas, [[] for _ in range(self._settings.partitions)]
            )
            peer.send(cluster.table() if cluster.partitions.ptid is not None else empty)
        # Features come before StartOperation, which a node with prepared transactions accepts only from a
        # master that knows these.
        if FEATURE_OURS in node.features:
            peer.send(NotifyFeatures([FEATURE_OURS, FEATURE_CACHES, FEATURE_CHAINS]))
        if node.type is NodeType.STORAGE:
            self._reception.storage_joined(peer)


def _backups(value: object) -> frozenset[str]:
    """Return the names of backups: an admin node sends a list, the master of a backup its own name."""
    names = value if isinstance(value, list) else [value]
    return frozenset(_text(name) for name in names if isinstance(name, (str, bytes)))


def _text(name: str | bytes) -> str:
    return name if isinstance(name, str) else name.decode(errors="replace")
