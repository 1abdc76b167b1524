"""The ZODB storage class."""

from __future__ import annotations

import logging
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from ZODB import interfaces
from ZODB.blob import BlobFile
from ZODB.ConflictResolution import ConflictResolvingStorage
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import POSError, POSKeyError, ReadOnlyError, StorageTransactionError
from ZODB.utils import maxtid
from zope.interface import alsoProvides, implementer

from neo.client.blobs.files import FilesystemHelper
from neo.client.commit.chains import chained
from neo.client.commit.importing import Import, copy_transactions
from neo.client.commit.oids import NewOids
from neo.client.commit.prepared import Outcome, Prepared, PreparedTransaction, PreparedTransactions
from neo.client.commit.restore import Restorer
from neo.client.commit.transaction import ClientTransaction
from neo.client.commit.undo import undo
from neo.client.connect.connections import patience_of
from neo.client.errors import refused
from neo.client.history.iterator import Objects, Transactions, Walk
from neo.client.history.transactions import Description, object_history, undo_log
from neo.client.host.green import make_system
from neo.client.maintenance.pack import pack
from neo.client.maintenance.size import Size
from neo.client.read.cache import Load, Loaded
from neo.client.read.records import data_of
from neo.client.read.replicas import Replicas
from neo.client.session import Session
from neo.client.settings import (
    BLOB_CACHE_BYTES,
    BLOB_CACHE_CHECK,
    CACHE_BYTES,
    WAIT_SECONDS,
    make_settings,
)
from neo.net.fault_sites import FaultSite
from neo.net.host import ThreadHost
from neo.protocol.blobs import MAGIC, PLACE
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_OID, ZERO_TID, tid_from_time
from neo.protocol.packets import AnswerObject, AskObject

logger = logging.getLogger("neo.client")

#: Bytes of user and description that are shown with a prepared transaction.
PREPARED_TEXT_BYTES = 1000
#: Transactions that were left prepared, and that this client can commit itself. More than threads commit.
LEFT_MAX = 100

_WRITING = (
    interfaces.IMultiCommitStorage,
    interfaces.IStorageUndoable,
    interfaces.IStorageRestoreable,
    interfaces.IBlobStorageRestoreable,
    interfaces.IExternalGC,
    interfaces.ReadVerifyingStorage,
)


class Coordination(Protocol):
    """Databases whose transactions have one outcome: :class:`neo.client.xa.Coordination`."""

    def sort_key(self, storage: NEOStorage, key: str) -> str: ...

    def begun(self, storage: NEOStorage, metadata: Any) -> None: ...

    def locking(self, metadata: Any, begun: ClientTransaction) -> None: ...

    def voting(self, metadata: Any) -> None: ...

    def voted(self, storage: NEOStorage, metadata: Any) -> None: ...

    def note(self, metadata: Any) -> bytes: ...

    def finish(
        self, storage: NEOStorage, metadata: Any, prepared: PreparedTransaction,
        callback: Callable[[bytes], object],
    ) -> bytes: ...  # fmt: skip

    def abort(
        self, storage: NEOStorage, metadata: Any, begun: ClientTransaction | PreparedTransaction
    ) -> None: ...


@implementer(
    interfaces.IStorage,
    interfaces.IPrefetchStorage,
    interfaces.IStorageIteration,
    interfaces.IStorageCurrentRecordIteration,
    interfaces.IBlobStorage,
)
class NEOStorage(ConflictResolvingStorage):
    """A NEO cluster as a storage. Thread-safe.

    ``master_nodes``: addresses, separated by spaces or commas. ``name``: of the cluster.
    ``compress``: True, False or a level of zlib. ``cache_size``: bytes. ``cache_dir``: a folder in which
    the cache outlives the process. ``wait_timeout``: seconds after which this and every method raise
    UnavailableError if the cluster does not answer. ``ca``, ``cert``, ``key``: files, for TLS.
    ``dynamic_master_list``: a file that keeps the masters that the cluster announces. ``host``: replaces
    sockets, threads, clock. Others: Settings. Raise ConfigurationError, UnavailableError, RefusedError.
    """

    def __init__(
        self,
        master_nodes: str | Iterable[str],
        name: str,
        *,
        compress: bool | int = True,
        read_only: bool = False,
        cache_size: int = CACHE_BYTES,
        cache_dir: str | None = None,
        wait_timeout: float = WAIT_SECONDS,
        dynamic_master_list: str | None = None,
        ca: str | None = None,
        cert: str | None = None,
        key: str | None = None,
        blob_dir: str | None = None,
        blob_cache_size: int = BLOB_CACHE_BYTES,
        blob_cache_size_check: int = BLOB_CACHE_CHECK,
        durable_vote: bool = False,
        server_sync: bool = True,
        tracing: bool = False,
        host: ThreadHost | None = None,
    ) -> None:
        settings = make_settings(
            master_nodes, name, wait_timeout, dynamic_master_list,
            tls=(ca, cert, key),
            compress=compress,
            cache_size=cache_size,
            cache_dir=cache_dir,
            blobs=(blob_dir, blob_cache_size, blob_cache_size_check),
            waits=(durable_vote, server_sync),
            tracing=tracing,
            turns=host is not None and host.direct is not None,
        )
        self.embedded = host is not None  #: The nodes are in this process: no other can reach them.
        host = host or make_system(2 * patience_of(wait_timeout))
        self._session = Session(host, settings)
        self._invalidations, self._replicas = self._session.invalidations, self._session.replicas
        self._blobs = self._session.blobs
        self.fshelper = FilesystemHelper(self._blobs)
        # The last walk of record_iternext() and its next oid. The thread that continues it removes it.
        self._walks: deque[tuple[bytes | None, Walk]] = deque(maxlen=1)
        self._name = name
        self._read_only = read_only
        self._transactions = self._session.transactions.begun
        self._decisions = PreparedTransactions(self._session.master)
        self._coordination: Coordination | None = None
        self._restorer = Restorer(self._replicas)
        self._size = Size(host, self._session.storages, self._replicas)
        self._forget()
        if not read_only:
            alsoProvides(self, *_WRITING)
        _storages.add(self)
        try:
            self._session.open()
        except BaseException:
            self.close()
            raise

    def _forget(self) -> None:
        #: The transactions after tpc_prepare, by the identity of ZODB's transaction.
        self._prepared: dict[int, PreparedTransaction] = {}
        #: Those that were left prepared. The master does not tell this client about their commit by it.
        self._left: deque[PreparedTransaction] = deque(maxlen=LEFT_MAX)
        #: Those whose abort was interrupted. Bound: one for each thread.
        self._interrupted: deque[ClientTransaction | PreparedTransaction] = deque()
        self._oids = NewOids(self._session.connections, self._session.master)

    # -- life ------------------------------------------------------------------------------------

    def close(self) -> None:
        """End all connections; threads that wait for the cluster raise an error. Idempotent."""
        self._session.close()
        _storages.discard(self)

    def forked(self) -> None:
        """Drop the parent's connections and transactions. Call in the child of a fork."""
        self._session.forked()
        self._forget()

    @property
    def replicas(self) -> Replicas:
        """Reads for :mod:`neo.client.history.scan`."""
        return self._replicas

    def registerDB(self, wrapper: Any) -> None:
        super().registerDB(wrapper)
        self._invalidations.db = wrapper

    def sync(self, force: bool = True) -> None:
        """Make visible what other clients committed before this call, unless ``server_sync`` is false."""
        if force and self._session.settings.server_sync:
            self._replicas.barrier()

    def lastTransaction(self) -> bytes:
        """Return the last transaction whose invalidations are complete, without asking a node."""
        return self._invalidations.last_transaction()

    # -- about the database ------------------------------------------------------------------------

    def getName(self) -> str:
        return self._name

    def sortKey(self) -> str:
        key = f"NEO {self._name}"
        coordination = self._coordination
        return key if coordination is None else coordination.sort_key(self, key)

    def isReadOnly(self) -> bool:
        return self._read_only

    def getSize(self) -> int:
        """Return the bytes of the storage nodes' databases, some seconds old. Count each partition once.
        0 if they are not known."""
        return self._size.totals().size

    def __len__(self) -> int:
        """Return the estimated number of objects, up to a minute old
        (:mod:`neo.storage.maintenance.size`). 0 if it is not known."""
        return self._size.totals().objects

    def __bool__(self) -> bool:
        return True

    # -- loading ---------------------------------------------------------------------------------

    def loadBefore(self, oid: bytes, tid: bytes) -> tuple[bytes, bytes, bytes | None] | None:
        cache = self._invalidations.cache
        before = self._invalidations.view(tid)
        if before != tid and tid < maxtid:
            # Another client may know of this transaction. Without a tid, sync() asks for such ones.
            self._replicas.barrier()
            before = self._invalidations.view(tid)
        found = cache.load_before(oid, before)
        if found is not None:
            return found
        load = Load()
        try:
            cache.load_begins(oid, load)
            if self._session.host.fault(FaultSite.CACHE_EMPTIED):
                cache.clear()
            answer = self._load(oid, None, before)
            loaded = None
            if answer is not None:
                if answer.data[PLACE] == MAGIC:
                    self._blobs.known(answer)
                data = data_of(answer)
                if data is None:
                    raise POSKeyError(oid)
                loaded = Loaded(data, answer.serial, answer.next_serial)
            return cache.load_ends(oid, load, loaded)
        except BaseException:
            cache.load_ends(oid, load, None)
            raise

    def loadSerial(self, oid: bytes, serial: bytes) -> bytes:
        found = self._invalidations.cache.load_at(oid, serial)
        if found is not None:
            return found
        answer = self._load(oid, serial, None)
        data = None if answer is None else data_of(answer)
        if data is None:
            raise POSKeyError(oid)
        return data

    def load(self, oid: bytes, version: str = "") -> tuple[bytes, bytes]:
        """Return the current revision: (data, serial)."""
        found = self.loadBefore(oid, maxtid)
        if found is None:
            raise POSKeyError(oid)
        return found[:2]

    def getTid(self, oid: bytes) -> bytes:
        return self.load(oid)[1]

    def _load(self, oid: bytes, at: bytes | None, before: bytes | None) -> AnswerObject | None:
        """Return a revision; None if there is none. Raise POSKeyError if there is no such object,
        CorruptedError."""
        try:
            answer = self._replicas.read(oid, AskObject(oid, at, before))
        except ErrorAnswer as e:
            if e.code is ErrorCode.OID_DOES_NOT_EXIST:
                raise POSKeyError(oid) from None
            if e.code is ErrorCode.OID_NOT_FOUND:
                return None
            raise refused(f"loading object {oid.hex()}", e) from None
        return answer

    # -- IPrefetchStorage --------------------------------------------------------------------------

    def prefetch(self, oids: Iterable[bytes], tid: bytes) -> None:
        """Load objects into the cache; the requests are pipelined."""
        cache = self._invalidations.cache
        before = self._invalidations.view(tid)
        missing = list(dict.fromkeys(o for o in oids if cache.load_before(o, before) is None))
        loads = {oid: Load() for oid in missing}
        answers = self._replicas.read_each((oid, AskObject(oid, None, before)) for oid in missing)
        try:
            for oid, load in loads.items():
                cache.load_begins(oid, load)
            for oid, answer in zip(missing, answers, strict=True):
                loaded = None
                if isinstance(answer, AnswerObject) and (data := data_of(answer)) is not None:
                    loaded = Loaded(data, answer.serial, answer.next_serial)
                cache.load_ends(oid, loads[oid], loaded)
        except BaseException:
            for oid, load in loads.items():
                cache.load_ends(oid, load, None)
            raise
        finally:
            answers.close()

    # -- history ---------------------------------------------------------------------------------

    def history(self, oid: bytes, size: int = 1) -> list[Description]:
        """Implement IStorage.history. The ``size`` of an item is that of the stored, compressed data."""
        return object_history(self._replicas, oid, size)

    def iterator(self, start: bytes | None = None, stop: bytes | None = None) -> Transactions:
        return Transactions(self._replicas, start, stop)

    def record_iternext(
        self, next: bytes | None = None
    ) -> tuple[bytes, bytes, bytes, bytes | None]:
        """Return the next current record, in the order of (partition, oid)."""
        try:
            expected, walk = self._walks.pop()
        except IndexError:
            expected, walk = None, None
        if walk is None or next is None or next != expected:
            self._replicas.barrier()  # other clients may know of later transactions
            oids = Objects(self._replicas).after(next)
            walk = Walk(self, oids, self._invalidations.cache.capacity)
        record = walk.take()
        if record is None:
            raise POSKeyError(ZERO_OID)
        following = walk.next()
        self._walks.append((following, walk))
        oid, serial, data = record
        return oid, serial, data, following

    # -- two-phase commit --------------------------------------------------------------------------

    def _check_writable(self) -> None:
        if self._read_only:
            raise ReadOnlyError(f"{self._name} was opened read-only")

    def _begun(self, transaction: Any) -> ClientTransaction:
        self._check_writable()
        begun = self._transactions.get(id(transaction))
        if begun is None:
            raise StorageTransactionError(f"transaction {transaction!r} did not begin here")
        if self._coordination is not None:
            self._coordination.locking(transaction, begun)
        return begun

    def new_oid(self) -> bytes:
        self._check_writable()
        return self._oids.new()

    def tpc_begin(self, transaction: Any, tid: bytes | None = None, status: str = " ") -> None:
        """Begin a transaction. ``tid``: of IStorageRestoreable. Does not wait for other transactions."""
        self._check_writable()
        if self._interrupted:
            self._abort_again()
        if id(transaction) in self._transactions:
            raise StorageTransactionError("Duplicate tpc_begin calls for same transaction")
        begun = self._session.transaction(transaction, tid, self.tryToResolveConflict)
        # First, so that tpc_abort finds the transaction whatever exception comes.
        self._transactions[id(transaction)] = begun
        try:
            begun.begin()
        except POSError:
            del self._transactions[id(transaction)]
            raise
        if self._session.master.stops:  # the cluster may have announced it before the line above
            begun.stop()
        if self._coordination is not None:
            self._coordination.begun(self, transaction)

    def store(
        self, oid: bytes, serial: bytes | None, data: bytes, version: str, transaction: Any
    ) -> None:
        begun = self._begun(transaction)
        base = serial or ZERO_TID
        if base == ZERO_TID:
            self._oids.check(begun, oid)
        if self._blobs.pending:
            self._blobs.replaced(id(transaction), oid)
        begun.store(oid, base, data)

    def deleteObject(self, oid: bytes, serial: bytes, transaction: Any) -> None:
        self._begun(transaction).delete(oid, serial)

    def restore(
        self, oid: bytes, serial: bytes, data: bytes | None, version: str, prev_txn: bytes | None,
        transaction: Any,
    ) -> None:  # fmt: skip
        self._restorer.restore(self._begun(transaction), oid, data, prev_txn)

    def checkCurrentSerialInTransaction(self, oid: bytes, serial: bytes, transaction: Any) -> None:
        self._begun(transaction).check(oid, serial)

    def ask_votes(self, transaction: Any) -> None:
        """Ask for votes without waiting: tpc_vote waits for them. Raise the errors of tpc_vote."""
        begun = self._begun(transaction)
        begun.ask_votes()
        self._restorer.voting(begun)

    def tpc_vote(self, transaction: Any) -> list[bytes] | None:
        begun = self._begun(transaction)
        coordination = self._coordination
        if coordination is not None:
            coordination.voting(transaction)
        begun.vote(durable=coordination is not None)
        if coordination is not None:
            coordination.voted(self, transaction)
        return list(begun.resolved) or None

    def chain(self, transactions: Sequence[Any]) -> bool:
        """Have the master commit each voted transaction only after the one before it, so that all may be
        asked for at once. Return False if that is not possible: see :mod:`neo.client.commit.chains`."""
        begun = [self._begun(each) for each in transactions]
        return chained(self._session.master, self._session.storages, begun)

    def ask_finish(self, transaction: Any) -> None:
        """Ask the master to commit without waiting: tpc_finish waits. Not for a coordinated storage."""
        if not (begun := self._begun(transaction)).voted:
            raise StorageTransactionError("ask_finish before tpc_vote")
        begun.ask_finish()

    def tpc_finish(
        self, transaction: Any, func: Callable[[bytes], object] = lambda tid: None
    ) -> bytes:
        if self._prepared and id(transaction) in self._prepared:
            return self._finish_prepared(transaction, func)
        begun = self._begun(transaction)
        if not begun.voted:
            raise StorageTransactionError("tpc_finish before tpc_vote")
        try:
            tid = begun.finish(func)
        finally:
            if begun.ended:
                self._transactions.pop(id(transaction), None)
        if self._blobs.pending:
            self._blobs.ended(id(transaction), tid)
        self._restorer.finished(begun, tid)
        return tid

    def tpc_abort(self, transaction: Any) -> None:
        key = id(transaction)
        begun = self._transactions.get(key) or self._prepared.get(key)
        if begun is not None:
            try:
                if self._coordination is None:
                    begun.abort()
                else:
                    self._coordination.abort(self, transaction, begun)
            except BaseException:
                # Interrupted, and ZODB does not abort again.
                if self._coordination is not None and isinstance(begun, PreparedTransaction):
                    begun.keep()  # the coordinator may have committed: the resolver knows
                self._interrupted.append(begun)
                self._abort_again()
                raise
            finally:
                if self._blobs.pending:
                    self._blobs.ended(key, None)
                if begun.ended:
                    self._transactions.pop(key, None)
                    prepared = self._prepared.pop(key, None)
                    if prepared is not None and prepared.left:
                        self._left.append(prepared)

    def _abort_again(self) -> None:
        """Tell the nodes of aborts that were interrupted. A second interrupt leaves them to the next
        transaction of this storage: their locks would else stay as long as its connections."""
        while self._interrupted:
            begun = self._interrupted[0]
            begun.abort()
            with suppress(ValueError):  # another thread was faster
                self._interrupted.remove(begun)

    # -- blobs -------------------------------------------------------------------------------------

    def storeBlob(
        self,
        oid: bytes,
        oldserial: bytes | None,
        data: bytes,
        blobfilename: str,
        version: str,
        transaction: Any,
    ) -> None:
        """Store an object with the content of its blob, and take the file away. Raise NEOStorageError,
        before anything is sent, if a storage node cannot keep contents."""
        begun = self._begun(transaction)
        base = oldserial or ZERO_TID
        if base == ZERO_TID:
            self._oids.check(begun, oid)
        blob = self._blobs.take(id(transaction), oid, blobfilename)
        begun.store(oid, base, data, blob=blob)

    def restoreBlob(
        self,
        oid: bytes,
        serial: bytes,
        data: bytes,
        blobfilename: str,
        prev_txn: bytes | None,
        transaction: Any,
    ) -> None:
        begun = self._begun(transaction)
        blob = self._blobs.take(id(transaction), oid, blobfilename)
        content = None if prev_txn is None else self._blobs.content(blob.path)
        self._restorer.restore(begun, oid, data, prev_txn, content, blob)

    def loadBlob(self, oid: bytes, serial: bytes) -> str:
        return self._blobs.load(oid, serial)

    def openCommittedBlobFile(self, oid: bytes, serial: bytes, blob: Any = None) -> Any:
        file = self._blobs.open(oid, serial)
        if blob is None:
            return file
        with file:
            return BlobFile(file.name, "r", blob)

    def temporaryDirectory(self) -> str:
        return self.fshelper.temp_dir

    # -- prepared transactions -----------------------------------------------------------------------

    def tpc_prepare(self, transaction: Any, xid: bytes) -> None:
        """Make a voted transaction outlive this process, and every node, until it is committed or rolled
        back by ``xid``: 1 to 140 bytes, never used before. tpc_finish or tpc_abort may follow here.

        Raise OutcomeUnknownError, which says what to do, if the master is lost; after any other error
        nothing is prepared. In both cases tpc_abort must follow.
        """
        if not (voted := self._begun(transaction)).voted:
            raise StorageTransactionError("tpc_prepare before tpc_vote")
        self._decisions.check_known()
        prepared = PreparedTransaction(
            connections=self._session.connections,
            primary=self._session.master,
            decisions=self._decisions,
            invalidations=self._invalidations,
            voted=voted,
            xid=xid,
        )
        # First, so that tpc_abort finds the transaction whatever exception comes.
        self._prepared[id(transaction)] = prepared
        del self._transactions[id(transaction)]
        # Texts are accepted as by tpc_vote.
        people = TransactionMetaData(transaction.user, transaction.description)
        words = b": ".join(filter(None, (people.user, people.description)))
        note = b"" if self._coordination is None else self._coordination.note(transaction)
        prepared.prepare(words[: PREPARED_TEXT_BYTES - len(note)] + note)

    def _finish_prepared(self, transaction: Any, func: Callable[[bytes], object]) -> bytes:
        prepared = self._prepared[id(transaction)]
        try:
            if self._coordination is None:
                tid = prepared.finish(func)
            else:
                tid = self._coordination.finish(self, transaction, prepared, func)
            self._blobs.ended(id(transaction), tid)
            return tid
        finally:
            if prepared.ended:
                self._prepared.pop(id(transaction), None)

    @property
    def coordinated(self) -> bool:
        return self._coordination is not None

    def coordinate(self, coordination: Coordination) -> None:
        """Let a coordination take part in all later transactions. Call once: it follows each transaction
        to its end."""
        self._coordination = coordination

    def recover(self) -> list[Prepared]:
        """Return all prepared transactions of the cluster that have no outcome yet."""
        return self._decisions.recover()

    def outcome(self, xid: bytes) -> Outcome | None:
        """Return what became of an xid; None if it is unknown, or forgotten."""
        return self._decisions.outcome(xid)

    def outcomes(self, length: int) -> list[Outcome]:
        """Return all transactions without an outcome, then the last ``length`` outcomes."""
        return self._decisions.outcomes(length)

    def commit_prepared(self, xid: bytes) -> bytes:
        """Commit a transaction that any client prepared. Return its tid. May be repeated, and followed by
        the tpc_finish of the thread that prepared it."""
        for left in list(self._left):
            if left.xid == xid:
                return left.finish(left.distribute)
        for key, prepared in list(self._prepared.items()):
            if prepared.xid == xid:
                tid = prepared.finish(prepared.distribute)
                if self._coordination is None:  # otherwise its thread ends it
                    self._prepared.pop(key, None)
                    self._blobs.ended(key, tid)
                return tid
        return self._decisions.commit(xid)

    def rollback_prepared(self, xid: bytes) -> None:
        """Roll back a transaction that any client prepared. From then on, nothing can be prepared under
        this xid, also if it is unknown. May be repeated."""
        self._decisions.rollback(xid)

    def forget_prepared(self, xid: bytes, wait: bool = True) -> None:
        """Forget the outcome of a transaction about which no coordinator will ask again. ``wait``: until
        that is durable."""
        if wait:
            self._decisions.forget(xid)
        else:
            self._decisions.forget_soon(xid)

    # -- undo ------------------------------------------------------------------------------------

    def supportsUndo(self) -> bool:
        return True

    def undo(self, transaction_id: bytes, transaction: Any) -> tuple[bytes, list[bytes]]:
        begun = self._begun(transaction)
        return begun.ttid, undo(self._replicas, self, begun, transaction_id)

    def undoLog(
        self,
        first: int = 0,
        last: int = -20,
        filter: Callable[[Description], object] | None = None,
    ) -> list[Description]:
        return undo_log(self._replicas, first, last, filter)

    def undoInfo(
        self, first: int = 0, last: int = -20, specification: Description | None = None
    ) -> list[Description]:
        wanted = (specification or {}).items()
        return undo_log(self._replicas, first, last, lambda found: wanted <= found.items())

    # -- maintenance -------------------------------------------------------------------------------

    def pack(
        self,
        pack_time: float,
        referencesf: Callable[[bytes], Iterable[bytes]],
        gc: bool = True,
    ) -> None:
        """Pack. ``gc``: also delete unreferenced objects; see :mod:`neo.client.maintenance.pack`."""
        self._check_writable()
        references = referencesf if gc else None
        tid = tid_from_time(pack_time)
        pack(self._session.master, self._invalidations, self, tid, references)
        self._blobs.packed()

    def importing(self) -> Import:
        """Return a way to write transactions with their tids, several in flight."""
        return Import(self, self._session.settings.unanswered_max)

    def copyTransactionsFrom(self, other: Any, verbose: int = 0) -> None:
        """Copy all transactions, with their tids and blobs."""
        copy_transactions(self.importing(), other, self._blobs.copy)


Storage = NEOStorage


_storages: weakref.WeakSet[NEOStorage] = weakref.WeakSet()


def _forked() -> None:
    for storage in list(_storages):
        try:
            storage.forked()
        except Exception:
            # Go on, because connections of the other storages must not be used either.
            logger.exception(
                "cluster %r: the parent's connections are not closed", storage.getName()
            )


os.register_at_fork(after_in_child=_forked)
