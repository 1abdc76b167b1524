"""Pages of revisions for readers of everything (DESIGN, *Spark*)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neo.storage.backend.api import Order, PageRequest, RecordDamaged, RevisionRow
from neo.storage.backend.reads import Reads
from neo.storage.backend.sql import bound, optional_bytes, to_bytes

#: Rows looked at for one page, whatever their size: some milliseconds in which nobody else is served.
ROWS_MAX = 2_000
#: What a row costs beside its value, on the way and in the reader.
ROW_BYTES = 64

_NO_CHECKSUM = bytes(20)
_FROM = " FROM obj o LEFT JOIN data d ON d.id=o.data_id WHERE o.`partition`=?"
#: The sub-select is answered from the primary key, once for each row that is looked at.
_SNAPSHOT = (
    " AND o.oid>? AND o.tid="
    "(SELECT MAX(n.tid) FROM obj n WHERE n.`partition`=o.`partition` AND n.oid=o.oid AND n.tid<=?)"
    " ORDER BY o.oid LIMIT ?"
)
#: The rest of one object, or of one transaction, then the others: each a range of an index.
_OF_OID = " AND o.oid=? AND o.tid>? AND o.tid>=? AND o.tid<=? ORDER BY o.tid LIMIT ?"
_AFTER_OID = " AND o.oid>? AND o.tid>=? AND o.tid<=? ORDER BY o.oid, o.tid LIMIT ?"
_OF_TID = " AND o.tid=? AND o.oid>? ORDER BY o.oid LIMIT ?"
_AFTER_TID = " AND o.tid>? AND o.tid<=? ORDER BY o.tid, o.oid LIMIT ?"

#: (oid, tid, data_id, value_tid, compression, checksum, length)
_Row = tuple[int, int, int | None, int | None, int | None, bytes | None, int | None]


class Pages(Reads):
    def revisions(self, ask: PageRequest) -> tuple[list[RevisionRow], bool]:
        found = self._found(ask)
        rows: list[_Row] = []
        size = 0
        for row in found:
            if size >= ask.max_bytes:
                break
            if row[2] is not None and row[5] is None:
                raise RecordDamaged(
                    f"{self.name}: object {to_bytes(row[0]).hex()} at serial"
                    f" {to_bytes(row[1]).hex()}: 'obj' refers to row {row[2]} of 'data', which is"
                    " missing. Rebuild this node from a replica."
                )
            rows.append(row)
            size += ROW_BYTES + (int(row[6] or 0) if ask.data else 0)
        ids = [row[2] for row in rows if row[2] is not None] if ask.data else []
        values = self._values(ids)
        return [_revision(row, values) for row in rows], len(rows) < len(found) or (
            len(found) == ROWS_MAX
        )

    def _found(self, ask: PageRequest) -> list[_Row]:
        oid, tid = (-1, -1) if ask.after is None else map(bound, ask.after)
        first, last = bound(ask.min_tid), bound(ask.max_tid)
        if ask.order is Order.SNAPSHOT:
            return self._page(_SNAPSHOT, ask.partition, oid, last, ROWS_MAX)
        if ask.order is Order.BY_OID:
            rows = self._page(_OF_OID, ask.partition, oid, tid, first, last, ROWS_MAX)
            left = ROWS_MAX - len(rows)
            return rows + self._page(_AFTER_OID, ask.partition, oid, first, last, left)
        rows = []
        if first <= tid <= last:
            rows = self._page(_OF_TID, ask.partition, tid, oid, ROWS_MAX)
        left = ROWS_MAX - len(rows)
        return rows + self._page(_AFTER_TID, ask.partition, max(tid, first - 1), last, left)

    def _page(self, condition: str, *args: int) -> list[Any]:
        columns = (
            f"o.oid, o.tid, o.data_id, o.value_tid, d.compression, d.hash, {self.value_length}"
        )
        return [tuple(row) for row in self._read(f"SELECT {columns}{_FROM}{condition}", *args)]

    def _values(self, ids: Sequence[int]) -> dict[int | None, tuple[int, bytes]]:
        """(compression, value) of rows of ``data`` that exist."""
        values: dict[int | None, tuple[int, bytes]] = {}
        if not ids:
            return values
        for data_id, compression, data in self._read(
            f"SELECT d.id, d.compression, {self.value_column} FROM data d"
            f" WHERE d.id IN ({','.join(map(str, ids))})"
        ):
            compression = compression or 0
            if data is None or compression > 0x7F:
                compression, data = self._big_data(data_id, compression, data)
            values[data_id] = compression, data
        return values


def _revision(row: _Row, values: dict[int | None, tuple[int, bytes]]) -> RevisionRow:
    oid, tid, data_id, value_tid, compression, checksum, length = row
    data = None
    if data_id is None:
        compression, checksum = None, _NO_CHECKSUM
    elif data_id in values:
        compression, data = values[data_id]
    else:
        compression = (compression or 0) & 0x7F
    assert checksum is not None
    return (
        to_bytes(oid),
        to_bytes(tid),
        compression,
        checksum,
        int(length or 0),
        data,
        optional_bytes(value_tid),
    )
