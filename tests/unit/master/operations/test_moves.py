"""``replace``, ``add``, ``remove`` and ``upgrade`` on the master: what is moved, and that each part of it
may happen twice, or half (specification 27.70 to 27.83)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from neo.master.maintenance.membership import Membership
from neo.master.operations.moves import GIVE
from neo.operations.initiator import Refused
from neo.operations.model import Operation
from neo.protocol.enums import ClusterState, NodeState
from neo.protocol.ids import format_nid
from neo.protocol.packets import (
    SetNumReplicas,
    TweakPartitionTable,
)
from tests.unit.master.moves_world import OUT, UP, World, names, with_arguments


def step_of(operation: Operation, name: str) -> int:
    return [step.name for step in operation.steps].index(name)


# -- what is moved -------------------------------------------------------------------------------


def test_the_steps_of_a_replacement_27_73_to_27_75() -> None:
    assert names(World().plan("replace", old=1, new=3)) == [
        ("take into service", [0]),
        ("get ready", [3]),
        ("give cells", [0]),
        ("copy the cells", [3]),
        ("hand over", [0]),
    ]


def test_the_cells_of_each_kind_27_70() -> None:
    world = World()
    replace = world.operation("replace", old=1, new=3).arguments
    assert replace == {"leaving": "S1", "incoming": "S3", "gains": "3:0,2", "losses": "1:0,2"}
    add = world.operation("add", nodes=[3]).arguments
    assert (add["leaving"], add["incoming"]) == ("", "S3")
    assert add["gains"].startswith("3:") and add["losses"]
    remove = world.operation("remove", nodes=[2]).arguments
    assert remove == {"leaving": "S2", "incoming": "", "gains": "1:1,3", "losses": "2:1,3"}


def test_a_node_without_new_cells_knows_of_the_operation_27_74() -> None:
    """There are more nodes than cells."""
    world = World(count=4, pending=1)
    assert names(world.plan("add", nodes=[5])) == [
        ("take into service", [0]),
        ("get ready", [5]),
        ("hand over", [0]),
    ]


@pytest.mark.parametrize(
    ("kind", "arguments", "text"),
    [
        ("replace", {"old": 1, "new": 2}, "S2 has cells already: neoctl print pt"),
        ("replace", {"old": 3, "new": 4}, "S3 has no cells: drop it, and add S4"),
        ("replace", {"old": 9, "new": 3}, "S9 is not a storage node: neoctl print node"),
        ("replace", {"old": 1}, "None is not a node"),
        ("replace", {"old": 1, "new": "S3"}, "'S3' is not a node"),
        ("add", {"nodes": [1]}, "S1 has cells already: neoctl print pt"),
        ("add", {"nodes": []}, "no node is named"),
        ("add", {}, "no node is named"),
        ("add", {"nodes": [-1]}, f"{format_nid(-1)} is not a storage node: neoctl print node"),
        ("remove", {"nodes": [3]}, "S3 has no cells: neoctl drop S3"),
        (
            "remove",
            {"nodes": [1, 2]},
            "1 copies need as many nodes, and 0 would be left: add a node, or keep fewer copies (neoctl"
            " set replicas)",
        ),
    ],
)
def test_what_is_refused_27_71(kind: str, arguments: dict[str, Any], text: str) -> None:
    assert World(pending=2).refusal(kind, **arguments) == text


def test_cells_that_are_being_copied_are_waited_for_27_71() -> None:
    world = World()
    world.admin().ask(SetNumReplicas(1)).result()
    world.admin().ask(TweakPartitionTable(False, [])).result()
    text = "is OUT_OF_DATE on S2: wait until all are UP_TO_DATE (neoctl print pt)"
    assert text in world.refusal("add", nodes=[3])


def test_a_node_that_is_down_can_be_replaced_and_hinders_others_27_71() -> None:
    world = World(replicas=1)
    world.storages[0].lose()
    assert "is OUT_OF_DATE on S1" in world.refusal("add", nodes=[3])
    assert len(world.plan("replace", old=1, new=3).step_list) == 5
    assert world.operation("replace", old=1, new=3).arguments["gains"] == "3:0-3"


def test_a_new_node_must_be_connected_27_71() -> None:
    world = World()
    world.fresh[0].lose()
    assert world.refusal("add", nodes=[3]) == "S3 is not a storage node: neoctl print node"


# -- the part of the master ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes", [{"gains": "3:9"}, {"gains": "x"}, {"leaving": "Q1"}, {"losses": 7}, {"incoming": None}]
)
def test_an_order_of_another_release_does_not_end_the_master(changes: dict[str, Any]) -> None:
    world = World()
    operation = world.operation("replace", old=1, new=3)
    strange = with_arguments(operation, operation.arguments | changes)
    operations, give = world.master.operations, step_of(operation, GIVE)
    with pytest.raises(Refused, match="install the same release everywhere"):
        operations.run(strange, give)
    assert not operations.undo(strange, give) and not operations.finish(strange)
    unknown = msgspec.structs.replace(operation, kind="of later releases")
    assert not operations.undo(unknown, give)


def test_each_step_may_happen_twice_27_3() -> None:
    world = World()
    operation = world.operation("replace", old=1, new=3)
    for number in range(len(operation.steps)):
        if operation.steps[number].peers == (0,):
            world.until(world.moves.run, operation, number)
        if operation.steps[number].name == GIVE:
            assert world.table.rows[0] == {1: UP, 3: OUT}
            assert not world.moves.run(operation, step_of(operation, "hand over"))
            world.copied(3)
    assert world.table.rows[0] == {1: UP, 3: UP}
    world.until(world.moves.finish, operation)
    assert world.table.rows == [{3: UP}, {2: UP}, {3: UP}, {2: UP}]
    assert world.master.nodes.get(1) is None


def test_a_new_node_is_in_service_before_it_gets_cells_27_73() -> None:
    """The primary that took it into service was lost, and its successor found it without cells."""
    world = World()
    operation = world.operation("replace", old=1, new=3)
    world.until(world.moves.run, operation, 0)
    new = world.master.nodes.get(3)
    assert new is not None
    world.master.cluster.set_node_states([new], NodeState.PENDING)
    world.until(world.moves.run, operation, step_of(operation, GIVE))
    assert new.state is NodeState.RUNNING and world.table.rows[0][3] is OUT


@pytest.mark.parametrize("copied", [False, True])
def test_the_undo_may_happen_twice_and_at_any_point_27_74(copied: bool) -> None:
    world = World()
    before = [dict(row) for row in world.table.rows]
    operation = world.operation("replace", old=1, new=3)
    world.until(world.moves.undo, operation, step_of(operation, GIVE))  # nothing was done
    world.until(world.moves.run, operation, 0)
    half = operation.arguments | {"gains": "3:0"}
    world.until(world.moves.run, with_arguments(operation, half), step_of(operation, GIVE))
    if copied:
        world.copied(3)
    world.until(world.moves.undo, operation, step_of(operation, GIVE))
    assert world.table.rows == before


def test_the_last_copy_is_not_taken_away_by_an_undo_27_77() -> None:
    """The old node is lost when the new one has all cells."""
    world = World()
    operation = world.operation("replace", old=1, new=3)
    world.until(world.moves.run, operation, 0)
    world.until(world.moves.run, operation, step_of(operation, GIVE))
    world.copied(3)
    world.storages[0].lose()
    assert world.master.cluster.state is ClusterState.RUNNING
    for _ in range(3):
        assert not world.moves.undo(operation, step_of(operation, GIVE))
        world.confirm()
    assert world.table.rows[0][3].readable


def test_a_node_leaves_when_no_transaction_may_use_it_27_76() -> None:
    world = World()
    world.open.now = [b"a", b"b"]
    operation = world.operation("remove", nodes=[2])
    world.until(world.moves.run, operation, step_of(operation, GIVE))
    world.copied(1)
    for _ in range(5):
        assert not world.moves.finish(operation)
        world.confirm()
    assert world.table.nodes() == {1} and world.master.nodes.get(2) is not None
    world.open.now = [b"b", b"c"]
    assert not world.moves.finish(operation)
    world.open.now = [b"c"]
    world.until(world.moves.finish, operation)
    assert world.master.nodes.get(2) is None


def test_a_gain_on_a_dropped_node_is_not_waited_for_27_78() -> None:
    world = World(pending=2)
    operation = world.operation("replace", old=1, new=3)
    world.until(world.moves.run, operation, 0)
    world.until(world.moves.run, operation, step_of(operation, GIVE))
    world.copied(3)
    world.fresh[0].lose()
    lost = world.master.nodes.get(3)
    assert lost is not None and not world.moves.finish(operation)
    membership = Membership(world.master.cluster)
    membership.take_cells(lost)
    membership.dismiss(lost)
    for _ in range(5):
        world.moves.finish(operation)
        world.confirm()
    assert world.table.rows[0][1].readable  # the last copy


# -- upgrade -------------------------------------------------------------------------------------


def test_one_node_after_the_other_27_81_27_82() -> None:
    planned = World(replicas=1, pending=0).plan("upgrade", nodes=[])
    assert names(planned) == [
        ("begin anew", [1]),
        ("wait until it is up to date", [0]),
        ("begin anew", [2]),
        ("wait until it is up to date", [0]),
    ]
    assert all(synchronised and not undo for *_, synchronised, undo in planned.step_list)


@pytest.mark.parametrize(
    ("replicas", "nodes", "text"),
    [
        (
            0,
            [],
            "without S1 some partitions cannot be read, and applications would wait: stop the cluster,"
            " and start all nodes anew",
        ),
        (1, [3], "S3 does not operate: neoctl status"),
        (1, [9], "S9 is not a storage node: neoctl print node"),
        (1, list(range(1, 34)), "name at most 32 nodes at once"),
    ],
)
def test_what_an_upgrade_refuses_27_80(replicas: int, nodes: list[int], text: str) -> None:
    assert World(replicas=replicas).refusal("upgrade", nodes=nodes) == text


def test_a_node_that_is_not_up_to_date_is_waited_for_27_82() -> None:
    world = World(replicas=1, pending=0)
    operation = world.operation("upgrade", nodes=[1])
    own = world.master.operations
    assert own.run(operation, 1)
    world.storages[0].lose()
    assert not own.run(operation, 1)
    world.master.flush()
    assert not own.run(operation, 1)


def test_nothing_is_undone_27_83() -> None:
    world = World(replicas=1, pending=0)
    operation = world.operation("upgrade", nodes=[1])
    own = world.master.operations
    assert own.undo(operation, 1) and own.finish(operation)
    assert not any(step.undo for step in operation.steps)
