"""What every backend does with rows that come from a replica (neo/storage/backend/api.py)."""

from __future__ import annotations

from typing import Any

import pytest

from neo.protocol.enums import CellState
from neo.storage.backend.api import BackendRefused, Cell, Stored, Transaction
from tests.unit.backend.harness import NP, Harness, p64, serials
from tests.unit.backend.records import record

OUT, UP = CellState.OUT_OF_DATE, CellState.UP_TO_DATE


def rows(backend: Any, first: int, oid: int, last: int, length: int) -> list[tuple[int, int]]:
    found = backend.replication.objects_ascending(0, p64(first), p64(oid), p64(last), length)
    return [(int.from_bytes(tid, "big"), int.from_bytes(oid, "big")) for tid, oid in found]


def test_objects_are_listed_by_tid_then_oid_from_both(node: Harness, backend: Any) -> None:
    node.commit(backend, 10, {6: b"a", 3: b"b", 1: b"of another partition"})
    node.commit(backend, 20, {3: b"c", 9: b"d"})
    assert rows(backend, 0, 0, 99, 9) == [(10, 3), (10, 6), (20, 3), (20, 9)]
    assert rows(backend, 10, 4, 99, 9) == [(10, 6), (20, 3), (20, 9)]
    assert rows(backend, 0, 0, 19, 9) == [(10, 3), (10, 6)]
    assert rows(backend, 0, 0, 99, 3) == [(10, 3), (10, 6), (20, 3)]
    assert rows(backend, 20, 8, 20, 9) == [(20, 9)]


def test_the_tail_of_a_partition_is_its_last_rows(node: Harness, backend: Any) -> None:
    """Transactions of partition 0 are 12 and 21, objects 3, 6 and 9 (specification 5.14)."""
    for tid, oids in ((10, (3, 1)), (12, (6, 3)), (21, (9, 6, 2)), (22, (3,))):
        node.commit(backend, tid, dict.fromkeys(oids, b"x"))
    node.vote(backend, 24, {3: b"not committed"})

    def tail(max_tid: bytes, length: int) -> tuple[list[int], list[tuple[int, int]]]:
        found = backend.reads.tail(0, max_tid, length)
        keys = [(int.from_bytes(tid), int.from_bytes(oid)) for tid, oid in found.revisions]
        return [int.from_bytes(tid) for tid in found.transactions], keys

    everything = [(10, 3), (12, 3), (12, 6), (21, 6), (21, 9), (22, 3)]
    assert tail(b"\xff" * 8, 9) == ([12, 21], everything)
    assert tail(p64(21), 9) == ([12, 21], everything[:5])
    assert tail(p64(21), 2) == ([12, 21], everything[3:5])
    assert tail(p64(20), 1) == ([12], [(12, 6)])
    assert tail(p64(9), 1) == ([], [])
    assert backend.reads.tail(2, p64(99), 9).revisions == [(p64(21), p64(2))]


def test_many_records_are_read_as_one_by_one(node: Harness, backend: Any) -> None:
    """Small and big, of an undo, deleted, and not there."""
    small: dict[int, bytes | int | None] = {3 * n: b"%d" % n for n in range(70)}
    node.commit(backend, 10, small)
    node.commit(backend, 20, {0: b"new", 3: b"big" * 30_000, 6: b"of one"})
    backend.replication.add_object(p64(6), record(30, None))
    backend.replication.add_object(p64(9), record(30, b"3", data_serial=10))
    node.wait(backend.engine.stored)
    wanted = backend.replication.objects_ascending(0, p64(0), p64(0), p64(99), 100)
    wanted[5:5] = [(p64(15), p64(0)), (p64(10), p64(999))]
    found = list(backend.reads.records(wanted))
    assert found[5:7] == [None, None]
    assert sum(r is not None for r in found) == 75
    singly = [backend.reads.load(oid, tid, None) for tid, oid in wanted]
    assert [r and r._replace(next_serial=None) for r in found] == [
        r and r._replace(next_serial=None) for r in singly
    ]
    assert list(backend.reads.records([])) == []


def test_a_replicated_transaction_is_like_a_committed_one(node: Harness, backend: Any) -> None:
    row = Transaction(p64(9), b"user", b"text", b"ext", False, [p64(3), p64(4)], p64(6))
    backend.replication.add_transaction(row)
    node.wait(backend.engine.stored)
    assert backend.reads.transaction(p64(9)) == row
    assert backend.commits.final_tid(p64(6)) == p64(9)
    assert backend.reads.tids_ascending(p64(0), p64(99), 10, 0) == [p64(9)]


def test_a_replicated_object_is_like_a_committed_one(node: Harness, backend: Any) -> None:
    backend.replication.add_object(p64(3), record(10, b"old"))
    backend.replication.add_object(p64(3), record(20, b"new"))
    backend.replication.add_object(p64(6), record(20, None))
    node.wait(backend.engine.stored)
    assert backend.reads.load(p64(3), None, p64(20)).data == b"old"
    assert backend.reads.load(p64(3), None, None).data == b"new"
    assert backend.reads.load(p64(6), None, None).compression is None
    assert backend.reads.last_ids([0]) == (p64(6), p64(20))
    assert backend.maintenance.prune_orphans(True, 0, 100)[0] == 0


def test_a_replicated_undo_shares_the_data_or_brings_it_if_it_is_packed_away(
    node: Harness, backend: Any
) -> None:
    """Specification 10.8."""
    backend.replication.add_object(p64(3), record(10, b"old"))
    backend.replication.add_object(p64(3), record(20, b"new"))
    backend.replication.add_object(p64(3), record(30, b"old", data_serial=10))
    node.wait(backend.engine.stored)
    assert node.data_rows(backend) == 2
    assert backend.reads.load(p64(3), None, None)[4:] == (b"old", p64(10))
    backend.replication.add_object(p64(6), record(30, b"old", data_serial=10))
    node.wait(backend.engine.stored)
    assert node.data_rows(backend) == 3
    assert backend.reads.load(p64(6), None, None)[4:] == (b"old", p64(10))


def test_a_blind_undo_gets_its_data_when_the_revision_is_there(node: Harness, backend: Any) -> None:
    """Also one that goes back to another one (specification 14.19)."""
    for tid, value_serial in (30, 10), (40, 30):
        backend.commits.vote(p64(tid), None, [Stored(p64(3), None, p64(value_serial))])
        backend.commits.unlock(p64(tid), p64(tid))
    node.commit(backend, 50, {6: None})  # the creation was undone: nothing to look for
    assert backend.replication.link_undone(0) == [(p64(30), p64(3)), (p64(40), p64(3))]
    backend.replication.add_object(p64(3), record(10, b"old"))
    assert backend.replication.link_undone(0) == []
    node.wait(backend.engine.stored)
    assert backend.reads.load(p64(3), p64(30), None).data == b"old"
    assert backend.reads.load(p64(3), p64(40), None).data == b"old"
    assert backend.reads.load(p64(6), None, None).compression is None
    assert node.data_rows(backend) == 1


def test_a_blind_undo_of_what_is_packed_away_gets_the_data_that_is_sent_with_it(
    node: Harness, backend: Any
) -> None:
    backend.commits.vote(p64(30), None, [Stored(p64(3), None, p64(10))])
    backend.commits.unlock(p64(30), p64(30))
    assert backend.replication.link_undone(0) == [(p64(30), p64(3))]
    backend.replication.add_object(p64(3), record(30, b"old", data_serial=10))
    assert backend.replication.link_undone(0) == []
    node.wait(backend.engine.stored)
    assert backend.reads.load(p64(3), None, None)[4:] == (b"old", p64(10))
    assert node.data_rows(backend) == 1


def test_an_undo_to_what_is_about_to_go_is_as_one_that_was_accepted_blindly(
    node: Harness, backend: Any
) -> None:
    node.commit(backend, 10, {3: b"old", 6: b"other"})
    node.commit(backend, 20, {3: b"new"})
    for tid, oid, value_serial in (30, 3, 10), (40, 3, 20), (50, 3, 30), (60, 6, 10):
        backend.replication.add_object(p64(oid), record(tid, b"sent", data_serial=value_serial))
    gone = [(p64(10), p64(3))]
    backend.replication.unlink_undone(gone)
    backend.replication.delete_objects(gone)
    assert backend.replication.link_undone(0) == [(p64(30), p64(3))]
    backend.replication.add_object(p64(3), record(30, b"old"))
    assert backend.replication.link_undone(0) == []
    node.wait(backend.engine.stored)
    found = {tid: backend.reads.load(p64(3), p64(tid), None) for tid in (30, 40, 50)}
    assert {tid: r and r.data for tid, r in found.items()} == {30: b"old", 40: b"new", 50: b"old"}
    assert serials(backend, 6) == [60, 10]


def test_the_value_of_an_undo_is_told_as_it_is_after_a_pack(node: Harness, backend: Any) -> None:
    """Specification 12.11."""
    node.commit(backend, 10, {3: b"old"})
    node.commit(backend, 20, {3: b"new"})
    for tid, value_serial in (30, 10), (40, 10), (50, 20):
        backend.replication.add_object(p64(3), record(tid, b"sent", data_serial=value_serial))
    told = [backend.reads.packed_value(p64(3), p64(tid), p64(25)) for tid in (20, 30, 40, 50)]
    assert told == [None, None, p64(30), p64(20)]
    assert backend.reads.packed_value(p64(3), p64(40), p64(5)) == p64(10)
    with pytest.raises(KeyError):
        backend.reads.packed_value(p64(3), p64(35), p64(25))


def test_the_value_of_an_undo_that_is_not_committed_is_told_as_it_is_after_a_pack(
    node: Harness, backend: Any
) -> None:
    """Specification 25.64."""
    node.commit(backend, 10, {3: b"old"})
    node.commit(backend, 20, {3: b"new"})
    assert backend.reads.packed_undo(p64(3), p64(10), p64(15)) == p64(10), "it stays"
    assert backend.reads.packed_undo(p64(3), p64(10), p64(25)) is None, "nobody else has the data"
    backend.replication.add_object(p64(3), record(30, b"sent", data_serial=10))
    told = [backend.reads.packed_undo(p64(3), p64(tid), p64(25)) for tid in (10, 20, 30, 7)]
    assert told == [p64(30), p64(20), p64(30), p64(7)]
    assert backend.reads.packed_undo(p64(6), p64(7), p64(25)) == p64(7), "it has no revisions"


def test_rows_that_the_source_has_not_are_deleted_with_their_data(
    node: Harness, backend: Any
) -> None:
    node.commit(backend, 9, {3: b"kept", 6: b"bad"})
    node.commit(backend, 12, {3: b"bad too"})
    backend.replication.delete_objects([(p64(9), p64(6)), (p64(12), p64(3)), (p64(12), p64(9))])
    backend.replication.delete_transactions([p64(12)])
    node.wait(backend.engine.stored)
    assert serials(backend, 3) == [9]
    assert serials(backend, 6) == []
    assert node.data_rows(backend) == 1
    assert backend.reads.tids_ascending(p64(0), p64(99), 10, 0) == [p64(9)]


def test_progress_of_an_own_outdated_cell_survives_until_it_is_forgotten(
    node: Harness, backend: Any
) -> None:
    backend.tables.change_cells(2, 0, [(0, 1, OUT), (1, 1, UP), (2, 2, OUT)], 1, True)
    backend.tables.set_complete(0, 1, p64(20))
    backend.tables.set_complete(0, 1, p64(10))  # less than it has
    backend.tables.set_complete(1, 1, p64(20))  # not out of date
    backend.close()
    backend = node.open()
    assert backend.tables.cells() == [Cell(0, 1, 20), Cell(1, 1, -UP.value), Cell(2, 2, 0)]
    backend.tables.forget_complete(1)
    backend.close()
    backend = node.open()
    assert backend.tables.cells() == [Cell(0, 1, 0), Cell(1, 1, -UP.value), Cell(2, 2, 0)]


def test_a_pack_elsewhere_counts_as_a_pack_here(node: Harness, backend: Any) -> None:
    """Specification 12.7."""
    node.commit(backend, 20, {3: b"a"})
    node.commit(backend, 30, {3: b"b"})
    assert backend.reads.undo_serial(p64(3), p64(99), p64(10), None) is None
    backend.replication.packed_elsewhere(p64(15))
    with pytest.raises(KeyError):
        backend.reads.undo_serial(p64(3), p64(99), p64(10), None)


def test_metadata_that_this_backend_cannot_keep_is_refused(backend: Any) -> None:
    big = bytes(backend.engine.dialect.text_max + 1)
    with pytest.raises(BackendRefused, match="the user of the transaction"):
        backend.replication.add_transaction(Transaction(p64(NP), big, b"", b"", False, [], p64(NP)))
