"""What a memory backend has committed: all but the rows of its open transaction."""

from __future__ import annotations

from typing import Protocol

from neo.storage.backend.api import Record, Transaction
from neo.storage.backend.sql import to_int
from tests.simulator.memory_tables import Tables


class Backend(Protocol):
    memory: Tables

    def load(self, oid: bytes, at: bytes | None, before: bytes | None) -> Record | None: ...

    def transaction(self, tid: bytes) -> Transaction | None: ...


class CommittedMemory:
    """Reads of other threads, as of :class:`neo.storage.backend.sqlite.reader.SQLiteReader`.

    A row that is deleted and not committed is not found: an older read would not find it either.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        #: Keys of changed rows of ``obj`` and ``trans`` that were committed without a sync.
        self._written: set[object] = set()

    def write_out(self) -> None:
        """Note a commit: what is changed until now is not in the open transaction any more."""
        memory = self._backend.memory
        self._written = {*memory.obj.changed, *memory.trans.changed}

    def _open(self, oid: int, tid: int) -> bool:
        key = oid, tid
        return key in self._backend.memory.obj.changed and key not in self._written

    def load(self, oid: bytes, at: bytes | None, before: bytes | None) -> Record | None:
        o = to_int(oid)
        record = self._backend.load(oid, at, before)
        while record is not None and self._open(o, to_int(record.serial)):
            if at is not None:
                return None
            record = self._backend.load(oid, None, record.serial)
        if record is None or record.next_serial is None:
            return record
        following = to_int(record.next_serial)
        return record._replace(next_serial=None) if self._open(o, following) else record

    def transaction(self, tid: bytes) -> Transaction | None:
        key = to_int(tid)
        if key in self._backend.memory.trans.changed and key not in self._written:
            return None
        return self._backend.transaction(tid)
