"""Spans in memory: what clients and nodes record, as a tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from neo.client.tracing.spans import Context, Value
from neo.node.tracing import Context as NodeContext
from neo.node.tracing import Span as NodeSpan


@dataclass(eq=False)
class Recorded:
    """``who``: the process. ``begin``, ``end``: seconds since 1970."""

    who: str
    name: str
    begin: float
    end: float | None = None
    attributes: dict[str, Value] = field(default_factory=dict)
    error: str = ""
    events: list[tuple[str, dict[str, Value]]] = field(default_factory=list)
    children: list[Recorded] = field(default_factory=list)

    def lines(self, depth: int = 0) -> Iterator[str]:
        """Return the names of this span and those below, by process and time."""
        yield f"{'  ' * depth}{self.who} {self.name}"
        for child in sorted(self.children, key=lambda span: (span.who, span.begin)):
            yield from child.lines(depth + 1)

    def find(self, who: str, name: str) -> Recorded:
        """Return the only span of this name directly below."""
        (found,) = [span for span in self.children if (span.who, span.name) == (who, name)]
        return found


class ClientSpan:
    """Implements :class:`neo.client.tracing.spans.Span`."""

    def __init__(self, book: Book, recorded: Recorded, number: int) -> None:
        self._book = book
        self.recorded = recorded
        self.context = Context(bytes(16), number.to_bytes(8, "big"), 1)

    def child(self, name: str) -> ClientSpan:
        return self._book.below(name, self.recorded)

    def set(self, name: str, value: Value) -> None:
        self.recorded.attributes[name] = value

    def event(self, name: str, attributes: dict[str, Value]) -> None:
        self.recorded.events.append((name, attributes))

    def end(self, error: str = "") -> None:
        if self.recorded.end is None:
            self.recorded.end = self._book.clock()
            self.recorded.error = error


class NodeRecorder:
    """Implements :class:`neo.node.tracing.Tracer` for one node."""

    def __init__(self, book: Book, who: str) -> None:
        self._book = book
        self._who = who

    def record(self, context: NodeContext, span: NodeSpan, epoch: float) -> None:
        parent = self._book.spans[int.from_bytes(context.span_id, "big")]
        parent.children.append(self._recorded(span, epoch))

    def _recorded(self, span: NodeSpan, epoch: float) -> Recorded:
        assert span.end is not None, span.name
        times = span.begin + epoch, span.end + epoch
        children = [self._recorded(child, epoch) for child in span.children]
        return Recorded(
            self._who, span.name, *times, dict(span.attributes), span.error, children=children
        )


class Book:
    """All spans. ``clock``: seconds since 1970. Implements :class:`neo.client.tracing.spans.Tracer`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        #: Whether the application has a current span.
        self.active = True
        self.roots: list[Recorded] = []
        #: Spans of clients, by their ids.
        self.spans: dict[int, Recorded] = {}
        self._numbers = count(1)

    def start(self, name: str) -> ClientSpan | None:
        return self.below(name, None) if self.active else None

    def below(self, name: str, parent: Recorded | None) -> ClientSpan:
        number, recorded = next(self._numbers), Recorded("client", name, self.clock())
        self.spans[number] = recorded
        (self.roots if parent is None else parent.children).append(recorded)
        return ClientSpan(self, recorded, number)
