"""The engine in random schedules, and planted bugs that these schedules must find."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from neo.transactor import consensus
from neo.transactor.consensus import Process
from neo.transactor.engine import Engine
from neo.transactor.learner import Learner
from neo.transactor.messages import NEVER, Ack, Estimate, Message, Propose, Refusal, Sid
from tests.unit.transactor.exhaustive import Search, Step
from tests.unit.transactor.world import World

#: Search every schedule of two posters, with crashes of all, up to this round: 2 takes minutes. Random
#: schedules take over a million steps then.
SEARCH_ROUNDS = os.environ.get("NEO_SEARCH_ROUNDS")
#: Clusters of these sizes alternate. Number of schedules of each kind, and steps in each schedule.
SIZES = (3, 3, 5, 2, 4, 7, 1)
FIXED, CHANGING = (70, 35) if SEARCH_ROUNDS else (28, 14)
STEPS = 10_000
Plant = Callable[[pytest.MonkeyPatch], None]
ONE, OTHER = Sid(0, 1), Sid(1, 1)


def schedule(seed: int, changes: bool = False, steps: int = STEPS) -> World:
    world = World(seed, SIZES[seed % len(SIZES)], changes)
    while world.steps < steps:
        world.run(100)
    world.settle()
    return world


@pytest.mark.parametrize("first", range(0, FIXED, 14))
def test_random_schedules_keep_the_properties_and_end_in_progress(first: int) -> None:
    """Specification 20.2, 20.24, 23.12, 23.13."""
    worlds = [schedule(seed) for seed in range(first, first + 14)]
    assert sum(len(world.log) for world in worlds) > 14 * 10
    assert sum(world.steps for world in worlds) >= 14 * STEPS


@pytest.mark.parametrize("first", range(1000, 1000 + CHANGING, 7))
def test_members_come_and_go_in_random_schedules(first: int) -> None:
    worlds = [schedule(seed, changes=True) for seed in range(first, first + 7)]
    assert sum(world.steps for world in worlds) >= 7 * STEPS
    assert any(len(world.nodes) > len(world.genesis.all) for world in worlds)
    assert any(len(world.members.all) < len(world.nodes) for world in worlds)


def test_a_schedule_is_the_same_each_time() -> None:
    assert schedule(5, steps=3000).log == schedule(5, steps=3000).log


@pytest.mark.parametrize(
    ("wanted", "rounds", "crashes", "decisions", "states"),
    [
        ((ONE, OTHER, None), 1, 3, {ONE, OTHER}, 9_700),
        ((ONE, None, None), 2, 0, {ONE}, 226_000),
        *(
            [((ONE, OTHER, None), int(SEARCH_ROUNDS), 3, {ONE, OTHER}, 5_661_000)]
            if SEARCH_ROUNDS
            else []
        ),
    ],
)
def test_every_schedule_of_three_processes_agrees(
    wanted: tuple[Sid | None, ...], rounds: int, crashes: int, decisions: set[Sid], states: int
) -> None:
    """``states``: fewer states would mean that some schedules are not tried any more."""
    search = Search(wanted, rounds, crashes)
    search.run()
    assert search.states >= states
    assert search.decisions == decisions


# -- planted bugs: each is a plausible slip ------------------------------------------------------------


def ack_before_it_is_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def send(self: Engine, to: int, message: Message) -> None:
        if isinstance(message, Ack):
            self._outbox.aside(to, message)
        else:
            self._outbox.send(to, message)

    monkeypatch.setattr(Engine, "send", send)


def propose_before_it_is_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def send(self: Engine, to: int, message: Message) -> None:
        if isinstance(message, Propose):
            self._outbox.aside(to, message)
        else:
            self._outbox.send(to, message)

    monkeypatch.setattr(Engine, "send", send)


def any_estimate_is_proposed(monkeypatch: pytest.MonkeyPatch) -> None:
    choose = Process._choose

    def ignore_stamps(self: Process) -> tuple[int, Sid | None]:
        self.estimates = {q: (sid, NEVER) for q, (sid, _) in self.estimates.items()}
        return choose(self)

    monkeypatch.setattr(Process, "_choose", ignore_stamps)


def half_is_a_majority(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Process.__init__

    def one_less(self: Process, *arguments: Any) -> None:
        begin(self, *arguments)
        self.majority = max(1, len(self.members) // 2)

    monkeypatch.setattr(Process, "__init__", one_less)


def an_earlier_round_is_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    on_propose = Process.on_propose

    def forgetful(self: Process, q: int, m: Propose) -> None:
        if m.round < self.round and self.environment.holds(m.sid):
            self.environment.send(q, Ack(self.tid, m.round))
        else:
            on_propose(self, q, m)

    monkeypatch.setitem(consensus.STEPS, Propose, forgetful)


def estimates_of_other_rounds_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def on_estimate(self: Process, q: int, m: Estimate) -> None:
        if self.coordinator == self.me and m.stamp < self.round:
            self.estimates[q] = (m.sid, m.stamp)
            self._propose()

    monkeypatch.setitem(consensus.STEPS, Estimate, on_estimate)


def a_node_without_logs_votes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Learner, "may_vote", lambda self, me, former, members, tid: me in members)


def promises_are_forgotten_in_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Step, "persist", lambda self, vote: None)


@pytest.mark.parametrize(
    ("plant", "first"),
    [
        (ack_before_it_is_on_disk, 115),
        (propose_before_it_is_on_disk, 108),
        (any_estimate_is_proposed, 45),
        (half_is_a_majority, 0),
        (a_node_without_logs_votes_at_once, 15),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_random_schedules_find_a_planted_bug(
    plant: Plant, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``first``: of a schedule that finds the bug today; a later one does if the code changes
    (specification 20.2, 20.8, 20.18)."""
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="agreement|integrity|validity"):
        for seed in range(first, first + 400):
            schedule(seed, steps=4000)


def of_two_a_node_without_logs_proposes_in_a_round_of_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Learner, "promises", lambda self, me, former, members, tid: [])


def a_list_of_members_is_reposted(monkeypatch: pytest.MonkeyPatch) -> None:
    repost = Engine.repost

    def careless(self: Engine, tid: int, sid: Sid) -> Sid | Refusal:
        mine = self.mine
        if mine is None or mine.sid != sid or self._refuse(tid) is not None:
            return repost(self, tid, sid)
        self._want(mine, known=True)
        return sid

    monkeypatch.setattr(Engine, "repost", careless)


@pytest.mark.parametrize(
    ("plant", "sizes", "changes", "first"),
    [
        (of_two_a_node_without_logs_proposes_in_a_round_of_before, (2,), False, 413),
        (a_list_of_members_is_reposted, (3, 5, 4), True, 102),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_random_schedules_of_some_sizes_find_a_planted_bug(
    plant: Plant,
    sizes: tuple[int, ...],
    changes: bool,
    first: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``first``: see above."""
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="agreement|validity|termination"):
        for seed in range(first, first + 600):
            world = World(seed, sizes[seed % len(sizes)], changes)
            world.run(4000)
            world.settle()


def test_every_schedule_includes_the_one_of_a_planted_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    an_earlier_round_is_acknowledged(monkeypatch)
    with pytest.raises(AssertionError, match="agreement"):
        Search((ONE, OTHER, None), 2, 0).run()


def walk() -> None:
    walks = 4000 if SEARCH_ROUNDS else 800
    Search((ONE, OTHER, None), rounds=6, crashes=3).walk(random.Random(1), walks, 80)


def test_random_ways_through_many_rounds_agree() -> None:
    walk()


@pytest.mark.parametrize(
    "plant",
    [
        promises_are_forgotten_in_a_crash,
        any_estimate_is_proposed,
        half_is_a_majority,
        an_earlier_round_is_acknowledged,
        estimates_of_other_rounds_count,
    ],
    ids=lambda plant: plant.__name__,
)
def test_random_ways_find_a_planted_bug(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Specification 20.7, 20.8, 20.9."""
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="agreement"):
        walk()
