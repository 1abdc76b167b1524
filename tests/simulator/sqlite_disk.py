"""The files of the real SQLite backend on a simulated disk.

Durability
----------
``_durable`` is the content of the two files that survives any crash. The log is synced by
:class:`~tests.simulator.sqlite_backend.SimSyncer`: its content at the start of a sync is durable when
the sync ends, a while later. Only checkpoints write the database file: when the pages are written, the
log is durable, because SQLite syncs it first; a while later the database file is durable, too.

A crash keeps of the log that was written since either a first piece, or any of its sectors. Of the
database file it keeps any of the sectors that a checkpoint wrote and did not sync. A log that starts
over begins with a new header, which SQLite syncs before it writes anything else. The position file
(:mod:`neo.storage.backend.acknowledged`) has the last position that was written, or the last
one that was synced.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

from neo.storage.backend.api import Backend, BackendFailure, WentBack
from neo.storage.backend.sql_backend import SQLBackend
from tests.simulator.broken_promises import Promises
from tests.simulator.disk_base import OnFailure, SimDisk
from tests.simulator.disk_check import Rows
from tests.simulator.disk_host import DiskHost
from tests.simulator.sqlite_backend import SimSQLite, read_rows
from tests.simulator.world import World

#: Size of the unit that a disk writes completely or not at all when the power fails.
SECTOR_BYTES = 512
LOG_HEADER_BYTES = 32


class Files(NamedTuple):
    """The content of the database and of its log."""

    database: bytes
    log: bytes


class SQLiteDisk(SimDisk):
    """A disk with SQLite files. ``folder``: an empty folder; None: a temporary one in memory. The seed
    chooses the sizes of pages and of their cache, and the interval of checkpoints."""

    def __init__(
        self, world: World, name: str, folder: str | None = None, dedup: bool | None = None
    ) -> None:
        super().__init__(world, name, dedup)
        self._folder = _temporary_folder(self) if folder is None else Path(folder)
        self.path = self._folder / "db"
        self._log_path = self._folder / "db-wal"
        self._position_path = self._folder / "db.acknowledged"
        self.checkpoint_chance = world.random.choice((0.0, 0.05, 0.5))
        self.cache_pages = world.random.choice((10, 2000))
        #: The engine of a process that has the database open.
        self.engine: SimSQLite | None = None
        self._backend: SQLBackend | None = None
        #: Whether a sync failed, so that pages of the process may be lost.
        self.distrusted = False
        self.promises = Promises(self)
        self._durable_position = b""
        # A separate generator, so that older seeds find again what they found without position files.
        self._position_random = Random(f"mark {world.seed} {name}")
        # An empty disk in the place of this one has the same name; the number of events differs.
        self.random_bytes = Random(f"lineage {world.seed} {name} {world.events}").randbytes
        self._create(world.random.choice((512, 1024, 4096)))
        self._durable = self.read()

    def _create(self, page_size: int) -> None:
        db = sqlite3.connect(self.path, isolation_level=None)
        db.execute(f"PRAGMA page_size={page_size}")
        db.execute("PRAGMA journal_mode=WAL")
        db.close()

    def make_backend(
        self, host: DiskHost, failed: OnFailure, dedup: bool | None = None
    ) -> SQLBackend:
        dedup = self.dedup if dedup is None else dedup
        self._backend = SQLBackend(
            SimSQLite(
                self, host.from_thread, lambda failure: failed(self.anonymous(failure)), dedup
            )
        )
        return self._backend

    def open_backend(self, host: DiskHost, failed: OnFailure | None = None) -> Backend:
        try:
            backend = super().open_backend(host, failed)
        except BackendFailure as failure:
            if isinstance(failure, WentBack) or "SQLITE_CORRUPT" in str(failure):
                self.promises.refused()
            raise
        self.promises.opened(self.tables())
        return backend

    def break_promise(self, random: Random) -> None:
        self.promises.watch(random)

    def anonymous(self, failure: BackendFailure) -> BackendFailure:
        """Return the failure without the path, because the story must not depend on the real world."""
        return BackendFailure(str(failure).replace(str(self.path), self.name))

    def close(self) -> None:
        if self.engine is not None:
            self.engine.abandon()
        shutil.rmtree(self._folder)

    # -- files -----------------------------------------------------------------------------------

    def read(self) -> Files:
        return Files(_content(self.path), self.read_log())

    def read_log(self) -> bytes:
        return _content(self._log_path)

    def write(self, files: Files) -> None:
        self.path.write_bytes(files.database)
        self._log_path.write_bytes(files.log)
        (self._folder / "db-shm").unlink(missing_ok=True)

    def log_synced(self, log: bytes) -> None:
        self._durable = Files(self._durable.database, log)
        self.promises.synced(lambda: Files(_content(self.path), log))

    def position_synced(self) -> None:
        self._durable_position = _content(self._position_path)

    def database_synced(self) -> None:
        self._durable = Files(_content(self.path), self._durable.log)

    def all_synced(self) -> None:
        self._durable = self.read()
        self.promises.synced(self.read)

    def copy_database(self, name: str) -> SQLiteDisk:
        assert self.engine is None, self.name
        self.promises.restore()
        copied = SQLiteDisk(self.world, name, dedup=self.dedup)
        copied.write(self.read())
        copied.all_synced()
        return copied

    def snapshot(self) -> Callable[[], None]:
        files, position = self._durable, self._durable_position

        def restore() -> None:
            assert self.engine is None, self.name
            self.write(files)
            self._durable = files
            # The position is on the same disk. With a newer one the node would refuse the old database.
            self._position_path.write_bytes(position)
            self._durable_position = position

        return restore

    def lose(self, first: int, last: int) -> None:
        assert self.engine is None, self.name
        with contextlib.closing(sqlite3.connect(self.path)) as db, db:
            for table in ("trans", "obj"):
                db.execute(f"DELETE FROM {table} WHERE tid BETWEEN ? AND ?", (first, last))
        self.all_synced()

    # -- the end of processes --------------------------------------------------------------------

    def crash_database(self) -> None:
        files = self.read()
        if self.engine is not None:
            self.engine.abandon()
        self._durable = self._after_crash(files)
        self.distrusted = False
        self.write(self._durable)
        if not self.promises.breaks(self._durable) and self._position_random.random() < 0.5:
            self._position_path.write_bytes(self._durable_position)

    def closed(self, files: Files) -> None:
        """Handle the end of a process that closed the files: SQLite has copied the log back."""
        if self.distrusted and self.world.chance(0.5):
            self.write(self._after_crash(files))
        elif self.distrusted or self.full or self.failing or self.unreadable:
            self.write(files)
        else:
            self.all_synced()
        self.distrusted = False

    def _after_crash(self, files: Files) -> Files:
        durable = self._durable
        log = durable.log
        if files.log[:LOG_HEADER_BYTES] != log[:LOG_HEADER_BYTES]:
            # The log started over, or was deleted after everything was copied back.
            log = files.log[:LOG_HEADER_BYTES] + log[LOG_HEADER_BYTES:]
        how = self.world.random.choice(("nothing", "a part", "sectors", "all"))
        self.world.log(self.name, f"keeps {how} of what was not synced")
        if how == "all":
            return files
        if how == "a part":
            end = self.world.random.randint(0, len(files.log))
            log = files.log[:end] + log[end:]
        elif how == "sectors":
            log = self._mixed(log, files.log)
        return Files(self._mixed(durable.database, files.database), log)

    def _mixed(self, old: bytes, new: bytes) -> bytes:
        """Return a mix in which each sector is the old or the new one."""
        mixed = bytearray(old.ljust(len(new), b"\0"))
        for start in range(0, len(new), SECTOR_BYTES):
            if self.world.chance(0.5):
                mixed[start : start + SECTOR_BYTES] = new[start : start + SECTOR_BYTES].ljust(
                    min(SECTOR_BYTES, len(mixed) - start), b"\0"
                )
        return bytes(mixed)

    # -- oracles ---------------------------------------------------------------------------------

    def tables(self) -> Rows:
        if self.engine is not None:
            return self.engine.rows()
        # Damaged files may be unreadable until the operator puts the right ones back.
        return self.rows_of(self.promises.intact or self.read())

    def durable_tables(self) -> Rows:
        return self.rows_of(self._durable)

    def rows_of(self, files: Files) -> Rows:
        """Return the rows that a process would see in these files."""
        # Opening the files changes them, so that a copy is read.
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            path = Path(folder) / self.path.name
            path.write_bytes(files.database)
            path.with_name(self._log_path.name).write_bytes(files.log)
            db = sqlite3.connect(path)
            try:
                return read_rows(db)
            finally:
                db.close()

    def references(self) -> dict[int, int]:
        if self.engine is None or self._backend is None:
            return {}
        held = self._backend.values.pending.copy()
        for ids in self._backend.commits.voted.values():
            held.subtract(ids)
        return +held


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _temporary_folder(disk: SQLiteDisk) -> Path:
    """Return a temporary folder, which is deleted with the disk at the latest."""
    memory = Path("/dev/shm")
    made = tempfile.mkdtemp(prefix="neo-sim-", dir=memory if memory.is_dir() else None)
    weakref.finalize(disk, shutil.rmtree, made, True)
    return Path(made)
