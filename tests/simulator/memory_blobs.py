"""Contents of blobs in the memory backend, like :mod:`neo.storage.backend.blobs` for SQL."""

from __future__ import annotations

from neo.protocol.blobs import Content
from neo.storage.backend.api import Key, Reference
from neo.storage.backend.sql import COUNTER_BITS, to_bytes
from tests.simulator.memory_prepared import MemoryPrepared


class MemoryBlobs(MemoryPrepared):
    def has_content(self, checksum: bytes) -> bool:
        self.drain()
        return self.memory.has_content(checksum)

    def contents(self, after: bytes, length: int) -> list[Content]:
        self.drain()
        return self.memory.contents(after, length)

    def content_groups(self) -> list[int]:
        self.drain()
        return sorted({row.data_id >> COUNTER_BITS for row in self.memory.content.values()})

    def references(self, group: int, after: int, length: int) -> list[Reference]:
        self.drain()
        tables = self.memory
        used = {row.data_id for table in (tables.obj, tables.tobj) for row in table.values()}
        rows = sorted(
            row
            for row in tables.content.values()
            if row.data_id > after and row.data_id >> COUNTER_BITS == group and row.data_id in used
        )
        return [Reference(row.data_id, Content(row.size, row.checksum)) for row in rows[:length]]

    def objects_with(self, checksum: bytes, length: int) -> list[Key]:
        self.drain()
        ids = {row.data_id for row in self.memory.content.values() if row.checksum == checksum}
        found = sorted(key for key, row in self.memory.obj.items() if row.data_id in ids)
        return [(to_bytes(oid), to_bytes(tid)) for oid, tid in found[:length]]

    def freed_contents(self) -> set[bytes] | None:
        self.drain()
        tables = self.memory
        gone, tables.freed = tables.freed, set()
        return tables.forget_contents(gone)

    def forget_freed(self, min_id: int, length: int) -> int | None:
        self.drain()
        step = sorted(data_id for data_id in self.memory.content if data_id >= min_id)
        self.memory.forget_contents(step[:length])
        return step[length] if len(step) > length else None

    def content_totals(self) -> tuple[int, int]:
        self.drain()
        found = self.memory.contents(b"", len(self.memory.content))
        return len(found), sum(content.size for content in found)
