"""Scans of the whole database, partition by partition: for pipelines, not for applications.

Storage nodes that know AskRevisions answer with pages. For other nodes, each revision is requested with
the messages of protocol version 1. If a node is lost, the scan continues on another node after the last
revision that it got. So it yields each revision exactly once.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from hashlib import sha1
from itertools import islice, takewhile
from typing import NamedTuple, Protocol, TypeGuard, TypeVar

from neo.client.connect.master import Partition
from neo.client.errors import CorruptedError
from neo.client.history.transactions import (
    BATCH,
    batches,
    tids_ascending,
    tids_of,
    transaction_information,
)
from neo.client.read.records import inflate
from neo.client.read.replicas import WINDOW, Question, Replicas, forget
from neo.protocol.blobs import without_content
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import MAX_TID, ZERO_TID, add64, p64, u64
from neo.protocol.packets import (
    FEATURE_OURS,
    AnswerObject,
    AnswerRevisions,
    AnswerTransactionInformation,
    AskObject,
    AskRevisions,
    Message,
    RevisionRow,
)

#: Size of a page: few round trips, and some milliseconds of a storage node's time.
PAGE_BYTES = 1 << 20
#: Values that are larger, uncompressed, are left out with an error.
VALUE_BYTES = 32 << 20
#: Uncompressed data of a page that a reader has in memory at once; more if one value is larger.
PORTION_BYTES = 4 << 20
#: [least, greatest] of all tids and oids.
ALL = (0, 2**63 - 1)

Item = TypeVar("Item")


def portions(items: Iterable[Item], size_of: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Yield lists of items of PORTION_BYTES together, or of one larger item. Lazy."""
    portion: list[Item] = []
    left = PORTION_BYTES
    for item in items:
        size = size_of(item)
        left -= size
        if left < 0 and portion:
            yield portion
            portion, left = [], PORTION_BYTES - size
        portion.append(item)
    if portion:
        yield portion


class Order(Enum):
    """SNAPSHOT: the last revision of each object, by oid. HISTORY: all revisions, by (oid, tid). CHANGES:
    all revisions, by (tid, oid)."""

    SNAPSHOT = 0
    HISTORY = 1
    CHANGES = 2


class Revision(NamedTuple):
    """A revision. ``size``: bytes of the record as stored; if data was requested, uncompressed and
    without a reference to a content. ``error``: why the requested data is missing."""

    oid: int
    tid: int
    deleted: bool
    size: int
    data: bytes | None
    error: str | None


@dataclass(frozen=True)
class Range:
    """Revisions to read: tids from ``first`` to ``last``, both included; ``oids``: [least, greatest],
    only if the order is by oid."""

    order: Order
    last: bytes
    first: bytes = ZERO_TID
    oids: tuple[int, int] = ALL
    data: bool = True
    page_bytes: int = PAGE_BYTES
    value_bytes: int = VALUE_BYTES


class Opened(Protocol):
    """An open storage."""

    @property
    def replicas(self) -> Replicas: ...


class Scanner:
    """Scans through an open storage. Thread-safe."""

    def __init__(self, storage: Opened, partitions: int | None = None) -> None:
        """``partitions``: the number with which the scan was planned; None for the current number. When
        there is another number, methods raise RegroupedError."""
        self._replicas = storage.replicas
        self._pages = self._replicas.feature(FEATURE_OURS)
        self.partitions = len(self._replicas.view().readable) if partitions is None else partitions

    def _counted(self, partition: int) -> Partition:
        return Partition(partition, self.partitions)

    def last_tid(self) -> bytes:
        """Return the last finished transaction; later ones may still be locked on some node."""
        self._replicas.barrier()
        return self._replicas.last_tid

    # -- packs -------------------------------------------------------------------------------------

    def packed(self) -> int:
        """Return the tid of the last pack, done or running; 0 if there was none, or if storage nodes
        do not know pages and so cannot tell."""
        tid, last = 0, u64(self.last_tid())
        for partition in range(self.partitions):
            if not self._is_whole(partition, tid):
                whole = partial(self._is_whole, partition)
                tid = bisect_left(range(last), True, lo=tid, key=whole)
        return tid

    def _is_whole(self, partition: int, tid: int) -> bool:
        try:
            self.check_packed(partition, tid)
        except ErrorAnswer as e:
            if e.code is not ErrorCode.TID_NOT_FOUND:
                raise
            return False
        return True

    def check_packed(self, partition: int, tid: int) -> None:
        """Raise ErrorAnswer TID_NOT_FOUND if there is a pack later than ``tid``.

        A pack announces its tid before it removes revisions, so a check after reading detects it.
        """
        if self._pages.known(self._counted(partition)):
            message = AskRevisions(
                partition=partition,
                order=Order.SNAPSHOT.value,
                min_tid=ZERO_TID,
                max_tid=p64(tid),
                after=(MAX_TID, MAX_TID),
                max_bytes=1,
                data=False,
            )
            self._replicas.read(self._counted(partition), message)

    # -- revisions ---------------------------------------------------------------------------------

    def revisions(self, partition: int, what: Range) -> Iterator[list[Revision]]:
        """Yield the revisions of one partition, in pages that are uncompressed lazily.

        Raise the errors of Replicas.read(); ErrorAnswer TID_NOT_FOUND if a pack later than the last tid,
        or later than the first tid, removed some. A first tid of 0 means all that packs have left.
        """
        least, greatest = what.oids
        if what.first > what.last or least > greatest:
            return
        after = None if least <= 0 else (p64(least - 1), MAX_TID)
        asked = self._ask(partition, what, after)
        while asked is not None:
            message, question = asked
            answer = self._replicas.collect(self._counted(partition), message, question)
            rows = answer.revision_list
            if rows:
                after = rows[-1][0], rows[-1][1]
            wanted = list(takewhile(lambda row: u64(row[0]) <= greatest, rows))
            page = portions(self._page(wanted, what), _data_size)
            if not answer.more or len(wanted) < len(rows):
                yield from page
                return
            # Request the next page, which the node reads while the caller uses this one.
            asked = self._ask(partition, what, after)
            try:
                yield from page
            except BaseException:
                if asked is not None:
                    forget(asked[1])
                raise
        yield from self._without_pages(partition, what, after)

    def _ask(
        self, partition: int, what: Range, after: tuple[bytes, bytes] | None
    ) -> tuple[AskRevisions, Question[AnswerRevisions]] | None:
        """Request a page. Return None if a node of the partition does not know pages."""
        if not self._pages.known(self._counted(partition)):
            return None
        message = AskRevisions(
            partition, what.order.value, what.first, what.last, after, what.page_bytes, what.data
        )
        return message, self._replicas.ask(self._counted(partition), message)

    def _page(self, rows: Sequence[RevisionRow], what: Range) -> Iterator[Revision]:
        limit = what.value_bytes
        for oid, tid, compression, checksum, size, data, _ in rows:
            if not what.data:
                yield Revision(u64(oid), u64(tid), compression is None, size, None, None)
            elif compression is None:
                yield Revision(u64(oid), u64(tid), True, 0, None, None)
            elif data is None or sha1(data).digest() != checksum:
                yield self._elsewhere(oid, tid, what)
            else:
                yield Revision(u64(oid), u64(tid), False, *_value(compression, data, limit))

    def _elsewhere(self, oid: bytes, tid: bytes, what: Range) -> Revision:
        """Read a revision that is damaged in a page; a replica may have sound data."""
        try:
            answer = self._replicas.read(oid, AskObject(oid, tid, None))
        except CorruptedError as e:
            return Revision(u64(oid), u64(tid), False, 0, None, str(e))
        return _from_object(answer, what)

    @property
    def paged(self) -> bool:
        """Whether all partitions can be read in pages."""
        return all(self._pages.known(self._counted(number)) for number in range(self.partitions))

    def objects(self, partition: int, oids: Iterable[int], what: Range) -> Iterator[list[Revision]]:
        """Yield the last revision of some objects of a partition, up to ``what.last``, by oid.

        Raise the errors of revisions().
        """
        asked = (AskObject(p64(oid), None, add64(what.last, 1)) for oid in sorted(oids))
        yield from self._in_windows(asked, what)
        self.check_packed(partition, u64(what.last))

    # -- without pages -----------------------------------------------------------------------------

    def _without_pages(
        self, partition: int, what: Range, after: tuple[bytes, bytes] | None
    ) -> Iterator[list[Revision]]:
        """Yield revisions with one request each. Needs about 100 bytes of memory for each revision of the
        partition, or for each object of a snapshot.

        A deleted object whose revisions were all packed away is missing from a snapshot without an error,
        because it looks like an object that did not exist.
        """
        least, greatest = what.oids
        names = {
            _name(what.order, *key)
            for key in self._ids(partition, what)
            if least <= u64(key[0]) <= greatest
        }
        start = b"" if after is None else _name(what.order, *after)
        ordered = sorted(name for name in names if name > start)
        del names
        asked = (_asked(name, what) for name in ordered)
        yield from self._in_windows(asked, what, what.order is Order.SNAPSHOT)

    def _in_windows(
        self, asked: Iterator[AskObject], what: Range, known: bool = False
    ) -> Iterator[list[Revision]]:
        """Yield the answers to requests, in windows whose length follows the size of the last one.

        ``known``: the objects are named by transactions up to the last one, so they must exist.
        """
        count = 1
        while window := list(islice(asked, count)):
            answers = self._replicas.read_many([(message.oid, message) for message in window])
            found = [answer for answer in answers if _is_object(answer, known)]
            yield from portions((_from_object(answer, what) for answer in found), _data_size)
            half_full = 2 * sum(len(answer.data) for answer in found) > what.page_bytes
            count = max(1, count // 2) if half_full else min(2 * count, WINDOW)

    def _ids(self, partition: int, what: Range) -> Iterator[tuple[bytes, bytes]]:
        first = ZERO_TID if what.order is Order.SNAPSHOT else what.first
        for tids in batches(tids_ascending(self._replicas, first, what.last), BATCH):
            for found in transaction_information(self._replicas, tids):
                if found is not None:
                    for oid in found.oid_list:
                        if u64(oid) % self.partitions == partition:
                            yield oid, found.tid

    # -- transactions ------------------------------------------------------------------------------

    def transactions(
        self, partition: int, first: bytes = ZERO_TID, last: bytes = MAX_TID
    ) -> Iterator[list[AnswerTransactionInformation]]:
        """Yield metadata of the transactions whose tids are in a partition, ascending."""
        tids = tids_of(self._replicas, first, last, [self._counted(partition)])
        for page in batches(tids, WINDOW):
            found = transaction_information(self._replicas, page)
            yield [transaction for transaction in found if transaction is not None]

    def in_order(self, first: bytes, last: bytes) -> Iterator[AnswerTransactionInformation]:
        """Yield metadata of all transactions from ``first`` to ``last``, by tid."""
        for page in batches(tids_ascending(self._replicas, first, last), BATCH):
            for transaction in transaction_information(self._replicas, page):
                if transaction is not None:
                    yield transaction


def _name(order: Order, oid: bytes, tid: bytes) -> bytes:
    """Return a key of a revision that sorts in the given order. For a snapshot it is the oid alone.

    A transaction also lists objects that it only checked, so its tid need not be the serial of an object.
    """
    if order is Order.SNAPSHOT:
        return oid
    return oid + tid if order is Order.HISTORY else tid + oid


def _asked(name: bytes, what: Range) -> AskObject:
    """Return the request for the revision with a key of _name()."""
    first, second = name[:8], name[8:]
    if what.order is Order.SNAPSHOT:
        return AskObject(first, None, add64(what.last, 1))
    oid, tid = (first, second) if what.order is Order.HISTORY else (second, first)
    return AskObject(oid, tid, None)


def _is_object(answer: Message | ErrorAnswer, known: bool) -> TypeGuard[AnswerObject]:
    """Return whether an answer is a revision. It is not if the revision was packed, or only checked.

    Raise other errors. ``known``: the object existed; raise ErrorAnswer TID_NOT_FOUND if all its
    revisions up to the requested tid are gone.
    """
    if not isinstance(answer, ErrorAnswer):
        return True
    if known and answer.code is ErrorCode.OID_NOT_FOUND:
        raise ErrorAnswer(
            ErrorCode.TID_NOT_FOUND,
            f"the revision of object {answer.message} is gone: the database was packed",
        )
    if answer.code not in (ErrorCode.OID_NOT_FOUND, ErrorCode.OID_DOES_NOT_EXIST):
        raise answer
    return False


def _from_object(answer: AnswerObject, what: Range) -> Revision:
    if answer.compression is None:
        return Revision(u64(answer.oid), u64(answer.serial), True, 0, None, None)
    if not what.data:
        size = len(answer.data)
        return Revision(u64(answer.oid), u64(answer.serial), False, size, None, None)
    value = _value(answer.compression, answer.data, what.value_bytes)
    return Revision(u64(answer.oid), u64(answer.serial), False, *value)


def _data_size(revision: Revision) -> int:
    return 0 if revision.data is None else len(revision.data)


def _value(compression: int, data: bytes, limit: int) -> tuple[int, bytes | None, str | None]:
    """Return (size, value, error) of a record as the application stored it: uncompressed, without the
    reference to a content; without the value if it is too large."""
    value: bytes | None
    if compression:
        try:
            size, value = inflate(data, limit)
        except zlib.error as e:
            return len(data), None, f"cannot be decompressed: {e}"
    else:
        value = without_content(data)
        size = len(value)
    if size > limit:
        return size, None, f"the record of {size} bytes is larger than {limit}"
    return size, value, None
