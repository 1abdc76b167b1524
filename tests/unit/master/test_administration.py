"""Commands of operators, and refusals (specification 17)."""

from __future__ import annotations

from typing import Any

import pytest

from neo.protocol.enums import CellState, ClusterState, ErrorCode, NodeState, NodeType
from neo.protocol.ids import parse_nid
from neo.protocol.packets import (
    AbortTransaction,
    AddPendingNodes,
    AnswerLastIDs,
    AnswerTweakPartitionTable,
    AskClusterState,
    AskLastIDs,
    AskLastTransaction,
    AskRecovery,
    CheckReplicas,
    FlushLog,
    NotifyClusterInformation,
    NotifyNodeInformation,
    NotifyPartitionChanges,
    NotifyReady,
    NotifyRepair,
    Repair,
    Request,
    SetClusterState,
    SetNodeState,
    SetNumReplicas,
    StartOperation,
    Truncate,
    TweakPartitionTable,
)
from tests.support.remote import error_of
from tests.unit.master.cluster import MasterWorld, tid
from tests.unit.master.committing import begin

DOWN, UNKNOWN, PENDING = NodeState.DOWN, NodeState.UNKNOWN, NodeState.PENDING


def ack(world: MasterWorld, message: Request[Any]) -> Any:
    return world.admin().ask(message).result()


def _state(world: MasterWorld) -> object:
    rows = [node.row() for node in world.master.nodes]
    return world.master.cluster.state, world.master.partitions.ptid, rows


def refusal(world: MasterWorld, message: Request[Any]) -> str:
    """Return the text of a refusal, which must have changed nothing and kept the connection."""
    admin = world.admin()
    before = _state(world)
    error = error_of(admin.ask(message))
    assert before == _state(world)
    assert error.code is ErrorCode.DENIED
    assert not world.admin().closed
    return error.message


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (SetClusterState(ClusterState.RECOVERING), "Invalid state requested"),
        (SetClusterState(ClusterState.VERIFYING), "Can not switch to this state"),
        (SetClusterState(ClusterState.STARTING_BACKUP), "not configured to be a backup"),
        (SetNodeState(9, DOWN), "unknown node"),
        (SetNodeState(1, DOWN), "only readable copy"),
        (SetNodeState(1, UNKNOWN), "must be stopped before removal"),
        (SetNodeState(1, PENDING), "cannot be made PENDING"),
        (SetNodeState(parse_nid("M1"), DOWN), "can not kill primary master node"),
        (AddPendingNodes([7]), "unknown node"),
        (SetNumReplicas(-1), "invalid number"),
        (SetNumReplicas(10**6), "invalid number"),
        (TweakPartitionTable(False, [7]), "unknown node"),
        (TweakPartitionTable(False, [1, 2]), "no node would be left"),
        (CheckReplicas({99: None}, tid(0), None), "no partition 99"),
        (Repair([7], True), "unknown node"),
        (Truncate(tid(2**40)), "nothing to delete"),
    ],
)
def test_refused_while_running(message: Request[Any], text: str) -> None:
    """Specification 1.11, 9.5, 9.19."""
    world = MasterWorld()
    world.running(2)
    assert text in refusal(world, message)


@pytest.mark.parametrize(
    "message",
    [
        AddPendingNodes([1]),
        SetNumReplicas(1),
        TweakPartitionTable(True, []),
        CheckReplicas({}, tid(0), None),
        Truncate(tid(0)),
    ],
)
def test_refused_while_recovering(message: Request[Any]) -> None:
    """Specification 17.11."""
    world = MasterWorld()
    world.storage(1)
    assert "must be RUNNING" in refusal(world, message)


def test_questions_about_the_cluster(world: MasterWorld) -> None:
    world.running(1)
    assert ack(world, AskClusterState()).state is ClusterState.RUNNING
    assert ack(world, AskLastIDs()) == AnswerLastIDs(bytes(8), bytes(8))
    assert ack(world, AskLastTransaction()).tid == bytes(8)
    assert ack(world, AskRecovery()).ptid == 1


def test_add_starts_the_node_first_and_then_tells_all(world: MasterWorld) -> None:
    """Specification 4.27, 17.12."""
    world.running(1)
    spare = world.join(NodeType.STORAGE, port=9102)
    spare.received.clear()
    assert ack(world, AddPendingNodes([2])).message == "Nodes added: S2"
    assert spare.names() == ["StartOperation", "NotifyNodeInformation"]
    assert ack(world, AddPendingNodes([2])).message == "No node added"


def test_added_node_must_be_ready_before_transactions_begin(world: MasterWorld) -> None:
    world.running(1)
    spare = world.join(NodeType.STORAGE, port=9102)
    ack(world, AddPendingNodes([2]))
    assert world.master.cluster.starting == {2}
    spare.take(StartOperation)
    spare.send(NotifyReady())
    assert world.master.cluster.ready == {1, 2}


def test_number_of_replicas_is_an_empty_change_of_the_table(world: MasterWorld) -> None:
    """Specification 9.4, 9.5."""
    (storage,) = world.running(1)
    ack(world, SetNumReplicas(1))
    assert storage.take(NotifyPartitionChanges) == NotifyPartitionChanges(2, 1, [])


def test_tweak_of_a_balanced_table_changes_nothing(world: MasterWorld) -> None:
    """Specification 9.25."""
    world.running(2)
    answer = ack(world, TweakPartitionTable(True, []))
    assert answer == AnswerTweakPartitionTable(False, world.master.partitions.row_list())


def test_kill_with_a_replica_disconnects_the_node() -> None:
    """Specification 17.13."""
    world = MasterWorld(replicas=1)
    first, second = world.running(2)
    ack(world, SetNodeState(1, DOWN))
    assert first.closed
    assert first.take(NotifyNodeInformation).node_list[0][3] is DOWN
    assert world.master.cluster.state is ClusterState.RUNNING
    assert second.has(NotifyPartitionChanges)


def test_drop_of_a_spare_node_tells_it_to_erase(world: MasterWorld) -> None:
    """Specification 17.14."""
    world.running(1)
    spare = world.join(NodeType.STORAGE, port=9102)
    spare.received.clear()
    assert ack(world, SetNodeState(2, UNKNOWN)).message == "node permanently removed"
    assert spare.take(NotifyNodeInformation).node_list[0][2:4] == (2, UNKNOWN)
    assert spare.closed
    assert world.master.nodes.get(2) is None


def test_drop_of_a_dead_replica_discards_its_cells() -> None:
    """Specification 9.12."""
    world = MasterWorld(replicas=1)
    first, _ = world.running(2)
    first.lose()
    ack(world, SetNodeState(1, UNKNOWN))
    assert world.master.partitions.nodes() == {2}
    assert world.master.nodes.get(1) is None


def test_the_only_copy_is_kept_when_the_node_that_it_feeds_is_dropped() -> None:
    """Otherwise it would be discarded, as if the move were over, and all data with it."""
    world = MasterWorld(replicas=1)
    first, second = world.running(2)
    second.lose()
    world.master.cluster.change_partitions([(p, 1, CellState.FEEDING) for p in range(4)], 0)
    assert world.master.partitions.rows[0] == {1: CellState.FEEDING, 2: CellState.OUT_OF_DATE}
    ack(world, SetNodeState(2, UNKNOWN))
    assert world.master.partitions.rows == [{1: CellState.UP_TO_DATE}] * 4
    assert not first.closed


def test_no_node_is_dropped_while_nobody_knows_what_it_has(world: MasterWorld) -> None:
    """It would erase its database, which may be the only one."""
    storage = world.storage(1)
    assert world.master.cluster.state is ClusterState.RECOVERING
    assert "must be RUNNING to drop a node" in refusal(world, SetNodeState(1, UNKNOWN))
    assert world.master.nodes.get(1) is not None
    assert not storage.closed


def test_repair_is_passed_to_the_named_storages(world: MasterWorld) -> None:
    """Specification 11.20."""
    first, second = world.running(2)
    answer = ack(world, Repair([2], True))
    assert answer.message == "what no object refers to is looked for on S2: see their logs"
    assert second.take(NotifyRepair).dry_run is True
    assert not first.has(NotifyRepair)


def test_a_node_without_cells_that_was_added_is_running_when_it_comes_back(
    world: MasterWorld,
) -> None:
    """Specification 3.17. With another database it is another node, which was not added."""
    world.running(1)
    storage = world.join(NodeType.STORAGE, port=9102)
    ack(world, AddPendingNodes([2]))
    storage.lose()
    assert world.master.nodes.get(2).state is DOWN  # type: ignore[union-attr]
    storage = world.join(NodeType.STORAGE, 2, port=9102)
    assert storage.take(NotifyNodeInformation).node_list[0][2:4] == (2, NodeState.RUNNING)
    world.make_ready(storage)
    storage.lose()
    storage = world.join(NodeType.STORAGE, port=9102)
    assert storage.take(NotifyNodeInformation).node_list[0][3] is PENDING
    assert not storage.has(StartOperation)


def test_flush_log_goes_to_everybody_else(world: MasterWorld) -> None:
    """Specification 17.9."""
    (storage,) = world.running(1)
    admin = world.admin()
    admin.send(FlushLog())
    assert storage.has(FlushLog) and not admin.has(FlushLog)
    assert world.host.logs_reopened == 1


def test_stopping_tells_each_storage_that_it_is_down(world: MasterWorld) -> None:
    """Specification 4.34."""
    (storage,) = world.running(1)
    ack(world, SetClusterState(ClusterState.STOPPING))
    row = storage.take(NotifyNodeInformation).node_list[0]
    assert row[2:] == (1, DOWN, None)
    assert storage.closed and world.host.exit_code == 0


def test_stopping_waits_for_no_client_that_aborts(world: MasterWorld) -> None:
    """A transaction in its first phase must be aborted by its client, which is told so."""
    (storage,) = world.running(1)
    client = world.client()
    ttid = begin(client)
    ack(world, SetClusterState(ClusterState.STOPPING))
    assert client.take(NotifyClusterInformation).state is ClusterState.STOPPING
    assert world.host.exit_code is None
    client.send(AbortTransaction(ttid, [1]))
    assert storage.take(AbortTransaction).ttid == ttid
    assert world.host.exit_code == 0


def test_stopping_is_possible_during_recovery(world: MasterWorld) -> None:
    """Specification 4.32."""
    world.storage(1)
    ack(world, SetClusterState(ClusterState.STOPPING))
    assert world.host.exit_code == 0
