"""Clients of a backup hear of a transaction when its data can be read, not when it was committed."""

from __future__ import annotations

from collections import deque

from neo.master.cluster import Cluster
from neo.protocol.enums import NodeType
from neo.protocol.packets import InvalidateObjects

#: Oids of invalidations that wait for their data: 20 MB or so. With more, clients begin anew.
WAITING_OIDS_MAX = 200_000


class Readers:
    def __init__(self, cluster: Cluster, last: bytes) -> None:
        """``last``: what was committed until then was told to another master, if to any."""
        self._cluster = cluster
        self._waiting: deque[InvalidateObjects] = deque()
        self._oids = 0
        #: Of what was committed until then, not all is known.
        self._gap = last

    def heard(self, tid: bytes, oids: list[bytes]) -> None:
        """A transaction was committed upstream."""
        self._waiting.append(InvalidateObjects(tid, oids))
        self._oids += len(oids)
        if self._oids > WAITING_OIDS_MAX:
            self.missed(tid)

    def missed(self, tid: bytes) -> None:
        """It is not known what changed until ``tid``."""
        self._waiting.clear()
        self._oids = 0
        self._gap = tid

    def show(self, before: bytes, tid: bytes) -> None:
        """All data up to ``tid`` can be read; until now it was ``before``."""
        if before < self._gap:
            # They cannot be told what changed: they join again, and forget what they have.
            for client in self._cluster.of_type(NodeType.CLIENT):
                self._cluster.disconnect(client)
        while self._waiting and self._waiting[0].tid <= tid:
            invalidation = self._waiting.popleft()
            self._oids -= len(invalidation.oid_list)
            self._cluster.broadcast(invalidation, NodeType.CLIENT)
