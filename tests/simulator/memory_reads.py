"""Reads and maintenance of the memory backend, on :class:`~tests.simulator.memory_tables.Tables`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import sha1
from heapq import merge
from itertools import islice
from operator import eq
from typing import Any

from neo.protocol.ids import ZERO_TID
from neo.storage.backend import revisions
from neo.storage.backend.api import Record, Stored, Tail, Transaction
from neo.storage.backend.regrouped import REGROUPED
from neo.storage.backend.revisions import LookAhead, Revision
from neo.storage.backend.sql import MAX_TID, bound, optional_bytes, to_bytes, to_int
from tests.simulator.memory_tables import Tables
from tests.simulator.world import Violation

_NO_CHECKSUM = bytes(20)


class MemoryReads(ABC):
    """Like :class:`neo.storage.backend.reads.Reads`. A missing or wrong value is a Violation, because
    nothing damages this memory."""

    name: str
    memory: Tables
    _modulo: int
    _config: dict[str, str]
    _cells: dict[tuple[int, int], int]

    @abstractmethod
    def _check(self) -> None:
        """Raise BackendFailure unless the backend is open and has not failed."""

    @abstractmethod
    def drain(self) -> None: ...

    @abstractmethod
    def set_config(self, name: str, value: str | None) -> None: ...

    @abstractmethod
    def _write(self, operation: Callable[..., object], *args: Any) -> None: ...

    @abstractmethod
    def _set_cell(self, cell: tuple[int, int], tid: int) -> None: ...

    # -- objects ---------------------------------------------------------------------------------

    def load(self, oid: bytes, at: bytes | None, before: bytes | None) -> Record | None:
        self._check()
        tables = self.memory
        o = to_int(oid)
        serials = tables.serials.get(o)
        if serials is None:
            return None
        if at is not None:
            tid = to_int(at)
            i = bisect_left(serials, tid)
            if i == len(serials) or serials[i] != tid:
                return None
        else:
            i = bisect_left(serials, MAX_TID if before is None else bound(before)) - 1
            if i < 0:
                return None
        serial = serials[i]
        following = to_bytes(serials[i + 1]) if i + 1 < len(serials) else None
        _, _, _, data_id, value_tid = tables.obj[o, serial]
        data_serial = optional_bytes(value_tid)
        if data_id is None:
            return Record(to_bytes(serial), following, None, _NO_CHECKSUM, b"", data_serial)
        row = tables.data.get(data_id)
        if row is None or sha1(row.value).digest() != row.checksum:
            raise Violation(
                f"{self.name}: object {oid.hex()} at serial {serial:016x}: row {data_id} of 'data'"
                f" {'is missing' if row is None else 'does not match its checksum'}"
            )
        return Record(
            to_bytes(serial), following, row.compression, row.checksum, row.value, data_serial
        )

    def records(self, rows: Sequence[tuple[bytes, bytes]]) -> Iterator[Record | None]:
        for tid, oid in rows:
            yield self.load(oid, tid, None)

    def object_exists(self, oid: bytes) -> bool:
        return self.last_serial(oid) is not None

    def last_serial(self, oid: bytes) -> bytes | None:
        self._check()
        serials = self.memory.serials.get(to_int(oid))
        return to_bytes(serials[-1]) if serials else None

    def serial_at(self, oid: bytes, tid: bytes) -> bytes | None:
        self._check()
        serials = self.memory.serials.get(to_int(oid), [])
        i = bisect_right(serials, bound(tid))
        return to_bytes(serials[i - 1]) if i else None

    def value_at(self, oid: bytes, serial: bytes) -> tuple[int | None, bytes | None] | None:
        self.drain()  # specification 12.22
        row = self.memory.obj.get((to_int(oid), to_int(serial)))
        if row is None:
            return None
        if row.data_id is not None:
            self.memory.hold(row.data_id)
        return row.data_id, optional_bytes(row.value_tid)

    def history(
        self, oid: bytes, first: int, last: int, since: bytes = ZERO_TID
    ) -> list[tuple[bytes, int]]:
        self._check()
        o = to_int(oid)
        serials = self.memory.serials.get(o, [])
        serials = serials[bisect_left(serials, bound(since)) :]
        found = []
        for tid in serials[::-1][first : max(first, last)]:
            data_id = self.memory.obj[o, tid].data_id
            size = 0 if data_id is None else len(self.memory.data[data_id].value)
            found.append((to_bytes(tid), size))
        return found

    def oids(self, partition: int, min_oid: bytes, length: int) -> list[bytes]:
        self._check()
        oids = self.memory.oids.get(partition, [])
        existing = (o for o in oids[bisect_left(oids, bound(min_oid)) :] if self._exists_now(o))
        return [to_bytes(o) for o in islice(existing, length)]

    def distinct_oids(self, partition: int, min_oid: bytes, length: int) -> list[bytes]:
        self._check()
        oids = self.memory.oids.get(partition, [])
        start = bisect_left(oids, bound(min_oid))
        return [to_bytes(o) for o in oids[start : start + length]]

    def greatest_oid(self, partition: int) -> bytes | None:
        self._check()
        return optional_bytes(max(self.memory.oids.get(partition, ()), default=None))

    def size(self) -> int:
        self._check()
        return sum(len(row.value) for row in self.memory.data.values())

    def _exists_now(self, o: int) -> bool:
        return self.memory.obj[o, self.memory.serials[o][-1]].data_id is not None

    def load_data(self, data_id: int) -> tuple[int, bytes, bytes]:
        self.drain()
        row = self.memory.data.get(data_id)
        if row is None:
            raise Violation(f"{self.name}: data {data_id:#x} is requested and missing")
        return row.compression, row.checksum, row.value

    # -- undo ------------------------------------------------------------------------------------

    def _revisions(self, o: int, before: int = MAX_TID) -> list[Revision]:
        rows = self.memory.obj
        serials = self.memory.serials.get(o, [])
        return [
            Revision(tid, rows[o, tid].data_id, rows[o, tid].value_tid)
            for tid in serials[: bisect_left(serials, before)]
        ]

    def packed_value(self, oid: bytes, serial: bytes, tid: bytes) -> bytes | None:
        self.drain()
        known = self._revisions(to_int(oid))
        value_tid = revisions.packed_value(known, to_int(serial), bound(tid))
        return None if value_tid is None else to_bytes(value_tid)

    def packed_undo(self, oid: bytes, value_serial: bytes, tid: bytes) -> bytes | None:
        self.drain()
        known = self._revisions(to_int(oid))
        value_tid = revisions.packed_undo(known, to_int(value_serial), bound(tid))
        return None if value_tid is None else to_bytes(value_tid)

    def undo_serial(
        self, oid: bytes, max_tid: bytes, undone_tid: bytes, pending: Stored | None
    ) -> tuple[bytes, bytes | None, bool] | None:
        # Execute pending writes: what a pack removes meanwhile must not be compared.
        self.drain()
        known = self._revisions(to_int(oid), bound(max_tid))
        packed = to_int(undone_tid) <= int(self._config.get("_pack_tid", 0))
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
        if a is None or b is None:
            return False
        return a == b or self.load_data(a)[:2] == self.load_data(b)[:2]

    # -- transactions ----------------------------------------------------------------------------

    def transaction(self, tid: bytes) -> Transaction | None:
        self._check()
        row = self.memory.trans.get(to_int(tid))
        if row is None:
            return None
        _, _, packed, oids, user, description, extension, ttid = row
        listed = [oids[i : i + 8] for i in range(0, len(oids), 8)]
        packed = bool(packed) or to_int(tid) <= int(self._config.get("_pack_tid", 0))
        return Transaction(tid, user, description, extension, packed, listed, to_bytes(ttid))

    def tids_descending(self, first: int, last: int, partitions: Sequence[int]) -> list[bytes]:
        self._check()
        merged = merge(*(self.memory.tids.get(p, [])[::-1] for p in partitions), reverse=True)
        return [to_bytes(tid) for tid in islice(merged, max(0, first), max(0, last))]

    def tids_ascending(
        self, min_tid: bytes, max_tid: bytes, length: int, partition: int
    ) -> list[bytes]:
        self._check()
        tids = self.memory.tids.get(partition, [])
        found = tids[bisect_left(tids, bound(min_tid)) : bisect_right(tids, bound(max_tid))]
        return [to_bytes(tid) for tid in found[:length]]

    def _greatest_tids(self, partition: int) -> Iterator[int]:
        """Yield the greatest tid of the partition in ``trans``, and the greatest tids of its
        objects."""
        yield from self.memory.tids.get(partition, [])[-1:]
        for oid in self.memory.oids.get(partition, []):
            yield self.memory.serials[oid][-1]

    def last_ids(self, partitions: Sequence[int]) -> tuple[bytes | None, bytes | None]:
        self.drain()
        oids: Iterable[int] = (o for p in partitions for o in self.memory.oids.get(p, [])[-1:])
        tids: Iterable[int] = (tid for p in partitions for tid in self._greatest_tids(p))
        return (
            optional_bytes(max(oids, default=None)),
            optional_bytes(max(tids, default=None)),
        )

    def tail(self, partition: int, max_tid: bytes, length: int) -> Tail:
        self.drain()
        last = bound(max_tid)
        tids = self.memory.tids.get(partition, [])
        keys = sorted(
            (tid, oid)
            for oid in self.memory.oids.get(partition, [])
            for tid in self.memory.serials[oid]
            if tid <= last
        )
        return Tail(
            [to_bytes(tid) for tid in tids[: bisect_right(tids, last)][-length:]],
            [(to_bytes(tid), to_bytes(oid)) for tid, oid in keys[-length:]],
        )

    def final_tid(self, ttid: bytes, partition: int | None = None) -> bytes | None:
        self.drain()
        t = to_int(ttid)
        locked = self.memory.ttrans.get(t)
        if locked is not None and locked.tid is not None:
            return to_bytes(locked.tid)
        places = [t % self._modulo if partition is None else partition]
        if partition is None and REGROUPED in self._config:
            # The tid has the remainder of its ttid by the other number, perhaps.
            places = list(range(self._modulo))
        for place in places:
            tids = self.memory.tids.get(place, [])
            for tid in tids[bisect_left(tids, t) :]:
                if self.memory.trans[tid].ttid == t:
                    return to_bytes(tid)
        return None

    def locked_transactions(self) -> dict[bytes, bytes | None]:
        self.drain()
        locked: dict[bytes, bytes | None] = {to_bytes(ttid): None for ttid in self.memory.voted}
        locked |= dict.fromkeys(map(to_bytes, self.memory.prepared))
        for ttid, row in self.memory.ttrans.items():
            locked[to_bytes(ttid)] = optional_bytes(row.tid)
        return locked


class MemoryMaintenance(MemoryReads):
    """Like :class:`neo.storage.backend.maintenance.Maintenance`."""

    def truncate(self, tid: bytes, partitions: Sequence[int]) -> None:
        self.drain()
        last = bound(tid)
        tables = self.memory
        for partition in partitions:
            for oid in list(tables.oids.get(partition, [])):
                serials = tables.serials[oid]
                for serial in serials[bisect_right(serials, last) :]:
                    self._write(tables.remove_object, oid, serial)
            self._write(tables.remove_transactions, partition, last + 1, MAX_TID)
        self._write(tables.truncate_decided, last, partitions, self._modulo)
        for cell, complete in self._cells.items():
            if complete > last and cell[0] in partitions:
                self._set_cell(cell, last)

    def pack(
        self,
        tid: bytes,
        partition: int,
        min_oid: bytes,
        length: int,
        ahead: LookAhead | None = None,  # all rows are looked at
    ) -> bytes | None:
        self.drain()
        limit = bound(tid)
        if limit > int(self._config.get("_pack_tid", 0)):
            self.set_config("_pack_tid", str(limit))
        tables = self.memory
        oids = tables.oids.get(partition, [])
        last = max((oid for oid in oids if tables.serials[oid][0] <= limit), default=-1)
        oids = oids[bisect_left(oids, bound(min_oid)) :][: length + 1]
        for oid in oids[:length]:
            known = self._revisions(oid)
            removed, changed = revisions.pack(known, limit, partial(eq, oid, last))
            for revision in removed:
                self._write(tables.remove_object, oid, revision.tid)
            for serial, value_tid in changed:
                self._write(tables.repoint, oid, serial, value_tid)
        return to_bytes(oids[length]) if len(oids) > length else None

    def prune_orphans(self, dry_run: bool, min_id: int, length: int) -> tuple[int, int, int | None]:
        self.drain()
        tables = self.memory
        ids = sorted(data_id for data_id in tables.data if data_id >= min_id)[: length + 1]
        orphans = [data_id for data_id in ids[:length] if not tables.uses.get(data_id)]
        size = sum(len(tables.data[data_id].value) for data_id in orphans)
        size += tables.size_of_only(orphans)
        if not dry_run:
            for data_id in orphans:
                self._write(tables.prune, data_id)
        return len(orphans), size, ids[length] if len(ids) > length else None

    def drop_partition(self, partition: int, length: int) -> bool:
        self.drain()
        tables = self.memory
        for ttid in list(tables.prepared):
            self._write(tables.remove_prepared, ttid, partition, self._modulo)
        revisions_left = (
            (oid, serial)
            for oid in tables.oids.get(partition, [])
            for serial in tables.serials[oid]
        )
        rows = list(islice(revisions_left, length))
        for oid, serial in rows:
            self._write(tables.remove_object, oid, serial)
        left = length - len(rows)
        tids = tables.tids.get(partition, [])[:left]
        if tids:
            self._write(tables.remove_transactions, partition, tids[0], tids[-1])
        if left > len(tids):
            self._write(tables.drop_decided, partition, self._modulo)
        return left == len(tids)
