"""The steps of one process in the consensus on a transaction, and the times of rounds."""

from __future__ import annotations

from neo.transactor.catchup import CATCH_UP_COUNT
from neo.transactor.consensus import Process
from neo.transactor.detector import Detector
from neo.transactor.engine import Timing
from neo.transactor.messages import (
    Ack,
    Ask,
    Collect,
    Entries,
    Estimate,
    Message,
    Nack,
    Propose,
    Sid,
    Status,
    Vote,
    Wish,
)
from tests.unit.transactor.calm import TIMING, Calm

ONE, OTHER = Sid(0, 1), Sid(1, 1)


class Host:
    """What a process writes and sends, in order."""

    def __init__(self) -> None:
        self.log: list[Vote | tuple[int, Message]] = []
        self.decided: list[Sid] = []

    def persist(self, vote: Vote) -> None:
        self.log.append(vote)

    def send(self, to: int, message: Message) -> None:
        self.log.append((to, message))

    def holds(self, sid: Sid) -> bool:
        return True

    def fetch(self, sid: Sid, holder: int) -> None:
        raise AssertionError

    def decide(self, sid: Sid) -> None:
        self.decided.append(sid)

    def took(self) -> list[Vote | tuple[int, Message]]:
        log, self.log = self.log, []
        return log


def process(me: int, first: int = 0, members: tuple[int, ...] = (0, 1, 2)) -> tuple[Process, Host]:
    host = Host()
    return Process(9, me, members, first, host, None), host


def test_the_coordinator_rotates_from_the_first_one_in_the_order_of_indices() -> None:
    """Specification 20.5."""
    found, _ = process(0, first=5, members=(0, 2, 5))
    assert [found.coordinator_of(r) for r in range(5)] == [5, 0, 2, 5, 0]


def test_in_round_0_a_proposal_needs_no_estimates_and_is_on_disk_before_it_leaves() -> None:
    """The own vote counts for the majority (specification 20.6, 20.7, 20.8)."""
    found, host = process(0)
    found.want(ONE)
    assert host.took() == [Vote(9, 0, ONE, 0), (1, Propose(9, 0, ONE)), (2, Propose(9, 0, ONE))]
    found.on_wish(1, Wish(9, 0, OTHER))
    assert host.took() == [] and not host.decided, "it proposes once"
    found.on_ack(2, Ack(9, 0))
    assert host.decided == [ONE]


def test_a_later_round_collects_and_proposes_the_estimate_with_the_greatest_stamp() -> None:
    """Specification 20.6, 20.9."""
    found, host = process(2, members=(0, 1, 2, 3, 4))
    found.wanted = Sid(2, 1)
    found.on_estimate(0, Estimate(9, 2, ONE, 1))
    assert host.took() == [
        Vote(9, 2, None, -1),
        *((q, Collect(9, 2)) for q in (0, 1, 3, 4)),
    ]
    found.on_estimate(1, Estimate(9, 2, OTHER, 0))
    assert host.took() == [
        Vote(9, 2, ONE, 2),
        *((q, Propose(9, 2, ONE)) for q in (0, 1, 3, 4)),
    ]


def test_without_an_adopted_estimate_any_value_that_is_wished_for_is_proposed() -> None:
    """Specification 20.6."""
    found, host = process(1)
    found.on_estimate(0, Estimate(9, 1, ONE, -1))
    assert host.took()[-2:] == [(0, Propose(9, 1, ONE)), (2, Propose(9, 1, ONE))]


def test_a_proposal_is_adopted_on_disk_and_acknowledged() -> None:
    """Specification 20.7, 20.8."""
    found, host = process(1)
    found.on_propose(0, Propose(9, 0, ONE))
    assert host.took() == [Vote(9, 0, ONE, 0), (0, Ack(9, 0))]


def test_a_member_in_a_later_round_refuses_messages_of_earlier_ones() -> None:
    """Specification 20.9."""
    found, host = process(1)
    found.on_nack(2, Nack(9, 2))
    assert host.took() == [Vote(9, 2, None, -1), (2, Estimate(9, 2, None, -1))]
    found.on_propose(0, Propose(9, 0, ONE))
    assert host.took() == [(0, Nack(9, 2))]
    found.on_collect(0, Collect(9, 3))
    assert host.took() == [Vote(9, 3, None, -1), (0, Estimate(9, 3, None, -1))]


def test_each_round_may_take_longer_than_the_one_before() -> None:
    """Specification 20.12."""
    timeouts = [Timing().timeout_of(r) for r in range(8)]
    assert timeouts == sorted(set(timeouts))


def test_a_round_whose_coordinator_is_alive_is_given_up_after_its_time() -> None:
    """Specification 20.12."""
    world = Calm(3)
    engine = world.engine(1)
    engine.receive(0, Propose(1, 0, Sid(0, 9)))  # its data never comes
    assert engine.process is not None
    for tick in range(TIMING.round_timeout + 2):
        if tick % 10 == 0:
            engine.receive(0, Status(1, 1, False, False))
        engine.tick()
    assert engine.detector.suspected == {2} and engine.process.round == 1


def test_a_round_whose_coordinator_is_a_stranger_or_learns_is_given_up_at_once() -> None:
    """Specification 20.12."""
    for status in (Status(1, 51, False, False), Status(1, 50, True, True)):
        engine = Calm(3).engine(1)
        engine.receive(0, Status(1, 50, False, False))
        engine.receive(0, Propose(1, 0, Sid(0, 9)))
        engine.receive(0, status)
        for _ in range(TIMING.resend + 1):
            engine.tick()
        assert engine.process is not None and engine.process.round == 1


def test_the_patience_with_a_peer_has_a_bound() -> None:
    """Specification 20.13."""
    detector = Detector(10)
    detector.watch((0, 1), 0, 0)
    now = 0
    for _ in range(20):
        now += 1000
        detector.tick(now)
        assert detector.suspected == {1}
        detector.heard(1, now)
    detector.tick(now + 80)
    assert detector.suspected == set()
    detector.tick(now + 81)
    assert detector.suspected == {1}


def test_a_node_that_lags_gets_so_many_transactions_in_one_message() -> None:
    """They leave when they are durable here (specification 20.15)."""
    world = Calm(3)
    for _ in range(CATCH_UP_COUNT + 3):
        world.decide(0)
    engine = world.engine(0)
    engine.take()
    engine.receive(1, Ask(1))
    batch = engine.take()
    ((to, entries),) = batch.sends
    assert isinstance(entries, Entries) and batch.asides == []
    assert (to, entries.tid, len(entries.specs), entries.next_tid) == (1, 1, 64, engine.tid)
