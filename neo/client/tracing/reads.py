"""Loads that go to the network, as spans."""

from __future__ import annotations

from neo.client.connect.connections import Backoff, Connections
from neo.client.connect.master import MasterConnection
from neo.client.connect.storages import StorageConnections
from neo.client.read.invalidations import Invalidations
from neo.client.read.replicas import Replicas, Where
from neo.client.tracing.spans import Tracer, within
from neo.protocol.packets import A, AskObject, Request


class TracedReplicas(Replicas):
    def __init__(
        self,
        tracer: Tracer,
        connections: Connections,
        master: MasterConnection,
        storages: StorageConnections,
        invalidations: Invalidations,
    ) -> None:
        super().__init__(connections, master, storages, invalidations)
        self._tracer = tracer

    def read(self, where: Where, message: Request[A], shared: Backoff | None = None) -> A:
        oid = message.oid if isinstance(message, AskObject) else None
        span = None if oid is None else self._tracer.start("neo.load")
        if oid is None or span is None:
            return super().read(where, message, shared)
        with within(span):
            span.set("neo.oid", oid.hex())
            return super().read(where, message, shared)
