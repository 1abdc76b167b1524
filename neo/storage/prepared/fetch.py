"""Fetch the rows of prepared transactions for a cell that is out of date (specification 24.25).

Rows replace those that the node has, in the database and in
:class:`~neo.storage.commit.locks.Locks`. They are written as they arrive: the source sends them in small
steps, and no more than this node reads. The rows of a transaction that ended meanwhile are ignored
(specification 24.27).
"""

from __future__ import annotations

from collections.abc import Iterable

from neo.node.peer import Peer
from neo.protocol.blobs import MAGIC, PLACE, content_of
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_TID
from neo.protocol.packets import AddPrepared, AddPreparedObject, AskFetchPrepared
from neo.storage.backend.api import BackendRefused, Check, Decided, Prepared, TransactionMeta
from neo.storage.blobs.fetch import ContentFetch
from neo.storage.cells import Cells
from neo.storage.commit.participant import Participant
from neo.storage.commit.transactions import CellMode, Change
from neo.storage.database import Database
from neo.storage.prepared.transactions import check_partitions
from neo.storage.replication.failure import FetchFailed
from neo.storage.replication.fetch import checked_record


class PreparedFetch:
    """The fetch of a node: one at a time, for one cell."""

    def __init__(
        self,
        database: Database,
        cells: Cells,
        participant: Participant,
        contents: ContentFetch,
    ) -> None:
        self._database = database
        self._marks = database.backend.marks
        self._commits = database.backend.commits
        self._cells = cells
        self._participant = participant
        self._contents = contents
        #: Rows whose content is not here. Bound: those of blobs in the transactions of the fetch.
        self._later: list[AddPreparedObject] = []
        self._locks = participant.locks
        self._source: Peer | None = None
        self._partition = 0
        self._wanted: set[bytes] = set()
        self._failure: str | None = None

    async def run(self, source: Peer, partition: int, ttids: Iterable[bytes]) -> None:
        """Fetch these transactions, and the outcomes that the source remembers. They are durable when
        this ends. Raises ConnectionLost, ErrorAnswer (of the source), FetchFailed."""
        self._source, self._partition = source, partition
        self._wanted, self._failure = set(ttids), None
        self._later.clear()
        try:
            answer = await source.ask(AskFetchPrepared(partition, sorted(self._wanted)))
            await self._add_later(source)
        finally:
            self._source = None
        if self._failure is not None:
            raise FetchFailed(self._failure)
        self._remember([Decided(*row) for row in answer.decided_list if self._is_here(row[1])])
        await self._database.stored()
        self._participant.watch()

    async def _add_later(self, source: Peer) -> None:
        """Fetch contents, then write the rows that refer to them (specification 26.19). Raise
        FetchFailed."""
        for m in self._later:
            if m.ttid not in self._wanted or self._failure:
                continue  # it ended
            checked_record(m, ZERO_TID, source)  # before anybody is asked for what it refers to
            content = content_of(m.data)
            assert content is not None
            if not await self._contents.fetch(m.oid, content, source):
                self._failure = f"content {content} of object {m.oid.hex()} is on no node"
            self._write(source, m)
            self._contents.written(content)

    def _remember(self, outcomes: list[Decided]) -> None:
        """Remember outcomes of the source, unless the xid was used again: the ttid here is greater."""
        if outcomes:
            known = {row.xid: row.ttid for row in self._marks.decided()}
            self._marks.decide(
                row for row in outcomes if row.xid not in known or known[row.xid] <= row.ttid
            )

    def ended(self, ttid: bytes) -> None:
        """Ignore rows of this transaction from now on: it was committed or aborted."""
        self._wanted.discard(ttid)

    def stopped(self) -> None:
        """Ignore all rows: the operation stopped."""
        self._source = None

    def _is_here(self, id_: bytes) -> bool:
        return self._cells.partitions.partition(id_) == self._partition

    # -- what the source sends -----------------------------------------------------------------------

    def add(self, source: Peer, message: AddPrepared | AddPreparedObject) -> None:
        """Write a row of the source, unless the fetch or the transaction ended; later, if its content is
        not here."""
        if (
            isinstance(message, AddPreparedObject)
            and message.data[PLACE] == MAGIC
            and not message.compression
            and source is self._source
        ):
            content = content_of(message.data)
            if content is not None and not self._contents.here(content):
                self._later.append(message)
                return
        self._write(source, message)

    def _write(self, source: Peer, message: AddPrepared | AddPreparedObject) -> None:
        if source is not self._source or message.ttid not in self._wanted or self._failure:
            return
        if self._cells.state(self._partition) is None:
            self._failure = "the cell was taken away"
            return
        try:
            with self._database.attempt():
                if isinstance(message, AddPrepared):
                    self._add(message)
                else:
                    self._add_object(message)
        except (BackendRefused, ErrorAnswer, FetchFailed) as e:
            self._failure = str(e)

    def _add(self, m: AddPrepared) -> None:
        locks, ttid = self._locks, m.ttid
        if locks.final_tid(ttid) is not None:
            self.ended(ttid)  # it is being committed: its rows will be fetched
            return
        check_partitions(self._cells, m.partition_list)
        if self._partition not in m.partition_list:
            return  # the master would not let this node take part
        metadata = None if m.metadata is None else TransactionMeta(*m.metadata)
        mark = Prepared(ttid, m.xid, m.since, m.text, m.partition_list)
        checks: list[Check] = [(oid, serial) for oid, serial in m.checked_list if self._is_here(oid)]
        self._commits.replace_prepared(mark, self._partition, metadata, checks)
        locks.restore(ttid, m.xid, metadata is not None)
        locks.leave(ttid, self._is_here)
        for oid, serial in checks:
            locks.restore_change(ttid, oid, Change(serial, None))

    def _add_object(self, m: AddPreparedObject) -> None:
        locks = self._locks
        if m.ttid not in locks.prepared or not self._is_here(m.oid):
            return
        if self._cells.mode(m.oid) is CellMode.ABSENT or locks.stored(m.ttid, m.oid) is not None:
            self._failure = f"object {m.oid.hex()} of a prepared transaction cannot be added"
            return
        record = checked_record(m, ZERO_TID, self._source)
        stored = self._commits.add_voted_object(m.ttid, m.oid, record)
        locks.restore_change(m.ttid, m.oid, Change(ZERO_TID, stored))
