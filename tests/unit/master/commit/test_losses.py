"""Clients and storage nodes that are lost, hang or refuse in the middle of a commit."""

from __future__ import annotations

import pytest

from neo.node.core import WATCH_SECONDS
from neo.protocol.enums import ClusterState, ErrorCode
from neo.protocol.ids import MAX_TID
from neo.protocol.packets import (
    AbortTransaction,
    AskFinalTID,
    AskFinishTransaction,
    AskLockInformation,
    Error,
    FailedVote,
    InvalidateObjects,
    NotifyUnlockInformation,
)
from tests.support.remote import error_of
from tests.unit.master.cluster import MasterWorld
from tests.unit.master.committing import Replicated, begin, lock, oid_of


def test_client_lost_before_finish_is_forgotten(world: MasterWorld) -> None:
    """Specification 7.46."""
    world.running(1)
    client = world.client()
    begin(client)
    client.lose()
    assert len(world.master.coordinator.transactions) == 0


def test_client_lost_during_finish_is_committed(world: MasterWorld) -> None:
    """Specification 7.33, 7.38."""
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
    """Specification 7.38."""
    world.running(1)
    client = world.client()
    ttid = begin(client)
    assert client.ask(AskFinalTID(MAX_TID)).result().tid is None
    client.send(AbortTransaction(ttid, []))
    assert client.ask(AskFinalTID(ttid)).result().tid == MAX_TID


def test_finish_that_comes_after_its_client_was_told_that_nothing_is_committed_is_refused(
    world: MasterWorld,
) -> None:
    """The request is under way on a connection that the client has replaced by another one
    (specification 7.38)."""
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
    """Specification 7.27."""
    first, second = world.running(2)
    client = world.client()
    ttid = begin(client)
    world.master.cluster.ready.discard(1)
    world.master.cluster.ready.discard(2)
    error = error_of(client.ask(AskFinishTransaction(ttid, [oid_of(world, 0)], [])))
    assert error.code is ErrorCode.INCOMPLETE_TRANSACTION
    assert len(world.master.coordinator.transactions) == 0


def test_failed_vote_without_replica_is_incomplete(world: MasterWorld) -> None:
    """Specification 7.23."""
    world.running(2)
    client = world.client()
    error = error_of(client.ask(FailedVote(begin(client), [1])))
    assert error.code is ErrorCode.INCOMPLETE_TRANSACTION


def test_failed_vote_with_replica_disconnects_at_finish() -> None:
    """Specification 7.23, 7.28."""
    commit = Replicated()
    commit.client.ask(FailedVote(commit.ttid, [1])).result()
    assert not commit.first.closed
    answer = commit.finish()
    assert commit.first.closed and not commit.first.has(AskLockInformation)
    lock(commit.second)
    assert answer.done
    assert commit.world.master.cluster.state is ClusterState.RUNNING


class Votes:
    """S1 may fail for the first transaction; the second one wants to fail S2."""

    def __init__(self) -> None:
        self.world = MasterWorld(replicas=1)
        self.storages = self.world.running(2)
        self.first, self.other = self.world.client(), self.world.client()
        self.ttids = begin(self.first), begin(self.other)
        self.first.ask(FailedVote(self.ttids[0], [1])).result()
        self.waiting = self.other.ask(FailedVote(self.ttids[1], [2]))
        assert not self.waiting.done


@pytest.mark.parametrize("how", ["it aborts", "its client is lost"])
def test_a_failed_vote_waits_for_one_that_excludes_it_and_is_accepted_without_that(
    how: str,
) -> None:
    """Specification 7.24."""
    votes = Votes()
    if how == "it aborts":
        votes.first.send(AbortTransaction(votes.ttids[0], []))
    else:
        votes.first.lose()
    assert votes.waiting.result().code == ErrorCode.ACK.value
    oids = [oid_of(votes.world, 0)]
    answer = votes.other.ask(AskFinishTransaction(votes.ttids[1], oids, []))
    assert votes.storages[1].closed
    lock(votes.storages[0])
    assert answer.done


@pytest.mark.parametrize(
    "how", ["the first one finishes", "the node left is lost", "its own transaction ends"]
)
def test_a_failed_vote_that_waits_is_refused_when_it_cannot_be_accepted_any_more(how: str) -> None:
    """Specification 7.23, 7.24."""
    votes = Votes()
    if how == "the first one finishes":
        oids = [oid_of(votes.world, 0)]
        votes.first.ask(AskFinishTransaction(votes.ttids[0], oids, []))
        lock(votes.storages[1])
    elif how == "the node left is lost":
        votes.storages[0].lose()
    else:
        votes.other.send(AbortTransaction(votes.ttids[1], []))
    assert error_of(votes.waiting).code is ErrorCode.INCOMPLETE_TRANSACTION
    assert votes.world.master.cluster.state is ClusterState.RUNNING


def test_a_failed_vote_is_looked_at_again_at_the_end() -> None:
    """The node that was to stay was lost between vote and finish (specification 7.27)."""
    world = MasterWorld(replicas=2)
    _, second, third = world.running(3)
    client = world.client()
    ttid = begin(client)
    client.ask(FailedVote(ttid, [1, 2])).result()
    third.lose()
    answer = client.ask(AskFinishTransaction(ttid, [oid_of(world, 0)], []))
    assert error_of(answer).code is ErrorCode.INCOMPLETE_TRANSACTION
    assert not second.closed
    assert world.master.cluster.state is ClusterState.RUNNING


def test_a_node_that_came_after_the_beginning_is_not_disconnected() -> None:
    """The node need not have all of the transaction: replication copies it
    (specification 3.22, 7.3, 7.28)."""
    world = MasterWorld(replicas=1)
    first, second = world.running(2)
    client = world.client()
    second.lose()
    ttid = begin(client)
    rows = world.master.partitions.row_list()
    second = world.back(2)
    assert rows == world.master.partitions.row_list()
    client.ask(FailedVote(ttid, [2])).result()
    answer = client.ask(AskFinishTransaction(ttid, [oid_of(world, 0)], []))
    assert not second.closed and not second.has(AskLockInformation)
    lock(first)
    assert answer.done


def test_a_check_must_have_been_kept_by_a_node_that_is_still_there() -> None:
    """Otherwise other transactions may have changed the object meanwhile (specification 7.25, 7.27)."""
    world = MasterWorld()
    first, second = world.running(2)
    client = world.client()
    ttid = begin(client)
    partition = world.master.partitions.partition(ttid)
    elsewhere = next(p for p in range(4) if (p - partition) % 2)
    transaction = world.master.coordinator.transactions.get(ttid)
    assert transaction is not None
    nid = world.master.partitions.readable(elsewhere)[0]
    transaction.ready -= {nid}
    answer = client.ask(AskFinishTransaction(ttid, [], [oid_of(world, elsewhere)]))
    assert error_of(answer).code is ErrorCode.INCOMPLETE_TRANSACTION
    assert not first.has(AskLockInformation) and not second.has(AskLockInformation)


def test_loss_of_a_replica_during_finish_goes_on_with_the_other() -> None:
    """Specification 7.32, 7.36, 7.47."""
    commit = Replicated()
    answer = commit.finish()
    lock(commit.second)
    assert not answer.done
    commit.first.lose()
    assert answer.done
    assert commit.second.has(NotifyUnlockInformation)


def test_a_replica_that_hangs_during_finish_is_given_up() -> None:
    commit = Replicated()
    answer = commit.finish()
    lock(commit.second)
    commit.world.host.advance(6 * WATCH_SECONDS)
    assert not answer.done
    commit.world.host.advance(2 * WATCH_SECONDS)
    assert answer.done
    assert commit.world.master.cluster.running_storages() == {2}
    assert commit.second.has(NotifyUnlockInformation)


def test_storage_that_cannot_lock_is_disconnected() -> None:
    """Specification 7.31."""
    commit = Replicated()
    first, answer = commit.first, commit.finish()
    first.answer(first.take(AskLockInformation), Error(ErrorCode.NOT_READY.value, "disk"))
    assert first.closed and not answer.done
    lock(commit.second)
    assert answer.done
