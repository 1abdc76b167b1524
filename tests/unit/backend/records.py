"""What a read of a backend is compared with."""

from __future__ import annotations

from hashlib import sha1
from typing import Any

from neo.storage.backend.api import Record
from tests.unit.backend.harness import Harness, p64

ABOVE_ALL = b"\xff" * 8


def record(
    serial: int,
    data: bytes | None,
    next_serial: int | None = None,
    data_serial: int | None = None,
    compression: int = 0,
) -> Record:
    """``data`` None: a deletion."""
    return Record(
        p64(serial),
        None if next_serial is None else p64(next_serial),
        None if data is None else compression,
        bytes(20) if data is None else sha1(data).digest(),
        data or b"",
        None if data_serial is None else p64(data_serial),
    )


def fetched(data: bytes | None, data_serial: int | None = None) -> Record:
    """A row of a transaction that is not committed, as another node sends it."""
    return record(0, data, data_serial=data_serial)


def rows(node: Harness, backend: Any, columns: str, table: str) -> list[tuple[Any, ...]]:
    """Return all rows of a table, as they are after all writes until now, in order."""
    backend.engine.drain()
    return sorted(tuple(row) for row in node.select(backend, columns, table))
