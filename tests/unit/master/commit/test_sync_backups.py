"""The master of a cluster that has synchronous backups."""

from __future__ import annotations

from typing import Any

import pytest

from neo.master.commit.sync_backups import JOIN_SECONDS, LEASE_OVER_SECONDS, LEASE_SECONDS
from neo.master.settings import SyncPolicy
from neo.node.task import Future
from neo.protocol.enums import ClusterState, ErrorCode
from neo.protocol.packets import (
    FEATURE_OURS,
    AnswerInformationLocked,
    AnswerLastIDs,
    AnswerLockBackup,
    AnswerLockedTransactions,
    AskFinishTransaction,
    AskJoinSync,
    AskLastIDs,
    AskLockBackup,
    AskLockedTransactions,
    AskLockInformation,
    AskSync,
    AskSyncLease,
    Error,
    InvalidateObjects,
    NotifyFeatures,
    NotifySynced,
    NotifyUnlockInformation,
    SetClusterState,
    SetSync,
    StartOperation,
    SyncRow,
)
from tests.support.remote import Remote, error_of
from tests.unit.master.cluster import MasterWorld
from tests.unit.master.committing import begin, lock, oid_of

TIMEOUT = 3.0


class SyncWorld(MasterWorld):
    """A cluster with one storage node, whose commits wait for the backup ``far``."""

    def __init__(self, *names: str, policy: SyncPolicy = SyncPolicy.CONTINUE, **more: Any) -> None:
        super().__init__(
            sync_backups=names or ("far",), sync_policy=policy, sync_timeout=TIMEOUT, **more
        )
        (self.node,) = self.running(1)
        self.writer = self.client()

    def backup(self, name: str = "far") -> Remote:
        """Join the master of a backup as a client."""
        return self.client(backup=name, features=[FEATURE_OURS])

    def in_sync(self, name: str = "far") -> Remote:
        backup = self.backup(name)
        backup.ask(AskJoinSync()).result()
        backup.ask(AskSyncLease()).result()
        return backup

    def finish(self, partition: int = 1) -> Future[Any]:
        """Let the client commit, up to the locks of the storage node."""
        ttid = begin(self.writer)
        finished = self.writer.ask(AskFinishTransaction(ttid, [oid_of(self, partition)], []))
        lock(self.node)
        return finished

    def state(self, name: str = "far") -> SyncRow:
        rows = self.admin().ask(AskSync()).result().backup_list
        return next(row for row in rows if row[0] == name)


def acknowledge(backup: Remote) -> AskLockBackup:
    question = backup.take(AskLockBackup)
    backup.answer(question, AnswerLockBackup(question.ttid))
    return question


def test_features_are_told_to_the_master_of_a_backup() -> None:
    """Specification 21.6, 25.12."""
    assert FEATURE_OURS in SyncWorld().backup().take(NotifyFeatures).features


def test_a_commit_is_acknowledged_when_the_backup_has_locked_it() -> None:
    """Specification 25.1, 25.4, 25.19."""
    world = SyncWorld()
    backup, other = world.in_sync(), world.client()
    ttid = begin(world.writer)
    oid = oid_of(world, 1)
    finished = world.writer.ask(AskFinishTransaction(ttid, [oid], []))
    assert not backup.has(AskLockBackup), "the own storage nodes lock first"
    tid = lock(world.node).tid
    assert not finished.done and not world.node.has(NotifyUnlockInformation)
    question = acknowledge(backup)
    assert (question.ttid, question.tid, question.oid_list) == (ttid, tid, [oid])
    assert finished.result().tid == tid
    assert world.node.has(NotifyUnlockInformation)
    assert other.take(InvalidateObjects).tid == tid
    assert backup.take(InvalidateObjects).tid == tid


def test_transactions_wait_for_the_backup_at_the_same_time_and_end_in_order() -> None:
    """Specification 25.2, 25.19: in the order of tids, whatever is locked or answered first."""
    world = SyncWorld()
    backup = world.in_sync()
    ttids = [begin(world.writer), begin(world.writer)]
    finished = [
        world.writer.ask(AskFinishTransaction(ttid, [oid_of(world, partition)], []))
        for partition, ttid in enumerate(ttids)
    ]
    first, second = world.node.take(AskLockInformation), world.node.take(AskLockInformation)
    world.node.answer(second, AnswerInformationLocked(second.ttid))
    assert not backup.has(AskLockBackup)
    world.node.answer(first, AnswerInformationLocked(first.ttid))
    asked = [backup.take(AskLockBackup), backup.take(AskLockBackup)]
    assert [question.ttid for question in asked] == [first.ttid, second.ttid]
    assert asked[0].tid < asked[1].tid
    backup.answer(asked[1], AnswerLockBackup(asked[1].ttid))
    assert not finished[1].done
    backup.answer(asked[0], AnswerLockBackup(asked[0].ttid))
    assert finished[0].result().tid < finished[1].result().tid


def test_without_the_backup_commits_go_on_when_its_lease_is_over() -> None:
    """Specification 25.15, 25.16."""
    world = SyncWorld()
    backup = world.in_sync()
    world.host.advance(LEASE_SECONDS / 2)
    backup.ask(AskSyncLease()).result()
    before = world.finish()
    backup.lose()
    during = world.finish(2)
    world.host.advance(LEASE_OVER_SECONDS - 0.01)
    assert not before.done and not during.done
    assert world.state()[1] == "lost"
    world.host.advance(0.02)
    assert before.result().tid < during.result().tid
    assert world.state()[1] == "async"
    assert world.finish(3).done


def test_a_backup_that_is_too_slow_is_lost() -> None:
    """Specification 25.15, 25.16: leases are refused first."""
    world = SyncWorld()
    backup = world.in_sync()
    finished = world.finish()
    for _ in range(int(TIMEOUT / 0.5) - 1):
        world.host.advance(0.5)
        backup.ask(AskSyncLease()).result()
    world.host.advance(0.6)
    assert error_of(backup.ask(AskSyncLease())).code is ErrorCode.DENIED
    assert not finished.done
    world.host.advance(LEASE_OVER_SECONDS)
    assert finished.done


def test_with_the_policy_to_stop_no_lock_is_late_but_operators_are_told() -> None:
    """Specification 25.16, 25.45: it may be fetching a large transaction, and would begin anew."""
    world = SyncWorld(policy=SyncPolicy.STOP)
    backup = world.in_sync()
    finished = world.finish()
    for _ in range(int(2 * TIMEOUT / 0.5)):
        world.host.advance(0.5)
        backup.ask(AskSyncLease()).result()
    assert world.state()[1::4] == ("lost", "it has not locked a transaction for 6 seconds")
    acknowledge(backup)
    assert finished.done
    assert world.state()[1] == "sync"


def test_an_answer_that_comes_after_the_loss_ends_the_wait() -> None:
    """Specification 25.4: the backup has the transaction."""
    world = SyncWorld()
    backup = world.in_sync()
    finished = world.finish()
    world.host.advance(TIMEOUT)
    acknowledge(backup)
    assert finished.done


def test_a_backup_that_refuses_a_transaction_is_lost_at_once() -> None:
    """Specification 25.15, 25.40: it has given up its lease before."""
    world = SyncWorld()
    backup = world.in_sync()
    first, second = world.finish(), world.finish(2)
    refusal = Error(ErrorCode.INCOMPLETE_TRANSACTION.value, "the disk is full")
    backup.answer(backup.take(AskLockBackup), refusal)
    assert first.done and second.done
    assert world.state()[1::4] == ("async", "the disk is full")
    assert error_of(backup.ask(AskSyncLease())).code is ErrorCode.DENIED


def test_with_the_policy_to_stop_commits_wait_until_the_backup_has_joined_again() -> None:
    """Specification 25.12, 25.16."""
    world = SyncWorld(policy=SyncPolicy.STOP)
    backup = world.in_sync()
    before = world.finish()
    backup.lose()
    during = world.finish(2)
    world.host.advance(1000.0)
    assert not before.done and not during.done
    backup = world.in_sync()
    assert acknowledge(backup).tid < acknowledge(backup).tid
    assert before.done and during.done


def test_with_the_policy_to_stop_a_cluster_can_be_stopped() -> None:
    """Specification 4.33, 25.62: the next start decides about what waits for the backup."""
    world = SyncWorld(policy=SyncPolicy.STOP)
    finished = world.finish()
    world.admin().ask(SetClusterState(ClusterState.STOPPING)).result()
    world.host.advance(1000.0)
    assert world.master.stopped and not finished.done
    assert not world.node.has(NotifyUnlockInformation), "the backup lacks it"


def test_while_the_cluster_stops_nothing_is_committed_without_the_backup() -> None:
    """Specification 25.4, 25.62: the backup holds a lease until the end."""
    world = SyncWorld(policy=SyncPolicy.STOP)
    backup = world.in_sync()
    finished = world.finish()
    world.admin().ask(SetClusterState(ClusterState.STOPPING)).result()
    while not world.master.stopped:
        backup.ask(AskSyncLease()).result()
        world.host.advance(LEASE_SECONDS / 4)
    assert not finished.done and not world.node.has(NotifyUnlockInformation)


def test_while_the_cluster_stops_commits_end_when_the_backup_has_them() -> None:
    """Specification 4.33, 25.62."""
    world = SyncWorld()
    backup = world.in_sync()
    finished = world.finish()
    world.admin().ask(SetClusterState(ClusterState.STOPPING)).result()
    acknowledge(backup)
    assert finished.done and world.master.stopped


def test_a_backup_that_follows_again_says_what_it_has() -> None:
    """Specification 25.22."""
    world = SyncWorld(policy=SyncPolicy.STOP)
    backup = world.in_sync()
    first, second = world.finish(), world.finish(2)
    tid = backup.take(AskLockBackup).tid
    backup.lose()
    world.backup().send(NotifySynced(tid))
    assert first.result().tid == tid
    assert not second.done


def test_a_backup_that_joins_is_asked_for_all_that_is_not_acknowledged() -> None:
    """Specification 25.12: whenever the transactions began."""
    world = SyncWorld(policy=SyncPolicy.STOP)
    early = begin(world.writer)
    waits = world.finish()
    backup = world.backup()
    joined = backup.ask(AskJoinSync()).result()
    assert joined.tid == world.master.cluster.last_tid
    assert backup.take(AskLockBackup).tid > joined.tid
    finished = world.writer.ask(AskFinishTransaction(early, [oid_of(world, 2)], []))
    lock(world.node)
    assert backup.take(AskLockBackup).ttid == early
    assert not waits.done and not finished.done


def test_a_backup_that_is_not_in_sync_in_time_is_not_waited_for() -> None:
    """Specification 25.13."""
    world = SyncWorld()
    backup = world.backup()
    backup.ask(AskJoinSync()).result()
    assert world.state()[1] == "joining"
    finished = world.finish()
    world.host.advance(JOIN_SECONDS - 0.01)
    assert not finished.done
    world.host.advance(0.02)
    assert finished.done, "it had no lease"
    assert error_of(backup.ask(AskSyncLease())).code is ErrorCode.DENIED


def test_the_limit_of_an_earlier_join_does_not_count() -> None:
    """Specification 25.13."""
    world = SyncWorld()
    backup = world.backup()
    backup.ask(AskJoinSync()).result()
    world.host.advance(JOIN_SECONDS - 0.1)
    backup.ask(AskJoinSync()).result()
    world.host.advance(JOIN_SECONDS - 0.1)
    assert world.state()[1] == "joining"
    world.host.advance(0.2)
    assert world.state()[1] == "async"


def test_an_answer_from_before_the_backup_joined_again_is_not_one_to_the_new_question() -> None:
    """Specification 25.16: the new question must be answered, too, and an old refusal is no loss."""
    world = SyncWorld()
    backup = world.in_sync()
    finished = world.finish()
    old = backup.take(AskLockBackup)
    backup.ask(AskJoinSync()).result()
    backup.ask(AskSyncLease()).result()
    new = backup.take(AskLockBackup)
    backup.answer(old, Error(ErrorCode.INCOMPLETE_TRANSACTION.value, "it left"))
    assert world.state()[1] == "sync"
    assert not finished.done
    backup.answer(new, AnswerLockBackup(new.ttid))
    assert finished.done


def test_all_backups_must_have_a_transaction() -> None:
    """Specification 25.4."""
    world = SyncWorld("far", "farther")
    backups = [world.in_sync("far"), world.in_sync("farther")]
    finished = world.finish()
    acknowledge(backups[1])
    assert not finished.done
    acknowledge(backups[0])
    assert finished.done


def test_a_new_primary_serves_when_no_lease_of_earlier_ones_is_left() -> None:
    """Specification 25.17: what it finishes in VERIFYING may not be in a backup that is in sync."""
    world = MasterWorld(sync_backups=("far",))
    node = world.storage(1)
    world.admin().ask(SetClusterState(ClusterState.VERIFYING)).result()
    world.host.advance(0.5)
    node.answer(node.take(AskLockedTransactions), AnswerLockedTransactions({}))
    node.answer(node.take(AskLastIDs), AnswerLastIDs(None, None))
    world.host.advance(LEASE_OVER_SECONDS - 0.51)
    assert not node.has(StartOperation)
    assert world.master.cluster.state is ClusterState.VERIFYING
    world.host.advance(0.02)
    assert node.has(StartOperation)


def test_a_backup_is_not_in_sync_since_the_cluster_serves() -> None:
    """Specification 25.47: it could not join before."""
    world = MasterWorld(sync_backups=("far",))
    world.host.advance(1000.0)
    world.running(1)
    (row,) = world.admin().ask(AskSync()).result().backup_list
    assert row[1:3] == ("async", world.host.time())


def test_a_primary_without_synchronous_backups_serves_at_once() -> None:
    """Specification 25.17."""
    world = MasterWorld()
    world.running(1)
    assert world.host.elapsed == 0


def test_leases_outlive_an_interruption_of_the_operation() -> None:
    """Specification 25.15."""
    world = SyncWorld()
    world.in_sync()
    world.node.lose()
    assert world.state()[1] == "lost"
    world.host.advance(LEASE_OVER_SECONDS + 0.01)
    assert world.state()[1] == "async"


def test_other_backups_are_refused() -> None:
    """Specification 25.12."""
    world = SyncWorld()
    refused = error_of(world.backup("near").ask(AskJoinSync()))
    assert refused.code is ErrorCode.DENIED and "near is not in 'sync_backups'" in refused.message
    assert error_of(world.backup().ask(AskSyncLease())).code is ErrorCode.DENIED


def test_the_operator_switches_a_backup_off_and_on() -> None:
    """Specification 25.28."""
    world = SyncWorld(policy=SyncPolicy.STOP)
    backup = world.in_sync()
    finished = world.finish()
    world.admin().ask(SetSync("far", False)).result()
    world.host.advance(LEASE_OVER_SECONDS + 0.01)
    assert finished.done and world.state()[1] == "off"
    assert error_of(backup.ask(AskJoinSync())).code is ErrorCode.DENIED
    world.admin().ask(SetSync("far", True)).result()
    assert world.state()[1] == "lost"
    backup.ask(AskJoinSync()).result()
    unknown = error_of(world.admin().ask(SetSync("near", True)))
    assert unknown.code is ErrorCode.DENIED


def test_the_state_tells_how_long_a_backup_has_not_been_in_sync() -> None:
    """Specification 25.28."""
    world = SyncWorld()
    assert world.state()[3:5] == (None, None)
    backup = world.in_sync()
    finished = world.finish()
    acknowledge(backup)
    assert world.state()[1] == "sync"
    assert world.state()[3:5] == (finished.result().tid, 0.0)
    backup.lose()
    world.host.advance(10.0)
    assert world.state()[3:5] == (finished.result().tid, 10.0)


def test_joining_is_not_the_time_since_when_a_backup_is_not_in_sync() -> None:
    """Specification 25.47."""
    world = SyncWorld()
    begun = world.state()[2]
    world.host.advance(1.0)
    backup = world.backup()
    backup.ask(AskJoinSync()).result()
    assert world.state()[1:3] == ("joining", begun)
    world.host.advance(JOIN_SECONDS)
    assert world.state()[1:3] == ("async", begun)
    backup.ask(AskJoinSync()).result()
    backup.ask(AskSyncLease()).result()
    joined = world.host.time()
    assert world.state()[1:3] == ("sync", joined) and joined > begun
    world.host.advance(1.0)
    backup.lose()
    world.host.advance(LEASE_OVER_SECONDS)
    assert world.state()[1:3] == ("async", joined + 1.0)
    world.host.advance(1.0)
    world.admin().ask(SetSync("far", False)).result()
    assert world.state()[1:3] == ("off", world.host.time())


@pytest.mark.parametrize("joined", [False, True])
def test_commits_do_not_wait_where_no_synchronous_backup_is_configured(joined: bool) -> None:
    """Specification 25.12."""
    world = MasterWorld()
    (storage,) = world.running(1)
    client = world.client()
    if joined:
        asynchronous = world.client()
        assert error_of(asynchronous.ask(AskJoinSync())).code is ErrorCode.DENIED
    finished = client.ask(AskFinishTransaction(begin(client), [oid_of(world, 1)], []))
    lock(storage)
    assert finished.done
