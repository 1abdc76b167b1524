"""What every backend keeps of prepared transactions (specification 24, neo/storage/backend/api.py)."""

from __future__ import annotations

from typing import Any

import pytest

from neo.protocol.ids import time_from_tid
from neo.storage.backend.api import (
    BackendRefused,
    Decided,
    Prepared,
    PreparedRows,
    Stored,
    TransactionMeta,
)
from tests.unit.backend.harness import NP, Harness, p64, serials
from tests.unit.backend.records import ABOVE_ALL, fetched, record, rows

META = TransactionMeta(b"user", b"text", b"ext", [p64(4), p64(5)])
SINCE = 1764040000.123457


def mark(ttid: int, *partitions: int) -> Prepared:
    return Prepared(p64(ttid), b"xid-%d" % ttid, SINCE, b"what people read", [*partitions])


def prepare(
    node: Harness, backend: Any, ttid: int, objects: dict[int, Any], meta: bool = True
) -> None:
    node.vote(backend, ttid, objects, meta)
    backend.marks.mark_prepared(mark(ttid, 0, 1, 40000), [(p64(7), p64(3))])


def test_a_mark_and_its_checks_survive_a_restart(node: Harness, backend: Any) -> None:
    stored = node.vote(backend, 10, {4: b"x", 5: b"y"})
    backend.marks.mark_prepared(mark(10, 0, 1, 40000), [(p64(7), p64(3)), (p64(6), p64(0))])
    backend = node.restart(backend)
    assert backend.marks.prepared() == [mark(10, 0, 1, 40000)]
    rows = PreparedRows(META, stored, [(p64(6), p64(0)), (p64(7), p64(3))])
    assert backend.commits.prepared_rows(p64(10)) == rows


def test_a_transaction_that_only_checks_is_listed_among_the_voted_ones(
    node: Harness, backend: Any
) -> None:
    backend.commits.vote(p64(10), None, [])
    backend.marks.mark_prepared(mark(10, 1), [(p64(7), p64(3))])
    backend = node.restart(backend)
    assert backend.commits.locked_transactions() == {p64(10): None}
    assert backend.commits.prepared_rows(p64(10)) == PreparedRows(None, [], [(p64(7), p64(3))])


@pytest.mark.parametrize("end", ["unlock", "validate"])
def test_the_commit_of_a_marked_transaction_removes_the_mark_and_writes_the_outcome(
    node: Harness, backend: Any, end: str
) -> None:
    """Specification 14.40."""
    prepare(node, backend, 10, {4: b"x"})
    backend.commits.lock(p64(10), p64(13))
    getattr(backend.commits, end)(p64(10), p64(13))
    backend = node.restart(backend)
    assert backend.reads.load(p64(4), None, None) == record(13, b"x")
    assert backend.marks.prepared() == []
    assert backend.commits.prepared_rows(p64(10)) == PreparedRows(None, [], [])
    assert backend.marks.decided() == [Decided(b"xid-10", p64(10), p64(13), time_from_tid(p64(13)))]
    assert backend.commits.locked_transactions() == {}


def test_without_the_metadata_or_a_mark_no_outcome_is_written(node: Harness, backend: Any) -> None:
    """Specification 14.40."""
    prepare(node, backend, 10, {4: b"x"}, meta=False)
    backend.commits.unlock(p64(10), p64(13))
    node.commit(backend, 16, {4: b"x"})
    assert (backend.marks.decided(), backend.marks.prepared()) == ([], [])


def test_the_abort_of_a_marked_transaction_removes_everything(node: Harness, backend: Any) -> None:
    """Specification 14.40."""
    prepare(node, backend, 10, {4: b"x"})
    backend.commits.abort(p64(10))
    backend = node.restart(backend)
    assert backend.marks.prepared() == []
    assert backend.commits.prepared_rows(p64(10)) == PreparedRows(None, [], [])
    assert backend.commits.locked_transactions() == {}
    assert node.data_rows(backend) == 0


def test_the_start_of_the_operation_keeps_what_it_is_told_to(node: Harness, backend: Any) -> None:
    prepare(node, backend, 10, {4: b"x"})
    prepare(node, backend, 13, {5: b"dropped"})
    backend.marks.mark_prepared(mark(16, 1), [(p64(8), p64(3))])
    node.vote(backend, 19, {6: b"voted"})
    backend.commits.lock(p64(10), p64(22))
    backend.commits.drop_unfinished([p64(10), p64(99)])
    backend = node.restart(backend)
    assert backend.commits.locked_transactions() == {p64(10): None}
    assert backend.marks.prepared() == [mark(10, 0, 1, 40000)]
    assert node.data_rows(backend) == 1
    backend.commits.drop_unfinished()
    assert backend.marks.prepared() == []
    assert node.data_rows(backend) == 0


def test_a_serial_that_a_column_cannot_keep_is_refused(backend: Any) -> None:
    backend.commits.vote(p64(10), None, [])
    with pytest.raises(BackendRefused, match="serial"):
        backend.marks.mark_prepared(mark(10, 1), [(p64(7), ABOVE_ALL)])
    assert backend.marks.prepared() == []


def test_outcomes_are_kept_replaced_and_forgotten(node: Harness, backend: Any) -> None:
    committed = Decided(b"b", p64(10), p64(13), 5.25)
    backend.marks.decide([Decided(b"b", p64(10), None, 4.0), Decided(b"a", p64(16), None, 3.5)])
    backend.marks.decide([committed])
    backend = node.restart(backend)
    assert backend.marks.decided() == [Decided(b"a", p64(16), None, 3.5), committed]
    backend.marks.forget_decided(b"a")
    backend.marks.forget_decided(b"unknown")
    assert backend.marks.decided() == [committed]


def test_reset_drops_what_was_prepared_and_decided(node: Harness, backend: Any) -> None:
    prepare(node, backend, 10, {4: b"x"})
    backend.marks.decide([Decided(b"a", p64(16), None, 3.5)])
    node.close()
    backend = node.ready()
    assert (backend.marks.prepared(), backend.marks.decided()) == ([], [])


# -- rows that were fetched ----------------------------------------------------------------------


def test_fetched_rows_replace_those_of_one_partition(node: Harness, backend: Any) -> None:
    node.vote(backend, 10, {3: b"stale", 4: b"other partition", 6: b"gone"}, meta=False)
    backend.marks.mark_prepared(mark(10, 0, 1), [(p64(9), p64(1)), (p64(7), p64(3))])
    backend.commits.replace_prepared(mark(10, 0, 1), 0, META, [(p64(12), p64(2))])
    stored = backend.commits.add_voted_object(p64(10), p64(3), fetched(b"fetched"))
    backend = node.restart(backend)
    rows = backend.commits.prepared_rows(p64(10))
    assert rows.metadata == META
    assert [change.oid for change in rows.stored] == [p64(3), p64(4)]
    assert rows.stored[0] == stored
    assert rows.checks == [(p64(7), p64(3)), (p64(12), p64(2))]
    assert node.data_rows(backend) == 2
    node.unlock(backend, 10, 13)
    assert backend.reads.load(p64(3), None, None) == record(13, b"fetched")
    assert backend.reads.load(p64(4), None, None) == record(13, b"other partition")
    assert serials(backend, 6) == []
    assert len(backend.marks.decided()) == 1


def test_fetched_rows_of_a_transaction_that_was_unknown(node: Harness, backend: Any) -> None:
    backend.commits.replace_prepared(mark(10, 0), 0, None, [])
    backend.commits.add_voted_object(p64(10), p64(3), fetched(None))
    backend = node.restart(backend)
    assert backend.marks.prepared() == [mark(10, 0)]
    assert backend.commits.prepared_rows(p64(10)).stored == [Stored(p64(3), None, None)]
    backend.commits.abort(p64(10))
    assert backend.commits.locked_transactions() == {}


def test_a_fetched_undo_shares_the_value_if_its_revision_is_here(
    node: Harness, backend: Any
) -> None:
    node.commit(backend, 5, {3: b"old"})
    backend.commits.replace_prepared(mark(10, 0), 0, None, [])
    backend.commits.add_voted_object(p64(10), p64(3), fetched(b"old", 5))
    assert node.data_rows(backend) == 1
    backend.commits.add_voted_object(p64(10), p64(6), fetched(b"not here", 5))
    assert node.data_rows(backend) == 2
    node.unlock(backend, 10, 13)
    assert backend.reads.load(p64(3), None, None) == record(13, b"old", data_serial=5)
    assert backend.reads.load(p64(6), None, None) == record(13, b"not here", data_serial=5)
    assert backend.replication.link_undone(0) == []


def test_an_undo_loses_its_data_with_the_revision_that_it_goes_back_to(
    node: Harness, backend: Any
) -> None:
    node.commit(backend, 5, {3: b"of a cell that differs"})
    node.vote(backend, 10, {3: 5}, meta=False)
    backend.marks.mark_prepared(mark(10, 0), [])
    backend.replication.unlink_undone([(p64(5), p64(3))])
    backend.replication.delete_objects([(p64(5), p64(3))])
    assert node.data_rows(backend) == 0
    node.unlock(backend, 10, 13)
    assert backend.replication.link_undone(0) == [(p64(13), p64(3))]


def test_what_is_prepared_in_a_partition_goes_with_it(node: Harness, backend: Any) -> None:
    node.vote(backend, 10, {3: b"x", 4: b"y"}, meta=False)
    backend.marks.mark_prepared(mark(10, 0, 1), [(p64(6), p64(1)), (p64(7), p64(1))])
    node.vote(backend, 16, {9: b"voted"}, meta=False)
    assert not backend.maintenance.drop_partition(0, 100)
    rows = backend.commits.prepared_rows(p64(10))
    assert [change.oid for change in rows.stored] == [p64(4)]
    assert rows.checks == [(p64(7), p64(1))]
    assert node.data_rows(backend) == 2
    assert set(backend.commits.locked_transactions()) == {p64(10), p64(16)}


def test_metadata_and_outcomes_go_with_their_partition(node: Harness, backend: Any) -> None:
    """24.35: nobody would forget them on a node without a cell."""
    prepare(node, backend, 10, {3: b"x"})
    outcomes = [Decided(b"a", p64(1), None, 5.0), Decided(b"b", p64(2), p64(5), 6.0)]
    backend.marks.decide(outcomes)
    while backend.maintenance.drop_partition(10 % NP, 1):
        pass
    rows = backend.commits.prepared_rows(p64(10))
    assert rows.metadata is None and [change.oid for change in rows.stored] == [p64(3)]
    assert backend.marks.decided() == [row for row in outcomes if row.ttid != p64(10 % NP)]
    node.unlock(backend, 10, 13)
    assert backend.reads.transaction(p64(13)) is None
    assert len(backend.marks.decided()) == 1


# -- maintenance ---------------------------------------------------------------------------------


def test_pack_truncation_and_repair_keep_the_data_of_prepared_transactions(
    node: Harness, backend: Any
) -> None:
    node.commit(backend, 5, {3: b"old"})
    node.commit(backend, 6, {3: b"new"})
    prepare(node, backend, 10, {3: 5, 6: b"x"})
    backend.maintenance.pack(p64(8), 0, p64(0), 100)
    backend.maintenance.truncate(p64(6), range(NP))
    assert backend.maintenance.prune_orphans(False, 0, 100)[0] == 0
    backend = node.restart(backend)
    assert backend.maintenance.prune_orphans(False, 0, 100)[0] == 0
    node.unlock(backend, 10, 13)
    assert backend.reads.load(p64(3), None, None).data == b"old"
    assert backend.reads.load(p64(6), None, None) == record(13, b"x")


def test_a_truncation_forgets_later_commits_of_its_partitions(backend: Any) -> None:
    outcomes = [
        Decided(b"a", p64(10), p64(13), 1.0),
        Decided(b"b", p64(11), p64(20), 1.0),
        Decided(b"c", p64(16), None, 1.0),
        Decided(b"d", p64(19), p64(22), 1.0),
    ]
    backend.marks.decide(outcomes)
    backend.maintenance.truncate(p64(13), [1])
    assert [row.xid for row in backend.marks.decided()] == [b"a", b"b", b"c"]


def test_people_see_what_is_prepared_and_decided(node: Harness) -> None:
    def text(value: Any) -> Any:
        return value.decode() if isinstance(value, bytes) else value

    backend = node.ready()
    prepare(node, backend, 10, {4: b"x"})
    backend.marks.decide([Decided(b"a", p64(16), None, SINCE)])
    backend.engine.drain()
    (row,) = node.select(
        backend, "xid, ttid, since, text, partitions, stored, checked", "show_prepared"
    )
    assert [text(value) for value in row[:2]] == ["xid-10", "000000000000000a"]
    assert str(text(row[2])).startswith("2025-11-25 03:06:40.123")
    assert [text(value) for value in row[3:]] == ["what people read", 3, 1, 1]
    (row,) = node.select(backend, "xid, ttid, tid, outcome, decided", "show_decided")
    assert [text(v) for v in row[:4]] == ["a", "0000000000000010", None, "rolled back"]
    assert str(text(row[4])).startswith("2025-11-25 03:06:40.123")


def test_an_existing_database_gets_the_tables_when_it_is_opened(
    node: Harness, backend: Any
) -> None:
    """Specification 14.38."""
    for table in ("prepared", "prepared_check", "decided"):
        backend.engine.write(f"DROP TABLE {table}")
    backend = node.restart(backend)
    prepare(node, backend, 10, {4: b"x"})
    assert backend.marks.prepared() == [mark(10, 0, 1, 40000)]


def test_a_mark_and_an_outcome_have_their_rows(node: Harness, backend: Any) -> None:
    """Partitions are two bytes each, and a rollback has no tid (specification 14.38, 14.39)."""
    node.vote(backend, 10, {4: b"x"})
    prepared = Prepared(p64(10), b"the xid", 1764040000.5, b"text", [0, 1, 40_000])
    backend.marks.mark_prepared(prepared, [(p64(7), p64(3))])
    columns = "ttid, xid, since, text, partitions"
    partitions = b"\x00\x00\x00\x01\x9c\x40"
    assert rows(node, backend, columns, "prepared") == [
        (10, b"the xid", 1764040000.5, b"text", partitions)
    ]
    assert rows(node, backend, "ttid, oid, serial", "prepared_check") == [(10, 7, 3)]
    backend.marks.decide([Decided(b"a", p64(16), None, 3.5), Decided(b"b", p64(10), p64(13), 5.25)])
    assert rows(node, backend, "xid, ttid, tid, time", "decided") == [
        (b"a", 16, None, 3.5),
        (b"b", 10, 13, 5.25),
    ]
