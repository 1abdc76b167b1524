"""Iteration over transactions and over current records, in batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol

from ZODB.BaseStorage import DataRecord, TransactionRecord
from ZODB.POSException import POSKeyError
from ZODB.utils import maxtid

from neo.client.connect.master import Partition
from neo.client.errors import RegroupedError, refused
from neo.client.history.transactions import BATCH, batches, tids_ascending, transaction_information
from neo.client.read.records import data_of
from neo.client.read.replicas import WINDOW, Replicas
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import MAX_TID, ZERO_OID, ZERO_TID, add64, u64
from neo.protocol.packets import (
    FEATURE_OURS,
    AnswerObject,
    AnswerTransactionInformation,
    AskObject,
    AskOIDs,
)

#: Read-ahead takes at most one part in this many of the cache, so that the application's objects stay.
CACHE_PART = 8
#: Objects of several transactions are read together up to this much data. It is estimated from the
#: objects read before, because sizes are not known.
BATCH_BYTES = 16 * 1024 * 1024


class Transactions(Iterator["NEOTransaction"]):
    """The result of iterator(): transactions from ``start`` to ``stop``, both included."""

    def __init__(self, replicas: Replicas, start: bytes | None, stop: bytes | None) -> None:
        # Later transactions are left out, but none that another client knows to be committed.
        if stop is None or stop > replicas.last_tid:
            replicas.barrier()
        last_tid = replicas.last_tid
        stop = last_tid if stop is None else min(stop, last_tid)
        self._reader = Reader(replicas)
        self._transactions = self._read(replicas, start or ZERO_TID, stop)

    def __next__(self) -> NEOTransaction:
        return next(self._transactions)

    def close(self) -> None:
        self._transactions = iter(())

    def _read(self, replicas: Replicas, start: bytes, stop: bytes) -> Iterator[NEOTransaction]:
        for tids in batches(tids_ascending(replicas, start, stop), BATCH):
            found = [t for t in transaction_information(replicas, tids) if t is not None]
            while found:
                # Take transactions until their objects fill a batch.
                count, objects = 0, 0
                room = self._reader.room()
                while count < len(found) and (not count or objects <= room):
                    objects += len(found[count].oid_list)
                    count += 1
                yield from self._reader.transactions(found[:count], objects <= room)
                del found[:count]


class Reader:
    """Reads records in batches; their length follows the sizes of the records read before."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._largest = 1

    def room(self) -> int:
        """Return how many objects may be read at once."""
        return max(1, min(WINDOW, BATCH_BYTES // self._largest))

    def transactions(
        self, found: Sequence[AnswerTransactionInformation], together: bool
    ) -> Iterator[NEOTransaction]:
        if not together:
            for information in found:
                yield NEOTransaction(self, information, None)
            return
        wanted = [(oid, t.tid) for t in found for oid in t.oid_list]
        answers = iter(self.read(wanted))
        for t in found:
            yield NEOTransaction(self, t, [next(answers) for _ in t.oid_list])

    def read(self, wanted: Sequence[tuple[bytes, bytes]]) -> list[AnswerObject | None]:
        """Return revisions (oid, tid); None for each that was packed, or only checked."""
        answers = self._replicas.read_many([(oid, AskObject(oid, tid, None)) for oid, tid in wanted])
        return [self.known(answer) for answer in answers]

    def known(self, answer: AnswerObject | ErrorAnswer) -> AnswerObject | None:
        if isinstance(answer, ErrorAnswer):
            if answer.code in (ErrorCode.OID_NOT_FOUND, ErrorCode.OID_DOES_NOT_EXIST):
                return None
            raise refused("records of a transaction", answer)
        self._largest = max(len(answer.data), self._largest * 99 // 100, 1)
        return answer


class NEOTransaction(TransactionRecord):
    """A transaction of the iterator. It may be iterated over several times, and yields its records."""

    def __init__(
        self,
        reader: Reader,
        information: AnswerTransactionInformation,
        answers: list[AnswerObject | None] | None,
    ) -> None:
        t = information
        super().__init__(t.tid, "p" if t.packed else " ", t.user, t.description, t.extension)
        self._reader = reader
        self._oids = t.oid_list
        self._answers = answers

    def __iter__(self) -> Iterator[Any]:
        if self._answers is not None:
            yield from self._records(self._answers)
            return
        start = 0
        while start < len(self._oids):
            oids = self._oids[start : start + self._reader.room()]
            yield from self._records(self._reader.read([(oid, self.tid) for oid in oids]))
            start += len(oids)

    def _records(self, answers: Sequence[AnswerObject | None]) -> Iterator[Any]:
        for answer in answers:
            if answer is not None:
                yield DataRecord(answer.oid, self.tid, data_of(answer), answer.data_serial)


class Objects:
    """All oids with a current revision, by partition, in order.

    For nodes that do not know AskOIDs, oids are collected from the metadata of transactions, which needs
    memory for the oids of one partition.
    """

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._walked: tuple[Partition, list[bytes]] | None = None
        self._feature = replicas.feature(FEATURE_OURS)

    def page(self, partition: Partition, min_oid: bytes, length: int) -> list[bytes]:
        """Return at most ``length`` oids of a partition from ``min_oid``. Raise RegroupedError."""
        if self._feature.known(partition):
            try:
                answer = self._replicas.read(partition, AskOIDs(partition.number, min_oid, length))
            except ErrorAnswer as e:
                raise refused(f"list of objects of partition {partition.number}", e) from None
            return answer.oid_list
        if self._walked is None or self._walked[0] != partition:
            self._walked = partition, self._walk(partition)
        oids = self._walked[1]
        return [oid for oid in oids if oid >= min_oid][:length]

    def _walk(self, partition: Partition) -> list[bytes]:
        oids: set[bytes] = set()
        for tids in batches(tids_ascending(self._replicas, ZERO_TID, MAX_TID), BATCH):
            for t in transaction_information(self._replicas, tids):
                if t is not None:
                    oids.update(
                        oid
                        for oid in t.oid_list
                        if u64(oid) % partition.partitions == partition.number
                    )
        return sorted(oids)

    def after(self, oid: bytes | None) -> Iterator[bytes]:
        """Yield oids from ``oid`` (None: all) in the order of (partition, oid). If the number of
        partitions changes, the remaining oids follow in the new order."""
        #: The last oid that was yielded from each order.
        done: list[tuple[int, bytes]] = []
        start = oid
        while True:
            count, last = len(self._replicas.view().readable), None
            try:
                for found in self._ordered(count, start):
                    if not any(_reached(found, *reached) for reached in done):
                        yield found
                    last = found
                return
            except RegroupedError:
                if last is not None:
                    done.append((count, last))
                start = None

    def _ordered(self, count: int, oid: bytes | None) -> Iterator[bytes]:
        """Yield oids from ``oid`` in the order of this number of partitions. Raise RegroupedError."""
        first = 0 if oid is None else u64(oid) % count
        for number in range(first, count):
            start = ZERO_OID if oid is None or number > first else oid
            while page := self.page(Partition(number, count), start, WINDOW):
                yield from page
                start = add64(page[-1], 1)


def _reached(oid: bytes, count: int, last: bytes) -> bool:
    """Return whether an oid is not after another one in the order of this number of partitions."""
    return (u64(oid) % count, oid) <= (u64(last) % count, last)


class _Storage(Protocol):
    def loadBefore(self, oid: bytes, tid: bytes) -> tuple[bytes, bytes, bytes | None] | None: ...

    def prefetch(self, oids: Iterable[bytes], tid: bytes) -> None: ...


class Walk:
    """An iteration over ``oids``, by one thread at a time. ``cache_size``: bytes.

    An object that changes after it was read ahead is read again, because the cache is invalidated.
    """

    def __init__(self, storage: _Storage, oids: Iterator[bytes], cache_size: int) -> None:
        self._storage = storage
        self._oids = oids
        self._room = cache_size // CACHE_PART
        self._ahead: deque[bytes] = deque()
        self._count = 1  # objects of the last portion; grows slowly, since sizes are not known
        self._largest = 1

    def next(self) -> bytes | None:
        """Return the oid of the next record; None at the end."""
        if not self._ahead:
            self._count = max(1, min(2 * self._count, WINDOW, self._room // self._largest))
            self._ahead.extend(islice(self._oids, self._count))
            if len(self._ahead) > 1:
                self._storage.prefetch(self._ahead, maxtid)
        return self._ahead[0] if self._ahead else None

    def take(self) -> tuple[bytes, bytes, bytes] | None:
        """Return the next record as (oid, serial, data); None at the end."""
        while self.next() is not None:
            oid = self._ahead.popleft()
            try:
                found = self._storage.loadBefore(oid, maxtid)
            except POSKeyError:
                continue  # deleted since its oid was listed
            if found is not None:
                self._largest = max(self._largest * 99 // 100, len(found[0]), 1)
                return oid, found[1], found[0]
        return None
