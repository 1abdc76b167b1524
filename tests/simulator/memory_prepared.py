"""Prepared transactions in the memory backend, like :mod:`neo.storage.backend.prepared` for SQL."""

from __future__ import annotations

from collections.abc import Iterable
from struct import pack, unpack

from neo.storage.backend.api import (
    Check,
    Decided,
    Prepared,
    PreparedRows,
    Record,
    Stored,
    TransactionMeta,
)
from neo.storage.backend.sql import optional_bytes, storable, to_bytes, to_int
from tests.simulator.memory_replication import MemoryReplication
from tests.simulator.memory_tables import DecidedRow, ObjectRow, PreparedRow, TransactionRow


class MemoryPrepared(MemoryReplication):
    def mark_prepared(self, mark: Prepared, checks: Iterable[Check]) -> None:
        self._write(self.memory.mark, *_rows(mark, checks))

    def prepared(self) -> list[Prepared]:
        self.drain()
        return [
            Prepared(to_bytes(t), xid, since, text, list(unpack(f">{len(packed) // 2}H", packed)))
            for t, xid, since, text, packed in self.memory.prepared.values()
        ]

    def prepared_rows(self, ttid: bytes) -> PreparedRows:
        self.drain()
        t, tables = to_int(ttid), self.memory
        metadata = None
        if (row := tables.ttrans.get(t)) is not None:
            oids = [row.oids[i : i + 8] for i in range(0, len(row.oids), 8)]
            metadata = TransactionMeta(row.user, row.description, row.extension, oids)
        stored = [
            Stored(to_bytes(oid), data_id, optional_bytes(value_tid))
            for _, oid, _, data_id, value_tid in (
                tables.tobj[t, oid] for oid in sorted(tables.voted.get(t, ()))
            )
        ]
        checks = [
            (to_bytes(oid), to_bytes(serial))
            for ttid_, oid, serial in sorted(tables.prepared_check.values())
            if ttid_ == t
        ]
        return PreparedRows(metadata, stored, checks)

    def replace_prepared(
        self,
        mark: Prepared,
        partition: int,
        metadata: TransactionMeta | None,
        checks: Iterable[Check],
    ) -> None:
        row, of_checks = _rows(mark, checks)
        self.replace_voted(mark.ttid, partition, metadata)
        self._write(self.memory.remove_checks, row.ttid, partition, self._modulo)
        self._write(self.memory.mark, row, of_checks)

    def replace_voted(
        self, ttid: bytes, partition: int, metadata: TransactionMeta | None
    ) -> None:
        t, tables = storable(ttid, "ttid"), self.memory
        self._write(tables.remove_voted, t, partition, self._modulo)
        if metadata is not None:
            user, description, extension, oids = metadata
            fields = b"".join(oids), user, description, extension, t
            self._write(
                tables.replace_metadata, TransactionRow(t % self._modulo, None, 0, *fields)
            )

    def add_voted_object(self, ttid: bytes, oid: bytes, record: Record) -> Stored:
        t, o = storable(ttid, "ttid"), storable(oid, "oid")
        data_id = self.data_of(oid, record)
        value_tid = None if record.data_serial is None else to_int(record.data_serial)
        row = ObjectRow(o % self._modulo, o, t, data_id, value_tid)
        self._write(self.memory.vote, [row])
        return Stored(oid, data_id, record.data_serial)

    def decide(self, outcomes: Iterable[Decided]) -> None:
        for xid, ttid, tid, time in outcomes:
            final = None if tid is None else storable(tid, "tid")
            row = DecidedRow(xid, storable(ttid, "ttid"), final, time)
            self._write(self.memory.decided.put, xid, row)

    def decided(self) -> list[Decided]:
        self.drain()
        return [
            Decided(xid, to_bytes(ttid), optional_bytes(tid), time)
            for xid, ttid, tid, time in sorted(self.memory.decided.values(), key=lambda row: row.xid)
        ]

    def forget_decided(self, xid: bytes) -> None:
        self._write(self.memory.forget_decided, xid)


def _rows(
    mark: Prepared, checks: Iterable[Check]
) -> tuple[PreparedRow, list[tuple[int, int, int]]]:
    t = storable(mark.ttid, "ttid")
    partitions = pack(f">{len(mark.partitions)}H", *mark.partitions)
    return PreparedRow(t, mark.xid, mark.since, mark.text, partitions), [
        (t, storable(oid, "oid"), storable(serial, "serial")) for oid, serial in checks
    ]
