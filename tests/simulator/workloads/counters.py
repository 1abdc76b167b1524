"""Counters that several threads increase concurrently: ZODB resolves the conflicts, no step is lost."""

from __future__ import annotations

from random import Random

from BTrees.Length import Length

from tests.simulator.workloads.base import Context, Tally, Workload
from tests.simulator.world import Violation


class Counters(Workload):
    name = "counters"
    threads = 3

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.tallies = [Tally() for _ in range(random.randrange(1, 4))]

    def setup(self, context: Context) -> None:
        with context.connection() as (connection, manager):
            root = connection.root()
            for number in range(len(self.tallies)):
                root.setdefault(f"counter{number}", Length())
            manager.commit()

    def step(self, context: Context, thread: int) -> None:
        number = context.random.randrange(len(self.tallies))
        with context.connection() as (connection, manager):
            connection.root()[f"counter{number}"].change(1)
            with self.tallies[number].tried():
                manager.commit()

    def check(self, context: Context) -> None:
        with context.connection() as (connection, _):
            for number, tally in enumerate(self.tallies):
                value = connection.root()[f"counter{number}"]()
                if not tally.certain <= value <= tally.most:
                    raise Violation(
                        f"counter{number} is {value}: {tally.certain} increments were "
                        f"acknowledged, {tally.most} tried"
                    )
