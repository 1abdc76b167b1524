"""Table ``content``: the contents to which values of ``data`` refer (specification 26.8).

A row is written with its row of ``data``. After that one is deleted, ``freed_contents`` deletes it, and
tells that the file may not be needed any more. A crash between them leaves rows without ``data``, which
count for nothing, and which ``forget_freed`` deletes.

Invariant: a row says what the value of its row of ``data`` says, which never changes. So a row that says
something else, left by a release that gave ids again, can be deleted: a value that refers to that content
has a row of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from neo.protocol.blobs import REFERENCE_BYTES, Content, content_of
from neo.storage.backend.api import Key, RecordDamaged, Reference
from neo.storage.backend.sql import COUNTER_BITS, IDS_PER_STATEMENT, Engine, to_bytes

logger = logging.getLogger("neo.storage")

#: Ids of deleted values that are remembered for ``freed_contents``. After more, everything is compared.
COLLECTED_MAX = 10_000

# REPLACE: the id is new, so a row that has it belongs to no value.
_ADD = "REPLACE INTO content (data_id, checksum, size) VALUES (?, ?, ?)"
_WITH_DATA = "EXISTS (SELECT 1 FROM data WHERE data.id=b.data_id)"
_HAS = f"SELECT 1 FROM content b WHERE b.checksum=? AND {_WITH_DATA} LIMIT 1"
_CONTENTS = (
    f"SELECT DISTINCT b.checksum, b.size FROM content b WHERE b.checksum>? AND {_WITH_DATA}"
    " ORDER BY b.checksum LIMIT ?"
)
_REFERENCES = (
    "SELECT b.data_id, b.size, b.checksum FROM content b WHERE b.data_id>? AND b.data_id<?"
    " AND (EXISTS (SELECT 1 FROM obj WHERE obj.data_id=b.data_id)"
    " OR EXISTS (SELECT 1 FROM tobj WHERE tobj.data_id=b.data_id)) ORDER BY b.data_id LIMIT ?"
)
_OBJECTS = (
    "SELECT obj.oid, obj.tid FROM content b JOIN obj ON obj.data_id=b.data_id WHERE b.checksum=?"
    " ORDER BY obj.oid, obj.tid LIMIT ?"
)
_TOTALS = (
    "SELECT COUNT(*), SUM(size) FROM (SELECT DISTINCT b.checksum, b.size FROM content b"
    f" WHERE {_WITH_DATA}) found"
)
_STEP = "SELECT data_id FROM content WHERE data_id>=? ORDER BY data_id LIMIT ?"


class BlobTable:
    """``some``: whether there may be rows. Nothing costs a statement while it is false."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._read = engine.read
        self._write = engine.write
        self.some = False
        self._collected: set[int] | None = set()

    def load(self) -> None:
        """Forget the state of a database that was open before."""
        self.some = bool(self._read("SELECT 1 FROM content LIMIT 1"))
        self._collected = set()

    def add(self, data_id: int, content: Content) -> None:
        """Write the row for a value that refers to a content."""
        self.some = True
        if self._collected is not None:
            self._collected.discard(data_id)
        self._write(_ADD, data_id, content.checksum, content.size)

    def collected(self, ids: Iterable[int]) -> None:
        """Note that these values may have been deleted."""
        if self._collected is not None:
            self._collected.update(ids)
            if len(self._collected) > COLLECTED_MAX:
                self._collected = None

    def size_of_only(self, ids: Iterable[int]) -> int:
        """Return the bytes of contents to which these values refer, and no others."""
        listed = ",".join(map(str, ids))
        rows = self._read(
            f"SELECT DISTINCT b.checksum, b.size FROM content b WHERE b.data_id IN ({listed})"
            " AND NOT EXISTS (SELECT 1 FROM content o JOIN data ON data.id=o.data_id"
            f" WHERE o.checksum=b.checksum AND o.data_id NOT IN ({listed}))"
        )
        return sum(int(size) for _, size in rows)

    # -- Backend ------------------------------------------------------------------------------------

    def has_content(self, checksum: bytes) -> bool:
        if not self.some:
            return False
        self._engine.drain()
        return bool(self._read(_HAS, checksum))

    def contents(self, after: bytes, length: int) -> list[Content]:
        self._engine.drain()
        return [Content(int(size), checksum) for checksum, size in self._read(_CONTENTS, after, length)]

    def content_groups(self) -> list[int]:
        self._engine.drain()
        groups: list[int] = []
        while rows := self._read(_STEP, (groups[-1] + 1) << COUNTER_BITS if groups else 0, 1):
            groups.append(int(rows[0][0]) >> COUNTER_BITS)
        return groups

    def references(self, group: int, after: int, length: int) -> list[Reference]:
        self._engine.drain()
        first = max(after, (group << COUNTER_BITS) - 1)
        rows = self._read(_REFERENCES, first, (group + 1) << COUNTER_BITS, length)
        return [Reference(data_id, Content(int(size), checksum)) for data_id, size, checksum in rows]

    def objects_with(self, checksum: bytes, length: int) -> list[Key]:
        self._engine.drain()
        rows = self._read(_OBJECTS, checksum, length)
        return [(to_bytes(oid), to_bytes(tid)) for oid, tid in rows]

    def freed_contents(self) -> set[bytes] | None:
        collected, self._collected = self._collected, set()
        if collected is None:
            return None
        freed: set[bytes] = set()
        if not self.some or not collected:
            return freed
        self._engine.drain()
        ids = sorted(collected)
        for i in range(0, len(ids), IDS_PER_STATEMENT):
            freed |= self._delete(ids[i : i + IDS_PER_STATEMENT])
        return freed

    def forget_freed(self, min_id: int, length: int) -> int | None:
        self._engine.drain()
        step = [row[0] for row in self._read(_STEP, min_id, length + 1)]
        if step:
            self._delete(step[:length])
            self._detach(step[:length])
        return step[length] if len(step) > length else None

    def _delete(self, ids: list[int]) -> set[bytes]:
        """Delete those of these rows that have no value; return their checksums."""
        rows = self._read(
            f"SELECT b.data_id, b.checksum FROM content b WHERE b.data_id IN ({','.join(map(str, ids))})"
            f" AND NOT {_WITH_DATA}"
        )
        if rows:
            gone = ",".join(str(row[0]) for row in rows)
            self._write(f"DELETE FROM content WHERE data_id IN ({gone})")
        return {row[1] for row in rows}

    def _detach(self, ids: list[int]) -> None:
        """Delete those of these rows whose value refers to another content or none."""
        rows = self._read(
            f"SELECT b.data_id, b.size, b.checksum, d.compression, SUBSTR(d.value, -{REFERENCE_BYTES})"
            " FROM content b JOIN data d ON d.id=b.data_id"
            f" WHERE b.data_id IN ({','.join(map(str, ids))})"
        )
        strays = [row[0] for row in rows if not self._agrees(*row)]
        if strays:
            self._write(f"DELETE FROM content WHERE data_id IN ({','.join(map(str, strays))})")
            logger.warning(
                "%s: %d references to contents of blobs belonged to values that are gone, and were at"
                " others: they are removed",
                self._engine.name,
                len(strays),
            )

    def _agrees(
        self, data_id: int, size: int, checksum: bytes, compression: int | None, tail: bytes
    ) -> bool:
        """Return whether a row says what its value says, which ends with ``tail``."""
        if (compression or 0) & self._engine.dialect.big:
            (row,) = self._read("SELECT value FROM data WHERE id=?", data_id)
            try:
                compression, tail = self._engine.big_value(data_id, compression or 0, row[0])
            except RecordDamaged:
                return True  # nothing is known of it
        return not compression and content_of(tail) == Content(int(size), checksum)

    def content_totals(self) -> tuple[int, int]:
        if not self.some:
            return 0, 0
        self._engine.drain()
        count, size = self._read(_TOTALS)[0]
        return int(count), int(size or 0)
