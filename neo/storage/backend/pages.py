"""Pages of revisions for bulk readers (docs/spark.md)."""

from __future__ import annotations

from typing import Any

from neo.storage.backend.api import ROW_BYTES, Key, Order, PageRequest, RevisionRow
from neo.storage.backend.sql import Engine, bound, to_bytes
from neo.storage.backend.values import Values

#: Bound of the rows that are examined for one page, whether they belong to it or not. The node serves no
#: other request in these few milliseconds.
ROWS_MAX = 2_000
#: Rows per query: ROWS_FIRST at first, then about as many as the page still takes, since rows beyond
#: the page are wasted. Values from VALUE_BYTES on are read one by one.
ROWS_TOGETHER = 500
ROWS_FIRST = 50
VALUE_BYTES = 64 * 1024

_NO_CHECKSUM = bytes(20)
_JOIN = " LEFT JOIN data d ON d.id=o.data_id"
_FROM = f" FROM obj o{_JOIN} WHERE o.`partition`=?"
#: ``<PRIMARY>``: the hint that makes a database use the primary key.
_BY_OID = _FROM.replace("obj o", "obj o<PRIMARY>")
#: First the rest of one object or of one transaction, then the following objects or transactions. Each
#: query is a range of an index, and all its rows belong to the page.
_OF_OID = f"{_BY_OID} AND o.oid=? AND o.tid>? AND o.tid>=? AND o.tid<=? ORDER BY o.tid LIMIT ?"
_OF_TID = f"{_FROM} AND o.tid=? AND o.oid>? ORDER BY o.oid LIMIT ?"
_AFTER_TID = f"{_FROM} AND o.tid>? AND o.tid<=? ORDER BY o.tid, o.oid LIMIT ?"
#: The following objects: examine rows, and return those that belong to the page.
_KEYS = " FROM obj o<PRIMARY> WHERE o.`partition`=? AND o.oid>? ORDER BY o.oid, o.tid LIMIT ?"
_AFTER_OID = (
    f" FROM (SELECT o.oid, o.tid, o.data_id, o.value_tid{_KEYS}) o{_JOIN}"
    " WHERE o.tid>=? AND o.tid<=?"
)
#: The sub-select reads one row of the primary key per examined row. With MAX, MariaDB would read all
#: revisions of the object.
_LAST = (
    "o.tid=(SELECT n.tid FROM obj n<PRIMARY> WHERE n.`partition`=? AND n.oid={} AND n.tid<=?"
    " ORDER BY n.tid DESC LIMIT 1)"
)
_SNAPSHOT = (
    f" FROM (SELECT o.oid, o.tid, o.data_id, o.value_tid{_KEYS}) o{_JOIN}"
    f" WHERE {_LAST.format('o.oid')}"
)
_SNAPSHOT_OF_OID = f"{_BY_OID} AND o.oid=? AND o.tid>? AND {_LAST.format('?')}"

#: (oid, tid, data_id, value_tid, compression, checksum, length, data)
_Row = tuple[
    int, int, int | None, int | None, int | None, bytes | None, int | str | None, bytes | None
]


class Pages:
    def __init__(self, engine: Engine, values: Values) -> None:
        self._dialect = engine.dialect
        self._values = values
        self._read = engine.read

    def revisions(self, ask: PageRequest) -> tuple[list[RevisionRow], Key | None]:
        page: list[RevisionRow] = []
        size, looked, count = 0, 0, ROWS_FIRST
        while looked < ROWS_MAX:
            count = min(count, ROWS_TOGETHER, ROWS_MAX - looked)
            rows, last = self._found(ask, count)
            for row in rows:
                if size >= ask.max_bytes:
                    return page, page[-1][:2]
                revision = self._revision(row, ask.data)
                page.append(revision)
                size += ROW_BYTES + (revision[4] if ask.data else 0)
            if last is None:
                return page, None
            ask = ask._replace(after=(to_bytes(last[0]), to_bytes(last[1])))
            if size >= ask.max_bytes:
                break
            looked += count
            count = (ask.max_bytes - size) * len(page) // size + 1 if page else 2 * count
        return page, ask.after

    def _found(self, ask: PageRequest, count: int) -> tuple[list[_Row], tuple[int, int] | None]:
        """Examine ``count`` rows. Return those in the page, and the last key if more may follow."""
        oid, tid = (-1, -1) if ask.after is None else map(bound, ask.after)
        first, last = bound(ask.min_tid), bound(ask.max_tid)
        part, data = ask.partition, ask.data
        rows: list[_Row] = []
        if ask.order is Order.BY_TID:
            if first <= tid <= last:
                rows = self._page(data, _OF_TID, part, tid, oid, count)
            left = count - len(rows)
            rows += self._page(data, _AFTER_TID, part, max(tid, first - 1), last, left)
            return rows, rows[-1][:2] if len(rows) == count else None
        snapshot = ask.order is Order.SNAPSHOT
        if snapshot:
            # The previous page may have ended before the row of this object.
            rows = self._page(data, _SNAPSHOT_OF_OID, part, oid, tid, part, oid, last)
        else:
            rows = self._page(data, _OF_OID, part, oid, tid, first, last, count)
        left = count - len(rows)
        if not left:
            return rows, rows[-1][:2]
        if snapshot:
            others = self._page(data, _SNAPSHOT, part, oid, left, part, last)
        else:
            others = self._page(data, _AFTER_OID, part, oid, left, first, last)
        rows += sorted(others)
        if len(others) == left:
            return rows, rows[-1][:2]
        keys = _KEYS.replace("<PRIMARY>", self._dialect.primary_key)
        ends = self._read(f"SELECT o.oid, o.tid{keys} OFFSET ?", part, oid, 1, left - 1)
        return rows, tuple(ends[0]) if ends else None

    def _page(self, with_data: bool, source: str, *args: int) -> list[Any]:
        dialect = self._dialect
        small = f"CASE WHEN LENGTH(d.value)<{VALUE_BYTES} THEN d.value END" if with_data else "NULL"
        query = (
            "SELECT o.oid, o.tid, o.data_id, o.value_tid, d.compression, d.hash,"
            f" {dialect.value_length}, {small}{source.replace('<PRIMARY>', dialect.primary_key)}"
        )
        return list(self._read(query, *args))

    def _revision(self, row: _Row, with_data: bool) -> RevisionRow:
        oid, tid, data_id, value_tid, compression, checksum, length, data = row
        origin = None if value_tid is None else to_bytes(value_tid)
        if data_id is None:
            return to_bytes(oid), to_bytes(tid), None, _NO_CHECKSUM, 0, None, origin
        if checksum is None or length is None:
            raise self._values.missing(to_bytes(oid), to_bytes(tid), data_id)
        compression = compression or 0  # the column of MariaDB may be NULL
        if with_data and (data is None or compression > 0x7F):
            compression, _, data = self._values.read(data_id)
        return to_bytes(oid), to_bytes(tid), compression & 0x7F, checksum, int(length), data, origin
