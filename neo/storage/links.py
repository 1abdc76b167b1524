"""Connections between storage nodes (specification, *Simultaneous Connection between 2 Nodes*).

Two storage nodes have at most one connection, which both use for their requests, whoever dialed it.
When both dial at once, the node with the smaller id accepts the other's connection and drops its own;
the other refuses (FACTS 3.9), and who is refused waits for the other's connection. Who has nothing more
to ask says CloseClient; who hears it closes the connection, unless it still has something to ask itself.

Three questions remain, which the specification leaves open (its *XXX*). Ping answers them:

* May a connection be used again after CloseClient? The other may be closing it. A Pong says that it has
  read that we are back, and stays.
* A node that we are connected with dials us. Has it lost the connection, or dialed before it accepted
  ours? A Pong on the old one says that it knows of it, and has dropped what it dialed.
* There is no old one (any more). Does the node still want what it dialed, or has it accepted and left a
  connection of ours meanwhile? A Pong on the new one says that it waits for us
  (:mod:`neo.storage.serving.identification`); or that it did, before it accepted a connection that we
  have made meanwhile: then it is asked again.

So no question is lost as long as nodes and network are sound.

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
    FEATURE_MAINTENANCE,
    FEATURES,
    AcceptIdentification,
    CloseClient,
    Ping,
    Pong,
    RequestIdentification,
)
from neo.storage.cluster import Cluster
from neo.storage.events import Part
from neo.topology.nodes import Node

logger = logging.getLogger("neo.storage")

#: A node that does not accept us in this time is given up: it may wait for news of the master.
IDENTIFY_SECONDS = 10.0
#: A connection on which nothing comes for so long is replaced by the one that the other node dialed:
#: less than its patience with us.
REPLACE_SECONDS = 5.0


class _Dial(NamedTuple):
    peer: Peer
    established: Future[Peer]


class Links(Part):
    def __init__(self, core: Core, cluster: Cluster, serve: Callable[[], Handler]) -> None:
        """``serve()``: a handler for another storage node, whichever dialed."""
        self._core = core
        self._cluster = cluster
        self._serve = serve
        self._peers: dict[int, Peer] = {}
        self._dials: dict[int, _Dial] = {}
        #: What in this node asks them something, or may. Empty only while a dial is not finished.
        self._users: dict[int, set[str]] = {}
        self._unused: set[Peer] = set()  # they told us that they have nothing to ask
        self._left: dict[Peer, object] = {}  # we told them so; another object each time
        self._made: dict[int, int] = {}  # how many connections there have been

    # -- as a client -------------------------------------------------------------------------------

    def connect(self, nid: int, user: str) -> Future[Peer]:
        """The connection with a storage node, dialed if there is none; fails with ConnectionLost.

        It is the user's until :meth:`release`; several may share it.
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
        """To a connection that may be closed because of what we said. Raises ConnectionLost."""
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
        dial = self._dials[node.nid] = _Dial(peer, established)
        request = RequestIdentification(
            *(NodeType.STORAGE, cluster.nid, cluster.address, cluster.name, own.id_timestamp),
            {FEATURES: [FEATURE_MAINTENANCE]},
        )
        answer = peer.ask(request)
        answer.then(lambda answer: self._answered(node, dial, answer))
        core.call_later(IDENTIFY_SECONDS, lambda: self._late(node, dial, answer))

    def _answered(self, node: Node, dial: _Dial, answer: Future[AcceptIdentification]) -> None:
        assert node.nid is not None and self._cluster.nid is not None
        try:
            accepted = answer.result()
        except (ConnectionLost, ErrorAnswer) as e:
            refused = isinstance(e, ErrorAnswer) and e.code is ErrorCode.PROTOCOL_ERROR
            if not refused or self._cluster.nid > node.nid:
                self._fail(node, dial, str(e))
            # Else it is dialing us: that connection is accepted, or the time is over.
            return
        assert isinstance(accepted, AcceptIdentification)
        if self._dials.get(node.nid) is not dial:
            dial.peer.close()
        elif (accepted.node_type, accepted.nid, accepted.your_nid) != (
            NodeType.STORAGE,
            node.nid,
            self._cluster.nid,
        ):
            self._fail(node, dial, "invalid node ids")
        else:
            self.established(dial.peer, node)

    def _late(self, node: Node, dial: _Dial, answer: Future[AcceptIdentification]) -> None:
        if answer.done:
            self._fail(node, dial, "it refused us, because it dials itself, and nothing came")
        else:
            self._fail(node, dial, "it does not answer")

    def _fail(self, node: Node, dial: _Dial, reason: str) -> None:
        assert node.nid is not None
        if self._dials.get(node.nid) is dial:
            del self._dials[node.nid]
            self._users.pop(node.nid, None)
            dial.peer.close()
            dial.established.fail(ConnectionLost(f"{format_nid(node.nid)}: {reason}"))

    def release(self, user: str) -> None:
        """The user has nothing more to ask of anybody."""
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
        """Resolves as soon as a connection that this node dialed may be accepted; fails with ErrorAnswer.

        Everything may have changed meanwhile, unless it is done at once.
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
            known = old.ask(Ping())
            known.then(lambda pong: self._alive(pong, admitted, conflict))
            self._core.call_later(REPLACE_SECONDS, lambda: self._replace(old, admitted))
        return admitted

    def _alive(self, pong: Future[Pong], admitted: Future[None], conflict: ErrorAnswer) -> None:
        try:
            pong.result()
        except ConnectionLost:
            admitted.resolve(None)
        else:
            admitted.fail(conflict)

    def _replace(self, old: Peer, admitted: Future[None]) -> None:
        if not admitted.done:
            self._close(old)

    def made(self, nid: int) -> int:
        """How many connections with a storage node there have been."""
        return self._made.get(nid, 0)

    def established(self, peer: Peer, node: Node) -> None:
        """A connection is identified. It replaces any other: the peer knows of none by now."""
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
        """The peer has nothing more to ask."""
        if peer.node is not None and self._users.get(peer.node.nid or 0):
            self._unused.add(peer)
        else:
            self._close(peer)

    def returned(self, peer: Peer) -> None:
        """The peer may have something to ask again."""
        self._unused.discard(peer)

    # -- the end -----------------------------------------------------------------------------------

    def node_changed(self, node: Node) -> None:
        """A node that the master lost has no connection to us worth keeping."""
        if node.nid is None or node.state is NodeState.RUNNING:
            return
        dial, peer = self._dials.get(node.nid), self._peers.get(node.nid)
        if dial is not None:
            self._fail(node, dial, "it is not running")
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
