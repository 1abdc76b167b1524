"""The real SQLite backend in a simulated world. Its syncs take virtual time, and its disk has
faults."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from neo.storage.backend.acknowledged import Acknowledged, Position
from neo.storage.backend.api import BackendFailure, Done, Schedule, WentBack
from neo.storage.backend.schema import TABLES
from neo.storage.backend.sqlite.engine import SQLite
from neo.storage.backend.sqlite.files import Files
from neo.storage.backend.sqlite.position import SQLitePosition
from neo.storage.backend.sqlite.wal_sync import Report, Syncer
from tests.simulator.disk_base import OnFailure, Sync
from tests.simulator.disk_check import Rows
from tests.simulator.world import Violation

if TYPE_CHECKING:
    from tests.simulator.sqlite_disk import SQLiteDisk

#: Primary keys of TABLES, as numbers of columns.
_ORDERS = ("1", "1, 2", "1, 2", "1, 2, 3", "1", "8", "1, 2, 3", "1", "1, 2", "1", "1", "1", "1, 2")


class SimSQLite(SQLite):
    """The real engine, on the files of a :class:`SQLiteDisk`."""

    def __init__(
        self, disk: SQLiteDisk, schedule: Schedule, on_failure: OnFailure, dedup: bool
    ) -> None:
        self._disk = disk
        super().__init__(
            str(disk.path),
            schedule,
            on_failure,
            dedup,
            syncer=partial(SimSyncer, disk),
            position=lambda path, name, acknowledged: SimPosition(disk, acknowledged),
        )
        self.name = disk.name

    def _examine(self, reset: bool) -> None:
        try:
            super()._examine(reset)
        except WentBack as failure:
            raise WentBack(str(self._disk.anonymous(failure))) from None

    def _connect(self) -> None:
        self._disk.engine = self
        super()._connect()
        self._execute(f"PRAGMA cache_size={self._disk.cache_pages}")

    def _execute(self, sql: str, *args: Any) -> list[Any]:
        if sql == "COMMIT" and self._disk.full:
            self._fail(_full())
        syncs = "wal_checkpoint" in sql
        if syncs and self._disk.failing:
            self._fail(_error("SQLITE_IOERR_FSYNC", "disk I/O error"))
        if self._disk.read_fails():
            self._fail(_error("SQLITE_IOERR_READ", "disk I/O error"))
        rows = super()._execute(sql, *args)
        if syncs:
            self._disk.all_synced()
        return rows

    def insert_value(self, data_id: int, checksum: bytes, compression: int, data: bytes) -> None:
        for table in ("obj", "tobj", "content"):
            if self._execute(f"SELECT 1 FROM {table} WHERE data_id=? LIMIT 1", data_id):
                raise Violation(f"{self.name}: id {data_id:#x} is given, which {table} has already")
        super().insert_value(data_id, checksum, compression, data)

    def read(self, sql: str, *args: Any) -> list[Any]:
        if self._disk.read_fails():
            self._fail(_error("SQLITE_IOERR_READ", "disk I/O error"))
        return super().read(sql, *args)

    def write(self, sql: str, *args: Any) -> list[Any]:
        if self._disk.write_fails():
            self._fail(_full())
        return super()._execute(sql, *args)

    write_row = write

    def _fail(self, error: sqlite3.Error) -> NoReturn:
        try:
            super()._fail(error)
        except BackendFailure as failure:
            self._failure = self._disk.anonymous(failure)
            raise self._failure from error

    def _disconnect(self) -> None:
        if self._db is None:
            super()._disconnect()
            return
        if self._syncer is not None:
            self._syncer.stop()
        files = self._disk.read()
        super()._disconnect()
        self._disk.engine = None
        self._disk.closed(files)

    def abandon(self) -> None:
        """End with the process: nothing is committed or synced any more."""
        if isinstance(self._syncer, SimSyncer):
            self._syncer.cancel()
        self._failure = self._disk.failure("the process was killed")
        self._waiting = []
        super()._disconnect()
        self._disk.engine = None

    def rows(self) -> Rows:
        assert self._db is not None
        return read_rows(self._db)


class SimPosition(SQLitePosition):
    """A position that tells its disk when it is durable."""

    def __init__(self, disk: SQLiteDisk, acknowledged: Acknowledged) -> None:
        super().__init__(str(disk.path), disk.name, acknowledged, disk.random_bytes)
        self._disk = disk

    def _write(self, position: Position, durable: bool) -> None:
        super()._write(position, durable)
        if durable:
            self._disk.position_synced()


class SimSyncer(Syncer):
    """A syncer that does the same work in steps of virtual time, without a thread. It does not look for
    deleted files, because no process deletes them."""

    def __init__(
        self,
        disk: SQLiteDisk,
        path: str,
        files: Files,
        position: SQLitePosition,
        schedule: Schedule,
        synced: Callable[[Syncer, list[Done], Report | None], None],
        failed: Callable[[Syncer, Exception], None],
    ) -> None:
        self._disk = disk
        self._path = path
        self._position = position
        self._schedule = schedule
        self._synced = synced
        self._failed = failed
        self.busy = False
        self._db: sqlite3.Connection | None = None
        self._running: Sync | None = None
        self._step: Callable[[], None] | None = None

    def sync(self, covered: list[Done], checkpoint: bool, alone: bool = False) -> None:
        assert not self.busy
        self.busy = True
        disk = self._disk
        checkpoint = checkpoint or disk.world.chance(disk.checkpoint_chance)
        self._next(partial(self._log_synced, disk.read_log(), covered, checkpoint))

    def _next(self, step: Callable[[], None]) -> None:
        self._step = step
        self._running = self._disk.start_sync(self._run_step)

    def _run_step(self) -> None:
        step, self._step = self._step, None
        assert step is not None
        if self._disk.failing:
            self._disk.distrusted = True
            error = OSError(errno.EIO, os.strerror(errno.EIO))
            self._schedule(self._failed, self, error)
        else:
            step()

    def _log_synced(self, log: bytes, covered: list[Done], checkpoint: bool) -> None:
        self._disk.log_synced(log)
        self._position.synced()
        if not checkpoint:
            self._schedule(self._finished, covered, None)
            return
        if self._db is None:
            self._db = self._connect()
        report = self._checkpoint(self._db)
        self._disk.log_synced(self._disk.read_log())
        self._next(partial(self._database_synced, covered, report))

    def _database_synced(self, covered: list[Done], report: Report) -> None:
        self._disk.database_synced()
        self._schedule(self._finished, covered, report)

    def stop(self) -> None:
        while self._step is not None:
            assert self._running is not None
            self._running.cancel()
            self._run_step()
        self._disconnect()

    def cancel(self) -> None:
        """Cancel the sync, because the process is gone."""
        if self._running is not None:
            self._running.cancel()
        self._step = None

    def _disconnect(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


def read_rows(db: sqlite3.Connection) -> Rows:
    return {
        table: db.execute(f"SELECT * FROM {table} ORDER BY {order}").fetchall()
        for table, order in zip(TABLES, _ORDERS, strict=True)
    }


def _error(name: str, message: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(message)
    error.sqlite_errorname = name
    return error


def _full() -> sqlite3.OperationalError:
    return _error("SQLITE_FULL", "database or disk is full")
