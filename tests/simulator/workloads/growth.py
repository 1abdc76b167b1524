"""A BTree that grows by many new objects and splits its buckets. No key is ever lost."""

from __future__ import annotations

from random import Random

from BTrees.check import check as check_btree
from BTrees.OOBTree import OOBTree
from persistent.mapping import PersistentMapping

from tests.simulator.workloads.base import Context, Workload
from tests.simulator.world import Violation

#: Numbers of keys that a step adds. A bucket splits at 30 keys.
AT_ONCE = (1, 1, 2, 40)
#: Greatest number of keys, which makes some splits.
KEYS_MAX = 400


class Growth(Workload):
    name = "growth"
    threads = 2

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.next_key = 0
        self.certain: set[int] = set()
        self.tried: set[int] = set()

    def setup(self, context: Context) -> None:
        with context.connection() as (connection, manager):
            connection.root().setdefault("growth", OOBTree())
            manager.commit()

    def step(self, context: Context, thread: int) -> None:
        with context.connection() as (connection, manager):
            tree = connection.root()["growth"]
            if context.random.random() < 0.3 or not self.writes(thread):
                self._look(connection, tree)
                return
            count = context.random.choice(AT_ONCE)
            keys = set(range(self.next_key, self.next_key + count))
            self.next_key += count
            for key in sorted(keys):
                # Spread over all buckets.
                tree[(key * 7919) % 100_003, key] = PersistentMapping(key=key)
            self.tried |= keys
            manager.commit()
            self.certain |= keys

    def writes(self, thread: int) -> bool:
        return len(self.certain) < KEYS_MAX

    def _look(self, connection: object, tree: OOBTree) -> None:
        """Read some neighbours ahead."""
        values = [tree[key] for key in list(tree.keys())[:20]]
        connection.prefetch(values)  # type: ignore[attr-defined]
        for key, value in zip(tree.keys(), values, strict=False):
            if value.get("key") != key[1]:
                raise Violation(f"growth: key {key} leads to {value!r}")

    def check(self, context: Context) -> None:
        with context.connection() as (connection, _):
            tree = connection.root()["growth"]
            tree._check()
            check_btree(tree)
            found = {value["key"] for value in tree.values()}
        if not self.certain <= found <= self.tried:
            raise Violation(
                f"growth: {sorted(self.certain - found)[:5]} are lost,"
                f" {sorted(found - self.tried)[:5]} were never put in"
            )
