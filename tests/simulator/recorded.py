"""The storage of a simulated client, with a recorder of calls and answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ZODB.POSException import POSKeyError
from ZODB.utils import maxtid
from zope.interface import directlyProvides, providedBy

from neo.client.commit.importing import Import
from neo.client.errors import TransactionLostError
from neo.client.history.scan import Order, Range, Revision, Scanner
from neo.protocol.ids import ZERO_TID, add64, p64
from tests.simulator.content_volume import checksum_of
from tests.simulator.history import Attempt, History, Listing, Outcome, Read, Snapshot
from tests.simulator.tables import digest

#: Greatest number of objects per partition of a snapshot that are sought by oid: each is a request.
SOUGHT_MAX = 50


def file_checksum(path: str) -> str:
    """Return the hexadecimal checksum of a file's content."""
    return checksum_of(Path(path).read_bytes())


class Recorded:
    """A storage that records its calls by ZODB or an application. ``client()`` returns the name of the
    thread. ``voted`` is called by the thread between tpc_vote and tpc_finish."""

    def __init__(
        self,
        storage: Any,
        history: History,
        client: Callable[[], str],
        voted: Callable[[], None] = lambda: None,
        copies: Callable[[], None] = lambda: None,
    ) -> None:
        """``copies`` is called before each copy, ``voted`` after each vote."""
        self._storage = storage
        self._voted = voted
        self._copies = copies
        self._history = history
        self._client = client
        self._attempts: dict[Any, Attempt] = {}
        self._last_tid = ZERO_TID
        #: Oids that this client got. It gives none of them twice, whatever masters do.
        self._oids: set[bytes] = set()
        directlyProvides(self, providedBy(storage))

    @property
    def unrecorded(self) -> Any:
        return self._storage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def __len__(self) -> int:
        return len(self._storage)

    def is_void(self, before: bytes) -> bool:
        """Return whether the last transaction of this snapshot was truncated."""
        return self._history.void(add64(before, -1))

    def record(self, read: Read) -> None:
        """Record a read that did not pass through this object."""
        self._history.reads.append(replace(read, client=self._client()))

    # -- what a transaction sees -------------------------------------------------------------------

    def lastTransaction(self) -> bytes:
        tid: bytes = self._storage.lastTransaction()
        if tid < self._last_tid and not self._history.void(self._last_tid):
            raise self._history.violated(
                f"{self._client()}: lastTransaction went back from {self._last_tid.hex()} to"
                f" {tid.hex()}"
            )
        self._last_tid = tid
        self._history.told(tid)
        return tid

    def sync(self, force: bool = True) -> None:
        told, voids = self._history.told_tid, len(self._history.voids)
        self._storage.sync(force)
        if len(self._history.voids) == voids and force and self.lastTransaction() < told:
            raise self._history.violated(
                f"{self._client()} synced and is at {self._last_tid.hex()}, but {told.hex()} was"
                " known to a client before"
            )

    def _seen(self, oid: bytes, serial: bytes, data: bytes | None) -> None:
        self._history.seen(self._client(), oid, serial, digest(data))

    def loadSerial(self, oid: bytes, serial: bytes) -> bytes:
        data: bytes = self._storage.loadSerial(oid, serial)
        self._seen(oid, serial, data)
        return data

    def load(self, oid: bytes, version: str = "") -> tuple[bytes, bytes]:
        found: tuple[bytes, bytes] = self._storage.load(oid, version)
        self._seen(oid, found[1], found[0])
        return found

    def record_iternext(
        self, next: bytes | None = None
    ) -> tuple[bytes, bytes, bytes, bytes | None]:
        found: tuple[bytes, bytes, bytes, bytes | None] = self._storage.record_iternext(next)
        oid, serial, data, _ = found
        self._seen(oid, serial, data)
        # The answer to a read before a truncation may come after it.
        if serial > self.lastTransaction() and not self._history.void(serial):
            raise self._history.violated(
                f"{self._client()}: object {oid.hex()} comes from the future, {serial.hex()}"
            )
        return found

    def loadBefore(self, oid: bytes, tid: bytes) -> tuple[bytes, bytes, bytes | None] | None:
        try:
            found: tuple[bytes, bytes, bytes | None] | None = self._storage.loadBefore(oid, tid)
        except POSKeyError:
            if tid != maxtid:
                self._history.reads.append(Read(self._client(), oid, tid, None, missing=True))
            raise
        # The current revision may change while it is read.
        if tid != maxtid:
            _, serial, next_serial = found or (b"", None, None)
            self._history.reads.append(Read(self._client(), oid, tid, serial, next_serial))
        if found is not None:
            self._seen(oid, found[1], found[0])
        return found

    def loadBlob(self, oid: bytes, serial: bytes) -> str:
        path: str = self._storage.loadBlob(oid, serial)
        # No other thread runs before this is read.
        self._history.seen_blob(self._client(), oid, serial, file_checksum(path))
        return path

    def openCommittedBlobFile(self, oid: bytes, serial: bytes, blob: Any = None) -> Any:
        file = self._storage.openCommittedBlobFile(oid, serial, blob)
        self._history.seen_blob(self._client(), oid, serial, checksum_of(file.read()))
        file.seek(0)
        return file

    def iterator(self, start: bytes | None = None, stop: bytes | None = None) -> Iterator[Any]:
        """Return an iterator, which is recorded when it is exhausted."""
        last = self.lastTransaction() if stop is None else min(stop, self.lastTransaction())
        found: dict[bytes, frozenset[bytes] | None] = {}
        voids = len(self._history.voids)
        for transaction in self._storage.iterator(start, stop):
            records = frozenset(map(self._record, transaction))
            # Transactions that are committed while the iterator is created may be listed or not.
            if transaction.tid <= last:
                found[transaction.tid] = records
            yield transaction
        self._list(start or ZERO_TID, last, found, voids)

    def _record(self, record: Any) -> bytes:
        """Record a revision from an iterator. Return its oid."""
        self._seen(record.oid, record.tid, record.data)
        oid: bytes = record.oid
        return oid

    def undoLog(self, first: int = 0, last: int = -20, filter: Any = None) -> list[Any]:
        newest, voids = self.lastTransaction(), len(self._history.voids)
        log: list[Any] = self._storage.undoLog(first, last, filter)
        if log and first == 0 and filter is None:
            found = dict.fromkeys(entry["id"] for entry in log if entry["id"] <= newest)
            if found:
                self._list(min(found), newest, found, voids)
        return log

    def _list(
        self,
        first: bytes,
        last: bytes,
        found: dict[bytes, frozenset[bytes] | None],
        voids: int,
    ) -> None:
        """Record a list, unless a truncation came between."""
        if len(self._history.voids) == voids:
            self._history.listings.append(Listing(self._client(), first, last, found))

    # -- what a pipeline sees ------------------------------------------------------------------------

    def scan(self, order: Order, page_bytes: int) -> None:
        """Read everything up to now, as pipelines do. Raise ErrorAnswer TID_NOT_FOUND if a pack removed
        some of it meanwhile."""
        scanner = Scanner(self._storage)
        voids = len(self._history.voids)
        last = scanner.last_tid()
        revisions = list(self._revisions(scanner, Range(order, last, page_bytes=page_bytes)))
        if order is not Order.SNAPSHOT:
            found = {t.tid: set[bytes]() for t in scanner.in_order(ZERO_TID, last)}
            for revision in revisions:
                found.setdefault(p64(revision.tid), set()).add(p64(revision.oid))
            listed: dict[bytes, frozenset[bytes] | None] = {
                tid: frozenset(found[tid]) for tid in sorted(found)
            }
            self._list(ZERO_TID, last, listed, voids)
        elif len(self._history.voids) == voids:
            bound = add64(last, 1)
            for revision in revisions:
                self.record(Read("", p64(revision.oid), bound, p64(revision.tid)))
            oids = frozenset(p64(revision.oid) for revision in revisions)
            self._history.snapshots.append(Snapshot(self._client(), last, oids))

    def _revisions(self, scanner: Scanner, what: Range) -> Iterator[Revision]:
        for partition in range(scanner.partitions):
            last = (-1, -1)
            some: list[Revision] = []
            voids = len(self._history.voids)
            for page in scanner.revisions(partition, what):
                some += page[: SOUGHT_MAX - len(some)]
                for revision in page:
                    place = revision[:2] if what.order is not Order.CHANGES else revision[1::-1]
                    if place <= last:
                        raise self._history.violated(f"{self._client()} read {place} after {last}")
                    last = place
                    self._seen(p64(revision.oid), p64(revision.tid), revision.data)
                    yield revision
            if what.order is Order.SNAPSHOT and len(self._history.voids) == voids:
                self._seek(scanner, partition, some, what)

    def _seek(
        self, scanner: Scanner, partition: int, expected: list[Revision], what: Range
    ) -> None:
        """Check that objects of a snapshot that are sought by oid are the same again. Deleted objects
        may be missing, because of a pack up to the snapshot."""
        voids = len(self._history.voids)
        oids = [revision.oid for revision in expected]
        found = {r for page in scanner.objects(partition, oids, what) for r in page}
        other = sorted(r[:2] for r in found.symmetric_difference(expected) if not r.deleted)
        if other and len(self._history.voids) == voids:
            raise self._history.violated(
                f"{self._client()} finds other objects by oid than in the pages of partition {partition}"
                f" up to {what.last.hex()}: {other}"
            )

    # -- transactions ------------------------------------------------------------------------------

    def new_oid(self) -> bytes:
        oid: bytes = self._storage.new_oid()
        if oid in self._oids:
            raise self._history.violated(f"{self._client()} is given oid {oid.hex()} twice")
        self._oids.add(oid)
        self._history.given(self._client(), oid)
        return oid

    def tpc_begin(self, transaction: Any, tid: bytes | None = None, status: str = " ") -> None:
        attempt = self._history.begin(self._client())
        attempt.imposed = tid
        transaction.description = attempt.mark
        self._attempts[transaction] = attempt
        self._storage.tpc_begin(transaction, tid, status)

    def store(self, oid: bytes, serial: bytes, data: bytes, version: str, transaction: Any) -> None:
        self._attempts[transaction].stored[oid] = serial or ZERO_TID
        self._attempts[transaction].contents[oid] = digest(data)
        self._attempts[transaction].blobs.pop(oid, None)
        self._storage.store(oid, serial, data, version, transaction)

    def storeBlob(
        self,
        oid: bytes,
        oldserial: bytes,
        data: bytes,
        blobfilename: str,
        version: str,
        transaction: Any,
    ) -> None:
        self._attempts[transaction].stored[oid] = oldserial or ZERO_TID
        self._attempts[transaction].contents[oid] = digest(data)
        # The storage takes the file away.
        self._attempts[transaction].blobs[oid] = file_checksum(blobfilename)
        self._storage.storeBlob(oid, oldserial, data, blobfilename, version, transaction)

    def restoreBlob(
        self,
        oid: bytes,
        serial: bytes,
        data: bytes,
        blobfilename: str,
        prev_txn: bytes | None,
        transaction: Any,
    ) -> None:
        self._attempts[transaction].stored[oid] = None
        self._attempts[transaction].contents[oid] = digest(data)
        self._attempts[transaction].blobs[oid] = file_checksum(blobfilename)
        self._storage.restoreBlob(oid, serial, data, blobfilename, prev_txn, transaction)

    def deleteObject(self, oid: bytes, serial: bytes, transaction: Any) -> None:
        self._attempts[transaction].stored[oid] = serial
        self._attempts[transaction].contents[oid] = None
        self._attempts[transaction].blobs.pop(oid, None)
        self._storage.deleteObject(oid, serial, transaction)

    def restore(
        self,
        oid: bytes,
        serial: bytes,
        data: bytes | None,
        version: str,
        prev_txn: bytes | None,
        transaction: Any,
    ) -> None:
        self._attempts[transaction].stored[oid] = None
        self._attempts[transaction].contents[oid] = digest(data)
        self._attempts[transaction].blobs.pop(oid, None)
        self._storage.restore(oid, serial, data, version, prev_txn, transaction)

    def copyTransactionsFrom(self, other: Any) -> None:
        """Copy transactions; all calls that this makes are recorded."""
        type(self._storage).copyTransactionsFrom(self, other)

    def importing(self) -> Import:
        self._copies()
        return Import(_Chain(self), self._storage._session.settings.unanswered_max)

    def checkCurrentSerialInTransaction(self, oid: bytes, serial: bytes, transaction: Any) -> None:
        self._attempts[transaction].checked[oid] = serial
        self._storage.checkCurrentSerialInTransaction(oid, serial, transaction)

    def undo(self, transaction_id: bytes, transaction: Any) -> Any:
        result = self._storage.undo(transaction_id, transaction)
        self._resolved(transaction, result[1] if result else ())
        return result

    def tpc_vote(self, transaction: Any) -> Any:
        resolved = self._storage.tpc_vote(transaction)
        self._resolved(transaction, resolved or ())
        self._voted()
        return resolved

    def _resolved(self, transaction: Any, oids: Iterable[bytes]) -> None:
        """Record that the storage resolved the conflicts of these objects."""
        attempt = self._attempts[transaction]
        for oid in oids:
            attempt.stored[oid] = None
            attempt.contents.pop(oid, None)
            attempt.blobs.pop(oid, None)

    def chain(self, transactions: Sequence[Any]) -> bool:
        return self._storage.chain(transactions)

    def ask_finish(self, transaction: Any, follows: Attempt | None = None) -> Attempt:
        """``follows``: the transaction before it in a copy."""
        attempt = self._attempts[transaction]
        attempt.follows = follows
        self._finishing(attempt)
        self._storage.ask_finish(transaction)
        return attempt

    def _finishing(self, attempt: Attempt) -> None:
        """Record that the transaction may be committed from now on."""
        if attempt.outcome is Outcome.BEGUN:
            attempt.outcome = Outcome.FINISHING
            attempt.after = self._history.told_tid
            attempt.era = len(self._history.voids)

    def tpc_finish(self, transaction: Any, callback: Any = lambda tid: None) -> bytes:
        self._finishing(self._attempts[transaction])
        attempt = self._attempts.pop(transaction)
        try:
            tid: bytes = self._storage.tpc_finish(transaction, callback)
        except TransactionLostError:
            # The client knows that the transaction is not committed.
            attempt.outcome = Outcome.ABORTED
            raise
        self._history.committed(attempt, tid)
        return tid

    def tpc_abort(self, transaction: Any) -> None:
        attempt = self._attempts.pop(transaction, None)
        if attempt is not None and attempt.outcome is Outcome.BEGUN:
            attempt.outcome = Outcome.ABORTED
        self._storage.tpc_abort(transaction)

    # -- prepared transactions ---------------------------------------------------------------------

    def tpc_prepare(self, transaction: Any, xid: bytes) -> None:
        """Prepare a transaction. From the call on, any client may commit it."""
        attempt = self._attempts[transaction]
        attempt.outcome = Outcome.FINISHING
        attempt.after = self._history.told_tid
        attempt.era = len(self._history.voids)
        self._history.prepared[xid] = attempt
        refused = xid in self._history.rolled_back
        self._storage.tpc_prepare(transaction, xid)
        if refused:
            raise self._history.violated(f"{xid!r} was rolled back, then prepared")

    def commit_prepared(self, xid: bytes) -> bytes:
        tid: bytes = self._storage.commit_prepared(xid)
        attempt = self._history.prepared.get(xid)
        if attempt is None:
            raise self._history.violated(f"{xid!r} was committed, but never prepared")
        if attempt.outcome is Outcome.ABORTED:
            raise self._history.violated(f"{attempt.mark} was rolled back, then committed")
        if attempt.outcome is not Outcome.COMMITTED:
            self._history.committed(attempt, tid)
        elif attempt.tid != tid:
            raise self._history.violated(f"{attempt.mark} was committed twice: {tid.hex()}")
        return tid

    def rollback_prepared(self, xid: bytes) -> None:
        self._storage.rollback_prepared(xid)
        self._history.rolled_back.add(xid)
        attempt = self._history.prepared.get(xid)
        if attempt is None:
            return
        if attempt.outcome is Outcome.COMMITTED:
            raise self._history.violated(f"{attempt.mark} was committed, then rolled back")
        attempt.outcome = Outcome.ABORTED


class _Chain:
    """The steps of one copy: each transaction follows the one before it."""

    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded
        self._last: Attempt | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._recorded, name)

    def ask_finish(self, transaction: Any) -> None:
        self._last = self._recorded.ask_finish(transaction, self._last)
