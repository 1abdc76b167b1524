"""Requests to the storage nodes of a synchronous backup, for each transaction that it is to lock
(specification 25.10, 25.20).

The order is that of :mod:`neo.master.sync.pipeline`. AskLockBackup is answered when all readable cells
remember that they are complete up to the transaction, not when it is locked: if all nodes fail between
unlock and Replicate, they have it and do not know that, and a take-over would delete it (specification
25.42).
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import partial
from typing import NamedTuple, Protocol

from neo.master.cluster import Cluster
from neo.master.sync.copy import Copy
from neo.master.sync.marks import Marks
from neo.master.sync.pipeline import BackupTransaction, Rows
from neo.master.sync.rows import RowRequests
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.packets import (
    AnswerInformationLocked,
    AnswerLockBackup,
    AskLockBackup,
    AskLockInformation,
    NotifyUnlockInformation,
)

logger = logging.getLogger("neo.master")


class Membership(Protocol):
    """The membership of the backup in the commits of the upstream cluster."""

    @property
    def may_lock(self) -> bool:
        """Whether the lock of another transaction may begin."""

    def leave(self, reason: str) -> None:
        """Give up the membership: a transaction cannot be prepared."""

    def unlocked(self, transaction: BackupTransaction) -> None:
        """Note a transaction that its nodes were told to unlock."""


class _Asker(NamedTuple):
    """A pending AskLockBackup."""

    peer: Peer
    message_id: int
    ttid: bytes
    tid: bytes


class Locking:
    """Bounds: those of the pipeline; pending questions, one for each open transaction of the upstream
    cluster."""

    def __init__(
        self, cluster: Cluster, copy: Copy, requests: RowRequests, marks: Marks, membership: Membership
    ) -> None:
        self._cluster = cluster
        self._requests = requests
        self._membership = membership
        self.pipeline = copy.pipeline
        self._cells = copy.cells
        self._positions = copy.positions
        self._marks = marks
        #: Questions for the transactions of the pipeline, by ttid; and for those that are unlocked.
        self._askers: dict[bytes, _Asker] = {}
        self._unanswered: list[_Asker] = []

    @property
    def busy(self) -> bool:
        """Whether a transaction is between its lock and its unlock."""
        return self.pipeline.locking

    # -- rows --------------------------------------------------------------------------------------

    def add(self, peer: Peer, message_id: int, m: AskLockBackup) -> None:
        """Prepare a transaction, and lock it when it is its turn. Raise ValueError if it is not later
        than the earlier ones."""
        partition = self._cluster.partitions.partition
        # What is prepared here has those of objects that it checked, too.
        partitions = frozenset(
            (*map(partition, (m.ttid, *m.oid_list)), *self._marks.partitions(m.ttid))
        )
        transaction = BackupTransaction(m.ttid, m.tid, m.oid_list, Rows(partitions))
        self.pipeline.add(transaction)
        self._askers[m.ttid] = _Asker(peer, message_id, m.ttid, m.tid)
        self._ask_rows(transaction)

    def _ask_rows(self, transaction: BackupTransaction) -> None:
        """Ask nodes with readable cells for the rows, unless they were asked."""
        self._requests.ask(
            ttid=transaction.ttid,
            oids=transaction.oids,
            mark=None,
            rows=transaction.rows,
            cells=self._cluster.partitions.readable,
            answered=partial(self._voted, transaction),
        )

    def _voted(
        self,
        transaction: BackupTransaction,
        nid: int,
        partitions: Collection[int],
        error: ErrorAnswer | None,
    ) -> None:
        if self.pipeline.get(transaction.ttid) is not transaction:
            return  # it was dropped
        if error is not None:
            self._membership.leave(error.message)
        else:
            self._ask_rows(transaction)  # the node may have got another cell meanwhile
            self.evaluate()

    # -- locks -------------------------------------------------------------------------------------

    def evaluate(self) -> None:
        """Unlock what is locked, answer what is durable, and begin the next lock if it is its turn."""
        while self._positions.table_kept and (locked := self.pipeline.pop_locked()) is not None:
            self._unlock(locked)
        if self._unanswered and self._positions.table_kept:
            self._answer(self._cells.complete)
        if self._membership.may_lock and (next_ := self.pipeline.next()) is not None:
            self._lock(next_)

    def _lock(self, transaction: BackupTransaction) -> None:
        for nid in self.pipeline.lock(transaction):
            if (storage := self._cluster.connected.get(nid)) is not None:
                request = AskLockInformation(transaction.ttid, transaction.tid)
                storage.ask(request).then(partial(self._locked, transaction, storage, nid))

    def _locked(
        self,
        transaction: BackupTransaction,
        storage: Peer,
        nid: int,
        answer: Future[AnswerInformationLocked],
    ) -> None:
        if self.pipeline.get(transaction.ttid) is not transaction:
            return  # the operation stopped
        try:
            answer.result()
        except ConnectionLost:
            return
        except ErrorAnswer as e:
            # The node lacks what it could not lock: recovery or replication must copy it.
            ttid = transaction.ttid.hex()
            logger.error("%r failed to lock transaction %s: %s", storage, ttid, e)
            self._cluster.disconnect(storage)
            return
        self.pipeline.locked(transaction, nid)
        self.evaluate()

    def _unlock(self, transaction: BackupTransaction) -> None:
        for nid in sorted(transaction.nodes):
            if (storage := self._cluster.connected.get(nid)) is not None:
                storage.send(NotifyUnlockInformation(transaction.ttid))
        # The others have no readable cell of it any more.
        self._requests.abort(transaction.ttid, set(transaction.rows.nodes()) - transaction.nodes)
        self._unanswered.append(self._askers.pop(transaction.ttid))
        self._membership.unlocked(transaction)

    def answer_later(self, peer: Peer, message_id: int, m: AskLockBackup) -> None:
        """Answer when a transaction that was unlocked before is complete in all cells."""
        self._unanswered.append(_Asker(peer, message_id, m.ttid, m.tid))

    def _answer(self, complete: bytes) -> None:
        for asker in self._unanswered:
            if asker.tid <= complete:
                asker.peer.answer(asker.message_id, AnswerLockBackup(asker.ttid))
        self._unanswered = [asker for asker in self._unanswered if asker.tid > complete]

    # -- losses ------------------------------------------------------------------------------------

    def storage_lost(self, nid: int) -> None:
        """Take a node out of all transactions. Call :meth:`cells_changed` when its cells are out of date:
        without the node the cluster may not be operational."""
        self.pipeline.storage_lost(nid)

    def cells_changed(self) -> None:
        """Ask nodes that have got a readable cell for the rows that they lack, and go on."""
        for transaction in self.pipeline.preparing():
            if self.pipeline.get(transaction.ttid) is transaction:  # not dropped, for an earlier one
                self._ask_rows(transaction)
        self.evaluate()

    def drop(self, reason: str) -> None:
        """Refuse the transactions that no node was asked to lock, and abort those that are not
        prepared."""
        for transaction in self.pipeline.drop():
            asker = self._askers.pop(transaction.ttid)
            asker.peer.refuse(asker.message_id, ErrorCode.INCOMPLETE_TRANSACTION, reason)
            if transaction.ttid not in self._marks:
                self._requests.abort(transaction.ttid, transaction.rows.nodes())

    def clear(self) -> None:
        """Forget everything: the operation stops."""
        self.pipeline.clear()
        self._askers.clear()
        self._unanswered.clear()
