"""``neoctl upgrade`` on the master (specification 27.80 to 27.83)."""

from __future__ import annotations

import pytest

from tests.unit.master.moves_world import World


def test_one_node_after_the_other_27_81_27_82() -> None:
    steps = World(replicas=1, pending=0).plan("upgrade", nodes=[]).step_list
    assert [(name, list(nids)) for name, nids, *_ in steps] == [
        ("begin anew", [1]),
        ("wait until it is up to date", [0]),
        ("begin anew", [2]),
        ("wait until it is up to date", [0]),
    ]
    assert all(synchronised and not undo for *_, synchronised, undo in steps)


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
def test_what_is_refused_27_80(replicas: int, nodes: list[int], text: str) -> None:
    assert World(replicas=replicas).refusal("upgrade", nodes=nodes) == text


def test_a_node_that_is_not_up_to_date_is_waited_for_27_82() -> None:
    world = World(replicas=1, pending=0)
    operation = world.operation("upgrade", nodes=[1])
    own = world.master.operations._kinds["upgrade"].own
    assert own is not None and own.run(operation, 1)
    world.storages[0].lose()
    assert not own.run(operation, 1)
    world.master.flush()
    assert not own.run(operation, 1)


def test_nothing_is_undone_27_83() -> None:
    world = World(replicas=1, pending=0)
    operation = world.operation("upgrade", nodes=[1])
    own = world.master.operations._kinds["upgrade"].own
    assert own is not None and own.undo(operation, 1) and own.finish(operation)
    assert not any(step.undo for step in operation.steps)
