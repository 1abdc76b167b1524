"""The engine in calm weather: what a decision costs, whose turn it is, who is waited for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from neo.transactor.durable import Begun
from neo.transactor.engine import Engine
from neo.transactor.learner import Learner
from neo.transactor.members import Members, MembershipError, first_members
from neo.transactor.messages import (
    Ack,
    Data,
    Decide,
    Entries,
    Kind,
    Nack,
    Propose,
    Refusal,
    Sid,
    Status,
    Vote,
    Wish,
)
from neo.transactor.timing import Timing
from tests.unit.transactor.world import Disk, World

TIMING = Timing()


class Calm(World):
    """Nothing is lost, and time goes on when the test says so."""

    def __init__(self, count: int) -> None:
        super().__init__(1, count)
        self.timing = TIMING
        self.lossless = True
        self.log.clear()
        for node in self.nodes:
            node.start()
        self.counted: Counter[str] = Counter()
        self.packets = 0
        self.unheard: set[int] = set()

    def engine(self, index: int) -> Engine:
        engine = self.nodes[index].engine
        assert engine is not None
        return engine

    def hand_over(self, sender: int, to: int) -> None:
        """Only what one node has for another."""
        self.nodes[sender].flush()
        self.nodes[sender].sync()
        messages = [each for each in self.network if each[:2] == (to, sender)]
        self.network = [each for each in self.network if each not in messages]
        for _, _, message in messages:
            self.nodes[to].receive(sender, message)
        self.nodes[to].flush()

    def pump(self) -> None:
        """Deliver everything, the answers too; what a node says at once is one packet per peer."""
        busy = True
        while busy:
            busy = False
            for node in self.nodes:
                if node.engine is not None:
                    node.flush()
                    if node.disk.tail:
                        node.sync()
                        busy = True
            flying, self.network = self.network, []
            for to, sender, message in flying:
                if to in self.unheard or sender in self.unheard:
                    continue
                busy = True
                self.counted[type(message).__name__] += 1
                if self.nodes[to].engine is not None:
                    self.nodes[to].receive(sender, message)
            self.packets += len(
                {(to, sender) for to, sender, _ in flying if not {to, sender} & self.unheard}
            )

    def ticks(self, count: int) -> None:
        for _ in range(count):
            for node in self.nodes:
                if node.engine is not None and node.index not in self.unheard:
                    node.engine.tick()
            self.pump()

    def write(self, index: int, data: bytes = b"x") -> Sid | Refusal:
        result = self.engine(index).post(self.engine(index).tid, data)
        if isinstance(result, Sid):
            self.posted[result] = data
            self.wanted.add((self.engine(index).tid, result))
        return result

    def decide(self, index: int, data: bytes = b"x") -> Sid:
        """Post at a node, and wait for it."""
        tid = self.engine(index).tid
        result = self.write(index, data)
        assert isinstance(result, Sid)
        for _ in range(50):
            self.pump()
            if self.engine(index).tid > tid:
                break
            self.ticks(1)
        assert self.engine(index).last == result
        return result


@pytest.mark.parametrize("count", [2, 3, 5, 7])
def test_the_quiet_case_costs_three_packets_per_peer(count: int) -> None:
    world = Calm(count)
    world.decide(0)
    world.packets = 0
    world.counted.clear()
    world.decide(0)
    peers = count - 1
    assert world.packets == 3 * peers
    assert world.counted == {"Data": peers, "Propose": peers, "Ack": peers, "Decide": peers}


def test_who_is_not_the_origin_of_the_last_needs_two_more() -> None:
    world = Calm(3)
    world.decide(0)
    world.counted.clear()
    world.decide(1)
    assert world.counted == {"Data": 2, "Wish": 1, "Propose": 2, "Ack": 2, "Decide": 2}
    world.counted.clear()
    world.decide(1)
    assert "Wish" not in world.counted


def test_idle_time_is_not_held_against_the_coordinator() -> None:
    world = Calm(3)
    world.decide(0)
    world.ticks(10 * TIMING.patience)
    world.counted.clear()
    world.decide(2)
    assert "Estimate" not in world.counted and "Nack" not in world.counted


def test_one_of_two_concurrent_posts_wins_and_the_other_may_be_posted_again() -> None:
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


def test_who_posts_without_pause_lets_others_go_first() -> None:
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


def test_a_peer_that_is_suspected_wrongly_gets_more_patience() -> None:
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
    world = Calm(3)
    batch = world.engine(0).take()
    world.write(0)
    batch = world.engine(0).take()
    assert [type(m) for _, m in batch.sends] == [
        Data,
        Data,
        Propose,
        Propose,
    ] and batch.asides == []
    proposal = next(m for _, m in batch.sends if isinstance(m, Propose))
    data = next(m for _, m in batch.sends if isinstance(m, Data))
    other = world.engine(1)
    other.receive(0, data)
    other.receive(0, proposal)
    batch = other.take()
    assert [type(m) for _, m in batch.sends] == [Ack] and batch.asides == []
    assert [type(r).__name__ for r in batch.records] == ["Held", "Vote"]


def test_only_what_is_held_is_acknowledged() -> None:
    engine = Calm(3).engine(1)
    engine.receive(0, Propose(1, 0, Sid(0, 9)))
    batch = engine.take()
    assert batch.sends == []
    engine.validate()


def test_a_decision_without_its_data_is_asked_for() -> None:
    engine = Calm(3).engine(1)
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


def test_a_stranger_does_not_vote_until_it_is_reset() -> None:
    told: list[str] = []
    world = Calm(3)
    engine = world.engine(0)
    engine.catch_up._tell = told.append
    engine.receive(1, Status(1, 50, False, False))
    engine.receive(1, Status(1, 51, False, False))
    engine.receive(1, Status(1, 51, False, False))
    assert engine.peers.strangers == {1} and len(told) == 1
    world.write(0)
    engine.receive(1, Ack(1, 0))
    assert engine.tid == 1
    engine.reset(1)
    engine.receive(1, Ack(1, 0))
    assert engine.tid == 2
    engine.receive(2, Status(1, 60, False, False))
    engine.receive(2, Status(1, 61, True, True))  # it says that it learns
    assert engine.peers.strangers == set() and engine.peers.learners == {2}


def test_late_messages_are_answered_with_the_decision() -> None:
    world = Calm(3)
    sid = world.decide(0)
    engine = world.engine(0)
    engine.take()
    engine.receive(2, Wish(1, 0, Sid(2, 1)))
    assert engine.take().asides == [(2, Decide(1, sid))]
    world.decide(0)
    engine.receive(2, Nack(1, 4))
    assert engine.take().asides == [(2, engine.status())]


def test_members_change_with_the_next_transaction() -> None:
    world = Calm(3)
    engine = world.engine(0)
    fewer = engine.members.removed("n2")
    assert isinstance(engine.post(1, fewer.encode(), Kind.MEMBERS), Sid)
    world.pump()
    assert world.engine(1).members == fewer and world.engine(1).former == (0, 1, 2)
    assert world.engine(2).process is None
    assert world.engine(2).post(2, b"x") == Refusal.PROPOSE_ERROR
    assert isinstance(world.write(0), Sid)
    world.counted.clear()
    world.pump()
    assert world.counted["Propose"] == 1


def test_a_list_of_members_is_not_reposted() -> None:
    """It was made of the list before it, which may have changed meanwhile."""
    world = Calm(3)
    engine = world.engine(1)
    mine = engine.post(1, engine.members.removed("n2").encode(), Kind.MEMBERS)
    assert isinstance(mine, Sid)
    other = world.write(0)
    world.network = [each for each in world.network if each[1] == 0]
    world.pump()
    world.ticks(2)
    if engine.last == other:
        assert engine.repost(2, mine) == Refusal.OTHER


def test_a_node_without_logs_votes_when_nothing_that_it_promised_can_matter() -> None:
    learner = Learner(alone=False)
    three = (0, 1, 2)
    assert not learner.enough(0, three, three)
    learner.counted(1, 7, 0)
    assert not learner.enough(0, three, three)
    learner.counted(2, 5, 3)
    assert learner.enough(0, three, three)
    tids = [tid for tid in range(1, 12) if learner.may_vote(0, (0, 1, 2), (0, 1, 2), tid)]
    assert tids == [9, 10, 11]
    assert not learner.may_vote(3, (0, 1, 2), (0, 1, 2), 11)


def test_of_two_members_one_without_logs_takes_no_part_in_rounds_of_before() -> None:
    learner = Learner(alone=False)
    assert not learner.may_vote(0, (0, 1), (0, 1), 9)
    learner.counted(1, 7, 3)
    assert not learner.may_vote(0, (0, 1), (0, 1), 6)
    assert learner.may_vote(0, (0, 1), (0, 1), 7)
    assert not learner.may_vote(0, (0, 1), (0, 1, 2), 7)
    both = (0, 1), (0, 1)
    assert learner.promises(0, *both, 7) == [Vote(7, 4, None, -1), Vote(8, 1, None, -1)]
    assert learner.promises(0, *both, 8) == [Vote(8, 1, None, -1)]
    assert learner.promises(0, (0, 1), (0, 1, 2), 8) == []
    # A third one that has left may be off, and cannot have decided anything without this one.
    assert learner.may_vote(0, (0, 1, 2), (0, 1), 7)


def test_one_of_two_that_lost_its_logs_may_have_voted_with_a_third() -> None:
    """The other has adopted the change that adds the third, and does not know that it was decided."""
    world = Calm(2)
    world.decide(1)
    first, second = world.engine(0), world.engine(1)
    assert isinstance(
        second.post(2, second.members.added("n2", ("h", 2)).encode(), Kind.MEMBERS), Sid
    )
    world.hand_over(1, 0)
    world.hand_over(0, 1)
    world.network.clear()  # the decision is lost
    assert (first.tid, second.tid) == (2, 3)
    world.unheard = {0}
    world.nodes[2].start()
    world.ticks(200)
    world.decide(1, b"with the third")
    world.unheard = {2}
    world.nodes[1].disk = Disk(9, Begun.RECOVERED)
    world.nodes[1].start()
    world.ticks(200)
    assert first.tid == world.engine(1).tid == 3
    world.write(0, b"without the third")
    world.ticks(200)
    assert first.tid == world.engine(1).tid == 3
    world.unheard = set()
    world.ticks(400)
    assert world.log[3].data == b"with the third"
    assert (
        not world.engine(1).learns and first.tid == world.engine(1).tid == world.engine(2).tid > 3
    )


def test_a_node_without_logs_does_not_vote_because_it_was_alone_once() -> None:
    assert Learner(alone=True).may_vote(0, (0,), (0,), 65)
    world = Calm(1)
    engine = world.engine(0)
    assert isinstance(
        engine.post(1, engine.members.added("n1", ("h", 1)).encode(), Kind.MEMBERS), Sid
    )
    world.pump()
    world.nodes[1].start()
    world.ticks(100)
    world.decide(0)
    # It kept the beginning of its log, before the other was added.
    world.nodes[0].disk = Disk(9, Begun.RECOVERED)
    world.nodes[0].start()
    world.pump()
    assert world.engine(0).learns and world.engine(0).post(1, b"x") == Refusal.PROPOSE_ERROR
    world.ticks(100)
    assert world.engine(0).tid == 3 and not world.engine(0).learns
    world.decide(0)


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


def test_lists_of_members_are_checked() -> None:
    members = first_members([("b", ("h", 2)), ("a", ("h", 1))])
    assert [m.name for m in members.all] == ["a", "b"] and members.nodes == (0, 1)
    more = members.added("c", ("h", 3)).removed("a").added("d", ("h", 4))
    assert more.nodes == (1, 2, 3) and more.next_index == 4
    assert Members.decode(more.encode()) == more
    wrongs: tuple[Callable[[], object], ...] = (
        lambda: members.added("a", ("h", 1)),
        lambda: members.removed("z"),
        lambda: members.moved("z", ("h", 1)),
        lambda: members.removed("a").removed("b"),
    )
    for wrong in wrongs:
        with pytest.raises(MembershipError):
            wrong()
    for data in (b"", b"\x90", b"\xc1", b"\x92\x01\x05"):
        with pytest.raises(ValueError, match="not a list of members"):
            Members.decode(data)
