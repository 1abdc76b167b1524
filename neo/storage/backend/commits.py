"""The two phases of a commit (specification 7, 14.21)."""

from __future__ import annotations

from collections.abc import Iterable

from neo.storage.backend.api import Stored, TransactionMeta
from neo.storage.backend.sql import Engine, optional_bytes, storable, to_bytes, to_int
from neo.storage.backend.tables import Tables
from neo.storage.backend.values import Values

_VOTE_META = (
    "INSERT INTO ttrans (`partition`, tid, packed, oids, user, description, ext, ttid)"
    " VALUES (?, NULL, 0, ?, ?, ?, ?, ?)"
)
_VOTE_OBJECT = "INSERT INTO tobj (`partition`, oid, tid, data_id, value_tid) VALUES (?, ?, ?, ?, ?)"

# REPLACE: replication may have brought the same committed rows to an out-of-date cell already.
_MOVE_META = (
    "REPLACE INTO trans (`partition`, tid, packed, oids, user, description, ext, ttid)"
    " SELECT ?, ?, packed, oids, user, description, ext, ttid FROM ttrans WHERE ttid=?"
)
_MOVE_OBJECTS = (
    "REPLACE INTO obj (`partition`, oid, tid, data_id, value_tid)"
    " SELECT `partition`, oid, ?, data_id, value_tid FROM tobj WHERE tid=?"
)


class Commits:
    def __init__(self, engine: Engine, tables: Tables, values: Values) -> None:
        self._engine = engine
        self._tables = tables
        self._values = values
        self._read = engine.read
        self._write = engine.write
        #: The data ids in ``tobj``, by ttid.
        self.voted: dict[int, list[int]] = {}
        #: The ttids in ``ttrans``.
        self._with_metadata: set[int] = set()

    def load(self) -> None:
        """Read the transactions that were voted before the database was closed."""
        tables, pending = self._tables, self._values.pending
        self.voted.clear()
        for ttid, oid, data_id in self._read("SELECT tid, oid, data_id FROM tobj"):
            tables.last_oid = max(tables.last_oid, oid)
            ids = self.voted.setdefault(ttid, [])
            if data_id is not None:
                ids.append(data_id)
                pending[data_id] += 1
        self._with_metadata = {row[0] for row in self._read("SELECT ttid FROM ttrans")}

    def vote(self, ttid: bytes, meta: TransactionMeta | None, stored: Iterable[Stored]) -> None:
        t = storable(ttid, "ttid")
        modulo = self._tables.modulo
        rows = []
        for oid, data_id, value_serial in stored:
            o = storable(oid, "oid")
            value_tid = None if value_serial is None else to_int(value_serial)
            rows.append((o % modulo, o, t, data_id, value_tid))
            self._tables.last_oid = max(self._tables.last_oid, o)
        if meta is not None:
            self._vote_meta(t, meta)
        if rows:
            self._engine.write_many(_VOTE_OBJECT, rows)
            ids = self.voted.setdefault(t, [])
            ids += [row[3] for row in rows if row[3] is not None]

    def _vote_meta(self, t: int, meta: TransactionMeta) -> None:
        user, description, extension, oids = meta
        self._engine.dialect.check_metadata(user, description, extension, oids)
        self._write(_VOTE_META, t % self._tables.modulo, b"".join(oids), user, description, extension, t)
        self._with_metadata.add(t)

    def lock(self, ttid: bytes, tid: bytes) -> None:
        t = to_int(ttid)
        if t in self._with_metadata:
            self._write("UPDATE ttrans SET tid=? WHERE ttid=?", storable(tid, "tid"), t)

    def unlock(self, ttid: bytes, tid: bytes) -> None:
        t = to_int(ttid)
        final = storable(tid, "tid")
        if t in self._with_metadata:
            self._with_metadata.discard(t)
            self._write(_MOVE_META, final % self._tables.modulo, final, t)
            self._write("DELETE FROM ttrans WHERE ttid=?", t)
        if t in self.voted:
            self._tables.last_tid = max(self._tables.last_tid, final)
            self._write(_MOVE_OBJECTS, final, t)
            self._write("DELETE FROM tobj WHERE tid=?", t)
            self._values.release(self.voted.pop(t))

    def validate(self, ttid: bytes, tid: bytes) -> None:
        # No lock first: the unlock would delete its row in the same database transaction.
        self.unlock(ttid, tid)

    def abort(self, ttid: bytes) -> None:
        t = to_int(ttid)
        if t in self._with_metadata:
            self._with_metadata.discard(t)
            self._write("DELETE FROM ttrans WHERE ttid=?", t)
        if t in self.voted:
            self._write("DELETE FROM tobj WHERE tid=?", t)
            self._values.collect(self._values.release(self.voted.pop(t)))

    def drop_unfinished(self) -> None:
        self._write("DELETE FROM ttrans")
        self._write("DELETE FROM tobj")
        self._with_metadata.clear()
        voted = list(self.voted.values())
        self.voted.clear()
        for ids in voted:
            self._values.collect(self._values.release(ids))

    def final_tid(self, ttid: bytes) -> bytes | None:
        self._engine.drain()
        t = to_int(ttid)
        rows = self._read("SELECT tid FROM ttrans WHERE ttid=? AND tid IS NOT NULL", t)
        if not rows:
            # A tid is at least its ttid and rarely much greater, so few rows are scanned.
            rows = self._read(
                "SELECT tid FROM trans WHERE `partition`=? AND tid>=? AND ttid=?"
                " ORDER BY tid LIMIT 1",
                t % self._tables.modulo,
                t,
                t,
            )
        return to_bytes(rows[0][0]) if rows else None

    def locked_transactions(self) -> dict[bytes, bytes | None]:
        self._engine.drain()
        locked: dict[bytes, bytes | None] = {to_bytes(ttid): None for ttid in self.voted}
        for ttid, tid in self._read("SELECT ttid, tid FROM ttrans"):
            locked[to_bytes(ttid)] = optional_bytes(tid)
        return locked
