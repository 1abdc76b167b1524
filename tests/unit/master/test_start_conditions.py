"""Storage nodes that a cluster waits for before it starts, and what they are meanwhile."""

from __future__ import annotations

from neo.protocol.enums import CellState, ClusterState, NodeState
from neo.protocol.packets import AnswerRecovery, AskRecovery, NotifyNodeInformation, Truncate
from tests.unit.master.cluster import MasterWorld, Rows, spread, tid

UP, OUT = CellState.UP_TO_DATE, CellState.OUT_OF_DATE


def test_a_node_that_is_back_is_pending_until_the_cluster_starts(world: MasterWorld) -> None:
    """Specification 3.17, 4.25."""
    rows = spread(1, 2)
    first = world.storage(1, 5, rows, nid=1)
    second = world.join_storage(2)
    assert second.take(NotifyNodeInformation).node_list[0][2:4] == (2, NodeState.PENDING)
    first.received.clear()
    world.remember(second, 5)
    assert world.master.cluster.state is ClusterState.VERIFYING
    states = {row[2]: row[3] for row in first.take(NotifyNodeInformation).node_list}
    assert states == {1: NodeState.RUNNING, 2: NodeState.RUNNING}


def test_storage_nodes_are_pending_when_the_operation_stops(world: MasterWorld) -> None:
    """Specification 4.12."""
    first, second = world.running()
    first.received.clear()
    second.lose()
    rows = [row for m in first.received if type(m) is NotifyNodeInformation for row in m.node_list]
    assert [row[2:4] for row in rows] == [(2, NodeState.DOWN), (1, NodeState.PENDING)]
    assert not first.closed


def test_a_truncation_waits_for_nodes_that_are_out_of_date_too() -> None:
    """Specification 4.18: such a node would come back with what the others delete."""
    world = MasterWorld(replicas=1)
    rows: Rows = [[(1, UP), (2, OUT)]] * 4
    first = world.join_storage(1)
    first.answer(first.take(AskRecovery), AnswerRecovery(5, None, tid(50)))
    world.tell_table(first, 5, rows)
    assert world.master.cluster.state is ClusterState.RECOVERING
    second = world.storage(2, 5, nid=2)
    assert second.take(Truncate).tid == tid(50)
    second.answer(second.take(AskRecovery), AnswerRecovery(5, None, tid(50)))
    assert world.master.cluster.state is ClusterState.VERIFYING
