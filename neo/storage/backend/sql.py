"""Primitives of the SQL backends, and the tables and counters that they keep in memory.

SQL text is written once, with ``?`` for parameters, wherever the dialects agree.

Invariants
----------
* All calls run on the loop's thread. Writes take effect in the order of the calls. Reads see
  executed writes only, so code that must see its own writes drains first (free on SQLite).
* ``config`` and ``pt`` are small and mirrored in memory: reading them never waits.
* ``_pending[data_id]`` counts the references to a row of ``data`` that are not in ``obj``: one per
  stored or voted change. A row of ``data`` is deleted only when that count is 0 and no row of
  ``obj`` has its id. The count is rebuilt from ``tobj`` when the database is opened.
* ``_last_tid`` is at least every written or queued ``obj.tid``; ``_last_oid`` is at least every
  such ``obj.oid``. So the store of a new object needs no search for an earlier revision.
* Oids and tids above MAX_TID are refused in writes, find nothing in reads, and mean "no bound" as
  upper bounds, because SQLite's integers are signed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any

from neo.protocol.enums import CellState
from neo.storage.backend.api import (
    LEFT_BACKUP_TID,
    BackendFailure,
    BackendRefused,
    Cell,
    Done,
    Schedule,
)
from neo.storage.backend.schema import VERSION

MAX_TID = (1 << 63) - 1

_SIGNED = Struct(">q")
to_bytes = Struct(">Q").pack

#: Ids per ``IN (...)``: few enough for any parser, enough to amortize the cost of a statement.
IDS_PER_STATEMENT = 500

Row = Sequence[Any]


def to_int(value: bytes) -> int:
    """Return the integer of an oid or tid; above MAX_TID it is negative, hence in no table."""
    number: int = _SIGNED.unpack(value)[0]
    return number


def bound(tid: bytes) -> int:
    """Return the integer of an upper bound, MAX_TID at most."""
    number: int = _SIGNED.unpack(tid)[0]
    return number if number >= 0 else MAX_TID


def storable(value: bytes, what: str) -> int:
    """Return the integer of an oid or tid to be written. Raise BackendRefused above MAX_TID."""
    number: int = _SIGNED.unpack(value)[0]
    if number < 0:
        raise BackendRefused(f"{what} {value.hex()} is greater than the greatest, {MAX_TID:016x}")
    return number


def optional_bytes(number: int | None) -> bytes | None:
    return None if number is None else to_bytes(number)


class Tables(ABC):
    """Primitives of a backend and the tables that are mirrored in memory."""

    #: Name of the database in messages.
    name: str
    #: Partitions that data ids can number, in their high 16 bits.
    partitions_max: int
    #: Bytes of user, description or extension of a transaction; bytes of its list of oids.
    text_max: int
    oids_max: int

    def __init__(self, schedule: Schedule, dedup: bool) -> None:
        self._schedule = schedule
        self._dedup = dedup
        self._forget()

    def _forget(self) -> None:
        self._config: dict[str, str] = {}
        self._cells: dict[tuple[int, int], int] = {}
        self._partitions = 0
        self._pending: Counter[int] = Counter()
        self._voted: dict[int, list[int]] = {}
        self._with_metadata: set[int] = set()
        self._next_data_id: dict[int, int] = {}
        self._last_tid = 0
        self._last_oid = -1

    # -- primitives -----------------------------------------------------------------------------

    @abstractmethod
    def _read(self, sql: str, *args: Any) -> Sequence[Row]:
        """Run a query and return all rows. Raise BackendFailure."""

    @abstractmethod
    def _write(self, sql: str, *args: Any) -> None: ...

    def _write_row(self, sql: str, *args: Any) -> None:
        """Insert or replace one row of many; ``sql`` ends with ``VALUES (?, ...)``.

        The backend may batch such rows, up to the next write of another kind.
        """
        self._write(sql, *args)

    @abstractmethod
    def _write_many(self, sql: str, rows: Sequence[Row]) -> None:
        """Run the same INSERT for many rows."""

    @abstractmethod
    def _insert_data(
        self, data_id: int, checksum: bytes, compression: int, data: bytes
    ) -> None: ...

    @abstractmethod
    def _delete_data(self, ids: Sequence[int]) -> None:
        """Delete at most IDS_PER_STATEMENT rows of ``data`` to which no row of ``obj`` refers."""

    @abstractmethod
    def _big_data(self, data_id: int, compression: int, value: bytes | None) -> tuple[int, bytes]:
        """Return (compression, data) of a row that was read without its value or whole value."""

    @abstractmethod
    def drain(self) -> None: ...

    @abstractmethod
    def stored(self, done: Done) -> None: ...

    # -- opening --------------------------------------------------------------------------------

    def _load_state(self) -> None:
        """Fill the mirrors from the tables."""
        self._forget()
        for name, value in self._read("SELECT name, value FROM config"):
            if value is not None:
                self._config[_text(name)] = _text(value)
        for partition, nid, tid in self._read("SELECT `partition`, nid, tid FROM pt"):
            self._cells[partition, nid] = tid
        self._count_partitions()
        for ttid, oid, data_id in self._read("SELECT tid, oid, data_id FROM tobj"):
            self._last_oid = max(self._last_oid, oid)
            ids = self._voted.setdefault(ttid, [])
            if data_id is not None:
                ids.append(data_id)
                self._pending[data_id] += 1
        self._with_metadata.update(row[0] for row in self._read("SELECT ttid FROM ttrans"))
        for partition in {partition for partition, _ in self._cells}:
            self._last_tid = max(self._last_tid, self._greatest("tid", "obj", partition) or 0)
            self._last_oid = max(self._last_oid, self._greatest("oid", "obj", partition) or 0)

    def _count_partitions(self) -> None:
        # At least 1, since it is a divisor also before the first partition table.
        self._modulo = max(1, self.partition_count())

    # -- configuration --------------------------------------------------------------------------

    def get_config(self, name: str) -> str | None:
        return self._config.get(name)

    def set_config(self, name: str, value: str | None) -> None:
        if value is None:
            if self._config.pop(name, None) is not None:
                self._write("DELETE FROM config WHERE name=?", name)
        elif self._config.get(name) != value:
            self._config[name] = value
            self._write("REPLACE INTO config (name, value) VALUES (?, ?)", name, value)

    def _config_tid(self, name: str) -> int | None:
        """Return a tid of ``config``: ``_pack_tid`` is decimal, others are hexadecimal (TABLES.md)."""
        value = self._config.get(name)
        if value is None:
            return None
        return int(value) if name == "_pack_tid" else int(value, 16)

    # -- partition table ------------------------------------------------------------------------

    def partition_count(self) -> int:
        return 1 + max((partition for partition, _ in self._cells), default=-1)

    def cells(self) -> list[Cell]:
        return [Cell(*cell, tid) for cell, tid in sorted(self._cells.items())]

    def change_cells(
        self,
        ptid: int,
        replicas: int,
        changes: Iterable[tuple[int, int, CellState]],
        own_nid: int,
        replace: bool,
    ) -> None:
        wanted: dict[tuple[int, int], int | None] = dict.fromkeys(self._cells) if replace else {}
        for partition, nid, state in changes:
            if not 0 <= partition < self.partitions_max:
                raise BackendFailure(
                    f"{self.name}: partition {partition} cannot be kept: this backend numbers"
                    f" {self.partitions_max} partitions. Use another backend or fewer partitions"
                )
            if state is CellState.DISCARDED:
                wanted[partition, nid] = None
            elif state is not CellState.OUT_OF_DATE:
                wanted[partition, nid] = -state.value
            elif nid == own_nid:
                wanted[partition, nid] = self._tid_when_outdated(partition, nid)
            else:
                wanted[partition, nid] = 0
        for (partition, nid), tid in wanted.items():
            if tid is None:
                if self._cells.pop((partition, nid), None) is not None:
                    self._write("DELETE FROM pt WHERE `partition`=? AND nid=?", partition, nid)
            elif self._cells.get((partition, nid)) != tid:
                self._cells[partition, nid] = tid
                self._write(
                    "REPLACE INTO pt (`partition`, nid, tid) VALUES (?, ?, ?)", partition, nid, tid
                )
        self._count_partitions()
        self.set_config("ptid", str(ptid))
        self.set_config("replicas", str(replicas))

    def _tid_when_outdated(self, partition: int, nid: int) -> int:
        """Return the tid up to which an own cell is complete when it becomes OUT_OF_DATE (TABLES.md)."""
        tid = self._cells.get((partition, nid))
        if tid is None or tid == -CellState.CORRUPTED.value:
            return 0
        if tid >= 0:
            return tid
        for row in ("backup_tid", LEFT_BACKUP_TID):
            complete = self._config_tid(row)
            if complete is not None:
                return complete
        return self._complete_up_to(partition)

    def _complete_up_to(self, partition: int) -> int:
        self.drain()
        return max(self._greatest("tid", table, partition) or 0 for table in ("trans", "obj"))

    def _greatest(self, column: str, table: str, partition: int) -> int | None:
        rows = self._read(f"SELECT MAX({column}) FROM {table} WHERE `partition`=?", partition)
        number: int | None = rows[0][0]
        return number

    # -- references to data ---------------------------------------------------------------------

    def _release(self, ids: Iterable[int]) -> list[int]:
        """Drop one pending reference from each; return the ids that have none left."""
        free = []
        pending = self._pending
        for data_id in ids:
            count = pending[data_id] - 1
            if count > 0:
                pending[data_id] = count
            else:
                del pending[data_id]
                free.append(data_id)
        return free

    def _collect(self, ids: Iterable[int]) -> None:
        """Delete those rows of ``data`` to which nothing refers."""
        pending = self._pending
        free = sorted({data_id for data_id in ids if data_id not in pending})
        for i in range(0, len(free), IDS_PER_STATEMENT):
            self._delete_data(free[i : i + IDS_PER_STATEMENT])


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()


#: The row of ``config`` that identifies a database of NEO.
VERSION_ROW = ("version", str(VERSION))
