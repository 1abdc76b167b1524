"""Writes of rows that were fetched from a replica (specification 10)."""

from __future__ import annotations

from collections.abc import Iterable

from neo.storage.backend import revisions
from neo.storage.backend.api import Record, Transaction
from neo.storage.backend.commits import Commits
from neo.storage.backend.reads import Reads
from neo.storage.backend.sql import SET_VALUE_TID, Engine, bound, storable, to_bytes, to_int
from neo.storage.backend.tables import Tables
from neo.storage.backend.values import Values

_OBJECTS = (
    "SELECT tid, oid FROM obj WHERE `partition`=? AND tid>=? AND tid<=? AND (tid>? OR oid>=?)"
    " ORDER BY tid, oid LIMIT ?"
)
_ADD_TRANSACTION = (
    "REPLACE INTO trans (`partition`, tid, packed, oids, user, description, ext, ttid)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_ADD_OBJECT = "REPLACE INTO obj (`partition`, oid, tid, data_id, value_tid) VALUES (?, ?, ?, ?, ?)"
_DATA_ID = "SELECT data_id FROM obj WHERE `partition`=? AND oid=? AND tid=?"
_SET_DATA = "UPDATE obj SET data_id=? WHERE `partition`=? AND oid=? AND tid=?"
# Rows of lockless undos. The undo of a creation has NULL in ``value_tid`` too.
_UNLINKED = (
    "SELECT oid, tid, value_tid FROM obj"
    " WHERE `partition`=? AND data_id IS NULL AND value_tid IS NOT NULL ORDER BY oid, tid"
)


class Replication:
    def __init__(
        self, engine: Engine, tables: Tables, values: Values, reads: Reads, commits: Commits
    ) -> None:
        self._engine = engine
        self._tables = tables
        self._values = values
        self._reads = reads
        self._commits = commits
        self._read = engine.read
        self._write = engine.write

    def objects_ascending(
        self, partition: int, min_tid: bytes, min_oid: bytes, max_tid: bytes, length: int
    ) -> list[tuple[bytes, bytes]]:
        first = bound(min_tid)
        rows = self._read(_OBJECTS, partition, first, bound(max_tid), first, bound(min_oid), length)
        return [(to_bytes(tid), to_bytes(oid)) for tid, oid in rows]

    def add_transaction(self, transaction: Transaction) -> None:
        tid, user, description, extension, packed, oids, ttid = transaction
        self._engine.dialect.check_metadata(user, description, extension, oids)
        t = storable(tid, "tid")
        row = int(packed), b"".join(oids), user, description, extension, storable(ttid, "ttid")
        self._engine.write_row(_ADD_TRANSACTION, t % self._tables.modulo, t, *row)

    def add_object(self, oid: bytes, record: Record) -> None:
        o, t = storable(oid, "oid"), storable(record.serial, "tid")
        data_id = self._commits.data_of(oid, record)
        value_tid = None if record.data_serial is None else to_int(record.data_serial)
        self._tables.last_tid = max(self._tables.last_tid, t)
        self._tables.last_oid = max(self._tables.last_oid, o)
        self._engine.write_row(_ADD_OBJECT, o % self._tables.modulo, o, t, data_id, value_tid)
        if data_id is not None:
            self._values.release((data_id,))

    def delete_transactions(self, tids: Iterable[bytes]) -> None:
        for tid in tids:
            t = to_int(tid)
            self._write("DELETE FROM trans WHERE `partition`=? AND tid=?", t % self._tables.modulo, t)

    def delete_objects(self, objects: Iterable[tuple[bytes, bytes]], packed: bool = False) -> None:
        self._engine.drain()
        objects = list(objects)
        if packed:
            for o, tids in revisions.by_oid(objects).items():
                for t, value_tid in revisions.repoint(self._reads.revisions_of(o), tids):
                    self._write(SET_VALUE_TID, value_tid, o % self._tables.modulo, o, t)
        ids = []
        for tid, oid in objects:
            o = to_int(oid)
            key = o % self._tables.modulo, o, to_int(tid)
            ids += [data_id for (data_id,) in self._read(_DATA_ID, *key)]
            self._write("DELETE FROM obj WHERE `partition`=? AND oid=? AND tid=?", *key)
        self._values.collect(data_id for data_id in ids if data_id is not None)

    def unlink_undone(self, objects: Iterable[tuple[bytes, bytes]]) -> None:
        objects = list(objects)
        self._commits.unlink_prepared(objects)
        self._engine.drain()
        released: list[int] = []
        for o, tids in revisions.by_oid(objects).items():
            for revision in revisions.pointing(self._reads.revisions_of(o), tids):
                self._write(_SET_DATA, None, o % self._tables.modulo, o, revision.tid)
                released += [] if revision.data_id is None else [revision.data_id]
        self._values.collect(released)

    def packed_elsewhere(self, tid: bytes) -> None:
        self._tables.packed(to_int(tid))

    def link_undone(self, partition: int) -> list[tuple[bytes, bytes]]:
        self._engine.drain()
        lacking: list[tuple[bytes, bytes]] = []
        linked: dict[tuple[int, int], int] = {}
        for oid, tid, value_tid in self._read(_UNLINKED, partition):
            data_id = linked.get((oid, value_tid))
            if data_id is None:
                rows = self._read(_DATA_ID, partition, oid, value_tid)
                data_id = rows[0][0] if rows else None
            if data_id is None:
                lacking.append((to_bytes(tid), to_bytes(oid)))
            else:
                linked[oid, tid] = data_id
                self._write(_SET_DATA, data_id, partition, oid, tid)
        return sorted(lacking)
