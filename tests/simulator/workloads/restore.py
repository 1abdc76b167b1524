"""Copies transactions of another database with ``copyTransactionsFrom``, while others write.

The copied transactions have imposed tids, later than the last one. When others commit meanwhile, these
tids may be too old, and the copy is refused. Records are created, changed, deleted and made equal to
earlier ones, small and big.

Copied oids must differ from those of other writers, whose objects they would overwrite without a
conflict. They are lower than an oid that is in use from the beginning, so that no master gives them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from random import Random
from typing import Any

from ZODB.BaseStorage import DataRecord
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import POSKeyError, StorageError
from ZODB.tests.MinPO import MinPO
from ZODB.tests.StorageTestBase import zodb_pickle

from neo.protocol.ids import ZERO_TID, add64, tid_from_time, time_from_tid, u64
from tests.simulator.workloads.base import Context, Workload
from tests.simulator.world import Violation

OIDS = 6
#: How far the first tid of a copy may be ahead of the last transaction. The distance doubles each time
#: that others were faster, up to so often: among dozens of writers a copy would be overtaken for ever.
AHEAD_SECONDS = (0.0, 0.001, 0.05)
DOUBLED_MAX = 6
#: Distance between two tids of a copy, and before the first one: 7 to 15 ms. An imposed tid is also the
#: ttid of its transaction, and two transactions with one ttid cannot be distinguished. A master whose
#: clock is behind gives ttids that follow the last tid closely, so that the tids of copies keep away.
APART = range(1 << 19, 1 << 20)
#: One more than the transactions of a copy.
MOST = 7
SIZES = (0, 10, 1000, 100_000)


class _Transaction(TransactionMetaData):
    """A transaction as an iterator of another storage returns it."""

    def __init__(self, tid: bytes, records: list[DataRecord]) -> None:
        super().__init__(b"somebody", b"elsewhere", {"copied": True})
        self.tid = tid
        self.status = " "
        self._records = records

    def __iter__(self) -> Iterator[DataRecord]:
        return iter(self._records)


class _Source:
    """The part of another storage that a copy needs."""

    def __init__(self, transactions: list[_Transaction]) -> None:
        self._transactions = transactions

    def iterator(self) -> Iterator[_Transaction]:
        return iter(self._transactions)


class Restore(Workload):
    name = "restore"
    rewindable = True

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.oids: list[bytes] = []
        #: (oid, tid) → data of acknowledged copies.
        self.copied: dict[tuple[bytes, bytes], bytes | None] = {}
        #: Transactions that each thread has not copied yet.
        self._waiting: dict[int, list[_Transaction]] = {}
        #: How many times in a row others were faster, by thread.
        self._overtaken: Counter[int] = Counter()

    def setup(self, context: Context) -> None:
        if self.oids:
            return
        storage: Any = context.storage
        *oids, greatest = sorted(storage.new_oid() for _ in range(OIDS + 1))
        transaction = TransactionMetaData()
        storage.tpc_begin(transaction)
        try:
            storage.store(greatest, ZERO_TID, zodb_pickle(MinPO(0)), "", transaction)
            storage.tpc_vote(transaction)
            storage.tpc_finish(transaction)
        except BaseException:
            storage.tpc_abort(transaction)
            raise
        self.oids = oids

    def step(self, context: Context, thread: int) -> None:
        if self.copied and context.random.random() < 0.3:
            self._look(context)
            return
        storage: Any = context.storage
        # An interrupted copy is continued.
        waiting = self._waiting.get(thread) or self._make(context, thread)
        while waiting:
            self._waiting[thread] = waiting
            some = waiting[: context.random.randrange(1, len(waiting) + 1)]
            try:
                storage.copyTransactionsFrom(_Source(some))
            except StorageError as e:
                if "a copy can only continue a database" not in str(e):
                    raise
                self._waiting[thread] = []  # others were faster, or the copy was committed
                self._overtaken[thread] += 1
                return
            self._overtaken[thread] = 0
            for record in chain.from_iterable(some):
                self.copied[record.oid, record.tid] = record.data
            waiting = waiting[len(some) :]
        self._waiting[thread] = []

    def _make(self, context: Context, thread: int) -> list[_Transaction]:
        """Make transactions with tids that no other thread uses."""
        random = context.random
        ahead = random.choice(AHEAD_SECONDS) * 2 ** min(self._overtaken[thread], DOUBLED_MAX)
        start = time_from_tid(context.storage.lastTransaction()) + ahead
        tid = max(add64(context.storage.lastTransaction(), 1), tid_from_time(start))
        tid = add64(tid, random.choice(APART))
        tid = add64(tid, (thread - u64(tid)) % self.threads)
        made = []
        # Transactions that change different objects are finished in groups (specification 7.68).
        apart = random.random() < 0.5
        for number in range(random.randrange(1, MOST)):
            oids = random.sample(self.oids, random.randrange(1, len(self.oids) + 1))
            if apart:
                oids = [self.oids[number % len(self.oids)]]
            made.append(_Transaction(tid, [self._record(context, oid, tid) for oid in oids]))
            tid = add64(tid, self.threads * (random.choice(APART) // self.threads))
        return made

    def _record(self, context: Context, oid: bytes, tid: bytes) -> DataRecord:
        random = context.random
        earlier = [
            (serial, data) for (known, serial), data in self.copied.items() if known == oid and data
        ]
        choice = random.random()
        if choice < 0.2:
            return DataRecord(oid, tid, None, None)
        if earlier and choice < 0.5:
            serial, data = random.choice(earlier)
            return DataRecord(oid, tid, data, serial)
        value = random.randbytes(random.choice(SIZES)) + bytes(random.choice(SIZES))
        # The origin of the data is a hint, which may be wrong.
        hint = random.choice(earlier)[0] if earlier and choice > 0.9 else None
        return DataRecord(oid, tid, zodb_pickle(MinPO(value)), hint)

    def _look(self, context: Context) -> None:
        oid, tid = context.random.choice(list(self.copied))
        # Another client may have copied the object, and this one may not have heard of it yet.
        context.storage.sync()
        try:
            found = context.storage.loadBefore(oid, add64(tid, 1))
        except POSKeyError:
            return  # deleted at that time, packed away, or truncated
        if found is not None and found[1] == tid and found[0] != self.copied[oid, tid]:
            raise Violation(f"restore: {oid.hex()} at {tid.hex()} has other data than the original")
