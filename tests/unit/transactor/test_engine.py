"""The engine without faults: packets per decision, fairness, suspicion."""

from __future__ import annotations

import pytest

from neo.transactor.messages import Ack, Data, Decide, Entries, Nack, Propose, Refusal, Sid, Wish
from tests.unit.transactor.calm import TIMING, Calm


@pytest.mark.parametrize("count", [2, 3, 5, 7])
def test_the_quiet_case_costs_three_packets_per_peer(count: int) -> None:
    """Specification 20.3."""
    world = Calm(count)
    world.decide(0)
    world.packets = 0
    world.counted.clear()
    world.decide(0)
    peers = count - 1
    assert world.packets == 3 * peers
    assert world.counted == {"Data": peers, "Propose": peers, "Ack": peers, "Decide": peers}


def test_a_post_at_another_node_than_the_last_origin_costs_two_more() -> None:
    world = Calm(3)
    world.decide(0)
    world.counted.clear()
    world.decide(1)
    assert world.counted == {"Data": 2, "Wish": 1, "Propose": 2, "Ack": 2, "Decide": 2}
    world.counted.clear()
    world.decide(1)
    assert "Wish" not in world.counted


def test_idle_time_does_not_count_for_the_timeout_of_a_round() -> None:
    world = Calm(3)
    world.decide(0)
    world.ticks(10 * TIMING.round_timeout)
    world.counted.clear()
    world.decide(2)
    assert "Estimate" not in world.counted and "Nack" not in world.counted


def test_one_of_two_concurrent_posts_wins_and_the_other_may_be_posted_again() -> None:
    """Specification 20.11."""
    world = Calm(3)
    first, second = world.write(1, b"one"), world.write(2, b"other")
    assert isinstance(first, Sid) and isinstance(second, Sid)
    world.pump()
    world.ticks(2)
    last = world.engine(0).last
    assert last in (first, second) and world.engine(0).tid == 2
    loser = 2 if last == first else 1
    mine = first if loser == 1 else second
    world.counted.clear()
    world.wanted.add((2, mine))
    assert world.engine(loser).repost(2, mine) == mine
    world.pump()
    assert world.engine(0).last == mine and "Data" not in world.counted
    assert world.engine(loser).repost(3, mine) == Refusal.DONE


def test_a_node_that_posts_without_pause_lets_others_go_first() -> None:
    """Specification 20.14."""
    world = Calm(3)
    world.decide(0)
    winners = []
    for tid in range(2, 12):
        world.write(0, b"again and again")
        engine = world.engine(1)
        if engine.mine is None:
            world.write(1, b"me too")
        else:
            world.wanted.add((tid, engine.mine.sid))
            engine.repost(tid, engine.mine.sid)
        for _ in range(20):
            world.pump()
            if world.engine(0).tid > tid and world.engine(1).tid > tid:
                break
            world.ticks(1)
        winners.append(world.engine(0).last.node)
    assert winners.count(1) >= 4 and winners.count(0) >= 4


def test_a_silent_coordinator_is_gone_around_and_hears_of_it_later() -> None:
    """Specification 20.12, 20.13."""
    world = Calm(3)
    world.decide(0)
    world.unheard = {0}
    world.ticks(TIMING.silence + 2)
    assert world.engine(1).detector.suspected == {0}
    world.decide(1)
    assert world.engine(2).tid == 3 and world.engine(0).tid == 2
    world.unheard = set()
    world.ticks(2 * TIMING.heartbeat + 2 * TIMING.resend)
    assert world.engine(0).tid == 3
    assert world.engine(1).detector.suspected == set()


def test_a_minority_waits_and_says_so() -> None:
    world = Calm(3)
    world.unheard = {1, 2}
    world.ticks(TIMING.silence + 2)
    assert not world.engine(0).majority_alive
    mine = world.write(0)
    world.ticks(200)
    assert world.engine(0).tid == 1 and world.engine(0).started
    world.unheard = set()
    world.ticks(200)
    assert world.engine(1).last == mine


def test_the_timeout_of_a_peer_grows_after_a_wrong_suspicion() -> None:
    """Specification 20.13."""
    detector = Calm(2).engine(0).detector
    detector.heard(1, 0)
    for now in range(1000):
        detector.tick(now)
        if 1 in detector.suspected:
            detector.heard(1, now)
    # Suspected after 61, 93, 141… ticks: each time later.
    assert detector.suspected == set()
    detector.tick(1000 + TIMING.silence + 1)
    assert detector.suspected == set()


def test_nothing_is_promised_before_it_is_on_disk() -> None:
    """Specification 20.8."""
    world = Calm(3)
    world.engine(0).take()
    world.write(0)
    batch = world.engine(0).take()
    assert [type(m) for _, m in batch.sends] == [Data, Data, Propose, Propose]
    assert batch.asides == []
    other = world.engine(1)
    for to, message in batch.sends:
        if to == 1:
            other.receive(0, message)
    batch = other.take()
    assert [type(m) for _, m in batch.sends] == [Ack] and batch.asides == []
    assert [type(r).__name__ for r in batch.records] == ["Held", "Vote"]


def test_only_what_is_held_is_acknowledged() -> None:
    """The data of a decision is asked for (specification 20.3, 20.15)."""
    engine = Calm(3).engine(1)
    engine.receive(0, Propose(1, 0, Sid(0, 9)))
    assert engine.take().sends == []
    engine.validate()
    engine.receive(0, Decide(1, Sid(0, 9)))
    assert [type(m).__name__ for _, m in engine.take().asides] == ["Ask"]


def test_a_message_that_overtook_a_decision_is_not_lost() -> None:
    world = Calm(3)
    sid = world.write(0)
    world.pump()
    assert isinstance(sid, Sid)
    engine = world.engine(1)
    second = Sid(0, 99)
    engine.receive(0, Propose(3, 0, second))
    assert engine.lags
    engine.take()


def test_late_messages_are_answered_with_the_decision() -> None:
    """Specification 20.10."""
    world = Calm(3)
    sid = world.decide(0)
    engine = world.engine(0)
    engine.take()
    engine.receive(2, Wish(1, 0, Sid(2, 1)))
    assert engine.take().asides == [(2, Decide(1, sid))]
    world.decide(0)
    engine.receive(2, Nack(1, 4))
    assert engine.take().asides == [(2, engine.status())]


def test_entries_are_taken_in_order_only() -> None:
    world = Calm(3)
    sids = [world.decide(0, b"%d" % n) for n in range(3)]
    specs = tuple(world.nodes[0].disk.entries)
    fresh = Calm(3).engine(1)
    genesis = fresh.genesis.encode()
    fresh.receive(0, Entries(2, specs[1:], genesis, 4))
    assert fresh.tid == 1
    fresh.receive(0, Entries(1, specs[:2], genesis, 4))
    assert fresh.tid == 3 and fresh.last == sids[1]
