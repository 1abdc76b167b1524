"""Make a range of tids of one cell equal to that of a source (specification 10).

Transactions are fetched first, then objects, in chunks. The destination lists its rows of a range, and
the source sends the others. The list is complete: if it would be longer than LENGTH, the range ends
earlier. So no row is sent that is here already.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from hashlib import sha1
from typing import Any

from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.blobs import MAGIC, PLACE, content_of
from neo.protocol.ids import ZERO_HASH, ZERO_OID, ZERO_TID, add64, u64
from neo.protocol.packets import (
    FEATURE_OURS,
    A,
    AddObject,
    AddPreparedObject,
    AddTransaction,
    AddVotedObject,
    AskFetchObjects,
    AskFetchTransactions,
    AskPackState,
    Request,
)
from neo.storage.backend.api import BackendRefused, Record, Transaction
from neo.storage.background import STEP_BYTES, Background
from neo.storage.blobs.fetch import ContentFetch
from neo.storage.cells import Cells
from neo.storage.commit.locks import Locks
from neo.storage.database import Database
from neo.storage.replication.failure import FetchFailed

logger = logging.getLogger("neo.storage")

#: Items of a chunk.
LENGTH = 1000
#: Bytes that are written in a step while no client is active: about a chunk of the source.
CHUNK_BYTES = 1 << 20
#: Rows that are erased in a step.
STEP_LENGTH = 200
#: Period in which the end of undos in progress is polled.
LOOK_SECONDS = 0.02


def checked_record(
    m: AddObject | AddPreparedObject | AddVotedObject, serial: bytes, source: Peer | None
) -> Record:
    """Return the record of a message of this source, at ``serial``. Raise FetchFailed if the data does
    not match its checksum (specification 10.9)."""
    deleted = m.checksum == ZERO_HASH and not m.data
    if not deleted and sha1(m.data).digest() != m.checksum:
        transaction = m.tid if isinstance(m, AddObject) else m.ttid
        raise FetchFailed(
            f"object {m.oid.hex()} of transaction {transaction.hex()} does not match its checksum: it was"
            f" damaged in transit from {source}"
        )
    compression = None if deleted else m.compression
    return Record(serial, None, compression, m.checksum, m.data, m.data_serial)


@dataclass(eq=False, repr=False)
class Receiver:
    """The parts that all fetches of a node use; passes the messages of sources to their fetches."""

    database: Database
    cells: Cells
    locks: Locks
    background: Background
    contents: ContentFetch
    #: The fetches in progress: at most one of the replicator and one of a backup's.
    fetches: dict[Fetch, None] = field(default_factory=dict, init=False)

    def add(self, source: Peer, message: AddTransaction | AddObject) -> None:
        """Pass a message of a source to its fetches; drop it if there is none."""
        for fetch in tuple(self.fetches):  # a failure of the database may end all of them
            if fetch.source is source:
                fetch.add(message)

    async def remove(self, partition: int, revisions: Sequence[tuple[bytes, bytes]]) -> None:
        """Delete revisions (tid, oid), which the source does not have, from a cell that is OUT_OF_DATE.
        Wait first for transactions in progress that may undo to them, except for prepared ones.

        A client may have written an undo that goes back to one of them. Revisions between may be missing
        here, and a pack of the source may have made one of these the origin of the undo; only the source
        knows. In a cell that is repaired, its data is not to be trusted either. So such an undo loses its
        data, as if it had been accepted lockless, and is fetched before the cell is announced
        (:mod:`neo.storage.replication.replicator`).
        """
        while self.locks.undoing(lambda oid: self.cells.partitions.partition(oid) == partition):
            await self.background.sleep(LOOK_SECONDS)
        self.database.backend.replication.unlink_undone(revisions)
        self.locks.unlink(frozenset(revisions))
        self.database.backend.replication.delete_objects(revisions)

    async def erase(self, partition: int, last: bytes) -> None:
        """Delete all revisions and transactions of a cell that was CORRUPTED, up to ``last``. Later ones
        came from clients."""
        backend, stored = self.database.backend, self.database.stored
        read = backend.replication.objects_ascending
        while rows := read(partition, ZERO_TID, ZERO_OID, last, STEP_LENGTH):
            await self.remove(partition, rows)
            await stored()
        while tids := backend.reads.tids_ascending(ZERO_TID, last, STEP_LENGTH, partition):
            backend.replication.delete_transactions(tids)
            await stored()
        self.cells.unmark(partition)


class Fetch:
    """One fetch.

    * ``first``, ``last``: the range of tids, both included. ``first_transaction``: begin of the range of
      transactions if it differs.
    * ``pack_tid``: the tid at which the own cell is packed, later that of the source's cell; None if
      packs do not matter.
    * ``lacking``: (tid, oid) of objects that are here without their data, for :meth:`data`.
    * ``look_further()`` is called once, before rows are deleted that the source does not have, unless
      everything is being compared.
    """

    def __init__(
        self,
        receiver: Receiver,
        source: Peer,
        partition: int,
        first: bytes,
        last: bytes,
        pack_tid: int | None = None,
        lacking: frozenset[tuple[bytes, bytes]] = frozenset(),
        look_further: Callable[[], None] = lambda: None,
        first_transaction: bytes | None = None,
    ) -> None:
        self.source = source
        self._receiver = receiver
        self._backend = receiver.database.backend
        self._partition = partition
        self._first = first
        self._first_transaction = first if first_transaction is None else first_transaction
        self._last = last
        self.unpacked = pack_tid is None
        self.pack_tid = pack_tid or 0
        #: The tid at which the source was packed when it was last looked at.
        self._packed = self.pack_tid
        self._lacking = lacking
        self._look_further = look_further
        self._failure: str | None = None
        #: The source does not have all rows of this cell, and not everything was being compared.
        self.diverged = False
        #: Messages of one chunk that are not written yet.
        self._received: deque[AddTransaction | AddObject] = deque()
        self._came: Future[None] = Future()

    async def run(self) -> None:
        """Make the range equal. Raises ConnectionLost, ErrorAnswer (of the source), FetchFailed,
        Cancelled."""
        await self._listening(self._all())

    async def data(self) -> bool:
        """Fetch the data that is lacking, and delete nothing. Other rows of these transactions that the
        source does not have were packed there, and will be packed here when the cell is readable; to
        delete a deletion before the revisions that it hides would make these current again. Return False
        if the source was packed at another tid than ``pack_tid``: everything must be compared then.
        Raises as :meth:`run`."""
        if await self._pack_tid() != self.pack_tid:
            return False
        await self._listening(self._objects())
        return await self._pack_tid() == self.pack_tid

    async def _listening(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` while messages of the source are passed to this fetch."""
        self._receiver.fetches[self] = None
        try:
            await work
        finally:
            del self._receiver.fetches[self]

    async def _all(self) -> None:
        pack_tid = await self._pack_tid()
        if pack_tid != self.pack_tid:
            # Revisions that were fetched before may be gone there.
            self.pack_tid = pack_tid
            self._begin_again()
        await self._transactions()
        await self._objects()
        if self.diverged:
            self._begin_again()
            await self._transactions()
            await self._objects()
        if await self._pack_tid() != pack_tid:
            raise FetchFailed(f"{self.source} was packed meanwhile")

    def _begin_again(self) -> None:
        self._first = self._first_transaction = ZERO_TID

    def _found_more(self) -> None:
        """Begin again if not everything is compared: the source does not have all rows of this cell."""
        if self.diverged or self.everything:
            return
        logger.warning(
            "partition %s: %s does not have all rows of this node, which the cluster gave up if it was"
            " started without the node: everything is compared",
            self._partition,
            self.source,
        )
        self.diverged = True
        self._look_further()

    @property
    def everything(self) -> bool:
        """Whether all rows up to ``last`` are compared."""
        return self._first == self._first_transaction == ZERO_TID

    async def _pack_tid(self) -> int:
        """Return the tid at which the source's cell is packed, or will be before rows up to that tid can
        be fetched; the own one if the source does not know AskPackState."""
        self._packed = await self._ask_pack()
        return self._packed

    async def _ask_pack(self) -> int:
        """Return what :meth:`_pack_tid` does, also while rows of the source wait to be written."""
        node = self.source.node
        if self.unpacked or node is None or FEATURE_OURS not in node.features:
            return self.pack_tid
        answer = await self.source.ask(AskPackState(self._partition))
        tid: int = u64(answer.tid)
        return tid

    async def _ask(self, request: Request[A]) -> A:
        """Return the answer when all that the source sent before it is durable."""
        answer = self.source.ask(request)
        answer.then(lambda _: self._came.resolve(None))
        while self._received or not answer.done:
            if self._received:
                await self._write()
            else:
                self._came = Future()
                await self._came
        result = answer.result()
        if self._failure is not None:
            raise FetchFailed(self._failure)
        await self._receiver.database.stored()
        return result

    async def _write(self) -> None:
        """Write a step of the messages that came."""
        pace = self._receiver.background
        began = pace.monotonic()
        self._look_for_cell()
        room = STEP_BYTES if pace.busy else CHUNK_BYTES
        rows = pace.rows(LENGTH)
        while self._received and rows and room > 0:
            message = self._received.popleft()
            if isinstance(message, AddTransaction):
                self._add_transaction(message)
            else:
                if message.data[PLACE] == MAGIC and not message.compression:
                    await self._add_blob(message)
                else:
                    self._add_object(message)
                room -= len(message.data)
            rows -= 1
        await pace.executed(began)

    def _look_for_cell(self) -> None:
        """Write no more rows if the cell is gone: the eraser deletes the data of the partition."""
        if self._receiver.cells.state(self._partition) is None:
            self._failure = "the cell was taken away"

    async def _add_blob(self, m: AddObject) -> None:
        """Write a row when the content to which it refers is here (specification 26.17). Raise
        FetchFailed."""
        checked_record(m, m.tid, self.source)  # before anybody is asked for what it refers to
        content, receiver = content_of(m.data), self._receiver
        if content is None or not self._wanted(self._first, m.tid, m.oid):
            return
        here = await receiver.contents.fetch(m.oid, content, self.source)
        try:
            if not here:
                if await self._ask_pack() != self._packed:
                    raise FetchFailed(f"{self.source} was packed meanwhile")
                receiver.contents.lost(m.oid, content)
            self._look_for_cell()
            self._add_object(m)
        finally:
            receiver.contents.written(content)

    async def _transactions(self) -> None:
        backend = self._backend
        first = self._first_transaction
        while first <= self._last:
            here = backend.reads.tids_ascending(first, self._last, LENGTH, self._partition)
            last = here[-1] if len(here) == LENGTH else self._last
            answer = await self._ask(
                AskFetchTransactions(self._partition, LENGTH, first, last, here)
            )
            if gone := sorted(set(answer.delete_list).intersection(here)):
                self._found_more()
                backend.replication.delete_transactions(gone)
            following = answer.next_tid or add64(last, 1)
            if following <= first:
                raise FetchFailed(f"{self.source} answers with a position before {first.hex()}")
            first = following

    async def _objects(self) -> None:
        first = self._first, ZERO_OID
        while first[0] <= self._last:
            here, last = self._known(*first)
            known: dict[bytes, list[bytes]] = {}
            for tid, oid in here:
                if (tid, oid) not in self._lacking:
                    known.setdefault(tid, []).append(oid)
            answer = await self._ask(
                AskFetchObjects(self._partition, LENGTH, first[0], last, first[1], known)
            )
            deleted = {(tid, oid) for tid, oids in answer.delete_dict.items() for oid in oids}
            if not self._lacking and (gone := sorted(deleted.intersection(here))):
                self._found_more()
                await self._delete(gone)
            following = (
                (add64(last, 1), ZERO_OID)
                if answer.next_tid is None
                else (answer.next_tid, answer.next_oid or ZERO_OID)
            )
            if following <= first:
                raise FetchFailed(f"{self.source} answers with a position before {first[0].hex()}")
            first = following

    async def _delete(self, gone: Sequence[tuple[bytes, bytes]]) -> None:
        """Delete revisions that the source has packed, or never had; in order of tids."""
        await self._receiver.remove(self._partition, gone)
        self._backend.replication.packed_elsewhere(gone[-1][0])

    def _known(self, tid: bytes, oid: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
        """Return the rows from (tid, oid) to the end of a tid, and that tid."""
        read = self._backend.replication.objects_ascending
        here = read(self._partition, tid, oid, self._last, LENGTH)
        if len(here) < LENGTH:
            return here, self._last
        last = here[-1][0]
        if last == tid:
            # One transaction with many objects, no more than its metadata lists.
            while len(more := read(self._partition, tid, add64(here[-1][1], 1), tid, LENGTH)) > 0:
                here += more
            return here, tid
        here = [item for item in here if item[0] < last]
        return here, add64(last, -1)

    # -- what the source sends -----------------------------------------------------------------------

    def _wanted(self, first: bytes, tid: bytes, id_: bytes) -> bool:
        """Return whether a row is for this cell and range, and no failure came before."""
        return (
            self._failure is None
            and first <= tid <= self._last
            and self._receiver.cells.partitions.partition(id_) == self._partition
        )

    def add(self, message: AddTransaction | AddObject) -> None:
        """Queue a message of the source."""
        self._received.append(message)
        self._came.resolve(None)

    def _add_transaction(self, m: AddTransaction) -> None:
        if not self._wanted(self._first_transaction, m.tid, m.tid):
            return
        # ``packed`` follows from the last pack; the row does not have it.
        row = Transaction(m.tid, m.user, m.description, m.extension, False, m.oid_list, m.ttid)
        try:
            with self._receiver.database.attempt():
                self._backend.replication.add_transaction(row)
                if m.packed:
                    self._backend.replication.packed_elsewhere(m.tid)
        except BackendRefused as e:
            self._failure = str(e)

    def _add_object(self, m: AddObject) -> None:
        if not self._wanted(self._first, m.tid, m.oid):
            return
        try:
            record = checked_record(m, m.tid, self.source)
            with self._receiver.database.attempt():
                self._backend.replication.add_object(m.oid, record)
        except (BackendRefused, FetchFailed) as e:
            self._failure = str(e)
