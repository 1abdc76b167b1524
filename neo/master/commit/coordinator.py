"""The master's side of two-phase commit: whom to ask, whom to tell, in which order (FACTS 7)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from neo.master.commit.open_transactions import OpenTransactions
from neo.master.commit.preset_tids import PresetTids
from neo.master.commit.transactions import Transaction, Transactions
from neo.master.commit.votes import FailedVotes
from neo.net.fault_sites import LATE_SECONDS, FaultSite
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.enums import ClusterState, ErrorCode, NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import MAX_TID, add64
from neo.protocol.packets import (
    AbortTransaction,
    AnswerBeginTransaction,
    AnswerFinalTID,
    AnswerTransactionFinished,
    AskLockInformation,
    InvalidateObjects,
    Message,
    NotifyUnlockInformation,
)

if TYPE_CHECKING:
    from neo.master.core import MasterCore

logger = logging.getLogger("neo.master")


#: A tid that a client imposes must leave room for those of later transactions: 2**48 tids are 45 days
#: before the end of time as tids count it.
TID_IMPOSED_MAX = add64(MAX_TID, -(2**48))


class Coordinator:
    def __init__(self, master: MasterCore) -> None:
        self.master = master
        self.transactions: Transactions[Peer] = Transactions()
        #: AskBeginTransaction received while a storage is not ready yet: one per client thread.
        self._begins: list[tuple[Peer, int, bytes | None]] = []
        self._final_tid: dict[bytes, list[tuple[Peer, int]]] = {}
        self.failed_votes = FailedVotes(master)
        self.preset = PresetTids(master)
        self.open = OpenTransactions(master)

    # -- begin -----------------------------------------------------------------------------------

    def begin(self, peer: Peer, message_id: int, tid: bytes | None) -> None:
        self._begins.append((peer, message_id, tid))
        if self.master.shell.fault(FaultSite.BEGIN_LATE):
            self.master.call_later(LATE_SECONDS, self.begin_waiting)
        else:
            self.begin_waiting()

    def begin_waiting(self) -> None:
        """Start what was asked, unless a storage is about to be ready: it would miss the data. A tid that
        was imposed before waits until its end is known everywhere."""
        if self.master.starting or self.master.state is not ClusterState.RUNNING:
            return
        begins, self._begins = self._begins, []
        for peer, message_id, tid in begins:
            if self.preset.ending(tid):
                self._begins.append((peer, message_id, tid))
            elif not peer.closed:
                self._begin(peer, message_id, tid)

    def _begin(self, peer: Peer, message_id: int, tid: bytes | None) -> None:
        tids = self.master.tids
        if tid is not None:
            if tid > TID_IMPOSED_MAX:
                text = f"tid {tid.hex()} is too far in the future: no transaction could follow it"
                peer.refuse(message_id, ErrorCode.PROTOCOL_ERROR, text)
                return
            if self.late(tid):
                text = (
                    f"tid {tid.hex()} is not later than the last transaction,"
                    f" {self.master.last_tid.hex()}: a copy can only continue a database"
                )
                peer.refuse(message_id, ErrorCode.PROTOCOL_ERROR, text)
                return
            tids.seen(tid)
        ttid = tids.ttid() if tid is None else tid
        try:
            transaction = self.transactions.begin(ttid, peer, self.master.ready, tid)
        except KeyError:
            text = f"transaction {ttid.hex()} is already running"
            peer.refuse(message_id, ErrorCode.PROTOCOL_ERROR, text)
        else:
            transaction.ptid = self.master.partitions.ptid or 0
            transaction.since = self.master.shell.monotonic()
            self.open.began(ttid)
            peer.answer(message_id, AnswerBeginTransaction(ttid))

    def late(self, tid: bytes) -> bool:
        """Whether a transaction with this tid would come after a later one. Snapshots in which it is
        missing may have been read, and replicas that were away would not look for it."""
        return tid <= max(self.master.last_tid, self.transactions.last_tid())

    # -- finish ----------------------------------------------------------------------------------

    def lock(
        self, transaction: Transaction[Peer], stored: list[bytes], nodes: Iterable[int]
    ) -> bytes:
        """Give the final tid, and a place in the order of commits."""
        master = self.master
        if stored:
            master.oids.seen(max(stored))
        tid = transaction.tid
        if tid is None:
            tid = master.tids.tid(transaction.ttid, len(master.partitions))
        transaction.stored = stored
        self.transactions.lock(transaction, tid, nodes)
        return tid

    def abort_elsewhere(self, transaction: Transaction[Peer], involved: set[int]) -> None:
        """Nodes that had cells of the transaction when it stored, and have none any more, keep what
        they voted until they hear how it ended: for them it is as if it were aborted."""
        if self.master.replication.discarded_ptid > transaction.ptid:
            self._abort_on(transaction.ttid, (transaction.ready & self.master.ready) - involved)

    def ask_locks(self, transaction: Transaction[Peer], tid: bytes) -> None:
        """Ask the storages of the transaction that are still there."""
        transaction.locked_ptid = self.master.partitions.ptid
        for nid in list(transaction.nodes):
            storage = self.master.connected.get(nid)
            if storage is not None:
                self._ask_lock(storage, nid, transaction.ttid, tid)

    def _ask_lock(self, storage: Peer, nid: int, ttid: bytes, tid: bytes) -> None:
        def locked(future: Future[Message]) -> None:
            try:
                future.result()
            except ConnectionLost:
                return  # storage_lost() takes it out of the transaction
            except ErrorAnswer as e:
                # What it could not lock it has not got: recovery or replication must give it back.
                logger.error("%r did not lock %s: %s", storage, ttid.hex(), e)
                self.master.disconnect(storage)
                return
            self.transactions.locked(ttid, nid)
            if self.master.shell.fault(FaultSite.FINISH_LATE):
                self.master.call_later(LATE_SECONDS, self.finish)
            else:
                self.finish()

        storage.ask(AskLockInformation(ttid, tid)).then(locked)

    def finish(self) -> None:
        """Complete all transactions whose turn it is (FACTS 7.2), unless a master that knows an older
        partition table could begin without them."""
        while self.master.published.complete:
            transaction = self.transactions.pop_finished()
            if transaction is None:
                break
            self._finish(transaction)
        self.failed_votes.evaluate()
        self.master.check_stopped()

    def _finish(self, transaction: Transaction[Peer]) -> None:
        master, ttid, tid = self.master, transaction.ttid, transaction.tid
        assert tid is not None
        master.last_tid = max(master.last_tid, tid)
        # Without the loss of a node the older table would do: each has what it needs to finish.
        master.served(transaction.locked_ptid or master.partitions.ptid or 0)
        if not transaction.client_lost:
            answer = AnswerTransactionFinished(ttid, tid)
            transaction.client.answer(transaction.message_id, answer)
        invalidation = InvalidateObjects(tid, transaction.stored)
        for client in master.of_type(NodeType.CLIENT):
            if client is not transaction.client:
                client.send(invalidation)
        for nid in transaction.nodes:
            if (storage := master.connected.get(nid)) is not None:
                storage.send(NotifyUnlockInformation(ttid))
        asked = master.replication.finished(ttid, tid)
        self._abort_on(ttid, self._newcomers(transaction) - asked)
        for peer, message_id in self._final_tid.pop(ttid, ()):
            peer.answer(message_id, AnswerFinalTID(tid))

    def wait_final_tid(self, transaction: Transaction[Peer], peer: Peer, message_id: int) -> None:
        """Answer AskFinalTID when the transaction is finished."""
        self._final_tid.setdefault(transaction.ttid, []).append((peer, message_id))

    # -- abort and loss --------------------------------------------------------------------------

    def abort(self, transaction: Transaction[Peer], nids: Iterable[int]) -> None:
        """Forget it and tell these storages."""
        self.transactions.forget(transaction)
        self._abort_on(transaction.ttid, {*nids, *self._newcomers(transaction)})
        self._aborted(transaction)
        self.failed_votes.evaluate()
        self.master.check_stopped()

    def _abort_on(self, ttid: bytes, nids: Iterable[int]) -> None:
        for nid in nids:
            storage = self.master.connected.get(nid)
            if storage is not None and nid >= 0:
                storage.send(AbortTransaction(ttid, []))

    def _newcomers(self, transaction: Transaction[Peer]) -> set[int]:
        """Return the storage nodes that joined since the transaction began. They take no part in it, but
        clients that saw them earlier than the master may have made them vote. For those that have not
        asked for the unfinished transactions yet it is as if it were aborted: when they ask, it is
        among the committed ones."""
        return (self.master.starting | self.master.ready) - transaction.ready

    def _aborted(self, transaction: Transaction[Peer]) -> None:
        """Storage nodes were told of its end, or of the loss of its client."""
        self.master.replication.aborted(transaction.ttid)
        if transaction.tid is not None:
            self.preset.aborted(transaction.tid)

    def client_lost(self, client: Peer) -> None:
        self.open.client_lost(client)
        for transaction in self.transactions.client_lost(client):
            logger.info("transaction %s is dropped with its client", transaction.ttid.hex())
            self._aborted(transaction)
        self.failed_votes.evaluate()
        self.master.check_stopped()

    def storage_lost(self, nid: int) -> None:
        """The cluster is operational without it: go on with the others."""
        self.transactions.storage_lost(nid)
        self.finish()
        self.begin_waiting()

    def clear(self) -> None:
        """Not operational: VERIFYING will decide about what was being finished."""
        self.master.replication.clear()
        self.transactions.clear()
        self.open.clear()
        self._begins.clear()
        self.failed_votes.clear()
        self._final_tid.clear()
