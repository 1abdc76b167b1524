"""What traces what a client does, as the client sees it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

Value = str | int | float | bool


class Context(NamedTuple):
    """A span, as in ``traceparent`` of W3C Trace Context."""

    trace_id: bytes
    span_id: bytes
    flags: int


class Span(Protocol):
    """A part of the time of a call. Each method is called by the thread that makes the call."""

    @property
    def context(self) -> Context | None:
        """What nodes need to add spans below this one; None if the trace is not sampled."""

    def child(self, name: str) -> Span: ...

    def set(self, name: str, value: Value) -> None: ...

    def event(self, name: str, attributes: dict[str, Value]) -> None: ...

    def end(self, error: str = "") -> None:
        """End the span; ``error``: why it failed. Idempotent."""


class Tracer(Protocol):
    def start(self, name: str) -> Span | None:
        """Begin a span below the current one of the application; None if that is not recorded."""


@contextmanager
def within(span: Span) -> Iterator[None]:
    """End a span with a block, and with the error that the block raises."""
    try:
        yield
    except BaseException as e:
        span.end(error_text(e))
        raise
    span.end()


def error_text(error: BaseException) -> str:
    """Return the name and the text of an error."""
    return f"{type(error).__name__}: {error}"
