"""Invalidations, many in one write while there are many commits (specification 7.33).

A client need not hear of a commit at once: what it asks the master comes behind all commits before, on
the same connection, and each transaction of ZODB asks (``server-sync``). So while one commit follows the
other, an invalidation waits for the next message to its client, a few milliseconds at most. Otherwise
each commit would wake up each client.
"""

from __future__ import annotations

from neo.master.cluster import Cluster
from neo.node.core import Core
from neo.node.peer import Peer
from neo.protocol.enums import NodeType
from neo.protocol.packets import InvalidateObjects

#: Shortest time between two writes to clients that ask for nothing.
ANNOUNCE_SECONDS = 0.01
#: Bytes that wait for a client at most: its other messages wait for them.
WAITING_BYTES = 64 << 10


class Announcements:
    """The invalidations that are sent to clients."""

    def __init__(self, cluster: Cluster, core: Core) -> None:
        self._cluster = cluster
        self._core = core
        self._waiting: dict[Peer, None] = {}
        self._planned = False
        #: When the last invalidation was written without delay, or those that waited.
        self._written = -ANNOUNCE_SECONDS

    def announce(self, invalidation: InvalidateObjects, committer: Peer | None) -> None:
        """Send a client's invalidation to all other clients: now, or with the next message to each,
        after ANNOUNCE_SECONDS at the latest."""
        now = self._core.host.monotonic()
        at_once = now - self._written >= ANNOUNCE_SECONDS
        for client in self._cluster.of_type(NodeType.CLIENT):
            if client is committer:
                continue
            if at_once or client.connection.queued > WAITING_BYTES:
                client.send(invalidation)
            else:
                client.queue(invalidation)
                self._waiting[client] = None
        if at_once:
            self._written = now
        elif self._waiting and not self._planned:
            self._planned = True
            left = self._written + ANNOUNCE_SECONDS - now
            self._core.call_later(left, self._write)

    def _write(self) -> None:
        """Write what waits. What a client was sent meanwhile took it along."""
        self._planned = False
        self._written = self._core.host.monotonic()
        self._core.touched.update(self._waiting)
        self._waiting.clear()
