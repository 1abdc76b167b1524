"""What every backend promises (neo/storage/backend/api.py): what it keeps, and how it is read."""

from __future__ import annotations

import zlib
from hashlib import sha1
from typing import Any

import pytest

from neo.protocol.enums import CellState
from neo.storage.backend.api import (
    LEFT_BACKUP_TID,
    BackendFailure,
    Cell,
    RecordDamaged,
    Stored,
    Transaction,
    TransactionMeta,
)
from neo.storage.backend.sql_backend import SQLBackend
from tests.unit.backend.harness import UP, Harness, p64
from tests.unit.backend.records import ABOVE_ALL, record

MAX = b"\x7f" + b"\xff" * 7
OUT, FEEDING = CellState.OUT_OF_DATE, CellState.FEEDING
CORRUPTED, DISCARDED = CellState.CORRUPTED, CellState.DISCARDED


def as_text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()


# -- configuration and partition table -----------------------------------------------------------


def test_a_new_database_has_only_its_version_and_its_position(node: Harness) -> None:
    """Specification 14.11."""
    backend = node.open()
    assert backend.tables.get_config("version") == "3"
    rows = backend.engine.read("SELECT name FROM config ORDER BY name")
    assert [as_text(name) for (name,) in rows] == ["_acknowledged", "version"]
    assert backend.tables.partition_count() == 0
    assert backend.tables.cells() == []
    assert backend.reads.load(p64(1), None, None) is None
    assert backend.reads.last_ids([]) == (None, None)


def test_configuration_is_kept_and_rows_are_deleted(node: Harness, backend: Any) -> None:
    """Specification 14.9."""
    backend.tables.set_config("name", "clustér")
    backend.tables.set_config("truncate_tid", "00000000000000ff")
    assert backend.tables.get_config("name") == "clustér"
    backend.tables.set_config("truncate_tid", None)
    backend.close()
    backend = node.open()
    assert backend.tables.get_config("name") == "clustér"
    assert backend.tables.get_config("truncate_tid") is None
    assert (backend.tables.get_config("ptid"), backend.tables.get_config("replicas")) == ("1", "0")


def test_cells_are_written_with_their_states(node: Harness) -> None:
    """Specification 14.12."""
    backend = node.open()
    backend.tables.change_cells(
        7, 1, [(0, 1, UP), (0, 2, OUT), (1, 1, FEEDING), (1, 2, UP), (2, 1, CORRUPTED)], 1, True
    )
    expected = [Cell(0, 1, -1), Cell(0, 2, 0), Cell(1, 1, -2), Cell(1, 2, -1), Cell(2, 1, -3)]
    assert backend.tables.cells() == expected
    assert backend.tables.partition_count() == 3
    backend.close()
    backend = node.open()
    assert backend.tables.cells() == expected
    backend.tables.change_cells(8, 1, [(1, 1, DISCARDED)], 1, False)
    del expected[2]
    assert backend.tables.cells() == expected
    backend.tables.change_cells(9, 0, [(0, 1, UP)], 1, True)
    assert backend.tables.cells() == [Cell(0, 1, -1)]
    assert backend.tables.partition_count() == 1


def test_an_own_cell_that_becomes_out_of_date_keeps_what_it_is_complete_up_to(
    node: Harness, backend: Any
) -> None:
    """Specification 14.13."""
    node.commit(backend, 10, {0: b"a", 1: b"b"})  # trans in partition 1, obj in 0 and 1
    backend.tables.change_cells(2, 0, [(p, n, OUT) for p in range(3) for n in (1, 2)], 1, False)
    own = {cell.partition: cell.tid for cell in backend.tables.cells() if cell.nid == 1}
    assert own == {0: 10, 1: 10, 2: 0}
    assert {cell.tid for cell in backend.tables.cells() if cell.nid == 2} == {0}
    node.commit(backend, 13, {0: b"c"})
    backend.tables.change_cells(3, 0, [(0, 1, OUT)], 1, False)
    assert backend.tables.cells()[0] == Cell(0, 1, 10), "still complete only up to 10"


@pytest.mark.parametrize("row", ["backup_tid", LEFT_BACKUP_TID])
def test_in_backup_mode_an_own_cell_is_complete_up_to_backup_tid(
    node: Harness, backend: Any, row: str
) -> None:
    """Specification 13.31, 14.13."""
    node.commit(backend, 10, {0: b"a"})
    backend.tables.set_config(row, f"{0x1234:016x}")
    backend.tables.change_cells(2, 0, [(0, 1, OUT)], 1, False)
    assert backend.tables.cells()[0] == Cell(0, 1, 0x1234)


def test_a_corrupted_own_cell_starts_again_from_nothing(node: Harness, backend: Any) -> None:
    """Specification 14.13."""
    node.commit(backend, 10, {0: b"a"})
    backend.tables.change_cells(2, 0, [(0, 1, CORRUPTED)], 1, False)
    backend.tables.change_cells(3, 0, [(0, 1, OUT)], 1, False)
    assert backend.tables.cells()[0] == Cell(0, 1, 0)


def test_more_partitions_than_can_be_numbered_are_refused(node: Harness) -> None:
    """Specification 14.8."""
    backend = node.open()
    with pytest.raises(BackendFailure, match="partition 65536 .*fewer partitions"):
        backend.tables.change_cells(1, 0, [(65536, 1, UP)], 1, True)


def test_a_reset_erases_everything(node: Harness, backend: Any) -> None:
    node.commit(backend, 10, {0: b"a"})
    backend.tables.set_config("name", "old")
    backend.close()
    backend = node.open(reset=True)
    assert backend.tables.get_config("name") is None
    assert backend.tables.get_config("version") == "3"
    assert backend.tables.cells() == []
    assert node.data_rows(backend) == 0


# -- reads ---------------------------------------------------------------------------------------


def test_load_at_before_and_current(node: Harness, backend: Any) -> None:
    """Specification 6.10, 6.11."""
    for tid, data in (10, b"ten"), (20, b"twenty"), (30, b"thirty"):
        node.commit(backend, tid, {4: data})
    oid = p64(4)
    assert backend.reads.load(oid, None, None) == record(30, b"thirty")
    assert backend.reads.load(oid, None, MAX) == record(30, b"thirty")
    assert backend.reads.load(oid, None, ABOVE_ALL) == record(30, b"thirty")
    assert backend.reads.load(oid, None, p64(30)) == record(20, b"twenty", 30)
    assert backend.reads.load(oid, p64(10), p64(30)) == record(10, b"ten", 20)
    assert backend.reads.load(oid, p64(11), None) is None
    assert backend.reads.load(oid, None, p64(10)) is None
    assert backend.reads.load(p64(5), None, None) is None
    assert backend.reads.load(ABOVE_ALL, None, None) is None
    assert backend.reads.object_exists(oid)
    assert not backend.reads.object_exists(p64(7))
    assert not backend.reads.object_exists(ABOVE_ALL)
    assert backend.reads.last_serial(oid) == p64(30)
    assert backend.reads.last_serial(p64(5)) is None


def test_the_last_serial_of_a_new_object_is_known_without_a_read(
    node: Harness, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.vote(backend, 10, {4: b"x"})
    backend = node.restart(backend)
    node.commit(backend, 20, {7: b"y"})
    backend.replication.add_object(p64(9), record(30, b"z"))
    backend.commits.validate(p64(10), p64(10))
    node.wait(backend.engine.executed)
    expected = {4: p64(10), 5: None, 7: p64(20), 8: None, 9: p64(30)}
    assert {oid: backend.reads.last_serial(p64(oid)) for oid in expected} == expected
    if isinstance(backend, SQLBackend):  # one in memory has no statements
        monkeypatch.setattr(backend.reads, "_read", None)
    assert backend.reads.last_serial(p64(10)) is None


def test_every_byte_and_compression_comes_back(node: Harness, backend: Any) -> None:
    data = bytes(range(256)) * 3 + b"%s ? '\\''\0"
    compressed = zlib.compress(data)
    stored = [
        Stored(p64(1), node.store_data(backend, 1, data), None),
        Stored(p64(2), node.store_data(backend, 2, compressed, 1), None),
        Stored(p64(3), node.store_data(backend, 3, b""), None),
    ]
    meta = TransactionMeta(b"\xff\0'", b"\\%", bytes(range(256)), [p64(1), p64(2), p64(3)])
    backend.commits.vote(p64(9), meta, stored)
    node.unlock(backend, 9, 12)
    assert backend.reads.load(p64(1), None, None) == record(12, data)
    assert backend.reads.load(p64(2), None, None) == record(12, compressed, compression=1)
    assert backend.reads.load(p64(3), None, None) == record(12, b"")
    assert backend.reads.transaction(p64(12)) == Transaction(
        p64(12), b"\xff\0'", b"\\%", bytes(range(256)), False, list(meta.oids), p64(9)
    )


def test_a_value_that_does_not_match_its_checksum_is_reported_not_returned(
    node: Harness, backend: Any
) -> None:
    """Specification 6.8."""
    node.commit(backend, 10, {4: b"right"})
    backend.engine.write("UPDATE data SET value=?", b"wrong")
    backend.engine.drain()
    with pytest.raises(RecordDamaged, match="0000000000000004.*000000000000000a.*'data'"):
        backend.reads.load(p64(4), None, None)


def test_a_missing_value_is_reported(node: Harness, backend: Any) -> None:
    node.commit(backend, 10, {4: b"right"})
    backend.engine.write("DELETE FROM data")
    backend.engine.drain()
    with pytest.raises(RecordDamaged, match="0000000000000004.*missing"):
        backend.reads.load(p64(4), None, None)


def test_history_is_newest_first_with_sizes_as_stored(node: Harness, backend: Any) -> None:
    node.commit(backend, 10, {4: b"1"})
    node.commit(backend, 11, {4: b"22"})
    node.commit(backend, 12, {4: None})
    expected = [(p64(12), 0), (p64(11), 2), (p64(10), 1)]
    assert backend.reads.history(p64(4), 0, 10) == expected
    assert backend.reads.history(p64(4), 1, 2) == expected[1:2]
    assert backend.reads.history(p64(4), 3, 9) == []
    assert backend.reads.history(p64(5), 0, 10) == []


def test_tids_in_both_directions(node: Harness, backend: Any) -> None:
    """Specification 6.18, 6.19."""
    for tid in range(10, 20):
        node.commit(backend, tid, {0: b"x"})
    down = [p64(tid) for tid in range(19, 9, -1)]
    assert backend.reads.tids_descending(0, 100, [0, 1, 2]) == down
    assert backend.reads.tids_descending(2, 5, [0, 1, 2]) == down[2:5]
    assert backend.reads.tids_descending(0, 100, [1]) == [p64(t) for t in (19, 16, 13, 10)]
    assert backend.reads.tids_descending(0, 0, [0, 1, 2]) == []
    assert backend.reads.tids_ascending(p64(10), p64(16), 10, 1) == [p64(t) for t in (10, 13, 16)]
    assert backend.reads.tids_ascending(p64(11), ABOVE_ALL, 2, 1) == [p64(t) for t in (13, 16)]


def test_oids_are_those_that_exist_now(node: Harness, backend: Any) -> None:
    """Specification 6.15."""
    node.commit(backend, 10, dict.fromkeys(range(0, 30), b"x"))
    node.commit(backend, 11, {6: None, 9: b"y"})
    assert backend.reads.oids(0, p64(0), 4) == [p64(0), p64(3), p64(9), p64(12)]
    assert backend.reads.oids(0, p64(13), 100) == [p64(o) for o in (15, 18, 21, 24, 27)]
    assert backend.reads.oids(1, p64(28), 9) == [p64(28)]


def test_distinct_oids_are_those_of_any_revision(node: Harness, backend: Any) -> None:
    """Deleted ones, too; how often each was written does not matter."""
    assert backend.reads.greatest_oid(0) is None
    assert backend.reads.distinct_oids(0, p64(0), 10) == []
    node.commit(backend, 10, dict.fromkeys((3, 4, 6, 9, 12), b"x"))
    for tid in range(11, 18):
        node.commit(backend, tid, {6: None, 9: b"%d" % tid})
    assert backend.reads.distinct_oids(0, p64(0), 10) == [p64(3), p64(6), p64(9), p64(12)]
    assert backend.reads.distinct_oids(0, p64(4), 2) == [p64(6), p64(9)]
    assert backend.reads.distinct_oids(0, p64(6), 1) == [p64(6)]
    assert backend.reads.distinct_oids(0, p64(13), 10) == []
    assert [backend.reads.greatest_oid(p) for p in range(3)] == [p64(12), p64(4), None]


def test_the_size_is_that_of_tables_and_indexes(node: Harness, backend: Any) -> None:
    """MariaDB tells it from statistics, which are not always new."""
    before = backend.engine.size()
    node.commit(backend, 10, {3: bytes(range(256)) * 4_000})
    assert backend.engine.size() >= before >= 0 and backend.engine.size() > 0


def test_last_ids_are_those_of_the_given_partitions(node: Harness, backend: Any) -> None:
    """Specification 5.9."""
    node.commit(backend, 10, {4: b"x"})
    node.commit(backend, 12, {3: b"x"})
    assert backend.reads.last_ids([0, 1, 2]) == (p64(4), p64(12))
    assert backend.reads.last_ids([1]) == (p64(4), p64(10))
    assert backend.reads.last_ids([2]) == (None, None)


# -- deduplication, big values -------------------------------------------------------------------


def test_equal_values_are_kept_once_with_dedup(node: Harness) -> None:
    """Specification 14.5."""
    backend = node.ready(dedup=True)
    first = node.store_data(backend, 4, b"same")
    assert node.store_data(backend, 5, b"same") == first
    assert node.store_data(backend, 5, b"same", compression=1) != first
    backend.values.release_data([first])
    assert backend.values.load_data(first)[2] == b"same"
    backend.commits.vote(p64(10), None, [Stored(p64(4), first, None)])
    backend.commits.unlock(p64(10), p64(10))
    node.commit(backend, 11, {5: b"same"})
    node.commit(backend, 12, {4: b"other"})
    backend.maintenance.pack(p64(12), 1, p64(0), 10)
    backend.engine.drain()
    assert backend.reads.load(p64(5), None, None) == record(11, b"same")


def test_without_dedup_equal_values_are_kept_apart(node: Harness, backend: Any) -> None:
    """Specification 14.5."""
    assert node.store_data(backend, 4, b"same") != node.store_data(backend, 4, b"same")


@pytest.mark.parametrize("size", [(4 << 20), (16 << 20) - 1, 16 << 20, (24 << 20) + 1])
def test_a_big_value_comes_back_whole_and_is_deleted_whole(
    node: Harness, backend: Any, size: int
) -> None:
    data = (b"\0'\\x" * (size // 4 + 1))[:size]  # three of four bytes need an escape
    node.commit(backend, 10, {4: data})
    node.commit(backend, 11, {4: b"small"})
    loaded = backend.reads.load(p64(4), p64(10), None)
    assert loaded.data == data
    assert loaded.compression == 0
    assert backend.values.load_data(backend.engine.read("SELECT MIN(id) FROM data")[0][0])[2] == data
    assert backend.reads.history(p64(4), 0, 9) == [(p64(11), 5), (p64(10), size)]
    backend.maintenance.pack(p64(11), 1, p64(0), 10)
    assert node.data_rows(backend) == 1
    if node.adapter != "SQLite":
        assert backend.engine.read("SELECT COUNT(*) FROM bigdata")[0][0] == 0


def test_tables_show_dates_and_hexadecimal_ids_to_people(node: Harness) -> None:
    """Specification 14.6."""
    from persistent.TimeStamp import TimeStamp

    backend = node.ready()
    tid = TimeStamp(2026, 11, 5, 23, 59, 58.25).raw()
    number = int.from_bytes(tid, "big")
    node.commit(backend, number, {4: b"data"})

    def text(value: Any) -> Any:
        return value.decode() if isinstance(value, bytes) else value

    row = backend.engine.read("SELECT tid, committed, objects, user, oids FROM show_trans")[0]
    shown, committed, *others = map(text, row)
    assert shown == tid.hex()
    # A tid counts in 14 ns: a quarter of a second is rounded, and one backend cuts, one rounds.
    assert committed in ("2026-11-05 23:59:58.250", "2026-11-05 23:59:58.249")
    assert others == [1, "user", p64(4).hex()]
    row = backend.engine.read("SELECT oid, tid, hash, compression, size, value_tid FROM show_obj")[
        0
    ]
    checksum = sha1(b"data").hexdigest()
    assert [str(text(v)) for v in row] == [p64(4).hex(), tid.hex(), checksum, "0", "4", "None"]
    row = backend.engine.read("SELECT id, `partition`, size FROM show_data")[0]
    assert [str(text(v)) for v in row] == [f"{1 << 48:016x}", "1", "4"]
    assert [text(v) for v in backend.engine.read("SELECT state FROM show_pt")[0]] == ["UP_TO_DATE"]
    assert len(backend.engine.read("SELECT * FROM show_ttrans")) == 0
    assert len(backend.engine.read("SELECT * FROM show_tobj")) == 0


def test_what_has_its_room_is_there_and_durable_with_the_next_promise(node: Harness) -> None:
    """Specification 7.54: the vote, then the lock, on both backends."""
    backend = node.ready()
    node.vote(backend, 10, {1: b"x"})
    node.wait(backend.engine.written)
    assert backend.commits.locked_transactions() == {p64(10): None}
    backend.commits.lock(p64(10), p64(12))
    backend = node.restart(backend)
    assert backend.commits.locked_transactions() == {p64(10): p64(12)}
