"""Connections of a backup's storage node to storage nodes of the upstream cluster.

It does not belong to that cluster: it is accepted without an id, for the name it asks for. Bound: a
connection per storage node of the upstream cluster.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from neo.net.sockets import format_address
from neo.node.handler import on
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.enums import NodeState, NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.packets import (
    FEATURE_MAINTENANCE,
    FEATURES,
    AcceptIdentification,
    Address,
    CloseClient,
    NotifyFeatures,
    RequestIdentification,
)
from neo.storage.replication.destination import Destination
from neo.topology.nodes import Node

if TYPE_CHECKING:
    from neo.storage.node import StorageNode

logger = logging.getLogger("neo.storage")

#: A node that does not accept us in this time is given up.
IDENTIFY_SECONDS = 10.0


class FromUpstream(Destination):
    """What the source of a fetch sends."""

    def __init__(self, core: StorageNode) -> None:
        super().__init__(core)
        #: It says so before it accepts us.
        self.features: frozenset[str] = frozenset()

    def lost(self, peer: Peer, reason: str) -> None:
        self.core.backup.links.lost(peer)

    @on(CloseClient)
    def close_client(self, peer: Peer, message_id: int, m: CloseClient) -> None:
        """It has nothing to ask of us anyway."""

    @on(NotifyFeatures)
    def features_known(self, peer: Peer, message_id: int, m: NotifyFeatures) -> None:
        self.features = frozenset(m.features)


class UpstreamLinks:
    def __init__(self, core: StorageNode) -> None:
        self._core = core
        self._peers: dict[Address, Peer] = {}
        #: Those that are not accepted yet.
        self._dialed: dict[Address, Future[Peer]] = {}

    def connect(self, cluster: str, address: Address) -> Future[Peer]:
        """The connection with a node, dialed if there is none; fails with ConnectionLost."""
        if address in self._dialed:
            return self._dialed[address]
        established: Future[Peer] = Future()
        peer = self._peers.get(address)
        if peer is not None and not peer.closed:
            established.resolve(peer)
            return established
        core = self._core
        self._dialed[address] = established
        own = core.nodes.get(core.nid)
        handler = FromUpstream(core)
        peer = core.dial(address, handler)
        request = RequestIdentification(
            NodeType.STORAGE,
            None,
            core.address,
            cluster,
            None if own is None else own.id_timestamp,
            {FEATURES: [FEATURE_MAINTENANCE]},
        )
        timer = core.call_later(IDENTIFY_SECONDS, lambda: peer.lost("it does not answer"))

        def answered(answer: Future[AcceptIdentification]) -> None:
            timer.cancel()
            try:
                if self._dialed.get(address) is not established:
                    raise ConnectionLost("the operation stopped meanwhile")
                del self._dialed[address]
                accepted = answer.result()
                if not isinstance(accepted, AcceptIdentification):
                    raise ConnectionLost("it is not a storage node")
                if accepted.node_type is not NodeType.STORAGE:
                    raise ConnectionLost("it is not a storage node")
            except (ConnectionLost, ErrorAnswer) as e:
                peer.close()
                established.fail(ConnectionLost(f"upstream {format_address(address)}: {e}"))
                return
            peer.node = Node(NodeType.STORAGE, accepted.nid, address, NodeState.RUNNING)
            peer.node.features = handler.features
            self._peers[address] = peer
            established.resolve(peer)

        peer.ask(request).then(answered)
        return established

    def lost(self, peer: Peer) -> None:
        self._peers = {address: p for address, p in self._peers.items() if p is not peer}

    def clear(self) -> None:
        """The operation stops."""
        self._dialed.clear()
        peers, self._peers = self._peers, {}
        for peer in peers.values():
            peer.close()
