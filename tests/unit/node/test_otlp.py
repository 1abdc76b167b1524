"""Spans on their way to a collector: what the SDK is given, and what a collector that is away costs."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from neo.node.otlp import OtlpTracer, Reporting
from neo.node.tracing import Context, Span
from tests.support.collector import running_collector
from tests.support.patience import wait_until

CONTEXT = Context(b"t" * 16, b"s" * 8, 1)


class Failing(SpanExporter):
    """Fails in both ways, in turns."""

    def __init__(self) -> None:
        self.calls = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.calls += 1
        if self.calls % 2:
            raise OSError("no route to host")
        return SpanExportResult.FAILURE


def test_a_collector_that_is_away_is_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    failing = Failing()
    reporting = Reporting(failing, "http://collector")
    with caplog.at_level(logging.WARNING):
        assert [reporting.export([]) for _ in range(4)] == [SpanExportResult.FAILURE] * 4
    assert failing.calls == 4
    assert [record.getMessage() for record in caplog.records] == [
        "spans are lost, since the collector http://collector did not take them: no route to host"
    ]


def test_a_span_and_its_children_get_to_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last spans are sent when the node ends. The operator's environment wins."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop-storage")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    span = Span("vote", 10.0, {"neo.stores": 2})
    span.add(Span("wait for disk", 10.25))
    span.finish(10.5)
    span.error = "refused"
    with running_collector() as collector:
        tracer = OtlpTracer(f"{collector.url}/v1/traces", "shop", "storage", "storage1")
        tracer.record(CONTEXT, span, 1_800_000_000.0)
        tracer.record(CONTEXT._replace(flags=0), span, 1_800_000_000.0)
        tracer.close()
        wait_until(lambda: collector.spans, "the spans")
        child, vote = collector.spans
    assert vote.who == ("shop-storage", "storage1")
    assert (vote.trace_id, vote.parent) == (b"t" * 16, b"s" * 8), "what is not sampled is not sent"
    assert child.parent == vote.span_id and child.name == "wait for disk"
    assert (vote.begin, vote.end) == (1_800_000_010_000_000_000, 1_800_000_010_500_000_000)
    assert vote.attributes == {"neo.stores": 2}
