"""The two phases of a commit (specification 7, 14.21)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from neo.storage.backend import revisions
from neo.storage.backend.api import (
    Check,
    Prepared,
    PreparedRows,
    Record,
    Stored,
    TransactionMeta,
)
from neo.storage.backend.prepared import PreparedTables
from neo.storage.backend.reads import Reads
from neo.storage.backend.regrouped import REGROUPED, other
from neo.storage.backend.sql import Engine, Row, optional_bytes, storable, to_bytes, to_int
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
    def __init__(
        self,
        engine: Engine,
        tables: Tables,
        values: Values,
        reads: Reads,
        prepared: PreparedTables,
    ) -> None:
        self._engine = engine
        self._tables = tables
        self._values = values
        self._reads = reads
        self.prepared = prepared
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
        if t in self.prepared.marks:
            mark = self.prepared.remove(t)
            if t in self._with_metadata:
                self.prepared.committed(mark, tid)
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
        self._abort(to_int(ttid))

    def _abort(self, t: int) -> None:
        if t in self.prepared.marks:
            self.prepared.remove(t)
        self._remove_metadata(t)
        if t in self.voted:
            self._write("DELETE FROM tobj WHERE tid=?", t)
            self._values.collect(self._values.release(self.voted.pop(t)))

    def drop_unfinished(self, keep: Collection[bytes] = ()) -> None:
        kept = set(map(to_int, keep))
        for t in sorted({*self.voted, *self._with_metadata, *self.prepared.marks} - kept):
            self._abort(t)
        if self._with_metadata:
            self._write("UPDATE ttrans SET tid=NULL")

    def final_tid(self, ttid: bytes, partition: int | None = None) -> bytes | None:
        self._engine.drain()
        t = to_int(ttid)
        rows = self._read("SELECT tid FROM ttrans WHERE ttid=? AND tid IS NOT NULL", t)
        for table, place in self._places(t, partition):
            # A tid is at least its ttid and rarely much greater, so few rows are scanned.
            rows = rows or self._read(
                f"SELECT tid FROM {table} WHERE `partition`=? AND tid>=? AND ttid=?"
                " ORDER BY tid LIMIT 1",
                place,
                t,
                t,
            )
        return to_bytes(rows[0][0]) if rows else None

    def _places(self, ttid: int, partition: int | None) -> Iterator[tuple[str, int]]:
        """Yield the tables and partitions that may have the metadata of a committed transaction. Its tid
        has the remainder of its ttid by the number of partitions with which it was committed, perhaps
        that of the other tables (specification 27.100)."""
        if partition is not None:
            yield "trans", partition
            return
        yield "trans", ttid % self._tables.modulo
        if (count := self._tables.get_config(REGROUPED)) is not None:
            yield other("trans", int(count)), ttid % int(count)

    def locked_transactions(self) -> dict[bytes, bytes | None]:
        self._engine.drain()
        locked: dict[bytes, bytes | None] = {to_bytes(ttid): None for ttid in self.voted}
        locked |= dict.fromkeys(map(to_bytes, self.prepared.marks))
        for ttid, tid in self._read("SELECT ttid, tid FROM ttrans"):
            locked[to_bytes(ttid)] = optional_bytes(tid)
        return locked

    # -- prepared transactions (specification 24) ------------------------------------------------

    def prepared_rows(self, ttid: bytes) -> PreparedRows:
        self._engine.drain()
        t = to_int(ttid)
        metadata = None
        sql = "SELECT user, description, ext, oids FROM ttrans WHERE ttid=?"
        for user, description, extension, oids in self._read(sql, t):
            listed = [oids[i : i + 8] for i in range(0, len(oids), 8)]
            metadata = TransactionMeta(user, description, extension, listed)
        rows = self._read("SELECT oid, data_id, value_tid FROM tobj WHERE tid=? ORDER BY oid", t)
        stored = [Stored(to_bytes(oid), id_, optional_bytes(value)) for oid, id_, value in rows]
        return PreparedRows(metadata, stored, self.prepared.checks(t))

    def replace_prepared(
        self,
        mark: Prepared,
        partition: int,
        metadata: TransactionMeta | None,
        checks: Iterable[Check],
    ) -> None:
        rows = self.prepared.rows(mark.ttid, checks)
        self.replace_voted(mark.ttid, partition, metadata)
        self.prepared.remove_checks(to_int(mark.ttid), partition)
        self.prepared.write(mark, rows)

    def replace_voted(
        self, ttid: bytes, partition: int, metadata: TransactionMeta | None
    ) -> None:
        t = storable(ttid, "ttid")
        if metadata is not None:
            self._engine.dialect.check_metadata(*metadata)
        if t in self.voted:
            self._remove_objects(t, partition)
        if metadata is not None:
            self._remove_metadata(t)
            self._vote_meta(t, metadata)

    def _remove_objects(self, t: int, partition: int) -> None:
        """Delete the objects that a transaction stores in a partition, and their data."""
        self._engine.drain()
        where = "FROM tobj WHERE tid=? AND `partition`=?"
        released = self._read(f"SELECT data_id {where} AND data_id IS NOT NULL", t, partition)
        self._write(f"DELETE {where}", t, partition)
        self._release(t, released)

    def _release(self, t: int, rows: Iterable[Row]) -> None:
        """Drop the references of a transaction to these data ids, and data without others."""
        ids = [data_id for (data_id,) in rows]
        for data_id in ids:
            self.voted[t].remove(data_id)
        self._values.collect(self._values.release(ids))

    def add_voted_object(self, ttid: bytes, oid: bytes, record: Record) -> Stored:
        t, o = storable(ttid, "ttid"), storable(oid, "oid")
        data_id = self.data_of(oid, record)
        value_tid = None if record.data_serial is None else to_int(record.data_serial)
        self._tables.last_oid = max(self._tables.last_oid, o)
        self._write(_VOTE_OBJECT, o % self._tables.modulo, o, t, data_id, value_tid)
        ids = self.voted.setdefault(t, [])
        if data_id is not None:
            ids.append(data_id)
        return Stored(oid, data_id, record.data_serial)

    def data_of(self, oid: bytes, record: Record) -> int | None:
        """Return the data id for a record that was fetched, with a pending reference to it; write the
        data unless the revision ``record.data_serial`` has it. None: the object does not exist."""
        _, _, compression, checksum, data, data_serial = record
        if compression is None:
            return None
        if data_serial is not None:
            found = self._reads.value_at(oid, data_serial)
            if found is not None and found[0] is not None:
                return found[0]
        return self._values.store_data(oid, compression, checksum, data)

    def remove_prepared(self, partition: int) -> None:
        """Delete the rows that prepared transactions have in a partition; keep their marks."""
        for t in [t for t, mark in self.prepared.marks.items() if partition in mark.partitions]:
            self._remove_objects(t, partition)
            self.prepared.remove_checks(t, partition)
            if t % self._tables.modulo == partition:
                self._remove_metadata(t)

    def _remove_metadata(self, t: int) -> None:
        if t in self._with_metadata:
            self._with_metadata.discard(t)
            self._write("DELETE FROM ttrans WHERE ttid=?", t)

    def unlink_prepared(self, objects: Iterable[tuple[bytes, bytes]]) -> None:
        """Remove the data from undos of prepared transactions that go back to one of these revisions
        (tid, oid)."""
        if not self.prepared.marks:
            return
        self._engine.drain()
        for o, tids in revisions.by_oid(objects).items():
            for t in self.prepared.marks:
                where = "tobj WHERE tid=? AND oid=?"
                rows = self._read(f"SELECT data_id, value_tid FROM {where}", t, o)
                for data_id, value_tid in rows:
                    if data_id is not None and value_tid in tids:
                        self._write("UPDATE tobj SET data_id=NULL WHERE tid=? AND oid=?", t, o)
                        self._release(t, [(data_id,)])
