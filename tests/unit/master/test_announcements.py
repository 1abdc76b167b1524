"""Changes of the tables and of the state: who is told of them, when, and what counts by then."""

from __future__ import annotations

from neo.protocol.enums import NodeType
from neo.protocol.packets import (
    AddPendingNodes,
    AnswerPartitionTable,
    AskBeginTransaction,
    AskPartitionTable,
    Error,
    NotifyClusterInformation,
    NotifyNodeInformation,
    NotifyPartitionChanges,
    NotifyReady,
    SetClusterState,
    SetNumReplicas,
    StartOperation,
    TweakPartitionTable,
)
from tests.support.remote import error_of
from tests.unit.master.cluster import (
    CORRUPTED,
    DISCARDED,
    FEEDING,
    OUT,
    RECOVERING,
    RUNNING,
    STOPPING,
    UP,
    VERIFYING,
    MasterWorld,
    Rows,
)


def test_later_news_of_nodes_have_a_later_time_whatever_the_clock_does(world: MasterWorld) -> None:
    """Specification 3.18, 4.3."""
    (storage,) = world.running(1)
    identified: list[float] = []
    for step in (0.0, -3600.0, 7200.0):
        world.host.now += step
        identified.append(world.client().take(NotifyNodeInformation).node_list[0][4] or 0.0)
    assert identified[0] < identified[1] < identified[2]
    times = [m.timestamp for m in storage.received if type(m) is NotifyNodeInformation]
    assert len(times) == 3
    assert times[0] < times[1] < times[2]
    assert abs(times[2] - world.host.time()) < 0.001


def test_changes_of_the_partition_table_are_told_to_all_who_have_it(world: MasterWorld) -> None:
    """Specification 9.4, 9.5: the number of replicas is an empty change."""
    (storage,) = world.running(1)
    client, admin = world.client(), world.admin()
    admin.ask(SetNumReplicas(1)).result()
    for remote in storage, client, admin:
        assert remote.take(NotifyPartitionChanges) == NotifyPartitionChanges(2, 1, [])


def test_a_state_is_acknowledged_before_it_is_announced(world: MasterWorld) -> None:
    """Specification 4.10, 4.26, 4.32."""
    world.storage(1)
    admin = world.admin()
    admin.ask(SetClusterState(VERIFYING))
    assert admin.received[0] == Error(0, admin.received[0].message)
    assert admin.take(NotifyClusterInformation).state is VERIFYING
    admin.received.clear()
    admin.ask(SetClusterState(STOPPING))
    names = admin.names()
    assert names.index("Error") < names.index("NotifyClusterInformation")


def test_a_cluster_that_stops_may_be_told_so_again(world: MasterWorld) -> None:
    """Specification 4.32."""
    world.running(1)
    world.client().ask(AskBeginTransaction(None))  # the cluster waits for it
    for _ in range(2):
        answer = world.admin().ask(SetClusterState(STOPPING)).result()
        assert type(answer) is Error and answer.code == 0
    assert world.master.cluster.state is STOPPING and world.host.exit_code is None
    assert not world.admin().has(NotifyClusterInformation)


def test_a_database_is_created_when_all_storage_nodes_told_that_they_have_none(
    world: MasterWorld,
) -> None:
    """Specification 4.17."""
    world.storage(1)
    late = world.join(NodeType.STORAGE, port=9102)
    error_of(world.admin().ask(SetClusterState(VERIFYING)))
    assert world.master.cluster.state is RECOVERING
    world.remember(late)
    world.admin().ask(SetClusterState(VERIFYING)).result()
    assert world.master.partitions.nodes() == {1, 2}


def test_a_node_that_was_not_told_to_start_is_not_ready(world: MasterWorld) -> None:
    """Specification 4.30."""
    world.running(1)
    spare = world.join(NodeType.STORAGE, port=9102)
    spare.send(NotifyReady())
    assert world.master.cluster.ready == {1} and not spare.closed
    world.admin().ask(AddPendingNodes([2])).result()
    assert world.master.cluster.starting == {2}
    spare.take(StartOperation)
    spare.send(NotifyReady())
    assert world.master.cluster.ready == {1, 2}


def test_who_became_ready_when_the_operation_had_stopped_is_not_waited_for() -> None:
    """Specification 4.30: NotifyReady crossed StopOperation."""
    world = MasterWorld()
    first, second = world.running()
    second.lose()
    assert world.master.cluster.state is RECOVERING
    first.send(NotifyReady())
    assert not world.master.cluster.ready and not first.closed


def test_the_readable_cells_of_a_lost_node_are_taken_out_of_service(world: MasterWorld) -> None:
    """Specification 9.9."""
    rows: Rows = [
        [(1, UP), (2, FEEDING), (3, OUT)],
        [(2, UP), (3, UP)],
        [(1, UP), (2, OUT)],
        [(1, UP), (2, CORRUPTED)],
    ]
    first = world.storage(1, 5, nid=1)
    first.answer(first.take(AskPartitionTable), AnswerPartitionTable(5, 1, rows))
    second, third = (world.storage(nid, 5, nid=nid) for nid in (2, 3))
    world.verify(first, second, third)
    first.received.clear()
    second.lose()
    assert first.take(NotifyPartitionChanges).cell_list == [(0, 2, DISCARDED), (1, 2, OUT)]
    assert world.master.partitions.rows == [
        {1: UP, 3: OUT},
        {2: OUT, 3: UP},
        {1: UP, 2: OUT},
        {1: UP, 2: CORRUPTED},
    ]
    assert world.master.cluster.state is RUNNING


def test_nodes_that_were_not_added_get_no_cells(world: MasterWorld) -> None:
    """Specification 9.19."""
    world.running(1)
    world.join(NodeType.STORAGE, port=9102)
    world.admin().ask(SetNumReplicas(1)).result()
    answer = world.admin().ask(TweakPartitionTable(False, [])).result()
    assert not answer.changed
    assert world.master.partitions.rows == [{1: UP}] * 4
