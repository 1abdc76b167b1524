"""A master whose cluster is a synchronous backup: upstream cluster and storage nodes are played."""

from __future__ import annotations

from typing import Any

from neo.master.sync.synchronous import TICK_SECONDS, Synchronous
from neo.protocol.enums import NodeType
from neo.protocol.packets import (
    FEATURE_OURS,
    AnswerInformationLocked,
    AnswerJoinSync,
    AnswerSyncLease,
    AnswerVoted,
    AskJoinSync,
    AskLockBackup,
    AskLockInformation,
    AskRecovery,
    AskSyncLease,
    AskUnfinishedTransactions,
    AskVoted,
    NotifyFeatures,
    NotifyReplicationDone,
    NotifyUnlockInformation,
    Ping,
    Pong,
)
from tests.support.remote import Remote
from tests.unit.master.backup_world import UP, BackupWorld, durable
from tests.unit.master.backup_world import complete as complete
from tests.unit.master.cluster import tid


class SyncWorld(BackupWorld):
    extra = {"features": ["oids", FEATURE_OURS]}
    #: Whether the upstream master announces ``sync``.
    knows = True

    def __init__(self, **settings: Any) -> None:
        super().__init__(sync=True, **settings)

    def join(self, node_type: NodeType, *arguments: Any, **more: Any) -> Remote:
        remote = super().join(node_type, *arguments, **more)
        remote.lively = node_type is NodeType.STORAGE
        return remote

    def greet(self, upstream: Remote) -> None:
        upstream.send(NotifyFeatures([FEATURE_OURS] if self.knows else ["pack"]))
        upstream.answer(upstream.take(Ping), Pong())

    @property
    def sync(self) -> Synchronous:
        backup = self.master.backup.current
        assert backup is not None and backup.synchronous is not None
        backup.synchronous.validate()
        return backup.synchronous

    @property
    def state(self) -> str:
        return self.sync.row()[1]

    def join_upstream(self, upstream: Remote, last: int = 0) -> None:
        """Let the backup join, and grant the first lease."""
        self.host.advance(TICK_SECONDS)
        upstream.answer(upstream.take(AskJoinSync), AnswerJoinSync(tid(last), []))
        upstream.answer(upstream.take(AskSyncLease), AnswerSyncLease())

    def in_sync(self, count: int = 1) -> tuple[Remote, list[Remote]]:
        """Make a new cluster that is in sync."""
        upstream, storages = self.backingup(count)
        self.join_upstream(upstream)
        assert self.sync.in_sync
        complete(0, *storages)
        for storage in storages:
            storage.received.clear()
        return upstream, storages

    def lock(self, upstream: Remote, number: int, *oids: int) -> Any:
        """Ask to lock the transaction ``number``, whose ttid is 4 less: both are in one partition."""
        return upstream.ask(
            AskLockBackup(tid(number - 4), tid(number), [tid(oid) for oid in oids])
        )

    def locked(self, upstream: Remote, number: int, *storages: Remote) -> Any:
        """Ask to lock a transaction that changes object 1; let these nodes get its rows and lock it."""
        answer = self.lock(upstream, number, 1)
        vote(*storages)
        locks(*storages)
        return answer


class Growing:
    """S2 was lost while the backup was in sync, is back, and has replicated all until then."""

    def __init__(self, partitions: int = 1) -> None:
        self.world = world = SyncWorld(partitions=partitions, replicas=1)
        self.upstream, (self.one, second) = world.in_sync(2)
        second.lose()
        complete(0, self.one, ptid=2)
        self.two = world.join_storage(2)
        self.two.ask(AskUnfinishedTransactions([*range(partitions)])).result()

    def commit(self, number: int) -> None:
        """Commit a transaction, which only S1 takes part in."""
        answer = self.world.locked(self.upstream, number, self.one)
        complete(number, self.one, ptid=2)
        assert answer.done

    def replicated(self, number: int) -> None:
        self.two.send(NotifyReplicationDone(0, tid(number)))

    @property
    def readable(self) -> bool:
        return self.world.master.partitions.rows[0][2] is UP

    def advance(self, seconds: float) -> None:
        """Let time pass, and renew leases."""
        for _ in range(round(seconds / TICK_SECONDS)):
            self.world.host.advance(TICK_SECONDS)
            while self.upstream.has(AskSyncLease):
                self.upstream.answer(self.upstream.take(AskSyncLease), AnswerSyncLease())
        assert self.world.sync.in_sync


def vote(*storages: Remote) -> list[AskVoted]:
    """Get the rows that were asked for. Return the questions."""
    questions = []
    for storage in storages:
        questions.append(question := storage.take(AskVoted))
        storage.answer(question, AnswerVoted(question.ttid))
    return questions


def locks(*storages: Remote) -> list[AskLockInformation]:
    """Lock what was asked for. Return the questions."""
    questions = []
    for storage in storages:
        questions.append(question := storage.take(AskLockInformation))
        storage.answer(question, AnswerInformationLocked(question.ttid))
    return questions


def confirm(storage: Remote, ptid: int) -> None:
    """Answer the AskRecovery that wait now: the partition table is durable, and nothing new."""
    for _ in [m for m in storage.received if type(m) is AskRecovery]:
        durable(storage, 0, ptid)


def unlocks(storage: Remote) -> list[bytes]:
    """Return the ttids that a node was told to unlock."""
    return [m.ttid for m in storage.received if type(m) is NotifyUnlockInformation]
