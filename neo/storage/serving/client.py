"""Requests of clients: reads, commits, undo, pages (specification 6, 7, 8; docs/spark.md)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import sha1

from neo.node.handler import on
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.blobs import MAGIC, PLACE, content_of
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import INVALID_PARTITION, MAX_TID, ZERO_HASH, ZERO_TID
from neo.protocol.packets import (
    AbortTransaction,
    Address,
    Answer,
    AnswerCheckCurrentSerial,
    AnswerCommitted,
    AnswerFinalTID,
    AnswerLockHolders,
    AnswerObject,
    AnswerObjectHistory,
    AnswerObjectUndoSerial,
    AnswerOIDs,
    AnswerRebaseObject,
    AnswerRebaseTransaction,
    AnswerRevisions,
    AnswerStoreObject,
    AnswerStoreTransaction,
    AnswerTIDs,
    AnswerTIDsFrom,
    AnswerTransactionInformation,
    AnswerVoteSingle,
    AnswerVoteTransaction,
    AskBlob,
    AskCheckCurrentSerial,
    AskCommitted,
    AskFinalTID,
    AskLockHolders,
    AskObject,
    AskObjectHistory,
    AskObjectUndoSerial,
    AskOIDs,
    AskRebaseObject,
    AskRebaseTransaction,
    AskRevisions,
    AskSize,
    AskStoreBlob,
    AskStoreObject,
    AskStoreTransaction,
    AskTIDs,
    AskTIDsFrom,
    AskTransactionInformation,
    AskTransactionLog,
    AskVoteSingle,
    AskVoteTransaction,
    HolderRow,
    Message,
    NotifyBlobDamaged,
)
from neo.storage.backend.api import (
    ROW_BYTES,
    BackendFailure,
    BackendRefused,
    Order,
    PageRequest,
    RevisionRow,
    Stored,
    TransactionMeta,
)
from neo.storage.background import Background
from neo.storage.blobs.contents import Contents
from neo.storage.blobs.uploads import Uploads
from neo.storage.cells import Cells
from neo.storage.commit.locks import Locks
from neo.storage.commit.transactions import (
    Blocked,
    CellMode,
    Client,
    Hopeless,
    RebaseConflict,
    StoreAnswer,
    TransactionRefused,
)
from neo.storage.database import Database
from neo.storage.events import Part
from neo.storage.maintenance.pack import PackProgress
from neo.storage.maintenance.size import Sizes
from neo.storage.serving.conflicts import Revisions, answer_locked, answer_with_data, lock_holders
from neo.storage.serving.handler import StorageHandler, answering, attempting, refusal
from neo.storage.serving.transaction_log import last_transactions
from neo.storage.sync.source import SyncSource

logger = logging.getLogger("neo.storage")

#: Ids of an answer at most. Clients ask for hundreds or thousands at a time.
LENGTH_MAX = 1_000_000
#: Bound of ranges: more than any database has revisions, and a 64-bit integer.
RANGE_MAX = 2**62
#: Rows of a page; the last step may add as many again.
ROWS_MAX = 2_000
#: Bytes of a page at most, whatever is requested: some milliseconds of work.
PAGE_BYTES_MAX = 16 * 1024 * 1024

#: Returns the answer; None if another one will come later.
Read = Callable[[], Message | None]


class Clients(Part):
    """Connections of the clients of this node."""

    def __init__(self) -> None:
        self._peers: dict[Peer, None] = {}

    def add(self, peer: Peer) -> None:
        """Note the connection of an identified client."""
        self._peers[peer] = None

    def lost(self, peer: Peer) -> None:
        """Forget a connection that ended."""
        self._peers.pop(peer, None)

    def _of(self, nid: int) -> list[Peer]:
        return [p for p in self._peers if p.node is not None and p.node.nid == nid]

    def address(self, nid: int) -> Address | None:
        """Return the address of a client; None if it is not connected."""
        return next((peer.address for peer in self._of(nid)), None)

    def client_lost(self, nid: int) -> None:
        for peer in self._of(nid):
            del self._peers[peer]
            peer.close()

    def operation_stopped(self) -> None:
        for peer in list(self._peers):
            peer.close()
        self._peers.clear()


@dataclass(frozen=True)
class ClientParts:
    """The parts of the node that serve all clients."""

    database: Database
    cells: Cells
    locks: Locks
    background: Background
    clients: Clients
    packs: PackProgress
    sizes: Sizes
    sync: SyncSource
    contents: Contents
    uploads: Uploads


class ServeClient(StorageHandler):
    """The handler of an identified client. Reads see whole transactions: they wait for locked ones, of
    which the client may know already (specification 6.6, 6.7)."""

    def __init__(self, parts: ClientParts, client: Client, conflict_data: bool = False) -> None:
        """``client``: the connection to which its transactions belong. ``conflict_data``: it announced
        the feature."""
        super().__init__(parts.database)
        self.client = client
        self._conflict_data = conflict_data
        self._parts = parts
        self._reads = parts.database.backend.reads
        self._values = parts.database.backend.values
        self._commits = parts.database.backend.commits
        self._backend = parts.database.backend
        self._cells = parts.cells
        self._locks = parts.locks
        self._revisions = Revisions(self._reads, self._values, parts.locks)
        self._sync = parts.sync
        self._uploads = parts.uploads

    def lost(self, peer: Peer, reason: str) -> None:
        self._parts.clients.lost(peer)
        self.database.guard(self._dropped_connection)()

    def _dropped_connection(self) -> None:
        self._locks.connection_lost(self.client)
        self._uploads.connection_lost(self.client)

    # -- helpers -----------------------------------------------------------------------------------

    def _check_readable(self, id_: bytes) -> None:
        if not self._cells.has_readable(id_):
            raise ErrorAnswer(ErrorCode.NON_READABLE_CELL)

    def _check_partition(self, partition: int) -> None:
        count = len(self._cells.partitions)
        if not 0 <= partition < count:
            raise ErrorAnswer(
                ErrorCode.PROTOCOL_ERROR, f"there are {count} partitions, not {partition}"
            )
        if not self._cells.is_readable(partition):
            raise ErrorAnswer(ErrorCode.NON_READABLE_CELL)

    @staticmethod
    def _check_range(first: int, last: int) -> None:
        if not 0 <= first < last <= RANGE_MAX:
            raise ErrorAnswer(ErrorCode.PROTOCOL_ERROR, f"invalid range: [{first}, {last})")

    def _scan(self, peer: Peer, message_id: int, read: Read, last: bytes = MAX_TID) -> None:
        """Read when all transactions up to ``last`` that are locked now are unlocked, and answer."""
        self._parts.background.asked()
        self._locks.when_unlocked(self._answer_with(peer, message_id, read), last)

    def _answer_with(self, peer: Peer, message_id: int, read: Read) -> Callable[[], None]:
        """Return a callback that calls ``read`` and answers. ``read`` may raise ErrorAnswer."""
        if self.database.careful:
            read = attempting(self.database, read)
        return partial(self._answer_read, peer, message_id, read)

    def _answer_read(self, peer: Peer, message_id: int, read: Read) -> None:
        if peer.closed:
            return
        if peer.full:
            # Many reads may have waited for the same lock.
            again = partial(self._answer_read, peer, message_id, read)
            peer.put_off(self.database.guard(again))
            return
        answering(peer, message_id, read)()

    # -- objects -----------------------------------------------------------------------------------

    @on(AskObject)
    def object(self, peer: Peer, message_id: int, m: AskObject) -> Message | None:
        self._parts.background.asked()
        if not self._locks.read_locked(m.oid):
            try:
                return self._load(m)
            except BackendFailure:
                raise
            except Exception as e:  # noqa: BLE001  # a bug fails this request only
                raise refusal(peer, e) from None
        read = self._answer_with(peer, message_id, partial(self._load, m))
        self._locks.when_readable(m.oid, read)
        return None

    def _load(self, m: AskObject) -> Message:
        self._check_readable(m.oid)
        record = self._reads.load(m.oid, m.at, m.before)
        if record is None:
            exists = self._reads.object_exists(m.oid)
            raise ErrorAnswer(
                ErrorCode.OID_NOT_FOUND if exists else ErrorCode.OID_DOES_NOT_EXIST, m.oid.hex()
            )
        return AnswerObject(m.oid, *record)

    @on(AskObjectHistory)
    def history(self, peer: Peer, message_id: int, m: AskObjectHistory) -> None:
        self._check_range(m.first, m.last)
        self._scan(peer, message_id, partial(self._history, m))

    def _history(self, m: AskObjectHistory) -> Message:
        self._check_readable(m.oid)
        # Older revisions that a pack leaves can be read, but are not part of the history, as in other
        # implementations.
        since = self._parts.packs.horizon()
        history = self._reads.history(m.oid, m.first, m.last, since)
        if not history:
            raise ErrorAnswer(ErrorCode.OID_NOT_FOUND, m.oid.hex())
        return AnswerObjectHistory(m.oid, history)

    @on(AskObjectUndoSerial)
    def undo_serials(self, peer: Peer, message_id: int, m: AskObjectUndoSerial) -> None:
        self._scan(peer, message_id, partial(self._undo_serials, m))

    def _undo_serials(self, m: AskObjectUndoSerial) -> Message:
        serials = {}
        for oid in m.oid_list:
            self._check_readable(oid)
            pending = self._locks.stored(m.ttid, oid)
            try:
                serial = self._reads.undo_serial(oid, m.max_tid, m.undone_tid, pending)
            except KeyError:
                raise ErrorAnswer(ErrorCode.OID_NOT_FOUND, oid.hex()) from None
            if serial is not None:
                serials[oid] = serial
        return AnswerObjectUndoSerial(serials)

    @on(AskOIDs)
    def oids(self, peer: Peer, message_id: int, m: AskOIDs) -> None:
        self._check_range(0, m.length)
        self._scan(peer, message_id, partial(self._oids, m))

    def _oids(self, m: AskOIDs) -> Message:
        self._check_partition(m.partition)
        length = min(m.length, LENGTH_MAX)
        return AnswerOIDs(self._reads.oids(m.partition, m.min_oid, length))

    @on(AskSize)
    def size(self, peer: Peer, message_id: int, m: AskSize) -> Message:
        return self._parts.sizes.measure()

    # -- transactions ------------------------------------------------------------------------------

    @on(AskTransactionInformation)
    def transaction(self, peer: Peer, message_id: int, m: AskTransactionInformation) -> None:
        self._scan(peer, message_id, partial(self._transaction, m), m.tid)

    def _transaction(self, m: AskTransactionInformation) -> Message:
        self._check_readable(m.tid)
        found = self._reads.transaction(m.tid)
        if found is None:
            raise ErrorAnswer(ErrorCode.TID_NOT_FOUND, m.tid.hex())
        return AnswerTransactionInformation(
            found.tid, found.user, found.description, found.extension, found.packed, found.oids
        )

    @on(AskTIDs)
    def tids(self, peer: Peer, message_id: int, m: AskTIDs) -> None:
        self._check_range(m.first, m.last)
        self._scan(peer, message_id, partial(self._tids, m))

    def _tids(self, m: AskTIDs) -> Message:
        if m.partition == INVALID_PARTITION:
            partitions = self._cells.readable()
        else:
            self._check_partition(m.partition)
            partitions = [m.partition]
        last = min(m.last, m.first + LENGTH_MAX)
        return AnswerTIDs(self._reads.tids_descending(m.first, last, partitions))

    @on(AskTransactionLog)
    def transaction_log(self, peer: Peer, message_id: int, m: AskTransactionLog) -> None:
        self._check_range(0, m.length)
        self._scan(peer, message_id, partial(self._transaction_log, m))

    def _transaction_log(self, m: AskTransactionLog) -> Message:
        if m.partitions != len(self._cells.partitions):
            raise ErrorAnswer(ErrorCode.NON_READABLE_CELL)
        for partition in m.partition_list:
            self._check_partition(partition)
        return last_transactions(self._reads, m.length, m.partition_list)

    @on(AskTIDsFrom)
    def tids_from(self, peer: Peer, message_id: int, m: AskTIDsFrom) -> None:
        self._check_range(0, m.length)
        self._scan(peer, message_id, partial(self._tids_from, m), m.max_tid)

    def _tids_from(self, m: AskTIDsFrom) -> Message:
        self._check_partition(m.partition)
        length = min(m.length, LENGTH_MAX)
        return AnswerTIDsFrom(
            self._reads.tids_ascending(m.min_tid, m.max_tid, length, m.partition)
        )

    @on(AskFinalTID)
    def final_tid(self, peer: Peer, message_id: int, m: AskFinalTID) -> None:
        self._scan(peer, message_id, partial(self._final_tid, peer, message_id, m))

    def _final_tid(self, peer: Peer, message_id: int, m: AskFinalTID) -> None:
        # Only a node with all of the partition knows that nothing was committed.
        self._check_readable(m.ttid)
        self._tell_outcome(peer, message_id, m.ttid, AnswerFinalTID(self._commits.final_tid(m.ttid)))

    @on(AskCommitted)
    def committed(self, peer: Peer, message_id: int, m: AskCommitted) -> None:
        self._scan(peer, message_id, partial(self._committed, peer, message_id, m))

    def _committed(self, peer: Peer, message_id: int, m: AskCommitted) -> None:
        self._check_partition(m.partition)
        answer = AnswerCommitted(self._commits.final_tid(m.ttid, m.partition))
        self._tell_outcome(peer, message_id, m.ttid, answer)

    def _tell_outcome(self, peer: Peer, message_id: int, ttid: bytes, answer: Answer) -> None:
        if ttid in self._locks.prepared:
            raise ErrorAnswer(
                ErrorCode.DENIED, f"transaction {ttid.hex()} is prepared: its outcome is open"
            )
        # The drop of a vote must be durable, too. Else, after a crash of this node, another one that
        # locked the transaction and was away could still have it committed.
        self.database.answer_stored(peer, message_id, answer)

    # -- first phase -------------------------------------------------------------------------------

    @on(AskStoreObject)
    def store(self, peer: Peer, message_id: int, m: AskStoreObject) -> None:
        self._check_writable()
        if m.data[PLACE] == MAGIC and not m.compression and not self._has_content(peer, message_id, m):
            return
        stored = None  # a store in an absent cell is ignored
        if self._cells.mode(m.oid) is not CellMode.ABSENT:
            stored = self._write(peer, m)
        if self._conflict_data:
            answer: StoreAnswer = partial(answer_with_data, peer, message_id, m, self._revisions)
        else:
            answer = partial(answer_locked, peer, message_id, AnswerStoreObject)
        try:
            tell = self._conflict_data
            self._locks.store(m.ttid, self.client, m.oid, m.serial, stored, answer, tell)
        except TransactionRefused:
            if stored is not None and stored.data_id is not None:
                self._values.release_data((stored.data_id,))
            raise

    def _has_content(self, peer: Peer, message_id: int, m: AskStoreObject) -> bool:
        """Return whether the content to which the record refers is durable here. Else store the record
        when it is. Raise ErrorAnswer if it is not on its way (specification 26.12)."""
        content = content_of(m.data)
        if content is None or self._cells.mode(m.oid) is CellMode.ABSENT:
            return True
        resume = partial(self._go_on_storing, peer, message_id, m)
        return self._uploads.await_content(self.client, m.ttid, m.oid, content, resume)

    def _go_on_storing(
        self, peer: Peer, message_id: int, m: AskStoreObject, failure: ErrorAnswer | None
    ) -> None:
        if failure is None:
            self._answer_with(peer, message_id, partial(self.store, peer, message_id, m))()
        else:
            peer.refuse(message_id, failure.code, failure.message)

    def _check_writable(self) -> None:
        self._parts.background.asked()
        if self._cells.backup.active:
            raise ErrorAnswer(ErrorCode.READ_ONLY_ACCESS, "this is a standby cluster")

    def _write(self, peer: Peer, m: AskStoreObject) -> Stored:
        """Write the data; it takes effect only with a vote."""
        if m.data_serial is not None:
            return self._undo(m, m.data_serial)
        if m.checksum == ZERO_HASH and not m.data:
            return Stored(m.oid, None, None)
        if m.compression not in (0, 1):
            raise ErrorAnswer(
                ErrorCode.PROTOCOL_ERROR, f"compression {m.compression} is unknown: 0 or 1 expected"
            )
        if sha1(m.data).digest() != m.checksum:
            text = (
                f"the data of object {m.oid.hex()} does not match its checksum: it was damaged in"
                " transit and is not stored"
            )
            logger.error("%r: %s", peer, text)
            raise ErrorAnswer(ErrorCode.PROTOCOL_ERROR, text)
        data_id = self._values.store_data(m.oid, m.compression, m.checksum, m.data)
        return Stored(m.oid, data_id, None)

    def _undo(self, m: AskStoreObject, data_serial: bytes) -> Stored:
        value = self._reads.value_at(m.oid, data_serial)
        if value is not None:
            return Stored(m.oid, value[0], data_serial)
        if self._cells.mode(m.oid) is CellMode.LOCKLESS:
            # The record is still to be replicated: the row has the serial of its value.
            return Stored(m.oid, None, data_serial)
        raise ErrorAnswer(
            ErrorCode.OID_NOT_FOUND,
            f"object {m.oid.hex()} has no revision {data_serial.hex()} to which it could be undone",
        )

    @on(AskCheckCurrentSerial)
    def check(self, peer: Peer, message_id: int, m: AskCheckCurrentSerial) -> None:
        self._check_writable()
        answer = partial(answer_locked, peer, message_id, AnswerCheckCurrentSerial)
        self._locks.store(m.ttid, self.client, m.oid, m.serial, None, answer)

    @on(AskRebaseTransaction)
    def rebase(self, peer: Peer, message_id: int, m: AskRebaseTransaction) -> Message:
        oids = self._locks.rebase(m.ttid, self.client, m.locking_tid)
        return AnswerRebaseTransaction(oids)

    @on(AskRebaseObject)
    def rebase_object(self, peer: Peer, message_id: int, m: AskRebaseObject) -> None:
        answer = partial(self._answer_rebased, peer, message_id)
        self._locks.rebase_object(m.ttid, self.client, m.oid, answer)

    def _answer_rebased(
        self, peer: Peer, message_id: int, conflict: RebaseConflict | Hopeless | None
    ) -> None:
        if isinstance(conflict, Hopeless):
            peer.refuse(message_id, ErrorCode.INCOMPLETE_TRANSACTION, str(conflict))
            return
        if conflict is None:
            peer.answer(message_id, AnswerRebaseObject(None))
            return
        serial, conflict_serial, stored = conflict
        data = None  # the client knows the object that it checked or undoes
        if stored is not None and stored.data_id is not None and stored.value_serial is None:
            data = self._values.load_data(stored.data_id)
        peer.answer(message_id, AnswerRebaseObject((serial, conflict_serial, data)))

    @on(AbortTransaction)
    def abort(self, peer: Peer, message_id: int, m: AbortTransaction) -> None:
        if self._locks.abort(m.ttid, self.client):
            self._commits.abort(m.ttid)
            self._sync.ended(m.ttid)
        if self._uploads.transactions:
            self._uploads.end(self.client, m.ttid, "the transaction was aborted")

    @on(AskLockHolders)
    def lock_holders(self, peer: Peer, message_id: int, m: AskLockHolders) -> Message:
        locks = self._locks
        if m.ttid == ZERO_TID:
            delaying = locks.delaying(m.oid)
            blocked = Blocked(0.0, delaying) if delaying else None
        else:
            blocked = locks.blocked(m.ttid, m.oid)
        if blocked is None:
            return AnswerLockHolders(None, [])
        holders: list[HolderRow] = [
            (
                t.ttid,
                t.client.nid,
                self._parts.clients.address(t.client.nid),
                locks.age(t),
                t.phase,
            )
            for t in blocked.holders
        ]
        return AnswerLockHolders(blocked.waited, holders)

    def waits_for(self, message: Message) -> str | None:
        return lock_holders(self._locks, message)

    # -- votes -------------------------------------------------------------------------------------

    @on(AskStoreTransaction)
    def vote_with_metadata(self, peer: Peer, message_id: int, m: AskStoreTransaction) -> None:
        meta = TransactionMeta(m.user, m.description, m.extension, m.oid_list)
        stored = self._vote(m.ttid, meta)
        if self._sync.subscribers:
            self._push(peer, message_id, m.ttid, AnswerStoreTransaction(), meta, stored)
        else:
            self._answer_voted(peer, message_id, m.ttid, AnswerStoreTransaction())

    @on(AskVoteTransaction)
    def vote(self, peer: Peer, message_id: int, m: AskVoteTransaction) -> None:
        stored = self._vote(m.ttid, None)
        if self._sync.subscribers:
            self._push(peer, message_id, m.ttid, AnswerVoteTransaction(), None, stored)
        else:
            self._answer_voted(peer, message_id, m.ttid, AnswerVoteTransaction())

    @on(AskVoteSingle)
    def vote_single(self, peer: Peer, message_id: int, m: AskVoteSingle) -> Message | None:
        """Vote if all stores and checks before have their locks (specification 7.52), or when they have
        (7.63)."""
        attempt = partial(self._vote_single, peer, message_id, m)
        if self._locks.hold_vote(m.ttid, self.client, answering(peer, message_id, attempt)):
            return None
        return attempt()

    def _vote_single(self, peer: Peer, message_id: int, m: AskVoteSingle) -> Message | None:
        """Vote, or refuse. The lock makes a vote durable that need not be so before (7.54)."""
        if self._uploads.awaited(self.client, m.ttid) or not self._locks.has_all(
            m.ttid, m.stored_list, m.checked_list
        ):
            return AnswerVoteSingle(False)
        meta = TransactionMeta(m.user, m.description, m.extension, m.stored_list)
        stored = self._vote(m.ttid, meta)
        if self._sync.subscribers:
            self._push(peer, message_id, m.ttid, AnswerVoteSingle(True), meta, stored)
        elif m.durable:
            self._answer_voted(peer, message_id, m.ttid, AnswerVoteSingle(True))
        else:
            self.database.answer_written(peer, message_id, AnswerVoteSingle(True))
        return None

    def _answer_voted(self, peer: Peer, message_id: int, ttid: bytes, answer: Message) -> None:
        locks = self._locks
        self.database.answer_stored(peer, message_id, answer, lambda: locks.vote_stored(ttid))

    def _push(
        self,
        peer: Peer,
        message_id: int,
        ttid: bytes,
        answer: Message,
        meta: TransactionMeta | None,
        stored: list[Stored],
    ) -> None:
        """Answer a vote when it is durable here and on the nodes of synchronous backups that subscribed;
        refuse it if one of these refuses (specification 25.8)."""
        locks, pushed = self._locks, self._sync.push(ttid, meta, stored)

        def reply(pushed: Future[None]) -> None:
            try:
                pushed.result()
            except ErrorAnswer as e:
                peer.refuse(message_id, e.code, e.message)
            else:
                peer.answer(message_id, answer)

        def durable() -> None:
            locks.vote_stored(ttid)
            pushed.then(reply)

        self._backend.engine.stored(self.database.guard(durable))

    def _vote(self, ttid: bytes, meta: TransactionMeta | None) -> list[Stored]:
        if self._uploads.transactions:
            self._uploads.check(self.client, ttid)
        stored = self._locks.vote(ttid, self.client, metadata=meta is not None)
        try:
            with self.database.attempt():
                self._commits.vote(ttid, meta, stored)
        except BackendRefused:
            # Nothing was written, so the backend will not release the data with its rows.
            self._locks.abort(ttid, self.client)
            self._values.release_data(
                change.data_id for change in stored if change.data_id is not None
            )
            raise
        if self._uploads.transactions:
            self._uploads.end(self.client, ttid, "the transaction voted")
        return stored

    # -- contents of blobs (specification 26) ------------------------------------------------------

    @on(AskStoreBlob)
    def store_content(self, peer: Peer, message_id: int, m: AskStoreBlob) -> None:
        self._check_writable()
        self._uploads.receive(self.client, peer, message_id, m)

    @on(AskBlob)
    def content(self, peer: Peer, message_id: int, m: AskBlob) -> None:
        self._parts.background.asked()
        self._parts.contents.serve(peer, message_id, m)

    @on(NotifyBlobDamaged)
    def content_damaged(self, peer: Peer, message_id: int, m: NotifyBlobDamaged) -> None:
        self._parts.contents.reported(peer, m)

    # -- pages of revisions ------------------------------------------------------------------------

    @on(AskRevisions)
    def revisions(self, peer: Peer, message_id: int, m: AskRevisions) -> None:
        """Answer when the transactions that are locked now are unlocked: the reader asks up to a tid that
        the master has finished."""
        try:
            order = Order(m.order)
        except ValueError:
            raise ErrorAnswer(
                ErrorCode.PROTOCOL_ERROR, f"order {m.order} is unknown: 0, 1 or 2 expected"
            ) from None
        if not 0 < m.max_bytes:
            raise ErrorAnswer(
                ErrorCode.PROTOCOL_ERROR,
                f"a page of {m.max_bytes} bytes is requested: at least 1 expected",
            )
        size = min(m.max_bytes, PAGE_BYTES_MAX)
        ask = PageRequest(m.partition, order, m.min_tid, m.max_tid, m.after, size, m.data)
        peer.begin_job()
        self._go_on(peer, message_id, ask, [])

    def _go_on(
        self, peer: Peer, message_id: int, ask: PageRequest, found: list[RevisionRow]
    ) -> None:
        """Collect a page in steps of some milliseconds, between which other requests are served. Few
        of the rows that the database reads may belong to the page."""
        self._scan(peer, message_id, partial(self._page, peer, message_id, ask, found))

    def _page(
        self, peer: Peer, message_id: int, ask: PageRequest, found: list[RevisionRow]
    ) -> Message | None:
        rest = None
        try:
            self._check_partition(ask.partition)
            self._check_packed(ask.order, ask.min_tid, ask.max_tid)
            rows, after = self._backend.pages.revisions(ask)
            found.extend(rows)
            left = ask.max_bytes - sum(ROW_BYTES + (row[4] if ask.data else 0) for row in rows)
            if after is not None and left > 0 and len(found) < ROWS_MAX:
                rest = ask._replace(after=after, max_bytes=left)
        finally:
            if rest is None:
                peer.end_job()
        if rest is None:
            return AnswerRevisions(found, after is not None)
        self.database.call_later(0, partial(self._go_on, peer, message_id, rest, found))
        return None

    def _check_packed(self, order: Order, min_tid: bytes, max_tid: bytes) -> None:
        """Raise ErrorAnswer if a pack may have deleted requested revisions. A pack keeps the revisions of
        each object that are current at its tid, or later. A reader of all revisions from the beginning
        takes what is left, if its range includes that tid."""
        packed = self._backend.tables.get_config("_pack_tid")
        if packed is None:
            return
        tid = int(packed).to_bytes(8, "big")
        if max_tid < tid or (order is not Order.SNAPSHOT and ZERO_TID < min_tid <= tid):
            raise ErrorAnswer(
                ErrorCode.TID_NOT_FOUND,
                f"the database was packed up to {tid.hex()}: earlier revisions may be gone; load"
                " again for what is left, or read as of a later transaction",
            )
