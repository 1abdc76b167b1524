"""Ids are given once, whatever a crash or damage left in other tables (specification 14.46 to 14.48)."""

from __future__ import annotations

from typing import Any

import pytest

from neo.protocol.blobs import Content, content_hash, with_content
from neo.storage.backend.api import BackendRefused, RecordDamaged
from neo.storage.backend.mariadb import engine as mariadb_engine
from neo.storage.backend.values import Values
from tests.unit.backend.harness import Harness, p64


def _content(text: bytes) -> Content:
    made = content_hash()
    made.update(text)
    return Content(len(text), made.digest())


ONE, TWO = _content(b"one"), _content(b"two!")
A, B = with_content(b"a", ONE), with_content(b"b", TWO)


def _ids(node: Harness, backend: Any, table: str) -> list[int]:
    backend.engine.drain()
    column = "id" if table == "data" else "data_id"
    return sorted(row[0] for row in node.select(backend, column, table))


def _again(node: Harness, backend: Any) -> Any:
    """Open the database in another process, as after ``kill -9``."""
    node.wait(backend.engine.stored)
    node.close()
    return node.open()


def _aborted(node: Harness, backend: Any) -> None:
    node.vote(backend, 20, {4: A})
    backend.commits.abort(p64(20))


def _committed(node: Harness, backend: Any) -> None:
    node.commit(backend, 20, {4: b"x"})


def _voted(node: Harness, backend: Any) -> None:
    node.vote(backend, 20, {4: b"x"})


@pytest.mark.parametrize(
    ("leave", "table"), [(_aborted, "content"), (_committed, "obj"), (_voted, "tobj")]
)
def test_an_id_that_another_table_has_is_not_given_again(
    node: Harness, leave: Any, table: str
) -> None:
    backend = node.ready()
    leave(node, backend)
    backend.engine.write("DELETE FROM data")
    (left,) = _ids(node, backend, table)
    backend = _again(node, backend)
    node.commit(backend, 30, {7: b"plain"})
    (given,) = _ids(node, backend, "data")
    assert given > left


def test_a_failed_insert_uses_its_id(node: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = node.ready()

    def fail(*args: object) -> None:
        raise ValueError

    with monkeypatch.context() as patch:
        patch.setattr(backend.values, "_insert", fail)
        with pytest.raises(ValueError):
            node.store_data(backend, 4, b"x")
    assert node.store_data(backend, 4, b"x") & 0xFFFF == 1


def test_a_stray_row_of_content_does_not_prevent_a_store(
    node: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Releases that gave ids again met the same error at each start."""
    monkeypatch.setattr(Values, "_first_free", lambda self, partition: partition << 48)
    backend = node.ready()
    _aborted(node, backend)
    backend = _again(node, backend)
    node.commit(backend, 30, {7: B})
    assert backend.blobs.has_content(TWO.checksum)
    assert not backend.blobs.has_content(ONE.checksum)


def test_a_content_at_the_value_of_another_object_is_detached(
    node: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Releases that gave ids again attached contents of aborted uploads to ordinary objects."""
    backend = node.ready()
    node.commit(backend, 10, {5: B, 8: with_content(b"another", ONE), 11: A})
    with monkeypatch.context() as patch:
        patch.setattr(Values, "_first_free", lambda self, partition: partition << 48)
        node.vote(backend, 20, {3: A})
        backend.commits.abort(p64(20))
        backend = _again(node, backend)
        node.commit(backend, 30, {3: b"plain"})
    node.commit(backend, 40, {9: b"also plain"})
    assert 0 in _ids(node, backend, "content")
    strays = {0, *_compressed(node, backend)}
    expected = sorted(set(_ids(node, backend, "content")) - strays)
    assert len(expected) == 3
    step: int | None = 0
    while step is not None:
        step = backend.blobs.forget_freed(step, 1)
    assert _ids(node, backend, "content") == expected
    assert backend.blobs.has_content(ONE.checksum)
    assert backend.blobs.has_content(TWO.checksum)


def _compressed(node: Harness, backend: Any) -> list[int]:
    """Give two objects a compressed value with a stray row each; return their ids."""
    made = []
    for oid, value in ((6, A), (12, b"x")):
        data_id = node.store_data(backend, oid, value, compression=1)
        backend.engine.write(
            "REPLACE INTO content (data_id, checksum, size) VALUES (?, ?, ?)", data_id, ONE.checksum, 3
        )
        made.append(data_id)
    return made


def test_a_value_in_pieces_keeps_its_content(
    mariadb: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in (("SMALL_BYTES", 8), ("BIG_BYTES", 16), ("PIECE_BYTES", 8)):
        monkeypatch.setattr(mariadb_engine, name, size)
    backend = mariadb.ready()
    mariadb.commit(backend, 10, {4: A, 7: b"plain, and longer than a piece"})
    plain = max(_ids(mariadb, backend, "data"))
    backend.engine.write(
        "INSERT INTO content (data_id, checksum, size) VALUES (?, ?, ?)", plain, TWO.checksum, 4
    )
    assert backend.blobs.forget_freed(0, 10) is None
    assert len(_ids(mariadb, backend, "content")) == 1
    assert backend.blobs.has_content(ONE.checksum)
    backend.engine.write("DELETE FROM bigdata")
    assert backend.blobs.forget_freed(0, 10) is None
    assert backend.blobs.has_content(ONE.checksum)


def test_ids_of_pieces_are_not_given_again(
    mariadb: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row of ``data`` whose pieces are gone must not delete those of another value with its own."""
    for name, size in (("SMALL_BYTES", 8), ("BIG_BYTES", 16), ("PIECE_BYTES", 8)):
        monkeypatch.setattr(mariadb_engine, name, size)
    backend = mariadb.ready()
    lost = mariadb.store_data(backend, 4, b"the pieces of this one are gone")
    backend.engine.write("DELETE FROM bigdata")
    backend = _again(mariadb, backend)
    kept = b"the pieces of this one are kept"
    mariadb.commit(backend, 20, {7: kept})
    backend.maintenance.prune_orphans(False, 0, 10)
    assert lost not in _ids(mariadb, backend, "data")
    assert backend.reads.load(p64(7), None, None).data == kept


def test_pieces_that_are_gone_are_damage_of_one_record(
    mariadb: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in (("SMALL_BYTES", 8), ("BIG_BYTES", 16), ("PIECE_BYTES", 8)):
        monkeypatch.setattr(mariadb_engine, name, size)
    backend = mariadb.ready()
    mariadb.commit(backend, 10, {4: b"in several pieces, all gone", 5: b"whole"})
    backend.engine.write("DELETE FROM bigdata")
    backend.engine.drain()
    for _ in range(2):
        with pytest.raises(RecordDamaged, match="bigdata"):
            backend.reads.load(p64(4), None, None)
    assert backend.reads.load(p64(5), None, None).data == b"whole"


def test_a_size_that_no_file_has_is_refused(node: Harness) -> None:
    backend = node.ready()
    node.commit(backend, 10, {5: B})
    with pytest.raises(BackendRefused, match="no file has more"):
        node.store_data(backend, 4, with_content(b"a", Content(1 << 63, ONE.checksum)))
    node.commit(backend, 20, {4: with_content(b"a", Content((1 << 63) - 1, ONE.checksum))})
    assert backend.blobs.objects_with(ONE.checksum, 1) == [(p64(4), p64(20))]
