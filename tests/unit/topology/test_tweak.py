"""Tweaks of the partition table: properties of any, and a twin that tries all possible tables."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import combinations, product
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from neo.protocol.enums import CellState
from neo.protocol.packets import CellChange
from neo.topology.partitions import PartitionTable
from neo.topology.tweak import fed, gently, replicated, tweak

UP, OUT, FEEDING, CORRUPTED, DISCARDED = (
    CellState.UP_TO_DATE,
    CellState.OUT_OF_DATE,
    CellState.FEEDING,
    CellState.CORRUPTED,
    CellState.DISCARDED,
)
Path = tuple[str, ...]
Nodes = Mapping[int, Path]
Rows = list[dict[int, CellState]]

NIDS = st.integers(1, 7)
STATES = st.sampled_from([UP, OUT, FEEDING, CORRUPTED])
ROWS = st.lists(st.dictionaries(NIDS, STATES, max_size=5), min_size=1, max_size=8)
READABLE_ROWS = st.lists(
    st.builds(
        lambda row, nid, state: row | {nid: state},
        st.dictionaries(NIDS, STATES, max_size=4),
        NIDS,
        st.sampled_from([UP, FEEDING]),
    ),
    min_size=1,
    max_size=8,
)
#: Rooms, machines, disks; some nodes say less, or nothing.
PATHS = st.lists(st.sampled_from("ab"), max_size=3).map(tuple)
NODES = st.dictionaries(NIDS, PATHS, min_size=1, max_size=6)
FLAT_NODES = st.sets(NIDS, min_size=1, max_size=6).map(lambda nids: dict.fromkeys(nids, ()))
REPLICAS = st.integers(0, 3)


def readable(row: Mapping[int, CellState]) -> set[int]:
    return {nid for nid, state in row.items() if state in (UP, FEEDING)}


def cells(row: Mapping[int, CellState]) -> set[int]:
    """Nodes that have the partition, or will."""
    return {nid for nid, state in row.items() if state in (UP, OUT)}


def loads(table: PartitionTable, nodes: Iterable[int]) -> Counter[int]:
    return Counter(dict.fromkeys(nodes, 0)) + Counter(n for row in table.rows for n in cells(row))


def spread(table: PartitionTable, nodes: Iterable[int]) -> int:
    """Between the greatest number of cells on a node and the least."""
    numbers = [sum(nid in cells(row) for row in table.rows) for nid in nodes]
    return max(numbers) - min(numbers)


def new_cells(changes: Iterable[CellChange]) -> int:
    return sum(state is OUT for _, _, state in changes)


def loaded(rows: Rows, replicas: int) -> PartitionTable:
    table = PartitionTable()
    table.load(1, replicas, [list(row.items()) for row in rows])
    return table


def apply(table: PartitionTable, changes: list[CellChange], replicas: int | None = None) -> None:
    assert table.ptid is not None
    table.change(table.ptid + 1, table.replicas if replicas is None else replicas, changes)


def tweaked(rows: Rows, nodes: Nodes, replicas: int, keep: Collection[int] = ()) -> PartitionTable:
    table = loaded(rows, replicas)
    apply(table, tweak(table, nodes, replicas, keep))
    return table


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
    nodes = {1: ("a",), 2: ("b", "2"), 3: ("b", "3"), 4: ("b", "4")}
    table = tweaked([{1: UP}] * 6, nodes, 1)
    assert loads(table, nodes) == {1: 6, 2: 2, 3: 2, 4: 2}


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
    table = tweaked(rows, nodes, replicas, keep)
    copies = min(replicas + 1, len(nodes.keys() - keep))
    for old, new in zip(rows, table.rows, strict=True):
        assert len(readable(new)) >= min(len(readable(old)), copies)
        assert bool(readable(new)) == bool(readable(old))


@given(READABLE_ROWS, NODES, REPLICAS)
def test_each_feeding_cell_waits_for_a_cell_that_is_incomplete(
    rows: Rows, nodes: Nodes, replicas: int
) -> None:
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


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("tweak"), NODES, REPLICAS),
        st.tuples(st.just("lose"), NIDS),
        st.tuples(st.just("corrupt"), NIDS),
        st.tuples(st.just("replicated"), st.integers(0), st.integers(0)),
    ),
    max_size=12,
)


@given(st.integers(1, 5), NODES, REPLICAS, EVENTS)
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


# -- examples ------------------------------------------------------------------------------------


def test_a_node_that_joins_gets_outdated_cells() -> None:
    """As captured from the reference: one replica more, one node more."""
    table = loaded([{1: UP}] * 4, 1)
    assert tweak(table, {1: ("host", "1"), 2: ("host", "2")}, 1) == [
        (partition, 2, OUT) for partition in range(4)
    ]


def test_cells_of_kept_nodes_stay_when_no_replica_is_wanted() -> None:
    """As captured from the reference: the operator lists the node that will be dropped."""
    table = loaded([{1: UP, 2: UP}] * 4, 0)
    assert tweak(table, {2: ()}, 0, keep={1}) == []


def test_cells_of_kept_nodes_are_not_counted_as_replicas() -> None:
    assert tweak(loaded([{1: UP, 2: UP}], 1), {2: (), 3: ()}, 1, keep={1}) == [(0, 3, OUT)]


def test_a_node_to_be_emptied_feeds_until_it_is_replaced() -> None:
    table = loaded([{1: UP, 2: UP}], 1)
    apply(table, tweak(table, {2: (), 3: ()}, 1))
    assert table.rows == [{1: FEEDING, 2: UP, 3: OUT}]
    assert fed(table) == []
    apply(table, replicated(table, 0, 3))
    assert table.rows == [{1: FEEDING, 2: UP, 3: UP}]
    apply(table, fed(table))
    assert table.rows == [{2: UP, 3: UP}]


def test_cells_in_excess_are_discarded_at_once() -> None:
    assert tweak(loaded([{1: UP, 2: UP, 3: OUT}], 0), {1: (), 2: (), 3: ()}, 0) == [
        (0, 2, DISCARDED),
        (0, 3, DISCARDED),
    ]


def test_a_feeding_cell_that_is_needed_again_is_up_to_date() -> None:
    assert tweak(loaded([{1: FEEDING, 2: OUT}], 0), {1: ()}, 0) == [
        (0, 1, UP),
        (0, 2, DISCARDED),
    ]


def test_a_corrupted_cell_is_copied_anew_where_it_is_if_no_other_node_is_free() -> None:
    assert tweak(loaded([{1: UP, 2: CORRUPTED}], 1), {1: (), 2: ()}, 1) == [(0, 2, OUT)]


def test_a_corrupted_cell_is_dropped_if_others_are_enough() -> None:
    table = loaded([{1: UP, 2: UP, 3: CORRUPTED}], 1)
    assert tweak(table, {1: (), 2: ()}, 1) == [(0, 3, DISCARDED)]


def test_a_feeding_cell_stays_while_readable_cells_are_too_few() -> None:
    """Node 1 was away for a moment: that it is back is not the end of the move from 2 to 3."""
    table = loaded([{1: OUT, 2: FEEDING, 3: OUT}], 1)
    apply(table, replicated(table, 0, 1))
    assert fed(table) == []
    apply(table, replicated(table, 0, 3))
    assert fed(table) == [(0, 2, DISCARDED)]


def test_the_cell_that_feeds_already_goes_on_if_one_is_enough() -> None:
    assert tweak(loaded([{1: UP, 2: FEEDING, 3: OUT}], 0), {3: ()}, 0) == [(0, 1, DISCARDED)]


def test_a_feeding_cell_is_not_needed_if_there_are_as_many_others_as_wanted() -> None:
    assert fed(loaded([{1: FEEDING, 2: UP, 3: OUT}], 0)) == [(0, 1, DISCARDED)]


def test_only_feeding_cells_in_excess_are_discarded_while_others_are_incomplete() -> None:
    table = loaded([{1: FEEDING, 2: FEEDING, 3: UP, 4: OUT}], 1)
    assert fed(table) == [(0, 1, DISCARDED)]


def test_what_can_be_read_feeds_before_it_goes_if_not_everybody_knows_the_table() -> None:
    """Decision 6: the operator commands a tweak while a new cell has just become readable."""
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


@pytest.mark.parametrize(("replicas", "before"), [(0, 30), (1, 1), (2, 30), (3, 25)])
def test_a_big_cluster_is_balanced_in_less_than_2_seconds(replicas: int, before: int) -> None:
    nodes = {nid: (f"room {nid % 3}", f"machine {nid % 7}", str(nid)) for nid in range(1, 51)}
    table = PartitionTable()
    table.create(1000, replicas, list(range(1, before + 1)))
    start = time.process_time()
    changes = tweak(table, nodes, replicas)
    assert time.process_time() - start < 2
    assert new_cells(changes) >= 390 * (replicas + 1)
