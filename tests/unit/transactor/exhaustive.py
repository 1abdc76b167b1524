"""Every schedule of three processes, one transaction and a bounded number of rounds.

The events of a process: it receives any message that was ever sent to it, any number of times, at any
time or never (which covers loss, delay, duplication and reordering); it suspects its coordinator; it
crashes and restarts with its persisted state. A state is the local state of each process and the set of
messages; each state is visited once.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from neo.transactor.consensus import STEPS, Process
from neo.transactor.messages import Message, Sid, Vote

MEMBERS = (0, 1, 2)


class Local(NamedTuple):
    """The state of a process."""

    round: int
    estimate: Sid | None
    stamp: int
    wanted: Sid | None
    proposed: bool
    estimates: frozenset[tuple[int, tuple[Sid | None, int]]]
    acks: frozenset[int]
    wishes: frozenset[tuple[int, Sid]]
    #: On disk.
    vote: Vote | None
    decided: Sid | None


class Sent(NamedTuple):
    to: int
    sender: int
    #: Tuples of different types may be equal.
    kind: type[Message]
    message: Message


class Step:
    """One process that reacts, and its host. Messages count as sent after the votes before them."""

    def __init__(self, me: int, local: Local, process_class: type[Process]) -> None:
        self.me = me
        self.vote = local.vote
        self.sent: list[Sent] = []
        self.decided = local.decided
        process = process_class(1, me, MEMBERS, 0, self, None)
        process._enter(local.round)
        process.estimate, process.stamp, process.wanted = local.estimate, local.stamp, local.wanted
        process.proposed = local.proposed
        process.estimates = dict(local.estimates)
        process.acks = set(local.acks)
        process.wishes = dict(local.wishes)
        self.process = process

    def persist(self, vote: Vote) -> None:
        self.vote = vote

    def send(self, to: int, message: Message) -> None:
        self.sent.append(Sent(to, self.me, type(message), message))

    def holds(self, sid: Sid) -> bool:
        return True

    def fetch(self, sid: Sid, holder: int) -> None:
        raise AssertionError("everything is held")

    def decide(self, sid: Sid) -> None:
        assert self.decided in (None, sid)
        self.decided = sid

    def local(self) -> Local:
        p = self.process
        return Local(
            p.round, p.estimate, p.stamp, p.wanted, p.proposed, frozenset(p.estimates.items()),
            frozenset(p.acks), frozenset(p.wishes.items()), self.vote, self.decided,
        )  # fmt: skip


#: A state: the numbers of the three local states, and a bit for each message that exists.
State = tuple[int, int, int, int]
SUSPECT, CRASH = -1, -2


class Search:
    """Visits all states. ``crashes``: the number of processes that may crash; the first ones do."""

    def __init__(
        self,
        wanted: tuple[Sid | None, ...],
        rounds: int,
        crashes: int,
        process_class: type[Process] = Process,
    ) -> None:
        self.rounds = rounds
        self.crashes = crashes
        self.process_class = process_class
        self.states = 0
        self.decisions: set[Sid] = set()
        self._locals: list[Local] = []
        self._local_numbers: dict[Local, int] = {}
        self._messages: list[Sent] = []
        self._message_numbers: dict[Sent, int] = {}
        #: The effect of an event on a process: its new local state, and the messages that it sends.
        self._reactions: dict[tuple[int, int, int], tuple[int, int]] = {}
        blank = Local(0, None, -1, None, False, frozenset(), frozenset(), frozenset(), None, None)
        start, network = [self._number(blank)] * 3, 0
        for me, sid in enumerate(wanted):
            if sid is not None:
                step = Step(me, blank, process_class)
                step.process.want(sid)
                start[me] = self._number(step.local())
                network |= self._mask(step)
        self._start: State = (start[0], start[1], start[2], network)

    def run(self) -> None:
        seen = {self._start}
        todo = [self._start]
        while todo:
            state = todo.pop()
            for following in self._successors(state):
                if following not in seen:
                    seen.add(following)
                    todo.append(following)
                    self._check(following)
        self.states = len(seen)

    def walk(self, chance: random.Random, walks: int, steps: int) -> None:
        """Visit some states of more rounds than can be searched, by random walks."""
        for _ in range(walks):
            state = self._start
            for _ in range(steps):
                following = list(self._successors(state))
                if not following:
                    break
                state = chance.choice(following)
                self._check(state)

    def _check(self, state: State) -> None:
        locals_ = [self._locals[number] for number in state[:3]]
        decided = {local.decided for local in locals_ if local.decided is not None}
        assert len(decided) <= 1, f"agreement: {locals_}"
        self.decisions |= decided

    def _successors(self, state: State) -> Iterator[State]:
        network = state[3]
        for me in MEMBERS:
            mine = state[me]
            local = self._locals[mine]
            if local.decided is not None:
                continue
            events = [
                n for n, sent in enumerate(self._messages) if sent.to == me and network >> n & 1
            ]
            if local.round < self.rounds and local.round % 3 != me:
                events.append(SUSPECT)
            if me < self.crashes:
                events.append(CRASH)
            for event in events:
                known = self._reactions.get((me, mine, event))
                after, sent = known or self._react(me, mine, event)
                if after != mine or network | sent != network:
                    following = [*state[:3], network | sent]
                    following[me] = after
                    yield (following[0], following[1], following[2], following[3])

    def _react(self, me: int, mine: int, event: int) -> tuple[int, int]:
        local = self._locals[mine]
        step = Step(me, local, self.process_class)
        if event == SUSPECT:
            step.process.suspect(lambda q: False)
        elif event == CRASH:
            step.process = self.process_class(1, me, MEMBERS, 0, step, local.vote)
        else:
            sent = self._messages[event]
            STEPS[sent.kind](step.process, sent.sender, sent.message)
        reaction = self._number(step.local()), self._mask(step)
        self._reactions[me, mine, event] = reaction
        return reaction

    def _number(self, local: Local) -> int:
        if local not in self._local_numbers:
            self._local_numbers[local] = len(self._locals)
            self._locals.append(local)
        return self._local_numbers[local]

    def _mask(self, step: Step) -> int:
        mask = 0
        for sent in step.sent:
            if getattr(sent.message, "round", 0) <= self.rounds:
                if sent not in self._message_numbers:
                    self._message_numbers[sent] = len(self._messages)
                    self._messages.append(sent)
                mask |= 1 << self._message_numbers[sent]
        return mask
