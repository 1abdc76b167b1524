"""What a node measures, the log of slow requests, and its pages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from http import HTTPStatus
from threading import Thread

import pytest
from prometheus_client.parser import text_string_to_metric_families

from neo.node.core import Core
from neo.node.figures import COMMON, Sample
from neo.node.measured_peer import MeasuredPeer
from neo.node.meter import BOUNDS, Histogram, Meter
from neo.node.metrics import exposition
from neo.node.pages import NodePages
from neo.node.peer import Peer
from neo.protocol.packets import (
    AnswerFinalTID,
    AskFinalTID,
    AskLastTransaction,
    AskNewOIDs,
    Ping,
)
from tests.support.remote import FakeHost, Remote
from tests.unit.node.serving import TID, Server


@pytest.fixture
def measured(host: FakeHost) -> Server:
    """A core that measures, and logs requests of two seconds."""
    host.meter = Meter(host.monotonic, slow=2.0)
    core = Server(host)
    host.core = core
    core.start()
    return core


def values(samples: list[Sample]) -> dict[tuple[str, ...], float]:
    """Return the numbers of the samples by name and labels."""
    return {
        (sample.figure.name, *sample.labels): sample.value
        for sample in samples
        if not isinstance(sample.value, Histogram)
    }


def test_a_request_is_measured_until_its_answer(measured: Server, host: FakeHost) -> None:
    remote = Remote.connect(measured)
    futures = [remote.ask(message) for message in (AskLastTransaction(), AskNewOIDs(1), AskFinalTID(TID))]
    assert [future.done for future in futures] == [True, True, False]
    assert values(list(measured.samples()))["neo_requests_open",] == 1
    host.advance(0.3)
    remote.peer.answer(measured.handler.open[0], AnswerFinalTID(TID))
    measured.flush()
    assert values(list(measured.samples()))["neo_requests_open",] == 0
    assert host.meter is not None
    durations = {kind: histogram for kind, histogram in host.meter.durations.items() if kind is not Ping}
    assert durations.keys() == {AskLastTransaction, AskNewOIDs, AskFinalTID}, "a refusal counts, too"
    late = durations[AskFinalTID]
    assert late.sum == pytest.approx(0.3)
    assert late.counts[BOUNDS.index(0.5)] == 1 == sum(late.counts)


def test_what_a_lost_peer_asked_is_open_no_more(measured: Server) -> None:
    remote = Remote.connect(measured)
    remote.ask(AskFinalTID(TID))
    remote.lose()
    assert values(list(measured.samples()))["neo_requests_open",] == 0
    remote.peer.answer(measured.handler.open[0], AnswerFinalTID(TID))


def test_slow_requests_are_a_line_each_minute(
    measured: Server, host: FakeHost, caplog: pytest.LogCaptureFixture
) -> None:
    remote = Remote.connect(measured)
    for seconds in (1.9, 2.5, 2.5):
        remote.ask(AskFinalTID(TID))
        host.advance(seconds)
        remote.peer.answer(measured.handler.open.pop(), AnswerFinalTID(TID))
    (line,) = [record.getMessage() for record in caplog.records if record.name == "neo.slow"]
    assert line == (
        "AskFinalTID of unidentified peer (127.0.0.1:9999) of transaction 0000000000000000 took 2.500 s:"
        " 0.000 s of work, then it waited 2.500 s; most of it for its steps or other nodes"
    )


def test_nothing_is_measured_when_nobody_wants_it(core: Server) -> None:
    remote = Remote.connect(core)
    assert type(remote.peer) is Peer
    remote.ask(AskLastTransaction())
    assert "neo_request_seconds" not in {sample.figure.name for sample in core.samples()}


def test_connections_and_queues(measured: Server) -> None:
    stranger, client = Remote.connect(measured), Remote.connect(measured)
    assert isinstance(stranger.peer, MeasuredPeer)
    stranger.peer.put_off(lambda: None)
    client.paused = True
    client.unsent = 7000
    found = values(list(measured.samples()))
    assert found["neo_connections", "unidentified"] == 2 and found["neo_connections", "client"] == 0
    assert found["neo_messages_waiting",] == 1
    assert found["neo_send_queue_bytes",] == 7000
    assert {sample.figure for sample in measured.samples()} <= set(COMMON)


def test_histograms_are_cumulative_in_the_exposition() -> None:
    histogram = Histogram()
    for seconds in (0.0001, 0.3, 0.4, 100.0):
        histogram.observe(seconds)
    requests = next(figure for figure in COMMON if figure.name == "neo_request_seconds")
    text = exposition([Sample(requests, histogram, ("Ping",))]).decode()
    found = {
        sample.labels.get("le", sample.name): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if family.name == "neo_request_seconds"
    }
    assert [found[bound] for bound in ("0.0005", "0.25", "0.5", "30.0", "+Inf")] == [1, 1, 3, 3, 4]
    assert found["neo_request_seconds_count"] == 4
    assert found["neo_request_seconds_sum"] == pytest.approx(100.7001)


# -- pages -----------------------------------------------------------------------------------------


class Owner:
    """A host on whose thread everything runs at once."""

    def __init__(self, core: Core | None) -> None:
        self.core = core
        self.waits = "the database is away"

    def from_thread(self, callback: Callable[..., None], *args: object) -> None:
        thread = Thread(target=callback, args=args)
        thread.start()
        thread.join()


def test_pages_of_a_node(core: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = Owner(core)
    pages = NodePages(owner)
    assert pages.page("/live")[::2] == (HTTPStatus.OK, b"live\n")
    assert pages.page("/ready")[::2] == (HTTPStatus.OK, b"this node works\n")
    assert b"neo_node_ready 1.0\n" in pages.page("/metrics").body
    assert (pages.page("/").status, pages.page("/other").status) == (200, 404)
    owner.core = None
    assert pages.page("/ready")[::2] == (HTTPStatus.SERVICE_UNAVAILABLE, b"the database is away\n")
    assert pages.page("/live").status == 200
    assert pages.page("/metrics").status == 200
    monkeypatch.setitem(sys.modules, "neo.node.metrics", None)
    assert pages.page("/metrics").status == HTTPStatus.NOT_IMPLEMENTED


def test_a_bug_in_a_figure_is_told_to_the_page_and_not_to_the_node(
    core: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "samples", lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        NodePages(Owner(core)).page("/metrics")
    assert not core.stopped
