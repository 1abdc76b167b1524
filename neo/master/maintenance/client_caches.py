"""What clients tell of their caches, for operators (specification 17.65, 17.66).

A client is asked when an operator or a program that monitors asks, and not more often than each
:data:`FRESH_SECONDS`. So nothing is sent while no one wants to know, and a client has one question at
most.
"""

from __future__ import annotations

from neo.master.cluster import Cluster
from neo.node.core import Core
from neo.node.peer import Peer
from neo.node.task import Future, first
from neo.protocol.enums import NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.packets import (
    FEATURE_CACHES,
    AnswerCache,
    AnswerClientCaches,
    AskCache,
    CacheRow,
)

#: A client is not asked again for this time: programs that monitor ask each 15 seconds or so.
FRESH_SECONDS = 5.0
#: Timeout for answers, because an operator waits. Figures that come later are told the next time.
ANSWER_SECONDS = 1.0
#: Bound of an answer, for many clients more than which Prometheus should not have as labels either.
CLIENTS_MAX = 1000


class _Client:
    """A client that was asked. ``since``: when, by the monotonic clock."""

    def __init__(self, peer: Peer, since: float) -> None:
        self.peer = peer
        self.since = since
        self.answer: Future[AnswerCache] = peer.ask(AskCache())
        #: The last figures; None before the first answer.
        self.told: AnswerCache | None = None

    def ask(self, now: float) -> None:
        """Ask again, unless that was just done, or the client has not answered yet."""
        self.learn()
        if self.answer.done and now - self.since >= FRESH_SECONDS:
            self.since, self.answer = now, self.peer.ask(AskCache())

    def learn(self) -> None:
        """Take the figures, if the client has answered."""
        if self.answer.done:
            try:
                self.told = self.answer.result()
            except (ConnectionLost, ErrorAnswer):
                self.told = None  # the client is gone, or stops


class ClientCaches:
    def __init__(self, cluster: Cluster, core: Core) -> None:
        self._cluster = cluster
        self._core = core
        #: By node id. Bound: connected clients.
        self._clients: dict[int, _Client] = {}

    async def figures(self) -> AnswerClientCaches:
        """Return a row for each client that tells, as it is now or was at most some seconds ago."""
        now = self._core.host.monotonic()
        clients = self._clients = dict(self._asked(now))
        limit = self._core.sleep(ANSWER_SECONDS)
        for client in clients.values():
            if client.since == now:
                await first(client.answer, limit)
        rows: list[CacheRow] = []
        for nid, client in clients.items():
            client.learn()
            if (told := client.told) is not None:
                rows.append(
                    (nid, told.name, told.capacity, told.size, told.entries, told.hits, told.misses)
                )
        return AnswerClientCaches(rows)

    def _asked(self, now: float) -> list[tuple[int, _Client]]:
        """Return the connected clients that tell, in the order of their ids. Each was asked now or just
        before."""
        peers = sorted(
            (peer.node.nid, peer)
            for peer in self._cluster.of_type(NodeType.CLIENT)
            if peer.node is not None
            and peer.node.nid is not None
            and FEATURE_CACHES in peer.node.features
        )
        found: list[tuple[int, _Client]] = []
        for nid, peer in peers[:CLIENTS_MAX]:
            client = self._clients.get(nid)
            if client is None or client.peer is not peer:
                client = _Client(peer, now)
            else:
                client.ask(now)
            found.append((nid, client))
        return found
