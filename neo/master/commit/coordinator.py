"""Coordinator of two-phase commit: which transactions begin and finish now (specification 7).

The parts of commits know only those below them. What lets a transaction go on is an event of the cluster,
``commits_advanced``, to which :meth:`Coordinator.finish` reacts.
"""

from __future__ import annotations

import logging

from neo.master.cluster import Cluster
from neo.master.commit.admission import Admission
from neo.master.commit.announcements import Announcements
from neo.master.commit.open_transactions import OpenTransactions
from neo.master.commit.prepared import PreparedTransactions
from neo.master.commit.preset_tids import PresetTids
from neo.master.commit.requests import CommitRequests
from neo.master.commit.rounds import Rounds
from neo.master.commit.sync_backups import SyncBackups
from neo.master.commit.transactions import Transaction, Transactions
from neo.master.commit.votes import FailedVotes
from neo.master.maintenance.replication import Replication
from neo.master.settings import MasterSettings
from neo.net.fault_sites import LATE_SECONDS, FaultSite
from neo.node.core import Core
from neo.node.peer import Peer
from neo.protocol.enums import ClusterState, ErrorCode
from neo.protocol.ids import MAX_TID, add64
from neo.protocol.packets import (
    AnswerBeginTransaction,
    AnswerFinalTID,
    AnswerTransactionFinished,
    CellChange,
    InvalidateObjects,
    NotifyUnlockInformation,
)

logger = logging.getLogger("neo.master")


#: A tid that a client imposes must leave room for later transactions: the last 2**48 tids are the last 45
#: days that a tid can express.
TID_IMPOSED_MAX = add64(MAX_TID, -(2**48))


class Coordinator:
    def __init__(
        self,
        cluster: Cluster,
        core: Core,
        transactions: Transactions[Peer],
        replication: Replication,
        settings: MasterSettings,
    ) -> None:
        """Create the parts of commits. Each part knows only parts that are created before it."""
        self._cluster = cluster
        self._core = core
        self.transactions = transactions
        self._replication = replication
        #: No transaction may begin: see :meth:`hold`.
        self._held = False
        #: Pending AskBeginTransaction, which wait until all storage nodes are ready: one per client
        #: thread.
        self._begins: list[tuple[Peer, int, bytes | None]] = []
        self._final_tid: dict[bytes, list[tuple[Peer, int]]] = {}
        #: Transactions that were finished, and since when they are counted, seconds since 1970.
        self.finished_count = 0
        self.counted_since = core.host.time()
        self.failed_votes = FailedVotes(cluster=cluster, transactions=transactions)
        self._announcements = Announcements(cluster=cluster, core=core)
        self._preset = PresetTids(cluster=cluster)
        self.backups = SyncBackups(
            cluster=cluster, core=core, transactions=transactions, settings=settings
        )
        self.requests = CommitRequests(
            cluster=cluster,
            core=core,
            transactions=transactions,
            replication=replication,
            backups=self.backups,
            preset=self._preset,
        )
        self.admission = Admission(cluster=cluster, requests=self.requests)
        self.open = OpenTransactions(
            cluster=cluster, core=core, transactions=transactions, requests=self.requests
        )
        self._rounds = Rounds(cluster=cluster)
        self.prepared = PreparedTransactions(
            cluster=cluster,
            core=core,
            transactions=transactions,
            replication=replication,
            rounds=self._rounds,
            backups=self.backups,
            requests=self.requests,
        )

    # -- begin -----------------------------------------------------------------------------------

    def begin(self, peer: Peer, message_id: int, tid: bytes | None) -> None:
        self._begins.append((peer, message_id, tid))
        late = self._core.host.fault(FaultSite.BEGIN_LATE)
        self._core.call_later(LATE_SECONDS, self.begin_waiting) if late else self.begin_waiting()

    def begin_waiting(self) -> None:
        """Begin pending transactions, unless a storage node is about to be ready, which would miss
        their data. A tid that was imposed before waits until all storage nodes know how that
        transaction ended."""
        if self._held or self._cluster.starting or self._cluster.state is not ClusterState.RUNNING:
            return
        begins, self._begins = self._begins, []
        for peer, message_id, tid in begins:
            if self._preset.ending(tid):
                self._begins.append((peer, message_id, tid))
            elif not peer.closed:
                self._begin(peer, message_id, tid)

    @property
    def prepared_count(self) -> int:
        return len(self.prepared)

    def under_way(self) -> list[Transaction[Peer]]:
        """Return the open transactions, without the prepared ones."""
        return self.transactions.all()

    def hold(self) -> bool:
        """Let no transaction begin. Return whether all open transactions are prepared."""
        self._held = True
        return self.idle()

    def release(self) -> None:
        """Let transactions begin again."""
        self._held = False
        self.begin_waiting()

    def _begin(self, peer: Peer, message_id: int, tid: bytes | None) -> None:
        tids = self._cluster.tids
        if tid is not None:
            if tid > TID_IMPOSED_MAX:
                text = f"tid {tid.hex()} is too far in the future: no transaction could follow it"
                peer.refuse(message_id, ErrorCode.PROTOCOL_ERROR, text)
                return
            if self.late(tid):
                text = (
                    f"tid {tid.hex()} is not later than the last transaction,"
                    f" {self._cluster.last_tid.hex()}: a copy can only continue a database"
                )
                peer.refuse(message_id, ErrorCode.PROTOCOL_ERROR, text)
                return
            tids.seen(tid)
        ttid = tids.ttid() if tid is None else tid
        try:
            transaction = self.transactions.begin(ttid, peer, self._cluster.ready, tid)
        except KeyError:
            text = f"transaction {ttid.hex()} is already running"
            peer.refuse(message_id, ErrorCode.PROTOCOL_ERROR, text)
        else:
            assert peer.node is not None and peer.node.nid is not None
            transaction.nid = peer.node.nid
            transaction.ptid = self._cluster.partitions.ptid or 0
            transaction.since = self._core.host.monotonic()
            self.open.began(ttid)
            peer.answer(message_id, AnswerBeginTransaction(ttid))

    def late(self, tid: bytes) -> bool:
        """Return whether a later tid was used already. Clients may have read snapshots that must not
        change any more, and replicas that were away would not look for this transaction."""
        return tid <= max(self._cluster.last_tid, self.transactions.last_tid())

    # -- finish ----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Finish all transactions whose turn it is (specification 7.33), and end the rounds that are
        over, unless a master that knows an older partition table could start without them."""
        while self._cluster.published.complete:
            if self.backups.configured:
                self.backups.offer()
            transaction = self.transactions.pop_finished()
            if transaction is None:
                break
            self._finish(transaction)
        if self._rounds.open:
            self._rounds.evaluate()
        if self.backups.configured and self._cluster.published.complete:
            self.prepared.evaluate()
        self._cluster.events.transactions_ended()

    def _finish(self, transaction: Transaction[Peer]) -> None:
        cluster, ttid, tid = self._cluster, transaction.ttid, transaction.tid
        assert tid is not None
        cluster.last_tid = max(cluster.last_tid, tid)
        self.finished_count += 1
        # While no node is lost, the table at the time of the lock is enough: each node can finish with
        # it.
        cluster.served(transaction.locked_ptid or cluster.partitions.ptid or 0)
        committer, mark = transaction.client, transaction.mark
        if committer is not None and mark is None:
            committer.answer(transaction.message_id, AnswerTransactionFinished(ttid, tid))
        self._announcements.announce(InvalidateObjects(tid, transaction.stored), committer)
        for nid in transaction.nodes:
            if (storage := cluster.connected.get(nid)) is not None:
                storage.send(NotifyUnlockInformation(ttid))
        asked = self._replication.finished(ttid, tid)
        self.requests.abort_on(ttid, self.requests.newcomers(transaction) - asked)
        for peer, message_id in self._final_tid.pop(ttid, ()):
            peer.answer(message_id, AnswerFinalTID(tid))
        if mark is not None:
            self.prepared.finished(mark.xid, ttid, tid)

    def wait_final_tid(self, transaction: Transaction[Peer], peer: Peer, message_id: int) -> None:
        """Answer AskFinalTID when the transaction is finished."""
        self._final_tid.setdefault(transaction.ttid, []).append((peer, message_id))

    # -- abort and loss --------------------------------------------------------------------------

    def client_lost(self, client: Peer) -> None:
        self.open.client_lost(client)
        self.backups.client_lost(client)
        for transaction in self.transactions.client_lost(client):
            logger.info("transaction %s is dropped with its client", transaction.ttid.hex())
            self.requests.aborted(transaction)
        self._cluster.events.transactions_ended()

    def go_on_without(self, nid: int) -> None:
        """Take a lost storage node out of all transactions, which the other nodes can finish."""
        self.transactions.storage_lost(nid)
        self._rounds.storage_lost(nid)
        self.finish()
        self.begin_waiting()

    def idle(self) -> bool:
        """Return whether nothing is under way: prepared transactions wait for their coordinators."""
        return self.transactions.idle() and not self._rounds.open

    # -- events ----------------------------------------------------------------------------------

    def storage_lost(self, nid: int) -> None:
        """Wait for :meth:`go_on_without`: without the node the cluster may not be operational."""

    def cells_changed(self, ptid: int, changes: list[CellChange]) -> None:
        """Transactions in progress keep the nodes that they began with."""

    def table_confirmed(self) -> None:
        self.finish()

    def operation_stopped(self) -> None:
        """Forget all transactions: VERIFYING decides about those that were being finished."""
        self.transactions.clear()
        self._rounds.clear()
        self.prepared.clear()
        self.open.clear()
        self._begins.clear()
        self._held = False
        self.failed_votes.clear()
        self._final_tid.clear()
        self.backups.clear()
