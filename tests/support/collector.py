"""An OpenTelemetry collector that keeps what it gets: OTLP over HTTP, on loopback."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Received(NamedTuple):
    """A span. ``who``: ``service.name``, and ``service.instance.id`` if there is one. ``parent``: empty
    for a root."""

    who: tuple[str, str]
    name: str
    trace_id: bytes
    span_id: bytes
    parent: bytes
    begin: int
    end: int
    attributes: dict[str, Any]


class Collector:
    def __init__(self) -> None:
        self.spans: list[Received] = []
        spans = self.spans

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                spans.extend(list(_decode(body)))  # at once
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def serve(self) -> None:
        self._server.serve_forever(0.05)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _decode(body: bytes) -> Iterator[Received]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        own = _attributes(resource.resource.attributes)
        who = own["service.name"], own.get("service.instance.id", "")
        for scope in resource.scope_spans:
            for span in scope.spans:
                ids = span.trace_id, span.span_id, span.parent_span_id
                times = span.start_time_unix_nano, span.end_time_unix_nano
                yield Received(who, span.name, *ids, *times, _attributes(span.attributes))


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


@contextmanager
def running_collector() -> Iterator[Collector]:
    """Run a collector in a thread."""
    collector = Collector()
    thread = Thread(target=collector.serve)
    thread.start()
    try:
        yield collector
    finally:
        collector.close()
        thread.join()
