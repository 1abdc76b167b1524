"""The tables of a NEO database and their columns.

Oids and tids are signed 64-bit integers; a database of NEO has no greater ones. ``timestamp`` is the
time in a tid. Records are decoded only if a requested column needs them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")


class Column(NamedTuple):
    """``default``: selected if no columns are named. ``data``: needs the record."""

    name: str
    type: pa.DataType
    default: bool = True
    data: bool = False


_REVISION = (
    Column("partition", pa.int32()),
    Column("oid", pa.int64()),
    Column("tid", pa.int64()),
    Column("timestamp", TIMESTAMP),
    Column("class", pa.string(), data=True),
    Column("size", pa.int32(), data=True),
    Column("refs", pa.list_(pa.int64()), default=False, data=True),
    Column("state", pa.string(), default=False, data=True),
    Column("data", pa.binary(), default=False, data=True),
    Column("error", pa.string(), default=False, data=True),
)

TABLES: dict[str, tuple[Column, ...]] = {
    # The objects as of one transaction.
    "objects": _REVISION,
    # Every revision; end_tid: the transaction that replaced it; seq: 1 for the first one left.
    "history": (
        *_REVISION,
        Column("end_tid", pa.int64()),
        Column("end_timestamp", TIMESTAMP),
        Column("seq", pa.int32()),
        Column("deleted", pa.bool_()),
    ),
    # Revisions in the order of transactions: the change feed.
    "changes": (*_REVISION, Column("deleted", pa.bool_())),
    "transactions": (
        Column("partition", pa.int32()),
        Column("tid", pa.int64()),
        Column("timestamp", TIMESTAMP),
        Column("user", pa.string()),
        Column("description", pa.string()),
        Column("extension", pa.string()),
        Column("oids", pa.list_(pa.int64())),
    ),
    # References of each object as of one transaction; kind: s strong, w weak, m other database.
    "references": (
        Column("partition", pa.int32(), data=True),
        Column("src", pa.int64(), data=True),
        Column("src_tid", pa.int64(), data=True),
        Column("src_class", pa.string(), data=True),
        Column("dst", pa.int64(), data=True),
        Column("dst_class", pa.string(), data=True),
        Column("kind", pa.string(), data=True),
        Column("dst_db", pa.string(), data=True),
    ),
}


def columns_of(table: str, names: Iterable[str] | None = None) -> tuple[Column, ...]:
    """Return the named columns in that order, or the default ones.

    Raise ValueError for an unknown table or column.
    """
    known = TABLES.get(table)
    if known is None:
        raise ValueError(f"there is no table {table!r}; there are: {', '.join(TABLES)}")
    if names is None:
        return tuple(column for column in known if column.default)
    by_name = {column.name: column for column in known}
    chosen = []
    for name in names:
        if name not in by_name:
            raise ValueError(f"table {table!r} has no column {name!r}; it has: {', '.join(by_name)}")
        chosen.append(by_name[name])
    return tuple(chosen)


def schema_of(columns: Iterable[Column]) -> pa.Schema:
    return pa.schema([pa.field(column.name, column.type) for column in columns])
