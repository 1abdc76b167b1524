"""Pages of revisions for readers of everything (DESIGN, *Spark*)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neo.storage.backend.api import (
    ROW_BYTES,
    Key,
    Order,
    PageRequest,
    RecordDamaged,
    RevisionRow,
)
from neo.storage.backend.reads import Reads
from neo.storage.backend.sql import bound, optional_bytes, to_bytes

#: Rows looked at for one page, whether they belong to it or not and whatever their size: some
#: milliseconds in which nobody else is served.
ROWS_MAX = 2_000

_NO_CHECKSUM = bytes(20)
_JOIN = " LEFT JOIN data d ON d.id=o.data_id"
_FROM = f" FROM obj o{_JOIN} WHERE o.`partition`=?"
#: ``<PRIMARY>``: what makes a database use the primary key.
_BY_OID = _FROM.replace("obj o", "obj o<PRIMARY>")
#: The rest of one object, or of one transaction, then the others: each a range of an index, of which
#: every row belongs to the page.
_OF_OID = f"{_BY_OID} AND o.oid=? AND o.tid>? AND o.tid>=? AND o.tid<=? ORDER BY o.tid LIMIT ?"
_OF_TID = f"{_FROM} AND o.tid=? AND o.oid>? ORDER BY o.oid LIMIT ?"
_AFTER_TID = f"{_FROM} AND o.tid>? AND o.tid<=? ORDER BY o.tid, o.oid LIMIT ?"
#: Other objects: what belongs to the page, of the rows that are looked at.
_KEYS = " FROM obj o<PRIMARY> WHERE o.`partition`=? AND o.oid>? ORDER BY o.oid, o.tid LIMIT ?"
_AFTER_OID = (
    f" FROM (SELECT o.oid, o.tid, o.data_id, o.value_tid{_KEYS}) o{_JOIN}"
    " WHERE o.tid>=? AND o.tid<=?"
)
#: The sub-select reads one row of the primary key, once for each row that is looked at (MariaDB would
#: read all that MAX is of).
_LAST = (
    "o.tid=(SELECT n.tid FROM obj n<PRIMARY> WHERE n.`partition`=? AND n.oid={} AND n.tid<=?"
    " ORDER BY n.tid DESC LIMIT 1)"
)
_SNAPSHOT = (
    f" FROM (SELECT o.oid, o.tid, o.data_id, o.value_tid{_KEYS}) o{_JOIN}"
    f" WHERE {_LAST.format('o.oid')}"
)
_SNAPSHOT_OF_OID = f"{_BY_OID} AND o.oid=? AND o.tid>? AND {_LAST.format('?')}"

#: (oid, tid, data_id, value_tid, compression, checksum, length)
_Row = tuple[int, int, int | None, int | None, int | None, bytes | None, int | None]


class Pages(Reads):
    #: Hint for statements by oid: MariaDB takes the index of tids for some of them.
    primary_key = ""

    def revisions(self, ask: PageRequest) -> tuple[list[RevisionRow], Key | None]:
        found, last = self._found(ask)
        rows: list[_Row] = []
        size = 0
        for row in found:
            if size >= ask.max_bytes:
                last = rows[-1][0], rows[-1][1]
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
        page = [_revision(row, values) for row in rows]
        return page, None if last is None else (to_bytes(last[0]), to_bytes(last[1]))

    def _found(self, ask: PageRequest) -> tuple[list[_Row], tuple[int, int] | None]:
        """The rows of a page of any size, and the last one that was looked at if there may be more."""
        oid, tid = (-1, -1) if ask.after is None else map(bound, ask.after)
        first, last = bound(ask.min_tid), bound(ask.max_tid)
        part = ask.partition
        rows: list[_Row] = []
        if ask.order is Order.BY_TID:
            if first <= tid <= last:
                rows = self._page(_OF_TID, part, tid, oid, ROWS_MAX)
            left = ROWS_MAX - len(rows)
            rows += self._page(_AFTER_TID, part, max(tid, first - 1), last, left)
            return rows, rows[-1][:2] if len(rows) == ROWS_MAX else None
        snapshot = ask.order is Order.SNAPSHOT
        if snapshot:
            # The row of an object may follow those of it that the page before looked at.
            rows = self._page(_SNAPSHOT_OF_OID, part, oid, tid, part, oid, last)
        else:
            rows = self._page(_OF_OID, part, oid, tid, first, last, ROWS_MAX)
        left = ROWS_MAX - len(rows)
        if not left:
            return rows, rows[-1][:2]
        if snapshot:
            rows += sorted(self._page(_SNAPSHOT, part, oid, left, part, last))
        else:
            rows += sorted(self._page(_AFTER_OID, part, oid, left, first, last))
        keys = _KEYS.replace("<PRIMARY>", self.primary_key)
        ends = self._read(f"SELECT o.oid, o.tid{keys} OFFSET ?", part, oid, 1, left - 1)
        return rows, tuple(ends[0]) if ends else None

    def _page(self, source: str, *args: int) -> list[Any]:
        columns = (
            f"o.oid, o.tid, o.data_id, o.value_tid, d.compression, d.hash, {self.value_length}"
        )
        query = f"SELECT {columns}{source.replace('<PRIMARY>', self.primary_key)}"
        return [tuple(row) for row in self._read(query, *args)]

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
