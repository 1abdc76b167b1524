"""Pages of revisions in the memory backend, like :mod:`neo.storage.backend.pages` for SQL."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from neo.storage.backend import pages
from neo.storage.backend.api import ROW_BYTES, Key, Order, PageRequest, RevisionRow
from neo.storage.backend.sql import bound, optional_bytes, to_bytes
from tests.simulator.memory_reads import MemoryReads

_NO_CHECKSUM = bytes(20)


def _oid(key: tuple[int, int]) -> int:
    return key[0]


def _by_tid(key: tuple[int, int]) -> tuple[int, int]:
    return key[1], key[0]


class MemoryPages(MemoryReads):
    def revisions(self, ask: PageRequest) -> tuple[list[RevisionRow], Key | None]:
        self._check()
        looked = self._after(ask)[: pages.ROWS_MAX]
        last = looked[-1] if len(looked) == pages.ROWS_MAX else None
        rows: list[RevisionRow] = []
        size = 0
        for oid, tid in self._wanted(ask, looked):
            if size >= ask.max_bytes:
                return rows, rows[-1][:2]
            rows.append(self._revision(oid, tid, ask.data))
            size += ROW_BYTES + (rows[-1][4] if ask.data else 0)
        return rows, None if last is None else (to_bytes(last[0]), to_bytes(last[1]))

    def _after(self, ask: PageRequest) -> list[tuple[int, int]]:
        """Return all pairs (oid, tid) of the partition after the last page, in order."""
        tables = self.memory
        keys = [(o, t) for o in tables.oids.get(ask.partition, []) for t in tables.serials[o]]
        if ask.order is Order.BY_TID:
            keys.sort(key=_by_tid)
            first, last = bound(ask.min_tid), bound(ask.max_tid)
            keys = keys[bisect_left(keys, (first, -1), key=_by_tid) :]
            keys = keys[: bisect_left(keys, (last + 1, -1), key=_by_tid)]
        if ask.after is None:
            return keys
        after = bound(ask.after[0]), bound(ask.after[1])
        if ask.order is Order.SNAPSHOT:
            return keys[bisect_right(keys, after[0], key=_oid) :]
        by = _by_tid if ask.order is Order.BY_TID else None
        return keys[bisect_right(keys, by(after) if by else after, key=by) :]

    def _wanted(self, ask: PageRequest, looked: list[tuple[int, int]]) -> list[tuple[int, int]]:
        first, last = bound(ask.min_tid), bound(ask.max_tid)
        if ask.order is not Order.SNAPSHOT:
            return [key for key in looked if first <= key[1] <= last]
        wanted = []
        for oid in dict.fromkeys(oid for oid, _ in looked):
            serials = self.memory.serials[oid]
            if end := bisect_right(serials, last):
                wanted.append((oid, serials[end - 1]))
        return wanted

    def _revision(self, oid: int, tid: int, with_data: bool) -> RevisionRow:
        _, _, _, data_id, value_tid = self.memory.obj[oid, tid]
        serial = optional_bytes(value_tid)
        if data_id is None:
            return to_bytes(oid), to_bytes(tid), None, _NO_CHECKSUM, 0, None, serial
        row = self.memory.data[data_id]
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
