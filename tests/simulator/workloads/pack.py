"""Packs, with garbage collection and without, while objects are created, moved and dropped.

Every object that can be reached exists. The oracles know from the tables which revisions may be gone.
"""

from __future__ import annotations

from random import Random
from typing import Any

from persistent.mapping import PersistentMapping
from ZODB.POSException import POSKeyError

from neo.protocol.ids import ZERO_TID, time_from_tid
from tests.simulator.workloads.base import Context, Workload
from tests.simulator.world import Violation

BOXES = 3


class Pack(Workload):
    name = "pack"
    threads = 3

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        #: Oids of chains that were dropped, and may be used again while they are collected.
        self.thrown: list[bytes] = []

    def setup(self, context: Context) -> None:
        with context.connection() as (connection, manager):
            root = connection.root()
            for number in range(BOXES):
                root.setdefault(f"box{number}", PersistentMapping())
            manager.commit()

    def step(self, context: Context, thread: int) -> None:
        if thread == 0 and context.random.random() < 0.3:
            self._pack(context)
        elif context.random.random() < 0.3:
            self._look(context)
        else:
            self._change(context)

    def _pack(self, context: Context) -> None:
        tid = context.storage.lastTransaction()
        if tid > ZERO_TID:
            ago = context.random.choice((0.0, 0.0, 0.1, 5.0)) * context.random.random()
            gc = context.random.random() < 0.6
            context.log(f"packs{' with gc' if gc else ''}")
            context.storage.pack(time_from_tid(tid) - ago, context.db.references, gc)

    def _change(self, context: Context) -> None:
        with context.connection() as (connection, manager):
            boxes = [connection.root()[f"box{number}"] for number in range(BOXES)]
            source, target = context.random.sample(boxes, 2)
            names = sorted(source)
            choice = context.random.random()
            if self.thrown and choice < 0.15:
                self._take_back(context, connection, source)
            elif choice < 0.4 or not names:
                # A chain: its other objects must stay as long as its head.
                item = PersistentMapping(next=PersistentMapping(next=None))
                source[f"{context.random.randrange(20)}"] = item
            elif choice < 0.8:
                name = context.random.choice(names)
                target[name] = source.pop(name)
            else:
                item = source.pop(context.random.choice(names))
                manager.commit()
                self.thrown.append(item._p_oid)
                return
            manager.commit()

    def _take_back(self, context: Context, connection: Any, box: PersistentMapping) -> None:
        """Use garbage again, if it still exists then: a chain exists as long as its head."""
        oid = context.random.choice(self.thrown)
        self.thrown.remove(oid)
        item = connection.get(oid)
        for part in (item, item["next"])[: context.random.randrange(1, 3)]:
            part._p_activate()  # a ghost has no serial yet
            connection.readCurrent(part)
        box[f"{context.random.randrange(20)}"] = item

    def _look(self, context: Context) -> None:
        missing = self._missing(context)
        # An old snapshot may refer to objects that are packed away by now; a new one may not.
        if missing and (still := missing & self._missing(context)):
            raise Violation(f"pack: {sorted(oid.hex() for oid in still)} are gone, but referred to")

    def _missing(self, context: Context) -> set[bytes]:
        missing: set[bytes] = set()
        with context.connection() as (connection, manager):
            manager.begin()
            waiting: list[Any] = [connection.root()[f"box{number}"] for number in range(BOXES)]
            while waiting:
                item = waiting.pop()
                try:
                    waiting += [v for v in item.values() if isinstance(v, PersistentMapping)]
                except POSKeyError:
                    missing.add(item._p_oid)
        return missing

    def check(self, context: Context) -> None:
        if missing := self._missing(context):
            raise Violation(f"pack: {sorted(oid.hex() for oid in missing)} are gone at the end")
