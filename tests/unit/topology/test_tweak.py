"""Tweaks of the partition table: what any must be, and examples."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neo.protocol.enums import CellState
from neo.topology.partitions import PartitionTable
from neo.topology.tweak import fed, gently, replicated, tweak, without
from tests.unit.topology.tables import (
    CORRUPTED,
    DISCARDED,
    FEEDING,
    FLAT_NODES,
    NODES,
    OUT,
    READABLE_ROWS,
    REPLICAS,
    UP,
    Nodes,
    Path,
    Rows,
    apply,
    cells,
    loaded,
    new_cells,
    spread,
    tweaked,
)

Row = dict[int, CellState]
GONE = DISCARDED


def loads(table: PartitionTable, nodes: Iterable[int]) -> Counter[int]:
    return Counter(dict.fromkeys(nodes, 0)) + Counter(n for row in table.rows for n in cells(row))


# -- what a table must be ------------------------------------------------------------------------


@given(READABLE_ROWS, NODES, REPLICAS)
def test_a_partition_has_as_many_cells_as_wanted_if_there_are_nodes(
    rows: Rows, nodes: Nodes, replicas: int
) -> None:
    for row in tweaked(rows, nodes, replicas).rows:
        assert len(cells(row)) == min(replicas + 1, len(nodes))
        assert cells(row) <= nodes.keys()


@given(READABLE_ROWS, FLAT_NODES, REPLICAS)
def test_nodes_have_the_same_number_of_cells_or_one_more(
    rows: Rows, nodes: Nodes, replicas: int
) -> None:
    assert spread(tweaked(rows, nodes, replicas), nodes) <= 1


@given(READABLE_ROWS, NODES, REPLICAS)
def test_two_replicas_share_a_device_only_if_no_other_is_free(
    rows: Rows, nodes: Nodes, replicas: int
) -> None:
    def devices(nids: Iterable[int]) -> int:
        return len({nodes[nid] or nid for nid in nids})

    for row in tweaked(rows, nodes, replicas).rows:
        assert devices(cells(row)) == min(len(cells(row)), devices(nodes))


@given(READABLE_ROWS, st.lists(st.sampled_from("abc"), min_size=1, max_size=6), REPLICAS)
def test_replicas_are_in_as_many_rooms_as_possible(
    rows: Rows, rooms: list[str], replicas: int
) -> None:
    nodes: Nodes = {nid: (room, f"machine {nid}") for nid, room in enumerate(rooms, 1)}
    for row in tweaked(rows, nodes, replicas).rows:
        used = Counter(nodes[nid][0] for nid in cells(row))
        for room, count in Counter(rooms).items():
            assert used[room] == count or used[room] + 1 >= max(used.values())


def test_machines_of_a_room_are_told_apart() -> None:
    nodes = {1: ("r", "m", "1"), 2: ("r", "m", "2"), 3: ("r", "n", "3"), 4: ("r", "n", "4")}
    for row in tweaked([{1: UP, 2: UP}, {3: UP, 4: UP}], nodes, 1).rows:
        assert len({nodes[nid][1] for nid in cells(row)}) == 2


def test_an_outer_element_of_the_path_counts_more_than_all_inner_ones() -> None:
    nodes: dict[int, Path] = {1: ("a", "m", "r", "1"), 2: ("a", "m", "r", "2")}
    nodes |= {nid: ("b", f"m{nid}", "r", "1") for nid in (3, 4, 5)}
    (row,) = tweaked([{3: UP, 4: UP, 5: UP}], nodes, 3).rows
    assert Counter(nodes[nid][0] for nid in cells(row)) == {"a": 2, "b": 2}


def test_a_free_device_counts_more_than_rooms() -> None:
    nodes: dict[int, Path] = {1: ("a", "1"), 2: ("a", "1")}
    nodes |= {nid: ("b", f"{nid}") for nid in (3, 4, 5)}
    (row,) = tweaked([{1: UP, 2: UP}], nodes, 3).rows
    assert len({nodes[nid] for nid in cells(row)}) == 4


def test_topology_is_stronger_than_balance() -> None:
    """Specification 9.20."""
    nodes = {1: ("a",), 2: ("b", "2"), 3: ("b", "3"), 4: ("b", "4")}
    table = tweaked([{1: UP}] * 6, nodes, 1)
    assert loads(table, nodes) == {1: 6, 2: 2, 3: 2, 4: 2}


# -- examples ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "replicas", "nodes", "keep", "changes"),
    [
        # As another implementation does: one replica more, one node more.
        pytest.param({1: UP}, 1, [1, 2], [], {2: OUT}, id="a node joins"),
        # As another implementation does: the operator lists the node that will be dropped.
        pytest.param({1: UP, 2: UP}, 0, [2], [1], {}, id="cells of kept nodes stay"),
        pytest.param({1: UP, 2: UP}, 1, [2, 3], [1], {3: OUT}, id="and are no replicas"),
        pytest.param({1: UP, 2: UP, 3: OUT}, 0, [1, 2, 3], [], {2: GONE, 3: GONE}, id="excess"),
        pytest.param({1: FEEDING, 2: OUT}, 0, [1], [], {1: UP, 2: GONE}, id="needed again"),
        pytest.param({1: UP, 2: CORRUPTED}, 1, [1, 2], [], {2: OUT}, id="a corrupted copy anew"),
        pytest.param({1: UP, 2: UP, 3: CORRUPTED}, 1, [1, 2], [], {3: GONE}, id="or dropped"),
        pytest.param({1: UP, 2: FEEDING, 3: OUT}, 0, [3], [], {1: GONE}, id="one feeds already"),
    ],
)
def test_examples(
    row: Row, replicas: int, nodes: list[int], keep: list[int], changes: Row
) -> None:
    """Specification 9.3, 9.19, 9.21."""
    table = loaded([row], replicas)
    tweaked_cells = tweak(table, dict.fromkeys(nodes, ()), replicas, keep)
    assert tweaked_cells == [(0, nid, state) for nid, state in changes.items()]


def test_a_node_to_be_emptied_feeds_until_it_is_replaced() -> None:
    """Specification 9.10, 9.11."""
    table = loaded([{1: UP, 2: UP}], 1)
    apply(table, tweak(table, {2: (), 3: ()}, 1))
    assert table.rows == [{1: FEEDING, 2: UP, 3: OUT}]
    assert fed(table) == []
    apply(table, replicated(table, 0, 3))
    assert table.rows == [{1: FEEDING, 2: UP, 3: UP}]
    apply(table, fed(table))
    assert table.rows == [{2: UP, 3: UP}]


def test_a_feeding_cell_stays_while_readable_cells_are_too_few() -> None:
    """Node 1 was away for a moment: that it is back is not the end of the move from 2 to 3."""
    table = loaded([{1: OUT, 2: FEEDING, 3: OUT}], 1)
    apply(table, replicated(table, 0, 1))
    assert fed(table) == []
    apply(table, replicated(table, 0, 3))
    assert fed(table) == [(0, 2, DISCARDED)]


@pytest.mark.parametrize(
    ("row", "replicas", "discarded"),
    [
        pytest.param({1: FEEDING, 2: UP, 3: OUT}, 0, {1}, id="as many others as wanted"),
        pytest.param({1: FEEDING, 2: FEEDING, 3: UP, 4: OUT}, 1, {1}, id="others are incomplete"),
        # Whatever became of those that it fed.
        *(
            pytest.param(row, replicas, set(), id="the last one that can be read")
            for row in ({2: FEEDING}, {2: FEEDING, 3: CORRUPTED})
            for replicas in (0, 1)
        ),
    ],
)
def test_feeding_cells_in_excess_are_discarded(row: Row, replicas: int, discarded: set[int]) -> None:
    """Specification 9.11, 23.10."""
    assert fed(loaded([row], replicas)) == [(0, nid, DISCARDED) for nid in discarded]


def test_a_feeding_cell_is_needed_again_when_the_node_that_it_waits_for_goes_for_ever() -> None:
    """Specification 9.12."""
    table = loaded([{1: OUT, 2: FEEDING}, {2: UP}, {1: UP, 2: FEEDING, 3: OUT}], 0)
    changes = without(table, {1})
    assert changes == [(0, 1, DISCARDED), (0, 2, UP), (2, 1, DISCARDED)]
    apply(table, changes)
    assert fed(table) == []


def test_no_more_feeding_cells_are_needed_again_than_copies_are_wanted() -> None:
    """Specification 9.12."""
    table = loaded([{1: OUT, 2: FEEDING, 3: FEEDING, 4: UP}], 1)
    apply(table, without(table, {1}))
    assert table.rows == [{2: UP, 3: FEEDING, 4: UP}]
    apply(table, fed(table))
    assert table.rows == [{2: UP, 4: UP}]


def test_what_can_be_read_feeds_before_it_goes_if_not_everybody_knows_the_table() -> None:
    """Decision 6: the operator commands a tweak while a new cell has just become readable
    (specification 9.24)."""
    table = loaded([{1: UP, 2: FEEDING, 3: OUT, 4: UP}], 0)
    changes = [(0, 1, DISCARDED), (0, 2, DISCARDED), (0, 3, DISCARDED), (0, 5, OUT)]
    assert gently(table, changes) == [(0, 1, FEEDING), (0, 3, DISCARDED), (0, 5, OUT)]


@pytest.mark.parametrize("state", [None, UP, FEEDING, CORRUPTED])
def test_the_end_of_a_replication_that_is_not_wanted_any_more_changes_nothing(
    state: CellState | None,
) -> None:
    row = {1: UP, 3: FEEDING} | ({} if state is None else {2: state})
    assert replicated(loaded([row], 1), 0, 2) == []


# -- speed ---------------------------------------------------------------------------------------

def seconds(partitions: int, replicas: int, before: int) -> float:
    """Return the time that it takes to balance a table of so many nodes over 50 nodes."""
    nodes = {nid: (f"room {nid % 3}", f"machine {nid % 7}", str(nid)) for nid in range(1, 51)}
    table = PartitionTable()
    table.create(partitions, replicas, list(range(1, before + 1)))
    start = time.process_time()
    changes = tweak(table, nodes, replicas)
    took = time.process_time() - start
    assert new_cells(changes) >= partitions * (replicas + 1) / 3
    return took


@pytest.mark.parametrize(("replicas", "before"), [(0, 30), (1, 1), (2, 30), (3, 25)])
def test_the_time_of_a_tweak_grows_no_faster_than_the_table(replicas: int, before: int) -> None:
    """A table that is four times as big takes about four times as long, whatever the machine does."""
    small = min(seconds(60, replicas, before) for _ in range(3))
    big = min(seconds(240, replicas, before) for _ in range(2))
    assert big < 9 * small and big < 2
