"""The invariants of ZODB's own race tests.

Two objects are changed together, or one after the other, while other threads read them in new and in
old connections.
"""

from __future__ import annotations

from persistent.mapping import PersistentMapping

from tests.simulator.workloads.base import Context, Workload
from tests.simulator.world import Violation


class _Pair(Workload):
    """Two objects with a number each. :meth:`expect` checks the numbers."""

    def setup(self, context: Context) -> None:
        with context.connection() as (connection, manager):
            root = connection.root()
            for side in "ab":
                root.setdefault(f"{self.name}-{side}", PersistentMapping(value=0))
            manager.commit()

    def pair(self, connection: object) -> tuple[PersistentMapping, PersistentMapping]:
        root = connection.root()  # type: ignore[attr-defined]
        return root[f"{self.name}-a"], root[f"{self.name}-b"]

    def verify(self, connection: object) -> None:
        a, b = (item["value"] for item in self.pair(connection))
        if not self.expect(a, b):
            raise Violation(f"{self.name}: {a} and {b} are seen together")

    def expect(self, a: int, b: int) -> bool:
        raise AssertionError("a pair without a rule")

    def change(self, a: PersistentMapping, b: PersistentMapping) -> None:
        raise AssertionError("a pair that never changes")

    def step(self, context: Context, thread: int) -> None:
        with context.connection() as (connection, manager):
            self.verify(connection)
            # The connection may read again, at a newer view, any number of times.
            for _ in range(context.random.choice((0, 0, 1, 3))):
                manager.begin()
                self.verify(connection)
            if self.writes(thread):
                self.change(*self.pair(connection))
                manager.commit()
                self.verify(connection)

    def writes(self, thread: int) -> bool:
        return thread > 0

    def check(self, context: Context) -> None:
        with context.connection() as (connection, _):
            self.verify(connection)


class Increments(_Pair):
    """One transaction increases both objects: they are equal."""

    name = "increments"
    threads = 3
    rewindable = True

    def expect(self, a: int, b: int) -> bool:
        return a == b

    def change(self, a: PersistentMapping, b: PersistentMapping) -> None:
        a["value"] += 1
        b["value"] += 1


class Phases(_Pair):
    """The first is increased in one transaction, the second in the next, never the other way round."""

    name = "phases"
    threads = 3
    rewindable = True

    def expect(self, a: int, b: int) -> bool:
        return a - b in (0, 1)

    def change(self, a: PersistentMapping, b: PersistentMapping) -> None:
        # A transaction that changes the second object depends on the first one.
        if a["value"] == b["value"]:
            a["value"] += 1
        else:
            b["value"] += 1
        b._p_jar.readCurrent(a)
        b._p_jar.readCurrent(b)
