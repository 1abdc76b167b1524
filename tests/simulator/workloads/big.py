"""Transactions with more objects and data than the windows and caches of client and nodes."""

from __future__ import annotations

from random import Random

from persistent.mapping import PersistentMapping

from tests.simulator.workloads.base import Context, Workload
from tests.simulator.world import Violation


class Big(Workload):
    """All objects always hold the same number. Each transaction writes all of them."""

    name = "big"
    threads = 2
    rewindable = True

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.size = random.choice((10, 30, 120))
        self.bytes = random.choice((0, 100, 5000))

    def setup(self, context: Context) -> None:
        with context.connection() as (connection, manager):
            root = connection.root()
            if "big" not in root:
                items = [PersistentMapping(value=0) for _ in range(self.size)]
                root["big"] = PersistentMapping(items=items)
                manager.commit()

    def step(self, context: Context, thread: int) -> None:
        with context.connection() as (connection, manager):
            items = connection.root()["big"]["items"]
            if context.random.random() < 0.5:
                connection.prefetch(items)
            value = self._same(items) + 1
            if context.random.random() < 0.3:
                return
            for item in items:
                item["value"] = value
                item["data"] = context.random.randbytes(self.bytes)
            manager.commit()

    @staticmethod
    def _same(items: list[PersistentMapping]) -> int:
        values: set[int] = {item["value"] for item in items}
        if len(values) != 1:
            raise Violation(f"big: part of a transaction is visible: {sorted(values)}")
        return values.pop()

    def check(self, context: Context) -> None:
        with context.connection() as (connection, _):
            self._same(connection.root()["big"]["items"])
