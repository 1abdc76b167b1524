"""What every backend promises of commits (neo/storage/backend/api.py): two phases, and undo."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha1
from typing import Any

import pytest

from neo.storage.backend.api import BackendFailure, BackendRefused, Record, Stored, TransactionMeta
from tests.unit.backend.harness import NP, UP, Harness, p64, serials
from tests.unit.backend.records import ABOVE_ALL, record

# -- two-phase commit ----------------------------------------------------------------------------


def test_nothing_of_a_transaction_is_visible_before_it_is_unlocked(
    node: Harness, backend: Any
) -> None:
    """Specification 7.35."""
    node.vote(backend, 10, {4: b"x"})
    node.wait(backend.engine.stored)
    backend.commits.lock(p64(10), p64(13))
    node.wait(backend.engine.stored)
    assert backend.reads.load(p64(4), None, None) is None
    assert backend.reads.transaction(p64(13)) is None
    assert backend.reads.last_ids([0, 1, 2]) == (None, None)
    assert backend.commits.locked_transactions() == {p64(10): p64(13)}
    assert backend.commits.final_tid(p64(10)) == p64(13)
    node.unlock(backend, 10, 13)
    assert backend.reads.load(p64(4), None, None) == record(13, b"x")
    assert backend.commits.locked_transactions() == {}
    assert backend.commits.final_tid(p64(10)) == p64(13)
    assert backend.commits.final_tid(p64(11)) is None


def test_a_vote_without_metadata_is_known_by_its_objects(node: Harness, backend: Any) -> None:
    """Specification 7.20."""
    node.vote(backend, 10, {4: b"x"}, meta=False)
    backend.commits.lock(p64(10), p64(13))
    assert backend.commits.locked_transactions() == {p64(10): None}
    assert backend.commits.final_tid(p64(10)) is None
    node.unlock(backend, 10, 13)
    assert backend.reads.load(p64(4), None, None) == record(13, b"x")
    assert backend.reads.transaction(p64(13)) is None


def test_a_locked_transaction_survives_a_restart_and_is_validated(
    node: Harness, backend: Any
) -> None:
    node.vote(backend, 10, {4: b"x", 5: b"y"})
    node.vote(backend, 11, {6: b"z"}, meta=False)
    backend.commits.lock(p64(10), p64(13))
    backend = node.restart(backend)
    assert backend.commits.locked_transactions() == {p64(10): p64(13), p64(11): None}
    backend.commits.validate(p64(10), p64(13))
    backend.commits.validate(p64(11), p64(14))
    backend.commits.drop_unfinished()
    node.wait(backend.engine.stored)
    assert backend.reads.load(p64(5), None, None) == record(13, b"y")
    assert backend.reads.load(p64(6), None, None) == record(14, b"z")
    assert backend.reads.transaction(p64(13)).oids == [p64(4), p64(5)]


def test_an_aborted_transaction_leaves_nothing(node: Harness, backend: Any) -> None:
    node.vote(backend, 10, {4: b"x"})
    backend.commits.abort(p64(10))
    backend.commits.abort(p64(77))
    assert node.data_rows(backend) == 0
    assert backend.commits.locked_transactions() == {}


def test_unfinished_transactions_are_dropped_with_their_data(node: Harness, backend: Any) -> None:
    """Specification 14.21."""
    node.commit(backend, 5, {1: b"kept"})
    node.vote(backend, 10, {4: b"x", 1: 5})
    backend = node.restart(backend)
    backend.commits.drop_unfinished()
    assert node.data_rows(backend) == 1
    assert backend.commits.locked_transactions() == {}
    assert backend.reads.load(p64(1), None, None) == record(5, b"kept")


def test_data_is_readable_before_the_vote_and_gone_once_released(
    node: Harness, backend: Any
) -> None:
    data_id = node.store_data(backend, 4, b"x")
    assert backend.values.load_data(data_id) == (0, sha1(b"x").digest(), b"x")
    backend.values.release_data([data_id])
    assert node.data_rows(backend) == 0


def test_data_ids_carry_the_partition_and_count_up(node: Harness, backend: Any) -> None:
    """Specification 14.16."""
    first = [node.store_data(backend, oid, b"x") for oid in (0, 3, 1, 2)]
    assert first == [0, 1, 1 << 48, 2 << 48]
    backend.commits.vote(p64(10), None, [Stored(p64(3), 1, None), Stored(p64(2), 2 << 48, None)])
    backend.close()
    backend = node.open()
    assert [node.store_data(backend, oid, b"y") for oid in (0, 2)] == [2, (2 << 48) + 1]


def test_the_last_partitions_have_usable_data_ids(node: Harness) -> None:
    backend = node.open()
    count = backend.engine.dialect.partitions_max
    backend.tables.change_cells(1, 0, [(count - 1, 1, UP)], 1, True)
    node.commit(backend, 10, {count - 1: b"last"})
    assert backend.reads.load(p64(count - 1), None, None) == record(10, b"last")
    assert backend.engine.read("SELECT id FROM data")[0][0] == (count - 1) << 48
    backend.close()
    backend = node.open()
    assert node.store_data(backend, count - 1, b"y") == ((count - 1) << 48) + 1
    assert backend.maintenance.prune_orphans(False, 0, 10)[:1] == (0,)


def test_ids_above_the_greatest_are_refused_in_writes(backend: Any) -> None:
    """Specification 14.1."""
    with pytest.raises(BackendRefused, match="oid ff"):
        backend.values.store_data(ABOVE_ALL, 0, bytes(20), b"x")
    with pytest.raises(BackendRefused, match="ttid ff"):
        backend.commits.vote(ABOVE_ALL, None, [])
    backend.commits.vote(p64(1), TransactionMeta(b"", b"", b"", []), [])
    with pytest.raises(BackendRefused, match="tid ff"):
        backend.commits.lock(p64(1), ABOVE_ALL)


def test_an_object_larger_than_the_backend_accepts_is_refused(node: Harness, backend: Any) -> None:
    """Specification 14.25."""
    node.limit_values(backend, 1000)
    data = bytes(1001)
    with pytest.raises(BackendRefused, match="1001 bytes.*at most 1000"):
        node.store_data(backend, 4, data)
    node.commit(backend, 10, {4: bytes(1000)})
    assert backend.reads.load(p64(4), None, None) == record(10, bytes(1000))


def test_a_write_after_an_unlock_is_made_durable_by_close(node: Harness, backend: Any) -> None:
    node.commit(backend, 10, {4: b"x"})
    backend.close()
    backend.close()
    assert node.open().reads.load(p64(4), None, None) == record(10, b"x")


def test_a_closed_backend_says_so(node: Harness, backend: Any) -> None:
    backend.close()
    for use in (
        lambda: backend.reads.load(p64(1), None, None),
        lambda: backend.tables.set_config("name", "x"),
        lambda: node.store_data(backend, 3, b"x"),
        lambda: backend.engine.stored(lambda: None),
    ):
        with pytest.raises(BackendFailure, match="not open"):
            use()


def test_only_one_process_uses_a_database(node: Harness, backend: Any) -> None:
    """Specification 14.29, 14.35, 22.3."""
    second = node.make()
    with pytest.raises(BackendFailure, match="another process uses this database"):
        second.open()
    backend.close()
    second.open()
    assert second.tables.partition_count() == NP


def test_calls_of_stored_are_answered_in_their_order(node: Harness, backend: Any) -> None:
    order: list[int] = []
    for i in range(50):
        backend.tables.set_config("x", str(i))
        backend.engine.stored(lambda i=i: order.append(i))
    node.run_until(lambda: len(order) == 50)
    assert order == list(range(50))


# -- undo ----------------------------------------------------------------------------------------


def undo(
    backend: Any, tid: int, undone: int, oid: int, pending: Stored | None = None
) -> tuple[int, int | None, bool] | None:
    """undo_serial as the client asks for it, with integers."""
    answer = backend.reads.undo_serial(p64(oid), p64(tid), p64(undone), pending)
    if answer is None:
        return None
    current, target, is_current = answer
    return int.from_bytes(current, "big"), target and int.from_bytes(target, "big"), is_current


def test_undo_goes_back_along_origins(node: Harness, backend: Any) -> None:
    """Specification 6.22."""
    node.commit(backend, 11, {4: b"23"})
    node.commit(backend, 12, {4: b"24"})
    node.commit(backend, 13, {4: b"25"})
    assert undo(backend, 14, 13, 4) == (13, 12, True)
    node.commit(backend, 14, {4: 12})
    assert backend.reads.load(p64(4), None, None) == record(14, b"24", data_serial=12)
    assert undo(backend, 15, 12, 4) == (14, 11, True)
    assert undo(backend, 15, 13, 4) == (14, 12, False)
    node.commit(backend, 15, {4: 11})
    assert undo(backend, 16, 11, 4) == (15, None, True)
    node.commit(backend, 16, {4: None})
    gone = backend.reads.load(p64(4), None, None)
    assert gone == Record(p64(16), None, None, bytes(20), b"", None)
    assert undo(backend, 17, 16, 4) == (16, 11, True), "redo of the creation"
    node.commit(backend, 17, {4: 11})
    assert undo(backend, 18, 17, 4) == (17, None, True), "to not existing again"
    assert undo(backend, 18, 99, 4) is None
    assert undo(backend, 18, 11, 5) is None


def test_undo_is_asked_as_of_a_tid(node: Harness, backend: Any) -> None:
    """Specification 6.21."""
    node.commit(backend, 11, {4: b"1"})
    node.commit(backend, 12, {4: b"2"})
    assert undo(backend, 12, 11, 4) == (11, None, True)
    assert undo(backend, 13, 11, 4) == (12, None, False)


def test_several_undos_in_one_transaction(node: Harness, backend: Any) -> None:
    """Specification 6.23."""
    for tid in 11, 12, 13:
        node.commit(backend, tid, {4: b"%d" % tid})
    assert undo(backend, 14, 13, 4) == (13, 12, True)
    pending = node.store(backend, 4, 12)
    assert undo(backend, 14, 12, 4, pending) == (13, 11, True)
    assert undo(backend, 14, 13, 4, pending) == (13, 12, False)
    resolved = Stored(p64(4), node.store_data(backend, 4, b"resolved"), None)
    assert undo(backend, 14, 12, 4, resolved) == (13, 11, False)


def test_equal_data_counts_as_current(node: Harness, backend: Any) -> None:
    """Specification 6.23."""
    for tid, data in (11, b"a"), (12, b"b"), (13, b"c"), (14, b"b"):
        node.commit(backend, tid, {4: data})
    assert undo(backend, 15, 12, 4) == (14, 11, True)
    assert undo(backend, 15, 13, 4) == (14, 12, False)


def test_undo_of_what_is_packed_away_is_an_error(node: Harness, backend: Any) -> None:
    """Specification 6.24."""
    for tid in 11, 12, 13:
        node.commit(backend, tid, {4: b"%d" % tid})
    assert backend.maintenance.pack(p64(12), 1, p64(0), 10) is None
    for undone in 11, 12:
        with pytest.raises(KeyError):
            undo(backend, 14, undone, 4)
    assert undo(backend, 14, 13, 4) == (13, 12, True)


REMOVALS: dict[str, Callable[[Any], object]] = {
    "a pack": lambda backend: backend.maintenance.pack(p64(12), 1, p64(0), 10),
    "replication": lambda backend: backend.replication.delete_objects([(p64(11), p64(4))]),
    "a truncation": lambda backend: backend.maintenance.truncate(p64(10), [1]),
}


@pytest.mark.parametrize("removal", REMOVALS)
def test_an_undo_does_not_go_back_to_what_is_being_removed(
    node: Harness, backend: Any, removal: str
) -> None:
    """Else the undo would keep a link to what is gone, since the pack is over for this object; on a
    replica that is packed later it gets another one (specification 12.22)."""
    for tid in 11, 12:
        node.commit(backend, tid, {4: b"%d" % tid})
    REMOVALS[removal](backend)
    assert backend.reads.value_at(p64(4), p64(11)) is None


def test_an_undo_goes_back_to_what_is_being_committed(node: Harness, backend: Any) -> None:
    (stored,) = node.vote(backend, 11, {4: b"x"})
    backend.commits.unlock(p64(11), p64(11))
    assert backend.reads.value_at(p64(4), p64(11)) == (stored.data_id, None)
    backend.values.release_data((stored.data_id,))


def test_a_transaction_before_the_pack_is_packed(node: Harness, backend: Any) -> None:
    """Specification 6.16, 14.14."""
    for tid in 11, 14, 17:
        node.commit(backend, tid, {4: b"%d" % tid})
    backend.maintenance.pack(p64(14), 1, p64(0), 10)
    backend.engine.drain()
    assert [backend.reads.transaction(p64(tid)).packed for tid in (11, 14, 17)] == [True, True, False]


def test_data_of_an_undo_in_progress_survives_a_pack(node: Harness, backend: Any) -> None:
    """Specification 14.22."""
    for tid in 11, 12, 13:
        node.commit(backend, tid, {4: b"%d" % tid})
    node.vote(backend, 20, {4: 11})
    backend.maintenance.pack(p64(13), 1, p64(0), 10)
    backend.engine.drain()
    assert serials(backend, 4) == [13]
    node.unlock(backend, 20, 22)
    assert backend.reads.load(p64(4), None, None).data == b"11"
    assert node.data_rows(backend) == 2
