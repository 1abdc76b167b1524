"""Peers of a node that traces: which spans they make, what they keep, and when they forget."""

from __future__ import annotations

import subprocess
import sys

import pytest

from neo.node.config import collector
from neo.node.meter import Meter
from neo.node.tracing import BEGUN_MAX, CHILDREN_MAX, TRACES_MAX, Context, Span, Traces
from neo.protocol.enums import NodeState, NodeType
from neo.protocol.ids import p64
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURE_TRACE,
    AnswerFinalTID,
    AskFinalTID,
    NotifyFeatures,
    NotifyTrace,
)
from neo.topology.nodes import Node
from tests.support.patience import PATIENCE_SECONDS
from tests.support.ports import free_range
from tests.support.remote import FakeHost, Remote
from tests.unit.node.serving import TID, Server


class Recorder:
    """Implements :class:`neo.node.tracing.Tracer`."""

    def __init__(self) -> None:
        self.spans: list[tuple[Context, Span, float]] = []

    def record(self, context: Context, span: Span, epoch: float) -> None:
        self.spans.append((context, span, epoch))


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def traced(host: FakeHost, recorder: Recorder) -> Server:
    """A core that traces."""
    host.meter = Meter(host.monotonic)
    host.traces = Traces(recorder, host)
    core = Server(host)
    host.core = core
    core.start()
    return core


def trace_of(ttid: bytes) -> NotifyTrace:
    return NotifyTrace(ttid, b"t" * 16, b"s" * 8, 1)


def client(core: Server) -> Remote:
    remote = Remote.connect(core)
    remote.peer.node = Node(NodeType.CLIENT, 1, None, NodeState.RUNNING)
    return remote


def test_a_request_of_a_traced_transaction_is_a_span_until_its_answer(
    traced: Server, host: FakeHost, recorder: Recorder
) -> None:
    remote = client(traced)
    remote.ask(AskFinalTID(TID))
    remote.send(trace_of(TID))
    remote.ask(AskFinalTID(TID))
    host.advance(0.3)
    for message_id in traced.handler.open:
        remote.peer.answer(message_id, AnswerFinalTID(TID))
    ((context, span, epoch),) = recorder.spans
    assert context == Context(b"t" * 16, b"s" * 8, 1)
    assert (span.name, span.error) == ("AskFinalTID", "")
    assert span.end is not None and span.end + epoch == host.time()
    assert span.end - span.begin == pytest.approx(0.3)


def test_only_clients_may_bring_a_trace(traced: Server, host: FakeHost) -> None:
    storage = Remote.connect(traced)
    storage.peer.node = Node(NodeType.STORAGE, 1, None, NodeState.RUNNING)
    for remote in (storage, Remote.connect(traced)):
        remote.send(trace_of(TID))
        assert remote.peer.closed
    assert host.traces is not None and not len(host.traces)


def test_the_feature_is_announced_with_the_others(traced: Server) -> None:
    remote = client(traced)
    remote.peer.send(NotifyFeatures([FEATURE_OURS]))
    traced.flush()
    assert remote.received == [NotifyFeatures([FEATURE_OURS, FEATURE_TRACE])]


def test_what_is_kept_is_bounded(host: FakeHost, recorder: Recorder) -> None:
    traces, owner = Traces(recorder, host), object()
    for number in range(TRACES_MAX + 1):
        traces.learn(trace_of(p64(number)), owner)
    assert len(traces) == TRACES_MAX
    assert traces.find(p64(0)) is None and traces.find(p64(TRACES_MAX)) is not None
    for number in range(BEGUN_MAX + 1):
        traces.begun(p64(number), Span("begin", 0.0))
    for number in (0, BEGUN_MAX):
        span = traces._begun.get(p64(number))
        assert (span is None) == (number == 0)
    stores = Span("store", 0.0)
    for _ in range(CHILDREN_MAX + 7):
        stores.add(Span("wait for lock", 0.0))
    assert len(stores.children) == CHILDREN_MAX
    assert stores.attributes == {"neo.children_left_out": 7}


def test_the_address_of_a_collector_is_a_url() -> None:
    assert collector("http://127.0.0.1:4318") == "http://127.0.0.1:4318/v1/traces"
    assert collector("https://x/") == "https://x/v1/traces"
    assert collector("http://x:1/own/path") == "http://x:1/own/path"
    for wrong in ("127.0.0.1:4318", "ftp://x", "http://"):
        with pytest.raises(ValueError, match="is not a URL"):
            collector(wrong)


#: A master in an environment without the extra.
PROGRAM = """
import sys
sys.modules["opentelemetry"] = None
from neo.master.__main__ import main
sys.exit(main())
"""


def test_a_node_that_cannot_trace_says_what_to_install() -> None:
    address = f"127.0.0.1:{free_range(1)}"
    arguments = ["-c", "shop", "-m", address, "-b", address, "--tracing", "http://127.0.0.1:1"]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 2
    assert "setting 'tracing' needs OpenTelemetry (" in done.stderr
    assert "): pip install 'zodb-neo[tracing]'" in done.stderr
