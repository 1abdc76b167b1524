"""Connections between the storage nodes of a backup and those of its upstream cluster.

A backup's node does not belong to the upstream cluster: it is accepted without an id, if it names that
cluster. Bound: one connection per storage node of the upstream cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from neo.net.sockets import format_address
from neo.node.answering import answering
from neo.node.core import Core
from neo.node.handler import on
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.enums import NodeState, NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.packets import (
    FEATURES,
    PARTITIONS,
    AddObject,
    Address,
    AddTransaction,
    AddVoted,
    AddVotedObject,
    AskStoreVoted,
    CloseClient,
    NotifyAborted,
    NotifyFeatures,
    RequestIdentification,
)
from neo.storage.cells import Cells
from neo.storage.cluster import Cluster
from neo.storage.events import Part
from neo.storage.links import UpstreamPeers
from neo.storage.replication.fetch import Receiver
from neo.storage.serving.handler import StorageHandler
from neo.storage.sync.received_votes import ReceivedVotes
from neo.topology.nodes import Node

logger = logging.getLogger("neo.storage")

#: Timeout of an identification.
IDENTIFY_SECONDS = 10.0


class FromUpstream(StorageHandler):
    """The handler of a storage node of the upstream cluster, which sends what a fetch asks for."""

    def __init__(
        self, receiver: Receiver, votes: ReceivedVotes, ended: Callable[[Peer], None]
    ) -> None:
        super().__init__(receiver.database)
        self._receiver = receiver
        self._votes = votes
        self._ended = ended
        #: Known before this node is accepted.
        self.features: frozenset[str] = frozenset()

    def lost(self, peer: Peer, reason: str) -> None:
        self._ended(peer)
        self.database.guard(lambda: self._votes.source_lost(peer))()

    @on(AddTransaction, AddObject)
    def add(self, peer: Peer, message_id: int, m: AddTransaction | AddObject) -> None:
        self._receiver.add(peer, m)

    @on(AddVoted, AddVotedObject)
    def add_voted(self, peer: Peer, message_id: int, m: AddVoted | AddVotedObject) -> None:
        self._votes.add(peer, m)

    @on(AskStoreVoted)
    def store_voted(self, peer: Peer, message_id: int, m: AskStoreVoted) -> None:
        self._votes.store(peer, message_id, m)

    @on(NotifyAborted)
    def aborted(self, peer: Peer, message_id: int, m: NotifyAborted) -> None:
        self._votes.dropped(peer, m.ttid)

    @on(CloseClient)
    def close_client(self, peer: Peer, message_id: int, m: CloseClient) -> None:
        """Ignore it: the connection is kept while it works."""

    @on(NotifyFeatures)
    def features_known(self, peer: Peer, message_id: int, m: NotifyFeatures) -> None:
        self.features = frozenset(m.features)


class UpstreamLinks(Part):
    def __init__(
        self,
        core: Core,
        cluster: Cluster,
        cells: Cells,
        receiver: Receiver,
        votes: ReceivedVotes,
        peers: UpstreamPeers,
        announced: list[str],
    ) -> None:
        """``announced``: features of this node, for those of the upstream cluster."""
        self._announced = announced
        self._core = core
        self._cluster = cluster
        self._cells = cells
        self._receiver = receiver
        self._votes = votes
        self._peers = peers
        #: Connections on which votes are sent -> number of fetches of votes that are in progress there.
        self._subscribed: dict[Peer, int] = {}
        #: Subscribed connections that are to be closed when no fetch is in progress there.
        self._closing: dict[Peer, None] = {}
        #: Connections that are not accepted yet.
        self._dialed: dict[Address, Future[Peer]] = {}

    def connect(self, cluster: str, address: Address) -> Future[Peer]:
        """Return the connection with a node; dial if there is none. Fails with ConnectionLost."""
        if address in self._dialed:
            return self._dialed[address]
        established: Future[Peer] = Future()
        peer = self._peers.accepted.get(address)
        if peer is not None and not peer.closed:
            established.resolve(peer)
        else:
            self._dialed[address] = established
            self._core.spawn(self._dial(cluster, address, established))
        return established

    async def _dial(self, cluster: str, address: Address, established: Future[Peer]) -> None:
        core, own = self._core, self._cluster.own
        handler = FromUpstream(self._receiver, self._votes, self.lost)
        peer = core.dial(address, handler)
        timestamp = None if own is None else own.id_timestamp
        request = RequestIdentification(
            node_type=NodeType.STORAGE,
            nid=None,
            address=self._cluster.address,
            name=cluster,
            id_timestamp=timestamp,
            extra={FEATURES: self._announced, PARTITIONS: len(self._cells.partitions)},
        )
        try:
            with answering(core, peer, IDENTIFY_SECONDS):
                accepted = await peer.ask(request)
            if self._dialed.get(address) is not established:
                raise ConnectionLost("the operation stopped meanwhile")
            if accepted.node_type is not NodeType.STORAGE:
                raise ConnectionLost("it is not a storage node")
        except (ConnectionLost, ErrorAnswer) as e:
            peer.close()
            if self._dialed.get(address) is established:
                del self._dialed[address]
            established.fail(ConnectionLost(f"upstream {format_address(address)}: {e}"))
            return
        del self._dialed[address]
        peer.node = Node(NodeType.STORAGE, accepted.nid, address, NodeState.RUNNING)
        peer.node.features = handler.features
        self._peers.accepted[address] = peer
        established.resolve(peer)

    def lost(self, peer: Peer) -> None:
        accepted = self._peers.accepted
        self._peers.accepted = {address: p for address, p in accepted.items() if p is not peer}
        self._subscribed.pop(peer, None)
        self._closing.pop(peer, None)

    def subscribe(self, peer: Peer) -> None:
        """Note a fetch of a vote that begins: the peer sends its votes from now on."""
        self._subscribed[peer] = self._subscribed.get(peer, 0) + 1
        self._closing.pop(peer, None)

    def fetched(self, peer: Peer) -> None:
        """Note the end of such a fetch."""
        if peer in self._subscribed:
            self._subscribed[peer] -= 1
            if peer in self._closing:
                self._close(peer)

    def unsubscribe(self) -> None:
        """Close the connections on which votes are sent, and drop those that are not confirmed: when what
        is being fetched is here. Fetches of other rows begin again on new connections."""
        for peer in list(self._subscribed):
            self._close(peer)

    def _close(self, peer: Peer) -> None:
        if self._subscribed[peer]:
            self._closing[peer] = None
            return
        peer.close()
        self.lost(peer)
        self._votes.source_lost(peer)

    def operation_stopped(self) -> None:
        self._dialed.clear()
        self._subscribed.clear()
        self._closing.clear()
        peers, self._peers.accepted = self._peers.accepted, {}
        for peer in peers.values():
            peer.close()


class DownstreamLinks(Part):
    """Connections of storage nodes of backups of this cluster, which fetch here."""

    def __init__(self, announced: list[str]) -> None:
        """``announced``: features of this node, for those of backups."""
        self.announced = announced
        self._peers: dict[Peer, None] = {}

    def add(self, peer: Peer) -> None:
        """Note the connection of such a node."""
        self._peers[peer] = None

    def lost(self, peer: Peer) -> None:
        """Forget a connection that ended, if it is one of these."""
        self._peers.pop(peer, None)

    def operation_stopped(self) -> None:
        peers, self._peers = self._peers, {}
        for peer in peers:
            peer.close()
