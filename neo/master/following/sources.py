"""The storage nodes of the upstream cluster from which this one can fetch."""

from __future__ import annotations

from typing import Protocol

from neo.master.cluster import Cluster
from neo.master.states import BACKINGUP
from neo.node.host import Host
from neo.protocol.packets import Address


class Readable(Protocol):
    """The upstream cluster, as far as its partition table is known here."""

    def sources(self, partition: int) -> list[Address]:
        """Return the addresses of nodes from which the partition can be fetched now."""


class Sources:
    """``name``: of the upstream cluster. Bound: one address for each partition."""

    def __init__(self, cluster: Cluster, host: Host, name: str) -> None:
        self._cluster = cluster
        self._host = host
        self.name = name
        #: The upstream cluster while it is connected and its history fits.
        self.following: Readable | None = None
        self._chosen: dict[int, Address] = {}

    def of(self, partition: int) -> list[Address]:
        """Return the nodes from which cells may fetch a partition now: none outside BACKINGUP."""
        if self.following is None or self._cluster.state is not BACKINGUP:
            return []
        return self.following.sources(partition)

    def any(self, partition: int) -> tuple[str, Address] | None:
        """Return the upstream cluster and one of the nodes from which cells may fetch a partition now."""
        sources = self.of(partition)
        return (self.name, self._host.random.choice(sources)) if sources else None

    def steady(self, partition: int) -> Address | None:
        """Return the node from which rows of transactions in progress are fetched: the same one as long
        as the partition can be read there, because nodes subscribe to it (specification 25.11)."""
        sources = [] if self.following is None else self.following.sources(partition)
        if not sources:
            return None
        if self._chosen.get(partition) not in sources:
            self._chosen[partition] = self._host.random.choice(sources)
        return self._chosen[partition]
