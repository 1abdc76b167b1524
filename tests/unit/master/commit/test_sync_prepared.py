"""Prepared transactions of a cluster that has a synchronous backup."""

from __future__ import annotations

from typing import Any

from neo.master.commit.sync_backups import LEASE_OVER_SECONDS
from neo.master.settings import SyncPolicy
from neo.node.task import Future
from neo.protocol.enums import ClusterState, ErrorCode
from neo.protocol.packets import (
    FEATURE_OURS,
    AbortTransaction,
    AnswerLockBackup,
    AnswerPrepareBackup,
    AskJoinSync,
    AskLockBackup,
    AskPrepareBackup,
    AskSyncLease,
    Error,
    NotifyAborted,
    NotifyUnlockInformation,
    SetClusterState,
)
from tests.support.remote import Remote
from tests.unit.master.committing import begin, lock, oid_of
from tests.unit.master.prepared_world import (
    XID,
    PreparedWorld,
    ask_prepare,
    decide,
    mark,
    prepared,
    remember,
)


class BackedWorld(PreparedWorld):
    def __init__(self, policy: SyncPolicy = SyncPolicy.CONTINUE, **more: Any) -> None:
        super().__init__(count=1, replicas=0, sync_backups=("far",), sync_policy=policy, **more)
        self.writer = self.client()

    def backup(self) -> Remote:
        return self.client(backup="far", features=[FEATURE_OURS])

    def in_sync(self) -> Remote:
        backup = self.backup()
        backup.ask(AskJoinSync()).result()
        backup.ask(AskSyncLease()).result()
        return backup

    def ask(self, number: int = 1) -> tuple[bytes, Future[Any]]:
        """Ask to prepare a transaction, up to the marks of the storage node."""
        ttid = begin(self.writer)
        answer = ask_prepare(self.writer, ttid, [oid_of(self, number)])
        mark(self.storages[0])
        return ttid, answer


def keep(backup: Remote) -> AskPrepareBackup:
    question = backup.take(AskPrepareBackup)
    backup.answer(question, AnswerPrepareBackup(question.mark[0]))
    return question


def test_a_transaction_is_prepared_when_the_backup_keeps_it() -> None:
    """Specification 25.26."""
    world = BackedWorld()
    backup = world.in_sync()
    ttid, answer = world.ask()
    assert not answer.done
    decision = decide(world.writer, True)
    found = keep(backup).mark
    assert found[:2] == (ttid, XID) and found[5] == [oid_of(world, 1)]
    assert answer.done
    lock(world.storages[0])
    question = backup.take(AskLockBackup)
    assert question.ttid == ttid and question.oid_list == [oid_of(world, 1)]
    assert not decision.done
    backup.answer(question, AnswerLockBackup(ttid))
    assert decision.result().tid == question.tid


def test_without_its_backup_a_transaction_is_prepared_when_the_lease_is_over() -> None:
    """Specification 25.26, 25.16."""
    world = BackedWorld()
    backup = world.in_sync()
    _, answer = world.ask()
    backup.lose()
    assert not answer.done
    world.host.advance(LEASE_OVER_SECONDS + 0.01)
    assert answer.done


def test_nobody_is_told_of_a_decision_that_the_backup_lacks_when_the_cluster_stops() -> None:
    """Specification 25.4, 25.62: the admin node is connected until the end."""
    world = BackedWorld(SyncPolicy.STOP)
    backup = world.in_sync()
    prepared_answer = world.ask()[1]
    keep(backup)
    assert prepared_answer.done
    admin = world.admin()
    decision = decide(admin, True)
    lock(world.storages[0])
    assert backup.has(AskLockBackup)
    admin.ask(SetClusterState(ClusterState.STOPPING)).result()
    world.host.advance(1000.0)
    assert world.master.stopped and not decision.done
    assert not world.storages[0].has(NotifyUnlockInformation)


def test_a_backup_that_cannot_keep_a_prepared_transaction_is_lost() -> None:
    """Specification 25.26, 25.40."""
    world = BackedWorld()
    backup = world.in_sync()
    _, answer = world.ask()
    error = Error(ErrorCode.INCOMPLETE_TRANSACTION.value, "the disk is full")
    backup.answer(backup.take(AskPrepareBackup), error)
    assert answer.done


def test_the_backup_is_told_what_it_checks() -> None:
    """Specification 25.26: others must not change it after a take-over."""
    world = BackedWorld()
    backup = world.in_sync()
    stored, checked = [oid_of(world, 1)], [oid_of(world, 2)]
    ask_prepare(world.writer, begin(world.writer), stored, checked=checked)
    mark(world.storages[0])
    assert keep(backup).mark[5:] == (stored, checked)
    assert world.backup().ask(AskJoinSync()).result().prepared_list[0][5:] == (stored, checked)


def test_a_backup_that_joins_is_told_what_is_prepared() -> None:
    """Specification 25.26."""
    world = BackedWorld()
    ttid = prepared(world, world.writer)
    assert join(world) == [ttid]


def test_a_backup_that_joins_is_told_what_is_committed_and_not_finished() -> None:
    """Specification 25.51: if this cluster is lost before the lock, it is still prepared."""
    world = BackedWorld(SyncPolicy.STOP)
    ttid, answer = world.ask()
    world.in_sync()
    assert answer.done
    decision = decide(world.writer, True)
    assert join(world) == [ttid], "no storage node has locked it"
    lock(world.storages[0])
    assert join(world) == [ttid] and not decision.done


def join(world: BackedWorld) -> list[bytes]:
    """Let a backup join on another connection. Return what it is told to keep."""
    return [row[0] for row in world.backup().ask(AskJoinSync()).result().prepared_list]


def test_a_transaction_that_waits_for_a_backup_is_prepared_when_that_joins() -> None:
    """Specification 25.26: the backup copies it before its first lease."""
    world = BackedWorld(SyncPolicy.STOP)
    ttid, answer = world.ask()
    world.host.advance(100.0)
    backup = world.backup()
    rows = backup.ask(AskJoinSync()).result().prepared_list
    assert [row[0] for row in rows] == [ttid] and not answer.done
    backup.ask(AskSyncLease()).result()
    assert answer.done


def test_the_backup_is_told_of_a_rollback() -> None:
    """Specification 25.27."""
    world = BackedWorld()
    backup = world.in_sync()
    ttid, answer = world.ask()
    keep(backup)
    answer.result()
    rolled_back = decide(world.writer, False)
    remember(world.storages[0])
    assert rolled_back.done
    assert backup.take(NotifyAborted).ttid == ttid


def test_the_client_can_give_up_while_the_backup_is_waited_for() -> None:
    """Specification 24.6, 25.27."""
    world = BackedWorld()
    backup = world.in_sync()
    ttid, answer = world.ask()
    world.writer.send(AbortTransaction(ttid, []))
    assert answer.done
    assert backup.take(NotifyAborted).ttid == ttid
    keep(backup)
    assert world.rows() == []
