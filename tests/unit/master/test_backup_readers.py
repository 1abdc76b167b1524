"""Readers of a backup, and what the upstream cluster does that its backup cannot follow at once."""

from __future__ import annotations

import pytest

from neo.master.backup.pack import RETRY_SECONDS
from neo.master.settings import SyncPolicy
from neo.protocol.enums import ClusterState, ErrorCode, NodeType
from neo.protocol.ids import MAX_TID
from neo.protocol.packets import (
    FEATURE_SYNC,
    FEATURES,
    AnswerPack,
    AskFinalTID,
    AskFinishTransaction,
    AskJoinSync,
    AskPack,
    AskRecovery,
    AskSync,
    AskSyncLease,
    Error,
    FailedVote,
    InvalidateObjects,
    NotifyPack,
    NotifyReplicationDone,
    NotifySynced,
    Replicate,
    RequestIdentification,
    SetClusterState,
)
from tests.support.remote import Remote, error_of
from tests.unit.master.backup_world import BackupWorld, durable
from tests.unit.master.cluster import tid


@pytest.fixture
def world() -> BackupWorld:
    return BackupWorld()


def test_a_transaction_of_before_cannot_go_on_in_a_backup(world: BackupWorld) -> None:
    """Its client asks storage nodes for the outcome (specification 13.27)."""
    world.backingup()
    reader = world.client()
    for question in (FailedVote(tid(1), [1]), AskFinishTransaction(tid(1), [tid(2)], [])):
        assert error_of(reader.ask(question)).code is ErrorCode.READ_ONLY_ACCESS
    assert reader.ask(AskFinalTID(tid(1))).result().tid == MAX_TID


def test_readers_join_again_when_too_many_changes_wait(
    world: BackupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 13.26."""
    monkeypatch.setattr("neo.master.backup.readers.WAITING_OIDS_MAX", 2)
    upstream, (storage,) = world.backingup()
    reader = world.client()
    upstream.send(InvalidateObjects(tid(21), [tid(2), tid(6), tid(10)]))
    for partition in (1, 2):
        assert not reader.closed
        storage.send(NotifyReplicationDone(partition, tid(21)))
    while storage.has(AskRecovery):
        durable(storage, 21)
    assert reader.closed and not reader.has(InvalidateObjects)


def test_invalidations_of_transactions_that_become_complete_together_come_in_their_order(
    world: BackupWorld,
) -> None:
    """Specification 13.26, 23.11."""
    upstream, (storage,) = world.backingup()
    reader = world.client()
    upstream.send(InvalidateObjects(tid(21), [tid(1)]))
    upstream.send(InvalidateObjects(tid(25), [tid(5)]))
    storage.send(NotifyReplicationDone(1, tid(25)))
    while storage.has(AskRecovery):
        durable(storage, 25)
    assert reader.take(InvalidateObjects) == InvalidateObjects(tid(21), [tid(1)])
    assert reader.take(InvalidateObjects) == InvalidateObjects(tid(25), [tid(5)])


def test_a_transaction_that_is_imported_upstream_before_the_last_one_is_not_followed(
    world: BackupWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 13.10."""
    upstream, (storage,) = world.backingup()
    upstream.send(InvalidateObjects(tid(21), [tid(1)]))
    storage.received.clear()
    upstream.send(InvalidateObjects(tid(20), [tid(2)]))
    assert not storage.has(Replicate) and not upstream.closed
    assert f"transaction {tid(20).hex()} was imported into the upstream cluster" in caplog.text


def test_the_master_of_a_backup_does_not_keep_its_upstream_from_being_one(
    world: BackupWorld,
) -> None:
    """The master only reads (specification 13.1)."""
    world.running(1)
    follower = Remote.connect(world.master)
    extra = {"backup": b"bak"}
    follower.ask(RequestIdentification(NodeType.CLIENT, None, None, "test", None, extra))
    world.admin().ask(SetClusterState(ClusterState.STARTING_BACKUP)).result()
    assert world.master.cluster.state is ClusterState.STARTING_BACKUP


def test_a_backup_has_no_synchronous_backups() -> None:
    """Specification 25.12, 25.28: it may have any other ones, which follow it, and none is missed."""
    world = BackupWorld(sync_backups=("far",), sync_policy=SyncPolicy.STOP)
    world.backingup()
    far = Remote.connect(world.master)
    extra = {"backup": "far", FEATURES: [FEATURE_SYNC]}
    far.ask(RequestIdentification(NodeType.CLIENT, None, None, "test", None, extra)).result()
    far.send(NotifySynced(tid(0)))
    for question in (AskJoinSync(), AskSyncLease()):
        error = error_of(far.ask(question))
        assert error.code is ErrorCode.DENIED and "is a backup itself" in error.message
    assert not far.closed
    assert world.admin().ask(AskSync()).result().backup_list == []


def test_a_pack_of_a_backup_that_fails_is_tried_again(world: BackupWorld) -> None:
    """Specification 13.21."""
    upstream, (storage,) = world.backingup()
    upstream.send(NotifyPack(tid(21)))
    storage.answer(storage.take(AskPack), Error(ErrorCode.CHECKING_ERROR.value, "no"))
    world.host.advance(RETRY_SECONDS - 0.1)
    assert not storage.has(AskPack)
    world.host.advance(0.1)
    question = storage.take(AskPack)
    assert question.tid == tid(21)
    storage.answer(question, AnswerPack(True))
    world.host.advance(RETRY_SECONDS)
    assert not storage.has(AskPack)
