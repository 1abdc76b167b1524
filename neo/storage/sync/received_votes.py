"""Votes of the upstream cluster in a node of its synchronous backup (specification 25.7 to 25.10, 25.20).

The rows of a transaction come on connections with storage nodes of the upstream cluster, at its vote or
because this node asked for them, and are written as they arrive. When the own master asks for them
(AskVoted, :mod:`neo.storage.sync.vote_fetch`) they are *confirmed*: they stay until it says how
the transaction ends. Until then they belong to their connections, and are dropped with these.

No client writes in a backup, and conflicts were detected upstream. So these transactions take no locks in
:mod:`neo.storage.commit.locks`; readers are shown tids that are complete. Packs wait for their undos, as
upstream. An undo may come after the pack that removed the revision it goes back to: only a node upstream
knows to which other one it refers then. So its rows count as lacking, and are fetched when the own master
asks for them (specification 25.64).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.blobs import MAGIC, PLACE, Content, content_of
from neo.protocol.enums import CellState, ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_TID
from neo.protocol.packets import AddVoted, AddVotedObject, AnswerStoreVoted, AskStoreVoted
from neo.storage.backend.api import BackendRefused, TransactionMeta
from neo.storage.background import Background
from neo.storage.blobs.fetch import ContentFetch
from neo.storage.cells import Cells
from neo.storage.commit.locks import Locks
from neo.storage.database import Database
from neo.storage.events import CellsChanged, Part
from neo.storage.replication.failure import FetchFailed
from neo.storage.replication.fetch import checked_record

logger = logging.getLogger("neo.storage")

#: States of own cells that keep nothing.
_GONE = (None, CellState.CORRUPTED)


@dataclass(eq=False, slots=True)
class _Rows:
    """The rows in a partition. ``complete``: all have arrived from ``source``, or were here when the
    operation started. ``undone``: the objects that are undone. ``stale``: one of them goes back to a
    revision that is not here."""

    source: Peer | None = None
    oids: set[bytes] = field(default_factory=set)
    undone: set[bytes] = field(default_factory=set)
    stale: bool = False
    metadata: bool = False
    complete: bool = False
    #: Rows that wait for their content.
    later: int = 0
    failure: str | None = None


@dataclass(eq=False, slots=True)
class _Vote:
    partitions: dict[int, _Rows] = field(default_factory=dict)
    confirmed: bool = False
    #: The transaction has a mark in the database of this node.
    prepared: bool = False
    tid: bytes | None = None


class ReceivedVotes(Part):
    """Bound: the transactions that vote upstream at a time, with their oids."""

    def __init__(
        self,
        database: Database,
        cells: Cells,
        locks: Locks,
        background: Background,
        contents: ContentFetch,
    ) -> None:
        self._background = background
        self._contents = contents
        self._database = database
        self._commits = database.backend.commits
        self._backend = database.backend
        self._cells = cells
        self._locks = locks
        #: The own master decides about these transactions by :meth:`lock`, :meth:`unlock`, :meth:`abort`.
        self.known: dict[bytes, _Vote] = {}
        self._wake: Future[None] = Future()

    # -- rows that arrive --------------------------------------------------------------------------

    def add(self, source: Peer, m: AddVoted | AddVotedObject) -> None:
        """Write a row of the upstream cluster."""
        if not self._cells.backup.active:
            return
        if isinstance(m, AddVoted):
            self._begin(source, m)
        else:
            self._add_object(source, m)

    def _begin(self, source: Peer, m: AddVoted) -> None:
        """Replace what is here of a partition, unless the own master counts on it."""
        if m.partition >= len(self._cells.partitions) or self._cells.state(m.partition) is None:
            return
        vote = self.known.setdefault(m.ttid, _Vote())
        rows = vote.partitions.get(m.partition)
        if vote.tid is not None or (vote.confirmed and rows is not None and rows.complete):
            return
        rows = vote.partitions[m.partition] = _Rows(source)
        metadata = None if m.metadata is None else TransactionMeta(*m.metadata)
        try:
            with self._database.attempt():
                self._commits.replace_voted(m.ttid, m.partition, metadata)
        except BackendRefused as e:
            rows.failure = str(e)
        rows.metadata = metadata is not None
        self._note(m.ttid)

    def _add_object(self, source: Peer, m: AddVotedObject) -> None:
        vote = self.known.get(m.ttid)
        rows = (
            None if vote is None else vote.partitions.get(self._cells.partitions.partition(m.oid))
        )
        if rows is None or rows.source is not source or rows.complete or m.oid in rows.oids:
            return
        if rows.failure is not None:
            return  # earlier rows may still be there
        rows.oids.add(m.oid)
        content = None
        if m.data[PLACE] == MAGIC and not m.compression:
            content = content_of(m.data)
        if content is None or self._contents.here(content):
            self._write(source, m, rows)
        else:
            rows.later += 1
            self._background.run(self._write_later(source, m, rows, content))

    async def _write_later(
        self, source: Peer, m: AddVotedObject, rows: _Rows, content: Content
    ) -> None:
        """Write a row when its content is here (specification 26.19)."""
        try:
            checked_record(m, ZERO_TID, source)  # before anybody is asked for what it refers to
            here = await self._contents.fetch(m.oid, content, source)
        except FetchFailed as e:
            rows.failure = str(e)
        else:
            vote, partition = self.known.get(m.ttid), self._cells.partitions.partition(m.oid)
            if not here:
                rows.failure = f"content {content} of object {m.oid.hex()} is on no node"
            elif vote is not None and vote.partitions.get(partition) is rows:
                self._write(source, m, rows)
            self._contents.written(content)
        rows.later -= 1
        rows.complete &= rows.failure is None
        self._notify()

    def _write(self, source: Peer, m: AddVotedObject, rows: _Rows) -> None:
        try:
            record = checked_record(m, ZERO_TID, source)
            with self._database.attempt():
                self._commits.add_voted_object(m.ttid, m.oid, record)
        except (BackendRefused, FetchFailed) as e:
            rows.failure = str(e)
        else:
            if m.data_serial is not None:
                rows.stale |= record.compression is not None and self._lacks(m.oid, m.data_serial)
                rows.undone.add(m.oid)
                self._note(m.ttid)

    def _lacks(self, oid: bytes, serial: bytes) -> bool:
        """Return whether a revision is not here."""
        value = self._backend.reads.value_at(oid, serial)
        if value is not None and value[0] is not None:
            self._backend.values.release_data((value[0],))
        return value is None

    def _note(self, ttid: bytes) -> None:
        """Tell the locks what a transaction undoes here, unless it may stay prepared for days
        (specification 24.37)."""
        vote, undone = self.known.get(ttid), set[bytes]()
        if vote is not None and (vote.tid is not None or not vote.prepared):
            undone.update(*(rows.undone for rows in vote.partitions.values()))
        self._locks.received(ttid, undone, vote is not None and vote.tid is not None)

    def arrived(self, source: Peer, ttid: bytes, partitions: Iterable[int], fetched: bool) -> None:
        """Note that all rows of these partitions were sent; ``fetched``: because this node asked for
        them. Raises ErrorAnswer if some were refused."""
        vote, failure = self.known.get(ttid), None
        for partition in partitions:
            rows = None if vote is None else vote.partitions.get(partition)
            if rows is None or rows.source is not source:
                continue
            rows.complete = rows.failure is None
            rows.stale &= not fetched
            failure = failure or rows.failure
        self._notify()
        if failure is not None:
            raise ErrorAnswer(ErrorCode.INCOMPLETE_TRANSACTION, failure)

    def store(self, source: Peer, message_id: int, m: AskStoreVoted) -> None:
        """Answer when the rows are durable."""
        self.arrived(source, m.ttid, m.partition_list, fetched=False)
        if self._waits(source, m):
            # Not a job of the peer, of which only few are executed at a time: votes without blobs go on,
            # and what this node reads must not wait behind requests.
            self._background.run(self._store_later(source, message_id, m))
        else:
            self._database.answer_stored(source, message_id, AnswerStoreVoted(m.ttid))

    def _waits(self, source: Peer, m: AskStoreVoted) -> bool:
        """Return whether rows wait for their contents. Raise ErrorAnswer if these cannot be had."""
        vote = self.known.get(m.ttid)
        for partition in m.partition_list:
            rows = None if vote is None else vote.partitions.get(partition)
            if rows is None or rows.source is not source:
                continue
            if rows.failure is not None:
                raise ErrorAnswer(ErrorCode.INCOMPLETE_TRANSACTION, rows.failure)
            if rows.later:
                return True
        return False

    async def _store_later(self, source: Peer, message_id: int, m: AskStoreVoted) -> None:
        try:
            while self._waits(source, m):
                await self._wake
        except ErrorAnswer as e:
            source.refuse(message_id, e.code, e.message)
        else:
            self._database.answer_stored(source, message_id, AnswerStoreVoted(m.ttid))

    def dropped(self, source: Peer, ttid: bytes) -> None:
        """Handle NotifyAborted of an upstream node."""
        vote = self.known.get(ttid)
        if vote is not None:
            self._drop(source, ttid, vote)

    def source_lost(self, source: Peer) -> None:
        """Drop what came from this node and is not confirmed."""
        for ttid, vote in list(self.known.items()):
            if any(rows.source is source for rows in vote.partitions.values()):
                self._drop(source, ttid, vote)

    def _drop(self, source: Peer, ttid: bytes, vote: _Vote) -> None:
        """Drop a transaction unless it is confirmed. In any case do not wait for more rows of this
        node."""
        if not vote.confirmed:
            self.abort(ttid)
            return
        rows = vote.partitions.items()
        self.forget(ttid, [p for p, each in rows if each.source is source and not each.complete])
        self._notify()

    # -- for the own master ------------------------------------------------------------------------

    def has(self, ttid: bytes, partition: int, oids: set[bytes], metadata: bool) -> bool:
        """Return whether all these objects, and the metadata, are here in a partition."""
        vote = self.known.get(ttid)
        rows = None if vote is None else vote.partitions.get(partition)
        return (
            rows is not None
            and rows.complete
            and not rows.later
            and not rows.stale
            and oids <= rows.oids
            and rows.metadata >= metadata
        )

    def failure(self, ttid: bytes, partition: int) -> str | None:
        """Return why rows of a partition were not written, None if none was refused."""
        vote = self.known.get(ttid)
        rows = None if vote is None else vote.partitions.get(partition)
        return None if rows is None else rows.failure

    def arriving(self, ttid: bytes, partitions: Iterable[int]) -> bool:
        """Return whether rows of one of these partitions are under way."""
        vote = self.known.get(ttid)
        return vote is not None and any(
            (rows := vote.partitions.get(partition)) is not None
            and (rows.later or not rows.complete)
            and rows.failure is None
            for partition in partitions
        )

    def changed(self) -> Future[None]:
        """Return a future: something arrived or was lost."""
        return self._wake

    def forget(self, ttid: bytes, partitions: Iterable[int]) -> None:
        """Let the rows of these partitions be replaced: not all are here."""
        if (vote := self.known.get(ttid)) is not None:
            for partition in partitions:
                vote.partitions.pop(partition, None)
            self._note(ttid)

    def confirm(self, ttid: bytes) -> None:
        """Keep the rows that are here, and come, until the own master says how the transaction ends."""
        self.known.setdefault(ttid, _Vote()).confirmed = True

    def marked(self, ttid: bytes) -> None:
        """Note that a transaction has a mark here: it may stay for days."""
        self.known[ttid].prepared = True
        self._note(ttid)

    def is_confirmed(self, ttid: bytes) -> bool:
        """Return whether the own master asked for a transaction and has not ended it."""
        return (vote := self.known.get(ttid)) is not None and vote.confirmed

    def lock(self, ttid: bytes, tid: bytes) -> None:
        """Write the final tid if the metadata is here."""
        self.known[ttid].tid = tid
        self._note(ttid)
        self._commits.lock(ttid, tid)

    def unlock(self, ttid: bytes) -> bool:
        """Move the rows to the committed ones. Return False if the transaction is not locked here."""
        vote = self.known[ttid]
        if vote.tid is None:
            return False
        del self.known[ttid]
        self._commits.unlock(ttid, vote.tid)
        self._note(ttid)
        self._database.commit_soon()
        self._locks.abort(ttid, None)  # of a prepared transaction from before a restart
        return True

    def abort(self, ttid: bytes) -> None:
        """Drop the rows."""
        self.known.pop(ttid, None)
        self._commits.abort(ttid)
        self._note(ttid)
        self._locks.abort(ttid, None)
        self._notify()

    def _notify(self) -> None:
        wake, self._wake = self._wake, Future()
        wake.resolve(None)

    # -- events ------------------------------------------------------------------------------------

    def cells_changed(self, change: CellsChanged) -> None:
        """Forget the rows of cells that were taken away, or will be erased. Drop a transaction that has
        no others: nothing of it belongs to a connection any more (specification 25.63)."""
        for ttid, vote in list(self.known.items()):
            states = {each: self._cells.state(each) for each in vote.partitions}
            self.forget(ttid, [each for each, state in states.items() if state in _GONE])
            if not vote.partitions and not vote.confirmed:
                self.abort(ttid)
        self._notify()

    def operation_started(self) -> None:
        """Go on with the prepared transactions that stay in a backup. Their rows are not fetched again:
        the upstream cluster may be lost (specification 25.54)."""
        if not self._cells.backup.active:
            return
        partition = self._cells.partitions.partition
        for mark in self._backend.marks.prepared():
            metadata, stored, checks = self._commits.prepared_rows(mark.ttid)
            vote = self.known[mark.ttid] = _Vote(confirmed=True, prepared=True)
            ids = [change.oid for change in stored]
            undos = {change.oid for change in stored if change.value_serial is not None}
            for each in {partition(oid) for oid in (*ids, *(oid for oid, _ in checks))}:
                oids = {oid for oid in ids if partition(oid) == each}
                vote.partitions[each] = _Rows(oids=oids, undone=oids & undos, complete=True)
            if metadata is not None:
                rows = vote.partitions.setdefault(partition(mark.ttid), _Rows(complete=True))
                rows.metadata = True

    def operation_stopped(self) -> None:
        """Leave the rows to verification."""
        self.known.clear()
