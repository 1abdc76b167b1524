"""Replication, and commands of operators, while a transaction is prepared (specification 24.24
to 24.29)."""

from __future__ import annotations

import pytest

from neo.master.commit import prepared as registry
from neo.protocol.enums import CellState, ClusterState
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    AbortTransaction,
    AnswerLocks,
    AskFinishPrepared,
    AskJoinPrepared,
    AskLockInformation,
    AskLocks,
    AskPack,
    AskPrepared,
    AskTransactions,
    AskUnfinishedTransactions,
    ForgetPrepared,
    NotifyNodeInformation,
    NotifyPrepared,
    NotifyReplicationDone,
    NotifyTransactionFinished,
    NotifyUnlockInformation,
    SetClusterState,
    Truncate,
)
from tests.support.remote import Remote, error_of
from tests.unit.master.backup_world import BackupWorld
from tests.unit.master.cluster import UP, MasterWorld, tid
from tests.unit.master.committing import begin, lock, oid_of
from tests.unit.master.prepared_world import (
    XID,
    PreparedWorld,
    ask_prepare,
    decide,
    mark,
    prepared,
    refusal,
    remember,
    states,
)


@pytest.fixture
def world() -> PreparedWorld:
    return PreparedWorld()


def back(world: PreparedWorld, features: tuple[str, ...] = (FEATURE_OURS,)) -> Remote:
    """Lose S2, and let it come back, ready and out of date."""
    world.storages[1].lose()
    world.confirm(world.storages[0])
    world.extra = {FEATURES: list(features)}
    return world.back(2)


def unfinished(storage: Remote) -> list[bytes]:
    ttids: list[bytes] = storage.ask(AskUnfinishedTransactions([0, 1, 2, 3])).result().ttid_list
    return ttids


# -- replication -----------------------------------------------------------------------------------


def test_a_node_that_replicates_is_told_what_is_prepared(world: PreparedWorld) -> None:
    """Specification 24.24."""
    client = world.client()
    ttid, other = prepared(world, client), begin(client)
    second = back(world)
    assert set(unfinished(second)) == {ttid, other}
    answer, told = (type(message).__name__ for message in second.received[-2:])
    assert (answer, told) == ("AnswerUnfinishedTransactions", "NotifyPrepared")
    assert second.take(NotifyPrepared).ttid_list == [ttid]


def test_a_node_that_waits_is_told_when_a_transaction_becomes_prepared(
    world: PreparedWorld,
) -> None:
    """Specification 24.24."""
    client = world.client()
    ttid = begin(client)
    second = back(world)
    assert unfinished(second) == [ttid] and not second.has(NotifyPrepared)
    ask_prepare(client, ttid, [oid_of(world, 0)])
    assert not second.has(NotifyPrepared)
    mark(world.storages[0])
    world.confirm(world.storages[0])
    assert second.take(NotifyPrepared).ttid_list == [ttid]


def test_a_node_without_the_feature_waits_for_the_end(world: PreparedWorld) -> None:
    """Specification 24.28."""
    ttid = prepared(world, world.client())
    second = back(world, ())
    assert unfinished(second) == [ttid] and not second.has(NotifyPrepared)
    decide(world.client(), True)
    lock(world.storages[0])
    world.confirm(world.storages[0])
    assert second.take(NotifyTransactionFinished).ttid == ttid


def test_a_node_that_has_fetched_the_rows_takes_part(world: PreparedWorld) -> None:
    """Specification 24.26."""
    ttid = prepared(world, world.client())
    second = back(world)
    unfinished(second)
    joined = second.ask(AskJoinPrepared(0, [ttid, tid(3)])).result()
    assert joined.ttid_list == [ttid]
    second.send(NotifyReplicationDone(0, tid(5)))
    assert world.master.partitions.rows[0][2] is UP
    world.confirm(world.storages[0], second)
    answer = decide(world.client(), True)
    final = lock(world.storages[0]).tid
    assert not answer.done
    assert lock(second).tid == final
    assert answer.result().tid == final
    assert second.has(NotifyUnlockInformation) and not second.has(AbortTransaction)


def test_a_cell_in_which_the_transaction_has_nothing_does_not_wait(world: PreparedWorld) -> None:
    """Specification 24.26: the node has no rows to lock."""
    ttid = prepared(world, world.client())
    second = back(world)
    unfinished(second)
    (transaction,) = world.master.coordinator.transactions.all()
    assert transaction.mark is not None
    elsewhere = min({0, 1, 2, 3} - transaction.mark.partitions)
    assert second.ask(AskJoinPrepared(elsewhere, [ttid])).result().ttid_list == [ttid]
    assert transaction.nodes == {1}


@pytest.mark.parametrize("commits", [True, False])
def test_who_comes_after_the_decision_hears_of_the_end(world: PreparedWorld, commits: bool) -> None:
    """Specification 24.27."""
    ttid = prepared(world, world.client())
    second = back(world)
    unfinished(second)
    answer = decide(world.client(), commits)
    assert second.ask(AskJoinPrepared(0, [ttid])).result().ttid_list == []
    assert not second.has(AskLockInformation)
    if commits:
        lock(world.storages[0])
        world.confirm(world.storages[0], second)
        assert second.take(NotifyTransactionFinished).ttid == ttid
    else:
        remember(world.storages[0])
        remember(second)
        assert second.take(AbortTransaction).ttid == ttid
    assert answer.done


def test_a_node_that_joined_and_is_lost_is_not_waited_for(world: PreparedWorld) -> None:
    """Specification 24.11."""
    ttid = prepared(world, world.client())
    second = back(world)
    unfinished(second)
    second.ask(AskJoinPrepared(0, [ttid])).result()
    second.lose()
    answer = decide(world.client(), True)
    lock(world.storages[0])
    world.confirm(world.storages[0])
    assert answer.done


def test_a_node_that_has_no_cell_of_it_any_more_is_not_asked_to_lock(world: PreparedWorld) -> None:
    """Specification 24.11: it takes no part, whether it has dropped the rows or not."""
    ttid = prepared(world, world.client())
    first, second = world.storages
    changes = [(partition, 2, CellState.DISCARDED) for partition in range(4)]
    world.master.cluster.change_partitions(changes)
    world.master.flush()
    world.confirm(first, second)
    answer = decide(world.client(), True)
    lock(first)
    assert answer.done
    assert second.take(AbortTransaction).ttid == ttid and not second.has(AskLockInformation)


def test_a_partition_that_the_table_has_not_is_the_storages_error(world: PreparedWorld) -> None:
    world.storages[0].send(AskJoinPrepared(4, []))
    assert world.storages[0].complaint == "the peer says: there are 4 partitions, not 4"


# -- commands --------------------------------------------------------------------------------------


def test_the_history_is_not_truncated_under_a_prepared_transaction(world: PreparedWorld) -> None:
    """Specification 24.29, also while one is being prepared."""
    client = world.client()
    world.master.cluster.last_tid = tid(100)
    ask_prepare(client, begin(client), [oid_of(world, 0)])
    text = "DENIED: transactions are prepared: commit them or roll them back first: order-7"
    assert refusal(world.admin().ask(Truncate(tid(50)))) == text
    for storage in world.storages:
        mark(storage)
    assert refusal(world.admin().ask(Truncate(tid(50)))) == text
    assert world.master.cluster.state is ClusterState.RUNNING
    decide(client, False)
    for storage in world.storages:
        remember(storage)
    world.admin().ask(Truncate(tid(50)))
    assert world.master.cluster.state is ClusterState.RECOVERING


def test_a_refusal_names_some_xids(world: PreparedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "NAMED_MAX", 2)
    client = world.client()
    for xid in (b"a", b"b", b"c", b"d"):
        prepared(world, client, xid)
    text = world.master.coordinator.prepared.obstacle()
    assert text is not None and text.endswith("first: a, b and 2 more")


class Configured(PreparedWorld, BackupWorld):
    """A cluster that could become a backup, and whose nodes keep prepared transactions."""

    extra = {FEATURES: [FEATURE_OURS]}


def test_a_cluster_does_not_become_a_backup_while_something_is_prepared() -> None:
    """Specification 24.29."""
    world = Configured()
    client = world.client()
    prepared(world, client)
    client.lose()
    start = SetClusterState(ClusterState.STARTING_BACKUP)
    assert "are prepared: commit them or roll them back first: order-7" in refusal(
        world.admin().ask(start)
    )
    decide(world.admin(), False)
    for storage in world.storages:
        remember(storage)
    world.admin().ask(start)
    assert world.master.cluster.state is ClusterState.STARTING_BACKUP
    assert states(world) == [(XID, "rolled back")]
    assert "must be RUNNING" in refusal(decide(world.admin(), False))


def test_clients_of_a_backup_read_that_nothing_is_prepared() -> None:
    """Specification 24.31."""
    world = BackupWorld(replicas=1)
    world.backingup(2, 100)
    reader = world.client()
    assert reader.ask(AskPrepared(9, None)).result().row_list == []
    for question in (AskFinishPrepared(XID, True), ForgetPrepared(XID)):
        assert refusal(reader.ask(question)).startswith("READ_ONLY_ACCESS")


def stop(world: MasterWorld) -> None:
    world.admin().ask(SetClusterState(ClusterState.STOPPING)).result()


def test_the_cluster_stops_and_says_how_many_remain(
    world: PreparedWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 24.29."""
    prepared(world, world.client())
    stop(world)
    assert "1 prepared transactions remain for the next start" in caplog.text
    assert world.host.exit_code == 0 and world.storages[0].has(NotifyNodeInformation)


@pytest.mark.parametrize("commits", [True, False, None])
def test_the_cluster_does_not_stop_in_the_middle_of_a_decision(
    world: PreparedWorld, commits: bool | None
) -> None:
    """Specification 24.29. None: in the middle of a prepare."""
    client = world.client()
    if commits is None:
        answer = ask_prepare(client, begin(client), [oid_of(world, 0)])
    else:
        prepared(world, client)
        answer = decide(client, commits)
    stop(world)
    for storage in world.storages:
        assert world.host.exit_code is None and not answer.done
        {True: lock, False: remember, None: mark}[commits](storage)
    assert answer.done and world.host.exit_code == 0


def test_the_list_of_open_transactions_shows_it(world: PreparedWorld) -> None:
    """Specification 24.29."""
    client = world.client()
    ttid = prepared(world, client)
    assert client.peer.node is not None
    nid = client.peer.node.nid
    client.lose()
    for storage in world.storages:
        assert storage.peer.node is not None
        storage.peer.node.features |= {FEATURE_OURS}
    world.host.advance(7.0)
    answer = world.admin().ask(AskTransactions())
    for storage in world.storages:
        storage.answer(storage.take(AskLocks), AnswerLocks([(ttid, -1, "voted", [tid(9)], 6.0)]))
    assert answer.result().row_list == [(ttid, nid, None, 7.0, "prepared", 1, 6.0)]


def test_a_pack_goes_on_while_something_is_prepared(world: PreparedWorld) -> None:
    """Specification 24.8: what a storage node keeps, it knows."""
    prepared(world, world.client())
    world.client().ask(AskPack(tid(50)))
    assert all(storage.has(AskPack) for storage in world.storages)


def test_outcomes_are_listed_for_operators_where_data_is_served(world: PreparedWorld) -> None:
    for storage in world.storages:
        storage.lose()
    text = error_of(world.admin().ask(AskPrepared(1, None))).message
    assert "must be RUNNING to list prepared transactions" in text
