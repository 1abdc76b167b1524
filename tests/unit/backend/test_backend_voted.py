"""What every backend keeps of the votes of an upstream cluster (specification 25.7, 25.24)."""

from __future__ import annotations

from typing import Any

import pytest

from neo.storage.backend.api import BackendRefused, Prepared, PreparedRows, Stored, TransactionMeta
from tests.unit.backend.harness import Harness, p64, serials
from tests.unit.backend.records import ABOVE_ALL, fetched, record

#: Partition 0 of three keeps the metadata of transaction 9, and the objects 3 and 6.
TTID = p64(9)
META = TransactionMeta(b"user", b"text", b"ext", [p64(3), p64(6)])
OTHER_META = TransactionMeta(b"", b"other", b"", [p64(6)])


def receive(
    backend: Any,
    partition: int,
    objects: dict[int, bytes | None],
    metadata: TransactionMeta | None = None,
) -> list[Stored]:
    """Replace the rows of transaction 9 in a partition."""
    backend.commits.replace_voted(TTID, partition, metadata)
    return [
        backend.commits.add_voted_object(TTID, p64(oid), fetched(data)) for oid, data in objects.items()
    ]


def commit(node: Harness, backend: Any, tid: int) -> None:
    backend.commits.lock(TTID, p64(tid))
    backend.commits.unlock(TTID, p64(tid))
    node.wait(backend.engine.executed)


def test_the_rows_of_one_partition_are_replaced(node: Harness, backend: Any) -> None:
    receive(backend, 0, {3: b"gone", 6: b"stale"}, META)
    (other,) = receive(backend, 1, {4: b"of another partition"})
    (stored,) = receive(backend, 0, {6: b"new"}, OTHER_META)
    assert backend.commits.prepared_rows(TTID) == PreparedRows(OTHER_META, [other, stored], [])
    assert backend.commits.locked_transactions() == {TTID: None}
    assert node.data_rows(backend) == 2
    backend = node.restart(backend)
    assert backend.commits.prepared_rows(TTID) == PreparedRows(OTHER_META, [other, stored], [])
    commit(node, backend, 12)
    assert backend.reads.load(p64(6), None, None) == record(12, b"new")
    assert backend.reads.load(p64(4), None, None) == record(12, b"of another partition")
    assert serials(backend, 3) == []
    assert backend.reads.transaction(p64(12)).description == b"other"
    assert backend.commits.locked_transactions() == {}


def test_metadata_stays_unless_it_is_replaced(backend: Any) -> None:
    receive(backend, 0, {3: b"x"}, META)
    receive(backend, 1, {4: b"y"})
    receive(backend, 0, {6: b"z"})
    rows = backend.commits.prepared_rows(TTID)
    assert rows.metadata == META
    assert [change.oid for change in rows.stored] == [p64(4), p64(6)]


def test_nothing_of_an_unknown_transaction_is_replaced(backend: Any) -> None:
    backend.commits.replace_voted(TTID, 0, None)
    assert backend.commits.prepared_rows(TTID) == PreparedRows(None, [], [])
    assert backend.commits.locked_transactions() == {}


def test_other_transactions_keep_their_rows(node: Harness, backend: Any) -> None:
    stored = node.vote(backend, 10, {3: b"of another transaction"})
    receive(backend, 0, {3: b"x"}, META)
    receive(backend, 0, {}, META)
    assert backend.commits.prepared_rows(p64(10)).stored == stored
    assert node.data_rows(backend) == 1


def test_an_abort_drops_what_was_replaced(node: Harness, backend: Any) -> None:
    """Specification 25.9."""
    receive(backend, 0, {3: b"x", 6: None}, META)
    receive(backend, 0, {3: b"y"}, META)
    backend.commits.abort(TTID)
    backend = node.restart(backend)
    assert backend.commits.prepared_rows(TTID) == PreparedRows(None, [], [])
    assert backend.commits.locked_transactions() == {}
    assert node.data_rows(backend) == 0


def test_what_is_locked_survives_a_restart_and_other_votes_are_dropped(
    node: Harness, backend: Any
) -> None:
    """Specification 25.24."""
    receive(backend, 0, {3: b"x"}, META)
    backend.commits.lock(TTID, p64(12))
    backend.commits.replace_voted(p64(15), 0, META)
    backend.commits.add_voted_object(p64(15), p64(6), fetched(b"y"))
    backend = node.restart(backend)
    assert backend.commits.locked_transactions() == {TTID: p64(12), p64(15): None}
    assert (backend.commits.final_tid(TTID), backend.commits.final_tid(p64(15))) == (p64(12), None)
    backend.commits.validate(TTID, p64(12))
    backend.commits.drop_unfinished()
    backend = node.restart(backend)
    assert backend.commits.locked_transactions() == {}
    assert backend.reads.load(p64(3), None, None) == record(12, b"x")
    assert node.data_rows(backend) == 1


def test_an_undo_shares_the_value_if_its_revision_is_here(node: Harness, backend: Any) -> None:
    node.commit(backend, 5, {3: b"old"})
    for _ in range(2):
        backend.commits.replace_voted(TTID, 0, META)
        backend.commits.add_voted_object(TTID, p64(3), fetched(b"old", 5))
        backend.commits.add_voted_object(TTID, p64(6), fetched(b"not here", 5))
        assert node.data_rows(backend) == 2
    backend = node.restart(backend)
    commit(node, backend, 12)
    assert backend.reads.load(p64(3), None, None) == record(12, b"old", data_serial=5)
    assert backend.reads.load(p64(6), None, None) == record(12, b"not here", data_serial=5)
    assert backend.reads.load(p64(3), p64(5), None).data == b"old"


def test_the_value_of_a_revision_stays_when_its_undo_is_dropped(
    node: Harness, backend: Any
) -> None:
    node.commit(backend, 5, {3: b"old"})
    backend.commits.replace_voted(TTID, 0, META)
    backend.commits.add_voted_object(TTID, p64(3), fetched(b"old", 5))
    receive(backend, 0, {}, META)
    assert backend.reads.load(p64(3), None, None) == record(5, b"old")
    backend.commits.abort(TTID)
    assert node.data_rows(backend) == 1


def test_deletions_keep_what_they_go_back_to(node: Harness, backend: Any) -> None:
    """The undo of a creation, and that of a deletion, have no data."""
    backend.commits.replace_voted(TTID, 0, META)
    backend.commits.add_voted_object(TTID, p64(3), fetched(None))
    backend.commits.add_voted_object(TTID, p64(6), fetched(None, 5))
    backend = node.restart(backend)
    stored = [Stored(p64(3), None, None), Stored(p64(6), None, p64(5))]
    assert backend.commits.prepared_rows(TTID).stored == stored
    assert node.data_rows(backend) == 0


def test_equal_data_is_shared_and_lives_as_long_as_one_uses_it(node: Harness) -> None:
    """With deduplication rows are found by their checksum."""
    backend = node.ready(dedup=True)
    node.commit(backend, 5, {8: b"committed"})
    receive(backend, 0, {3: b"equal", 6: b"committed"}, META)
    receive(backend, 1, {4: b"equal"})
    assert node.data_rows(backend) == 2
    receive(backend, 0, {3: b"new"}, META)
    assert node.data_rows(backend) == 3
    receive(backend, 0, {3: b"new", 6: b"new"}, META)
    assert node.data_rows(backend) == 3
    backend = node.restart(backend, dedup=True)
    receive(backend, 1, {})
    assert node.data_rows(backend) == 2
    commit(node, backend, 12)
    assert [backend.reads.load(p64(oid), None, None).data for oid in (3, 6, 8)] == [
        b"new",
        b"new",
        b"committed",
    ]


def test_a_mark_stays_while_rows_are_replaced(node: Harness, backend: Any) -> None:
    """Specification 25.26: a further partition is fetched."""
    receive(backend, 0, {3: b"x"}, META)
    mark = Prepared(TTID, b"xid", 5.0, b"", [0, 1])
    backend.marks.mark_prepared(mark, [])
    receive(backend, 1, {4: b"y"})
    backend.marks.mark_prepared(mark, [])
    backend = node.restart(backend)
    assert backend.marks.prepared() == [mark]
    rows = backend.commits.prepared_rows(TTID)
    assert [change.oid for change in rows.stored] == [p64(3), p64(4)]
    commit(node, backend, 12)
    assert [row.tid for row in backend.marks.decided()] == [p64(12)]
    assert backend.reads.load(p64(4), None, None) == record(12, b"y")


# -- refusals --------------------------------------------------------------------------------------


def test_ids_that_no_column_keeps_are_refused(node: Harness, backend: Any) -> None:
    with pytest.raises(BackendRefused, match="ttid"):
        backend.commits.replace_voted(ABOVE_ALL, 0, None)
    backend.commits.replace_voted(TTID, 0, META)
    with pytest.raises(BackendRefused, match="oid"):
        backend.commits.add_voted_object(TTID, ABOVE_ALL, fetched(b"x"))
    assert node.data_rows(backend) == 0


def test_a_record_that_is_too_big_is_refused(node: Harness, backend: Any) -> None:
    receive(backend, 0, {3: b"x"}, META)
    node.limit_values(backend, 10)
    with pytest.raises(BackendRefused, match="11 bytes"):
        backend.commits.add_voted_object(TTID, p64(6), fetched(bytes(11)))
    assert [change.oid for change in backend.commits.prepared_rows(TTID).stored] == [p64(3)]


def test_refused_metadata_replaces_nothing(backend: Any) -> None:
    receive(backend, 0, {3: b"x"}, META)
    big = META._replace(user=bytes(backend.engine.dialect.text_max + 1))
    with pytest.raises(BackendRefused, match="the user of the transaction"):
        backend.commits.replace_voted(TTID, 0, big)
    rows = backend.commits.prepared_rows(TTID)
    assert rows.metadata == META and [change.oid for change in rows.stored] == [p64(3)]
