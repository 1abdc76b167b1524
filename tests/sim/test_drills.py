"""Drills wait long enough for work that nodes do a few rows at a time."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from random import Random
from typing import cast

import pytest

from tests.simulator.checks import SECONDS, Drills
from tests.simulator.cluster import Cluster
from tests.simulator.operator import Operator
from tests.simulator.world import Violation, World


def waiting(rows: Callable[[World], int]) -> tuple[World, Drills]:
    """Return a world and the drills of a cluster with one disk, with an event each second."""
    world = World(0)
    tables = Namespace(tables=lambda: {"obj": [()] * rows(world), "trans": []})
    cluster = Namespace(world=world, disks={"disk": tables})

    def tick() -> None:
        world.call_later(1.0, tick, "tick")

    tick()
    return world, Drills(cast(Cluster, cluster), cast(Operator, None), Random(0))


def test_what_gets_on_is_waited_for() -> None:
    world, drills = waiting(lambda world: 1000 - int(world.now))
    drills._wait_moving(lambda: world.now > 3 * SECONDS, "the cell is repaired")
    assert 3 * SECONDS < world.now < 3 * SECONDS + 2


def test_what_stands_still_is_found() -> None:
    world, drills = waiting(lambda world: max(0, 200 - int(world.now)))
    with pytest.raises(
        Violation, match="nothing moves any more, and not yet: the cell is repaired"
    ):
        drills._wait_moving(lambda: False, "the cell is repaired")
    assert 2 * SECONDS < world.now < 4 * SECONDS


def test_what_the_operator_typed_is_done_before_cells_are_compared() -> None:
    """Cells were complete for a moment, and then moved; no more commands follow."""
    world, drills = waiting(lambda world: 1000 - int(world.now))

    class Hasty:
        rests = False

        @property
        def settled(self) -> bool:
            return not 1 <= world.now < 10

    operator = drills._operator = cast(Operator, Hasty())
    with drills._resting():
        assert 10 <= world.now < 16
        assert operator.rests
    assert not operator.rests


def test_a_node_that_comes_back_late_is_let_in_before_cells_are_compared() -> None:
    """All cells were complete without the node; then it came, and waited for the operator."""
    world, drills = waiting(lambda world: 1000 - int(world.now))

    class Attentive:
        rests = False
        came = let_in = False

        @property
        def settled(self) -> bool:
            self.came = world.now > 3
            self.let_in |= self.came and not self.rests
            return self.let_in or not self.came

    operator = Attentive()
    drills._operator = cast(Operator, operator)
    with drills._resting():
        assert operator.let_in and operator.rests
