"""Backup mode of a master: enter it, follow the upstream cluster, leave it."""

from __future__ import annotations

from typing import Any

import pytest

from neo.master.following.backup import UNFIT_SECONDS
from neo.master.following.orders import ORDER_SECONDS
from neo.protocol.enums import CellState, ClusterState, ErrorCode, NodeState, NodeType
from neo.protocol.ids import MAX_TID, ZERO_TID
from neo.protocol.packets import (
    AcceptIdentification,
    AnswerRecovery,
    AskBeginTransaction,
    AskFinalTID,
    AskFinishTransaction,
    AskLastIDs,
    AskLastTransaction,
    AskNewOIDs,
    AskPack,
    AskRecovery,
    AskTransactionInformation,
    Error,
    FailedVote,
    InvalidateObjects,
    NotifyPartitionChanges,
    NotifyUpstreamAdmin,
    Replicate,
    Request,
    RequestIdentification,
    SetClusterState,
    SetNodeState,
    StartOperation,
    StopOperation,
    Truncate,
)
from neo.topology.masters import RETRY_SECONDS
from tests.support.remote import error_of
from tests.unit.master.backup_world import (
    OTHER,
    OUT,
    SOURCE,
    UP,
    UP_C1,
    BackupWorld,
    complete,
    durable,
    fetched,
)
from tests.unit.master.cluster import spread, tid


@pytest.fixture
def world() -> BackupWorld:
    return BackupWorld()


# -- enter backup mode ---------------------------------------------------------------------------


def test_becomes_a_backup_when_all_storages_know_it_durably(world: BackupWorld) -> None:
    """Specification 13.2, 13.4, 13.5."""
    storages = world.starting(2)
    world.upstream(0)
    for storage in storages:
        assert storage.take(StartOperation) == StartOperation(True)
        order = storage.take(Replicate)
        assert order.upstream_name == "" and set(order.source_dict.values()) == {None}
    durable(storages[0], 0)
    assert world.master.cluster.state is ClusterState.STARTING_BACKUP
    durable(storages[1], 0)
    assert world.master.cluster.state is ClusterState.BACKINGUP


def test_the_begin_is_answered_when_all_storages_know_it_durably(world: BackupWorld) -> None:
    """Specification 13.33: the end of this master would leave it RUNNING."""
    first, second = world.running(2)
    answer = world.admin().ask(SetClusterState(ClusterState.STARTING_BACKUP))
    durable(first, 0)
    assert not answer.done
    durable(second, 0)
    assert answer.result().message == "Cluster state changed"
    assert world.master.cluster.state is ClusterState.STARTING_BACKUP, "its upstream is not reached yet"


def test_the_begin_is_not_answered_as_done_when_the_node_that_should_know_it_is_lost(
    world: BackupWorld,
) -> None:
    """Specification 13.33."""
    (storage,) = world.running(1)
    answer = world.admin().ask(SetClusterState(ClusterState.STARTING_BACKUP))
    storage.lose()
    assert world.master.cluster.state is ClusterState.RECOVERING
    assert error_of(answer).code is ErrorCode.NOT_READY


def test_a_lost_node_does_not_need_to_know_it_when_no_next_master_would_believe_it() -> None:
    """Specification 13.33: its cells are out of date in the partition table that the other one has."""
    world = BackupWorld(replicas=1)
    first, second = world.running(2)
    answer = world.admin().ask(SetClusterState(ClusterState.STARTING_BACKUP))
    durable(first, 0)
    second.lose()
    assert not answer.done
    complete(0, first, ptid=2)
    assert answer.result().message == "Cluster state changed"


def test_nodes_of_other_implementations_are_believed(world: BackupWorld) -> None:
    """Specification 13.19."""
    world.extra = {}
    (storage,) = world.starting()
    world.upstream(0)
    assert world.master.cluster.state is ClusterState.BACKINGUP and not storage.has(AskRecovery)


def test_clients_must_be_stopped_before(world: BackupWorld) -> None:
    """Specification 13.1."""
    world.running(1)
    client = world.client()
    assert "clients are connected" in world.denied(SetClusterState(ClusterState.STARTING_BACKUP))
    client.lose()
    world.admin().ask(SetClusterState(ClusterState.STARTING_BACKUP))
    assert world.master.cluster.state is ClusterState.STARTING_BACKUP


def test_another_number_of_partitions_is_refused(world: BackupWorld) -> None:
    """Specification 13.6, 13.7."""
    world.starting()
    upstream = world.upstream(0, rows=spread(1, partitions=3))
    assert upstream.closed and world.master.cluster.state is ClusterState.STARTING_BACKUP
    world.host.advance(UNFIT_SECONDS)
    assert len(world.host.dialed) == 2


# -- follow --------------------------------------------------------------------------------------


def test_fetches_everything_after_it_joined(world: BackupWorld) -> None:
    (storage,) = world.starting()
    world.upstream(20)
    storage.take(Replicate)
    durable(storage, 0)
    order = storage.take(Replicate)
    assert order == Replicate(tid(20), "up", {0: SOURCE, 1: OTHER, 2: SOURCE, 3: OTHER})


def test_fetches_what_a_transaction_touched_and_tells_the_rest(world: BackupWorld) -> None:
    """Specification 13.12, 13.13."""
    upstream, (storage,) = world.backingup()
    upstream.send(InvalidateObjects(tid(21), [tid(2)]))  # partitions 1 and 2 of 4
    nothing, some = storage.take(Replicate), storage.take(Replicate)
    if nothing.upstream_name:
        nothing, some = some, nothing
    assert nothing == Replicate(tid(21), "", {0: None, 3: None})
    assert some == Replicate(tid(21), "up", {1: OTHER, 2: SOURCE})


def test_readers_hear_of_a_transaction_when_all_of_it_is_durable(world: BackupWorld) -> None:
    """Specification 13.19, 13.24, 13.26, 13.27."""
    upstream, (storage,) = world.backingup()
    reader = world.client()
    upstream.send(InvalidateObjects(tid(21), [tid(2)]))
    fetched(storage, 21, 1, 2)
    assert not reader.has(InvalidateObjects)
    assert reader.ask(AskLastTransaction()).result().tid == ZERO_TID
    durable(storage, 0)  # asked before it was done
    durable(storage, 21)
    assert reader.take(InvalidateObjects) == InvalidateObjects(tid(21), [tid(2)])
    assert reader.ask(AskLastTransaction()).result().tid == tid(21)


def test_a_node_that_was_held_back_by_a_cell_that_it_loses_is_asked_again() -> None:
    """The answer is about all cells of the node; without it, the node reports nothing before the next
    commit."""
    world = BackupWorld(replicas=1)
    upstream, (first, second) = world.backingup(2)
    reader = world.client()
    upstream.send(InvalidateObjects(tid(21), [tid(2)]))  # partitions 1 and 2
    fetched(first, 21, 1)
    complete(0, first)
    fetched(second, 21, 1, 2)
    complete(21, second)
    assert not reader.has(InvalidateObjects)
    world.master.cluster.change_partitions([(2, 1, CellState.DISCARDED)])
    world.master.flush()
    complete(21, first, ptid=2)
    assert reader.take(InvalidateObjects) == InvalidateObjects(tid(21), [tid(2)])


class Logged:
    """The log of several masters, in which each table is at once."""

    waits = False

    def log_table(self, ptid: int, nodes: set[int]) -> None:
        pass


def test_readers_see_nothing_by_a_table_that_no_storage_node_could_prove() -> None:
    """S2 is behind and lost. If S1 is lost before it has this table on its disk, and both come back, the
    log of the masters waits for no other node, and S2 can be read again (decision 6)
    (specification 9.15, 13.25)."""
    world = BackupWorld(replicas=1)
    upstream, (first, second) = world.backingup(2)
    world.master.cluster._log = Logged()
    reader = world.client()
    upstream.send(InvalidateObjects(tid(21), [tid(2)]))  # partitions 1 and 2
    fetched(first, 21, 1, 2)
    complete(21, first)
    second.lose()
    assert world.master.partitions.ptid == 2
    assert not reader.has(InvalidateObjects)
    durable(first, 21)
    assert not reader.has(InvalidateObjects)
    world.master.cluster.change_partitions([], replicas=0)
    world.master.flush()
    durable(first, 21, ptid=3)
    assert reader.take(InvalidateObjects) == InvalidateObjects(tid(21), [tid(2)])


def test_readers_join_again_when_it_is_not_known_what_changed(world: BackupWorld) -> None:
    """Specification 13.26."""
    upstream, (storage,) = world.backingup()
    reader = world.client()
    upstream.lose()
    world.host.advance(RETRY_SECONDS)
    world.upstream(30)
    fetched(storage, 30, 0, 1, 2)
    assert not reader.closed
    fetched(storage, 30, 3)
    assert reader.closed


def test_readers_cannot_write(world: BackupWorld) -> None:
    """Nor go on with a transaction of before: its client asks storage nodes for the outcome
    (specification 13.27)."""
    world.backingup()
    reader = world.client()
    questions: list[Request[Any]] = [
        AskBeginTransaction(None),
        AskNewOIDs(1),
        AskPack(tid(1)),
        FailedVote(tid(1), [1]),
        AskFinishTransaction(tid(1), [tid(2)], []),
    ]
    for question in questions:
        assert error_of(reader.ask(question)).code is ErrorCode.READ_ONLY_ACCESS
    assert reader.ask(AskFinalTID(tid(1))).result().tid == MAX_TID


def test_the_loss_of_upstream_ends_no_service(world: BackupWorld) -> None:
    """Specification 13.8."""
    upstream, _ = world.backingup()
    reader = world.client()
    upstream.send(StopOperation())
    assert upstream.closed and not reader.closed
    assert world.master.cluster.state is ClusterState.BACKINGUP


def test_a_source_that_is_out_of_date_is_replaced(world: BackupWorld) -> None:
    (storage,) = world.starting()
    upstream = world.upstream(20, rows=[[(1, UP), (2, UP)]] * 4)
    storage.take(Replicate)
    durable(storage, 0)
    order = storage.take(Replicate)
    bad = order.source_dict[0]
    nid = 1 if bad == SOURCE else 2
    upstream.send(NotifyPartitionChanges(2, 0, [(p, nid, OUT) for p in range(4)]))
    again = storage.take(Replicate)
    assert again.source_dict and bad not in again.source_dict.values()


def test_an_order_that_takes_long_is_given_again(world: BackupWorld) -> None:
    """Specification 13.15."""
    upstream, (storage,) = world.backingup()
    upstream.send(InvalidateObjects(tid(21), [tid(1)]))
    storage.received.clear()
    world.host.advance(2 * ORDER_SECONDS)
    assert storage.take(Replicate).source_dict == {1: OTHER}


def test_an_upstream_without_our_last_transaction_is_not_followed(world: BackupWorld) -> None:
    """Specification 13.7."""
    upstream, (storage,) = world.backingup()
    upstream.send(InvalidateObjects(tid(21), [tid(1)]))
    storage.received.clear()
    upstream.lose()
    world.host.advance(RETRY_SECONDS)
    again = world.upstream(30)
    question = world.host.dialed[-1]
    asked = question.take(RequestIdentification)
    assert asked.nid == UP_C1 and asked.id_timestamp == 6.0
    question.answer(asked, AcceptIdentification(NodeType.STORAGE, 2, UP_C1))
    information = question.take(AskTransactionInformation)
    assert information.tid == tid(21)
    question.answer(information, Error(ErrorCode.TID_NOT_FOUND.value, ""))
    assert again.closed and not storage.has(Replicate)


def test_an_upstream_that_is_behind_is_not_followed(world: BackupWorld) -> None:
    """Specification 13.7."""
    upstream, (storage,) = world.backingup()
    upstream.send(InvalidateObjects(tid(21), [tid(1)]))
    upstream.lose()
    world.host.advance(RETRY_SECONDS)
    assert world.upstream(20).closed


def test_admins_hear_where_the_one_of_the_upstream_is(world: BackupWorld) -> None:
    """Specification 17.22."""
    admin = world.admin()
    (storage,) = world.starting()
    world.upstream(0, admin=("127.0.0.1", 7200))
    assert admin.take(NotifyUpstreamAdmin) == NotifyUpstreamAdmin(("127.0.0.1", 7200))
    durable(storage, 0)
    assert admin.ask(AskRecovery()).result().backup_tid == ZERO_TID


# -- leave standby mode ---------------------------------------------------------------------------


def test_is_truncated_to_whole_transactions_and_runs(
    world: BackupWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 13.28."""
    upstream, (storage,) = world.backingup()
    upstream.send(InvalidateObjects(tid(21), [tid(2)]))
    fetched(storage, 21, 1, 2)
    complete(21, storage)
    upstream.send(InvalidateObjects(tid(25), [tid(2)]))
    fetched(storage, 25, 1)  # the object of it is missing
    storage.received.clear()
    answer = world.admin().ask(SetClusterState(ClusterState.STOPPING_BACKUP))
    assert upstream.closed and world.master.cluster.state is ClusterState.RECOVERING
    storage.take(StopOperation)
    world.remember(storage, 7, spread(1))
    assert storage.take(Truncate) == Truncate(tid(21))
    assert not answer.done, "the end of this master would leave it a backup"
    storage.answer(storage.take(AskRecovery), AnswerRecovery(7, None, tid(21)))
    assert answer.result().message == "Cluster state changed"
    world.verify(storage, ltid=tid(21))
    assert world.master.cluster.state is ClusterState.RUNNING
    assert world.admin().ask(AskLastIDs()).result().ltid == tid(21)
    assert "standby mode ends at transaction 0000000000000015" in caplog.text
    assert all(record.levelname != "ERROR" for record in caplog.records)


def test_does_not_take_over_while_a_node_with_cells_is_away() -> None:
    """The others would delete what it comes back with (specification 13.28)."""
    world = BackupWorld(replicas=1)
    _, storages = world.backingup(2)
    storages[1].lose()
    stopping = SetClusterState(ClusterState.STOPPING_BACKUP)
    text = "S2 must run, or be dropped: what is deleted would come back with it"
    assert world.denied(stopping) == text
    assert world.master.cluster.state is ClusterState.BACKINGUP
    assert world.master.cluster.truncate_tid is None
    assert not storages[0].has(StopOperation)
    world.admin().ask(SetNodeState(2, NodeState.UNKNOWN)).result()
    world.admin().ask(stopping)
    assert world.master.cluster.state is ClusterState.RECOVERING


def test_a_backup_that_recovers_is_not_said_to_be_none(world: BackupWorld) -> None:
    _, (storage,) = world.backingup()
    storage.lose()
    assert world.denied(SetClusterState(ClusterState.STOPPING_BACKUP)) == (
        "the cluster must be STARTING_BACKUP or BACKINGUP to leave standby mode, it is RECOVERING"
    )
