"""What a read of a backend is compared with."""

from __future__ import annotations

from hashlib import sha1
from typing import Any

from neo.storage.backend.api import Record
from tests.unit.backend.harness import Harness, p64

ABOVE_ALL = b"\xff" * 8


def record(
    serial: int,
    data: bytes,
    next_serial: int | None = None,
    data_serial: int | None = None,
    compression: int = 0,
) -> Record:
    return Record(
        p64(serial),
        None if next_serial is None else p64(next_serial),
        compression,
        sha1(data).digest(),
        data,
        None if data_serial is None else p64(data_serial),
    )


def rows(node: Harness, backend: Any, columns: str, table: str) -> list[tuple[Any, ...]]:
    """Return all rows of a table, as they are after all writes until now, in order."""
    backend.drain()
    return sorted(tuple(row) for row in node.select(backend, columns, table))
