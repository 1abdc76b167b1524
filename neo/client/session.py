"""The parts of a client, and how they are tied together."""

from __future__ import annotations

from typing import Any

from neo.client.blobs.download import Downloads
from neo.client.blobs.files import BlobFiles
from neo.client.commit.registry import TransactionRegistry
from neo.client.commit.traced import TracedTransaction
from neo.client.commit.transaction import ClientTransaction, Resolve
from neo.client.connect.connections import Connections
from neo.client.connect.master import MasterConnection
from neo.client.connect.storages import StorageConnections
from neo.client.read.cache import Cache
from neo.client.read.invalidations import Invalidations
from neo.client.read.replicas import Replicas
from neo.client.settings import Settings
from neo.client.tracing.reads import TracedReplicas
from neo.client.warm.keeper import CacheKeeper
from neo.net.host import ThreadHost


class Session:
    """A client of one cluster: connections, reads, transactions. Thread-safe."""

    def __init__(self, host: ThreadHost, settings: Settings) -> None:
        self.host = host
        self.settings = settings
        self.invalidations = Invalidations(Cache(settings.cache_size), host)
        self.transactions = TransactionRegistry[ClientTransaction]()
        self.connections = Connections(host, settings)
        self.master = MasterConnection(self.connections, self.invalidations, self.transactions)
        self.storages = StorageConnections(self.connections, self.master)
        reads = self.connections, self.master, self.storages, self.invalidations
        self._tracer = settings.tracer
        self.replicas = (
            Replicas(*reads) if settings.tracer is None else TracedReplicas(settings.tracer, *reads)
        )
        self.keeper = CacheKeeper(
            host, settings, self.master, self.replicas, self.invalidations
        )
        downloads = Downloads(self.connections, self.master, self.storages)
        self.blobs = BlobFiles(host, settings, self.replicas, downloads)
        self.invalidations.forget_contents = self.blobs.pack_begins

    def open(self) -> None:
        """Join the cluster, and restore a kept cache. Raise the errors of a join."""
        self.master.channel()
        self.keeper.open()

    def transaction(self, metadata: Any, tid: bytes | None, resolve: Resolve) -> ClientTransaction:
        """Return a transaction that has not begun. See :class:`ClientTransaction`."""
        parts = self.connections, self.master, self.storages, self.replicas, self.invalidations
        given = self.transactions, metadata, tid, resolve
        if self._tracer is not None and (span := self._tracer.start("neo.commit")) is not None:
            return TracedTransaction(span, *parts, *given)
        return ClientTransaction(*parts, *given)

    def close(self) -> None:
        """End all connections. Threads that wait raise an error. Idempotent."""
        self.keeper.close()
        self.connections.close("the storage is closed")
        self.master.close("the storage is closed")
        self.invalidations.close()
        self.blobs.close()
        self.host.stop()

    def forked(self) -> None:
        """Abandon the parent's connections; open new ones on demand. Call in the child of a fork."""
        # First, so that a later failure does not leave the parent's connections in use here.
        channels = [*self.master.forked(), *self.storages.forked()]
        self.transactions.clear()
        self.keeper.forked()
        for channel in channels:
            channel.abandon()
        self.host.forked()
        self.invalidations.forked()
        self.blobs.forked()
