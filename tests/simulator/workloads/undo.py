"""Undo of recent transactions while others write: of one, of several at once, of undos.

A group of objects always holds one number, whatever was undone. Steps of a counter, whose conflicts are
resolved, can be undone in any order.
"""

from __future__ import annotations

from BTrees.Length import Length
from persistent.mapping import PersistentMapping

from tests.simulator.workloads.base import Context, Tally, Workload
from tests.simulator.world import Violation

GROUP = 3
#: Users that mark the workload's own transactions in the undo log, which has those of all workloads.
USER_GROUP, USER_COUNTER = "undo-group", "undo-counter"


class Undo(Workload):
    name = "undo"
    threads = 3

    def __init__(self, random: object) -> None:
        super().__init__(random)  # type: ignore[arg-type]
        self.steps, self.undone = Tally(), Tally()

    def setup(self, context: Context) -> None:
        with context.connection() as (connection, manager):
            root = connection.root()
            for number in range(GROUP):
                root.setdefault(f"undo{number}", PersistentMapping(value=0))
            root.setdefault("undo-counter", Length())
            manager.commit()

    def step(self, context: Context, thread: int) -> None:
        choice = context.random.random()
        if choice < 0.3:
            self._write(context)
        elif choice < 0.5:
            self._count(context)
        elif choice < 0.8:
            self._undo(context, USER_GROUP, context.random.choice((1, 1, 2, 3)))
        else:
            self._undo(context, USER_COUNTER, 1)

    def _write(self, context: Context) -> None:
        with context.connection() as (connection, manager):
            value = self._value(connection) + 1
            for number in range(GROUP):
                connection.root()[f"undo{number}"]["value"] = value
            manager.get().user = USER_GROUP
            manager.commit()

    def _count(self, context: Context) -> None:
        with context.connection() as (connection, manager):
            connection.root()["undo-counter"].change(1)
            manager.get().user = USER_COUNTER
            with self.steps.tried():
                manager.commit()

    def _undo(self, context: Context, user: str, count: int) -> None:
        """Undo the last transactions of this kind, or some before them."""
        first = context.random.choice((0, 0, 0, 1, 2))
        with context.connection() as (connection, manager):
            log = context.db.undoLog(0, 30)
            ids = [entry["id"] for entry in log if entry["user_name"] == user]
            ids = ids[first : first + count]
            if not ids:
                return
            context.db.undoMultiple(ids, manager.get())
            if user == USER_COUNTER:
                # An undo is never undone here, because the counter's value would not be known any more.
                with self.undone.tried():
                    manager.commit()
                return
            manager.get().user = user
            manager.commit()
            self._value(connection)

    def _value(self, connection: object) -> int:
        root = connection.root()  # type: ignore[attr-defined]
        values = {root[f"undo{number}"]["value"] for number in range(GROUP)}
        if len(values) != 1:
            raise Violation(f"undo: half a transaction is undone: {sorted(values)}")
        value: int = values.pop()
        return value

    def check(self, context: Context) -> None:
        with context.connection() as (connection, _):
            self._value(connection)
            value = connection.root()["undo-counter"]()
            low = self.steps.certain - self.undone.most
            high = self.steps.most - self.undone.certain
            if not low <= value <= high:
                raise Violation(f"undo: the counter is {value}, not between {low} and {high}")
