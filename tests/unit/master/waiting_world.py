"""A master whose transactions wait for the backup ``far``, which the test plays."""

from __future__ import annotations

from neo.master.settings import SyncPolicy
from neo.node.task import Future
from neo.protocol.enums import NodeType
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    Answer,
    AnswerLockBackup,
    AnswerPrepareBackup,
    AnswerPrepareTransaction,
    AnswerTransactionFinished,
    AskFinishTransaction,
    AskJoinSync,
    AskLockBackup,
    AskPrepareBackup,
    AskSync,
    AskSyncLease,
    Request,
    RequestIdentification,
    SyncRow,
)
from tests.support.remote import Remote
from tests.unit.master.committing import begin, lock, oid_of
from tests.unit.master.prepared_world import PreparedWorld, ask_prepare, mark

TIMEOUT = 3.0


class WaitingWorld(PreparedWorld):
    """A cluster with one storage node."""

    def __init__(self, policy: SyncPolicy = SyncPolicy.CONTINUE) -> None:
        super().__init__(
            count=1, replicas=0, sync_backups=("far",), sync_policy=policy, sync_timeout=TIMEOUT
        )
        self.writer = self.client()

    def backup(self) -> Remote:
        """Connect the master of the backup."""
        remote = Remote.connect(self.master)
        extra = {"backup": "far", FEATURES: [FEATURE_OURS]}
        remote.ask(RequestIdentification(NodeType.CLIENT, None, None, "test", None, extra)).result()
        return remote

    def in_sync(self) -> Remote:
        backup = self.backup()
        backup.ask(AskJoinSync()).result()
        backup.ask(AskSyncLease()).result()
        return backup

    def renew(self, backup: Remote, seconds: float) -> None:
        """Let time pass, in which the backup stays in sync."""
        for _ in range(round(seconds) + 1):
            self.host.advance(1.0)
            backup.ask(AskSyncLease()).result()

    def finish(self) -> Future[AnswerTransactionFinished]:
        """Let a client commit, up to the locks of the storage node."""
        ttid = begin(self.writer)
        finished = self.writer.ask(AskFinishTransaction(ttid, [oid_of(self, 1)], []))
        lock(self.storages[0])
        return finished

    def prepare(self) -> Future[AnswerPrepareTransaction]:
        """Let a client prepare, up to the mark of the storage node."""
        answer = ask_prepare(self.writer, begin(self.writer), [oid_of(self, 1)])
        mark(self.storages[0])
        return answer

    def acknowledge(self, backup: Remote) -> None:
        question = backup.take(AskLockBackup)
        backup.answer(question, AnswerLockBackup(question.ttid))

    def keep(self, backup: Remote) -> None:
        question = backup.take(AskPrepareBackup)
        backup.answer(question, AnswerPrepareBackup(question.mark[0]))

    def state(self) -> SyncRow:
        (row,) = self.admin().ask(AskSync()).result().backup_list
        return row


def admits(backup: Remote, question: Request[Answer]) -> bool:
    """Return whether a question of the backup is answered, and not refused."""
    answer = backup.ask(question)
    try:
        answer.result()
    except ErrorAnswer:
        return False
    return True
