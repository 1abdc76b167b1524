"""Identification of peers (specification 3.24 to 3.28)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from neo.node.handler import Handler, on
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.enums import ErrorCode, NodeState, NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import format_nid
from neo.protocol.packets import (
    FEATURES,
    PARTITIONS,
    AcceptIdentification,
    NotifyFeatures,
    Ping,
    Pong,
    RequestIdentification,
)
from neo.storage.cluster import Cluster
from neo.storage.commit.transactions import Client
from neo.storage.events import Part
from neo.storage.following.links import DownstreamLinks
from neo.storage.links import Links
from neo.storage.serving.client import ClientParts, ServeClient
from neo.storage.serving.handler import StorageHandler
from neo.topology.nodes import Node

_connections = count(1)


@dataclass(eq=False, repr=False)
class Identification(StorageHandler, Part):
    """The handler of all peers that are not identified yet."""

    cluster: Cluster
    parts: ClientParts
    links: Links
    downstream: DownstreamLinks
    #: The handler for a storage node of a backup of this cluster.
    guests: Handler
    #: Peers that are newer than the node table → a callback that evaluates their request again.
    _delayed: dict[Peer, Callable[[], None]] = field(default_factory=dict, init=False)

    def lost(self, peer: Peer, reason: str) -> None:
        self._delayed.pop(peer, None)

    def recheck(self) -> None:
        """Evaluate waiting requests again: the node table changed, or the operation stopped."""
        delayed, self._delayed = self._delayed, {}
        for peer, check in delayed.items():
            if not peer.closed:
                check()

    def operation_stopped(self) -> None:
        self.recheck()

    @on(RequestIdentification)
    def identify(self, peer: Peer, message_id: int, request: RequestIdentification) -> None:
        self._identify(peer, message_id, request, alive=False)

    def _identify(
        self, peer: Peer, message_id: int, request: RequestIdentification, alive: bool
    ) -> None:
        """``alive``: the peer answered a Ping, so it still waits for the answer to its identification,
        and it has made no other connection since the Ping."""
        try:
            node = self._node(request)
        except ErrorAnswer as e:
            peer.turn_away(message_id, request, e)
            return
        if node is None:
            # Bounded in time: the core disconnects unidentified peers.
            self._delayed[peer] = lambda: self.identify(peer, message_id, request)
        elif node.type is not NodeType.STORAGE or node.nid is None:
            self._accept(peer, message_id, request, node)
        elif alive:
            self._admit(peer, message_id, request, node)
        else:
            nid, made = node.nid, self.links.made(node.nid)

            def answered(pong: Future[Pong]) -> None:
                try:
                    pong.result()
                except (ConnectionLost, ErrorAnswer):
                    peer.close()
                else:
                    alive = self.links.made(nid) == made
                    self._identify(peer, message_id, request, alive)

            peer.ask(Ping()).then(answered)

    def _admit(
        self, peer: Peer, message_id: int, request: RequestIdentification, node: Node
    ) -> None:
        """Accept a storage node of this cluster, as soon as no other connection with it is in the way."""
        assert node.nid is not None
        admitted = self.links.admit(node.nid)
        at_once = admitted.done

        def go_on(_: Future[None]) -> None:
            if peer.closed:
                return
            try:
                admitted.result()
            except ErrorAnswer as e:
                # No warning: both nodes dialed at once.
                peer.refuse(message_id, e.code, e.message)
                peer.close()
                return
            if at_once:
                self._accept(peer, message_id, request, node)
            else:
                self.identify(peer, message_id, request)

        admitted.then(go_on)

    def _node(self, request: RequestIdentification) -> Node | None:
        """Return the node; None if the master has not announced it yet. Raises ErrorAnswer."""
        cluster = self.cluster
        if request.name != cluster.name:
            raise ErrorAnswer(
                ErrorCode.PROTOCOL_ERROR,
                f"invalid cluster name: this is {cluster.name!r}, you asked for {request.name!r}",
            )
        if not cluster.operational:
            raise ErrorAnswer(ErrorCode.NOT_READY, "Retry Later")
        if request.node_type is NodeType.STORAGE and request.nid is None:
            # A node of a backup cluster only fetches: the name is enough (specification 3.28).
            self._check_partitions(request)
            return Node(NodeType.STORAGE, None, request.address, NodeState.RUNNING)
        types = (NodeType.CLIENT, NodeType.STORAGE)
        if request.node_type not in types or request.nid is None:
            raise ErrorAnswer(
                ErrorCode.PROTOCOL_ERROR,
                f"a storage node serves identified clients and storages, not {request.node_type.name}"
                f" {format_nid(request.nid)}",
            )
        node = cluster.nodes.get(request.nid)
        if node is not None and node.type is not request.node_type:
            node = None
        known = node is not None and node.state is NodeState.RUNNING
        if node is not None and known and node.id_timestamp == request.id_timestamp:
            return node
        if request.id_timestamp is not None and request.id_timestamp > cluster.nodes.timestamp:
            return None
        raise ErrorAnswer(ErrorCode.NOT_READY, "unknown by master")

    def _check_partitions(self, request: RequestIdentification) -> None:
        """Raise ErrorAnswer for a node with another number of partitions than this cluster: it would
        fetch a part of each partition, and take that for the whole."""
        count, theirs = len(self.parts.cells.partitions), request.extra.get(PARTITIONS)
        if theirs is not None and theirs != count:
            raise ErrorAnswer(
                ErrorCode.NOT_READY, f"this cluster has {count} partitions, and yours {theirs}"
            )

    def _accept(
        self, peer: Peer, message_id: int, request: RequestIdentification, node: Node
    ) -> None:
        if node.nid is None:
            # No master vouches for this peer, which sends only short requests.
            peer.welcome()
            node.features = _features(request)
            if FEATURES in request.extra:
                # Before the acceptance, after which it fetches at once.
                peer.send(NotifyFeatures(self.downstream.announced))
            peer.answer(message_id, AcceptIdentification(NodeType.STORAGE, None, None))
            peer.node = node
            peer.handler = self.guests
            self.downstream.add(peer)
            return
        peer.trust()
        peer.answer(message_id, AcceptIdentification(NodeType.STORAGE, self.cluster.nid, node.nid))
        if node.type is NodeType.STORAGE:
            self._link(peer, request, node)
            return
        peer.node = node
        peer.handler = ServeClient(self.parts, Client(node.nid, next(_connections)))
        self.parts.clients.add(peer)
        if FEATURES in request.extra:
            peer.send(NotifyFeatures(self.links.announced))

    def _link(self, peer: Peer, request: RequestIdentification, node: Node) -> None:
        node.features = _features(request)
        if FEATURES in request.extra:
            peer.send(NotifyFeatures(self.links.announced))
        self.links.established(peer, node)


def _features(request: RequestIdentification) -> frozenset[str]:
    features = request.extra.get(FEATURES)
    return frozenset(map(str, features)) if isinstance(features, list) else frozenset()
