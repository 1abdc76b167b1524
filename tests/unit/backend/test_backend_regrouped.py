"""Rows for another number of partitions, beside those in use (specification 27.90 to 27.97)."""

from __future__ import annotations

from typing import Any

import pytest

from neo.protocol.enums import CellState
from neo.storage.backend.api import FIRST_PLACE, Cell, Place
from neo.storage.backend.regrouped import other, switch_statements
from tests.unit.backend.harness import NP, UP, Harness, p64

AFTER = 8


def fill(node: Harness, backend: Any, length: int = 2) -> None:
    """Copy all rows."""
    place: Place | None = FIRST_PLACE
    for _ in range(200):
        place = backend.regrouping.regroup(place, length)
        node.wait(backend.engine.executed)
        if place is None:
            return
    raise AssertionError("it does not end")


def begun(node: Harness, partitions: int = NP) -> Any:
    """Return a backend with some revisions, which begins to regroup its rows."""
    backend = node.ready(partitions)
    for tid in range(100, 110):
        node.commit(backend, tid, {tid % 7: b"a%d" % tid, 20 + tid: b"b%d" % tid})
    assert backend.regrouping.begin_regrouping(AFTER) == ""
    return backend


def check_both(node: Harness, backend: Any, active: int, kept: int) -> None:
    """Compare the rows in use with the others."""
    backend.engine.drain()
    for table, columns, key in (
        ("obj", "oid, tid, data_id, value_tid", "oid"),
        ("trans", "tid, packed, oids, user, description, ext, ttid", "tid"),
    ):
        rows = sorted(map(tuple, node.select(backend, f"`partition`, {columns}", table)))
        others = sorted(
            map(tuple, node.select(backend, f"`partition`, {columns}", other(table, kept)))
        )
        assert rows
        assert {row[0] for row in rows} == {row[1] % active for row in rows}, key
        assert sorted(row[1:] for row in rows) == sorted(row[1:] for row in others)
        assert all(row[0] == row[1] % kept for row in others)


def contents(backend: Any) -> dict[int, Any]:
    return {oid: backend.reads.load(p64(oid), None, None) for oid in range(140)}


@pytest.mark.parametrize("length", [1, 2, 1000])
def test_all_rows_are_copied_in_steps_of_any_length(node: Harness, length: int) -> None:
    backend = begun(node)
    assert backend.regrouping.regrouped() is None
    fill(node, backend, length)
    assert backend.regrouping.regrouped() == AFTER
    check_both(node, backend, NP, AFTER)


def test_changes_while_rows_are_copied_and_after_it_are_made_twice(node: Harness) -> None:
    backend = begun(node)
    place: Place | None = FIRST_PLACE
    tid = 200
    while place is not None:
        place = backend.regrouping.regroup(place, 3)
        node.commit(backend, tid, {tid % 5: b"c%d" % tid, 1000 + tid: b"d"})
        tid += 1
    node.commit(backend, tid, {3: 203})
    backend.maintenance.pack(p64(104), 1, p64(0), 100)
    backend.replication.delete_objects([(p64(tid), p64(3))])
    backend.maintenance.truncate(p64(204), [0, 1])
    check_both(node, backend, NP, AFTER)


@pytest.mark.parametrize("before", [1, 2, 3, 12])
def test_the_switch_shows_the_same_objects_by_other_partitions(node: Harness, before: int) -> None:
    backend = begun(node, before)
    fill(node, backend)
    seen = contents(backend)
    backend.regrouping.switch_partitions(AFTER)
    node.wait(backend.engine.executed)
    assert backend.regrouping.regrouped() == before
    assert backend.tables.partition_count() == AFTER
    assert backend.tables.cells() == [Cell(partition, 1, -1) for partition in range(AFTER)]
    assert contents(backend) == seen
    node.commit(backend, 300, {6: b"after", 1300: b"new"})
    check_both(node, backend, AFTER, before)
    backend.regrouping.switch_partitions(before)
    node.wait(backend.engine.executed)
    assert backend.tables.partition_count() == before
    assert backend.reads.load(p64(6), None, None).serial == p64(300)
    check_both(node, backend, before, AFTER)


def test_the_switch_survives_a_restart(node: Harness) -> None:
    backend = begun(node)
    fill(node, backend)
    seen = contents(backend)
    backend.regrouping.switch_partitions(AFTER)
    for _ in range(2):
        backend = node.restart(backend)
        assert backend.tables.partition_count() == AFTER
        assert backend.regrouping.regrouped() == NP
        assert contents(backend) == seen
    node.commit(backend, 300, {6: b"after", 1300: b"new"})
    check_both(node, backend, AFTER, NP)


def test_a_copy_that_was_interrupted_begins_again(node: Harness) -> None:
    backend = begun(node)
    backend.regrouping.regroup(FIRST_PLACE, 5)
    backend = node.restart(backend)
    node.commit(backend, 300, {6: b"after"})
    assert backend.regrouping.regrouped() is None
    while not backend.regrouping.drop_regrouped(10):
        pass
    assert backend.regrouping.begin_regrouping(AFTER) == ""
    fill(node, backend)
    check_both(node, backend, NP, AFTER)


@pytest.mark.parametrize("switched", [False, True])
def test_other_rows_are_deleted_in_steps(node: Harness, switched: bool) -> None:
    backend = begun(node)
    fill(node, backend)
    seen = contents(backend)
    if switched:
        backend.regrouping.switch_partitions(AFTER)
    steps = 1
    while not backend.regrouping.drop_regrouped(5):
        steps += 1
        assert backend.regrouping.regrouped() is None
    assert steps < 50
    assert backend.regrouping.drop_regrouped(5)
    backend = node.restart(backend)
    assert backend.regrouping.regrouped() is None
    assert contents(backend) == seen
    assert backend.tables.get_config("_regrouping") is None
    node.commit(backend, 300, {6: b"after"})
    assert backend.reads.load(p64(6), None, None).serial == p64(300)
    assert backend.regrouping.begin_regrouping(5) == ""
    fill(node, backend)
    check_both(node, backend, AFTER if switched else NP, 5)


def test_cells_that_are_grouped_are_as_good_as_the_worst(node: Harness) -> None:
    backend = node.ready(4)
    out, bad = CellState.OUT_OF_DATE, CellState.CORRUPTED
    changes = [(0, 2, out), (1, 2, UP), (2, 2, UP), (3, 2, bad), (0, 3, UP), (2, 3, UP), (1, 3, UP)]
    backend.tables.change_cells(2, 1, changes, 1, False)
    assert backend.regrouping.begin_regrouping(2) == ""
    fill(node, backend)
    backend.regrouping.switch_partitions(2)
    assert backend.tables.cells() == [
        Cell(0, 1, -1),
        Cell(0, 2, 0),
        Cell(0, 3, -1),
        Cell(1, 1, -1),
        Cell(1, 2, -3),
    ]


def test_a_reset_deletes_the_other_rows(node: Harness) -> None:
    backend = begun(node)
    fill(node, backend)
    node.wait(backend.engine.stored)
    node.close()
    backend = node.open(reset=True)
    assert backend.regrouping.regrouped() is None
    backend.tables.change_cells(1, 0, [(p, 1, UP) for p in range(NP)], 1, True)
    node.commit(backend, 300, {6: b"after"})
    assert backend.reads.load(p64(6), None, None).serial == p64(300)


@pytest.mark.parametrize("done", [1, 6, 7, 9, 13])
def test_a_switch_that_was_interrupted_is_undone(node: Harness, done: int) -> None:
    """MariaDB commits each of these statements."""
    backend = begun(node)
    fill(node, backend)
    seen = contents(backend)
    statements = switch_statements(backend.engine.dialect.name, NP, AFTER)
    for statement in statements[:done]:
        backend.engine.write(statement)
    backend = node.restart(backend)
    assert backend.tables.partition_count() == NP
    assert backend.regrouping.regrouped() == AFTER
    assert contents(backend) == seen
    node.commit(backend, 300, {6: b"after", 1300: b"new"})
    check_both(node, backend, NP, AFTER)
    backend.regrouping.switch_partitions(AFTER)
    check_both(node, backend, AFTER, NP)


def test_a_tid_is_found_by_the_number_with_which_it_was_given(node: Harness) -> None:
    """Specification 27.100: verification after the switch asks for what one node has not unlocked."""
    backend = node.ready(NP)
    ttid, tid = NP, 2 * NP  # congruent by the former number only
    assert ttid % NP == tid % NP and ttid % AFTER != tid % AFTER
    node.vote(backend, ttid, {1: b"one"})
    node.wait(backend.engine.executed)
    backend.commits.lock(p64(ttid), p64(tid))
    backend.commits.unlock(p64(ttid), p64(tid))
    assert backend.regrouping.begin_regrouping(AFTER) == ""
    fill(node, backend)
    for partitions in (AFTER, NP):
        backend.regrouping.switch_partitions(partitions)
        assert backend.commits.final_tid(p64(ttid)) == p64(tid)
        assert backend.commits.final_tid(p64(ttid + AFTER * NP)) is None
