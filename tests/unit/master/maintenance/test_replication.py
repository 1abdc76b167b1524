"""Messages for storage nodes that replicate (specification 10.15, 10.16)."""

from __future__ import annotations

from typing import Any

import pytest

from neo.protocol.enums import CellState, ErrorCode, NodeType
from neo.protocol.packets import (
    AbortTransaction,
    AddPendingNodes,
    AnswerUnfinishedTransactions,
    AskFinishTransaction,
    AskLockInformation,
    AskUnfinishedTransactions,
    NotifyPartitionChanges,
    NotifyReplicationDone,
    NotifyTransactionFinished,
    NotifyUnlockInformation,
    Request,
    SetNumReplicas,
    TweakPartitionTable,
)
from tests.support.remote import Remote, error_of
from tests.unit.master.cluster import FEEDING, OUT, UP, MasterWorld, tid
from tests.unit.master.committing import Replicated, begin, lock, oid_of


def ask(world: MasterWorld, message: Request[Any]) -> object:
    return world.admin().ask(message).result()


def grown(world: MasterWorld) -> tuple[Remote, Remote]:
    """Make a cluster: S1 has all data, S2 has OUT_OF_DATE copies of it."""
    (first,) = world.running(1)
    second = world.join(NodeType.STORAGE, port=9102)
    ask(world, AddPendingNodes([2]))
    world.make_ready(second)
    ask(world, SetNumReplicas(1))
    ask(world, TweakPartitionTable(False, []))
    assert first.has(NotifyPartitionChanges) and second.has(NotifyPartitionChanges)
    assert states(world) == [{1: UP, 2: OUT}] * 4
    first.received.clear()
    second.received.clear()
    return first, second


def states(world: MasterWorld) -> list[dict[int, CellState]]:
    return world.master.partitions.rows


def test_a_dry_run_shows_what_would_become_of_the_table(world: MasterWorld) -> None:
    """Specification 9.25."""
    first, _ = world.running(2)
    answer = world.admin().ask(TweakPartitionTable(True, [2])).result()
    assert answer.changed
    assert sorted(map(tuple, answer.row_list[1])) == [(1, OUT), (2, FEEDING)]
    assert not first.has(NotifyPartitionChanges)
    assert states(world)[1] == {2: UP}


def test_a_node_that_is_down_must_be_named_to_be_replaced() -> None:
    """Specification 9.19."""
    world = MasterWorld(replicas=1)
    _, second = world.running(2)
    second.lose()
    assert "S2 is down" in world.denied(TweakPartitionTable(False, []))
    ask(world, TweakPartitionTable(False, [2]))
    assert states(world) == [{1: UP}] * 4


def test_a_complete_cell_becomes_readable_for_all(world: MasterWorld) -> None:
    """Specification 9.10."""
    first, second = grown(world)
    second.ask(AskUnfinishedTransactions([0, 1, 2, 3]))
    second.send(NotifyReplicationDone(2, tid(5)))
    assert first.take(NotifyPartitionChanges).cell_list == [(2, 2, UP)]
    assert states(world)[2] == {1: UP, 2: UP}


def test_what_is_done_too_late_is_ignored(world: MasterWorld) -> None:
    """The cell was taken away and assigned again, empty, while the message was under way
    (specification 10.27)."""
    first, second = grown(world)
    second.ask(AskUnfinishedTransactions([0, 1, 2, 3]))
    ask(world, TweakPartitionTable(False, [2]))
    ask(world, TweakPartitionTable(False, []))
    first.received.clear()
    second.send(NotifyReplicationDone(2, tid(5)))
    assert not first.has(NotifyPartitionChanges)
    assert states(world)[2] == {1: UP, 2: OUT}


def test_unfinished_transactions_are_told_with_the_last_one_that_is_committed(
    world: MasterWorld,
) -> None:
    first, second = grown(world)
    client = world.client()
    done, running = begin(client), begin(client)
    client.ask(AskFinishTransaction(done, [], []))
    lock(second)
    final = lock(first).tid
    answer = second.ask(AskUnfinishedTransactions([0, 1, 2, 3])).result()
    assert answer == AnswerUnfinishedTransactions(final, [running])


def test_the_end_of_a_transaction_follows_its_unlock(world: MasterWorld) -> None:
    """Specification 7.33."""
    first, second = grown(world)
    client = world.client()
    ttid = begin(client)
    second.ask(AskUnfinishedTransactions([0, 1, 2, 3]))
    client.ask(AskFinishTransaction(ttid, [oid_of(world, 0)], []))
    final = lock(first).tid
    lock(second)
    unlocked, finished = [m for m in second.received if type(m).__name__.startswith("Notify")][-2:]
    assert unlocked == NotifyUnlockInformation(ttid)
    assert finished == NotifyTransactionFinished(ttid, final)


def test_the_end_of_an_aborted_transaction_is_told_once(world: MasterWorld) -> None:
    _, second = grown(world)
    client, other = world.client(), world.client()
    ttid, lost = begin(client), begin(other)
    second.ask(AskUnfinishedTransactions([0, 1, 2, 3]))
    client.send(AbortTransaction(ttid, []))
    assert second.take(AbortTransaction).ttid == ttid
    other.lose()
    assert second.take(AbortTransaction).ttid == lost
    assert not second.has(NotifyTransactionFinished)


def test_a_node_that_came_back_is_not_taken_for_the_one_that_has_the_data() -> None:
    """The node was ready when the transaction began, lost, and ready again: it lost the data
    (specification 7.3, 7.26)."""
    commit = Replicated()
    commit.second.lose()
    second = commit.world.back(2)
    answer = commit.finish()
    lock(commit.first)
    assert answer.done
    assert not second.has(AskLockInformation)


@pytest.mark.parametrize("ready", [False, True])
def test_a_node_that_came_meanwhile_drops_its_votes_before_it_asks_for_unfinished_transactions(
    ready: bool,
) -> None:
    """Clients may use a node before the master knows that it is ready: it may have voted by then.
    NotifyTransactionFinished is about an answer to AskUnfinishedTransactions, which was not asked
    (specification 7.34, 7.42)."""
    world = MasterWorld(replicas=1)
    first, second = world.running(2)
    client, other = world.client(), world.client()
    done, aborted, refused = begin(client), begin(client), begin(other)
    second.lose()
    second = world.back(2) if ready else world.join_storage(2)
    client.ask(AskFinishTransaction(done, [oid_of(world, 0)], []))
    lock(first)
    assert second.take(AbortTransaction).ttid == done
    assert not second.has(NotifyTransactionFinished)
    client.send(AbortTransaction(aborted, [1]))
    assert second.take(AbortTransaction).ttid == aborted
    question = other.ask(AskFinishTransaction(refused, [b"\xff" * 8], []))
    assert error_of(question).code is ErrorCode.PROTOCOL_ERROR
    assert second.take(AbortTransaction).ttid == refused


def test_a_node_that_came_meanwhile_hears_of_the_transactions_that_its_answer_listed() -> None:
    """Specification 7.33, 7.34."""
    commit = Replicated()
    listed = [commit.ttid, begin(commit.client)]
    commit.second.lose()
    second = commit.world.back(2)
    assert second.ask(AskUnfinishedTransactions([0])).result().ttid_list == listed
    commit.finish()
    final = lock(commit.first).tid
    assert second.take(NotifyTransactionFinished) == NotifyTransactionFinished(commit.ttid, final)
    assert not second.has(AbortTransaction)


def test_who_lost_its_cells_meanwhile_drops_what_it_voted() -> None:
    """Specification 7.29."""
    world = MasterWorld(replicas=1)
    first, second = world.running(2)
    client = world.client()
    ttid = begin(client)
    ask(world, SetNumReplicas(0))
    ask(world, TweakPartitionTable(False, []))
    partition = world.master.partitions.partition(ttid)
    (owner,) = states(world)[partition]
    kept, left = (first, second) if owner == 1 else (second, first)
    first.received.clear()
    second.received.clear()
    client.ask(AskFinishTransaction(ttid, [oid_of(world, partition)], []))
    assert left.take(AbortTransaction).ttid == ttid
    lock(kept)
    assert kept.has(NotifyUnlockInformation)


def test_a_partition_that_the_table_has_not_is_the_storages_error(world: MasterWorld) -> None:
    storages = world.running(2)
    storages[0].send(AskUnfinishedTransactions([0, 2**31]))
    assert storages[0].closed
    assert storages[0].complaint == "the peer says: there are 4 partitions, not 2147483648"
    assert not world.master.replication.asked(0, 1)
    storages[1].send(NotifyReplicationDone(2**31, tid(1)))
    assert not storages[1].closed, "what was not asked is ignored"
