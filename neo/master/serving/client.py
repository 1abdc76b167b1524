"""Clients in service: ids, and the steps of their commits (specification 7)."""

from __future__ import annotations

from neo.master.cluster import Cluster
from neo.master.commit.coordinator import Coordinator
from neo.master.commit.transactions import State, Transaction
from neo.master.denial import denied
from neo.master.maintenance.pack import Packs
from neo.master.operations.part import Operations
from neo.node.handler import Handler, on
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer, PeerError
from neo.protocol.ids import MAX_TID, format_xid
from neo.protocol.packets import (
    AbortTransaction,
    AnswerFinalTID,
    AnswerLastTransaction,
    AnswerNewOIDs,
    AnswerPrepared,
    AnswerSyncLease,
    AskBeginTransaction,
    AskFinalTID,
    AskFinishPrepared,
    AskFinishTransaction,
    AskJoinSync,
    AskLastTransaction,
    AskNewOIDs,
    AskPack,
    AskPrepared,
    AskPrepareTransaction,
    AskSyncLease,
    FailedVote,
    ForgetPrepared,
    Message,
    NotifyChain,
    NotifySynced,
)

#: Bound of the oids in one answer. Clients ask for a hundred.
MAX_NEW_OIDS = 100_000


class ServeClient(Handler):
    def __init__(
        self, cluster: Cluster, coordinator: Coordinator, packs: Packs, operations: Operations
    ) -> None:
        self._cluster = cluster
        self._coordinator = coordinator
        self._packs = packs
        self._operations = operations

    def lost(self, peer: Peer, reason: str) -> None:
        # Storage nodes drop the client's transactions when the node table says that the client is lost.
        self._cluster.forget(peer)
        self._coordinator.client_lost(peer)

    @on(AskLastTransaction)
    def last_transaction(self, peer: Peer, message_id: int, m: AskLastTransaction) -> Message:
        return AnswerLastTransaction(self._cluster.last_tid)

    @on(AskNewOIDs)
    def new_oids(self, peer: Peer, message_id: int, m: AskNewOIDs) -> Message:
        if not 0 < m.num_oids <= MAX_NEW_OIDS:
            raise ErrorAnswer(
                ErrorCode.PROTOCOL_ERROR, f"{m.num_oids} oids asked: 1 to {MAX_NEW_OIDS} are given"
            )
        return AnswerNewOIDs(self._cluster.oids.take(m.num_oids))

    # -- tpc_begin -------------------------------------------------------------------------------

    @on(AskBeginTransaction)
    def begin(self, peer: Peer, message_id: int, m: AskBeginTransaction) -> None:
        # Bound: one pending request per thread of a client.
        self._coordinator.begin(peer, message_id, m.tid)

    # -- tpc_vote --------------------------------------------------------------------------------

    def _transaction(self, peer: Peer, ttid: bytes) -> Transaction[Peer]:
        transaction = self._coordinator.transactions.get(ttid)
        if transaction is None or transaction.client is not peer:
            self._coordinator.open.check(ttid, peer)
            raise ErrorAnswer(ErrorCode.PROTOCOL_ERROR, f"unknown transaction {ttid.hex()}")
        if transaction.state is not State.BEGUN:
            raise PeerError(f"transaction {ttid.hex()} is already being finished")
        return transaction

    @on(FailedVote)
    def failed_vote(self, peer: Peer, message_id: int, m: FailedVote) -> None:
        transaction = self._transaction(peer, m.ttid)
        self._coordinator.failed_votes.ask(peer, transaction, message_id, m.failed)

    @on(AbortTransaction)
    def abort(self, peer: Peer, message_id: int, m: AbortTransaction) -> None:
        transaction = self._coordinator.transactions.get(m.ttid)
        if transaction is None or transaction.client is not peer:
            if transaction is None and self._coordinator.open.aborted(m.ttid, peer, m.nid_list):
                return
        elif transaction.state is State.BEGUN:
            self._coordinator.requests.abort(transaction, m.nid_list)
            return
        elif transaction.state is State.PREPARING:
            self._coordinator.prepared.abort(transaction, m.nid_list, "its client aborts it")
            return
        if not self._coordinator.prepared.governs(m.ttid):
            raise PeerError(f"abort of unknown or finishing transaction {m.ttid.hex()}")

    # -- tpc_finish ------------------------------------------------------------------------------

    @on(AskFinishTransaction)
    def finish(self, peer: Peer, message_id: int, m: AskFinishTransaction) -> None:
        transaction = self._transaction(peer, m.ttid)
        if transaction.tid is not None and self._coordinator.late(transaction.tid):
            self._coordinator.requests.abort(transaction, self._cluster.ready)
            raise ErrorAnswer(
                ErrorCode.INCOMPLETE_TRANSACTION,
                f"tid {transaction.tid.hex()} was overtaken by other transactions",
            )
        transaction.message_id = message_id
        admission = self._coordinator.admission
        chosen = admission.choose(transaction, m)
        admission.admit(transaction, m, chosen)
        tid = self._coordinator.requests.lock(transaction, m.stored_list, chosen.nodes)
        if chosen.lost:
            admission.disconnect(chosen.lost)
        self._coordinator.requests.abort_elsewhere(transaction, chosen.involved)
        self._coordinator.requests.ask_locks(transaction, tid)

    @on(NotifyChain)
    def chain(self, peer: Peer, message_id: int, m: NotifyChain) -> None:
        self._coordinator.transactions.chain(m.ttid_list, peer)

    @on(AskFinalTID)
    def final_tid(self, peer: Peer, message_id: int, m: AskFinalTID) -> Message | None:
        """Tell a client that lost its connection in tpc_finish the outcome of the transaction
        (specification 7.38)."""
        cluster = self._cluster
        if m.ttid > cluster.tids.last:
            return AnswerFinalTID(None)
        transaction = self._coordinator.transactions.get(m.ttid)
        if transaction is None:
            return AnswerFinalTID(MAX_TID)
        if transaction.state is State.LOCKING:
            self._coordinator.wait_final_tid(transaction, peer, message_id)
            return None
        if transaction.mark is not None:
            raise denied(
                f"transaction {format_xid(transaction.mark.xid)} is prepared: its coordinator decides"
            )
        # AskFinishTransaction may still arrive by the old connection of the client. It must be refused
        # then, because the client is told here that nothing was committed.
        self._coordinator.requests.abort(transaction, cluster.ready)
        return AnswerFinalTID(None)

    # -- prepared transactions -------------------------------------------------------------------

    @on(AskPrepareTransaction)
    def prepare(self, peer: Peer, message_id: int, m: AskPrepareTransaction) -> None:
        """Make a voted transaction outlive its client (specification 24.1 to 24.5)."""
        prepared = self._coordinator.prepared
        transaction = self._transaction(peer, m.ttid)
        admission = self._coordinator.admission
        chosen = admission.choose(transaction, m)
        prepared.check(transaction, m.xid, chosen.nodes)
        admission.admit(transaction, m, chosen)
        prepared.begin(transaction, message_id, m, chosen.partitions, chosen.nodes)
        if chosen.lost:
            admission.disconnect(chosen.lost)
            if self._coordinator.transactions.get(m.ttid) is not transaction:
                return  # the operation stopped with the loss of these nodes
        self._coordinator.requests.abort_elsewhere(transaction, chosen.involved)
        prepared.ask(transaction)

    @on(AskFinishPrepared)
    def finish_prepared(self, peer: Peer, message_id: int, m: AskFinishPrepared) -> Message | None:
        return self._coordinator.prepared.decide(m.xid, m.commit, peer, message_id)

    @on(AskPrepared)
    def list_prepared(self, peer: Peer, message_id: int, m: AskPrepared) -> Message:
        return AnswerPrepared(self._coordinator.prepared.describe(m.length, m.xid))

    @on(ForgetPrepared)
    def forget_prepared(self, peer: Peer, message_id: int, m: ForgetPrepared) -> Message | None:
        return self._coordinator.prepared.forget(m.xid, peer, message_id)

    # -- synchronous backups ---------------------------------------------------------------------

    @on(AskJoinSync)
    def join_sync(self, peer: Peer, message_id: int, m: AskJoinSync) -> None:
        self._coordinator.backups.join(peer, message_id)

    @on(AskSyncLease)
    def lease(self, peer: Peer, message_id: int, m: AskSyncLease) -> Message:
        self._coordinator.backups.lease(peer)
        return AnswerSyncLease()

    @on(NotifySynced)
    def synced(self, peer: Peer, message_id: int, m: NotifySynced) -> None:
        self._coordinator.backups.synced(peer, m.tid)

    # -- pack ------------------------------------------------------------------------------------

    @on(AskPack)
    def pack(self, peer: Peer, message_id: int, m: AskPack) -> None:
        self._operations.check("history")
        self._packs.ask(peer, message_id, m.tid)
