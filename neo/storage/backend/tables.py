"""Tables ``config`` and ``pt``, mirrored in memory so that reading them never waits, and watermarks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from neo.protocol.enums import CellState
from neo.storage.backend.api import LEFT_BACKUP_TID, BackendFailure, Cell
from neo.storage.backend.schema import VERSION
from neo.storage.backend.sql import Engine, bound, to_int
from neo.topology.partitions import grouped

#: The row of ``config`` that identifies a database of NEO.
VERSION_ROW = ("version", str(VERSION))


class Tables:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._read = engine.read
        self._write = engine.write
        self._config: dict[str, str] = {}
        self._cells: dict[tuple[int, int], int] = {}
        #: The number of partitions; 1 before the first partition table, since it is a divisor.
        self.modulo = 1
        #: At least each written or queued ``obj.tid`` and ``obj.oid``. So the store of a new object
        #: needs no search for an earlier revision.
        self.last_tid = 0
        self.last_oid = -1

    def load(self) -> None:
        """Read the tables."""
        config = self._read("SELECT name, value FROM config")
        self._config = {_text(name): _text(value) for name, value in config if value is not None}
        cells = self._read("SELECT `partition`, nid, tid FROM pt")
        self._cells = {(partition, nid): tid for partition, nid, tid in cells}
        self.modulo = max(1, self.partition_count())
        self.last_tid, self.last_oid = 0, -1
        for partition in {partition for partition, _ in self._cells}:
            self.last_tid = max(self.last_tid, self.greatest("tid", "obj", partition) or 0)
            self.last_oid = max(self.last_oid, self.greatest("oid", "obj", partition) or 0)

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

    def config_tid(self, name: str) -> int | None:
        """Return a tid of ``config``: ``_pack_tid`` is decimal, others are hexadecimal (specification
        14.9)."""
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
        dialect = self._engine.dialect
        wanted: dict[tuple[int, int], int | None] = dict.fromkeys(self._cells) if replace else {}
        for partition, nid, state in changes:
            if not 0 <= partition < dialect.partitions_max:
                raise BackendFailure(
                    f"{self._engine.name}: partition {partition} cannot be kept: this backend numbers"
                    f" {dialect.partitions_max} partitions. Use another backend or fewer partitions"
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
        self.modulo = max(1, self.partition_count())
        self.set_config("ptid", str(ptid))
        self.set_config("replicas", str(replicas))

    def regroup(self, partitions: int) -> None:
        """Make the same cells for another number of partitions."""
        self._cells = regrouped_cells(self._cells, self.modulo, partitions)
        self._write("DELETE FROM pt")
        rows = [(*cell, tid) for cell, tid in self._cells.items()]
        self._engine.write_many("REPLACE INTO pt (`partition`, nid, tid) VALUES (?, ?, ?)", rows)
        self.modulo = partitions

    def _tid_when_outdated(self, partition: int, nid: int) -> int:
        """Return the tid up to which an own cell is complete when it becomes OUT_OF_DATE (specification
        14.13)."""
        tid = self._cells.get((partition, nid))
        if tid is None or tid == -CellState.CORRUPTED.value:
            return 0
        if tid >= 0:
            return tid
        for row in ("backup_tid", LEFT_BACKUP_TID):
            complete = self.config_tid(row)
            if complete is not None:
                return complete
        return self._complete_up_to(partition)

    def _complete_up_to(self, partition: int) -> int:
        self._engine.drain()
        return max(self.greatest("tid", table, partition) or 0 for table in ("trans", "obj"))

    def greatest(self, column: str, table: str, partition: int) -> int | None:
        rows = self._read(f"SELECT MAX({column}) FROM {table} WHERE `partition`=?", partition)
        number: int | None = rows[0][0]
        return number

    # -- replication and truncation --------------------------------------------------------------

    def set_complete(self, partition: int, nid: int, tid: bytes) -> None:
        complete = self._cells.get((partition, nid), -1)
        if 0 <= complete < to_int(tid):
            self._set_tid(partition, nid, to_int(tid))

    def forget_complete(self, nid: int) -> None:
        for (partition, of), complete in self._cells.items():
            if of == nid and complete > 0:
                self._set_tid(partition, nid, 0)

    def truncated(self, tid: bytes, partitions: Sequence[int]) -> None:
        """Note that cells of these partitions are complete up to ``tid`` at most."""
        last = bound(tid)
        for (partition, nid), complete in self._cells.items():
            if complete > last and partition in partitions:
                self._set_tid(partition, nid, last)

    def _set_tid(self, partition: int, nid: int, tid: int) -> None:
        self._cells[partition, nid] = tid
        self._write("UPDATE pt SET tid=? WHERE `partition`=? AND nid=?", tid, partition, nid)

    def packed(self, tid: int) -> None:
        """Raise ``_pack_tid`` to ``tid``."""
        if tid > (self.config_tid("_pack_tid") or 0):
            self.set_config("_pack_tid", str(tid))


def regrouped_cells(
    cells: Mapping[tuple[int, int], int], before: int, after: int
) -> dict[tuple[int, int], int]:
    """Return the rows of ``pt`` for another number of partitions, as (partition, nid) → tid; see
    :meth:`neo.topology.partitions.PartitionTable.regroup`."""
    corrupted = -CellState.CORRUPTED.value
    nids = sorted({nid for _, nid in cells})
    made: dict[tuple[int, int], int] = {}
    for partition, sources in enumerate(grouped(before, after)):
        for nid in nids:
            tids = [cells[source, nid] for source in sources if (source, nid) in cells]
            if len(tids) == len(sources):
                outdated = [tid for tid in tids if tid >= 0]
                made[partition, nid] = corrupted if corrupted in tids else min(outdated or tids)
    return made


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()
