"""The partition table, compared with what a reader of the specification would compute by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neo.protocol.enums import CellState, NodeState, NodeType
from neo.protocol.ids import p64
from neo.protocol.packets import CellChange, CellRow
from neo.topology.nodes import Node, NodeTable
from neo.topology.partitions import PartitionTable, grouped, running_storages, worst

UP, OUT, FEEDING, CORRUPTED, DISCARDED = (
    CellState.UP_TO_DATE,
    CellState.OUT_OF_DATE,
    CellState.FEEDING,
    CellState.CORRUPTED,
    CellState.DISCARDED,
)
NIDS = st.integers(1, 5)
STATES = st.sampled_from([UP, OUT, FEEDING, CORRUPTED])
TABLES = st.lists(
    st.dictionaries(NIDS, STATES, max_size=4).map(lambda row: list(row.items())),
    min_size=1,
    max_size=6,
)
SETS = st.sets(NIDS)


def loaded(rows: list[list[CellRow]]) -> PartitionTable:
    table = PartitionTable()
    table.load(7, 1, rows)
    return table


@given(TABLES)
def test_a_table_is_told_as_it_was_loaded(rows: list[list[CellRow]]) -> None:
    """Specification 9.1."""
    table = loaded(rows)
    assert len(table) == len(rows)
    assert table.row_list() == [sorted(row) for row in rows]
    again = PartitionTable()
    again.load(1, 0, [[] for _ in rows])
    again.change(7, 1, table.changes())
    assert (again.ptid, again.replicas, again.rows) == (7, 1, table.rows)


@given(TABLES, st.data())
def test_changes(rows: list[list[CellRow]], data: st.DataObject) -> None:
    """Specification 9.2."""
    table = loaded(rows)
    model = {(p, nid): state for p, row in enumerate(rows) for nid, state in row}
    cells = st.tuples(st.integers(0, len(rows) - 1), NIDS, STATES | st.just(DISCARDED))
    changes: list[CellChange] = data.draw(st.lists(cells, max_size=8))
    table.change(8, 0, changes)
    for partition, nid, state in changes:
        model[partition, nid] = state
    kept = {cell: state for cell, state in model.items() if state is not DISCARDED}
    assert {(p, nid): state for p, nid, state in table.changes()} == kept
    assert (table.ptid, table.replicas) == (8, 0)


@given(TABLES, SETS)
def test_operational_when_each_partition_has_a_readable_cell_that_runs(
    rows: list[list[CellRow]], running: set[int]
) -> None:
    """Specification 4.11."""
    table = loaded(rows)
    lacking = [
        p
        for p, row in enumerate(rows)
        if not any(nid in running and state in (UP, FEEDING) for nid, state in row)
    ]
    assert table.operational(running) == (not lacking)
    assert table.missing(running) == {nid for p in lacking for nid, _ in rows[p]}


@given(TABLES)
def test_cells_by_what_can_be_done_with_them(rows: list[list[CellRow]]) -> None:
    """Specification 9.2."""
    table = loaded(rows)
    for p, row in enumerate(rows):
        assert set(table.readable(p)) == {nid for nid, s in row if s in (UP, FEEDING)}
        assert set(table.writable(p)) == {nid for nid, s in row if s is not CORRUPTED}
        assert all(table.state(p, nid) is state for nid, state in row)
        assert table.state(p, 99) is None
        assert table.state(p, None) is None
    assert table.nodes() == {nid for row in rows for nid, _ in row}
    assert table.nodes(readable_only=True) == {
        nid for row in rows for nid, s in row if s in (UP, FEEDING)
    }
    for nid in range(1, 6):
        assert table.assigned(nid) == [p for p, row in enumerate(rows) if nid in dict(row)]


@given(st.integers(1, 40), st.integers(0, 4), st.sets(st.integers(1, 50), min_size=1, max_size=8))
def test_a_first_table_is_whole_and_balanced(
    partitions: int, replicas: int, nids: set[int]
) -> None:
    """Specification 9.3."""
    table = PartitionTable()
    table.create(partitions, replicas, list(nids))
    assert (table.ptid, table.replicas, len(table)) == (1, replicas, partitions)
    copies = min(replicas + 1, len(nids))
    assert all(len(row) == copies and set(row.values()) == {UP} for row in table.rows)
    shares = [len(table.assigned(nid)) for nid in nids]
    assert max(shares) - min(shares) <= 1
    assert table.operational(nids)


def test_an_empty_table_is_not_operational() -> None:
    table = PartitionTable()
    assert not table.operational({1})
    table.load(1, 0, [[(1, UP)]])
    assert table.operational({1})
    table.clear()
    assert (table.ptid, len(table)) == (None, 0)
    assert not table.operational({1})


def test_partition_of_an_id() -> None:
    table = loaded([[(1, UP)], [(2, UP)], [(1, UP)]])
    assert [table.partition(p64(i)) for i in range(4)] == [0, 1, 2, 0]


def test_part_of_the_rows() -> None:
    table = loaded([[(1, UP)], [(2, OUT)], [(1, UP)]])
    assert table.row_list(1, 2) == [[(2, OUT)]]
    assert table.row_list(1) == [[(2, OUT)], [(1, UP)]]


def test_discarding_a_cell_that_is_not_there() -> None:
    table = loaded([[(1, UP)]])
    table.change(8, 0, [(0, 2, DISCARDED)])
    assert table.rows == [{1: UP}]


def test_only_running_storages_serve() -> None:
    nodes = NodeTable()
    nodes.add(Node(NodeType.MASTER, -5, state=NodeState.RUNNING))
    nodes.add(Node(NodeType.STORAGE, 1, state=NodeState.RUNNING))
    nodes.add(Node(NodeType.STORAGE, 2, state=NodeState.PENDING))
    nodes.add(Node(NodeType.STORAGE, None, state=NodeState.RUNNING))
    assert running_storages(nodes) == {1}


def test_the_first_table_keeps_replicas_apart() -> None:
    """Not on the same disk, and not in the same machine if there is another."""
    table = PartitionTable()
    paths = {1: ("a", "1"), 2: ("a", "2"), 3: ("b", "1"), 4: ("b", "2")}
    table.create(12, 1, [1, 2, 3, 4], paths)
    for row in table.rows:
        assert {paths[nid][0] for nid in row} == {"a", "b"}
    loads = [len(table.assigned(nid)) for nid in paths]
    assert loads == [6, 6, 6, 6]


def test_without_topology_nodes_take_turns() -> None:
    table = PartitionTable()
    table.create(3, 1, [3, 1, 2])
    assert [sorted(row) for row in table.rows] == [[1, 2], [1, 3], [2, 3]]


# -- another number of partitions ---------------------------------------------------------------


@pytest.mark.parametrize("before", range(1, 13))
@pytest.mark.parametrize("after", range(1, 13))
def test_new_partitions_are_made_of_those_that_may_have_their_ids_27_90(
    before: int, after: int
) -> None:
    groups = grouped(before, after)
    assert len(groups) == after
    for number, group in enumerate(groups):
        ids = range(number, 10 * before * after, after)
        assert sorted({id_ % before for id_ in ids}) == [*group]


def test_cells_are_as_good_as_the_worst_that_they_are_made_of_27_90() -> None:
    table = PartitionTable()
    up, feeding, out, bad = (
        *(CellState.UP_TO_DATE, CellState.FEEDING),
        *(CellState.OUT_OF_DATE, CellState.CORRUPTED),
    )
    table.load(
        1, 0, [[(1, up), (2, up)], [(1, up), (2, out)], [(1, feeding), (3, up)], [(1, bad), (2, up)]]
    )
    table.regroup(2)
    assert table.rows == [{1: feeding}, {1: bad, 2: out}]
    table.regroup(4)
    assert table.rows == [{1: feeding}, {1: bad, 2: out}] * 2
    assert worst([up, feeding]) is feeding and worst([bad, out]) is bad and worst([out, up]) is out
