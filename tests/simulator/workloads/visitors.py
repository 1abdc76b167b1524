"""Applications that open a storage, do little and close it again, some of them during their work."""

from __future__ import annotations

from random import Random

import transaction
from BTrees.Length import Length

from tests.simulator.workloads.base import Context, Tally, Workload, close
from tests.simulator.world import Violation


class Visitors(Workload):
    name = "visitors"
    threads = 2

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.visits = Tally()

    def setup(self, context: Context) -> None:
        with context.connection() as (connection, manager):
            connection.root().setdefault("visitors", Length())
            manager.commit()

    def step(self, context: Context, thread: int) -> None:
        acknowledged = self.visits.certain
        db = context.open()
        storage = db.storage  # None if the database is closed
        if context.random.random() < 0.3:
            context.spawn(lambda: self._interrupt(context, storage))
        try:
            manager = transaction.TransactionManager()
            counter = db.open(manager).root()["visitors"]
            if counter() < acknowledged:
                raise Violation(
                    f"visitors: {counter()} visits are seen, {acknowledged} were acknowledged"
                )
            counter.change(1)
            with self.visits.tried():
                manager.commit()
        finally:
            close(db)

    @staticmethod
    def _interrupt(context: Context, storage: object) -> None:
        context.sleep(context.random.random() * 0.01)
        storage.close()  # type: ignore[attr-defined]

    def check(self, context: Context) -> None:
        with context.connection() as (connection, _):
            value = connection.root()["visitors"]()
            if not self.visits.certain <= value <= self.visits.most:
                raise Violation(
                    f"visitors: {value} visits are counted, {self.visits.certain} were"
                    f" acknowledged, {self.visits.most} tried"
                )
