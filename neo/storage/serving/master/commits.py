"""Locks, unlocks and aborts, and transactions that stay prepared (specification 7, 24)."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from neo.node.handler import on
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode
from neo.protocol.packets import (
    AbortTransaction,
    AnswerInformationLocked,
    AnswerLocks,
    AnswerPrepareInformation,
    AnswerRollbackPrepared,
    AskLockInformation,
    AskLocks,
    AskPrepareInformation,
    AskRollbackPrepared,
    Error,
    ForgetPrepared,
    Message,
    NotifyPresetEnded,
    NotifyTransactionFinished,
    NotifyUnlockInformation,
)
from neo.storage.commit.participant import Participant
from neo.storage.database import Database
from neo.storage.prepared.transactions import PreparedTransactions
from neo.storage.replication.replicator import Replicator
from neo.storage.sync.received_votes import ReceivedVotes

logger = logging.getLogger("neo.storage")


@dataclass(frozen=True, eq=False, repr=False)
class Commits:
    """Locks and ends transactions as the master decided."""

    database: Database
    participant: Participant
    prepared: PreparedTransactions
    votes: ReceivedVotes
    replicator: Replicator

    @on(AskLockInformation)
    def lock(self, peer: Peer, message_id: int, m: AskLockInformation) -> Message | None:
        """Lock, and answer when the vote and the partition table are durable. A node that got its cells
        after the client's stores has nothing to lock; replication of these cells waits for the end of
        the transaction."""
        if m.ttid in self.votes.known:
            self.votes.lock(m.ttid, m.tid)
            self.database.answer_stored(peer, message_id, AnswerInformationLocked(m.ttid))
            return None
        if self.participant.locks.lock(m.ttid, m.tid):
            self.database.backend.commits.lock(m.ttid, m.tid)
        answer = AnswerInformationLocked(m.ttid)
        if self.database.table_stored and self.participant.locks.locks_at_once(m.ttid):
            return answer
        alone = len(self.participant.locks) == 1
        self.database.answer_stored(peer, message_id, answer, alone=alone)
        return None

    @on(NotifyUnlockInformation)
    def unlock(self, peer: Peer, message_id: int, m: NotifyUnlockInformation) -> None:
        votes = self.votes
        known = m.ttid in votes.known
        if not (votes.unlock(m.ttid) if known else self.participant.unlock(m.ttid)):
            logger.info("nothing to unlock for transaction %s", m.ttid.hex())

    @on(AbortTransaction)
    def abort(self, peer: Peer, message_id: int, m: AbortTransaction) -> None:
        self.replicator.aborted(m.ttid)
        if m.ttid in self.votes.known:
            self.votes.abort(m.ttid)
        else:
            self.participant.abort(m.ttid)

    @on(NotifyPresetEnded)
    def preset_ended(self, peer: Peer, message_id: int, m: NotifyPresetEnded) -> None:
        self.participant.locks.may_begin_again(m.ttid)

    @on(AskPrepareInformation)
    def prepare(self, peer: Peer, message_id: int, m: AskPrepareInformation) -> None:
        """Mark a voted transaction; answer when the mark and the vote are durable."""
        self.prepared.prepare(m)
        self.database.answer_stored(peer, message_id, AnswerPrepareInformation(m.ttid))

    @on(AskRollbackPrepared)
    def roll_back(self, peer: Peer, message_id: int, m: AskRollbackPrepared) -> None:
        self.prepared.roll_back(m)
        self.database.answer_stored(peer, message_id, AnswerRollbackPrepared(m.ttid))

    @on(ForgetPrepared)
    def forget_outcome(self, peer: Peer, message_id: int, m: ForgetPrepared) -> None:
        self.prepared.forget(m.xid)
        self.database.answer_stored(peer, message_id, Error(ErrorCode.ACK.value, ""))

    @on(AskLocks)
    def locks(self, peer: Peer, message_id: int, m: AskLocks) -> Message:
        return AnswerLocks(
            [
                (t.ttid, t.client.nid, t.phase, list(waiters), max(waiters.values(), default=0.0))
                for t, waiters in self.participant.locks.waiting()
            ]
        )

    @on(NotifyTransactionFinished)
    def finished(self, peer: Peer, message_id: int, m: NotifyTransactionFinished) -> None:
        self.participant.finished(m.ttid)
        self.replicator.finished(m.ttid, m.max_tid)
