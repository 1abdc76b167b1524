"""Two-phase commit as the master drives it (specification, *Commit*; FACTS 7)."""

from __future__ import annotations

from typing import Any

import pytest

from neo.node.core import WATCH_SECONDS
from neo.protocol.enums import ClusterState, ErrorCode, NodeType
from neo.protocol.ids import MAX_TID, u64
from neo.protocol.packets import (
    AbortTransaction,
    AddPendingNodes,
    AnswerInformationLocked,
    AnswerPack,
    AskBeginTransaction,
    AskFinalTID,
    AskFinishTransaction,
    AskLastTransaction,
    AskLockInformation,
    AskNewOIDs,
    AskPack,
    Error,
    FailedVote,
    InvalidateObjects,
    NotifyDeadlock,
    NotifyReady,
    NotifyUnlockInformation,
    SetClusterState,
    StartOperation,
)
from tests.support.remote import Remote, error_of
from tests.unit.master.cluster import MasterWorld, tid


def begin(client: Remote, imposed: bytes | None = None) -> bytes:
    ttid: bytes = client.ask(AskBeginTransaction(imposed)).result().ttid
    return ttid


def lock(storage: Remote) -> AskLockInformation:
    question = storage.take(AskLockInformation)
    storage.answer(question, AnswerInformationLocked(question.ttid))
    return question


def oid_of(world: MasterWorld, partition: int) -> bytes:
    return tid(len(world.master.partitions) * 5 + partition)


def test_ttids_and_tids_increase_and_share_their_partition(world: MasterWorld) -> None:
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
    world.shell.now -= 86400
    assert begin(client) == tid(u64(first) + 1)


def test_only_storages_of_the_touched_partitions_are_locked(world: MasterWorld) -> None:
    first, second = world.running(2)
    client = world.client()
    ttid = begin(client)
    partition = world.master.partitions.partition(ttid)
    (own,) = world.master.partitions.readable(partition)
    client.ask(AskFinishTransaction(ttid, [oid_of(world, partition)], []))
    involved, other = (first, second) if own == 1 else (second, first)
    assert involved.has(AskLockInformation) and not other.has(AskLockInformation)


def test_order_of_the_end_of_a_commit(world: MasterWorld) -> None:
    """FACTS 7.2: the committer and the other clients before the storages unlock."""
    (storage,) = world.running(1)
    client, other = world.client(), world.client()
    other.received.clear()
    ttid = begin(client)
    oid = oid_of(world, 0)
    answer = client.ask(AskFinishTransaction(ttid, [oid], []))
    assert not answer.done and not storage.has(NotifyUnlockInformation)
    final = lock(storage).tid
    assert answer.result() == (ttid, final)
    assert other.take(InvalidateObjects) == (final, [oid])
    assert not client.has(InvalidateObjects)
    assert storage.take(NotifyUnlockInformation).ttid == ttid
    assert client.ask(AskLastTransaction()).result().tid == final


def test_transactions_finish_in_the_order_of_their_tids(world: MasterWorld) -> None:
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
    """The abort of the first attempt could reach a storage after the votes of the second."""
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
    """Snapshots that were read would change, and nodes that were away would miss it."""
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
    """Another transaction got a later one meanwhile, whether it is finished already or not."""
    (storage,) = world.running(1)
    restorer, other = world.client(), world.client()
    imposed = begin(restorer, tid(12345))
    answer = other.ask(AskFinishTransaction(begin(other), [], []))
    error = error_of(restorer.ask(AskFinishTransaction(imposed, [], [])))
    assert error.code is ErrorCode.INCOMPLETE_TRANSACTION
    assert storage.take(AbortTransaction).ttid == imposed
    assert lock(storage).tid == answer.result().tid > imposed


def test_begin_waits_for_storages_that_are_starting(world: MasterWorld) -> None:
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
    first, second = world.running(2)
    client = world.client()
    ttid = begin(client)
    client.send(AbortTransaction(ttid, [2]))
    assert second.take(AbortTransaction) == (ttid, [])
    assert not first.has(AbortTransaction)


def test_abort_of_an_unknown_transaction_disconnects(world: MasterWorld) -> None:
    world.running(1)
    client = world.client()
    client.send(AbortTransaction(tid(1), []))
    assert client.closed and "unknown" in client.complaint


def test_client_lost_before_finish_is_forgotten(world: MasterWorld) -> None:
    world.running(1)
    client = world.client()
    begin(client)
    client.lose()
    assert len(world.master.commits.transactions) == 0


def test_client_lost_during_finish_is_committed(world: MasterWorld) -> None:
    (storage,) = world.running(1)
    client, other = world.client(), world.client()
    other.received.clear()
    ttid = begin(client)
    client.ask(AskFinishTransaction(ttid, [oid_of(world, 1)], []))
    client.lose()
    waiting = other.ask(AskFinalTID(ttid))
    assert not waiting.done
    final = lock(storage).tid
    assert other.take(InvalidateObjects).tid == final
    assert waiting.result().tid == final
    assert storage.has(NotifyUnlockInformation)


def test_final_tid_of_what_the_master_does_not_know(world: MasterWorld) -> None:
    """FACTS 7.4."""
    world.running(1)
    client = world.client()
    ttid = begin(client)
    assert client.ask(AskFinalTID(MAX_TID)).result().tid is None
    client.send(AbortTransaction(ttid, []))
    assert client.ask(AskFinalTID(ttid)).result().tid == MAX_TID


def test_finish_that_comes_after_its_client_was_told_that_nothing_is_committed_is_refused(
    world: MasterWorld,
) -> None:
    """The request is on its way by a connection that the client has given up for another one."""
    (storage,) = world.running(1)
    old = world.client()
    ttid = begin(old)
    new = world.client()
    assert new.ask(AskFinalTID(ttid)).result().tid is None
    assert storage.take(AbortTransaction).ttid == ttid
    refused = old.ask(AskFinishTransaction(ttid, [oid_of(world, 1)], []))
    assert error_of(refused).code is ErrorCode.PROTOCOL_ERROR
    assert not storage.has(AskLockInformation)


def test_finish_without_the_needed_storage_is_incomplete(world: MasterWorld) -> None:
    first, second = world.running(2)
    client = world.client()
    ttid = begin(client)
    world.master.ready.discard(1)
    world.master.ready.discard(2)
    error = error_of(client.ask(AskFinishTransaction(ttid, [oid_of(world, 0)], [])))
    assert error.code is ErrorCode.INCOMPLETE_TRANSACTION
    assert len(world.master.commits.transactions) == 0


def test_failed_vote_without_replica_is_incomplete(world: MasterWorld) -> None:
    world.running(2)
    client = world.client()
    error = error_of(client.ask(FailedVote(begin(client), [1])))
    assert error.code is ErrorCode.INCOMPLETE_TRANSACTION


def test_failed_vote_with_replica_disconnects_at_finish() -> None:
    world = MasterWorld(replicas=1)
    first, second = world.running(2)
    client = world.client()
    ttid = begin(client)
    client.ask(FailedVote(ttid, [1])).result()
    assert not first.closed
    answer = client.ask(AskFinishTransaction(ttid, [oid_of(world, 0)], []))
    assert first.closed and not first.has(AskLockInformation)
    lock(second)
    assert answer.done
    assert world.master.state is ClusterState.RUNNING


def excluding_votes() -> tuple[MasterWorld, list[Remote], Remote, list[bytes], Any]:
    """S1 may fail for the first transaction; the second one wants to fail S2."""
    world = MasterWorld(replicas=1)
    storages = world.running(2)
    client = world.client()
    ttids = [begin(client), begin(client)]
    client.ask(FailedVote(ttids[0], [1])).result()
    second = client.ask(FailedVote(ttids[1], [2]))
    assert not second.done
    return world, storages, client, ttids, second


def test_a_failed_vote_waits_for_one_that_excludes_it_and_is_refused_when_that_finishes() -> None:
    """FACTS 7.13."""
    world, storages, client, ttids, second = excluding_votes()
    client.ask(AskFinishTransaction(ttids[0], [oid_of(world, 0)], []))
    lock(storages[1])
    assert error_of(second).code is ErrorCode.INCOMPLETE_TRANSACTION
    assert world.master.state is ClusterState.RUNNING


def test_a_failed_vote_that_waited_is_accepted_when_the_other_one_aborts() -> None:
    world, storages, client, ttids, second = excluding_votes()
    client.send(AbortTransaction(ttids[0], []))
    assert second.done and second.result().code == ErrorCode.ACK.value
    answer = client.ask(AskFinishTransaction(ttids[1], [oid_of(world, 0)], []))
    assert storages[1].closed
    lock(storages[0])
    assert answer.done


def test_a_failed_vote_that_waits_is_accepted_when_the_client_of_the_other_one_is_lost() -> None:
    world = MasterWorld(replicas=1)
    world.running(2)
    first, other = world.client(), world.client()
    first.ask(FailedVote(begin(first), [1])).result()
    waiting = other.ask(FailedVote(begin(other), [2]))
    assert not waiting.done
    first.lose()
    assert waiting.result().code == ErrorCode.ACK.value


def test_a_failed_vote_that_waits_is_refused_when_the_node_left_is_lost() -> None:
    _, storages, _, _, second = excluding_votes()
    storages[0].lose()
    assert error_of(second).code is ErrorCode.INCOMPLETE_TRANSACTION


def test_a_failed_vote_that_waits_is_over_with_its_transaction() -> None:
    _, _, client, ttids, second = excluding_votes()
    client.send(AbortTransaction(ttids[1], []))
    assert error_of(second).code is ErrorCode.INCOMPLETE_TRANSACTION


def test_a_failed_vote_is_looked_at_again_at_the_end() -> None:
    """The node that was to stay was lost between vote and finish."""
    world = MasterWorld(replicas=2)
    _, second, third = world.running(3)
    client = world.client()
    ttid = begin(client)
    client.ask(FailedVote(ttid, [1, 2])).result()
    third.lose()
    answer = client.ask(AskFinishTransaction(ttid, [oid_of(world, 0)], []))
    assert error_of(answer).code is ErrorCode.INCOMPLETE_TRANSACTION
    assert not second.closed
    assert world.master.state is ClusterState.RUNNING


def test_a_node_that_came_after_the_beginning_is_not_disconnected() -> None:
    """It is not expected to have the transaction in full: replication brings it."""
    world = MasterWorld(replicas=1)
    first, second = world.running(2)
    client = world.client()
    second.lose()
    ttid = begin(client)
    rows = world.master.partitions.row_list()
    second = world.join_storage(2)
    assert rows == world.master.partitions.row_list()
    second.take(StartOperation)
    second.send(NotifyReady())
    client.ask(FailedVote(ttid, [2])).result()
    answer = client.ask(AskFinishTransaction(ttid, [oid_of(world, 0)], []))
    assert not second.closed and not second.has(AskLockInformation)
    lock(first)
    assert answer.done


def test_a_check_must_have_been_kept_by_a_node_that_is_still_there() -> None:
    """Else others may have changed the object meanwhile."""
    world = MasterWorld()
    first, second = world.running(2)
    client = world.client()
    ttid = begin(client)
    partition = world.master.partitions.partition(ttid)
    elsewhere = next(p for p in range(4) if (p - partition) % 2)
    transaction = world.master.commits.transactions.get(ttid)
    assert transaction is not None
    nid = world.master.partitions.readable(elsewhere)[0]
    transaction.ready -= {nid}
    answer = client.ask(AskFinishTransaction(ttid, [], [oid_of(world, elsewhere)]))
    assert error_of(answer).code is ErrorCode.INCOMPLETE_TRANSACTION
    assert not first.has(AskLockInformation) and not second.has(AskLockInformation)


def test_loss_of_a_replica_during_finish_goes_on_with_the_other() -> None:
    world = MasterWorld(replicas=1)
    first, second = world.running(2)
    client = world.client()
    ttid = begin(client)
    answer = client.ask(AskFinishTransaction(ttid, [oid_of(world, 0)], []))
    lock(second)
    assert not answer.done
    first.lose()
    assert answer.done
    assert second.has(NotifyUnlockInformation)


def test_a_replica_that_hangs_during_finish_is_given_up() -> None:
    world = MasterWorld(replicas=1)
    _, second = world.running(2)
    client = world.client()
    ttid = begin(client)
    answer = client.ask(AskFinishTransaction(ttid, [oid_of(world, 0)], []))
    lock(second)
    world.shell.advance(6 * WATCH_SECONDS)
    assert not answer.done
    world.shell.advance(2 * WATCH_SECONDS)
    assert answer.done
    assert world.master.running_storages() == {2}
    assert second.has(NotifyUnlockInformation)


def test_storage_that_cannot_lock_is_disconnected() -> None:
    world = MasterWorld(replicas=1)
    first, second = world.running(2)
    client = world.client()
    answer = client.ask(AskFinishTransaction(begin(client), [oid_of(world, 0)], []))
    first.answer(first.take(AskLockInformation), Error(ErrorCode.NOT_READY.value, "disk"))
    assert first.closed and not answer.done
    lock(second)
    assert answer.done


def test_deadlock_gives_a_new_locking_tid_once(world: MasterWorld) -> None:
    """FACTS 7.14."""
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


def test_oids_continue_after_a_foreign_one(world: MasterWorld) -> None:
    (storage,) = world.running(1)
    client = world.client()
    assert client.ask(AskNewOIDs(2)).result().oid_list == [tid(1), tid(2)]
    client.ask(AskFinishTransaction(begin(client), [tid(100)], []))
    lock(storage)
    assert client.ask(AskNewOIDs(1)).result().oid_list == [tid(101)]


def test_unreasonable_number_of_oids_is_refused(world: MasterWorld) -> None:
    world.running(1)
    error = error_of(world.client().ask(AskNewOIDs(10**9)))
    assert error.code is ErrorCode.PROTOCOL_ERROR


def test_pack_is_done_when_all_storages_are(world: MasterWorld) -> None:
    """FACTS 7.11."""
    first, second = world.running(2)
    client = world.client()
    answer = client.ask(AskPack(tid(7)))
    first.answer(first.take(AskPack), AnswerPack(True))
    assert not answer.done
    assert client.ask(AskPack(tid(8))).result().status is False
    second.answer(second.take(AskPack), AnswerPack(True))
    assert answer.result().status is True


def test_a_storage_that_is_lost_during_a_pack_is_packed_later() -> None:
    world = MasterWorld(replicas=1)
    first, second = world.running(2)
    client = world.client()
    answer = client.ask(AskPack(tid(7)))
    first.answer(first.take(AskPack), AnswerPack(True))
    second.lose()
    assert answer.result() == AnswerPack(True)
    assert not world.master.packs.running


def test_stopping_waits_for_transactions_and_begins_no_other(world: MasterWorld) -> None:
    (storage,) = world.running(1)
    client = world.client()
    ttid = begin(client)
    world.admin().ask(SetClusterState(ClusterState.STOPPING)).result()
    blocked = client.ask(AskBeginTransaction(None))
    assert world.shell.exit_code is None
    answer = client.ask(AskFinishTransaction(ttid, [], []))
    lock(storage)
    assert answer.done and not blocked.done
    assert world.shell.exit_code == 0


def test_stopping_does_not_wait_for_ever(world: MasterWorld) -> None:
    world.running(1)
    begin(world.client())
    world.admin().ask(SetClusterState(ClusterState.STOPPING)).result()
    world.shell.advance(11)
    assert world.shell.exit_code == 0


def test_stopping_ends_when_what_is_being_finished_cannot_be(world: MasterWorld) -> None:
    """The storage that must lock is lost. The next start decides about the transaction."""
    (storage,) = world.running(1)
    client = world.client()
    client.ask(AskFinishTransaction(begin(client), [], []))
    world.admin().ask(SetClusterState(ClusterState.STOPPING)).result()
    assert world.shell.exit_code is None
    storage.lose()
    assert world.shell.exit_code == 0
