"""Table ``data``: values of revisions, and the references to them.

Invariant: ``pending[data_id]`` counts the references to a row of ``data`` that are not in ``obj``: one
per stored or voted change. A row of ``data`` is deleted only when that count is 0 and no row of ``obj``
has its id. The count is rebuilt from ``tobj`` when the database is opened.

Invariant: an id that is given to a new row is greater than each one of its partition that any table has
(specification 14.46). A row of another table whose row of ``data`` is gone would refer to the new value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import sha1

from neo.protocol.blobs import MAGIC, PLACE, SIZE_MAX, Content, content_of
from neo.storage.backend.api import BackendRefused, RecordDamaged
from neo.storage.backend.blobs import BlobTable
from neo.storage.backend.sql import COUNTER_BITS, IDS_PER_STATEMENT, Engine, storable
from neo.storage.backend.tables import Tables

#: The tables with ids of ``data``, and the columns with these ids. Tables for another number of
#: partitions have the same ids as ``obj``.
_WITH_IDS = {"data": "id", "obj": "data_id", "tobj": "data_id", "content": "data_id"}


class Values:
    def __init__(self, engine: Engine, tables: Tables, blobs: BlobTable) -> None:
        self._engine = engine
        self._tables = tables
        self._blobs = blobs
        self._read = engine.read
        self._insert = engine.insert_value
        self.pending: Counter[int] = Counter()
        self._next_id: dict[int, int] = {}

    def load(self) -> None:
        """Forget the state of a database that was open before."""
        self.pending.clear()
        self._next_id.clear()

    # -- writes ---------------------------------------------------------------------------------

    def store_data(self, oid: bytes, compression: int, checksum: bytes, data: bytes) -> int:
        o = storable(oid, "oid")
        if self._engine.dedup:
            data_id = self._find_same(checksum, compression, data)
            if data_id is not None:
                self.pending[data_id] += 1
                return data_id
        partition = o % self._tables.modulo
        data_id = self._next_id.get(partition) or self._first_free(partition)
        if len(data) > self._engine.value_max:
            raise BackendRefused(
                f"the object has {len(data)} bytes; {self._engine.name} keeps at most"
                f" {self._engine.value_max} in one record"
            )
        content = _checked(content_of(data)) if data[PLACE] == MAGIC and not compression else None
        self._next_id[partition] = data_id + 1  # first: an id is given once, even if the insert fails
        self._insert(data_id, checksum, compression, data)
        if content is not None:
            self._blobs.add(data_id, content)
        self.pending[data_id] = 1
        return data_id

    def _first_free(self, partition: int) -> int:
        """Return an id above all that are in a table: a crash may have left a row of ``content`` whose
        value was deleted, and damage a row of ``obj``."""
        start = partition << COUNTER_BITS
        end = start + (1 << COUNTER_BITS) - 1
        greatest = start - 1
        for table, column in _WITH_IDS.items():
            sql = f"SELECT MAX({column}) FROM {table} WHERE {column}>=? AND {column}<=?"
            last = self._read(sql, start, end)[0][0]
            greatest = greatest if last is None else max(greatest, last)
        return greatest + 1

    def _find_same(self, checksum: bytes, compression: int, data: bytes) -> int | None:
        """Return the row of ``data`` with the same content, or None. Drain earlier writes first."""
        self._engine.drain()
        sql = "SELECT id FROM data WHERE hash=? AND compression IN (?, ?)"
        rows = self._read(sql, checksum, compression, compression | 0x80)
        if not rows:
            return None
        data_id: int = rows[0][0]
        if self.load_data(data_id)[2] != data:
            raise BackendRefused(
                f"two different values have the SHA-1 checksum {checksum.hex()}: with deduplication"
                " only one of them can be kept"
            )
        return data_id

    # -- references -----------------------------------------------------------------------------

    def release(self, ids: Iterable[int]) -> list[int]:
        """Drop one pending reference from each; return the ids that have none left."""
        free = []
        pending = self.pending
        for data_id in ids:
            count = pending[data_id] - 1
            if count > 0:
                pending[data_id] = count
            else:
                del pending[data_id]
                free.append(data_id)
        return free

    def collect(self, ids: Iterable[int]) -> None:
        """Delete those rows of ``data`` to which nothing refers."""
        pending = self.pending
        free = sorted({data_id for data_id in ids if data_id not in pending})
        for i in range(0, len(free), IDS_PER_STATEMENT):
            self._engine.delete_values(free[i : i + IDS_PER_STATEMENT])
        if self._blobs.some:
            self._blobs.collected(free)

    def size_of_contents(self, ids: Sequence[int]) -> int:
        """Return the bytes of contents to which these values refer, and no others."""
        return self._blobs.size_of_only(ids) if ids and self._blobs.some else 0

    def release_data(self, data_ids: Iterable[int]) -> None:
        self.collect(self.release(data_ids))

    # -- reads ----------------------------------------------------------------------------------

    def load_data(self, data_id: int) -> tuple[int, bytes, bytes]:
        self._engine.drain()
        compression, checksum, data = self.read(data_id)
        if sha1(data).digest() != checksum:
            raise self.damaged("data of a transaction in progress", data_id)
        return compression, checksum, data

    def read(self, data_id: int) -> tuple[int, bytes, bytes]:
        """Return (compression, checksum, data), not verified. Raise RecordDamaged without a row."""
        rows = self._read(
            f"SELECT d.compression, d.hash, {self._engine.dialect.value} FROM data d WHERE d.id=?",
            data_id,
        )
        if not rows:
            raise RecordDamaged(
                f"{self._engine.name}: row {data_id} of table 'data' is missing. Rebuild this node"
                " from a replica"
            )
        compression, checksum, data = rows[0]
        compression = compression or 0  # the column of MariaDB may be NULL
        if data is None or compression > 0x7F:
            compression, data = self._engine.big_value(data_id, compression, data)
        return compression, checksum, data

    def missing(self, oid: bytes, serial: bytes, data_id: int) -> RecordDamaged:
        """Return the error for a revision whose row of ``data`` is missing."""
        return RecordDamaged(
            f"{self._engine.name}: object {oid.hex()} at serial {serial.hex()}: 'obj' refers to row"
            f" {data_id} of 'data', which is missing. Rebuild this node from a replica"
        )

    def damaged(self, what: str, data_id: int) -> RecordDamaged:
        """Return the error for a value that does not match its checksum."""
        return RecordDamaged(
            f"{self._engine.name}: {what}: the value of row {data_id} of table 'data' does not match"
            " its checksum: the disk or a program damaged it. Rebuild this node from a replica"
        )


def _checked(content: Content | None) -> Content | None:
    """Return a content to which a record refers. Raise BackendRefused if its size fits in no column."""
    if content is not None and content.size > SIZE_MAX:
        raise BackendRefused(
            f"the object refers to a content of {content.size} bytes: no file has more than {SIZE_MAX}"
        )
    return content
