"""Clients of a backup, which read only and are told of new transactions (specification 13.27, 25.12)."""

from __future__ import annotations

from neo.master.cluster import Cluster
from neo.master.denial import denied
from neo.node.handler import Handler, on
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import MAX_TID
from neo.protocol.packets import (
    AbortTransaction,
    AnswerFinalTID,
    AnswerLastTransaction,
    AnswerPrepared,
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
    NotifySynced,
)

READ_ONLY = "this is a standby cluster: write to the upstream cluster"


class ServeReader(Handler):
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def lost(self, peer: Peer, reason: str) -> None:
        self._cluster.forget(peer)

    @on(AskLastTransaction)
    def last_transaction(self, peer: Peer, message_id: int, m: AskLastTransaction) -> Message:
        """Return the last transaction that is complete in all cells."""
        return AnswerLastTransaction(self._cluster.last_tid)

    @on(AskPrepared)
    def list_prepared(self, peer: Peer, message_id: int, m: AskPrepared) -> Message:
        """Return nothing: what a synchronous backup keeps prepared is finished upstream."""
        return AnswerPrepared([])

    @on(
        AskBeginTransaction,
        AskNewOIDs,
        FailedVote,
        AskFinishTransaction,
        AskPack,
        AskPrepareTransaction,
        AskFinishPrepared,
        ForgetPrepared,
    )
    def refuse(self, peer: Peer, message_id: int, m: Message) -> Message:
        raise ErrorAnswer(ErrorCode.READ_ONLY_ACCESS, READ_ONLY)

    @on(AskJoinSync, AskSyncLease)
    def refuse_sync(self, peer: Peer, message_id: int, m: Message) -> Message:
        raise denied("the upstream cluster is a standby itself: nothing is committed there")

    @on(AbortTransaction, NotifySynced)
    def ignore(self, peer: Peer, message_id: int, m: Message) -> None:
        """Ignore two notifications for which nothing waits: the abort of a transaction that could not
        begin, and the progress of a synchronous backup of this cluster."""

    @on(AskFinalTID)
    def final_tid(self, peer: Peer, message_id: int, m: AskFinalTID) -> Message:
        """Refer the client to storage nodes, for a transaction from before this cluster was a backup."""
        return AnswerFinalTID(MAX_TID)
