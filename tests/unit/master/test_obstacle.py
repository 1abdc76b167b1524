"""The status of a cluster in RECOVERING: what it waits for, and whether the operator can start it."""

from __future__ import annotations

from typing import Any

import pytest

from neo.protocol.enums import CellState, ClusterState, ErrorCode, NodeState
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import (
    AnswerObstacle,
    AnswerRecovery,
    AskObstacle,
    AskRecovery,
    SetClusterState,
    Truncate,
)
from tests.support.remote import error_of
from tests.unit.master.cluster import MasterWorld, Rows, spread, tid

UP = CellState.UP_TO_DATE
ROWS: Rows = [[(1, UP), (2, UP)]] * 4


@pytest.fixture
def world() -> MasterWorld:
    return MasterWorld()


def told(world: MasterWorld) -> Any:
    return world.admin().ask(AskObstacle()).result()


def starts(world: MasterWorld) -> bool:
    """Return whether the operator can start the cluster."""
    try:
        world.admin().ask(SetClusterState(ClusterState.VERIFYING)).result()
    except ErrorAnswer as e:
        assert e.code is ErrorCode.DENIED
        return False
    return True


def test_nobody_is_here(world: MasterWorld) -> None:
    assert told(world) == AnswerObstacle(
        "no storage node is connected", "no storage node is connected"
    )


def test_a_new_database_waits_for_the_operator(world: MasterWorld) -> None:
    world.storage(1)
    assert told(world).reason.startswith("a new database is created when")
    assert told(world).forced == ""
    assert starts(world)


def test_the_only_copy_is_away(world: MasterWorld) -> None:
    world.storage(1, 5, spread(1, 2), nid=1)
    answer = told(world)
    assert answer.reason == "S2 must be connected first"
    assert answer.forced == "some partitions cannot be read without S2"
    assert not starts(world)


def test_a_copy_is_away(world: MasterWorld) -> None:
    """Specification 17.17."""
    world.storage(1, 5, ROWS, nid=1)
    assert told(world) == AnswerObstacle("S2 must be connected first", "")
    assert starts(world)


def test_a_cluster_that_serves_waits_for_nothing(world: MasterWorld) -> None:
    """Specification 17.17."""
    world.running(1)
    assert error_of(world.admin().ask(AskObstacle())).code is ErrorCode.DENIED


def test_nodes_that_go_one_after_the_other_are_all_missed(world: MasterWorld) -> None:
    """The table is dropped when the first node is lost (specification 4.6)."""
    first, second = world.running(2)
    third = world.join_storage(3)
    for storage in (first, second, third):
        storage.lose()
    rows = {row[2]: row[3] for row in (node.row() for node in world.master.nodes)}
    assert rows[1] is rows[2] is NodeState.DOWN and 3 not in rows


def test_to_ask_makes_nobody_truncate(world: MasterWorld) -> None:
    """A truncation waits for S2. Only an order to start may go on without it."""
    first = world.join_storage(1)
    first.answer(first.take(AskRecovery), AnswerRecovery(1, None, None))
    world.tell_table(first, 1, ROWS)
    world.master.cluster.truncate_tid = tid(50)
    first.received.clear()
    assert told(world) == AnswerObstacle("S2 must be connected first", "S2 must be connected first")
    assert not first.received
    assert not starts(world), "it must remember the truncation first"
    assert first.take(Truncate).tid == tid(50)
