"""A peer whose requests become spans, if their transaction is traced (specification 17.52).

It takes NotifyTrace itself, so that no role knows of traces. What a request waits for, its handler tells.
"""

from __future__ import annotations

from typing import NamedTuple

from neo.node.measured_peer import DISK, WAITS, MeasuredPeer
from neo.node.meter import Meter
from neo.node.peer import MessageHandler, PeerOwner
from neo.node.task import Future
from neo.node.tracing import Span, Trace, Traces
from neo.protocol.enums import NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer, PeerError
from neo.protocol.ids import ZERO_TID, format_nid
from neo.protocol.packets import (
    FEATURE_TRACE,
    A,
    AbortTransaction,
    Address,
    AnswerBeginTransaction,
    AnswerStoreObject,
    AnswerVoteSingle,
    AskBeginTransaction,
    AskCheckCurrentSerial,
    AskFinishTransaction,
    AskLockInformation,
    AskPrepareInformation,
    AskPrepareTransaction,
    AskRebaseObject,
    AskRebaseTransaction,
    AskStoreBlob,
    AskStoreObject,
    AskStoreTransaction,
    AskVoteSingle,
    AskVoteTransaction,
    Error,
    FailedVote,
    Message,
    NotifyFeatures,
    NotifyTrace,
    NotifyUnlockInformation,
    Request,
)

#: The names of spans. Other messages about a transaction have their own names.
NAMES: dict[type[Message], str] = {
    AskFinishTransaction: "finish",
    AskPrepareTransaction: "prepare",
    FailedVote: "failed vote",
    AskRebaseTransaction: "rebase",
    AskStoreBlob: "store blob",
    AskStoreTransaction: "vote",
    AskVoteTransaction: "vote",
    AskVoteSingle: "vote",
    AskLockInformation: "lock",
    AskPrepareInformation: "prepare",
    NotifyUnlockInformation: "unlock",
    AbortTransaction: "abort",
}
#: Messages that share one span, because a transaction may have millions of them.
STORES = frozenset((AskStoreObject, AskCheckCurrentSerial, AskRebaseObject))
#: Messages from which on the transaction may end without its client.
DECIDED = frozenset(
    (AskFinishTransaction, AskPrepareTransaction, AskLockInformation, AskPrepareInformation)
)
#: Messages with which a transaction ends for the node that takes them.
ENDS = frozenset((NotifyUnlockInformation, AbortTransaction))


class OpenSpan(NamedTuple):
    """A request that is not answered. ``trace``: None while that is not known. ``span``: of the request,
    or of its wait if it shares one. ``synced``: seconds of syncs of this node before it."""

    trace: Trace | None
    kind: type[Message]
    span: Span
    synced: float


class TracedPeer(MeasuredPeer):
    def __init__(
        self,
        traces: Traces,
        meter: Meter,
        core: PeerOwner,
        handler: MessageHandler,
        address: Address | None,
        server: bool,
    ) -> None:
        super().__init__(meter, core, handler, address, server)
        self._traces = traces
        #: By message id. Bound: that of the answers that the peer waits for.
        self._spans: dict[int, OpenSpan] = {}

    # -- what the peer asks --------------------------------------------------------------------------

    def _dispatch(self, message_id: int | None, message: Message) -> Message | None:
        kind = type(message)
        if kind is NotifyTrace:
            self._learn(message)
            return None
        traces = self._traces
        trace = traces.find(getattr(message, "ttid", None))
        if message_id is None or (trace is None and kind is not AskBeginTransaction):
            return super()._dispatch(message_id, message)
        now = traces.clock()
        if trace is not None and kind in STORES:
            span = self._store(trace, message, now)
        else:
            span = Span(NAMES.get(kind, kind.__name__), now)
            if trace is not None:
                trace.current = span
                trace.decided |= kind in DECIDED
                if kind is AskLockInformation:
                    traces.record_stores(trace)
        synced = 0.0 if kind in STORES else self.handler.sync_seconds()
        self._spans[message_id] = OpenSpan(trace, kind, span, synced)
        answer = super()._dispatch(message_id, message)
        if message_id in self._spans:
            if answer is not None or not isinstance(message, Request):
                self._answered(message_id, answer)
            elif trace is not None:
                self._left_open(trace, kind, span, message)
        if kind in ENDS:
            traces.forget(message.ttid)  # type: ignore[attr-defined]
        return answer

    def _learn(self, message: Message) -> None:
        assert isinstance(message, NotifyTrace)
        if self.node is None or self.node.type is not NodeType.CLIENT:
            raise PeerError("unexpected NotifyTrace")
        self._traces.learn(message, self)

    def _store(self, trace: Trace, message: Message, now: float) -> Span:
        """Count a store, check or rebase of an object. Return the span of its wait, which is no part of
        the trace unless it waits."""
        stores = trace.stores
        if stores is None:
            stores = trace.stores = Span("store", now)
        if isinstance(message, AskStoreObject):
            stores.count("neo.stores")
            stores.count("neo.bytes", len(message.data))
        else:
            stores.count("neo.checks")
        oid: bytes = message.oid  # type: ignore[attr-defined]
        return Span("wait for lock", now, {"neo.oid": oid.hex()})

    def _left_open(self, trace: Trace, kind: type[Message], span: Span, message: Message) -> None:
        """Note what a request waits for that its method left open."""
        if kind not in STORES:
            if WAITS.get(kind) == DISK:
                span.add(Span("wait for disk", self._traces.clock()))
            return
        holders = self.handler.waits_for(message)
        if holders is None:
            span.name = "wait for content"
        else:
            span.attributes["neo.holders"] = holders
        if trace.stores is not None:
            trace.stores.add(span)

    # -- what it is answered ---------------------------------------------------------------------------

    def answer(self, message_id: int, message: Message) -> None:
        super().answer(message_id, message)
        if message_id in self._spans:
            self._answered(message_id, message)

    def _answered(self, message_id: int, answer: Message | None) -> None:
        """End the span of a message. ``answer``: None if it is a notification."""
        trace, kind, span, synced = self._spans.pop(message_id)
        now = self._traces.clock()
        span.finish(now)
        if isinstance(answer, Error) and answer.code:
            span.error = answer.message or "refused"
        if trace is None:
            if isinstance(answer, AnswerBeginTransaction):
                span.name = "begin"
                self._traces.begun(answer.ttid, span)
            return
        if kind in STORES:
            if trace.stores is not None:
                trace.stores.end = now
                if isinstance(answer, AnswerStoreObject) and answer.locked not in (None, ZERO_TID):
                    trace.stores.count("neo.conflicts")
            return
        if trace.current is span:
            trace.current = None
        seconds = self.handler.sync_seconds() - synced
        if seconds > 0:
            span.attributes["neo.sync_seconds"] = seconds
        if isinstance(answer, AnswerVoteSingle):
            span.attributes["neo.voted"] = answer.voted
        self._traces.record(trace, span)

    # -- what this node asks and sends -----------------------------------------------------------------

    def ask(self, message: Request[A]) -> Future[A]:
        future = super().ask(message)
        ttid = getattr(message, "ttid", None)
        trace = self._traces.find(ttid)
        if trace is not None:
            node = "" if self.node is None else format_nid(self.node.nid)
            kind = type(message)
            span = Span(f"{NAMES.get(kind, kind.__name__)} {node}", self._traces.clock())
            self._asked(trace, span, future)
        return future

    def _asked(self, trace: Trace, span: Span, future: Future[A]) -> None:
        parent, traces = trace.current, self._traces
        if parent is not None:
            parent.add(span)

        def answered(future: Future[A]) -> None:
            try:
                future.result()
            except (ConnectionLost, ErrorAnswer) as e:
                span.error = str(e)
            if span.end is None:
                span.finish(traces.clock())
                if parent is None:
                    traces.record(trace, span)

        future.then(answered)

    def send(self, message: Message, message_id: int | None = None) -> None:
        kind = type(message)
        if kind is NotifyFeatures:
            assert isinstance(message, NotifyFeatures)
            message = NotifyFeatures([*message.features, FEATURE_TRACE])
        elif kind is NotifyUnlockInformation:
            assert isinstance(message, NotifyUnlockInformation)
            self._traces.forget(message.ttid)
        super().send(message, message_id)

    def _forget_waiting(self) -> None:
        super()._forget_waiting()
        self._spans.clear()
        self._traces.disown(self)
