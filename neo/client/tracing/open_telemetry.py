"""Spans of OpenTelemetry. The application configures its SDK; this module needs the API only."""

from __future__ import annotations

from opentelemetry import trace

from neo import __version__
from neo.client.tracing.spans import Context, Span, Tracer, Value


class OpenTelemetrySpan:
    """Implements :class:`~neo.client.tracing.spans.Span`."""

    def __init__(self, tracer: trace.Tracer, span: trace.Span) -> None:
        self._tracer = tracer
        self._span = span

    @property
    def context(self) -> Context | None:
        context = self._span.get_span_context()
        if not context.trace_flags.sampled:
            return None
        trace_id, span_id = context.trace_id.to_bytes(16, "big"), context.span_id.to_bytes(8, "big")
        return Context(trace_id, span_id, int(context.trace_flags))

    def child(self, name: str) -> Span:
        below = trace.set_span_in_context(self._span)
        return OpenTelemetrySpan(self._tracer, self._tracer.start_span(name, below))

    def set(self, name: str, value: Value) -> None:
        self._span.set_attribute(name, value)

    def event(self, name: str, attributes: dict[str, Value]) -> None:
        self._span.add_event(name, attributes)

    def end(self, error: str = "") -> None:
        if self._span.is_recording():
            if error:
                self._span.set_status(trace.Status(trace.StatusCode.ERROR, error))
            self._span.end()


class OpenTelemetry:
    """Implements :class:`~neo.client.tracing.spans.Tracer`."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer("neo", __version__)

    def start(self, name: str) -> Span | None:
        if not trace.get_current_span().is_recording():
            return None
        kind = trace.SpanKind.CLIENT
        return OpenTelemetrySpan(self._tracer, self._tracer.start_span(name, kind=kind))


def open_tracer() -> Tracer:
    """Return the tracer of this process."""
    return OpenTelemetry()
