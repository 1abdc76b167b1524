"""Fairness: nodes that post without pause, some of them nearer or faster than others."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable

import pytest

from neo.transactor.durable import Begun, JournalState, empty_log
from neo.transactor.engine import Engine, Timing
from neo.transactor.members import first_members
from neo.transactor.messages import Entry, Message, Record, Spec
from neo.transactor.node import Node

DECISIONS = 120


class Place:
    """A node, and an application server that posts again as soon as it hears of a decision."""

    def __init__(self, race: Race, index: int, count: int) -> None:
        self.race = race
        self.index = index
        self.specs: list[Spec] = []
        genesis = first_members((f"n{i}", ("host", i)) for i in range(count))
        durable = JournalState(index + 1, 1 << 32).durable(Begun.FRESH, empty_log(genesis))
        self.node = Node(Engine(f"n{index}", durable, self, Timing()), self)

    def append(self, records: list[Record]) -> None:
        self.specs += [record.spec for record in records if isinstance(record, Entry)]

    def read(self, tid: int, count: int, size: int) -> list[Spec]:
        return self.specs[tid - 1 : tid - 1 + count]

    def sync(self) -> None:
        self.race.after(self.race.disks[self.index], self.node.synced)

    def transmit(self, peer: str, messages: list[Message]) -> None:
        to = int(peer[1:])
        there = self.race.places[to].node
        for message in messages:
            self.race.after(
                self.race.ways[self.index] + self.race.ways[to],
                lambda message=message: there.receive(f"n{self.index}", [message]),
            )

    def decided(self, entries: list[Entry]) -> None:
        self.race.after(self.race.thinking[self.index], self.post)

    def post(self) -> None:
        self.node.post(self.node.tlog_tid + 1, b"", lambda result: None)

    def tick(self) -> None:
        self.node.tick()
        self.race.after(1.0, self.tick)


class Race:
    """All times are in ticks."""

    def __init__(self, ways: list[float], disks: list[float], thinking: list[float]) -> None:
        self.ways, self.disks, self.thinking = ways, disks, thinking
        self._now = 0.0
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self.places = [Place(self, i, len(ways)) for i in range(len(ways))]
        for place in self.places:
            self.after(0.1 * place.index, place.tick)
            self.after(self.thinking[place.index], place.post)

    def after(self, ticks: float, action: Callable[[], object]) -> None:
        heapq.heappush(self._events, (self._now + ticks, next(self._numbers), action))

    def run(self) -> list[int]:
        """Return the origins of the transactions."""
        specs = self.places[0].specs
        while len(specs) < DECISIONS:
            self._now, _, action = heapq.heappop(self._events)
            action()
            assert self._now < 100 * DECISIONS
        return [spec.sid.node for spec in specs]


@pytest.mark.parametrize(
    ("ways", "disks", "thinking"),
    [
        ([0.02] * 3, [0.04] * 3, [0.01] * 3),
        ([0.02] * 3, [0.04] * 3, [0.01, 0.02, 1.8]),
        ([0.02, 0.02, 1.0], [0.04] * 3, [0.01] * 3),
        ([0.02] * 3, [0.04, 0.04, 0.5], [0.01] * 3),
        ([0.02, 0.1, 0.2, 0.3, 0.4], [0.04] * 5, [0.01] * 5),
    ],
    ids=["equal", "a slow application", "a slow link", "a slow disk", "five places"],
)
def test_of_nodes_that_post_without_pause_each_gets_its_share(
    ways: list[float], disks: list[float], thinking: list[float]
) -> None:
    served = Counter(Race(ways, disks, thinking).run())
    share = DECISIONS // len(ways)
    assert min(served[i] for i in range(len(ways))) >= share * 0.7, served
