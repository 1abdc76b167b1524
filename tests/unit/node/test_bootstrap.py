"""Finding the primary master: redirection, refusal, loss, and what the operator reads meanwhile."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from neo.node.bootstrap import (
    ANSWER_SECONDS,
    ANSWER_SECONDS_OF_SEVERAL,
    SILENCE_SECONDS,
    find_primary,
)
from neo.node.core import Core
from neo.node.handler import Handler
from neo.node.liveness import LOOK_SECONDS
from neo.node.peer import Peer
from neo.node.task import Cancelled, Task
from neo.protocol.enums import NodeType
from neo.protocol.packets import (
    AcceptIdentification,
    Error,
    NotPrimaryMaster,
    Ping,
    Pong,
    RequestIdentification,
)
from neo.topology.masters import FIRST_RETRY_SECONDS, RETRY_SECONDS, MasterCandidates
from tests.support.remote import FakeHost, Remote

ONE, TWO = ("127.0.0.1", 1), ("127.0.0.1", 2)
REQUEST = RequestIdentification(NodeType.STORAGE, None, ("127.0.0.1", 9), "c", None, {})
ACCEPT = AcceptIdentification(NodeType.MASTER, -5, 7)


class Seeker:
    """A core that looks for the primary."""

    def __init__(self, *masters: tuple[str, int], insist: bool = True) -> None:
        self.host = FakeHost()
        self.core = Core(self.host)
        self.host.core = self.core
        self.handler = Handler()
        self.losses: list[str] = []
        self.handler.lost = lambda peer, reason: self.losses.append(reason)  # type: ignore[method-assign]
        self.masters = MasterCandidates(masters or [ONE, TWO])
        self.task: Task[Any] = self.core.spawn(
            find_primary(self.core, self.masters, REQUEST, self.handler, insist=insist)
        )
        self.core.flush()

    @property
    def dialed(self) -> list[tuple[str, int]]:
        return [remote.peer.address for remote in self.host.dialed if remote.peer.address]

    def master(self) -> Remote:
        """The master that was dialed last."""
        return self.host.dialed[-1]

    def answer(self, message: Any) -> None:
        self.master().answer(self.master().take(RequestIdentification), message)
        self.core.flush()

    def answer_ping(self) -> None:
        if self.master().has(Ping):
            self.master().answer(self.master().take(Ping), Pong())

    def pause(self) -> None:
        self.host.advance(RETRY_SECONDS / len(self.masters.addresses))


def told(caplog: pytest.LogCaptureFixture, level: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == level]


@pytest.fixture
def seeker() -> Seeker:
    return Seeker()


def test_the_first_master_accepts(seeker: Seeker) -> None:
    seeker.answer(ACCEPT)
    peer, accepted = seeker.task.result()
    assert isinstance(peer, Peer)
    assert (peer.address, accepted) == (ONE, ACCEPT)
    assert peer.handler is seeker.handler
    assert not peer.closed


def test_a_secondary_points_to_the_primary(seeker: Seeker) -> None:
    three = ("127.0.0.1", 3)
    seeker.master().send(NotPrimaryMaster(1, [ONE, three]))
    assert seeker.host.dialed[0].closed
    assert seeker.dialed == [ONE, three]  # at once
    seeker.answer(ACCEPT)
    assert seeker.task.result()[0].address == three


def test_a_secondary_that_knows_no_primary(seeker: Seeker) -> None:
    seeker.master().send(NotPrimaryMaster(None, [ONE, TWO]))
    assert seeker.dialed == [ONE]
    seeker.pause()
    assert seeker.dialed == [ONE, TWO]


def test_secondaries_that_point_to_each_other_are_asked_in_peace(seeker: Seeker) -> None:
    for _ in range(10):
        address = seeker.dialed[-1]
        seeker.master().send(NotPrimaryMaster(0, [TWO if address == ONE else ONE]))
    assert len(seeker.dialed) == 2
    for _ in range(10):
        seeker.pause()
        for _ in range(3):
            remote = seeker.master()
            if not remote.closed:
                remote.send(NotPrimaryMaster(0, [TWO if remote.peer.address == ONE else ONE]))
    assert len(seeker.dialed) <= 2 + 2 * 10


def test_a_master_that_is_not_ready_is_asked_again(
    seeker: Seeker, caplog: pytest.LogCaptureFixture
) -> None:
    for address in (ONE, TWO, ONE, TWO):
        assert seeker.dialed[-1] == address
        seeker.answer(Error(2, "Retry Later"))
        assert seeker.master().closed
        assert not seeker.task.done
        seeker.pause()
    assert told(caplog, "WARNING") == [
        "master 127.0.0.1:1: it refused: NOT_READY: Retry Later",
        "master 127.0.0.1:2: it refused: NOT_READY: Retry Later",
    ]


def test_a_master_that_does_not_answer_is_given_up(
    seeker: Seeker, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 4.38."""
    seeker.host.advance(ANSWER_SECONDS_OF_SEVERAL)
    assert seeker.master().closed
    assert "ended: it does not answer" in caplog.text
    seeker.pause()
    assert seeker.dialed == [ONE, TWO]


@pytest.mark.parametrize(
    ("masters", "insist"),
    [((ONE,), True), ((), False)],
    ids=["the only master", "the master of a clone, answered when others have stored its id"],
)
def test_a_master_is_given_more_time(masters: tuple[tuple[str, int], ...], insist: bool) -> None:
    seeker = Seeker(*masters, insist=insist)
    seeker.host.advance(ANSWER_SECONDS * 0.9)
    assert not seeker.master().closed
    seeker.host.advance(ANSWER_SECONDS * 0.1)
    assert seeker.master().closed


def test_the_only_master_is_not_given_up_when_it_has_accepted() -> None:
    """Specification 4.39."""
    seeker = Seeker(ONE)
    seeker.answer(ACCEPT)
    seeker.host.advance(10 * ANSWER_SECONDS)
    assert not seeker.master().closed


def test_a_primary_that_falls_silent_is_left_for_another(seeker: Seeker) -> None:
    """Specification 4.39."""
    seeker.answer(ACCEPT)
    for _ in range(20):
        seeker.answer_ping()
        seeker.host.advance(LOOK_SECONDS)
    assert not seeker.losses
    seeker.host.advance(SILENCE_SECONDS + 2 * LOOK_SECONDS)
    assert seeker.losses == ["it does not answer, and another master may be primary"]


def test_who_stood_still_itself_hears_first_what_came_meanwhile(seeker: Seeker) -> None:
    seeker.answer(ACCEPT)
    seeker.host.elapsed += 100  # its timers ring late
    seeker.host.advance(LOOK_SECONDS)
    assert not seeker.losses
    seeker.answer_ping()
    seeker.host.advance(SILENCE_SECONDS)
    assert not seeker.losses


def test_nobody_is_dialed_before_the_pause_is_over(seeker: Seeker) -> None:
    seeker.master().lose("cannot connect to 127.0.0.1:1: Connection refused")
    seeker.host.advance(FIRST_RETRY_SECONDS * 0.9)
    assert seeker.dialed == [ONE]
    seeker.host.advance(FIRST_RETRY_SECONDS * 0.1)
    assert seeker.dialed == [ONE, TWO]


def test_pauses_grow_until_each_master_is_dialed_once_a_second(seeker: Seeker) -> None:
    """Specification 4.35."""
    for _ in range(10):
        seeker.master().lose("cannot connect: Connection refused")
        seeker.pause()
    count = len(seeker.dialed)
    for _ in range(100):
        if not seeker.master().closed:
            seeker.master().lose("cannot connect: Connection refused")
        seeker.host.advance(0.1)
    assert count + 15 <= len(seeker.dialed) <= count + 2 * 10


def test_a_reason_is_logged_once_and_a_new_one_again(
    seeker: Seeker, caplog: pytest.LogCaptureFixture
) -> None:
    for reason in ["Connection refused"] * 6 + ["No route to host"] * 2:
        seeker.master().lose(reason)
        seeker.pause()
    warnings = told(caplog, "WARNING")
    assert len(warnings) == 4
    assert sum("Connection refused" in warning for warning in warnings) == 2


def test_an_address_that_stays_wrong_does_not_fill_the_log(
    seeker: Seeker, caplog: pytest.LogCaptureFixture
) -> None:
    """A web server at both addresses, for ten minutes."""
    caplog.set_level(logging.INFO)
    for _ in range(1200):
        seeker.master().peer.received(b"HTTP/1.1 400 Bad Request")
        seeker.pause()
    errors = told(caplog, "ERROR")
    reason = "broke the protocol: the peer is not a NEO node, it began with b'HTTP/1'"
    assert errors[0] == f"unidentified peer (127.0.0.1:1) {reason}"
    assert errors[2] == f"unidentified peer (127.0.0.1:1) {reason} (59 times more in the last 60 s)"
    assert len(errors) == 2 * 10
    assert len(caplog.records) == 3 * len(errors)


@pytest.mark.parametrize(
    ("accept", "reason"),
    [
        (AcceptIdentification(NodeType.STORAGE, 1, 7), "it is not a master"),
        (AcceptIdentification(NodeType.MASTER, -5, None), "it is not a master"),
        (Pong(), "AcceptIdentification expected, got Pong"),
    ],
)
def test_who_answers_something_else_is_no_master(
    seeker: Seeker, caplog: pytest.LogCaptureFixture, accept: Any, reason: str
) -> None:
    """Specification 3.8."""
    seeker.answer(accept)
    assert seeker.master().closed
    assert reason in caplog.text
    seeker.pause()
    assert seeker.dialed == [ONE, TWO]


def test_giving_up_the_search(seeker: Seeker) -> None:
    seeker.task.cancel()
    with pytest.raises(Cancelled):
        seeker.task.result()
    seeker.pause()
    assert seeker.dialed == [ONE]
