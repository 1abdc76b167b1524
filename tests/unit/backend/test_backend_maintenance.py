"""What every backend promises of maintenance (neo/storage/backend/api.py): what goes, and what stays."""

from __future__ import annotations

from typing import Any

import pytest

from neo.protocol.enums import CellState
from neo.storage.backend.maintenance import ROWS_PER_OBJECT
from neo.storage.backend.revisions import LookAhead
from tests.unit.backend.harness import Harness, p64, serials
from tests.unit.backend.records import record


def test_truncation_deletes_what_is_later(node: Harness, backend: Any) -> None:
    for tid in 11, 12, 13:
        node.commit(backend, tid, {4: b"%d" % tid, 5: b"five"})
    node.commit(backend, 14, {4: 11})
    backend.tables.change_cells(2, 0, [(0, 1, CellState.OUT_OF_DATE)], 1, False)
    backend.tables.change_cells(2, 0, [(2, 1, CellState.OUT_OF_DATE)], 1, False)
    assert backend.tables.cells()[2].tid == 14
    backend.maintenance.truncate(p64(11), [0, 1, 2])
    backend.engine.drain()
    assert serials(backend, 4) == serials(backend, 5) == [11]
    assert backend.reads.tids_descending(0, 10, [0, 1, 2]) == [p64(11)]
    assert node.data_rows(backend) == 2
    assert backend.reads.last_ids([0, 1, 2]) == (p64(5), p64(11))
    assert [cell.tid for cell in backend.tables.cells()] == [11, -1, 11]


def test_truncation_leaves_other_partitions_alone(node: Harness, backend: Any) -> None:
    node.commit(backend, 11, {4: b"x", 5: b"y"})
    backend.maintenance.truncate(p64(5), [1])
    backend.engine.drain()
    assert serials(backend, 4) == []
    assert serials(backend, 5) == [11]


def test_pack_keeps_the_last_revision_up_to_the_tid_and_all_later_ones(
    node: Harness, backend: Any
) -> None:
    """Specification 12.1."""
    for tid in 11, 12, 13, 14:
        node.commit(backend, tid, {4: b"%d" % tid})
    node.commit(backend, 15, {4: 11})
    node.commit(backend, 16, {4: 11})
    backend.maintenance.pack(p64(13), 1, p64(0), 10)
    backend.engine.drain()
    assert serials(backend, 4) == [16, 15, 14, 13]
    assert backend.reads.load(p64(4), p64(15), None) == record(15, b"11", 16)
    assert backend.reads.load(p64(4), p64(16), None) == record(16, b"11", data_serial=15)
    assert node.data_rows(backend) == 3
    assert backend.tables.get_config("_pack_tid") == "13"


@pytest.mark.parametrize("length", [1, 10])
def test_pack_keeps_the_deletion_of_the_last_object(
    node: Harness, backend: Any, length: int
) -> None:
    """A master goes on after the greatest oid that is left, and gives no oid twice: here those of
    partition 1 are given up to 7, and 10 only after the tid of the pack (specification 12.1)."""
    node.commit(backend, 11, {4: b"x", 7: b"y"})
    node.commit(backend, 12, {4: None, 7: None})
    node.commit(backend, 13, {10: b"z"})
    oid: bytes | None = p64(0)
    while oid is not None:
        oid = backend.maintenance.pack(p64(12), 1, oid, length)
    backend.engine.drain()
    assert [serials(backend, oid) for oid in (4, 7, 10)] == [[], [12], [13]]
    backend.maintenance.pack(p64(13), 1, p64(0), 10)
    backend.engine.drain()
    assert [serials(backend, oid) for oid in (4, 7, 10)] == [[], [], [13]]
    assert backend.reads.last_ids([1])[0] == p64(10)


def test_pack_removes_an_object_that_does_not_exist(node: Harness, backend: Any) -> None:
    """Specification 12.1."""
    node.commit(backend, 11, {4: b"x", 1: b"y", 7: b"z"})
    node.commit(backend, 12, {4: None})
    node.commit(backend, 13, {1: None})
    node.commit(backend, 14, {1: 11})
    backend.maintenance.pack(p64(13), 1, p64(0), 10)
    backend.engine.drain()
    assert serials(backend, 4) == []
    assert not backend.reads.object_exists(p64(4))
    assert backend.reads.load(p64(1), None, None) == record(14, b"y")
    assert node.data_rows(backend) == 2


def test_pack_goes_on_where_it_stopped(node: Harness, backend: Any) -> None:
    """Specification 12.8."""
    oids = range(0, 30, 3)
    for tid in 11, 12:
        node.commit(backend, tid, dict.fromkeys(oids, b"%d" % tid))
    steps = []
    following = p64(0)
    while following is not None:
        steps.append(int.from_bytes(following, "big"))
        following = backend.maintenance.pack(p64(12), 0, following, 4)
    backend.engine.drain()
    assert steps == [0, 12, 24]
    assert all(serials(backend, oid) == [12] for oid in oids)
    assert node.data_rows(backend) == 10


def test_a_pack_passes_over_what_needs_none(node: Harness, backend: Any) -> None:
    """It has steps for what it removes, and for each bounded number of rows (specification 12.24)."""
    oids = range(0, 3 * 4 * ROWS_PER_OBJECT, 3)
    node.commit(backend, 11, dict.fromkeys(oids, b"only"))
    first, last = oids[0], oids[-1]
    node.commit(backend, 12, {first: b"second", last: None})
    for tid in range(13, 13 + 2 * ROWS_PER_OBJECT):
        node.commit(backend, tid, {last: b"%d" % tid})
    end, steps = tid, 0
    following: bytes | None = p64(0)
    while following is not None:
        steps += 1
        following = backend.maintenance.pack(p64(end), 0, following, 1)
    backend.engine.drain()
    assert steps == 4
    assert [serials(backend, oid) for oid in (first, oids[1], last)] == [[12], [11], [end]]
    assert node.data_rows(backend) == len(oids)


@pytest.mark.parametrize("follows", [True, False])
def test_a_deletion_that_many_later_objects_follow_is_decided_in_steps(
    node: Harness, backend: Any, follows: bool
) -> None:
    """Specification 12.1, 12.25: none of the objects behind it has a revision up to the tid, or only one,
    behind the rows of two steps."""
    deleted, behind = 4, [*range(7, 7 + 9 * ROWS_PER_OBJECT, 3)]
    node.commit(backend, 11, {deleted: b"x", 1: b"y"})
    node.commit(backend, 12, {deleted: None, 1: b"z"})
    if follows:
        node.commit(backend, 13, {behind.pop(2 * ROWS_PER_OBJECT): b"early"})
    node.commit(backend, 14, dict.fromkeys(behind, b"late"))
    ahead, steps, following = LookAhead(), [], p64(0)
    while following is not None:
        following = backend.maintenance.pack(p64(13), 1, following, 1, ahead)
        steps.append(following)
        assert len(steps) < 20, steps
    backend.engine.drain()
    # The step before returns it, and each that cannot decide.
    assert steps.count(p64(deleted)) == 1 + (1 if follows else 2)
    assert serials(backend, deleted) == ([] if follows else [12])
    assert [serials(backend, oid) for oid in (1, behind[0], behind[-1])] == [[12], [14], [14]]


def test_orphans_are_counted_then_deleted(node: Harness, backend: Any) -> None:
    node.commit(backend, 11, {4: b"kept"})
    for size in 1, 2, 3:
        node.store_data(backend, 3, bytes(size))
    backend.engine.stored(lambda: None)
    backend.close()
    backend = node.open()
    node.vote(backend, 12, {7: b"pending"})
    assert backend.maintenance.prune_orphans(True, 0, 100) == (3, 6, None)
    assert node.data_rows(backend) == 5
    rows, size, following = backend.maintenance.prune_orphans(False, 0, 2)
    assert (rows, size, following) == (2, 3, 2)
    assert backend.maintenance.prune_orphans(False, following, 100) == (1, 3, None)
    assert backend.maintenance.prune_orphans(False, 0, 100) == (0, 0, None)
    assert node.data_rows(backend) == 2


def test_a_dropped_partition_is_deleted_in_steps(node: Harness, backend: Any) -> None:
    for tid in 11, 12, 13:
        node.commit(backend, tid, {4: b"%d" % tid, 7: b"x", 5: b"kept"})
    steps = 0
    while backend.maintenance.drop_partition(1, 2):
        steps += 1
    assert steps == 3
    backend.engine.drain()
    assert serials(backend, 4) == serials(backend, 7) == []
    assert serials(backend, 5) == [13, 12, 11]
    assert backend.reads.tids_descending(0, 10, [0, 1, 2]) == [p64(12), p64(11)]
    assert node.data_rows(backend) == 3
