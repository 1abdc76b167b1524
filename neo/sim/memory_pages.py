"""Pages of revisions in the backend in memory, as :mod:`neo.storage.backend.pages` for SQL."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from neo.sim.memory_reads import MemoryReads
from neo.storage.backend import pages
from neo.storage.backend.api import Order, PageRequest, RevisionRow
from neo.storage.backend.sql import bound, optional_bytes, to_bytes

_NO_CHECKSUM = bytes(20)


class MemoryPages(MemoryReads):
    def revisions(self, ask: PageRequest) -> tuple[list[RevisionRow], bool]:
        self._check()
        tables = self.tables
        first, last = bound(ask.min_tid), bound(ask.max_tid)
        keys: list[tuple[int, int]] = []
        for oid in tables.oids.get(ask.partition, []):
            serials = tables.serials[oid]
            end = bisect_right(serials, last)
            start = max(0, end - 1) if ask.order is Order.SNAPSHOT else bisect_left(serials, first)
            keys += [(oid, tid) for tid in serials[start:end]]
        by = (lambda key: (key[1], key[0])) if ask.order is Order.BY_TID else (lambda key: key)
        if ask.after is not None:
            after = by((bound(ask.after[0]), bound(ask.after[1])))
            keys = [key for key in keys if by(key) > after]
        rows: list[RevisionRow] = []
        size = 0
        for oid, tid in sorted(keys, key=by):
            if size >= ask.max_bytes or len(rows) == pages.ROWS_MAX:
                return rows, True
            rows.append(self._revision(oid, tid, ask.data))
            size += pages.ROW_BYTES + (rows[-1][4] if ask.data else 0)
        return rows, False

    def _revision(self, oid: int, tid: int, with_data: bool) -> RevisionRow:
        _, _, _, data_id, value_tid = self.tables.obj[oid, tid]
        serial = optional_bytes(value_tid)
        if data_id is None:
            return to_bytes(oid), to_bytes(tid), None, _NO_CHECKSUM, 0, None, serial
        row = self.tables.data[data_id]
        value = row.value if with_data else None
        return (
            to_bytes(oid),
            to_bytes(tid),
            row.compression,
            row.checksum,
            len(row.value),
            value,
            serial,
        )
