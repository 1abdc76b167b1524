"""A transaction that the application traces: its steps are spans, and its nodes add theirs.

Each node that takes part is sent the trace once (specification 17.52), if it announced that it exports
spans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from neo.client.commit.participants import Change, Kind, Participants
from neo.client.commit.registry import TransactionRegistry
from neo.client.commit.transaction import ClientTransaction, Resolve
from neo.client.connect.connections import LOST, Backoff, Connections
from neo.client.connect.master import MasterConnection
from neo.client.connect.storages import StorageConnections
from neo.client.read.invalidations import Invalidations
from neo.client.read.replicas import Replicas
from neo.client.tracing.spans import Span, error_text, within
from neo.net.channel import Channel
from neo.net.host import Lock
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import FEATURE_TRACE, NotifyTrace


class TracedParticipants(Participants):
    """``joined`` is called with each storage node that joins, before anything else is sent to it."""

    def __init__(
        self,
        lock: Lock,
        storages: StorageConnections,
        check_master: Callable[[], None],
        held: int,
        joined: Callable[[int, Channel], None],
    ) -> None:
        super().__init__(lock, storages, check_master, held)
        self._joined = joined

    def join(self, nid: int) -> Channel | None:
        joins = nid not in self._nodes
        channel = super().join(nid)
        if joins and channel is not None:
            self._joined(nid, channel)
        return channel


class TracedTransaction(ClientTransaction):
    """``span``: of the whole commit; it ends with the transaction."""

    def __init__(
        self,
        span: Span,
        connections: Connections,
        master: MasterConnection,
        storages: StorageConnections,
        replicas: Replicas,
        invalidations: Invalidations,
        registry: TransactionRegistry[ClientTransaction],
        metadata: Any,
        tid: bytes | None,
        resolve: Resolve,
    ) -> None:
        super().__init__(
            connections, master, storages, replicas, invalidations, registry, metadata, tid, resolve
        )
        self._participants = TracedParticipants(
            connections.host.lock(), storages, self._check_master, self._settings.held,
            self._tell_storage,
        )
        self._span = span
        self._beginning: Span | None = None
        # From the first store until all are answered.
        self._storing: Span | None = None
        self._voting: Span | None = None
        self._finishing: Span | None = None
        #: Why the transaction is aborted, if it is.
        self._why = "the application aborted it"
        #: Of ``_storing``: stores and checks, and their bytes; those that resolve conflicts are added.
        self._counts = {"neo.stores": 0, "neo.checks": 0, "neo.bytes": 0}

    # -- what nodes are told -----------------------------------------------------------------------

    def _trace(self) -> NotifyTrace | None:
        context, ttid = self._span.context, self._ttid
        return None if context is None or ttid is None else NotifyTrace(ttid, *context)

    def _tell_master(self) -> None:
        joined, message = self._primary.current, self._trace()
        if message is None or joined is None or joined.channel is not self._master:
            return
        if FEATURE_TRACE in joined.handler.features:
            self._master.send(message)

    def _tell_storage(self, nid: int, channel: Channel) -> None:
        message = self._trace()
        if message is None:
            return
        try:
            features = self._storages.features(nid, self._participants.shared())
        except (*LOST, ErrorAnswer):
            return  # the next request notices that it is lost
        if FEATURE_TRACE in features:
            channel.send(message)

    @contextmanager
    def _reasons(self) -> Iterator[None]:
        """Keep the error of a step, for which the application aborts."""
        try:
            yield
        except BaseException as e:
            self._why = error_text(e)
            raise

    # -- steps -------------------------------------------------------------------------------------

    def begin(self, backoff: Backoff | None = None) -> None:
        if self._beginning is None:
            self._beginning = self._span.child("begin")
        super().begin(backoff)

    def _began(self, backoff: Backoff) -> bool:
        known = self._ttid is not None
        began = super()._began(backoff)
        if began and not known and self._ttid is not None:
            if self._beginning is not None:
                self._beginning.end()
            self._span.set("neo.ttid", self._ttid.hex())
            self._tell_master()
        return began

    def _change(self, oid: bytes, change: Change) -> None:
        if self._storing is None:
            self._storing = self._span.child("store")
        with self._reasons():
            super()._change(oid, change)

    def _put(self, oid: bytes, change: Change) -> None:
        if change.kind is Kind.CHECK:
            self._counts["neo.checks"] += 1
        else:
            self._counts["neo.stores"] += 1
            self._counts["neo.bytes"] += len(change.data or b"")
        super()._put(oid, change)

    def _solve(self, oid: bytes, serial: bytes) -> None:
        span = self._storing or self._span
        span.event("conflict", {"neo.oid": oid.hex(), "neo.serial": serial.hex()})
        super()._solve(oid, serial)

    def settle(self, unanswered_max: int = 0) -> None:
        super().settle(unanswered_max)
        if not unanswered_max and self._storing is not None:
            for name, value in self._counts.items():
                self._storing.set(name, value)
            self._storing.end()
            self._storing, self._counts = None, dict.fromkeys(self._counts, 0)

    def _step(self, step: Callable[[], None]) -> None:
        if self._voting is None:
            self._voting = self._span.child("vote")
        with self._reasons():
            super()._step(step)

    def vote(self, durable: bool = False) -> None:
        super().vote(durable)
        assert self._voting is not None
        self._voting.end()

    # -- the end -----------------------------------------------------------------------------------

    def ask_finish(self) -> None:
        self._finishing = self._span.child("finish")
        super().ask_finish()

    def finish(self, callback: Callable[[bytes], object]) -> bytes:
        if self._finishing is None:
            self._finishing = self._span.child("finish")
        with within(self._span), within(self._finishing):
            tid = super().finish(callback)
            self._span.set("neo.tid", tid.hex())
            self._span.set("neo.conflicts_resolved", len(self.resolved))
            return tid

    def prepare(self, xid: bytes, text: bytes) -> None:
        with within(self._span), within(self._span.child("prepare")):
            super().prepare(xid, text)

    def abort(self) -> None:
        for span in (self._beginning, self._storing, self._voting, self._finishing):
            if span is not None:
                span.end(self._why)
        self._span.end(self._why)
        super().abort()
