"""Transactions that are prepared upstream, and kept in a synchronous backup (specification 25.26, 25.27,
25.50 to 25.58).

Theory of operation
-------------------
::

    prepare, join ──> unasked ──all before it is complete──> kept ──┬─ committed: it was locked here
                         │                                          └─ dropped: rolled back, or ended
                         └─ forgotten: the backup leaves               while the backup was outside

While the backup is a member it is asked to keep each transaction that is prepared, and told when one is
rolled back; a commit is a lock. Its storage nodes have the rows with a mark, which survives restarts.

Outside, a transaction may end without notice. What is kept then stays until it is known that it has
ended, and all cells are complete up to a tid at which it had.

Rules:

* a node is asked for a mark when all that the transaction may be based on is complete here: a mark is
  never based on revisions that the backup lacks, whenever it takes over;
* a cell becomes readable when its node has all marks: one that a readable cell lacks is void when the
  cluster takes over (specification 24.42).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from neo.master.cluster import Cluster
from neo.master.sync.copy import Copy
from neo.master.sync.pipeline import BackupTransaction, Rows
from neo.master.sync.rows import RowRequests
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode, NodeType
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import AbortTransaction, AnswerPrepareBackup, PreparedRow, SyncMark

#: Called with the xid, ttid and tid of a transaction that was kept, and is committed.
Committed = Callable[[bytes, bytes, bytes], None]


class Membership(Protocol):
    """The membership of the backup in the commits of the upstream cluster."""

    @property
    def may_keep(self) -> bool:
        """Whether all that a transaction which is prepared now may be based on is complete here."""

    def leave(self, reason: str) -> None:
        """Give up the membership, if there is one: a transaction cannot be kept."""


@dataclass(slots=True, eq=False)
class _Kept:
    mark: SyncMark
    rows: Rows
    #: Storage nodes may be asked to keep the transaction.
    asked: bool = False
    #: The pending AskPrepareBackup.
    asker: tuple[Peer, int] | None = None
    #: Set when the transaction has ended upstream: if it was committed, then at this tid or before.
    ended: bytes | None = None


class Marks:
    """Bounds: what is prepared upstream; one pending question for each."""

    def __init__(
        self,
        cluster: Cluster,
        copy: Copy,
        requests: RowRequests,
        membership: Membership,
        remember: Committed,
    ) -> None:
        """``remember``: told of transactions that were kept."""
        self._cluster = cluster
        self._requests = requests
        self._cells = copy.cells
        self._positions = copy.positions
        self._membership = membership
        self._remember = remember
        self._kept: dict[bytes, _Kept] = {}
        self._by_oid: dict[bytes, bytes] = {}
        #: Transactions that are not asked, have a pending question, or have ended.
        self._open: dict[bytes, None] = {}
        self._stopped = False
        for mark in copy.marks:
            kept = self._add(mark)
            kept.asked = True
            for partition in kept.rows.partitions:
                kept.rows.cells.update((partition, nid) for nid in self._readable(partition))

    def __contains__(self, ttid: bytes) -> bool:
        return ttid in self._kept

    def rows(self) -> list[PreparedRow]:
        """Return what is kept, for operators (specification 25.69)."""
        return [
            (xid, ttid, None, since, len(oids) + len(checked), text, "kept")
            for ttid, xid, since, text, _, oids, checked in (k.mark for k in self._kept.values())
        ]

    def partitions(self, ttid: bytes) -> Collection[int]:
        """Return the partitions of a transaction; none if it is not kept."""
        kept = self._kept.get(ttid)
        return () if kept is None else kept.rows.partitions

    def _readable(self, partition: int) -> list[int]:
        return self._cluster.partitions.readable(partition)

    def _joining(self, partition: int) -> list[int]:
        """Return the nodes with a cell that is about to become readable."""
        return [nid for nid, cell in self._cells.rows[partition].items() if cell.joining]

    def _add(self, mark: SyncMark) -> _Kept:
        ttid, _, _, _, partitions, oids, _ = mark
        kept = self._kept[ttid] = _Kept(mark, Rows(frozenset(partitions)))
        self._open[ttid] = None
        self._by_oid.update(dict.fromkeys(oids, ttid))
        return kept

    def _forget(self, ttid: bytes) -> _Kept:
        kept = self._kept.pop(ttid)
        self._open.pop(ttid, None)
        for oid in kept.mark[5]:
            if self._by_oid.get(oid) == ttid:
                del self._by_oid[oid]
        return kept

    def _drop(self, ttid: bytes) -> None:
        kept = self._forget(ttid)
        self._cluster.broadcast(AbortTransaction(ttid, []), NodeType.STORAGE)
        self._answer(kept)

    @staticmethod
    def _answer(kept: _Kept) -> None:
        """Answer AskPrepareBackup if it is pending: nothing is missing here."""
        if kept.asker is not None:
            (peer, message_id), kept.asker = kept.asker, None
            peer.answer(message_id, AnswerPrepareBackup(kept.mark[0]))

    # -- the upstream cluster ------------------------------------------------------------------------

    def join(self, tid: bytes, marks: Iterable[SyncMark]) -> None:
        """Get what is prepared upstream. The rest has ended, at ``tid`` at the latest."""
        prepared = {mark[0]: mark for mark in marks}
        for ttid, kept in self._kept.items():
            if ttid in prepared:
                kept.ended = None
            else:
                self._end(kept, tid)
        for ttid, mark in prepared.items():
            if ttid not in self._kept:
                self._add(mark)
        self.ask()

    def _end(self, kept: _Kept, tid: bytes) -> None:
        if kept.ended is None:
            kept.ended = tid
            self._open[kept.mark[0]] = None

    @property
    def ready(self) -> bool:
        """Whether all readable cells have the rows and marks."""
        return all(kept.rows.complete(self._readable) for kept in self._kept.values())

    def prepare(self, peer: Peer, message_id: int, mark: SyncMark) -> None:
        """Keep a transaction, and answer AskPrepareBackup when it is durable."""
        ttid = mark[0]
        kept = self._kept.get(ttid) or self._add(mark)
        kept.asker = peer, message_id
        self._open[ttid] = None
        self.evaluate()

    def aborted(self, ttid: bytes) -> None:
        """Drop a transaction that was rolled back upstream; ignore one that is not kept."""
        if ttid in self._kept:
            self._drop(ttid)
            self._cluster.events.backup_advanced()

    def committed(self, transaction: BackupTransaction) -> None:
        """Forget a transaction that was unlocked here. Nodes that did not take part fetch what was
        committed."""
        if transaction.ttid in self._kept:
            kept = self._forget(transaction.ttid)
            self._requests.abort(transaction.ttid, set(kept.rows.nodes()) - transaction.nodes)
            self._remember(kept.mark[1], transaction.ttid, transaction.tid)

    def heard(self, tid: bytes, oids: Iterable[bytes]) -> None:
        """Note a transaction that this backup did not lock: what held one of its objects has ended."""
        for oid in oids:
            if (ttid := self._by_oid.get(oid)) is not None:
                self._end(self._kept[ttid], tid)

    def left(self, reason: str) -> None:
        """Refuse what is not durable, and forget what no node was asked for."""
        for ttid, kept in list(self._kept.items()):
            if kept.asker is not None:
                (peer, message_id), kept.asker = kept.asker, None
                peer.refuse(message_id, ErrorCode.INCOMPLETE_TRANSACTION, reason)
            if not kept.asked:
                self._forget(ttid)

    # -- storage nodes -------------------------------------------------------------------------------

    def ask(self) -> None:
        """Ask nodes for the rows and marks that they lack."""
        for kept in list(self._kept.values()):
            if kept.asked:
                self._ask(kept)

    def _ask(self, kept: _Kept) -> None:
        ttid, oids = kept.mark[0], kept.mark[5]
        # One after the other: a cell that is about to become readable makes no other one fail.
        for cells in (self._readable, self._joining):
            self._requests.ask(
                ttid=ttid,
                oids=oids,
                mark=kept.mark,
                rows=kept.rows,
                cells=cells,
                answered=partial(self._answered, kept),
            )

    def _answered(
        self, kept: _Kept, nid: int, partitions: Collection[int], error: ErrorAnswer | None
    ) -> None:
        ttid = kept.mark[0]
        if self._stopped:
            return
        if self._kept.get(ttid) is not kept:
            # AbortTransaction may have come to the node before the rows.
            if error is None and ttid not in self._kept:
                self._requests.abort(ttid, [nid])
            return
        if error is None:
            self._ask(kept)
            self._cluster.events.backup_advanced()
            return
        kept.rows.failed(nid, partitions)
        if error.code is ErrorCode.TID_NOT_FOUND:
            self._end(kept, self._cells.last)
            self._cluster.events.backup_advanced()
        elif any(nid in self._readable(partition) for partition in partitions):
            self._membership.leave(error.message)

    def evaluate(self) -> None:
        """Ask for what may be kept now, answer for what is durable, and drop what has ended."""
        if not self._open or not self._positions.table_kept:
            return
        complete = self._cells.complete
        for ttid in list(self._open):
            kept = self._kept.get(ttid)
            if kept is None:
                continue  # the backup left, because another one cannot be had
            if kept.ended is not None:
                if kept.ended <= complete:
                    self._drop(ttid)
            elif not kept.asked:
                if self._membership.may_keep:
                    kept.asked = True
                    self._ask(kept)
            elif kept.asker is None or kept.rows.complete(self._readable):
                self._answer(kept)
                del self._open[ttid]

    def has(self, partition: int, nid: int) -> bool:
        """Return whether the cell can be read as far as marks are concerned."""
        return all(
            kept.rows.has(partition, nid)
            for kept in self._kept.values()
            if partition in kept.rows.partitions
        )

    def storage_lost(self, nid: int) -> None:
        """Take a storage node out of all transactions. If it comes back it is asked again."""
        for kept in self._kept.values():
            kept.rows.lost(nid)

    def stop(self) -> None:
        """Ignore all answers from now on: the operation stops, and verification decides."""
        self._stopped = True
        self._kept.clear()
        self._by_oid.clear()
        self._open.clear()
