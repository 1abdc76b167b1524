"""How a table becomes what a tweak wants: few cells move, none is lost, it settles.

A twin tries all possible tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from itertools import combinations, product
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from neo.topology.partitions import PartitionTable
from neo.topology.tweak import fed, replicated, tweak, without
from tests.unit.topology.tables import (
    CORRUPTED,
    DISCARDED,
    FEEDING,
    FLAT_NODES,
    NIDS,
    NODES,
    OUT,
    PATHS,
    READABLE_ROWS,
    REPLICAS,
    STATES,
    UP,
    Nodes,
    Path,
    Rows,
    apply,
    cells,
    loaded,
    new_cells,
    readable,
    spread,
    tweaked,
)

ROWS = st.lists(st.dictionaries(NIDS, STATES, max_size=5), min_size=1, max_size=8)


def incomplete(table: PartitionTable) -> list[tuple[int, int]]:
    return [(p, nid) for p, row in enumerate(table.rows) for nid in row if row[nid] is OUT]


def complete(table: PartitionTable, order: Iterable[tuple[int, int]]) -> None:
    """Replication is done, in some order: no cell is dropped before another has replaced it."""
    for partition, nid in order:
        before = len(readable(table.rows[partition]))
        apply(table, replicated(table, partition, nid))
        apply(table, fed(table))
        after = len(readable(table.rows[partition]))
        assert after >= min(before, table.replicas + 1)


# -- few cells move ------------------------------------------------------------------------------


def shared(a: Path, b: Path) -> tuple[bool, ...]:
    """What two nodes have in common: the device, the first element, the first two..."""
    return bool(a and a == b), *(len(a) >= n <= len(b) and a[:n] == b[:n] for n in range(1, 4))


def sharing(nids: Iterable[int], nodes: Nodes) -> list[int]:
    pairs = [shared(nodes[a], nodes[b]) for a, b in combinations(nids, 2)]
    return [sum(pair[level] for pair in pairs) for level in range(4)]


Score = tuple[int, int, int]


def score(rows: Rows, choice: Iterable[Collection[int]]) -> Score:
    """Balance, new cells and incomplete ones: all the lower, the better."""
    pairs = [(row, nid) for row, nids in zip(rows, choice, strict=True) for nid in nids]
    numbers = Counter(nid for _, nid in pairs)
    states = [row.get(nid, CORRUPTED) for row, nid in pairs]
    return sum(n * n for n in numbers.values()), states.count(CORRUPTED), states.count(OUT)


def best_score(rows: Rows, nodes: Nodes, replicas: int) -> Score:
    """By trying everything."""
    rows_possible = list(combinations(sorted(nodes), min(replicas + 1, len(nodes))))
    least = min(sharing(nids, nodes) for nids in rows_possible)
    far = [nids for nids in rows_possible if sharing(nids, nodes) == least]
    return min(score(rows, choice) for choice in product(far, repeat=len(rows)))


TINY_NIDS = st.integers(1, 5)
TINY_ROWS = st.lists(
    st.dictionaries(TINY_NIDS, STATES, min_size=1, max_size=5).filter(readable),
    min_size=1,
    max_size=3,
)


@given(TINY_ROWS, st.dictionaries(TINY_NIDS, PATHS, min_size=1, max_size=5), st.integers(0, 2))
@example([{1: UP, 2: UP}, {1: UP, 3: UP}, {2: UP, 3: UP}], {1: (), 2: (), 4: ()}, 0)
@example([{1: UP, 2: OUT}, {2: OUT, 3: UP}, {1: OUT, 3: UP}], {1: (), 2: (), 3: ()}, 0)
@example([{2: UP}, {1: OUT, 2: UP}], {1: (), 2: ()}, 0)
def test_no_other_table_is_better(rows: Rows, nodes: Nodes, replicas: int) -> None:
    """Specification 9.20."""
    choice = [cells(row) for row in tweaked(rows, nodes, replicas).rows]
    assert {tuple(sharing(nids, nodes)) for nids in choice} == {
        tuple(
            min(sharing(nids, nodes) for nids in combinations(nodes, min(replicas + 1, len(nodes))))
        )
    }
    assert score(rows, choice) == best_score(rows, nodes, replicas)


def least_moves(table: PartitionTable, nodes: Nodes) -> int:
    """No balanced table has fewer new cells: a node has its share, or one more."""
    old = sorted((sum(nid in row for row in table.rows) for nid in nodes), reverse=True)
    share, more = divmod(len(table) * min(table.replicas + 1, len(nodes)), len(nodes))
    return sum(max(share + (i < more) - count, 0) for i, count in enumerate(old))


@pytest.mark.parametrize("replicas", [0, 1, 2])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (range(1, 2), range(1, 5)),
        (range(1, 5), range(1, 6)),
        (range(1, 8), range(3, 8)),
        (range(1, 8), range(3, 11)),
        (range(1, 6), range(6, 11)),
    ],
    ids=["grow from one", "one joins", "two leave", "some are replaced", "all are replaced"],
)
def test_the_least_possible_number_of_cells_moves_when_nodes_join_and_leave(
    old: range, new: range, replicas: int
) -> None:
    nodes: Nodes = dict.fromkeys(new, ())
    table = PartitionTable()
    table.create(70, replicas, list(old))
    bound = least_moves(table, nodes)
    changes = tweak(table, nodes, replicas)
    assert new_cells(changes) == bound
    apply(table, changes)
    assert spread(table, nodes) <= 1


@given(st.integers(1, 30), FLAT_NODES, FLAT_NODES, REPLICAS)
def test_a_balanced_table_of_the_same_nodes_does_not_change(
    partitions: int, old: Nodes, new: Nodes, replicas: int
) -> None:
    table = PartitionTable()
    table.create(partitions, replicas, list(old))
    assert tweak(table, old, replicas) == []
    assert new_cells(tweak(table, new, replicas)) >= least_moves(table, new)


# -- nothing is lost on the way ------------------------------------------------------------------


@given(ROWS, NODES, REPLICAS, st.sets(NIDS))
def test_a_tweak_leaves_as_many_readable_cells_as_there_were_or_as_are_wanted(
    rows: Rows, nodes: Nodes, replicas: int, keep: set[int]
) -> None:
    """Specification 9.22."""
    table = tweaked(rows, nodes, replicas, keep)
    copies = min(replicas + 1, len(nodes.keys() - keep))
    for old, new in zip(rows, table.rows, strict=True):
        assert len(readable(new)) >= min(len(readable(old)), copies)
        assert bool(readable(new)) == bool(readable(old))


@given(READABLE_ROWS, NODES, REPLICAS)
def test_each_feeding_cell_waits_for_a_cell_that_is_incomplete(
    rows: Rows, nodes: Nodes, replicas: int
) -> None:
    """Specification 9.22."""
    for row in tweaked(rows, nodes, replicas).rows:
        states = list(row.values())
        assert states.count(FEEDING) <= states.count(OUT)


LEGAL = {
    (None, OUT),
    (UP, FEEDING),
    (UP, DISCARDED),
    (FEEDING, UP),
    (FEEDING, DISCARDED),
    (OUT, DISCARDED),
    (CORRUPTED, OUT),
    (CORRUPTED, DISCARDED),
}


@given(ROWS, NODES, REPLICAS, st.sets(NIDS))
def test_cells_change_once_and_legally_and_never_on_kept_nodes(
    rows: Rows, nodes: Nodes, replicas: int, keep: set[int]
) -> None:
    """Specification 9.21."""
    changes = tweak(loaded(rows, replicas), nodes, replicas, keep)
    assert changes == sorted(changes, key=lambda change: change[:2])
    assert len({change[:2] for change in changes}) == len(changes)
    for partition, nid, state in changes:
        assert (rows[partition].get(nid), state) in LEGAL
        assert nid not in keep
        assert state is not OUT or nid in nodes


@given(ROWS, NODES, REPLICAS)
def test_a_partition_that_nobody_can_read_is_left_alone(
    rows: Rows, nodes: Nodes, replicas: int
) -> None:
    """Specification 9.23."""
    for old, new in zip(rows, tweaked(rows, nodes, replicas).rows, strict=True):
        assert readable(old) or old == new


def test_nothing_changes_if_no_node_may_have_cells() -> None:
    table = loaded([{1: UP, 2: UP}], 1)
    assert tweak(table, {}, 1) == []
    assert tweak(table, {1: ()}, 1, keep={1}) == []


# -- the table settles ---------------------------------------------------------------------------


@given(READABLE_ROWS, NODES, REPLICAS, st.randoms(use_true_random=False))
def test_replication_in_any_order_leads_to_a_table_that_stays(
    rows: Rows, nodes: Nodes, replicas: int, rng: Random
) -> None:
    """Specification 9.11."""
    table = tweaked(rows, nodes, replicas)
    chosen = [cells(row) for row in table.rows]
    order = incomplete(table)
    rng.shuffle(order)
    complete(table, order)
    assert table.rows == [dict.fromkeys(nids, UP) for nids in chosen]
    assert tweak(table, nodes, replicas) == []


@given(READABLE_ROWS, NODES, REPLICAS, st.data())
def test_a_tweak_during_replication_goes_on_with_it(
    rows: Rows, nodes: Nodes, replicas: int, data: st.DataObject
) -> None:
    table = tweaked(rows, nodes, replicas)
    if moving := incomplete(table):
        complete(table, data.draw(st.lists(st.sampled_from(moving), unique=True)))
    assert tweak(table, nodes, replicas) == []


@pytest.mark.parametrize(
    "rows",
    [
        [{2: UP, 4: UP}, {2: UP, 3: OUT, 4: FEEDING}],
        [{1: FEEDING, 3: UP}, {1: UP, 3: UP}],
    ],
)
def test_a_tweak_just_after_a_tweak_changes_nothing_among_equal_tables(rows: Rows) -> None:
    nodes: Nodes = dict.fromkeys(range(1, 5 if 4 in rows[0] else 4), ())
    assert tweak(tweaked(rows, nodes, 1), nodes, 1) == []


@given(READABLE_ROWS, NODES, REPLICAS, st.sets(NIDS))
def test_the_result_does_not_depend_on_the_order_of_cells_and_nodes(
    rows: Rows, nodes: Nodes, replicas: int, keep: set[int]
) -> None:
    backwards = [dict(reversed(row.items())) for row in rows]
    assert tweak(loaded(rows, replicas), nodes, replicas, keep) == tweak(
        loaded(backwards, replicas), dict(reversed(list(nodes.items()))), replicas, keep
    )


def lose(table: PartitionTable, nid: int) -> None:
    """As the master does when a node is lost and the cluster goes on."""
    apply(
        table,
        [
            (partition, nid, DISCARDED if row[nid] is FEEDING else OUT)
            for partition, row in enumerate(table.rows)
            if nid in readable(row) and len(readable(row)) > 1
        ],
    )


def corrupt(table: PartitionTable, nid: int) -> None:
    apply(
        table,
        [
            (partition, nid, CORRUPTED)
            for partition, row in enumerate(table.rows)
            if nid in readable(row) and len(readable(row)) > 1
        ],
    )


def drop(table: PartitionTable, nid: int) -> None:
    """As the operator may: whatever it has, others can read it."""
    if all(set(readable(row)) - {nid} for row in table.rows if nid in row):
        before = [len(readable(row)) - (nid in readable(row)) for row in table.rows]
        apply(table, without(table, {nid}))
        apply(table, fed(table))
        after = [len(readable(row)) for row in table.rows]
        wanted = table.replicas + 1
        assert all(b >= min(a, wanted) for a, b in zip(before, after, strict=True))


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("tweak"), NODES, REPLICAS),
        st.tuples(st.just("lose"), NIDS),
        st.tuples(st.just("drop"), NIDS),
        st.tuples(st.just("corrupt"), NIDS),
        st.tuples(st.just("replicated"), st.integers(0), st.integers(0)),
    ),
    max_size=12,
)


@given(st.integers(1, 5), NODES, REPLICAS, EVENTS)
@example(1, {1: ()}, 0, [("tweak", {2: ()}, 0), ("drop", 2)])
def test_a_table_survives_any_life_and_settles(
    partitions: int, nodes: Nodes, replicas: int, events: list[tuple[object, ...]]
) -> None:
    table = PartitionTable()
    table.create(partitions, replicas, list(nodes))
    for event in events:
        match event:
            case "tweak", dict(nodes), int(replicas):
                apply(table, [], replicas)
                apply(table, tweak(table, nodes, replicas))
            case "lose", int(nid):
                lose(table, nid)
            case "drop", int(nid):
                drop(table, nid)
            case "corrupt", int(nid):
                corrupt(table, nid)
            case "replicated", int(first), int(count):
                moving = incomplete(table)
                start = first % (len(moving) + 1)
                complete(table, moving[start : start + count])
        assert all(readable(row) for row in table.rows)
    apply(table, tweak(table, nodes, replicas))
    complete(table, incomplete(table))
    copies = min(replicas + 1, len(nodes))
    assert all(set(row.values()) == {UP} and len(row) == copies for row in table.rows)
    assert tweak(table, nodes, replicas) == []
