"""One commit is one trace through processes; the example of docs/monitoring.md is the application."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.collector import Collector, Received, running_collector
from tests.support.patience import PATIENCE_SECONDS, wait_until

PAGE = (Path(__file__).parents[2] / "docs" / "monitoring.md").read_text("utf-8")
#: What each process records of a commit; the child spans of a wait may be there or not.
EXPECTED = {
    "shop": {"order", "neo.commit", "begin", "store", "vote", "finish"},
    "neo-master": {"begin", "finish", "lock S1", "lock S2"},
    "neo-storage": {"store", "vote", "lock", "unlock"},
}


def example() -> str:
    """Return the program of the page."""
    (found,) = re.findall(r"## Traces\n.*?```python\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


def order(collector: Collector) -> list[Received]:
    """Return the spans of the trace that the application began with the name "order"."""
    ids = {span.trace_id for span in collector.spans if span.name == "order"}
    return [span for span in collector.spans if span.trace_id in ids]


def test_a_commit_is_one_trace_through_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    with ExitStack() as stack:
        collector = stack.enter_context(running_collector())
        settings = {"tracing": collector.url}
        cluster = stack.enter_context(
            Cluster(storages=2, replicas=1, name="shop", settings=settings)
        )
        program = example().replace("10.0.0.1:2051", cluster.simple.masters)
        environ = os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SERVICE_NAME": "shop"}
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environ,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert not done.returncode, done.stderr

        def complete() -> bool:
            found = defaultdict(set)
            for span in order(collector):
                found[span.who].add(span.name)
            nodes = [who for who in found if who[0] == "neo-storage"]
            return len(nodes) == 2 and all(EXPECTED[who[0]] <= names for who, names in found.items())

        wait_until(complete, lambda: f"all spans: {sorted(s[:2] for s in order(collector))}")
    spans = order(collector)
    known = {span.span_id for span in spans}
    roots = [span.name for span in spans if not span.parent]
    assert roots == ["order"] and all(span.parent in known for span in spans if span.parent)
    assert all(span.begin <= span.end for span in spans)
    assert any(span.attributes.get("neo.sync_seconds", 0) > 0 for span in spans), "a disk is synced"
    (commit,) = [span for span in spans if span.name == "neo.commit"]
    assert commit.attributes["neo.tid"] > commit.attributes["neo.ttid"]
