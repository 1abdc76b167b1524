"""The coordinator of two-phase commit (specification 7)."""

from __future__ import annotations

import pytest

from neo.protocol.enums import ClusterState, ErrorCode, NodeType
from neo.protocol.ids import MAX_TID, u64
from neo.protocol.packets import (
    AbortTransaction,
    AddPendingNodes,
    AnswerCommitCount,
    AnswerTransactionFinished,
    AskBeginTransaction,
    AskCommitCount,
    AskFinishTransaction,
    AskLastTransaction,
    AskLockInformation,
    AskNewOIDs,
    InvalidateObjects,
    NotifyDeadlock,
    NotifyReady,
    NotifyUnlockInformation,
    SetClusterState,
    StartOperation,
)
from tests.support.remote import error_of
from tests.unit.master.cluster import MasterWorld, tid
from tests.unit.master.committing import begin, lock, oid_of


def test_ttids_and_tids_increase_and_share_their_partition(world: MasterWorld) -> None:
    """Specification 7.4, 7.28."""
    storages = world.running(2)
    client = world.client()
    last = bytes(8)
    for _ in range(10):
        ttid = begin(client)
        answer = client.ask(AskFinishTransaction(ttid, [], []))
        for storage in storages:
            if storage.has(AskLockInformation):
                lock(storage)
        final = answer.result().tid
        assert last < ttid < final
        assert u64(ttid) % 4 == u64(final) % 4
        last = final


def test_time_going_back_does_not_repeat_tids(world: MasterWorld) -> None:
    world.running(1)
    client = world.client()
    first = begin(client)
    world.host.now -= 86400
    assert begin(client) == tid(u64(first) + 1)


def test_only_storages_of_the_touched_partitions_are_locked(world: MasterWorld) -> None:
    """Specification 7.26."""
    first, second = world.running(2)
    client = world.client()
    ttid = begin(client)
    partition = world.master.partitions.partition(ttid)
    (own,) = world.master.partitions.readable(partition)
    client.ask(AskFinishTransaction(ttid, [oid_of(world, partition)], []))
    involved, other = (first, second) if own == 1 else (second, first)
    assert involved.has(AskLockInformation) and not other.has(AskLockInformation)


def test_order_of_the_end_of_a_commit(world: MasterWorld) -> None:
    """Specification 7.33: clients are told before the storage nodes unlock."""
    (storage,) = world.running(1)
    client, other = world.client(), world.client()
    other.received.clear()
    ttid = begin(client)
    oid = oid_of(world, 0)
    answer = client.ask(AskFinishTransaction(ttid, [oid], []))
    assert not answer.done and not storage.has(NotifyUnlockInformation)
    final = lock(storage).tid
    assert answer.result() == AnswerTransactionFinished(ttid, final)
    assert other.take(InvalidateObjects) == InvalidateObjects(final, [oid])
    assert not client.has(InvalidateObjects)
    assert storage.take(NotifyUnlockInformation).ttid == ttid
    assert client.ask(AskLastTransaction()).result().tid == final


def test_finished_transactions_are_counted(world: MasterWorld) -> None:
    """Specification 17.50."""
    (storage,) = world.running(1)
    client, admin = world.client(), world.admin()
    before = admin.ask(AskCommitCount()).result()
    ttids = [begin(client) for _ in range(3)]
    for ttid in ttids[:2]:
        client.ask(AskFinishTransaction(ttid, [], []))
        assert admin.ask(AskCommitCount()).result().count == before.count
    for _ in ttids[:2]:
        lock(storage)
    assert admin.ask(AskCommitCount()).result() == AnswerCommitCount(before.since, before.count + 2)


def test_transactions_finish_in_the_order_of_their_tids(world: MasterWorld) -> None:
    """Specification 7.28, 7.32."""
    first, second = world.running(2)
    client = world.client()
    ttids = [begin(client) for _ in range(8)]
    by_node = {
        n: next(t for t in ttids if world.master.partitions.readable(u64(t) % 4) == [n])
        for n in (1, 2)
    }
    one = client.ask(AskFinishTransaction(by_node[1], [], []))
    two = client.ask(AskFinishTransaction(by_node[2], [], []))
    lock(second)
    assert not two.done
    lock(first)
    assert one.result().tid < two.result().tid


def test_imposed_tid_is_used(world: MasterWorld) -> None:
    """Specification 7.4, 7.28."""
    (storage,) = world.running(1)
    client = world.client()
    imposed = tid(12345)
    assert begin(client, imposed) == imposed
    answer = client.ask(AskFinishTransaction(imposed, [], []))
    assert lock(storage).tid == imposed
    assert answer.result().tid == imposed


@pytest.mark.parametrize("lost", ["client", "storage", "nothing"])
def test_a_tid_is_not_imposed_again_before_storages_heard_the_end_of_the_first_attempt(
    lost: str,
) -> None:
    """The abort of the first attempt could reach a storage after the votes of the second
    (specification 7.6)."""
    world = MasterWorld(replicas=1)
    world.extra = {"features": ["oids"]}
    storage, other = world.running(2)
    client = world.client()
    imposed = begin(client, tid(12345))
    if lost == "client":
        client.lose()
        client = world.client()
    else:
        client.send(AbortTransaction(imposed, []))
    again, unrelated = (client.ask(AskBeginTransaction(t)) for t in (imposed, tid(12346)))
    assert unrelated.done
    world.remember(storage)
    assert not again.done
    if lost == "storage":
        other.lose()
    else:
        world.remember(other)
        assert again.result().ttid == imposed


def test_an_imposed_tid_that_is_not_later_than_what_is_committed_is_refused(
    world: MasterWorld,
) -> None:
    """Snapshots that were read would change, and nodes that were away would miss it
    (specification 7.5)."""
    (storage,) = world.running(1)
    client = world.client()
    answer = client.ask(AskFinishTransaction(begin(client, tid(12345)), [], []))
    lock(storage)
    assert answer.result().tid == tid(12345)
    for late in (tid(12345), tid(12344)):
        error = error_of(client.ask(AskBeginTransaction(late)))
        assert error.code is ErrorCode.PROTOCOL_ERROR
        assert "is not later than the last transaction" in error.message


def test_an_imposed_tid_that_is_overtaken_is_aborted(world: MasterWorld) -> None:
    """Another transaction got a later tid meanwhile, whether it is finished already or not
    (specification 7.5)."""
    (storage,) = world.running(1)
    restorer, other = world.client(), world.client()
    imposed = begin(restorer, tid(12345))
    answer = other.ask(AskFinishTransaction(begin(other), [], []))
    error = error_of(restorer.ask(AskFinishTransaction(imposed, [], [])))
    assert error.code is ErrorCode.INCOMPLETE_TRANSACTION
    assert storage.take(AbortTransaction).ttid == imposed
    assert lock(storage).tid == answer.result().tid > imposed


def test_begin_waits_for_storages_that_are_starting(world: MasterWorld) -> None:
    """Specification 7.2."""
    (storage,) = world.running(1)
    spare = world.join(NodeType.STORAGE, port=9102)
    world.admin().ask(AddPendingNodes([2])).result()
    client = world.client()
    answer = client.ask(AskBeginTransaction(None))
    assert not answer.done
    assert spare.has(StartOperation)
    spare.send(NotifyReady())
    assert answer.done


def test_abort_is_forwarded_to_the_involved_storages(world: MasterWorld) -> None:
    """Specification 7.42."""
    first, second = world.running(2)
    client = world.client()
    ttid = begin(client)
    client.send(AbortTransaction(ttid, [2]))
    assert second.take(AbortTransaction) == AbortTransaction(ttid, [])
    assert not first.has(AbortTransaction)


def test_a_tid_is_not_imposed_twice_at_the_same_time(world: MasterWorld) -> None:
    """Specification 7.5."""
    world.running(1)
    client, other = world.client(), world.client()
    imposed = begin(client, tid(12345))
    error = error_of(other.ask(AskBeginTransaction(imposed)))
    assert error.code is ErrorCode.PROTOCOL_ERROR and "already running" in error.message
    assert not client.closed and not other.closed
    assert world.master.coordinator.transactions.ttids() == [imposed]


@pytest.mark.parametrize(
    "again", [AbortTransaction(tid(12345), []), AskFinishTransaction(tid(12345), [], [])]
)
def test_what_is_being_finished_is_no_business_of_the_client_any_more(
    world: MasterWorld, again: AbortTransaction | AskFinishTransaction
) -> None:
    """Specification 7.42, 7.45."""
    (storage,) = world.running(1)
    client = world.client()
    client.ask(AskFinishTransaction(begin(client, tid(12345)), [], []))
    client.send(again)
    assert client.closed and "finish" in client.complaint
    assert not storage.has(AbortTransaction)
    assert lock(storage).tid == tid(12345)
    assert world.master.cluster.last_tid == tid(12345)


def test_abort_of_an_unknown_transaction_disconnects(world: MasterWorld) -> None:
    """Specification 7.42."""
    world.running(1)
    client = world.client()
    client.send(AbortTransaction(tid(1), []))
    assert client.closed and "unknown" in client.complaint


def test_deadlock_gives_a_new_locking_tid_once(world: MasterWorld) -> None:
    """Specification 8.15."""
    (storage,) = world.running(1)
    client = world.client()
    ttid = begin(client)
    storage.send(NotifyDeadlock(ttid, ttid))
    new = client.take(NotifyDeadlock)
    assert new.ttid == ttid and new.locking_tid > ttid
    storage.send(NotifyDeadlock(ttid, ttid))  # late: a bigger one was given
    assert not client.has(NotifyDeadlock)
    storage.send(NotifyDeadlock(ttid, new.locking_tid))
    assert client.take(NotifyDeadlock).locking_tid > new.locking_tid
    storage.send(NotifyDeadlock(tid(7), tid(7)))  # unknown: aborted meanwhile
    client.ask(AskFinishTransaction(ttid, [], []))  # it waits for nothing any more
    storage.send(NotifyDeadlock(ttid, MAX_TID))
    assert not client.has(NotifyDeadlock)
    assert not storage.closed and not client.closed


def test_oids_continue_after_a_foreign_one(world: MasterWorld) -> None:
    """Specification 7.7, 7.28, 15.10."""
    (storage,) = world.running(1)
    client = world.client()
    assert client.ask(AskNewOIDs(2)).result().oid_list == [tid(1), tid(2)]
    client.ask(AskFinishTransaction(begin(client), [tid(100)], []))
    lock(storage)
    assert client.ask(AskNewOIDs(1)).result().oid_list == [tid(101)]


def test_unreasonable_number_of_oids_is_refused(world: MasterWorld) -> None:
    """Specification 7.7."""
    world.running(1)
    error = error_of(world.client().ask(AskNewOIDs(10**9)))
    assert error.code is ErrorCode.PROTOCOL_ERROR


def test_stopping_waits_for_transactions_and_begins_no_other(world: MasterWorld) -> None:
    """Specification 4.32, 4.33, 7.2."""
    (storage,) = world.running(1)
    client = world.client()
    ttid = begin(client)
    world.admin().ask(SetClusterState(ClusterState.STOPPING)).result()
    blocked = client.ask(AskBeginTransaction(None))
    assert world.host.exit_code is None
    answer = client.ask(AskFinishTransaction(ttid, [], []))
    lock(storage)
    assert answer.done and not blocked.done
    assert world.host.exit_code == 0


def test_stopping_does_not_wait_for_ever(world: MasterWorld) -> None:
    """Specification 4.33."""
    world.running(1)
    begin(world.client())
    world.admin().ask(SetClusterState(ClusterState.STOPPING)).result()
    world.host.advance(11)
    assert world.host.exit_code == 0


def test_stopping_ends_when_what_is_being_finished_cannot_be(world: MasterWorld) -> None:
    """The storage that must lock is lost. The next start decides about the transaction
    (specification 4.13)."""
    (storage,) = world.running(1)
    client = world.client()
    client.ask(AskFinishTransaction(begin(client), [], []))
    world.admin().ask(SetClusterState(ClusterState.STOPPING)).result()
    assert world.host.exit_code is None
    storage.lose()
    assert world.host.exit_code == 0
