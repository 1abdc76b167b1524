"""pack(), with garbage collection by the client.

Storage nodes remove revisions (AskPack), but cannot read records. So the client searches for objects
without references. An object is garbage if

* no references lead to it from the root, in the revisions that were current at the pack time, and
* no transaction after the pack time wrote it or a reference to it, also through other such objects.

Ordinary transactions delete garbage. Their base serials cause a conflict if an object was written since.
They delete the objects that refer to an object before it, or together with it
(:mod:`neo.client.maintenance.garbage`). Objects that could not be deleted are kept, with all that they
refer to.
After the vote of such a transaction, when its objects are locked, the client reads the transactions that
were committed during its preparation; a new reference to its objects aborts it. So an application that
uses readCurrent() before it refers to an object again never finds that object, or one that it refers to,
missing. Without readCurrent(), a reference that is committed at the same time as the deletion dangles
until the deletion is undone.

Storage nodes pack before the first deletion. Else an undo of an earlier transaction could bring back a
reference to a deleted object: after the deletion if the pack is late, and for ever if it is refused.

The deletions are later than the pack time, and so is the history of a busy database. If nothing else
was committed between the two, a second pack includes the deletions, and garbage is removed at once.
Otherwise the next pack with a later time removes it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from typing import Any, Protocol

from BTrees.QQBTree import QQTreeSet
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import ConflictError, ReadOnlyError

from neo.client.connect.master import MasterConnection
from neo.client.errors import NEOStorageError, RegroupedError, refused
from neo.client.history.iterator import Objects, Reader
from neo.client.history.scan import Opened, Order, Range, Scanner
from neo.client.history.transactions import batches, tids_ascending, transaction_information
from neo.client.maintenance.garbage import Garbage
from neo.client.read.invalidations import Invalidations
from neo.client.read.records import LARGEST_BYTES, data_of
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import ZERO_OID, ZERO_TID, add64, p64, u64
from neo.protocol.packets import AnswerObject, AskObject, AskPack

#: Objects of one transaction: (oid, serial).
Deleted = list[tuple[bytes, bytes]]

logger = logging.getLogger("neo.client")

References = Callable[[bytes], Iterable[bytes]]
"""ZODB.serialize.referencesf: return the oids that a record refers to."""

#: Objects deleted by one transaction, so that it holds its locks for a short time only.
DELETED_TOGETHER = 1000
#: Later transactions that are read one by one. If there are more, pages are read.
LATER_TOGETHER = 50
#: Later transactions whose pages are read in one pass over the partitions. Their tids are in memory.
LATER_PAGED = 5000
#: Passes over later transactions before a deletion takes locks. Each pass reads the transactions that
#: were committed during the pass before. Passes get shorter if reading is faster than writing; otherwise
#: more passes do not help.
CATCH_UP_MAX = 5
#: Objects of one circle of references: one transaction deletes them, and lists them in one message.
CIRCLE_MAX = 1_000_000


class _Storage(Opened, Protocol):
    def tpc_begin(self, transaction: Any) -> None: ...

    def deleteObject(self, oid: bytes, serial: bytes, transaction: Any) -> None: ...

    def tpc_vote(self, transaction: Any) -> object: ...

    def tpc_finish(self, transaction: Any, func: Callable[[bytes], object]) -> bytes: ...

    def tpc_abort(self, transaction: Any) -> None: ...

    def undo(self, transaction_id: bytes, transaction: Any) -> object: ...


def pack(
    master: MasterConnection,
    invalidations: Invalidations,
    storage: _Storage,
    tid: bytes,
    references: References | None,
) -> None:
    """Remove revisions that were not current at ``tid``. ``references``: also collect garbage."""
    master.barrier()
    tid = min(tid, invalidations.last_tid)
    if tid == ZERO_TID:
        return
    if references is None:
        _pack(master, invalidations, tid)
        return
    collection = _Collection(invalidations, storage, tid, references)
    collection.mark()
    _pack(master, invalidations, tid)
    deletions = collection.delete()
    if deletions:
        later = tids_ascending(storage.replicas, add64(tid, 1), deletions[-1])
        if all(one == other for one, other in zip_longest(later, deletions)):
            _pack(master, invalidations, deletions[-1])


def _pack(master: MasterConnection, invalidations: Invalidations, tid: bytes) -> None:
    """Have storage nodes pack. Raise NEOStorageError, ReadOnlyError."""
    try:
        answer = master.channel().call(AskPack(tid))
    except ErrorAnswer as e:
        if e.code is ErrorCode.READ_ONLY_ACCESS:
            raise ReadOnlyError(f"pack: {e}") from None
        raise NEOStorageError(f"pack: {e}") from None
    except ConnectionLost as e:
        raise NEOStorageError(
            f"the master was lost during the pack, which may go on: {e}"
        ) from None
    # The pack may have removed revisions that are cached.
    invalidations.cache.clear()
    if not answer.status:
        raise NEOStorageError("the pack was not done on all storage nodes: one is already running")


class _Collection:
    """One run of the garbage collection. ``_kept`` holds the oids, as integers, of objects in use."""

    def __init__(
        self,
        invalidations: Invalidations,
        storage: _Storage,
        tid: bytes,
        references: References,
    ) -> None:
        self._invalidations = invalidations
        self._replicas = storage.replicas
        self._storage = storage
        self._tid = tid
        self._references = references
        self._reader = Reader(self._replicas)
        self._kept = QQTreeSet()
        self._seen_tid = tid
        self._rooted = False

    def mark(self) -> None:
        """Find the objects in use. Raise NEOStorageError if the record of one cannot be read."""
        roots = self._as_of_pack([ZERO_OID])
        self._rooted = roots[0] is not None and roots[0].compression is not None
        if self._rooted:
            self._mark([ZERO_OID])
            self._mark_later(self._replicas.last_tid)

    def delete(self) -> list[bytes]:
        """Delete garbage. Return the tids of the transactions that deleted it. Call it when the pack is
        done: until then, an undo could bring back a reference to what is deleted."""
        if not self._rooted:
            return []  # without a root it is unknown which objects are in use
        deletions = []
        for some in _together(self._garbage().components()):
            self._catch_up()
            # Objects that undeleted garbage refers to are no garbage any more.
            some = [(oid, serial) for oid, serial in some if u64(oid) not in self._kept]
            if not some:
                continue
            tid = self._delete(some)
            if tid is not None and not self._regret(tid, some):
                deletions.append(tid)
            else:
                self._mark(oid for oid, _ in some)
        logger.info("garbage collection: %d transactions deleted objects", len(deletions))
        return deletions

    # -- what is in use --------------------------------------------------------------------------

    def _as_of_pack(self, oids: list[bytes]) -> list[AnswerObject | None]:
        before = add64(self._tid, 1)
        answers = self._replicas.read_many([(oid, AskObject(oid, None, before)) for oid in oids])
        return [self._reader.known(answer) for answer in answers]

    def _mark(self, oids: Iterable[bytes]) -> None:
        """Keep these objects and all that they refer to at the pack time."""
        waiting = [oid for oid in oids if self._kept.insert(u64(oid))]
        while waiting:
            count = self._reader.room()
            batch = waiting[-count:]
            del waiting[-count:]
            for answer in self._as_of_pack(batch):
                data = None if answer is None else data_of(answer)
                if answer is not None and data:
                    referred = self._referred(answer.oid, data)
                    waiting += (r for r in referred if self._kept.insert(u64(r)))

    def _referred(self, oid: bytes, data: bytes) -> list[bytes]:
        """Return the oids that a record refers to. Raise NEOStorageError if it is unreadable, because
        the objects that it refers to may be in use."""
        try:
            return list(self._references(data))
        except Exception as e:
            raise NEOStorageError(
                f"pack: object {oid.hex()} is in use, and its record cannot be read to see what it refers"
                f" to ({e!r}); nothing is packed: repair the object, or pack without garbage collection"
            ) from e

    def _catch_up(self) -> None:
        """Read the transactions that were committed since the begin of the collection, so that few are
        left to read while objects are locked."""
        for _ in range(CATCH_UP_MAX):
            self._replicas.barrier()
            if self._mark_later(self._replicas.last_tid) <= LATER_TOGETHER:
                break

    def _mark_later(self, last_tid: bytes) -> int:
        """Keep the objects that transactions up to ``last_tid`` wrote or refer to, and all objects that
        these refer to.

        Read each transaction once. Return their number.
        """
        count = 0
        found = tids_ascending(self._replicas, add64(self._seen_tid, 1), last_tid)
        for tids in batches(found, LATER_PAGED):
            if len(tids) <= LATER_TOGETHER or not self._mark_pages(tids[0], tids[-1]):
                for some in batches(tids, LATER_TOGETHER):
                    self._mark_transactions(some)
            self._seen_tid = tids[-1]
            count += len(tids)
        self._seen_tid = max(self._seen_tid, last_tid)
        return count

    def _mark_transactions(self, tids: list[bytes]) -> None:
        """Read transactions with one request each, and one for each object that they wrote."""
        mentioned: set[bytes] = set()
        for information in transaction_information(self._replicas, tids):
            if information is None:
                continue
            mentioned.update(information.oid_list)
            written = [(oid, information.tid) for oid in information.oid_list]
            for start in range(0, len(written), 100):
                for answer in self._reader.read(written[start : start + 100]):
                    self._mention(mentioned, answer)
        self._mark(sorted(mentioned))

    def _mention(self, mentioned: set[bytes], answer: AnswerObject | None) -> None:
        data = None if answer is None else data_of(answer)
        if answer is not None and data:
            mentioned.update(self._referred(answer.oid, data))

    def _mark_pages(self, first: bytes, last: bytes) -> bool:
        """Read transactions in pages. Return False if some storage nodes do not know pages, if a pack
        may have removed some of the revisions, or if the number of partitions was changed; then the
        transactions must be read one by one."""
        what = Range(Order.CHANGES, last, first, value_bytes=LARGEST_BYTES)
        try:
            scanner = Scanner(self._storage)
            if not scanner.paged:
                return False
            for partition in range(scanner.partitions):
                for page in scanner.revisions(partition, what):
                    mentioned = set()
                    for revision in page:
                        oid = p64(revision.oid)
                        mentioned.add(oid)
                        if revision.data:
                            mentioned.update(self._referred(oid, revision.data))
                        elif revision.error is not None:
                            for answer in self._reader.read([(oid, p64(revision.tid))]):
                                self._mention(mentioned, answer)
                    self._mark(sorted(mentioned))
        except ErrorAnswer as e:
            if e.code is not ErrorCode.TID_NOT_FOUND:
                raise refused("pack: later transactions", e) from None
            return False
        except RegroupedError:
            return False
        return True

    # -- what is not -----------------------------------------------------------------------------

    def _garbage(self) -> Garbage:
        """Return current objects that are not in use."""
        garbage = Garbage()
        for oids in batches(Objects(self._replicas).after(None), 100):
            oids = [oid for oid in oids if u64(oid) not in self._kept]
            before = add64(self._replicas.last_tid, 1)
            answers = self._replicas.read_each(
                [(oid, AskObject(oid, None, before)) for oid in oids],
            )
            for oid, answer in zip(oids, map(self._reader.known, answers), strict=True):
                data = None if answer is None else data_of(answer)
                if answer is None or data is None or answer.serial > self._tid:
                    continue
                try:
                    garbage.add(oid, answer.serial, self._references(data) if data else ())
                except Exception as e:  # noqa: BLE001
                    # The unpickler may raise any exception.
                    self._kept.insert(u64(oid))
                    logger.warning(
                        "garbage collection: object %s is not in use, but its record cannot be read (%r):"
                        " it is kept",
                        oid.hex(),
                        e,
                    )
        return garbage

    def _delete(self, garbage: Deleted) -> bytes | None:
        """Delete objects in one transaction, and return its tid.

        Return None if another transaction wrote one of the objects, or a reference to it, or if there are
        too many; the next pack tries again.
        """
        if len(garbage) > CIRCLE_MAX:
            logger.warning(
                "garbage collection: %d objects refer to each other in a circle; keep them, because"
                " they are too many for one transaction",
                len(garbage),
            )
            return None
        transaction = TransactionMetaData(description="garbage collection")
        try:
            self._storage.tpc_begin(transaction)
            for oid, serial in garbage:
                self._storage.deleteObject(oid, serial, transaction)
            self._storage.tpc_vote(transaction)
            if self._in_use(garbage):
                self._storage.tpc_abort(transaction)
                return None
            return self._finish(transaction, garbage)
        except ConflictError:
            self._storage.tpc_abort(transaction)
            return None
        except BaseException:
            self._storage.tpc_abort(transaction)
            raise

    def _in_use(self, garbage: Deleted) -> bool:
        """Return whether one of these locked objects is in use again. A transaction that uses it again,
        with readCurrent(), either was committed before and is read here, or gets a conflict."""
        self._replicas.barrier()
        self._mark_later(self._replicas.last_tid)
        return self._keeps(garbage)

    def _keeps(self, garbage: Deleted) -> bool:
        """Return whether one of these objects is in use. If the head of a chain is in use, all objects of
        the chain are kept, although other transactions would delete the head."""
        return any(u64(oid) in self._kept for oid, _ in garbage)

    def _finish(self, transaction: Any, garbage: Deleted) -> bytes:
        oids = [oid for oid, _ in garbage]
        distribute = self._invalidations.distribute
        return self._storage.tpc_finish(transaction, lambda tid: distribute(tid, oids))

    def _regret(self, tid: bytes, garbage: Deleted) -> bool:
        """Undo a deletion if an earlier transaction, not read until now, refers to one of its objects."""
        self._mark_later(add64(tid, -1))
        self._seen_tid = tid
        if not self._keeps(garbage):
            return False
        transaction = TransactionMetaData(description="garbage collection: back in use")
        try:
            self._storage.tpc_begin(transaction)
            self._storage.undo(tid, transaction)
            self._storage.tpc_vote(transaction)
            self._finish(transaction, garbage)
        except BaseException:
            self._storage.tpc_abort(transaction)
            raise
        return True


def _together(components: Iterable[Deleted]) -> Iterator[Deleted]:
    """Yield the objects that one transaction deletes. Do not divide components."""
    some: Deleted = []
    for component in components:
        if some and len(some) + len(component) > DELETED_TOGETHER:
            yield some
            some = []
        some += component
    if some:
        yield some
