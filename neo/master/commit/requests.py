"""What the storage nodes of a transaction are asked: to lock it, or to abort it (specification 7)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial

from neo.master.cluster import Cluster
from neo.master.commit.preset_tids import PresetTids
from neo.master.commit.sync_backups import SyncBackups
from neo.master.commit.transactions import Transaction, Transactions
from neo.master.maintenance.replication import Replication
from neo.net.fault_sites import LATE_SECONDS, FaultSite
from neo.node.core import Core
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.packets import AbortTransaction, AnswerInformationLocked, AskLockInformation

logger = logging.getLogger("neo.master")


class CommitRequests:
    """Reports ``commits_advanced`` when a node has locked, and ``transactions_ended`` after an abort."""

    def __init__(
        self,
        cluster: Cluster,
        core: Core,
        transactions: Transactions[Peer],
        replication: Replication,
        backups: SyncBackups,
        preset: PresetTids,
    ) -> None:
        self._cluster = cluster
        self._core = core
        self._transactions = transactions
        self._replication = replication
        self._backups = backups
        self._preset = preset

    # -- finish ----------------------------------------------------------------------------------

    def lock(
        self, transaction: Transaction[Peer], stored: list[bytes], nodes: Iterable[int]
    ) -> bytes:
        """Allocate the final tid, and a place in the order of commits."""
        if stored:
            self._cluster.oids.seen(max(stored))
        tid = transaction.tid
        if tid is None:
            tid = self._cluster.tids.tid(transaction.ttid, len(self._cluster.partitions))
        transaction.stored = stored
        self._transactions.lock(transaction, tid, nodes)
        return tid

    def ask_locks(self, transaction: Transaction[Peer], tid: bytes) -> None:
        """Ask the connected storage nodes of the transaction to lock."""
        ttid = transaction.ttid
        transaction.locked_ptid = self._cluster.partitions.ptid
        for nid in list(transaction.nodes):
            storage = self._cluster.connected.get(nid)
            if storage is not None:
                request = AskLockInformation(ttid, tid)
                storage.ask(request).then(partial(self._locked, storage, nid, ttid))

    def _locked(
        self, storage: Peer, nid: int, ttid: bytes, answer: Future[AnswerInformationLocked]
    ) -> None:
        try:
            answer.result()
        except ConnectionLost:
            return  # the coordinator takes the node out of the transaction
        except ErrorAnswer as e:
            # The node lacks what it could not lock: recovery or replication must copy it.
            logger.error("%r failed to lock transaction %s: %s", storage, ttid.hex(), e)
            self._cluster.disconnect(storage)
            return
        self._transactions.locked(ttid, nid)
        advance = self._cluster.events.commits_advanced
        late = self._core.host.fault(FaultSite.FINISH_LATE)
        self._core.call_later(LATE_SECONDS, advance) if late else advance()

    # -- abort -----------------------------------------------------------------------------------

    def abort(self, transaction: Transaction[Peer], nids: Iterable[int]) -> None:
        """Forget a transaction, and tell these storage nodes and those that joined since it began."""
        self._transactions.forget(transaction)
        if transaction.mark is not None:
            self._backups.aborted(transaction.ttid)
        self.abort_on(transaction.ttid, {*nids, *self.newcomers(transaction)})
        self.aborted(transaction)
        self._cluster.events.transactions_ended()

    def abort_elsewhere(self, transaction: Transaction[Peer], involved: set[int]) -> None:
        """Abort the transaction on nodes that have no cells of it any more, but had some when it began:
        such nodes keep the rows that they voted until they learn the outcome."""
        if self._replication.discarded_ptid > transaction.ptid:
            self.abort_on(transaction.ttid, (transaction.ready & self._cluster.ready) - involved)

    def abort_on(self, ttid: bytes, nids: Iterable[int]) -> None:
        """Tell these storage nodes that a transaction is aborted, as far as they are connected."""
        for nid in nids:
            storage = self._cluster.connected.get(nid)
            if storage is not None and nid >= 0:
                storage.send(AbortTransaction(ttid, []))

    def newcomers(self, transaction: Transaction[Peer]) -> set[int]:
        """Return the storage nodes that joined since the transaction began. They take no part in it,
        but clients that saw them earlier than the master may have made them vote. A node that has not
        asked for the unfinished transactions yet is told that it is aborted: when the node asks, the
        transaction is among the committed ones."""
        return (self._cluster.starting | self._cluster.ready) - transaction.ready

    def aborted(self, transaction: Transaction[Peer]) -> None:
        """React to the abort of a transaction. Call after the storage nodes were told of the abort, or of
        the loss of its client."""
        self._replication.aborted(transaction.ttid)
        if transaction.tid is not None:
            self._preset.aborted(transaction.tid)
