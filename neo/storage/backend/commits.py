"""The two phases of a commit (specification, *Commit*; TABLES.md, *Life of a transaction*)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from neo.storage.backend.api import BackendRefused, Stored, TransactionMeta
from neo.storage.backend.reads import Reads
from neo.storage.backend.sql import storable, to_int

#: Bits of the counter in a data id, below those of the partition.
COUNTER_BITS = 48

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


class Writes(Reads):
    def store_data(self, oid: bytes, compression: int, checksum: bytes, data: bytes) -> int:
        o = storable(oid, "oid")
        if self._dedup and (data_id := self._find_same(checksum, compression, data)) is not None:
            self._pending[data_id] += 1
            return data_id
        partition = o % self._modulo
        data_id = self._next_data_id.get(partition) or self._first_free(partition)
        self._insert_data(data_id, checksum, compression, data)
        self._next_data_id[partition] = data_id + 1
        self._pending[data_id] = 1
        return data_id

    def _first_free(self, partition: int) -> int:
        start = partition << COUNTER_BITS
        rows = self._read(
            "SELECT MAX(id) FROM data WHERE id>=? AND id<=?", start, start + (1 << COUNTER_BITS) - 1
        )
        last: int | None = rows[0][0]
        return start if last is None else last + 1

    def _find_same(self, checksum: bytes, compression: int, data: bytes) -> int | None:
        """Return the row of ``data`` with the same content, or None. Drain earlier writes first."""
        self.drain()
        rows = self._read(
            "SELECT id FROM data WHERE hash=? AND compression IN (?, ?)",
            checksum,
            compression,
            compression | 0x80,
        )
        if not rows:
            return None
        data_id: int = rows[0][0]
        if self.load_data(data_id)[2] != data:
            raise BackendRefused(
                f"two different values have the SHA-1 checksum {checksum.hex()}: with deduplication"
                " only one of them can be kept"
            )
        return data_id

    def release_data(self, data_ids: Iterable[int]) -> None:
        self._collect(self._release(data_ids))

    def vote(self, ttid: bytes, meta: TransactionMeta | None, stored: Iterable[Stored]) -> None:
        t = storable(ttid, "ttid")
        modulo = self._modulo
        rows = []
        for oid, data_id, value_serial in stored:
            o = storable(oid, "oid")
            value_tid = None if value_serial is None else to_int(value_serial)
            rows.append((o % modulo, o, t, data_id, value_tid))
            self._last_oid = max(self._last_oid, o)
        if meta is not None:
            self._vote_meta(t, meta)
        if rows:
            self._write_many(_VOTE_OBJECT, rows)
            ids = self._voted.setdefault(t, [])
            ids += [row[3] for row in rows if row[3] is not None]

    def _vote_meta(self, t: int, meta: TransactionMeta) -> None:
        user, description, extension, oids = meta
        self._check_meta(user, description, extension, oids)
        self._write(_VOTE_META, t % self._modulo, b"".join(oids), user, description, extension, t)
        self._with_metadata.add(t)

    def _check_meta(
        self, user: bytes, description: bytes, extension: bytes, oids: Sequence[bytes]
    ) -> None:
        for what, value in ("user", user), ("description", description), ("extension", extension):
            if len(value) > self.text_max:
                raise BackendRefused(
                    f"the {what} of the transaction has {len(value)} bytes; this backend keeps at"
                    f" most {self.text_max}"
                )
        if len(oids) * 8 > self.oids_max:
            raise BackendRefused(
                f"the transaction has {len(oids)} objects; this backend lists at most"
                f" {self.oids_max // 8} for one"
            )

    def lock(self, ttid: bytes, tid: bytes) -> None:
        t = to_int(ttid)
        if t in self._with_metadata:
            self._write("UPDATE ttrans SET tid=? WHERE ttid=?", storable(tid, "tid"), t)

    def unlock(self, ttid: bytes, tid: bytes) -> None:
        t = to_int(ttid)
        final = storable(tid, "tid")
        if t in self._with_metadata:
            self._with_metadata.discard(t)
            self._write(_MOVE_META, final % self._modulo, final, t)
            self._write("DELETE FROM ttrans WHERE ttid=?", t)
        if t in self._voted:
            self._last_tid = max(self._last_tid, final)
            self._write(_MOVE_OBJECTS, final, t)
            self._write("DELETE FROM tobj WHERE tid=?", t)
            self._release(self._voted.pop(t))

    def validate(self, ttid: bytes, tid: bytes) -> None:
        # No lock first: the unlock would delete its row in the same database transaction.
        self.unlock(ttid, tid)

    def abort(self, ttid: bytes) -> None:
        t = to_int(ttid)
        if t in self._with_metadata:
            self._with_metadata.discard(t)
            self._write("DELETE FROM ttrans WHERE ttid=?", t)
        if t in self._voted:
            self._write("DELETE FROM tobj WHERE tid=?", t)
            self._collect(self._release(self._voted.pop(t)))

    def drop_unfinished(self) -> None:
        self._write("DELETE FROM ttrans")
        self._write("DELETE FROM tobj")
        self._with_metadata.clear()
        voted = list(self._voted.values())
        self._voted.clear()
        for ids in voted:
            self._collect(self._release(ids))

    def _check_size(self, size: int, size_max: int) -> None:
        if size > size_max:
            raise BackendRefused(
                f"the object has {size} bytes; {self.name} keeps at most {size_max} in one record"
            )
