"""Connections between storage nodes (specification 3.29 to 3.36).

Two storage nodes share one connection for the requests of both, whichever node dialed. When both dial
at once, the node with the smaller id accepts the other's connection and drops its own; the other node
refuses (specification 3.30), and the refused node waits for the other's connection. A node without
further requests sends CloseClient; its peer closes the connection unless it has requests of its own.

The specification leaves three cases open (its *XXX*). A Ping decides each:

* This node has sent CloseClient and has a new request, while the peer may be closing. A Pong says that
  the peer has read the Ping and keeps the connection.
* A peer with a connection dials a second one: it lost the first, or it dialed before it accepted the
  first. A Pong on the first says that the peer uses it and has dropped its dial.
* A peer without a connection dials: it still waits for the answer, or it has accepted and left a
  connection of this node meanwhile. A Pong on the new connection says that the peer waits
  (:mod:`neo.storage.serving.identification`). If this node has made a connection since the Ping, the
  Pong may be older than that, and the peer is asked again.

So no request is lost while nodes and network work.

Bound: one connection per storage node of the cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from neo.node.core import Core
from neo.node.handler import Handler
from neo.node.peer import Peer
from neo.node.task import Future, Task
from neo.protocol.enums import ErrorCode, NodeState, NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import format_nid
from neo.protocol.packets import (
    FEATURES,
    AcceptIdentification,
    Address,
    CloseClient,
    Ping,
    Pong,
    RequestIdentification,
)
from neo.storage.cluster import Cluster
from neo.storage.events import Part
from neo.topology.nodes import Node

logger = logging.getLogger("neo.storage")

#: Timeout of an identification. The other node may have to wait for the master's node table.
IDENTIFY_SECONDS = 10.0
#: A connection that is silent for this time is replaced by the one that the other node dialed: less
#: than IDENTIFY_SECONDS, after which that node gives up.
REPLACE_SECONDS = 5.0


class _Dial(NamedTuple):
    nid: int
    node: Node
    peer: Peer
    established: Future[Peer]


class UpstreamPeers:
    """The accepted connections with storage nodes of the upstream cluster of a backup, by address."""

    def __init__(self) -> None:
        self.accepted: dict[Address, Peer] = {}


class Links(Part):
    def __init__(
        self, core: Core, cluster: Cluster, serve: Callable[[], Handler], announced: list[str]
    ) -> None:
        """``serve()`` returns the handler for another storage node. ``announced``: features of this node,
        for other ones."""
        self.announced = announced
        self._core = core
        self._cluster = cluster
        self._serve = serve
        self._peers: dict[int, Peer] = {}
        self._dials: dict[int, _Dial] = {}
        #: The parts of this node that use a connection. Empty only while a dial is in progress.
        self._users: dict[int, set[str]] = {}
        self._unused: set[Peer] = set()  # peers that have sent CloseClient
        self._left: dict[Peer, object] = {}  # peers that got CloseClient; a new object each time
        self._made: dict[int, int] = {}  # number of connections so far

    # -- as a client -------------------------------------------------------------------------------

    def connect(self, nid: int, user: str) -> Future[Peer]:
        """Return the connection with a storage node; dial if there is none. Fails with ConnectionLost.

        The connection stays open until each of its users calls :meth:`release`.
        """
        established: Future[Peer] = Future()
        peer = self._peers.get(nid)
        if peer is not None:
            self._users.setdefault(nid, set()).add(user)
            if peer in self._left:
                return Task(self._return(peer, nid, user))
            established.resolve(peer)
        elif nid in self._dials:
            self._users.setdefault(nid, set()).add(user)
            established = self._dials[nid].established
        else:
            node, own = self._cluster.nodes.get(nid), self._cluster.own
            if node is None or node.address is None or own is None:
                established.fail(ConnectionLost(f"{format_nid(nid)} is not known to run"))
            else:
                self._users.setdefault(nid, set()).add(user)
                self._dial(node, own, established)
        return established

    async def _return(self, peer: Peer, nid: int, user: str) -> Peer:
        """Use a connection again after CloseClient. Raises ConnectionLost."""
        said = self._left[peer]
        try:
            await peer.ask(Ping())
        except ConnectionLost:
            if self._peers.get(nid) is peer:
                raise
            return await self.connect(nid, user)
        if self._left.get(peer) is said:
            del self._left[peer]
        return peer

    def _dial(self, node: Node, own: Node, established: Future[Peer]) -> None:
        core, cluster = self._core, self._cluster
        assert node.nid is not None and node.address is not None
        peer = core.dial(node.address, Handler())
        dial = self._dials[node.nid] = _Dial(node.nid, node, peer, established)
        request = RequestIdentification(
            node_type=NodeType.STORAGE,
            nid=cluster.nid,
            address=cluster.address,
            name=cluster.name,
            id_timestamp=own.id_timestamp,
            extra={FEATURES: self.announced},
        )
        answer = peer.ask(request)
        answer.then(lambda answer: self._answered(dial, answer))
        core.call_later(IDENTIFY_SECONDS, lambda: self._late(dial, answer))

    def _answered(self, dial: _Dial, answer: Future[AcceptIdentification]) -> None:
        own = self._cluster.nid
        assert own is not None
        try:
            accepted = answer.result()
        except (ConnectionLost, ErrorAnswer) as e:
            refused = isinstance(e, ErrorAnswer) and e.code is ErrorCode.PROTOCOL_ERROR
            if not refused or own > dial.nid:
                self._fail(dial, str(e))
            # Else that node dials this one: its connection is accepted, or the timeout ends the wait.
            return
        found = accepted.node_type, accepted.nid, accepted.your_nid
        if self._dials.get(dial.nid) is not dial:
            dial.peer.close()
        elif found != (NodeType.STORAGE, dial.nid, own):
            self._fail(dial, "invalid node ids")
        else:
            self.established(dial.peer, dial.node)

    def _late(self, dial: _Dial, answer: Future[AcceptIdentification]) -> None:
        if answer.done:
            self._fail(dial, "it refused, because it dials this node, but no connection came")
        else:
            self._fail(dial, "it does not answer")

    def _fail(self, dial: _Dial, reason: str) -> None:
        if self._dials.get(dial.nid) is dial:
            del self._dials[dial.nid]
            self._users.pop(dial.nid, None)
            dial.peer.close()
            dial.established.fail(ConnectionLost(f"{format_nid(dial.nid)}: {reason}"))

    def release(self, user: str) -> None:
        """End the use of all connections by one part of this node."""
        for nid, users in list(self._users.items()):
            users.discard(user)
            if not users and nid not in self._dials:
                self._leave(nid)

    def _leave(self, nid: int) -> None:
        del self._users[nid]
        peer = self._peers.get(nid)
        if peer is None:
            return
        if peer in self._unused:
            self._close(peer)
        else:
            self._left[peer] = object()
            peer.send(CloseClient())

    # -- as a server -------------------------------------------------------------------------------

    def admit(self, nid: int) -> Future[None]:
        """Return a future: done when a connection dialed by this storage node may be accepted.

        Fails with ErrorAnswer. If it is not done at once, the caller must check everything again.
        """
        own = self._cluster.nid
        assert own is not None
        admitted: Future[None] = Future()
        conflict = ErrorAnswer(ErrorCode.PROTOCOL_ERROR, "already connected")
        old = self._peers.get(nid)
        if nid == own or (nid in self._dials and own > nid):
            admitted.fail(conflict)
        elif old is None:
            admitted.resolve(None)
        else:

            def answered(pong: Future[Pong]) -> None:
                try:
                    pong.result()
                except ConnectionLost:
                    admitted.resolve(None)
                else:
                    admitted.fail(conflict)

            def replace() -> None:
                if not admitted.done:
                    self._close(old)

            old.ask(Ping()).then(answered)
            self._core.call_later(REPLACE_SECONDS, replace)
        return admitted

    def made(self, nid: int) -> int:
        """Return the number of connections with a storage node so far."""
        return self._made.get(nid, 0)

    def established(self, peer: Peer, node: Node) -> None:
        """Use an identified connection. It replaces an older one, which the peer does not use."""
        assert node.nid is not None
        self._made[node.nid] = self.made(node.nid) + 1
        if (old := self._peers.get(node.nid)) is not None:
            self._close(old)
        self._peers[node.nid] = peer
        peer.node = node
        peer.both_ways = True
        peer.handler = self._serve()
        dial = self._dials.pop(node.nid, None)
        if dial is not None:
            if dial.peer is not peer:
                dial.peer.close()
            dial.established.resolve(peer)
            if self._users.get(node.nid) == set():
                self._leave(node.nid)

    def close_client(self, peer: Peer) -> None:
        """Handle CloseClient: the peer has no further requests."""
        if peer.node is not None and self._users.get(peer.node.nid or 0):
            self._unused.add(peer)
        else:
            self._close(peer)

    def returned(self, peer: Peer) -> None:
        """Keep the connection: the peer may send requests again."""
        self._unused.discard(peer)

    # -- the end -----------------------------------------------------------------------------------

    def node_changed(self, node: Node) -> None:
        """Close the connection with a node that the master has lost."""
        if node.nid is None or node.state is NodeState.RUNNING:
            return
        dial, peer = self._dials.get(node.nid), self._peers.get(node.nid)
        if dial is not None:
            self._fail(dial, "it is not running")
        if peer is not None:
            self._close(peer)

    def _close(self, peer: Peer) -> None:
        self.lost(peer)
        peer.close()

    def lost(self, peer: Peer) -> None:
        self._unused.discard(peer)
        self._left.pop(peer, None)
        if peer.node is not None and self._peers.get(peer.node.nid or 0) is peer:
            del self._peers[peer.node.nid or 0]
            self._users.pop(peer.node.nid or 0, None)

    def operation_stopped(self) -> None:
        for peer in list(self._peers.values()):
            self._close(peer)
        dials, self._dials = self._dials, {}
        self._users.clear()
        for dial in dials.values():
            dial.peer.close()
            dial.established.fail(ConnectionLost("the operation stops"))
