"""Changes of partition tables that may not be are found wherever the table lives."""

from __future__ import annotations

import pytest

from neo.protocol.enums import CellState
from neo.protocol.packets import CellChange
from neo.sim.table_watch import watched_tables
from neo.sim.world import Violation, World
from neo.topology.partitions import PartitionTable

UP, OUT, FEEDING = CellState.UP_TO_DATE, CellState.OUT_OF_DATE, CellState.FEEDING


def change(ptid: int, *changes: CellChange) -> None:
    """What a world says to the change of a table of version 1: node 1 has all, up to date."""
    world = World(0)
    table = PartitionTable()
    table.create(2, 0, [1])
    world.call_later(0.0, lambda: table.change(ptid, 0, changes))
    with watched_tables(world):
        world.run(1.0)


def test_the_next_version_with_possible_changes_is_right() -> None:
    change(2, (0, 1, OUT), (1, 2, OUT))
    change(2, (0, 1, FEEDING))
    change(2, (0, 1, CellState.DISCARDED))


@pytest.mark.parametrize("ptid", [0, 1, 3])
def test_a_version_that_is_not_the_next_one_is_found(ptid: int) -> None:
    with pytest.raises(Violation, match="not the next version"):
        change(ptid, (0, 1, OUT))


@pytest.mark.parametrize(
    "wrong", [(0, 2, UP), (0, 2, FEEDING), (0, 1, UP), (0, 2, CellState.DISCARDED)]
)
def test_a_cell_that_may_not_follow_is_found(wrong: CellChange) -> None:
    with pytest.raises(Violation, match="partition 0 of S2|partition 0 of S1"):
        change(2, wrong)
