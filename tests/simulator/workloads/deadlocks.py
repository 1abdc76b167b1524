"""Writers that store the same objects in opposite orders: deadlocks, rebases and their cascades."""

from __future__ import annotations

from random import Random

from persistent.mapping import PersistentMapping

from tests.simulator.workloads.base import Context, Workload
from tests.simulator.world import Violation


class Deadlocks(Workload):
    """All objects of a group always hold the same number. They are written in a random order."""

    name = "deadlocks"
    threads = 4
    rewindable = True

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.size = random.randrange(2, 6)

    def setup(self, context: Context) -> None:
        with context.connection() as (connection, manager):
            root = connection.root()
            for number in range(self.size):
                root.setdefault(f"group{number}", PersistentMapping(value=0))
            manager.commit()

    def step(self, context: Context, thread: int) -> None:
        order = list(range(self.size))
        context.random.shuffle(order)
        with context.connection() as (connection, manager):
            root = connection.root()
            values = {root[f"group{number}"]["value"] for number in order}
            if len(values) != 1:
                raise Violation(f"deadlocks: half a transaction is visible: {sorted(values)}")
            value = values.pop() + 1
            # ZODB stores objects in the order in which they were changed.
            for number in order:
                root[f"group{number}"]["value"] = value
            manager.commit()

    def check(self, context: Context) -> None:
        with context.connection() as (connection, _):
            values = {connection.root()[f"group{n}"]["value"] for n in range(self.size)}
            if len(values) != 1:
                raise Violation(f"deadlocks: at the end the group holds {sorted(values)}")
