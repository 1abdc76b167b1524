"""Connections between masters: who dials, what is sent, and what is refused (no sockets)."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from neo.master.election.links import WINDOW_BYTES, MasterLink, MasterLinks
from neo.master.election.log import genesis_of
from neo.node.core import Core
from neo.node.task import Future
from neo.protocol.enums import ErrorCode, NodeType
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    AcceptIdentification,
    Address,
    NotifyFeatures,
    NotifyLog,
    NotifyLogState,
    Ping,
    Pong,
    RequestIdentification,
)
from tests.support.remote import FakeHost, Remote, error_of
from tests.unit.master.masters import PORT, Masters

ME: Address = ("127.0.0.1", PORT)
OTHER: Address = ("127.0.0.1", PORT + 1)
M1, M2 = -0x0FFFFFFF, -0x0FFFFFFE
STATE = NotifyLogState(5, False, b"", [(ME, 5)])


class LocalMember:
    cluster, bind, nid = "test", ME, M1

    def nid_of(self, name: str) -> int | None:
        return None

    def state(self) -> NotifyLogState:
        return STATE

    def log_state(self, link: MasterLink, m: NotifyLogState) -> None:
        pass

    def log_messages(self, link: MasterLink, packets: list[bytes]) -> None:
        raise AssertionError


class Links:
    """The links of one master; the test plays the other ones."""

    def __init__(self) -> None:
        self.host = FakeHost()
        self.core = self.host.core = Core(self.host)
        self.links = MasterLinks(self.core, LocalMember(), Mock())

    def tick(self, seconds: float = 0.0) -> None:
        self.host.advance(seconds)
        self.links.tick({f"127.0.0.1:{PORT + 1}"}, self.host.monotonic())
        self.core.flush()


@pytest.fixture
def links() -> Links:
    found = Links()
    found.links.want([ME, OTHER])
    return found


def established(links: Links) -> Remote:
    links.tick()
    remote = links.host.dialed[-1]
    question = remote.take(RequestIdentification)
    extra = {FEATURES: [FEATURE_OURS]}
    assert question == RequestIdentification(NodeType.MASTER, M1, ME, "test", None, extra)
    remote.answer(question, AcceptIdentification(NodeType.MASTER, M2, M1))
    assert not next(iter(links.links)).up
    remote.send(NotifyFeatures([FEATURE_OURS]))
    links.core.flush()
    assert next(iter(links.links)).up
    return remote


def test_a_master_dials_each_other_one_and_counts_on_its_features(links: Links) -> None:
    """Specification 19.3."""
    established(links)
    assert len(links.host.dialed) == 1, "it does not dial itself"


def test_a_master_that_keeps_no_log_is_not_counted_on(links: Links) -> None:
    """Specification 19.3."""
    links.tick()
    remote = links.host.dialed[-1]
    question = remote.take(RequestIdentification)
    remote.answer(question, AcceptIdentification(NodeType.MASTER, M2, M1))
    remote.send(NotifyFeatures(["oids"]))
    assert remote.closed and not next(iter(links.links)).up


def test_a_dial_is_given_up_and_repeated(links: Links) -> None:
    """Specification 19.5."""
    links.tick()
    first = links.host.dialed[-1]
    links.tick(1.1)
    assert not first.closed
    links.tick(0.2)
    assert first.closed
    links.tick()
    assert len(links.host.dialed) == 2
    links.host.dialed[-1].lose("connection refused")
    links.tick(0.35)
    assert len(links.host.dialed) == 2
    links.tick(0.1)
    assert len(links.host.dialed) == 3


def test_a_master_that_is_silent_is_dialed_anew(links: Links) -> None:
    """Specification 19.5."""
    remote = established(links)
    links.tick(2.9)
    assert not remote.closed
    links.tick(0.2)
    assert remote.closed
    links.tick()
    assert len(links.host.dialed) == 2


def test_the_state_of_the_log_is_sent_at_the_beginning_and_every_second(links: Links) -> None:
    """Specification 19.6."""
    remote = established(links)
    assert remote.take(NotifyLogState) == STATE
    links.tick(0.9)
    assert not remote.has(NotifyLogState)
    links.tick(0.2)
    assert remote.take(NotifyLogState) == STATE


def test_what_a_master_does_not_read_is_dropped(links: Links) -> None:
    """Specification 19.10."""
    remote = established(links)
    (link,) = links.links
    piece = bytes(WINDOW_BYTES // 4)
    for _ in range(8):
        link.send_log([piece])
    links.core.flush()
    assert sum(isinstance(m, NotifyLog) for m in remote.received) == 5
    remote.answer(remote.take(Ping), Pong())
    remote.received.clear()
    link.send_log([piece])
    links.core.flush()
    assert remote.take(NotifyLog).message_list == [piece]


def test_the_first_members_are_in_the_order_of_their_addresses_as_text() -> None:
    """Specification 19.1."""
    members = genesis_of([("b", 1), ("a", 9), ("a", 10)])
    assert [(member.node, member.name) for member in members.all] == [
        (0, "a:10"),
        (1, "a:9"),
        (2, "b:1"),
    ]


# -- what dials ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three() -> Masters:
    return Masters.elected()


def dial(masters: Masters, port: int, *features: str) -> tuple[Remote, Future[Any]]:
    """Dial M1 as another master."""
    remote = Remote.connect(masters.core(0))
    address = ("127.0.0.1", port)
    extra = {FEATURES: list(features)}
    return remote, remote.ask(
        RequestIdentification(NodeType.MASTER, None, address, "test", None, extra)
    )


@pytest.mark.parametrize(
    ("port", "feature", "text"),
    [(PORT, FEATURE_OURS, "address conflict"), (PORT + 9, "oids", "keep a log together")],
)
def test_a_master_without_address_or_log_is_refused(
    three: Masters, port: int, feature: str, text: str
) -> None:
    """Specification 19.4."""
    remote, asked = dial(three, port, feature)
    error = error_of(asked)
    assert error.code is ErrorCode.PROTOCOL_ERROR and text in error.message
    three.run(0.1)
    assert remote.closed


def test_a_log_with_other_first_members_is_ignored(
    three: Masters, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 19.9."""
    remote, asked = dial(three, PORT + 9, FEATURE_OURS)
    assert asked.result().node_type is NodeType.MASTER
    remote.send(NotifyLogState(77, True, b"another!", []))
    remote.send(NotifyLog([b"no message of a log"]))
    assert not remote.closed
    assert f"the log of master 127.0.0.1:{PORT + 9} was begun with other masters" in caplog.text


def test_only_so_many_masters_are_accepted(three: Masters, monkeypatch: pytest.MonkeyPatch) -> None:
    """Specification 19.4."""
    monkeypatch.setattr(
        "neo.master.election.links.LINKS_MAX", len(list(three.core(0).member.links))
    )
    _, asked = dial(three, PORT + 20, FEATURE_OURS)
    assert error_of(asked).code is ErrorCode.PROTOCOL_ERROR
