"""Clients in service: ids, and the steps of their commits (specification 7)."""

from __future__ import annotations

import logging

from neo.master.cluster import Cluster
from neo.master.commit.coordinator import Coordinator
from neo.master.commit.transactions import Transaction
from neo.master.maintenance.pack import Packs
from neo.node.handler import Handler, on
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer, PeerError
from neo.protocol.ids import MAX_TID, add64
from neo.protocol.packets import (
    AbortTransaction,
    AnswerFinalTID,
    AnswerLastTransaction,
    AnswerNewOIDs,
    AskBeginTransaction,
    AskFinalTID,
    AskFinishTransaction,
    AskLastTransaction,
    AskNewOIDs,
    AskPack,
    FailedVote,
    Message,
)

logger = logging.getLogger("neo.master")

#: Greatest oid of a client. Backends keep oids as signed 64-bit integers; the rest is for new oids.
OID_MAX = add64(MAX_TID, -(2**48))
#: Bound of the oids in one answer. Clients ask for a hundred.
MAX_NEW_OIDS = 100_000


class ServeClient(Handler):
    def __init__(self, cluster: Cluster, coordinator: Coordinator, packs: Packs) -> None:
        self._cluster = cluster
        self._coordinator = coordinator
        self._packs = packs

    def lost(self, peer: Peer, reason: str) -> None:
        # Storage nodes drop its transactions when they are told that it is lost.
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
        if transaction.locking:
            raise PeerError(f"transaction {ttid.hex()} is already being finished")
        return transaction

    @on(FailedVote)
    def failed_vote(self, peer: Peer, message_id: int, m: FailedVote) -> None:
        transaction = self._transaction(peer, m.ttid)
        self._coordinator.failed_votes.ask(transaction, message_id, m.failed)

    @on(AbortTransaction)
    def abort(self, peer: Peer, message_id: int, m: AbortTransaction) -> None:
        transaction = self._coordinator.transactions.get(m.ttid)
        if transaction is None or transaction.client is not peer or transaction.locking:
            if transaction is None and self._coordinator.open.aborted(m.ttid, peer, m.nid_list):
                return
            raise PeerError(f"abort of unknown or finishing transaction {m.ttid.hex()}")
        self._coordinator.abort(transaction, m.nid_list)

    # -- tpc_finish ------------------------------------------------------------------------------

    @on(AskFinishTransaction)
    def finish(self, peer: Peer, message_id: int, m: AskFinishTransaction) -> None:
        cluster = self._cluster
        transaction = self._transaction(peer, m.ttid)
        if m.stored_list and max(m.stored_list) > OID_MAX:
            # Oids continue after the greatest one: this one would use up all of them.
            self._coordinator.abort(transaction, cluster.ready)
            raise ErrorAnswer(
                ErrorCode.PROTOCOL_ERROR, f"oid {max(m.stored_list).hex()} is too great"
            )
        if transaction.tid is not None and self._coordinator.late(transaction.tid):
            self._coordinator.abort(transaction, cluster.ready)
            raise ErrorAnswer(
                ErrorCode.INCOMPLETE_TRANSACTION,
                f"tid {transaction.tid.hex()} was overtaken by other transactions",
            )
        transaction.message_id = message_id
        involved = self._involved(m)
        lost = transaction.failed & transaction.ready & involved
        nodes = (involved & transaction.ready & cluster.ready) - transaction.failed
        if not self._complete(m, nodes) or (
            lost and not cluster.operational_without(transaction.failed)
        ):
            # After AskFinishTransaction the master aborts, not the client.
            self._coordinator.abort(transaction, cluster.ready)
            raise ErrorAnswer(ErrorCode.INCOMPLETE_TRANSACTION)
        tid = self._coordinator.lock(transaction, m.stored_list, nodes)
        for nid in lost:
            if (failed := cluster.connected.get(nid)) is not None:
                logger.error("%r failed to vote: it is disconnected", failed)
                cluster.disconnect(failed)
        self._coordinator.abort_elsewhere(transaction, involved)
        self._coordinator.ask_locks(transaction, tid)

    def _involved(self, m: AskFinishTransaction) -> set[int]:
        """Return the connected storage nodes with cells of the partitions of the transaction
        (specification 7.26)."""
        table = self._cluster.partitions
        partitions = {table.partition(oid) for oid in (*m.stored_list, *m.checked_list)}
        partitions.add(table.partition(m.ttid))
        nids = {nid for partition in partitions for nid in table.rows[partition]}
        return nids & self._cluster.identified_storages()

    def _complete(self, m: AskFinishTransaction, nodes: set[int]) -> bool:
        """Return whether for each stored or checked object, and for the metadata, one of the nodes has a
        readable cell."""
        table = self._cluster.partitions
        partitions = {table.partition(oid) for oid in (*m.stored_list, *m.checked_list)}
        partitions.add(table.partition(m.ttid))
        return not [p for p in partitions if nodes.isdisjoint(table.readable(p))]

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
        if transaction.locking:
            self._coordinator.wait_final_tid(transaction, peer, message_id)
            return None
        # AskFinishTransaction may still arrive by the old connection of the client. It must be refused
        # then, because the client is told here that nothing was committed.
        self._coordinator.abort(transaction, cluster.ready)
        return AnswerFinalTID(None)

    # -- pack ------------------------------------------------------------------------------------

    @on(AskPack)
    def pack(self, peer: Peer, message_id: int, m: AskPack) -> None:
        self._packs.ask(peer, message_id, m.tid)
