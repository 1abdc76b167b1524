"""Reads of committed data (specification 6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha1
from heapq import merge
from itertools import chain, islice
from typing import Any

from neo.protocol.ids import ZERO_TID
from neo.storage.backend import revisions
from neo.storage.backend.api import Record, Stored, Tail, Transaction
from neo.storage.backend.revisions import Revision
from neo.storage.backend.sql import MAX_TID, Querying, Row, bound, optional_bytes, to_bytes, to_int
from neo.storage.backend.tables import Tables
from neo.storage.backend.values import Values

_REVISION = "SELECT data_id, value_tid FROM obj WHERE `partition`=? AND oid=? AND tid=?"

_REVISIONS = (
    "SELECT tid, data_id, value_tid FROM obj WHERE `partition`=? AND oid=? AND tid<? ORDER BY tid"
)
_LAST_SERIAL = "SELECT tid FROM obj WHERE `partition`=? AND oid=? ORDER BY tid DESC LIMIT 1"

_OIDS = (
    "SELECT oid FROM obj o WHERE `partition`=? AND oid>=? AND data_id IS NOT NULL AND tid="
    "(SELECT MAX(tid) FROM obj n WHERE n.`partition`=o.`partition` AND n.oid=o.oid)"
    " ORDER BY oid LIMIT ?"
)

_TRANSACTION = (
    "SELECT user, description, ext, packed, oids, ttid FROM trans WHERE `partition`=? AND tid=?"
)
_TIDS = "SELECT tid FROM trans WHERE `partition`=? AND tid>=? AND tid<=? ORDER BY tid LIMIT ?"

_TIDS_DESCENDING = "SELECT tid FROM trans WHERE `partition`=? ORDER BY tid DESC LIMIT ?"

_LAST_TRANSACTIONS = (
    "SELECT tid FROM trans WHERE `partition`=? AND tid<=? ORDER BY tid DESC LIMIT ?"
)
_LAST_REVISIONS = (
    "SELECT tid, oid FROM obj WHERE `partition`=? AND tid<=? ORDER BY tid DESC, oid DESC LIMIT ?"
)
#: Rows of the index that are read together, per oid wanted.
_ROWS_PER_OID = 4

_NO_CHECKSUM = bytes(20)


class Reads:
    def __init__(self, engine: Querying, tables: Tables, values: Values) -> None:
        self._engine = engine
        self._tables = tables
        self._values = values
        self._read = engine.read
        dialect = self._dialect = engine.dialect
        record = f"SELECT o.tid, o.value_tid, o.data_id, d.compression, d.hash, {dialect.value}, "
        following = (
            "(SELECT n.tid FROM obj n WHERE n.`partition`=o.`partition` AND n.oid=o.oid"
            " AND n.tid>o.tid ORDER BY n.tid LIMIT 1)"
        )
        # MariaDB would look into two indexes before it takes this one: a sixth of the time of a load.
        source = (
            f" FROM obj o{dialect.primary_key} LEFT JOIN data d ON d.id=o.data_id"
            " WHERE o.`partition`=? AND o.oid=?"
        )
        last = " AND o.tid<? ORDER BY o.tid DESC LIMIT 1"
        self._load_at = record + following + source + " AND o.tid=?"
        self._load_before = record + following + source + last
        self._load_current = record + "NULL" + source + last

    # -- objects --------------------------------------------------------------------------------

    def load(self, oid: bytes, at: bytes | None, before: bytes | None) -> Record | None:
        o = to_int(oid)
        if at is not None:
            rows = self._read(self._load_at, o % self._tables.modulo, o, to_int(at))
        else:
            limit = MAX_TID if before is None else bound(before)
            # A bound above all tids finds the current revision, which no other one follows.
            sql = self._load_current if limit > self._tables.last_tid else self._load_before
            rows = self._read(sql, o % self._tables.modulo, o, limit)
        if not rows:
            return None
        return self._record(oid, rows[0])

    def _record(self, oid: bytes, row: Row) -> Record:
        """Return the record with the columns of a row of ``obj`` and ``data``. Raise RecordDamaged."""
        tid, value_tid, data_id, compression, checksum, data, next_tid = row
        serial = to_bytes(tid)
        if data_id is None:
            compression, checksum, data = None, _NO_CHECKSUM, b""
        else:
            if checksum is None:
                raise self._values.missing(oid, serial, data_id)
            compression = compression or 0  # the column of MariaDB may be NULL
            if data is None or compression > 0x7F:
                compression, data = self._engine.big_value(data_id, compression, data)
            if sha1(data).digest() != checksum:
                what = f"object {oid.hex()} at serial {serial.hex()}"
                raise self._values.damaged(what, data_id)
        next_serial = None if next_tid is None else to_bytes(next_tid)
        data_serial = None if value_tid is None else to_bytes(value_tid)
        return Record(serial, next_serial, compression, checksum, data, data_serial)

    def records(self, rows: Sequence[tuple[bytes, bytes]]) -> Iterator[Record | None]:
        together = self._dialect.records_together
        if together == 1:
            for tid, oid in rows:
                yield self.load(oid, tid, None)
            return
        for start in range(0, len(rows), together):
            yield from self._records_together(rows[start : start + together])

    def _records_together(
        self, rows: Sequence[tuple[bytes, bytes]]
    ) -> Iterator[Record | None]:
        """Read small values with one query; read big ones one by one."""
        keys = [(to_int(tid), to_int(oid)) for tid, oid in rows]
        places = " OR ".join(["o.tid=? AND o.oid=?"] * len(rows))
        sql = (
            "SELECT o.oid, o.tid, o.value_tid, o.data_id, d.compression, d.hash,"
            f" CASE WHEN LENGTH(d.value)<={self._dialect.small_bytes} THEN d.value END, NULL"
            f" FROM obj o{self._dialect.primary_key} LEFT JOIN data d ON d.id=o.data_id"
            f" WHERE o.`partition`=? AND ({places})"
        )
        partition = keys[0][1] % self._tables.modulo
        found = {(row[1], row[0]): row for row in self._read(sql, partition, *chain(*keys))}
        for key, (tid, oid) in zip(keys, rows, strict=True):
            row = found.get(key)
            if row is not None and (row[3] is None or row[6] is not None):
                yield self._record(oid, row[1:])
            else:
                yield None if row is None else self.load(oid, tid, None)

    def object_exists(self, oid: bytes) -> bool:
        return self.last_serial(oid) is not None

    def last_serial(self, oid: bytes) -> bytes | None:
        o = to_int(oid)
        if o > self._tables.last_oid:
            return None
        rows = self._read(_LAST_SERIAL, o % self._tables.modulo, o)
        return to_bytes(rows[0][0]) if rows else None

    def serial_at(self, oid: bytes, tid: bytes) -> bytes | None:
        o = to_int(oid)
        sql = "SELECT MAX(tid) FROM obj WHERE `partition`=? AND oid=? AND tid<=?"
        return optional_bytes(self._read(sql, o % self._tables.modulo, o, bound(tid))[0][0])

    def value_at(self, oid: bytes, serial: bytes) -> tuple[int | None, bytes | None] | None:
        self._engine.drain()  # specification 12.22
        o = to_int(oid)
        rows = self._read(_REVISION, o % self._tables.modulo, o, to_int(serial))
        if not rows:
            return None
        data_id, value_tid = rows[0]
        if data_id is not None:
            self._values.pending[data_id] += 1
        return data_id, optional_bytes(value_tid)

    def history(
        self, oid: bytes, first: int, last: int, since: bytes = ZERO_TID
    ) -> list[tuple[bytes, int]]:
        o = to_int(oid)
        sql = (
            f"SELECT o.tid, {self._dialect.value_length} FROM obj o LEFT JOIN data d ON d.id=o.data_id"
            " WHERE o.`partition`=? AND o.oid=? AND o.tid>=? ORDER BY o.tid DESC LIMIT ? OFFSET ?"
        )
        length = max(0, last - first)
        rows = self._read(sql, o % self._tables.modulo, o, bound(since), length, first)
        return [(to_bytes(tid), int(size or 0)) for tid, size in rows]

    def oids(self, partition: int, min_oid: bytes, length: int) -> list[bytes]:
        rows = self._read(_OIDS, partition, bound(min_oid), length)
        return [to_bytes(oid) for (oid,) in rows]

    def distinct_oids(self, partition: int, min_oid: bytes, length: int) -> list[bytes]:
        table = f"obj{self._dialect.primary_key}"
        sql = f"SELECT oid FROM {table} WHERE `partition`=? AND oid>=? ORDER BY oid LIMIT ?"
        found: dict[int, None] = {}
        start, limit = bound(min_oid), _ROWS_PER_OID * length
        while len(found) < length:
            rows = self._read(sql, partition, start, limit)
            found |= dict.fromkeys(oid for (oid,) in rows)
            if len(rows) < limit or rows[-1][0] == MAX_TID:
                break
            start = rows[-1][0] + 1  # skip further revisions of this oid
        return [to_bytes(oid) for oid in islice(found, length)]

    def greatest_oid(self, partition: int) -> bytes | None:
        return optional_bytes(self._tables.greatest("oid", "obj", partition))

    # -- undo -----------------------------------------------------------------------------------

    def revisions_of(self, o: int, before: int = MAX_TID) -> list[Revision]:
        """Return the revisions of an object that are older than ``before``, ascending."""
        rows = self._read(_REVISIONS, o % self._tables.modulo, o, before)
        return [Revision(*row) for row in rows]

    def packed_value(self, oid: bytes, serial: bytes, tid: bytes) -> bytes | None:
        self._engine.drain()
        known = self.revisions_of(to_int(oid))
        value_tid = revisions.packed_value(known, to_int(serial), bound(tid))
        return None if value_tid is None else to_bytes(value_tid)

    def packed_undo(self, oid: bytes, value_serial: bytes, tid: bytes) -> bytes | None:
        self._engine.drain()
        known = self.revisions_of(to_int(oid))
        value_tid = revisions.packed_undo(known, to_int(value_serial), bound(tid))
        return None if value_tid is None else to_bytes(value_tid)

    def undo_serial(
        self, oid: bytes, max_tid: bytes, undone_tid: bytes, pending: Stored | None
    ) -> tuple[bytes, bytes | None, bool] | None:
        self._engine.drain()  # specification 12.22
        known = self.revisions_of(to_int(oid), bound(max_tid))
        packed = to_int(undone_tid) <= (self._tables.config_tid("_pack_tid") or 0)
        found = revisions.undo(known, to_int(undone_tid), packed)
        if found is None:
            return None
        undone, serial = found
        undo_serial = None if serial is None else to_bytes(serial)
        current = known[-1]
        if pending is None and current.tid == undone.tid:
            return to_bytes(current.tid), undo_serial, True
        data_id = current.data_id if pending is None else pending.data_id
        return to_bytes(current.tid), undo_serial, self._same_data(data_id, undone.data_id)

    def _same_data(self, a: int | None, b: int | None) -> bool:
        """Return whether two rows of ``data`` have the same content; imports write equal copies."""
        if a is None or b is None:
            return False
        if a == b:
            return True
        self._engine.drain()
        rows = self._read("SELECT hash, compression FROM data WHERE id IN (?, ?)", a, b)
        return len(rows) == 2 and tuple(rows[0]) == tuple(rows[1])

    # -- transactions ---------------------------------------------------------------------------

    def transaction(self, tid: bytes) -> Transaction | None:
        t = to_int(tid)
        rows = self._read(_TRANSACTION, t % self._tables.modulo, t)
        if not rows:
            return None
        user, description, extension, packed, oids, ttid = rows[0]
        # NEO leaves the column at 0 (specification 14.9).
        packed = bool(packed) or t <= (self._tables.config_tid("_pack_tid") or 0)
        oids = [oids[i : i + 8] for i in range(0, len(oids), 8)]
        return Transaction(tid, user, description, extension, packed, oids, to_bytes(ttid))

    def tids_descending(self, first: int, last: int, partitions: Sequence[int]) -> list[bytes]:
        # Merge sorted partitions, because one query over all of them would sort all rows.
        first, last = max(0, first), max(0, last)
        sorted_tids: Iterable[Iterable[Any]] = [
            self._read(_TIDS_DESCENDING, partition, last) for partition in partitions
        ]
        merged = merge(*sorted_tids, reverse=True)
        return [to_bytes(tid) for (tid,) in islice(merged, first, last)]

    def tids_ascending(
        self, min_tid: bytes, max_tid: bytes, length: int, partition: int
    ) -> list[bytes]:
        rows = self._read(_TIDS, partition, bound(min_tid), bound(max_tid), length)
        return [to_bytes(tid) for (tid,) in rows]

    def last_ids(self, partitions: Sequence[int]) -> tuple[bytes | None, bytes | None]:
        self._engine.drain()

        def greatest(column: str, *tables: str) -> bytes | None:
            found = (
                self._tables.greatest(column, table, partition)
                for table in tables
                for partition in partitions
            )
            return optional_bytes(max((n for n in found if n is not None), default=None))

        return greatest("oid", "obj"), greatest("tid", "trans", "obj")

    def tail(self, partition: int, max_tid: bytes, length: int) -> Tail:
        self._engine.drain()
        key = partition, bound(max_tid), length
        tids = self._read(_LAST_TRANSACTIONS, *key)
        keys = self._read(_LAST_REVISIONS, *key)
        return Tail(
            [to_bytes(tid) for (tid,) in reversed(tids)],
            [(to_bytes(tid), to_bytes(oid)) for tid, oid in reversed(keys)],
        )
