"""What is prepared upstream, which a synchronous backup keeps (specification 25.26, 25.27).

Theory of operation
-------------------
While the backup is a member it is asked to keep each transaction that is prepared, and told when one is
rolled back; a commit is a lock. Its storage nodes have the rows with a mark, which survive restarts.

Outside, a transaction may end without notice. What is prepared then stays until the backup joins again
and is told what is prepared still; or until cells are complete up to a transaction that changes one of
its objects: they were locked as long as it was prepared.

A mark that a readable cell lacks is void when the cluster takes over (specification 24.19). So a cell
becomes readable when its node has the marks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

from neo.master.backup.pipeline import Cells, Rows
from neo.master.backup.rows import RowRequests
from neo.master.cluster import Cluster
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode, NodeType
from neo.protocol.ids import format_xid
from neo.protocol.packets import AbortTransaction, AnswerPrepareBackup, SyncMark


class Member(Protocol):
    """The membership of the backup in the commits of the upstream cluster."""

    @property
    def may_unlock(self) -> bool:
        """Whether every master would come to a partition table in which lost nodes are out of date."""

    @property
    def complete(self) -> bytes:
        """The tid up to which all readable cells are complete durably."""

    def leave(self, reason: str) -> None:
        """Give up the membership, if there is one: a transaction cannot be prepared."""


@dataclass(slots=True, eq=False)
class _Kept:
    mark: SyncMark
    rows: Rows
    #: The pending AskPrepareBackup.
    asker: tuple[Peer, int] | None = None
    #: The backup was not in sync since it got this one: the revisions that it is based on may be missing.
    fresh: bool = True
    #: A transaction that changed one of its objects: it has ended before.
    changed: bytes | None = None


class Marks:
    """Bounds: what is prepared upstream; one pending question for each."""

    def __init__(
        self,
        cluster: Cluster,
        requests: RowRequests,
        cells: Cells,
        member: Member,
        known: Iterable[SyncMark],
    ) -> None:
        """``cells``: return the nodes with a cell of a partition that can be read, or is about to be.
        ``known``: what storage nodes have kept."""
        self._cluster = cluster
        self._requests = requests
        self._cells = cells
        self._member = member
        self._kept: dict[bytes, _Kept] = {}
        self._by_oid: dict[bytes, bytes] = {}
        #: Those with a pending question, or that have ended.
        self._open: dict[bytes, None] = {}
        for mark in known:
            kept = self._add(mark)
            kept.fresh = False
            for partition in kept.rows.partitions:
                kept.rows.cells.update((partition, nid) for nid in self._readable(partition))

    def __contains__(self, ttid: bytes) -> bool:
        return ttid in self._kept

    def partitions(self, ttid: bytes) -> Collection[int]:
        """Return the partitions of a transaction; none if it is not kept."""
        kept = self._kept.get(ttid)
        return () if kept is None else kept.rows.partitions

    def names(self) -> list[str]:
        """Return the xids for people."""
        return [format_xid(kept.mark[1]) for kept in self._kept.values()]

    def _readable(self, partition: int) -> list[int]:
        return self._cluster.partitions.readable(partition)

    def _add(self, mark: SyncMark) -> _Kept:
        ttid, _, _, _, partitions, oids = mark
        kept = self._kept[ttid] = _Kept(mark, Rows(frozenset(partitions)))
        self._by_oid.update(dict.fromkeys(oids, ttid))
        return kept

    def _forget(self, ttid: bytes) -> None:
        kept = self._kept.pop(ttid)
        self._open.pop(ttid, None)
        for oid in kept.mark[5]:
            if self._by_oid.get(oid) == ttid:
                del self._by_oid[oid]

    def _drop(self, ttid: bytes) -> None:
        self._forget(ttid)
        self._cluster.broadcast(AbortTransaction(ttid, []), NodeType.STORAGE)

    # -- the upstream cluster ------------------------------------------------------------------------

    def join(self, marks: Iterable[SyncMark]) -> None:
        """Get what is prepared upstream, and drop the rest. Nodes that have the rows answer at once."""
        prepared = {mark[0]: mark for mark in marks}
        for ttid in [ttid for ttid in self._kept if ttid not in prepared]:
            self._drop(ttid)
        for ttid, mark in prepared.items():
            fresh = ttid not in self._kept or self._kept[ttid].fresh
            self._add(mark).fresh = fresh
        self.ask()

    def joined(self) -> None:
        """Note that the backup is in sync: it has what these transactions are based on."""
        for kept in self._kept.values():
            kept.fresh = False

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
        self._ask(ttid, kept)
        self.evaluate()

    def aborted(self, ttid: bytes) -> None:
        """Drop a transaction that was rolled back upstream, or a vote of an unknown one."""
        if ttid in self._kept:
            self._drop(ttid)

    def committed(self, ttid: bytes) -> None:
        """Forget a transaction that was unlocked here."""
        if ttid in self._kept:
            self._forget(ttid)

    def heard(self, tid: bytes, oids: Iterable[bytes]) -> None:
        """Note a transaction that this backup did not lock."""
        for oid in oids:
            ttid = self._by_oid.get(oid)
            if ttid is not None and self._kept[ttid].changed is None:
                self._kept[ttid].changed = tid
                self._open[ttid] = None

    def left(self, reason: str) -> None:
        """Refuse what is not durable."""
        for kept in self._kept.values():
            if kept.asker is not None:
                (peer, message_id), kept.asker = kept.asker, None
                peer.refuse(message_id, ErrorCode.INCOMPLETE_TRANSACTION, reason)

    def end(self) -> None:
        """Drop what may be based on revisions that are missing: backup mode ends."""
        for ttid in [ttid for ttid, kept in self._kept.items() if kept.fresh]:
            self._drop(ttid)

    # -- storage nodes -------------------------------------------------------------------------------

    def ask(self) -> None:
        """Ask nodes for the rows that they lack."""
        for ttid, kept in list(self._kept.items()):
            self._ask(ttid, kept)

    def _ask(self, ttid: bytes, kept: _Kept) -> None:
        self._requests.ask(
            *(ttid, kept.mark[5], kept.mark, kept.rows, self._cells),
            lambda nid, error: self._answered(error),
        )

    def _answered(self, error: str | None) -> None:
        # Outside, a node that cannot get the rows does without: the transaction may have ended.
        if error is not None:
            self._member.leave(error)
        else:
            self.evaluate()

    def evaluate(self) -> None:
        """Answer for what is durable, and drop what has ended."""
        if not self._open or not self._member.may_unlock:
            return
        complete = self._member.complete
        for ttid in list(self._open):
            kept = self._kept[ttid]
            if kept.changed is not None and kept.changed <= complete:
                self._drop(ttid)
            elif kept.asker is not None and kept.rows.complete(self._readable):
                (peer, message_id), kept.asker = kept.asker, None
                kept.fresh = False
                del self._open[ttid]
                peer.answer(message_id, AnswerPrepareBackup(ttid))

    def has(self, partition: int, nid: int) -> bool:
        """Return whether the cell can be read as far as marks are concerned."""
        return all(
            (partition, nid) in kept.rows.cells and nid not in kept.rows.waiting
            for kept in self._kept.values()
            if partition in kept.rows.partitions
        )

    def storage_lost(self, nid: int) -> None:
        for kept in self._kept.values():
            kept.rows.lost(nid)
