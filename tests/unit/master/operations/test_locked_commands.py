"""Commands outside of operations respect their locks (specification 27.32)."""

from __future__ import annotations

import pytest

from neo.protocol.enums import ClusterState, NodeState
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import (
    AbortOperation,
    AnswerBeginOperation,
    AnswerRoom,
    AskBeginOperation,
    AskPack,
    AskRoom,
    SetNodeState,
    SetNumReplicas,
    Truncate,
    TweakPartitionTable,
)
from tests.unit.master.cluster import tid
from tests.unit.master.moves_world import World

COMMANDS = (
    SetNumReplicas(0),
    TweakPartitionTable(False, []),
    Truncate(tid(50)),
)


@pytest.fixture
def world() -> World:
    """A backup, which holds both locks, waits for its nodes."""
    world = World(pending=0, replicas=1)
    world.master.cluster.last_tid = tid(100)
    asked = world.admin().ask(AskBeginOperation("backup", {"path": "/a", "full": False}, False))
    for storage in world.storages:
        storage.answer(storage.take(AskRoom), AnswerRoom(1, None, "disk"))
    assert isinstance(asked.result(), AnswerBeginOperation)
    return world


def test_commands_that_need_a_lock_are_refused_and_name_the_operation_27_32(world: World) -> None:
    before = world.master.cluster.partitions.row_list()
    for command in COMMANDS:
        assert "(backup) holds" in world.denied(command), command
    with pytest.raises(ErrorAnswer, match=r"\(backup\) holds 'history'"):
        world.client().ask(AskPack(tid(50))).result()
    assert world.master.cluster.partitions.row_list() == before
    world.storages[1].lose()
    assert "(backup) holds 'table'" in world.denied(SetNodeState(2, NodeState.UNKNOWN))
    assert world.master.cluster.state is ClusterState.RUNNING


def test_what_changes_nothing_is_possible_meanwhile_27_32(world: World) -> None:
    world.admin().ask(TweakPartitionTable(True, [])).result()


def test_a_lock_is_held_until_all_is_undone_27_12(world: World) -> None:
    (operation,) = world.master.operations.describe(None).row_list
    world.admin().ask(AbortOperation(operation[0])).result()
    assert "(backup) holds" in world.denied(SetNumReplicas(0))
