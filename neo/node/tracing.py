"""Spans of the transactions that applications trace (specification 17.52, decision 56).

PURE. A node whose settings ask for no traces has no tracer, and its peers know nothing of this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from neo.protocol.packets import NotifyTrace

#: Bound of the transactions whose context a node keeps. More than this are not open at a time, unless
#: clients vanish; the oldest context is forgotten then, and spans of its transaction are missing.
TRACES_MAX = 4096
#: Bound of the begun transactions for which a context may still come, which it does within a round trip.
BEGUN_MAX = 1024
#: Bound of the children of a span, such as the waits of a transaction that stores a million objects.
#: Others are counted.
CHILDREN_MAX = 100

Value = str | int | float | bool


class Span:
    """A part of a transaction's time on this node. ``begin``, ``end``: seconds of a clock that never
    jumps; ``end`` is None while it lasts. ``error``: why it failed."""

    __slots__ = ("attributes", "begin", "children", "end", "error", "name")

    def __init__(self, name: str, begin: float, attributes: dict[str, Value] | None = None) -> None:
        self.name = name
        self.begin = begin
        self.end: float | None = None
        self.attributes: dict[str, Value] = {} if attributes is None else attributes
        self.error = ""
        self.children: list[Span] = []

    def add(self, child: Span) -> None:
        """Add a child, or count it if there are many."""
        if len(self.children) < CHILDREN_MAX:
            self.children.append(child)
        else:
            self.count("neo.children_left_out")

    def count(self, name: str, more: int = 1) -> None:
        """Increase a number among the attributes."""
        value = self.attributes.get(name, 0)
        assert isinstance(value, int)
        self.attributes[name] = value + more

    def finish(self, now: float) -> None:
        """End the span and the children that have not ended."""
        self.end = now
        for child in self.children:
            if child.end is None:
                child.finish(now)


class Context(NamedTuple):
    """The span of the application below which spans of this node belong; see
    :class:`~neo.protocol.packets.NotifyTrace`."""

    trace_id: bytes
    span_id: bytes
    flags: int


class Tracer(Protocol):
    """Takes the spans of a node. It is called on the thread of the event loop."""

    def record(self, context: Context, span: Span, epoch: float) -> None:
        """Export a span that has ended, with its children. Must not block. ``epoch``: what to add to its
        times for seconds since 1970."""


class Exporter(Tracer, Protocol):
    """A tracer with a thread; see :class:`neo.node.otlp.OtlpTracer`."""

    def close(self) -> None:
        """Send what is queued, without waiting."""


class Clocks(Protocol):
    """The clocks of the host."""

    def time(self) -> float: ...

    def monotonic(self) -> float: ...


class Trace:
    """A transaction that is traced. ``owner``: the connection that brought its context."""

    __slots__ = ("context", "current", "decided", "owner", "stores")

    def __init__(self, context: Context, owner: object) -> None:
        self.context = context
        self.owner = owner
        #: The last request about the transaction that is not answered: parent of what this node asks.
        self.current: Span | None = None
        #: One span for all stores and checks; None before the first one, and when it is recorded.
        self.stores: Span | None = None
        #: The transaction may end without its client.
        self.decided = False


class Traces:
    """The traced transactions of a core, by ttid."""

    def __init__(self, tracer: Tracer, clocks: Clocks) -> None:
        self._tracer = tracer
        self._clocks = clocks
        self.clock: Callable[[], float] = clocks.monotonic
        self._traces: dict[bytes, Trace] = {}
        #: The spans of transactions that this node began, before it knows whether they are traced.
        self._begun: dict[bytes, Span] = {}

    def __len__(self) -> int:
        return len(self._traces)

    def begun(self, ttid: bytes, span: Span) -> None:
        """Keep the span of a transaction that begins, for :meth:`learn`."""
        if len(self._begun) >= BEGUN_MAX:
            del self._begun[next(iter(self._begun))]
        self._begun[ttid] = span

    def learn(self, message: NotifyTrace, owner: object) -> None:
        """Trace a transaction from now on."""
        if len(self._traces) >= TRACES_MAX:
            self.forget(next(iter(self._traces)))
        trace = Trace(Context(message.trace_id, message.span_id, message.flags), owner)
        self._traces[message.ttid] = trace
        span = self._begun.pop(message.ttid, None)
        if span is not None:
            self.record(trace, span)

    def find(self, ttid: bytes | None) -> Trace | None:
        """Return the trace of a transaction; None if it is not traced."""
        return None if ttid is None else self._traces.get(ttid)

    def record(self, trace: Trace, span: Span) -> None:
        """Export a span that has ended."""
        self._tracer.record(trace.context, span, self._clocks.time() - self._clocks.monotonic())

    def record_stores(self, trace: Trace) -> None:
        """Export the span of all stores, if there is one."""
        stores, trace.stores = trace.stores, None
        if stores is not None:
            stores.finish(self.clock() if stores.end is None else stores.end)
            self.record(trace, stores)

    def forget(self, ttid: bytes) -> None:
        """End the trace of a transaction. Idempotent."""
        self._begun.pop(ttid, None)
        trace = self._traces.pop(ttid, None)
        if trace is not None:
            self.record_stores(trace)

    def disown(self, owner: object) -> None:
        """Forget the transactions of a connection that ended, unless they may end without it."""
        for ttid in [t for t, trace in self._traces.items() if trace.owner is owner]:
            if not self._traces[ttid].decided:
                self.forget(ttid)
