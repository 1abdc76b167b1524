"""pack(), with garbage collection on the side of the client.

Storage nodes forget revisions (AskPack), but cannot read them, so that it is the client that looks
for objects without references. An object is garbage if

* it cannot be reached from the root, through the revisions that were current at the pack time, and
* no transaction after the pack time wrote it or a reference to it, also through other such objects.

Garbage is deleted by ordinary transactions, whose base serials make them fail for an object that
somebody wrote meanwhile. They delete what refers to an object before it, or together with it
(:mod:`neo.client.garbage`); what one of them could not delete is kept, with all that hangs on it. When
one has voted, so that its objects are locked, transactions that were committed while it was prepared
are read: one that made a reference to its objects saves them. Whoever takes an object back into use
with readCurrent() never sees it, or what hangs on it, missing. Without, a reference that is committed
at the same time as the deletion dangles for a moment, until the object is brought back.

The deletions are later than the pack time, and so is the history of a busy database. If nothing else
was committed between the two, the pack goes up to the deletions and garbage is gone at once.
Otherwise it goes with the next pack whose time is later than them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from typing import Any, Protocol

from BTrees.QQBTree import QQTreeSet
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import ConflictError, ReadOnlyError

from neo.client.errors import NEOStorageError, refused
from neo.client.garbage import Garbage
from neo.client.history import batches, tids_ascending, transaction_information
from neo.client.iterator import Objects, Reader
from neo.client.many import read_each
from neo.client.records import LARGEST_BYTES, data_of
from neo.client.scan import Opened, Order, Range, Scanner
from neo.client.session import Session
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import ZERO_OID, ZERO_TID, add64, p64, u64
from neo.protocol.packets import AnswerObject, AskObject, AskPack

#: Objects of one transaction: (oid, serial).
Deleted = list[tuple[bytes, bytes]]

logger = logging.getLogger("neo.client")

References = Callable[[bytes], Iterable[bytes]]
"""ZODB.serialize.referencesf: oids that a record refers to."""

#: Objects deleted by one transaction: its locks are held for a short time only.
DELETED_TOGETHER = 1000
#: Later transactions that are read one by one. Of more, the storage nodes give pages.
LATER_TOGETHER = 50
#: Later transactions whose pages are read in one pass over the partitions; their tids are in memory.
LATER_PAGED = 5000
#: Passes over later transactions before a deletion takes locks. Each pass is over what was committed
#: during the one before, and shorter if reading is faster than writing; else more passes do not help.
CATCH_UP_MAX = 5
#: The same, where they refer to each other in a circle: lists of their oids must fit in one message.
CIRCLE_MAX = 1_000_000


class _Storage(Opened, Protocol):
    def tpc_begin(self, transaction: Any) -> None: ...

    def deleteObject(self, oid: bytes, serial: bytes, transaction: Any) -> None: ...

    def tpc_vote(self, transaction: Any) -> object: ...

    def tpc_finish(self, transaction: Any, func: Callable[[bytes], object]) -> bytes: ...

    def tpc_abort(self, transaction: Any) -> None: ...

    def undo(self, transaction_id: bytes, transaction: Any) -> object: ...


def pack(session: Session, storage: _Storage, tid: bytes, references: References | None) -> None:
    """Forget what was not current at ``tid``. ``references``: also collect garbage."""
    session.barrier()
    tid = min(tid, session.invalidations.last_tid)
    if tid == ZERO_TID:
        return
    if references is not None:
        deletions = _Collection(session, storage, tid, references).collect()
        if deletions:
            later = tids_ascending(session, add64(tid, 1), deletions[-1])
            if all(one == other for one, other in zip_longest(later, deletions)):
                tid = deletions[-1]
    try:
        answer = session.master().call(AskPack(tid))
    except ErrorAnswer as e:
        if e.code is ErrorCode.READ_ONLY_ACCESS:
            raise ReadOnlyError(f"pack: {e}") from None
        raise NEOStorageError(f"pack: {e}") from None
    except ConnectionLost as e:
        raise NEOStorageError(
            f"the master was lost during the pack, which may go on: {e}"
        ) from None
    # Revisions in the cache may not exist any more.
    session.invalidations.cache.clear()
    if not answer.status:
        raise NEOStorageError("the pack was not done on all storage nodes: one is already running")


class _Collection:
    """One run of the garbage collection. ``_kept`` has the oids, as integers, that are no garbage."""

    def __init__(
        self, session: Session, storage: _Storage, tid: bytes, references: References
    ) -> None:
        self._session = session
        self._storage = storage
        self._tid = tid
        self._references = references
        self._reader = Reader(session)
        self._scanner = Scanner(storage)
        self._kept = QQTreeSet()
        self._seen_tid = tid

    def collect(self) -> list[bytes]:
        """Delete garbage. Returns the tids of the transactions that did it."""
        roots = self._as_of_pack([ZERO_OID])
        if roots[0] is None or roots[0].compression is None:
            return []  # without a root, nothing says what is in use
        self._mark([ZERO_OID])
        self._mark_later(self._session.invalidations.last_tid)
        deletions = []
        for some in _together(self._garbage().components()):
            self._catch_up()
            # What hangs on garbage that was not deleted is none any more.
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
        view = self._session.view()
        answers = self._session.read_many(
            [(view.partition(oid), AskObject(oid, None, before)) for oid in oids]
        )
        return [self._reader.known(answer) for answer in answers]

    def _mark(self, oids: Iterable[bytes]) -> None:
        """Keep these objects and all that they refer to, as of the pack time."""
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
        """Raises NEOStorageError: what this object refers to may be in use."""
        try:
            return list(self._references(data))
        except Exception as e:
            raise NEOStorageError(
                f"pack: object {oid.hex()} is in use, and its record cannot be read to see what it refers"
                f" to ({e!r}); nothing is packed: mend the object, or pack without garbage collection"
            ) from e

    def _catch_up(self) -> None:
        """Read what was committed meanwhile, so that little is left to read while objects are locked."""
        for _ in range(CATCH_UP_MAX):
            self._session.barrier()
            if self._mark_later(self._session.invalidations.last_tid) <= LATER_TOGETHER:
                break

    def _mark_later(self, last_tid: bytes) -> int:
        """Keep what transactions up to ``last_tid`` wrote or refer to, and what hangs on it. Each is
        read once. Return how many there were."""
        count = 0
        found = tids_ascending(self._session, add64(self._seen_tid, 1), last_tid)
        for tids in batches(found, LATER_PAGED):
            if len(tids) <= LATER_TOGETHER or not self._mark_pages(tids[0], tids[-1]):
                for some in batches(tids, LATER_TOGETHER):
                    self._mark_transactions(some)
            self._seen_tid = tids[-1]
            count += len(tids)
        self._seen_tid = max(self._seen_tid, last_tid)
        return count

    def _mark_transactions(self, tids: list[bytes]) -> None:
        """A question for each transaction, and for each object that it wrote."""
        mentioned: set[bytes] = set()
        for information in transaction_information(self._session, tids):
            if information is None:
                continue
            mentioned.update(information.oid_list)
            written = [(oid, information.tid) for oid in information.oid_list]
            for start in range(0, len(written), 100):
                for answer in self._reader.read(written[start : start + 100]):
                    self._mention(mentioned, answer)
        self._mark(mentioned)

    def _mention(self, mentioned: set[bytes], answer: AnswerObject | None) -> None:
        data = None if answer is None else data_of(answer)
        if answer is not None and data:
            mentioned.update(self._referred(answer.oid, data))

    def _mark_pages(self, first: bytes, last: bytes) -> bool:
        """Read pages of storage nodes that have them. Return False if some have not, or if a pack may
        have removed a part of what they would give: then it has to be read by transactions."""
        if not self._scanner.paged:
            return False
        what = Range(Order.CHANGES, last, first, value_bytes=LARGEST_BYTES)
        try:
            for partition in range(self._scanner.partitions):
                for page in self._scanner.revisions(partition, what):
                    mentioned = set()
                    for revision in page:
                        oid = p64(revision.oid)
                        mentioned.add(oid)
                        if revision.data:
                            mentioned.update(self._referred(oid, revision.data))
                        elif revision.error is not None:
                            for answer in self._reader.read([(oid, p64(revision.tid))]):
                                self._mention(mentioned, answer)
                    self._mark(mentioned)
        except ErrorAnswer as e:
            if e.code is not ErrorCode.TID_NOT_FOUND:
                raise refused("pack: later transactions", e) from None
            return False
        return True

    # -- what is not -----------------------------------------------------------------------------

    def _garbage(self) -> Garbage:
        """Current objects that are not in use."""
        garbage = Garbage()
        view = self._session.view()
        for oids in batches(Objects(self._session).after(None), 100):
            oids = [oid for oid in oids if u64(oid) not in self._kept]
            before = add64(self._session.invalidations.last_tid, 1)
            answers = read_each(
                self._session,
                [(view.partition(oid), AskObject(oid, None, before)) for oid in oids],
            )
            for oid, answer in zip(oids, map(self._reader.known, answers), strict=True):
                data = None if answer is None else data_of(answer)
                if answer is None or data is None or answer.serial > self._tid:
                    continue
                try:
                    garbage.add(oid, answer.serial, self._references(data) if data else ())
                except Exception as e:  # noqa: BLE001
                    # Of the unpickler, whatever is in the record.
                    self._kept.insert(u64(oid))
                    logger.warning(
                        "garbage collection: object %s is not in use, but its record cannot be read (%r):"
                        " it is kept",
                        oid.hex(),
                        e,
                    )
        return garbage

    def _delete(self, garbage: Deleted) -> bytes | None:
        """One transaction. None: somebody wrote one of the objects, or a reference to it, or they are
        too many; they wait for the next pack."""
        if len(garbage) > CIRCLE_MAX:
            logger.warning(
                "garbage collection: %d objects refer to each other in a circle, and are too many to be"
                " deleted in one transaction: they are kept",
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
        """Whether one of these objects, which are locked, can be reached by now: whoever takes it
        back with readCurrent() either was faster, and is seen here, or gets a conflict."""
        self._session.barrier()
        self._mark_later(self._session.invalidations.last_tid)
        return self._keeps(garbage)

    def _keeps(self, garbage: Deleted) -> bool:
        """Whether one of these is no garbage. A reference to the head of a chain is enough: its other
        objects are kept, too, though only other transactions may delete the head."""
        return any(u64(oid) in self._kept for oid, _ in garbage)

    def _finish(self, transaction: Any, garbage: Deleted) -> bytes:
        oids = [oid for oid, _ in garbage]
        distribute = self._session.invalidations.distribute
        return self._storage.tpc_finish(transaction, lambda tid: distribute(tid, oids))

    def _regret(self, tid: bytes, garbage: Deleted) -> bool:
        """Undo a deletion if by a transaction before it, not known yet, an object can be reached."""
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
    """What is deleted by one transaction each. Components are not divided."""
    some: Deleted = []
    for component in components:
        if some and len(some) + len(component) > DELETED_TOGETHER:
            yield some
            some = []
        some += component
    if some:
        yield some
