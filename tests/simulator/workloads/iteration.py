"""Iteration while others write: over transactions, current records, logs and histories.

Also scans of everything, as pipelines do them.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from ZODB.POSException import POSKeyError
from ZODB.utils import z64

from neo.client.history.scan import Order
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_TID, add64
from tests.simulator.history import Read
from tests.simulator.workloads.base import Context, Workload
from tests.simulator.world import Violation

#: Greatest number of records of a walk, and number of transactions at the end of the log with which an
#: iteration begins.
WALK_MAX = 300
RECENT = 20
#: Greatest number of objects of a transaction whose histories are read, and of revisions of each: every
#: one is a request.
OBJECTS_MAX = 10
REVISIONS_MAX = 30
#: Page sizes of a scan: a page for each revision or two, some pages, one page.
PAGE_BYTES = (1, 1000, 1 << 20)


class Iteration(Workload):
    """Lists transactions and records; the oracle of lists compares them with the tables."""

    name = "iteration"
    threads = 2
    rewindable = True

    def step(self, context: Context, thread: int) -> None:
        context.random.choice((self._iterate, self._scan, self._log, self._walk))(context)

    def writes(self, thread: int) -> bool:
        return False

    def _iterate(self, context: Context) -> None:
        storage: Any = context.storage
        log = storage.undoLog(0, context.random.randrange(1, RECENT))
        tids = [entry["id"] for entry in log]
        start = context.random.choice(tids) if tids else None
        stop = context.random.choice((None, None, *tids))
        last = ZERO_TID
        for transaction in storage.iterator(start, stop):
            if transaction.tid <= last:
                raise Violation(f"iteration: {transaction.tid.hex()} after {last.hex()}")
            last = transaction.tid

    def _scan(self, context: Context) -> None:
        storage: Any = context.storage
        order = context.random.choice(list(Order))
        try:
            storage.scan(order, context.random.choice(PAGE_BYTES))
        except ErrorAnswer as e:
            if e.code is not ErrorCode.TID_NOT_FOUND:
                raise  # otherwise a pack was faster

    def _log(self, context: Context) -> None:
        storage: Any = context.storage
        log = storage.undoLog(0, context.random.choice((1, 3, 100)))
        if not log:
            return
        entry = context.random.choice(log)
        for transaction in storage.iterator(entry["id"], entry["id"]):
            for record in islice(transaction, OBJECTS_MAX):
                self._history(storage, record.oid)

    @staticmethod
    def _history(storage: Any, oid: bytes) -> None:
        bound = add64(storage.lastTransaction(), 1)
        try:
            tids = [entry["tid"] for entry in storage.history(oid, REVISIONS_MAX)]
        except POSKeyError:
            return  # packed away meanwhile
        if tids != sorted(tids, reverse=True):
            raise Violation(f"iteration: history of {oid.hex()} is out of order")
        # Each revision is the last one before the next.
        for tid in tids:
            if tid < bound:
                storage.record(Read("history", oid, bound, tid))
                bound = tid

    def _walk(self, context: Context) -> None:
        storage: Any = context.storage
        seen: set[bytes] = set()
        next_oid: bytes | None = None
        while len(seen) < WALK_MAX:
            try:
                oid, _, _, next_oid = storage.record_iternext(next_oid)
            except POSKeyError:
                break  # nothing is left
            if oid in seen:
                raise Violation(f"iteration: object {oid.hex()} comes twice")
            seen.add(oid)
            if next_oid is None:
                break
        if z64 not in seen and len(seen) < WALK_MAX:
            raise Violation("iteration: the root is not among the current records")
