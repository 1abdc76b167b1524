"""Commands and questions of operators (specification 17). Refusals are in ``test_bad_commands``."""

from __future__ import annotations

from typing import Any

from neo.protocol.enums import ClusterState, NodeState, NodeType
from neo.protocol.ids import ZERO_TID
from neo.protocol.packets import (
    AbortTransaction,
    AddPendingNodes,
    AnswerLastIDs,
    AnswerTweakPartitionTable,
    AskClusterState,
    AskFinishTransaction,
    AskLastIDs,
    AskLastTransaction,
    AskNewOIDs,
    AskRecovery,
    Error,
    FlushLog,
    InvalidateObjects,
    NotifyClusterInformation,
    NotifyNodeInformation,
    NotifyPartitionChanges,
    NotifyRepair,
    NotifyUpstreamAdmin,
    Repair,
    Request,
    SetClusterState,
    SetNodeState,
    StartOperation,
    TweakPartitionTable,
)
from tests.unit.master.backup_world import BackupWorld, complete, fetched
from tests.unit.master.cluster import FEEDING, OUT, UP, MasterWorld, tid
from tests.unit.master.committing import begin, lock

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


# -- questions ------------------------------------------------------------------------------------


def test_a_node_that_is_dropped_is_told_between_its_cells_and_the_others() -> None:
    """Specification 9.12, 17.14."""
    world = MasterWorld(replicas=1)
    first, second = world.running(2)
    first.lose()
    admin = world.admin()
    second.received.clear()
    admin.ask(SetNodeState(1, NodeState.UNKNOWN)).result()
    told = [m for m in admin.received if not isinstance(m, Error)]
    assert [type(m) for m in told] == [NotifyPartitionChanges, NotifyNodeInformation]
    at = [type(m) for m in admin.received].index(Error)
    assert at == 1, "the answer stands between"
    assert told[1].node_list[0][2:4] == (1, NodeState.UNKNOWN)
    assert second.names() == ["NotifyPartitionChanges", "NotifyNodeInformation"]
    assert world.master.partitions.nodes() == {2} and world.master.nodes.get(1) is None


def test_last_ids_are_those_that_the_master_gave() -> None:
    """Not those that are committed (specification 17.15, 17.16)."""
    world = MasterWorld()
    (storage,) = world.running(1)
    client, admin = world.client(), world.admin()
    assert admin.ask(AskClusterState()).result().state is ClusterState.RUNNING
    assert admin.ask(AskLastIDs()).result() == AnswerLastIDs(ZERO_TID, ZERO_TID)
    assert admin.ask(AskLastTransaction()).result().tid == ZERO_TID
    oids = client.ask(AskNewOIDs(3)).result().oid_list
    done = begin(client)
    client.ask(AskFinishTransaction(done, [], []))
    final = lock(storage).tid
    running = begin(client)
    answer = admin.ask(AskLastIDs()).result()
    assert (answer.loid, answer.ltid) == (oids[-1], running)
    assert admin.ask(AskLastTransaction()).result().tid == final < running
    recovery = admin.ask(AskRecovery()).result()
    assert (recovery.ptid, recovery.backup_tid, recovery.truncate_tid) == (1, None, None)


def test_in_a_backup_the_last_transaction_is_that_of_the_upstream_cluster() -> None:
    """Readers see less (specification 17.16)."""
    world = BackupWorld()
    upstream, (storage,) = world.backingup()
    upstream.send(InvalidateObjects(tid(21), [tid(1)]))
    admin = world.admin()
    assert admin.ask(AskLastTransaction()).result().tid == tid(21)
    assert admin.ask(AskRecovery()).result().backup_tid == ZERO_TID
    fetched(storage, 21, 1)
    complete(21, storage)
    assert admin.ask(AskRecovery()).result().backup_tid == tid(21)


def test_an_admin_node_that_joins_hears_where_the_one_of_the_upstream_is() -> None:
    """Specification 17.22."""
    world = BackupWorld()
    upstream, _ = world.backingup()
    address = ("127.0.0.1", 7200)
    row = (NodeType.ADMIN, address, -0x2FFFFFFF, NodeState.RUNNING, 7.0)
    upstream.send(NotifyNodeInformation(2.0, [row]))
    late = world.join(NodeType.ADMIN, port=9001)
    assert late.take(NotifyUpstreamAdmin) == NotifyUpstreamAdmin(address)
