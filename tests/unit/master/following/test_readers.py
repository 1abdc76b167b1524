"""Readers of a backup, and what the upstream cluster does that its backup cannot follow at once."""

from __future__ import annotations

import pytest

from neo.master.following.pack import RETRY_SECONDS
from neo.master.settings import SyncPolicy
from neo.protocol.enums import ClusterState, ErrorCode
from neo.protocol.packets import (
    FEATURE_OURS,
    AnswerPack,
    AskJoinSync,
    AskPack,
    AskSync,
    AskSyncLease,
    Error,
    InvalidateObjects,
    NotifyPack,
    NotifySynced,
    Replicate,
    SetClusterState,
)
from tests.support.remote import error_of
from tests.unit.master.backup_world import BackupWorld, complete, fetched
from tests.unit.master.cluster import tid


@pytest.fixture
def world() -> BackupWorld:
    return BackupWorld()


def test_readers_join_again_when_too_many_changes_wait(
    world: BackupWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 13.26."""
    monkeypatch.setattr("neo.master.following.readers.WAITING_OIDS_MAX", 2)
    upstream, (storage,) = world.backingup()
    reader = world.client()
    upstream.send(InvalidateObjects(tid(21), [tid(2), tid(6), tid(10)]))
    fetched(storage, 21, 1)
    assert not reader.closed
    fetched(storage, 21, 2)
    complete(21, storage)
    assert reader.closed and not reader.has(InvalidateObjects)


def test_invalidations_of_transactions_that_become_complete_together_come_in_their_order(
    world: BackupWorld,
) -> None:
    """Specification 13.26, 23.11."""
    upstream, (storage,) = world.backingup()
    reader = world.client()
    upstream.send(InvalidateObjects(tid(21), [tid(1)]))
    upstream.send(InvalidateObjects(tid(25), [tid(5)]))
    fetched(storage, 25, 1)
    complete(25, storage)
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
    world.client(backup=b"bak")
    world.admin().ask(SetClusterState(ClusterState.STARTING_BACKUP))
    assert world.master.cluster.state is ClusterState.STARTING_BACKUP


def test_a_backup_has_no_synchronous_backups() -> None:
    """Specification 25.12, 25.28: it may have any other ones, which follow it, and none is missed."""
    world = BackupWorld(sync_backups=("far",), sync_policy=SyncPolicy.STOP)
    world.backingup()
    far = world.client(backup="far", features=[FEATURE_OURS])
    far.send(NotifySynced(tid(0)))
    for question in (AskJoinSync(), AskSyncLease()):
        error = error_of(far.ask(question))
        assert error.code is ErrorCode.DENIED and "is a standby itself" in error.message
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
