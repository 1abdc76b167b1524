"""The right to vote: changing members, strangers, and nodes that lost their logs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from neo.transactor.durable import Begun
from neo.transactor.learner import Learner
from neo.transactor.members import Members, MembershipError, first_members
from neo.transactor.messages import Ack, Kind, Refusal, Sid, Status, Vote
from tests.unit.transactor.calm import Calm
from tests.unit.transactor.world import Disk


def test_a_stranger_does_not_vote_until_it_is_reset() -> None:
    """Specification 20.17."""
    told: list[str] = []
    world = Calm(3)
    engine = world.engine(0)
    engine.catch_up._warn = told.append
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
    engine.receive(2, Status(1, 61, True, True))  # a learner
    assert engine.peers.strangers == set() and engine.peers.learners == {2}


def test_members_change_with_the_next_transaction() -> None:
    """Specification 20.1, 20.16."""
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
    """The list was made of an older one, which may have changed since (specification 20.11)."""
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
    """Specification 20.18."""
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
    """Specification 20.19."""
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
    # A third member that has left may be off; it cannot have decided anything without this one.
    assert learner.may_vote(0, (0, 1, 2), (0, 1), 7)


def test_one_of_two_that_lost_its_logs_may_have_voted_with_a_third() -> None:
    """The other member adopted the change that adds a third, and does not know that it was decided."""
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
    # The node kept the beginning of its log, before the other member was added.
    world.nodes[0].disk = Disk(9, Begun.RECOVERED)
    world.nodes[0].start()
    world.pump()
    assert world.engine(0).learns and world.engine(0).post(1, b"x") == Refusal.PROPOSE_ERROR
    world.ticks(100)
    assert world.engine(0).tid == 3 and not world.engine(0).learns
    world.decide(0)


def test_lists_of_members_are_checked() -> None:
    """Specification 20.16."""
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
