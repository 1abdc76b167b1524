"""Sends spans to an OpenTelemetry collector, by the SDK of OpenTelemetry: OTLP over HTTP.

The SDK's thread sends them, in batches, from a bounded queue (2048 spans by default); what does not fit
is dropped. The SDK's environment variables are obeyed, such as OTEL_EXPORTER_OTLP_HEADERS, OTEL_BSP_… and
OTEL_TRACES_SAMPLER. The collector's address is that of the setting.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from neo import __version__
from neo.node.log_throttle import LogThrottle
from neo.node.tracing import Context, Span

logger = logging.getLogger("neo.node")

#: A node that ends waits so long, at most, until its last spans are sent.
CLOSE_SECONDS = 2.0


class Reporting(SpanExporter):
    """An exporter whose failures are a line in the node's log, once a minute."""

    def __init__(self, exporter: SpanExporter, url: str) -> None:
        self._exporter = exporter
        self._url = url
        self._throttle = LogThrottle(time.monotonic)
        # The SDK logs each failure, with a traceback.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
        except Exception as e:  # noqa: BLE001 - whatever it is, it must not end the thread of the SDK
            self._failed(str(e))
            return SpanExportResult.FAILURE
        if result is not SpanExportResult.SUCCESS:
            self._failed("it could not be reached, or refused them")
        return result

    def _failed(self, why: str) -> None:
        if (more := self._throttle.admit("export")) is not None:
            logger.warning(
                "spans are lost, since the collector %s did not take them: %s%s", self._url, why, more
            )

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class OtlpTracer:
    """Implements :class:`neo.node.tracing.Tracer`. ``url``: of the collector. ``instance``: what tells
    this node from others of its role."""

    def __init__(self, url: str, cluster: str, role: str, instance: str) -> None:
        own = {
            "service.name": f"neo-{role}",
            "service.namespace": cluster,
            "service.instance.id": instance,
            "service.version": __version__,
        }
        # The operator's OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win.
        resource = Resource.create().merge(Resource(own)).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        exporter = Reporting(OTLPSpanExporter(endpoint=url), url)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("neo", __version__)

    def record(self, context: Context, span: Span, epoch: float) -> None:
        remote = trace.SpanContext(
            int.from_bytes(context.trace_id, "big"),
            int.from_bytes(context.span_id, "big"),
            is_remote=True,
            trace_flags=trace.TraceFlags(context.flags),
        )
        below = trace.set_span_in_context(trace.NonRecordingSpan(remote), contexts.Context())
        self._record(below, span, epoch, trace.SpanKind.SERVER)

    def _record(
        self, below: contexts.Context, span: Span, epoch: float, kind: trace.SpanKind
    ) -> None:
        made = self._tracer.start_span(
            span.name, below, kind, span.attributes, start_time=_nanoseconds(span.begin + epoch)
        )
        if span.error:
            made.set_status(trace.Status(trace.StatusCode.ERROR, span.error))
        inside = trace.set_span_in_context(made, below)
        for child in span.children:
            self._record(inside, child, epoch, trace.SpanKind.INTERNAL)
        made.end(_nanoseconds((span.begin if span.end is None else span.end) + epoch))

    def close(self) -> None:
        """Send what is queued, in a thread for which the process waits CLOSE_SECONDS at most."""

        def flush() -> None:
            sending = threading.Thread(target=self._provider.shutdown, daemon=True)
            sending.start()
            sending.join(CLOSE_SECONDS)

        threading.Thread(target=flush, name="traces").start()


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
