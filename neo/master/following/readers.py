"""Invalidations for clients of a backup, which are sent when the data can be read, not at the commit."""

from __future__ import annotations

from collections import deque

from neo.master.cluster import Cluster
from neo.protocol.enums import NodeType
from neo.protocol.packets import InvalidateObjects

#: Bound of the oids in invalidations that wait for their data, about 20 MB. With more, clients reconnect.
WAITING_OIDS_MAX = 200_000


class Readers:
    def __init__(self, cluster: Cluster, last: bytes) -> None:
        """``last``: transactions until then were announced to an earlier master, if to any."""
        self._cluster = cluster
        self._waiting: deque[InvalidateObjects] = deque()
        self._oids = 0
        #: Not all transactions until then are known.
        self._gap = last

    def heard(self, tid: bytes, oids: list[bytes]) -> None:
        """Keep the invalidation of a transaction that was committed upstream."""
        self._waiting.append(InvalidateObjects(tid, oids))
        self._oids += len(oids)
        if self._oids > WAITING_OIDS_MAX:
            self.missed(tid)

    def missed(self, tid: bytes) -> None:
        """Note that it is not known what changed until ``tid``."""
        self._waiting.clear()
        self._oids = 0
        self._gap = tid

    def show(self, before: bytes, tid: bytes) -> None:
        """Send the invalidations up to ``tid``: clients can read all data up to it. ``before``: the tid
        up to which they could read until now."""
        if before < self._gap:
            # The master does not know what changed: clients must reconnect and drop their caches.
            for client in self._cluster.of_type(NodeType.CLIENT):
                self._cluster.disconnect(client)
        while self._waiting and self._waiting[0].tid <= tid:
            invalidation = self._waiting.popleft()
            self._oids -= len(invalidation.oid_list)
            self._cluster.broadcast(invalidation, NodeType.CLIENT)
