"""Requests of other storage nodes: replication and checks (specification 10).

The source sends the rows that the destination lacks, then answers with those to delete. A chunk ends at
the requested number of items, or after CHUNK_BYTES. Between steps of BUFFER_BYTES, or of STEP_LENGTH
rows, other requests are served, so that clients keep their latency.

Bound: a destination asks for one chunk at a time, and has few jobs (:mod:`neo.node.backlog`)
here, each with a chunk to send.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from neo.node.handler import on
from neo.node.peer import Peer
from neo.node.task import Cancelled
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import MAX_TID, ZERO_HASH, u64
from neo.protocol.packets import (
    FEATURE_OURS,
    AddObject,
    AddPrepared,
    AddPreparedObject,
    AddTransaction,
    AnswerFetchObjects,
    AnswerFetchPrepared,
    AnswerFetchTransactions,
    AskBlob,
    AskCheckSerialRange,
    AskCheckTIDRange,
    AskFetchObjects,
    AskFetchPrepared,
    AskFetchTransactions,
    AskFetchVoted,
    AskPackState,
    CloseClient,
    Message,
    NotifyBlobDamaged,
    NotifyFeatures,
    Ping,
)
from neo.storage.backend.api import (
    Backend,
    BackendFailure,
    Prepared,
    Record,
    Stored,
    Transaction,
)
from neo.storage.background import Background, Job
from neo.storage.blobs.contents import Contents
from neo.storage.blobs.destinations import check_destination
from neo.storage.cells import Cells
from neo.storage.commit.locks import Locks
from neo.storage.following.links import DownstreamLinks
from neo.storage.links import Links
from neo.storage.maintenance.digests import Digests
from neo.storage.maintenance.pack import Packer
from neo.storage.prepared.fetch import PreparedFetch
from neo.storage.replication.fetch import Receiver
from neo.storage.serving.handler import StorageHandler, refusal
from neo.storage.sync.source import SyncSource

logger = logging.getLogger("neo.storage")

T = TypeVar("T")

#: Bytes that are sent in a step.
BUFFER_BYTES = 64 << 10
#: Rows that are read in a step while no client is active.
STEP_LENGTH = 200
#: Bytes after which a chunk ends: more would only fill buffers.
CHUNK_BYTES = 1 << 20
#: Items of a chunk at most, whatever is requested.
LENGTH_MAX = 10_000
#: Bytes of a message besides its data.
OVERHEAD_BYTES = 60
#: Period in which a destination that does not read is looked at.
FULL_SECONDS = 0.05


@dataclass(eq=False, repr=False)
class ServeBackupNode(StorageHandler):
    """The handler of a storage node of a backup of this cluster, for which no master vouches: what is
    committed may be fetched and compared (specification 21.12)."""

    cells: Cells
    locks: Locks
    background: Background
    links: Links
    downstream: DownstreamLinks
    packer: Packer
    digests: Digests
    contents: Contents
    sync: SyncSource

    def lost(self, peer: Peer, reason: str) -> None:
        self.links.lost(peer)
        self.downstream.lost(peer)
        self.sync.lost(peer)

    @on(CloseClient)
    def close_client(self, peer: Peer, message_id: int, m: CloseClient) -> None:
        self.links.close_client(peer)

    @on(Ping)
    def ping(self, peer: Peer, message_id: int, message: Ping) -> Message:
        self.links.returned(peer)
        return super().ping(peer, message_id, message)

    # -- comparison --------------------------------------------------------------------------------

    @on(AskCheckTIDRange, AskCheckSerialRange)
    def check(self, peer: Peer, message_id: int, m: AskCheckTIDRange | AskCheckSerialRange) -> None:
        """Compute a digest when no transaction in its range is locked. Later ones may wait for a
        synchronous backup that compares, and needs this connection to lock them (specification 25.16).
        """
        self.digests.check_comparable(m.partition)
        self._run(peer, message_id, lambda: self._digest(peer, message_id, m), m.max_tid)

    async def _digest(
        self, peer: Peer, message_id: int, m: AskCheckTIDRange | AskCheckSerialRange
    ) -> None:
        peer.answer(message_id, await self.digests.answer(m))

    # -- source ------------------------------------------------------------------------------------

    @on(AskPackState)
    def pack_state(self, peer: Peer, message_id: int, m: AskPackState) -> Message:
        return self.digests.pack_state(m.partition, ErrorCode.REPLICATION_ERROR)

    @on(AskFetchTransactions)
    def fetch_transactions(self, peer: Peer, message_id: int, m: AskFetchTransactions) -> None:
        self._start(peer, message_id, m, lambda: self._transactions(peer, message_id, m))

    @on(AskFetchObjects)
    def fetch_objects(self, peer: Peer, message_id: int, m: AskFetchObjects) -> None:
        self._start(peer, message_id, m, lambda: self._objects(peer, message_id, m))

    @on(AskFetchVoted)
    def fetch_voted(self, peer: Peer, message_id: int, m: AskFetchVoted) -> None:
        self.sync.fetch(peer, message_id, m)

    @on(AskBlob)
    def content(self, peer: Peer, message_id: int, m: AskBlob) -> None:
        self.sync.reads(peer)
        self.contents.serve(peer, message_id, m)

    @on(NotifyBlobDamaged)
    def content_damaged(self, peer: Peer, message_id: int, m: NotifyBlobDamaged) -> None:
        self.contents.reported(peer, m)

    def _start(
        self,
        peer: Peer,
        message_id: int,
        m: AskFetchTransactions | AskFetchObjects,
        job: Callable[[], Job],
    ) -> None:
        """Send a chunk when no transaction in its range is locked. Later ones may be locked for long:
        they may wait for a synchronous backup that is the one that asks (specification 25.16).

        A destination that knows of packs must wait for a pack that may delete rows of the range.
        """
        self.digests.check_readable(m.partition, ErrorCode.REPLICATION_ERROR)
        if not self.cells.backup.has(m.partition, m.max_tid):
            raise ErrorAnswer(
                ErrorCode.REPLICATION_ERROR,
                f"partition {m.partition} is not complete up to {m.max_tid.hex()} here",
            )
        packer, node = self.packer, peer.node
        knows = node is not None and FEATURE_OURS in node.features
        if knows and packer.coming(m.partition) and u64(m.min_tid) <= packer.wanted():
            packer.hurry(m.partition)
            raise ErrorAnswer(
                ErrorCode.REPLICATION_ERROR, f"partition {m.partition} is being packed"
            )
        self._run(peer, message_id, job, m.max_tid)

    def _run(
        self,
        peer: Peer,
        message_id: int,
        job: Callable[[], Job],
        last: bytes = MAX_TID,
    ) -> None:
        """Run a job when nothing up to ``last`` is locked. The number of jobs of a peer is bounded."""
        peer.begin_job()
        self.locks.when_unlocked(
            lambda: self.background.run(self._refusing(peer, message_id, job())), last
        )

    async def _refusing(self, peer: Peer, message_id: int, job: Job) -> None:
        """Run a job; an unexpected error fails the request, but not the node."""
        try:
            await job
        except (BackendFailure, Cancelled):
            raise
        except Exception as e:  # noqa: BLE001  # logged and answered
            refused = refusal(peer, e)
            peer.refuse(message_id, refused.code, refused.message)
        finally:
            peer.end_job()

    async def _pass(
        self, partition: int, rows: Sequence[T], send: Callable[[Sequence[T]], Iterator[int]]
    ) -> int:
        """Send rows until the chunk ends; return their number. ``send`` takes the next rows, and
        yields the bytes of each that it sent. Raises ErrorAnswer if the cell is not readable any more."""
        pace = self.background
        done = total = 0
        while done < len(rows) and total <= CHUNK_BYTES:
            began, buffered = pace.monotonic(), 0
            for size in send(rows[done : done + pace.rows(STEP_LENGTH)]):
                done += 1
                buffered += OVERHEAD_BYTES + size
                if buffered > BUFFER_BYTES:
                    break
            total += buffered
            await pace.give_way(began)
            self.digests.check_readable(partition, ErrorCode.REPLICATION_ERROR)
        return done

    async def _transactions(self, peer: Peer, message_id: int, m: AskFetchTransactions) -> None:
        self.digests.check_readable(m.partition, ErrorCode.REPLICATION_ERROR)
        backend = self.database.backend
        length = min(m.length, LENGTH_MAX)
        tids = backend.reads.tids_ascending(m.min_tid, m.max_tid, length + 1, m.partition)
        known = set(m.tid_list)

        def send(portion: Sequence[bytes]) -> Iterator[int]:
            for tid in portion:
                found = None if tid in known else backend.reads.transaction(tid)
                if found is None:
                    yield 0
                else:
                    peer.send(_add_transaction(found), message_id)
                    yield sum(
                        map(len, (found.user, found.description, found.extension, *found.oids))
                    )

        done = await self._pass(m.partition, tids[:length], send)
        next_tid = tids[done] if done < len(tids) else None
        known.difference_update(tids)
        deleted = sorted(tid for tid in known if next_tid is None or tid < next_tid)
        peer.answer(message_id, AnswerFetchTransactions(None, next_tid, deleted))

    async def _objects(self, peer: Peer, message_id: int, m: AskFetchObjects) -> None:
        self.digests.check_readable(m.partition, ErrorCode.REPLICATION_ERROR)
        backend, packer = self.database.backend, self.packer
        length = min(m.length, LENGTH_MAX)
        rows = backend.replication.objects_ascending(
            m.partition, m.min_tid, m.min_oid, m.max_tid, length + 1
        )
        known = {(tid, oid) for tid, oids in m.object_dict.items() for oid in oids}

        def send(portion: Sequence[tuple[bytes, bytes]]) -> Iterator[int]:
            records = backend.reads.records([row for row in portion if row not in known])
            for row in portion:
                # A pack may have deleted it meanwhile.
                record = None if row in known else next(records)
                if record is None:
                    yield 0
                else:
                    record = packer.as_packed(m.partition, row[1], record)
                    check_destination(peer, row[1], record.compression, record.data)
                    peer.send(_add_object(row[1], record), message_id)
                    yield len(record.data)

        done = await self._pass(m.partition, rows[:length], send)
        following = rows[done] if done < len(rows) else None
        known.difference_update(rows)
        deleted: dict[bytes, list[bytes]] = {}
        for tid, oid in sorted(known):
            if following is None or (tid, oid) < following:
                deleted.setdefault(tid, []).append(oid)
        next_tid, next_oid = following or (None, None)
        peer.answer(message_id, AnswerFetchObjects(None, next_tid, next_oid, deleted))


@dataclass(eq=False, repr=False)
class ServeStorage(ServeBackupNode):
    """The handler of all storage nodes of this cluster, whichever node dialed."""

    receiver: Receiver
    prepared_fetch: PreparedFetch

    @on(AddTransaction, AddObject)
    def add(self, peer: Peer, message_id: int, m: AddTransaction | AddObject) -> None:
        self.receiver.add(peer, m)

    @on(AddPrepared, AddPreparedObject)
    def add_prepared(self, peer: Peer, message_id: int, m: AddPrepared | AddPreparedObject) -> None:
        self.prepared_fetch.add(peer, m)

    @on(NotifyFeatures)
    def features(self, peer: Peer, message_id: int, m: NotifyFeatures) -> None:
        if peer.node is not None:
            peer.node.features = frozenset(m.features)

    # -- source of prepared transactions -----------------------------------------------------------

    @on(AskFetchPrepared)
    def fetch_prepared(self, peer: Peer, message_id: int, m: AskFetchPrepared) -> None:
        """Send prepared transactions when nothing is locked: they are prepared or ended then."""
        self.digests.check_readable(m.partition, ErrorCode.REPLICATION_ERROR)
        self._run(peer, message_id, lambda: self._prepared(peer, message_id, m))

    async def _prepared(self, peer: Peer, message_id: int, m: AskFetchPrepared) -> None:
        marks = {mark.ttid: mark for mark in self.database.backend.marks.prepared()}
        sent = []
        for ttid in m.ttid_list:
            if ttid in marks and await self._send_prepared(peer, message_id, m.partition, marks[ttid]):
                sent.append(ttid)
        self.digests.check_readable(m.partition, ErrorCode.REPLICATION_ERROR)
        partition = self.cells.partitions.partition
        decided = [d for d in self.database.backend.marks.decided() if partition(d.ttid) == m.partition]
        peer.answer(message_id, AnswerFetchPrepared(sent, [*decided]))

    async def _send_prepared(
        self, peer: Peer, message_id: int, partition: int, mark: Prepared
    ) -> bool:
        """Send the rows of a prepared transaction. Return False if it ended meanwhile."""
        backend, pace, ttid = self.database.backend, self.background, mark.ttid
        if ttid not in self.locks.prepared or partition not in mark.partitions:
            return False

        def here(id_: bytes) -> bool:
            return self.cells.partitions.partition(id_) == partition

        metadata, stored, checks = backend.commits.prepared_rows(ttid)
        checks = [(oid, serial) for oid, serial in checks if here(oid)]
        kept = None if metadata is None or not here(ttid) else (*metadata[:3], list(metadata.oids))
        prepared = AddPrepared(
            ttid=ttid,
            xid=mark.xid,
            since=mark.since,
            text=mark.text,
            partition_list=list(mark.partitions),
            metadata=kept,
            checked_list=checks,
        )
        peer.send(prepared, message_id)
        began, buffered = pace.monotonic(), 0
        for change in stored:
            if not here(change.oid):
                continue
            if buffered > BUFFER_BYTES or peer.full:
                await pace.give_way(began)
                while peer.full:
                    await pace.sleep(FULL_SECONDS)
                began, buffered = pace.monotonic(), 0
                if ttid not in self.locks.prepared or peer.closed:
                    return False
            message = _add_prepared_object(ttid, change, backend)
            check_destination(peer, change.oid, message.compression, message.data)
            peer.send(message, message_id)
            buffered += OVERHEAD_BYTES + len(message.data)
        await pace.give_way(began)
        return True


def _add_prepared_object(ttid: bytes, change: Stored, backend: Backend) -> AddPreparedObject:
    oid, data_id, data_serial = change
    if data_id is None:
        return AddPreparedObject(ttid, oid, 0, ZERO_HASH, b"", data_serial)
    return AddPreparedObject(ttid, oid, *backend.values.load_data(data_id), data_serial)


def _add_transaction(found: Transaction) -> Message:
    tid, user, description, extension, packed, oids, ttid = found
    return AddTransaction(tid, user, description, extension, packed, ttid, oids)


def _add_object(oid: bytes, record: Record) -> Message:
    if record.compression is None:
        return AddObject(oid, record.serial, 0, ZERO_HASH, b"", record.data_serial)
    return AddObject(
        oid,
        record.serial,
        record.compression,
        record.checksum,
        record.data,
        record.data_serial,
    )
