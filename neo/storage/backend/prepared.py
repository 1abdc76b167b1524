"""Tables ``prepared``, ``prepared_check`` and ``decided`` (specification 24).

The marks are mirrored in memory, so that the commit of a transaction without a mark costs nothing. The
rows of a prepared transaction stay in ``ttrans`` and ``tobj`` (:mod:`neo.storage.backend.commits`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from struct import pack, unpack

from neo.protocol.ids import time_from_tid
from neo.storage.backend.api import Check, Decided, Prepared
from neo.storage.backend.sql import Engine, Row, optional_bytes, storable, to_bytes, to_int
from neo.storage.backend.tables import Tables

_MARK = "REPLACE INTO prepared (ttid, xid, since, text, partitions) VALUES (?, ?, ?, ?, ?)"
_CHECK = "REPLACE INTO prepared_check (ttid, oid, serial) VALUES (?, ?, ?)"
_DECIDE = "REPLACE INTO decided (xid, ttid, tid, time) VALUES (?, ?, ?, ?)"


class PreparedTables:
    def __init__(self, engine: Engine, tables: Tables) -> None:
        self._engine = engine
        self._tables = tables
        self._read = engine.read
        self._write = engine.write
        self.marks: dict[int, Prepared] = {}

    def load(self) -> None:
        """Read the marks."""
        rows = self._read("SELECT ttid, xid, since, text, partitions FROM prepared ORDER BY ttid")
        self.marks = {
            ttid: Prepared(to_bytes(ttid), xid, since, text, _unpacked(partitions))
            for ttid, xid, since, text, partitions in rows
        }

    # -- marks -----------------------------------------------------------------------------------

    def mark_prepared(self, mark: Prepared, checks: Iterable[Check]) -> None:
        self.write(mark, self.rows(mark.ttid, checks))

    @staticmethod
    def rows(ttid: bytes, checks: Iterable[Check]) -> list[Row]:
        """Return rows of ``prepared_check``. Raise BackendRefused if a number is too great."""
        t = storable(ttid, "ttid")
        return [(t, storable(oid, "oid"), storable(serial, "serial")) for oid, serial in checks]

    def write(self, mark: Prepared, rows: Sequence[Row]) -> None:
        """Write a mark and rows of ``prepared_check``."""
        t = to_int(mark.ttid)
        self.marks[t] = mark
        self._write(_MARK, t, mark.xid, mark.since, mark.text, _packed(mark.partitions))
        if rows:
            self._engine.write_many(_CHECK, rows)

    def remove(self, ttid: int) -> Prepared:
        """Delete a mark, which must be there, and the checks of its transaction."""
        self._write("DELETE FROM prepared WHERE ttid=?", ttid)
        self._write("DELETE FROM prepared_check WHERE ttid=?", ttid)
        return self.marks.pop(ttid)

    def prepared(self) -> list[Prepared]:
        return list(self.marks.values())

    def checks(self, ttid: int) -> list[Check]:
        """Return what a transaction checks, by oid. Drain earlier writes first."""
        rows = self._read("SELECT oid, serial FROM prepared_check WHERE ttid=? ORDER BY oid", ttid)
        return [(to_bytes(oid), to_bytes(serial)) for oid, serial in rows]

    def remove_checks(self, ttid: int, partition: int) -> None:
        """Delete what a transaction checks in a partition."""
        self._engine.drain()
        for (oid,) in self._read("SELECT oid FROM prepared_check WHERE ttid=?", ttid):
            if oid % self._tables.modulo == partition:
                self._write("DELETE FROM prepared_check WHERE ttid=? AND oid=?", ttid, oid)

    # -- outcomes --------------------------------------------------------------------------------

    def committed(self, mark: Prepared, tid: bytes) -> None:
        """Write the outcome of a transaction whose metadata is kept here."""
        self.decide([Decided(mark.xid, mark.ttid, tid, time_from_tid(tid))])

    def decide(self, outcomes: Iterable[Decided]) -> None:
        for xid, ttid, tid, time in outcomes:
            final = None if tid is None else storable(tid, "tid")
            self._write(_DECIDE, xid, storable(ttid, "ttid"), final, time)

    def decided(self) -> list[Decided]:
        self._engine.drain()
        rows = self._read("SELECT xid, ttid, tid, time FROM decided ORDER BY xid")
        return [Decided(x, to_bytes(ttid), optional_bytes(tid), time) for x, ttid, tid, time in rows]

    def truncate(self, last: int, partitions: Collection[int]) -> None:
        """Forget commits after ``last`` of transactions whose metadata is in these partitions."""
        modulo = self._tables.modulo
        for xid, ttid in self._read("SELECT xid, ttid FROM decided WHERE tid>?", last):
            if ttid % modulo in partitions:
                self.forget_decided(xid)

    def drop_partition(self, partition: int) -> None:
        """Forget the outcomes of transactions whose metadata is in this partition."""
        for xid, ttid in self._read("SELECT xid, ttid FROM decided"):
            if ttid % self._tables.modulo == partition:
                self.forget_decided(xid)

    def forget_decided(self, xid: bytes) -> None:
        self._write("DELETE FROM decided WHERE xid=?", xid)


def _packed(partitions: Sequence[int]) -> bytes:
    return pack(f">{len(partitions)}H", *partitions)


def _unpacked(partitions: bytes) -> list[int]:
    return list(unpack(f">{len(partitions) // 2}H", partitions))
