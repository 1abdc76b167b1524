"""The rows that a node writes, as another program reads them in the tables (specification 14)."""

from __future__ import annotations

import struct
from dataclasses import replace
from hashlib import sha1
from typing import Any
from zlib import crc32

import pytest

from neo.protocol.codec import LIMIT_PEER, encode
from neo.protocol.enums import CellState
from neo.protocol.ids import XID_MAX
from neo.protocol.packets import AddPrepared, AddTransaction, AddVoted
from neo.storage.backend.acknowledged import LogEnd, Position
from neo.storage.backend.api import BackendRefused, Record, Stored
from neo.storage.backend.mariadb import engine
from neo.storage.backend.sql import METADATA_MAX, PACKED_OID_BYTES
from tests.unit.backend.harness import NP, UP, Harness, p64
from tests.unit.backend.records import rows

META = (b"user", b"text", b"ext")


def test_a_transaction_in_progress_has_its_rows_and_then_its_final_ones(node: Harness) -> None:
    """Partitions are those of the ids, of the ttid before the commit (specification 14.7, 14.14, 14.15,
    14.17, 14.18, 14.20, 14.21)."""
    columns = "`partition`, tid, packed, oids, user, description, ext, ttid"
    backend = node.ready()
    node.vote(backend, 10, {4: b"x", 5: None})
    value = 1 << 48
    oids = p64(4) + p64(5)
    assert rows(node, backend, "id, hash, compression, value", "data") == [
        (value, sha1(b"x").digest(), 0, b"x")
    ]
    objects = "`partition`, oid, tid, data_id, value_tid"
    assert rows(node, backend, objects, "tobj") == [(1, 4, 10, value, None), (2, 5, 10, None, None)]
    assert rows(node, backend, columns, "ttrans") == [(1, None, 0, oids, *META, 10)]
    backend.commits.lock(p64(10), p64(13))
    assert rows(node, backend, columns, "ttrans") == [(1, 13, 0, oids, *META, 10)]
    backend.commits.unlock(p64(10), p64(13))
    assert rows(node, backend, columns, "trans") == [(1, 13, 0, oids, *META, 10)]
    assert rows(node, backend, objects, "obj") == [(1, 4, 13, value, None), (2, 5, 13, None, None)]
    assert not rows(node, backend, "oid", "tobj") and not rows(node, backend, "ttid", "ttrans")


def test_an_undo_shares_the_row_of_data_and_a_blind_one_has_none(
    node: Harness, backend: Any
) -> None:
    """Specification 14.18, 14.19."""
    node.commit(backend, 10, {3: b"old"})
    node.commit(backend, 20, {3: b"new", 6: b"x"})
    node.commit(backend, 30, {3: 10})
    backend.commits.vote(p64(40), None, [Stored(p64(6), None, p64(10))])
    backend.commits.unlock(p64(40), p64(40))
    assert rows(node, backend, "oid, tid, data_id, value_tid", "obj") == [
        *((3, 10, 0, None), (3, 20, 1, None), (3, 30, 0, 10)),
        *((6, 20, 2, None), (6, 40, None, 10)),
    ]


def test_a_value_stays_while_a_transaction_in_progress_refers_to_it(
    node: Harness, backend: Any
) -> None:
    """References are counted again when the database is opened (specification 14.22)."""
    node.commit(backend, 10, {3: b"old"})
    node.commit(backend, 20, {3: b"new"})
    node.vote(backend, 30, {3: 10}, meta=False)
    backend = node.restart(backend)
    backend.replication.delete_objects([(p64(10), p64(3))])
    assert node.data_rows(backend) == 2
    backend.commits.abort(p64(30))
    assert node.data_rows(backend) == 1


def test_two_values_with_one_hash_are_refused_with_dedup(
    node: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 14.5."""

    class Same:
        def __init__(self, data: bytes) -> None:
            pass

        def digest(self) -> bytes:
            return bytes(20)

    monkeypatch.setattr("neo.storage.backend.values.sha1", Same)
    backend = node.ready(dedup=True)
    first = backend.values.store_data(p64(4), 0, bytes(20), b"one")
    assert backend.values.store_data(p64(4), 0, bytes(20), b"one") == first
    with pytest.raises(BackendRefused, match="two different values"):
        backend.values.store_data(p64(4), 0, bytes(20), b"two")


def test_the_number_of_partitions_is_that_of_the_rows(node: Harness) -> None:
    """Specification 14.8, 14.12."""
    backend = node.open()
    changes = [(6, 1, UP), (0, 2, CellState.OUT_OF_DATE), (1, 2, CellState.FEEDING)]
    backend.tables.change_cells(1, 0, [*changes, (2, 2, CellState.CORRUPTED)], 1, True)
    assert backend.tables.partition_count() == 7
    expected = [(0, 2, 0), (1, 2, -2), (2, 2, -3), (6, 1, -1)]
    assert rows(node, backend, "`partition`, nid, tid", "pt") == expected
    limit = {"SQLite": 32_768}.get(node.adapter, 65_536)
    assert backend.engine.dialect.partitions_max == limit


def test_settings_of_the_format_are_text(node: Harness, backend: Any) -> None:
    """The tid of the last pack is decimal (specification 14.9)."""
    backend.replication.packed_elsewhere(p64(18))
    found = dict(rows(node, backend, "name, value", "config"))
    text = {
        name.decode() if isinstance(name, bytes) else name: value.decode()
        if isinstance(value, bytes)
        else value
        for name, value in found.items()
    }
    del text["_acknowledged"]
    assert text == {"version": "3", "ptid": "1", "replicas": "0", "_pack_tid": "18"}


def test_metadata_that_a_column_cannot_keep_is_refused_before_it_is_written(node: Harness) -> None:
    """Specification 14.25."""
    dialect = node.ready().engine.dialect
    if node.adapter != "SQLite":
        dialect.check_metadata(bytes(65_535), b"", b"", [])
        for wrong in ((bytes(65_536), b"", b""), (b"", bytes(65_536), b"")):
            with pytest.raises(BackendRefused, match="65535"):
                dialect.check_metadata(*wrong, [])
        most = ((1 << 24) - 1) // 8
        dialect.check_metadata(b"", b"", b"", [b"oid 1234"] * most)
        with pytest.raises(BackendRefused, match="objects"):
            dialect.check_metadata(b"", b"", b"", [b"oid 1234"] * (most + 1))
    limit = {"SQLite": 10**9}.get(node.adapter, 10**9 - 100)
    assert limit - 1000 <= node.opened[-1].engine.value_max <= limit  # type: ignore[attr-defined]


@pytest.mark.parametrize("oids", [0, 4096])
def test_metadata_that_no_message_could_carry_is_refused(node: Harness, oids: int) -> None:
    """Specification 7.21: AskStoreTransaction is shorter than the messages for other nodes."""
    dialect = replace(node.ready().engine.dialect, text_max=1 << 29, oids_max=1 << 29)
    half = METADATA_MAX // 2
    text = bytes(METADATA_MAX - half - oids * PACKED_OID_BYTES)
    dialect.check_metadata(b"", bytes(half), text, [p64(1)] * oids)
    with pytest.raises(BackendRefused, match="the most that travels between two nodes"):
        dialect.check_metadata(b"u", bytes(half), text, [p64(1)] * oids)


def test_metadata_that_is_not_refused_fits_in_all_messages() -> None:
    """Specification 7.21."""
    ttid, every, text = p64(1), list(range(32768)), bytes(1000)

    def messages(oids: list[bytes]) -> list[int]:
        empty = (b"", b"", b"", oids)
        return [
            len(encode(1, message))
            for message in (
                AddPrepared(ttid, bytes(XID_MAX), 1.5, text, every, empty, []),
                AddVoted(ttid, 32767, empty),
                AddTransaction(ttid, b"", b"", b"", True, ttid, oids),
            )
        ]

    lengths_of_fields = 4 * 5
    assert METADATA_MAX + max(messages([])) + lengths_of_fields <= LIMIT_PEER
    one, two = messages([ttid]), messages([ttid] * 2)
    more = [after - before for before, after in zip(one, two, strict=True)]
    assert more == [PACKED_OID_BYTES] * 3


def test_a_big_value_of_mariadb_is_cut_in_pieces(
    mariadb: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 14.4."""
    for name, size in (("SMALL_BYTES", 8), ("BIG_BYTES", 16), ("PIECE_BYTES", 8)):
        monkeypatch.setattr(engine, name, size)
    backend = mariadb.ready()
    data = b"12345678abcdefgh+"
    mariadb.commit(backend, 10, {4: data})
    mariadb.commit(backend, 11, {4: b"small"})
    pieces = rows(mariadb, backend, "id, value", "bigdata")
    first = pieces[0][0]
    assert pieces == [(first, data[:8]), (first + 1, data[8:16]), (first + 2, b"+")]
    assert rows(mariadb, backend, "compression, value", "data") == [
        (0, b"small"),
        (0x80, struct.pack(">II", first, len(data))),
    ]


def test_a_value_of_64_megabytes(node: Harness, backend: Any) -> None:
    data = bytes(range(256)) * (1 << 18)
    node.commit(backend, 10, {4: data})
    node.wait(backend.engine.stored)
    assert backend.reads.load(p64(4), None, None).data == data


def test_the_bounds_of_big_values() -> None:
    """Specification 14.4."""
    assert (engine.BIG_BYTES, engine.PIECE_BYTES) == (16 << 20, 8 << 20)


def test_the_mark_is_one_line() -> None:
    """Specification 14.10, 14.30."""
    position = Position("ab" * 8, 0x12, LogEnd(b"saltsalt", 0x34))
    text = f"neo-acknowledged 1 {'ab' * 8} {0x12:016x} {b'saltsalt'.hex()} {0x34:08x}".encode()
    assert position.line() == text + b" %08x\n" % crc32(text)
    assert position.row() == f"{'ab' * 8}:18"


def test_the_generation_grows_with_each_start_and_each_clean_end(sqlite: Harness) -> None:
    """Specification 14.32."""

    def generation(backend: Any) -> int:
        return int(backend.tables.get_config("_acknowledged").split(":")[1])

    backend = sqlite.ready()
    sqlite.wait(backend.engine.stored)
    found = [generation(backend)]
    for _ in range(3):
        backend.close()
        backend = sqlite.open()
        sqlite.commit(backend, 3 * NP + found[-1], {3: b"x"})
        sqlite.wait(backend.engine.stored)
        found.append(generation(backend))
    assert all(later >= earlier + 2 for earlier, later in zip(found, found[1:], strict=False))


def test_a_replicated_row_has_the_same_form(node: Harness, backend: Any) -> None:
    """Specification 14.16, 14.18."""
    backend.replication.add_object(p64(4), Record(p64(10), None, 1, sha1(b"z").digest(), b"z", None))
    assert rows(node, backend, "oid, tid, data_id, value_tid", "obj") == [(4, 10, 1 << 48, None)]
    assert rows(node, backend, "id, hash, compression, value", "data") == [
        (1 << 48, sha1(b"z").digest(), 1, b"z")
    ]
