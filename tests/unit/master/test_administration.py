"""Commands of operators, and refusals (specification 17)."""

from __future__ import annotations

from typing import Any

from neo.protocol.enums import ClusterState, NodeState, NodeType
from neo.protocol.packets import (
    AbortTransaction,
    AddPendingNodes,
    AnswerTweakPartitionTable,
    FlushLog,
    NotifyClusterInformation,
    NotifyNodeInformation,
    NotifyPartitionChanges,
    NotifyRepair,
    Repair,
    Request,
    SetClusterState,
    SetNodeState,
    StartOperation,
    TweakPartitionTable,
)
from tests.unit.master.cluster import FEEDING, OUT, UP, MasterWorld
from tests.unit.master.committing import begin

DOWN, UNKNOWN, PENDING = NodeState.DOWN, NodeState.UNKNOWN, NodeState.PENDING


def ack(world: MasterWorld, message: Request[Any]) -> Any:
    return world.admin().ask(message).result()


def test_add_starts_the_node_first_and_then_tells_all(world: MasterWorld) -> None:
    """Specification 4.27, 17.12."""
    world.running(1)
    spare = world.join(NodeType.STORAGE, port=9102)
    spare.received.clear()
    assert ack(world, AddPendingNodes([2])).message == "Nodes added: S2"
    assert spare.names() == ["StartOperation", "NotifyNodeInformation"]
    assert ack(world, AddPendingNodes([2])).message == "No node added"


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


def test_the_only_copy_is_kept_when_the_node_that_it_feeds_is_dropped() -> None:
    """Otherwise it would be discarded, as if the move were over, and all data with it."""
    world = MasterWorld(replicas=1)
    first, second = world.running(2)
    second.lose()
    world.master.cluster.change_partitions([(p, 1, FEEDING) for p in range(4)], 0)
    assert world.master.partitions.rows[0] == {1: FEEDING, 2: OUT}
    ack(world, SetNodeState(2, UNKNOWN))
    assert world.master.partitions.rows == [{1: UP}] * 4
    assert not first.closed


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
    storage = world.join_storage(2)
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
