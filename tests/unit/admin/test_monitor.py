"""The summary line: the forms that NEO installations already parse."""

from __future__ import annotations

import pytest

from neo.admin.monitor import examine, tid_date
from neo.protocol.enums import CellState, ClusterState, NodeState, NodeType
from neo.protocol.ids import ZERO_TID
from neo.topology.nodes import Node
from neo.topology.partitions import PartitionTable


def _table(*states: CellState) -> PartitionTable:
    table = PartitionTable()
    table.load(1, 0, [[(nid, state)] for nid, state in enumerate(states)])
    return table


# Recorded from another implementation, which cuts the date instead of rounding it.
@pytest.mark.parametrize(
    ("tid", "date"),
    [
        ("040d24252187ba31", "2026-11-20 10:45:07.858637"),
        ("040d2425d65db533", "2026-11-20 10:45:50.242042"),
        ("040d24250653b5cf", "2026-11-20 10:45:01.482888"),
        ("040d242a805699aa", "2026-11-20 10:50:30.079284"),
        ("0000000000000000", "1900-01-01 00:00:00"),
    ],
)
def test_date_of_a_tid_is_that_of_the_recordings(tid: str, date: str) -> None:
    assert tid_date(bytes.fromhex(tid)) == date


def test_date_of_the_greatest_ids_is_a_date() -> None:
    assert tid_date(b"\x7f" + b"\xff" * 7) > "5000"
    assert tid_date(b"\xff" * 8) > "9000"


def test_recorded_summary_of_a_cluster_with_a_node_down() -> None:
    """Specification 17.20."""
    table = _table(*[CellState.UP_TO_DATE, CellState.OUT_OF_DATE] * 4)
    nodes = [Node(NodeType.STORAGE, 2, state=NodeState.DOWN)]
    health = examine(ClusterState.RUNNING, table, nodes, bytes.fromhex("040d24252187ba31"))
    assert health.summary == (
        "RUNNING; OUT_OF_DATE=4, UP_TO_DATE=4; DOWN=1; "
        "ltid=040d24252187ba31 (2026-11-20 10:45:07.858637)"
    )
    assert health.problem


def test_healthy_cluster_has_neither_problem_nor_warning() -> None:
    nodes = [Node(NodeType.STORAGE, 1, state=NodeState.RUNNING)]
    health = examine(ClusterState.BACKINGUP, _table(CellState.UP_TO_DATE), nodes, ZERO_TID)
    assert (health.problem, health.warning) == (False, False)


@pytest.mark.parametrize("state", [None, ClusterState.RECOVERING, ClusterState.STOPPING])
def test_cluster_that_does_not_serve_is_a_problem(state: ClusterState | None) -> None:
    health = examine(state, PartitionTable(), [], None)
    assert health.problem
    name = state.name if state else "UNKNOWN"
    assert health.summary == f"{name}; ltid=0000000000000000 (1900-01-01 00:00:00)"


def test_unused_client_or_admin_that_left_is_no_problem() -> None:
    nodes = [Node(NodeType.CLIENT, -1, state=NodeState.DOWN)]
    assert not examine(ClusterState.RUNNING, _table(), nodes, None).problem
