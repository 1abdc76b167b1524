"""Writers of overlapping sets of counters, each in a random order.

Many transactions wait for each other in circles, and one that was rebased may have to be rebased again.
Conflicts are resolved, so that no transaction ends early.
"""

from __future__ import annotations

from contextlib import ExitStack
from random import Random

from BTrees.Length import Length

from tests.simulator.workloads.base import Context, Tally, Workload
from tests.simulator.world import Violation

#: Number of counters, and number of counters that a transaction changes.
COUNT = 6
CHANGED = (3, 4, 5)


class Cascades(Workload):
    """All counters of a transaction are increased together: no step is lost, or done in part."""

    name = "cascades"
    threads = 5

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.tallies = [Tally() for _ in range(COUNT)]

    def setup(self, context: Context) -> None:
        with context.connection() as (connection, manager):
            for number in range(COUNT):
                connection.root().setdefault(f"cascade{number}", Length())
            manager.commit()

    def step(self, context: Context, thread: int) -> None:
        numbers = context.random.sample(range(COUNT), context.random.choice(CHANGED))
        with context.connection() as (connection, manager), ExitStack() as stack:
            # ZODB stores objects in the order in which they were changed.
            for number in numbers:
                connection.root()[f"cascade{number}"].change(1)
            for number in numbers:
                stack.enter_context(self.tallies[number].tried())
            manager.commit()

    def check(self, context: Context) -> None:
        with context.connection() as (connection, _):
            for number, tally in enumerate(self.tallies):
                value = connection.root()[f"cascade{number}"]()
                if not tally.certain <= value <= tally.most:
                    raise Violation(
                        f"cascade{number} is {value}: {tally.certain} increments were "
                        f"acknowledged, {tally.most} tried"
                    )
