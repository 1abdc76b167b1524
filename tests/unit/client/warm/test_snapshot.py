"""The file of a kept cache."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from neo.client.read.cache import Record
from neo.client.warm.snapshot import Anchor, Snapshot, UnusableError, read, write
from neo.protocol.ids import p64

ANCHOR = Anchor.of(p64(9), [p64(1), p64(2)])


def record(oid: int, tid: int, next_tid: int | None = None, data: bytes = b"data") -> Record:
    return Record(p64(oid), p64(tid), None if next_tid is None else p64(next_tid), data)


def written(*records: Record) -> bytes:
    file = io.BytesIO()
    write(file, "cluster", ANCHOR, records)
    return file.getvalue()


def reads(path: Path, data: bytes, cluster: str = "cluster") -> Snapshot:
    path.write_bytes(data)
    with open(path, "rb") as file:
        return read(file, cluster)


def values(snapshot: Snapshot) -> list[tuple[bytes, bytes, bytes | None, bytes | None, bool]]:
    return [(r.oid, r.tid, r.next_tid, r.data, r.main) for r in snapshot.records]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    used = record(2, 5, 8, b"")
    used.main = True
    snapshot = reads(tmp_path / "f", written(record(1, 3), used))
    assert snapshot.anchor == ANCHOR
    assert values(snapshot) == [
        (p64(1), p64(3), None, b"data", False),
        (p64(2), p64(5), p64(8), b"", True),
    ]


def test_effects_of_later_transactions_are_left_out(tmp_path: Path) -> None:
    """Specification 16.48."""
    removed = record(3, 1)
    removed.data = None
    snapshot = reads(tmp_path / "f", written(record(1, 3, 10), record(2, 10), record(4, 9, 9), removed))
    assert values(snapshot) == [
        (p64(1), p64(3), None, b"data", False),
        (p64(4), p64(9), p64(9), b"data", False),
    ]


def test_a_file_that_is_torn_at_any_byte_is_worth_nothing(tmp_path: Path) -> None:
    """Specification 16.49."""
    data = written(record(1, 3), record(2, 5, 8, b"more"))
    for size in range(len(data)):
        with pytest.raises(UnusableError):
            reads(tmp_path / "f", data[:size])
        with pytest.raises(UnusableError):  # a page that was never written
            reads(tmp_path / "f", data[:size] + bytes(len(data) - size))
    with pytest.raises(UnusableError):
        reads(tmp_path / "f", data + b"\0")


def test_a_file_with_a_changed_byte_is_worth_nothing(tmp_path: Path) -> None:
    """Specification 16.49."""
    data = written(record(1, 3), record(2, 5, 8, b"more"))
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0x80
        with pytest.raises(UnusableError):
            reads(tmp_path / "f", bytes(damaged))


def test_a_foreign_file_is_not_used(tmp_path: Path) -> None:
    with pytest.raises(UnusableError, match="another cluster"):
        reads(tmp_path / "f", written(record(1, 3)), "other")
    with pytest.raises(UnusableError, match="no cache"):
        reads(tmp_path / "f", b"x" * 1000)


def test_the_mark_does_not_depend_on_the_order_of_oids() -> None:
    assert Anchor.of(p64(9), [p64(2), p64(1), p64(2)]) == ANCHOR
    assert Anchor.of(p64(9), [p64(1)]) != ANCHOR
