"""Replicated rows in the memory backend, like :mod:`neo.storage.backend.replication` for SQL."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from neo.storage.backend import revisions
from neo.storage.backend.api import Record, Transaction
from neo.storage.backend.sql import MAX_TID, bound, storable, to_bytes, to_int
from tests.simulator.memory_reads import MemoryMaintenance
from tests.simulator.memory_tables import ObjectRow, TransactionRow


class MemoryReplication(MemoryMaintenance):
    @abstractmethod
    def store_data(self, oid: bytes, compression: int, checksum: bytes, data: bytes) -> int: ...

    def objects_ascending(
        self, partition: int, min_tid: bytes, min_oid: bytes, max_tid: bytes, length: int
    ) -> list[tuple[bytes, bytes]]:
        self._check()
        ascending = self.memory.revisions.get(partition, [])
        begin = bisect_left(ascending, (bound(min_tid), bound(min_oid)))
        end = bisect_right(ascending, (bound(max_tid), MAX_TID))
        wanted = ascending[begin : min(end, begin + length)]
        return [(to_bytes(tid), to_bytes(oid)) for tid, oid in wanted]

    def add_transaction(self, transaction: Transaction) -> None:
        tid, user, description, extension, packed, oids, ttid = transaction
        t = storable(tid, "tid")
        row = TransactionRow(
            t % self._modulo,
            t,
            int(packed),
            b"".join(oids),
            user,
            description,
            extension,
            storable(ttid, "ttid"),
        )
        self._write(self.memory.put_transaction, row)

    def add_object(self, oid: bytes, record: Record) -> None:
        o, t = storable(oid, "oid"), storable(record.serial, "tid")
        data_id = self.data_of(oid, record)
        value_tid = None if record.data_serial is None else to_int(record.data_serial)
        row = ObjectRow(o % self._modulo, o, t, data_id, value_tid)
        self._write(self.memory.replicate, row)

    def data_of(self, oid: bytes, record: Record) -> int | None:
        """Return the data id for a record that was fetched; the data is held."""
        _, _, compression, checksum, data, data_serial = record
        if compression is None:
            return None
        if data_serial is not None:
            found = self.value_at(oid, data_serial)
            if found is not None and found[0] is not None:
                return found[0]
        return self.store_data(oid, compression, checksum, data)

    def delete_transactions(self, tids: Iterable[bytes]) -> None:
        for tid in tids:
            t = to_int(tid)
            self._write(self.memory.remove_transactions, t % self._modulo, t, t)

    def delete_objects(self, objects: Iterable[tuple[bytes, bytes]], packed: bool = False) -> None:
        self.drain()
        objects = list(objects)
        for o, tids in revisions.by_oid(objects if packed else ()).items():
            for t, value_tid in revisions.repoint(self._revisions(o), tids):
                self._write(self.memory.repoint, o, t, value_tid)
        for tid, oid in objects:
            # A row may have been erased after it was listed. SQL ignores that, too.
            if (to_int(oid), to_int(tid)) in self.memory.obj:
                self._write(self.memory.remove_object, to_int(oid), to_int(tid))

    def unlink_undone(self, objects: Iterable[tuple[bytes, bytes]]) -> None:
        self.drain()
        for o, tids in revisions.by_oid(objects).items():
            self._write(self.memory.unlink_prepared, o, tids)
            for revision in revisions.pointing(self._revisions(o), tids):
                self._write(self.memory.unlink, o, revision.tid)

    def packed_elsewhere(self, tid: bytes) -> None:
        t = to_int(tid)
        if t > int(self._config.get("_pack_tid", 0)):
            self.set_config("_pack_tid", str(t))

    def link_undone(self, partition: int) -> list[tuple[bytes, bytes]]:
        self._write(self.memory.link_undone, partition)
        self.drain()
        return sorted(
            (to_bytes(row.tid), to_bytes(row.oid))
            for row in self.memory.obj.values()
            if row.partition == partition and row.data_id is None and row.value_tid is not None
        )

    def set_complete(self, partition: int, nid: int, tid: bytes) -> None:
        complete = self._cells.get((partition, nid), -1)
        if 0 <= complete < to_int(tid):
            self._set_cell((partition, nid), to_int(tid))

    def forget_complete(self, nid: int) -> None:
        for (partition, of), complete in list(self._cells.items()):
            if of == nid and complete > 0:
                self._set_cell((partition, of), 0)
