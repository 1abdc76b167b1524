"""A synchronous backup locks what its upstream cluster has locked (specification 25)."""

from __future__ import annotations

import pytest

from neo.protocol.enums import ErrorCode
from neo.protocol.packets import (
    AbortTransaction,
    AnswerLockBackup,
    AskLastTransaction,
    AskLockInformation,
    AskRecovery,
    AskVoted,
    Error,
    InvalidateObjects,
    NotifyLeft,
    NotifyPartitionChanges,
    NotifyUnlockInformation,
    Replicate,
)
from tests.support.remote import error_of
from tests.unit.master.backup_world import OTHER, OUT, SOURCE, UP
from tests.unit.master.cluster import tid
from tests.unit.master.sync_world import SyncWorld, complete, confirm, locks, unlocks, vote


@pytest.fixture
def world() -> SyncWorld:
    return SyncWorld()


def test_nodes_have_the_rows_before_one_is_asked_to_lock(world: SyncWorld) -> None:
    """Specification 25.3, 25.10."""
    upstream, (first, second) = world.in_sync(2)  # partitions 0 and 2; 1 and 3
    world.lock(upstream, 24, 1, 2)  # metadata in partition 0
    sources = {0: SOURCE, 2: SOURCE}
    assert vote(first) == [AskVoted(tid(20), "up", sources, [tid(2)], None)]
    assert not first.has(AskLockInformation)
    assert vote(second) == [AskVoted(tid(20), "up", {1: OTHER}, [tid(1)], None)]
    assert locks(first, second) == [AskLockInformation(tid(20), tid(24))] * 2


def test_it_is_unlocked_when_all_have_locked_and_answered_when_all_remember_it(
    world: SyncWorld,
) -> None:
    """Specification 25.20, 25.42: cells hear that there is nothing to fetch after they unlocked."""
    upstream, (first, second) = world.in_sync(2)
    answer = world.lock(upstream, 24, 1)
    vote(first, second)
    locks(first)
    assert not answer.done and not unlocks(first)
    locks(second)
    for storage, partitions in ((first, (0, 2)), (second, (1, 3))):
        unlock, order, question = storage.received
        assert unlock == NotifyUnlockInformation(tid(20))
        assert order == Replicate(tid(24), "", dict.fromkeys(partitions))
        assert question == AskRecovery()
    complete(24, first)
    assert not answer.done, "the other one does not remember yet that it has it"
    complete(24, second)
    assert answer.result() == AnswerLockBackup(tid(20))


def test_readers_see_what_was_unlocked_when_the_upstream_cluster_announced_it(
    world: SyncWorld,
) -> None:
    """Specification 13.24, 13.26, 25.23: readers of the upstream cluster do not see it before."""
    upstream, (storage,) = world.in_sync()
    reader = world.client()
    world.locked(upstream, 24, storage)
    assert not reader.has(InvalidateObjects)
    complete(24, storage)
    assert not reader.has(InvalidateObjects)
    assert reader.ask(AskLastTransaction()).result().tid < tid(24)
    storage.received.clear()
    upstream.send(InvalidateObjects(tid(24), [tid(1)]))
    assert reader.take(InvalidateObjects) == InvalidateObjects(tid(24), [tid(1)])
    assert reader.ask(AskLastTransaction()).result().tid == tid(24)
    assert not storage.received, "it has nothing to fetch"
    assert world.sync.in_sync


def test_readers_do_not_see_what_is_announced_before_it_is_durable(world: SyncWorld) -> None:
    """Specification 13.24, 25.23."""
    upstream, (storage,) = world.in_sync()
    reader = world.client()
    world.locked(upstream, 24, storage)
    upstream.send(InvalidateObjects(tid(24), [tid(1)]))
    assert not reader.has(InvalidateObjects)
    complete(24, storage)
    assert reader.take(InvalidateObjects) == InvalidateObjects(tid(24), [tid(1)])


def test_transactions_are_prepared_at_once_and_locked_in_order(world: SyncWorld) -> None:
    """Specification 25.2."""
    upstream, (storage,) = world.in_sync()
    answers = [world.lock(upstream, number, 1) for number in (24, 28)]
    first, second = storage.take(AskVoted), storage.take(AskVoted)
    storage.received.append(second)
    vote(storage)
    assert not storage.has(AskLockInformation), "the earlier one is not prepared"
    storage.received.append(first)
    vote(storage)
    assert sum(type(m) is AskLockInformation for m in storage.received) == 1
    assert [question.tid for question in locks(storage, storage)] == [tid(24), tid(28)]
    assert unlocks(storage) == [tid(20), tid(24)]
    assert not any(answer.done for answer in answers)
    complete(28, storage)
    assert all(answer.done for answer in answers)


def test_the_source_of_a_partition_stays_the_same_as_long_as_it_is_readable(
    world: SyncWorld,
) -> None:
    """Specification 25.11: nodes subscribe there."""
    upstream, (storage,) = world.in_sync()
    upstream.send(NotifyPartitionChanges(2, 0, [(p, n, UP) for p in range(4) for n in (1, 2)]))
    chosen = []
    for number in (24, 28, 32, 36):
        world.lock(upstream, number, 1, 2, 3)
        chosen.append(storage.take(AskVoted).source_dict)
    assert chosen == [chosen[0]] * 4
    gone = {SOURCE: 1, OTHER: 2}[chosen[0][0]]
    upstream.send(NotifyPartitionChanges(3, 0, [(0, gone, OUT)]))
    world.lock(upstream, 40, 1, 2, 3)
    moved = storage.take(AskVoted).source_dict
    assert moved == {**chosen[0], 0: OTHER if gone == 1 else SOURCE}


def test_a_transaction_that_was_locked_before_is_not_locked_again(world: SyncWorld) -> None:
    """Specification 25.22: the answer was lost with a connection."""
    upstream, (storage,) = world.in_sync()
    world.locked(upstream, 24, storage)
    again = world.lock(upstream, 24, 1)
    assert not storage.has(AskVoted) and not again.done
    complete(24, storage)
    assert again.result() == AnswerLockBackup(tid(20))
    assert world.lock(upstream, 24, 1).done


# -- losses --------------------------------------------------------------------------------------


def test_nothing_is_answered_before_the_table_without_a_lost_node_is_confirmed() -> None:
    """Specification 25.20: a master that starts with the older table would read there."""
    world = SyncWorld(replicas=1)
    upstream, (first, second) = world.in_sync(2)
    answer = world.lock(upstream, 24, 1)
    vote(first, second)
    locks(first)
    second.lose()
    world.host.advance()
    assert not answer.done and not unlocks(first)
    confirm(first, ptid=2)
    assert unlocks(first) == [tid(20)]
    complete(24, first, ptid=2)
    assert answer.result() == AnswerLockBackup(tid(20)) and world.sync.in_sync


def test_nothing_is_answered_for_the_cells_that_remain_before_the_table_is_confirmed() -> None:
    """Specification 25.20: another master could start with the node that is lost."""
    world = SyncWorld(replicas=1)
    upstream, (first, second) = world.in_sync(2)
    answer = world.locked(upstream, 24, first, second)
    complete(24, first)
    second.lose()
    world.host.advance()
    assert not answer.done
    complete(24, first, ptid=2)
    assert answer.done


def test_a_node_that_is_lost_before_the_lock_takes_no_part() -> None:
    """Specification 25.3."""
    world = SyncWorld(replicas=1)
    upstream, (first, second) = world.in_sync(2)
    answer = world.lock(upstream, 24, 1)
    vote(first)
    second.lose()
    locks(first)
    confirm(first, ptid=2)
    complete(24, first, ptid=2)
    assert answer.done


def test_a_node_that_lost_its_cell_meanwhile_drops_the_rows() -> None:
    """Specification 25.20: nobody else would tell it how the transaction ends."""
    world = SyncWorld(replicas=1)
    upstream, (first, second) = world.in_sync(2)
    answer = world.lock(upstream, 24, 1)
    vote(second)
    second.received.clear()
    world.master.cluster.change_partitions([(p, 2, OUT) for p in range(4)])
    vote(first)
    confirm(first, ptid=2)
    locks(first)
    complete(24, first, ptid=2)
    assert answer.done and not second.has(AskLockInformation)
    assert second.take(AbortTransaction).ttid == tid(20)


def test_a_node_that_cannot_lock_is_disconnected() -> None:
    world = SyncWorld(replicas=1)
    upstream, (first, second) = world.in_sync(2)
    answer = world.lock(upstream, 24, 1)
    vote(first, second)
    locks(first)
    question = second.take(AskLockInformation)
    second.answer(question, Error(ErrorCode.TID_NOT_FOUND.value, "no vote"))
    assert second.closed and not unlocks(first)
    confirm(first, ptid=2)
    complete(24, first, ptid=2)
    assert answer.done and world.sync.in_sync


def test_a_node_that_cannot_get_the_rows_ends_the_membership(world: SyncWorld) -> None:
    """Specification 25.18, 25.40."""
    upstream, (storage,) = world.in_sync()
    first, second = world.lock(upstream, 24, 1), world.lock(upstream, 28, 1)
    vote(storage)
    question = storage.take(AskVoted)
    storage.answer(question, Error(ErrorCode.INCOMPLETE_TRANSACTION.value, "its disk is full"))
    assert "its disk is full" in error_of(second).message
    assert not world.sync.in_sync and world.state == "lost"
    assert storage.take(AbortTransaction).ttid == tid(24)
    locks(storage)
    complete(24, storage)
    assert first.result() == AnswerLockBackup(tid(20)), "it was being locked"
    assert not storage.has(AbortTransaction)


def test_a_partition_that_cannot_be_read_upstream_ends_the_membership(world: SyncWorld) -> None:
    """Specification 25.18."""
    upstream, (storage,) = world.in_sync()
    upstream.send(NotifyPartitionChanges(2, 0, [(1, 2, OUT)]))
    answer = world.lock(upstream, 24, 1)
    assert "does not serve all partitions" in error_of(answer).message
    assert type(storage.received[-1]) is NotifyLeft and not world.sync.in_sync


def test_outside_locks_are_refused(world: SyncWorld) -> None:
    upstream, (storage,) = world.backingup()
    error = error_of(world.lock(upstream, 24, 1))
    assert error.code is ErrorCode.INCOMPLETE_TRANSACTION and not storage.has(AskVoted)


def test_an_earlier_tid_ends_the_membership(world: SyncWorld) -> None:
    """Specification 25.2."""
    upstream, _ = world.in_sync()
    world.lock(upstream, 24, 1)
    assert "not later" in error_of(world.lock(upstream, 23, 1)).message
    assert not world.sync.in_sync


def test_what_was_being_locked_when_upstream_is_lost_is_finished_and_the_rest_dropped(
    world: SyncWorld,
) -> None:
    """Specification 25.18."""
    upstream, (storage,) = world.in_sync()
    world.lock(upstream, 24, 1)
    world.lock(upstream, 28, 1)
    vote(storage, storage)
    upstream.lose()
    assert storage.take(AbortTransaction).ttid == tid(24)
    locks(storage)
    assert unlocks(storage) == [tid(20)] and not storage.has(AskLockInformation)
    assert storage.take(Replicate) == Replicate(tid(24), "", dict.fromkeys(range(4)))


def test_an_upstream_that_did_not_wait_is_followed_by_orders(world: SyncWorld) -> None:
    """Specification 25.18, 25.44: rows are fetched when nothing is between lock and unlock."""
    upstream, (storage,) = world.in_sync()
    world.lock(upstream, 24, 1)
    vote(storage)
    upstream.send(InvalidateObjects(tid(24), [tid(1)]))
    upstream.send(InvalidateObjects(tid(28), [tid(2)]))
    assert not world.sync.in_sync
    assert all(m.upstream_name == "" for m in storage.received if type(m) is Replicate)
    storage.received = [m for m in storage.received if type(m) is not Replicate]
    locks(storage)
    assert unlocks(storage) == [tid(20)]
    assert storage.take(Replicate) == Replicate(
        tid(28), "up", {0: SOURCE, 1: OTHER, 2: SOURCE}
    )
