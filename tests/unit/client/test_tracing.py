"""The option ``tracing``: how it is given, what it needs, and that nothing is imported without it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import StatusCode

from neo.client.errors import ConfigurationError
from neo.client.tracing.open_telemetry import OpenTelemetrySpan, open_tracer
from neo.client.uri import resolve
from neo.embedded import open as open_folder
from tests.support.patience import PATIENCE_SECONDS

#: A commit and a load without tracing, and the programs of nodes.
PROGRAM = """
import sys
from ZODB import DB
import neo.client, neo.embedded, neo.master.__main__, neo.storage.__main__
db = DB(neo.embedded.open(sys.argv[1], cache_size=0))
with db.transaction() as connection:
    connection.root()["a"] = 1
db.close()
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
try:
    sys.modules["opentelemetry"] = None
    neo.embedded.open(sys.argv[1], tracing=True)
except neo.client.errors.ConfigurationError as e:
    print(e)
"""


def test_nothing_is_imported_without_the_option_and_what_it_needs_is_told(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "data")],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert not done.returncode, done.stderr
    assert done.stdout.startswith("option 'tracing' needs OpenTelemetry (")
    assert done.stdout.endswith("): pip install 'zodb-neo[tracing]'\n")


def test_the_option_is_one_of_uris() -> None:
    factory, others = resolve("neo://x@127.0.0.1:1?tracing=true")
    assert factory.args[0]["tracing"] is True and not others  # type: ignore[attr-defined]
    with pytest.raises(ConfigurationError, match="tracing"):
        resolve("neo://x@127.0.0.1:1?tracing=perhaps")


def test_spans_of_the_application_decide(tmp_path: Path) -> None:
    tracer = open_tracer()
    assert tracer.start("neo.commit") is None, "there is no current span"
    with TracerProvider(sampler=ALWAYS_OFF).get_tracer("app").start_as_current_span("request"):
        assert tracer.start("neo.commit") is None, "it is not recorded"


def test_a_span_of_open_telemetry() -> None:
    app = TracerProvider().get_tracer("app")
    made = app.start_span("neo.commit")
    span = OpenTelemetrySpan(app, made)
    context, expected = span.context, made.get_span_context()
    assert context is not None and context.flags & 1, "sampled"
    assert int.from_bytes(context.trace_id, "big") == expected.trace_id
    assert int.from_bytes(context.span_id, "big") == expected.span_id
    child = span.child("store")
    assert isinstance(child, OpenTelemetrySpan) and isinstance(child._span, ReadableSpan)
    child.set("neo.stores", 3)
    child.event("conflict", {"neo.oid": "00"})
    child.end("ConflictError: no")
    child.end()
    found = child._span
    assert found.parent is not None and found.parent.span_id == expected.span_id
    assert found.attributes == {"neo.stores": 3} and [e.name for e in found.events] == ["conflict"]
    assert (found.status.status_code, found.status.description) == (StatusCode.ERROR, "ConflictError: no")
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_an_embedded_database_traces_as_well(tmp_path: Path) -> None:
    storage = open_folder(tmp_path / "data", tracing=True)
    storage.close()
