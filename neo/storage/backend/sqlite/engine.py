"""An engine on one SQLite file, durable by group commit.

Threads and durability
----------------------
One connection on the loop's thread reads and writes. It is always inside a transaction, so that a
read takes no lock. The database is in WAL mode with ``synchronous=NORMAL``: COMMIT only appends to
the ``-wal`` file; a sync of that file makes a commit durable. A :class:`~.wal_sync.Syncer` thread
syncs it, then runs the callbacks of ``stored`` that the commit covered. While a sync runs, writes
enter the next transaction, and calls of ``stored`` wait to share the next COMMIT. ``written`` makes a
COMMIT without a sync, which the next sync covers. The loop's thread syncs itself while one
transaction at a time is in progress and the disk is quick: to wake up another thread and to hear of
its end would take as long.

No commit is made while the syncer works, so a sync covers the last commit. Checkpoints, which the
syncer makes on a connection of its own, therefore always reach the end of the log, and the log
starts over if nothing was written meanwhile. When writing never pauses, the loop's thread keeps the
log below LOG_BYTES_MAX by a checkpoint of the last few pages. Reads only wait for that sync, and
for SQLite's sync of a new log's header: each once per log.

After a failed sync the state of the written pages is unknown. So the process stops using the file,
and opening it copies the log into the database first.

A file beside the database has the acknowledged position (:mod:`~.acknowledged`); a database that is
behind it is not opened.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from neo.archive.room import Disk, known_disk
from neo.node.lockfile import LockFile
from neo.node.meter import Histogram
from neo.storage.backend import schema
from neo.storage.backend.acknowledged import ROW, Acknowledged, sync_folder
from neo.storage.backend.api import (
    BackendFailure,
    DatabaseGone,
    Done,
    RecordDamaged,
    Schedule,
    StatementRefused,
)
from neo.storage.backend.disk_work import DiskWork
from neo.storage.backend.regrouped import others, settle
from neo.storage.backend.schema import Database, upgrade
from neo.storage.backend.sql import Dialect, Row
from neo.storage.backend.sqlite.files import Files
from neo.storage.backend.sqlite.position import SQLitePosition
from neo.storage.backend.sqlite.reader import SQLiteReader
from neo.storage.backend.sqlite.wal_sync import Report, Syncer

#: Changed rows, and bytes of values, after which the log is copied into the database. A changed row
#: writes about one page, so both mean about 16 MiB of log, which a checkpoint copies in some 50 ms.
CHECKPOINT_ROWS = 4096
CHECKPOINT_BYTES = 16 << 20

#: Length of the log at which the loop's thread finishes a checkpoint itself, and to which SQLite
#: cuts the file when it starts over. A big transaction may exceed it, since a commit is one piece.
LOG_BYTES_MAX = 64 << 20

#: Page cache of the loop's connection. It is the only writer, so these pages never go stale.
CACHE_BYTES = 32 << 20

#: Bytes of a row besides the value; SQLite limits the length of the whole row.
ROW_OVERHEAD = 100

#: By the beginning of the name of an error of SQLite.
_ADVICE = {
    "SQLITE_FULL": "no space is left. Free space on that disk: the node goes on by itself",
    "SQLITE_READONLY": "the file or its directory is not writable. Give it to the user of this"
    " process, or mount the disk writable",
    "SQLITE_CANTOPEN": "the file cannot be opened. Its directory must exist, and the user of this"
    " process must be allowed to write there",
    "SQLITE_PERM": "access is denied. Give the file to the user of this process",
    "SQLITE_NOTADB": "the file is not a SQLite database. Give another file",
    "SQLITE_CORRUPT": "the database is damaged. Restore the file, or remove it and let the replicas"
    " of this node fill a new one",
    "SQLITE_BUSY": "another program is writing to the database. Only this node may write to it",
    "SQLITE_LOCKED": "another program is writing to the database. Only this node may write to it",
    "SQLITE_IOERR": "the disk fails or is gone. Check the disk and the system log",
}

#: Errors of one statement, by the beginning of their names: SQLite undoes it, and nothing else.
_REFUSED = "SQLITE_CONSTRAINT", "SQLITE_MISMATCH", "SQLITE_RANGE", "SQLITE_TOOBIG"

OnFailure = Callable[[BackendFailure], None]

#: Takes the arguments of :class:`~.wal_sync.Syncer`.
SyncerFactory = Callable[..., Syncer]

#: Takes path, name and acknowledged position of the database.
PositionFactory = Callable[[str, str, Acknowledged], SQLitePosition]


def _opens_any_row() -> bool:
    """Return whether this Python can open a value in place in any row.

    Python 3.11.2 of Debian 12 only takes row numbers of 31 bits; a data id begins with its partition.
    """
    db = sqlite3.connect(":memory:")
    try:
        db.execute("CREATE TABLE data (id INTEGER PRIMARY KEY, value)")
        db.execute("INSERT INTO data VALUES (1 << 48, zeroblob(1))")
        db.blobopen("data", "value", 1 << 48).close()
    except OverflowError:
        return False
    finally:
        db.close()
    return True


#: From this size on a value is written and read in place, without copying a parameter or result.
STREAMED_BYTES = 4 << 20 if _opens_any_row() else 1 << 31  # greater than any value


class SQLite:
    """The engine on SQLite.

    ``path``: the file, created if it does not exist; its directory must exist. ``on_failure``: called
    on the loop's thread when the syncer's thread fails. ``dedup``: keep equal values once, at the cost
    of a search in each store. ``acknowledged``: the position that this process acknowledged with
    earlier backends of this database. ``syncer``, ``position``: those of a simulated world.
    """

    dialect = Dialect(
        name="sqlite",
        partitions_max=1 << 15,  # data ids of the others would exceed the signed integers of SQLite
        text_max=1 << 29,
        oids_max=1 << 29,
        value=f"CASE WHEN LENGTH(d.value)<{STREAMED_BYTES} THEN d.value END",
    )

    def __init__(
        self,
        path: str,
        schedule: Schedule,
        on_failure: OnFailure,
        dedup: bool = False,
        acknowledged: Acknowledged | None = None,
        syncer: SyncerFactory = Syncer,
        position: PositionFactory = SQLitePosition,
    ) -> None:
        self.dedup = dedup
        self.value_max = 0
        self.name = self._path = os.path.abspath(os.path.expanduser(path))
        self.reader = SQLiteReader(self._path, self.dialect)
        self._schedule = schedule
        self._on_failure = on_failure
        self._position = position(self._path, self.name, acknowledged or Acknowledged())
        self._make_syncer = syncer
        self._db: sqlite3.Connection | None = None
        self._lock: LockFile | None = None
        self._files: Files | None = None  # once they exist
        self._syncer: Syncer | None = None
        self._failure: BackendFailure | None = None
        self._waiting: list[Done] = []
        #: Callbacks of ``written``.
        self._written: list[Done] = []
        #: Whether the last commit was made for these, without a sync.
        self._unsynced = False
        self._attempts = 0
        self._page_size = 4096
        self._changes = 0  # total_changes at the last commit
        self._checkpointed_changes = 0
        self._value_bytes = 0  # of values since the last checkpoint
        self._log_bytes = 0  # length of the log at the last checkpoint
        self._syncs = Histogram()
        self._sync_began = 0.0
        self._checkpoints = 0

    # -- life -----------------------------------------------------------------------------------

    def open(self, reset: bool = False) -> None:
        assert self._db is None, "already open"
        self._failure = None
        self._waiting, self._written = [], []
        self._unsynced = False
        self._attempts = 0
        try:
            self._take_lock()
            self._examine(reset)
            self._connect()
            self._create(reset)
            self._execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._begin()
            self._files = Files(self._path)
            with self._position_errors():
                self._position.opened()
            # The database and its log exist by now.
            sync_folder(self._path)
            # The checkpoint has synced all writes into the database.
            self._changes = self._checkpointed_changes = self._connection().total_changes
            self._value_bytes = self._log_bytes = 0
            self._syncer = self._make_syncer(
                self._path,
                self._files,
                self._position,
                self._schedule,
                self._synced,
                self._sync_failed,
            )
            self.reader.open()
        except BaseException:
            self._disconnect()
            raise

    def _take_lock(self) -> None:
        """Lock a file beside the database.

        A second descriptor of the database itself would drop SQLite's locks on it when it is closed.
        """
        lock_path = f"{self._path}-lock"
        try:
            self._lock = LockFile(lock_path)
        except BlockingIOError:
            raise BackendFailure(
                f"{self.name}: another process uses this database (it holds {lock_path}). Stop that"
                " process, or give another database"
            ) from None
        except OSError as error:
            raise BackendFailure(
                f"{self.name}: cannot create or write {lock_path}: {error.strerror}. The directory"
                " must exist and be writable by the user of this process"
            ) from error

    def _examine(self, reset: bool) -> None:
        """Raise WentBack, and change nothing, if the database lacks acknowledged transactions."""
        with self._position_errors():
            try:
                self._position.examine(reset)
            except sqlite3.Error as error:
                self._fail(error)

    @contextmanager
    def _position_errors(self) -> Iterator[None]:
        """Translate errors of the position file."""
        try:
            yield
        except OSError as error:
            raise BackendFailure(
                f"{self.name}: cannot use {error.filename}, beside the database: {error.strerror}. It"
                " must be a file that the user of this process may read and write, on a disk with free"
                " space"
            ) from error

    def _connect(self) -> None:
        try:
            # One thread at a time uses the connection, but not always the one that opened it.
            self._db = sqlite3.connect(
                self._path, timeout=5, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            self._fail(error)
        if (mode := self._execute("PRAGMA journal_mode=WAL")[0][0]) != "wal":
            raise BackendFailure(
                f"{self.name}: SQLite cannot keep a write-ahead log here (journal mode {mode})."
                " Put the database on a local file system"
            )
        self._execute("PRAGMA synchronous=NORMAL")
        self._execute("PRAGMA wal_autocheckpoint=0")
        self._execute(f"PRAGMA journal_size_limit={LOG_BYTES_MAX}")
        self._execute(f"PRAGMA cache_size=-{CACHE_BYTES >> 10}")
        self._page_size = self._execute("PRAGMA page_size")[0][0]
        self.value_max = self._connection().getlimit(sqlite3.SQLITE_LIMIT_LENGTH) - ROW_OVERHEAD

    def _create(self, reset: bool) -> None:
        """Create missing tables and views, in one transaction."""
        self._execute("BEGIN IMMEDIATE")
        if reset:
            for view in schema.VIEWS:
                self._execute(f"DROP VIEW IF EXISTS {view}")
            for table in (*schema.TABLES, *others(self._tables())):
                self._execute(f"DROP TABLE IF EXISTS {table}")
        existing = self._tables()
        if "config" in existing:
            config = dict(self._execute("SELECT name, value FROM config WHERE value IS NOT NULL"))
            # The migration runs inside the transaction that creates tables.
            database = Database("sqlite", self._execute, (), ("COMMIT", "BEGIN IMMEDIATE"))
            upgrade(self.name, config, database)
            settle("sqlite", self._execute, existing, config)
        elif existing:
            raise BackendFailure(
                f"{self.name}: this SQLite database belongs to another program: it has the tables"
                f" {', '.join(sorted(existing)[:5])}. Give another file"
            )
        files = "sqlite", "sqlite-views"
        for statement in (s for file in files for s in schema.statements(file)):
            # Another number of partitions may have given the indexes of obj other names.
            if "obj" not in existing or " ON obj " not in statement:
                self._execute(statement)
        self._set_dedup()
        # Always write, because SQLite reports a read-only file only at the first write.
        version = str(schema.VERSION)
        self._execute("REPLACE INTO config (name, value) VALUES (?, ?)", "version", version)
        self._write_acknowledged(self._position.first_row())
        self._execute("COMMIT")
        if reset:
            self._execute("VACUUM")

    def _set_dedup(self) -> None:
        if not self.dedup:
            self._execute(schema.WITHOUT_DEDUP["sqlite"])
            return
        try:
            for statement in schema.statements("sqlite-dedup"):
                self._execute(statement)
        except StatementRefused as error:
            raise schema.equal_values(self.name) from error

    def _tables(self) -> set[str]:
        names = self._execute("SELECT name FROM sqlite_master WHERE type='table'")
        return {row[0] for row in names}

    def close(self) -> None:
        if self._db is None:
            return
        # First: the last connection that is closed removes the log.
        self.reader.close()
        try:
            if self._syncer is not None:
                self._syncer.stop()
                self._syncer = None
            if self._failure is None:
                assert self._files is not None
                self._files.check()
                self._end_transaction(last=True)
                # Copy the log into the database and sync it.
                self._execute("PRAGMA wal_checkpoint(TRUNCATE)")
                with self._position_errors():
                    self._position.closed()
                for done in self._written + self._waiting:
                    self._schedule(done)
        finally:
            self._waiting, self._written = [], []
            self._disconnect()

    def _disconnect(self) -> None:
        """Roll back uncommitted writes and release the lock."""
        self.reader.close()
        if self._syncer is not None:
            self._syncer.stop()
            self._syncer = None
        if self._db is not None:
            self._db.close()
            self._db = None
        self._position.close()
        self._files = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # -- primitives -----------------------------------------------------------------------------

    def _connection(self) -> sqlite3.Connection:
        if self._failure is not None:
            raise self._failure
        if self._db is None:
            raise BackendFailure(f"{self.name}: the database is not open")
        return self._db

    def _execute(self, sql: str, *args: Any) -> list[Any]:
        if self._failure is not None or self._db is None:
            self._connection()
        try:
            return self._db.execute(sql, args).fetchall()  # type: ignore[union-attr]
        except sqlite3.Error as error:
            self._fail(error)

    read = write = write_row = _execute

    def disk(self) -> Disk | None:
        return known_disk(Path(self._path).parent)

    def size(self) -> int:
        pages = self.read("PRAGMA page_count")[0][0] - self.read("PRAGMA freelist_count")[0][0]
        return int(pages) * self._page_size

    def work(self) -> DiskWork:
        try:
            log_bytes = os.stat(f"{self._path}-wal").st_size
        except OSError:
            log_bytes = 0
        return DiskWork(self._syncs, log_bytes, self._checkpoints)

    def write_many(self, sql: str, rows: Sequence[Row]) -> None:
        try:
            self._connection().executemany(sql, rows)
        except sqlite3.Error as error:
            self._fail(error)

    def _fail(self, error: sqlite3.Error) -> NoReturn:
        """Fail for good, because SQLite may have rolled back the open transaction; but not if it refused
        a statement of an attempt."""
        failure = self._explained(error)
        if self._undid_only(error):
            failure = StatementRefused(str(failure))
            if self._attempts:
                raise failure from error
        self._failure = failure
        raise failure from error

    def _undid_only(self, error: sqlite3.Error) -> bool:
        """Return whether only the statement with this error was undone."""
        name = getattr(error, "sqlite_errorname", None) or ""
        is_refused = name.startswith(_REFUSED) or isinstance(error, sqlite3.DataError)
        return is_refused and self._db is not None and self._db.in_transaction

    def _explained(self, error: Exception) -> BackendFailure:
        """Return the failure for an error of SQLite, the operating system, or the thread that syncs."""
        path = self._path
        if isinstance(error, BackendFailure):
            return error
        try:
            if self._files is not None:
                self._files.check()
        except DatabaseGone as gone:
            return gone
        if isinstance(error, OSError):
            return BackendFailure(
                f"{path}: cannot make the log of the database durable: {error}. Check the disk and the"
                " system log"
            )
        if not isinstance(error, sqlite3.Error):
            return BackendFailure(f"{path}: cannot make the log of the database durable: {error!r}")
        name = getattr(error, "sqlite_errorname", None) or ""
        for prefix, advice in _ADVICE.items():
            if name.startswith(prefix):
                return BackendFailure(f"{path}: {advice} ({error}, {name})")
        if not os.path.exists(path):
            return BackendFailure(f"{path}: the file of the database is gone ({error}, {name})")
        return BackendFailure(f"{path}: the database refused a statement ({error}, {name})")

    def insert_value(self, data_id: int, checksum: bytes, compression: int, data: bytes) -> None:
        self._value_bytes += len(data)
        sql = "INSERT INTO data (id, hash, compression, value) VALUES (?, ?, ?, ?)"
        if len(data) < STREAMED_BYTES:
            self._execute(sql, data_id, checksum, compression, data)
            return
        self._execute(sql.replace("?)", "zeroblob(?))"), data_id, checksum, compression, len(data))
        try:
            with self._connection().blobopen("data", "value", data_id) as blob:
                blob.write(data)
        except sqlite3.Error as error:
            self._fail(error)

    def delete_values(self, ids: Sequence[int]) -> None:
        self._execute(
            f"DELETE FROM data WHERE id IN ({','.join(map(str, ids))})"
            " AND NOT EXISTS (SELECT 1 FROM obj WHERE obj.data_id=data.id)"
        )

    def trigger_obstacle(self) -> str:
        return ""

    def big_value(self, data_id: int, compression: int, value: bytes | None) -> tuple[int, bytes]:
        if compression > 0x7F:
            raise RecordDamaged(
                f"{self.name}: row {data_id} of table 'data' has compression {compression}, which"
                " only databases in MariaDB may have. Rebuild this node from a replica"
            )
        try:
            with self._connection().blobopen("data", "value", data_id, readonly=True) as blob:
                return compression, blob.read()
        except sqlite3.Error as error:
            self._fail(error)

    @contextmanager
    def attempt(self) -> Iterator[None]:
        name = f"attempt_{self._attempts}"
        self._execute(f"SAVEPOINT {name}")
        self._attempts += 1
        try:
            yield
        except StatementRefused:
            self._attempts -= 1
            self._execute(f"ROLLBACK TO {name}")
            self._execute(f"RELEASE {name}")
            raise
        except BaseException:
            self._attempts -= 1
            if self._failure is None:
                self._execute(f"RELEASE {name}")
            raise
        self._attempts -= 1
        self._execute(f"RELEASE {name}")
        if not self._attempts and self._syncer is not None and not self._syncer.busy:
            self._go_on_committing()

    # -- durability -----------------------------------------------------------------------------

    def drain(self) -> None:
        self._connection()

    def executed(self, done: Done) -> None:
        if self._failure is not None or self._db is None:
            self._connection()
        self._schedule(done)

    def stored(self, done: Done, alone: bool = False) -> None:
        syncer = self._syncer
        if self._failure is not None or self._db is None:
            self._connection()
        self._waiting.append(done)
        if syncer is not None and not syncer.busy and not self._attempts:
            self._commit(alone)

    def written(self, done: Done) -> None:
        syncer = self._syncer
        self._connection()
        self._written.append(done)
        if syncer is not None and not syncer.busy and not self._attempts:
            self._append()

    def _append(self) -> None:
        """Commit all writes without a sync: they are in the log."""
        if self._connection().total_changes != self._changes:
            self._end_transaction()
            self._changes, self._unsynced = self._connection().total_changes, True
            self._begin()
        self._call_written()

    def _call_written(self) -> None:
        written, self._written = self._written, []
        for done in written:
            self._schedule(done)

    def _begin(self) -> None:
        # IMMEDIATE: other programs may read, but not write while a node has the database.
        self._execute("BEGIN IMMEDIATE")

    def _write_acknowledged(self, row: str) -> None:
        self._execute("REPLACE INTO config (name, value) VALUES (?, ?)", ROW, row)

    def _end_transaction(self, last: bool = False) -> None:
        if (row := self._position.next_row(last)) is not None:
            self._write_acknowledged(row)
        self._execute("COMMIT")

    def _commit(self, alone: bool = False) -> None:
        """Commit all writes and start a sync for all waiting callbacks. ``alone``: or make it here."""
        assert self._syncer is not None
        covered, self._waiting = self._waiting, []
        db = self._connection()
        if db.total_changes == self._changes and not self._unsynced:
            # The last commit is already synced, because the syncer is idle.
            for done in covered:
                self._schedule(done)
            self._call_written()
            return
        self._end_transaction()
        changes = self._changes = db.total_changes
        self._unsynced = False  # by the sync that begins below
        self._call_written()
        if self._log_bytes > LOG_BYTES_MAX:
            self._execute("PRAGMA wal_checkpoint(PASSIVE)")
            self._position.copied()
            self._log_bytes = 0
            self._checkpoints += 1
        self._begin()
        checkpoint = (
            changes - self._checkpointed_changes > CHECKPOINT_ROWS
            or self._value_bytes > CHECKPOINT_BYTES
        )
        if checkpoint:
            self._checkpointed_changes = changes
            self._value_bytes = 0
        self._sync_began = time.monotonic()
        self._syncer.sync(covered, checkpoint, alone)

    def _synced(self, syncer: Syncer, covered: list[Done], report: Report | None) -> None:
        """Run callbacks whose writes are durable, on the loop's thread."""
        if self._failure is not None:
            return
        self._syncs.observe(time.monotonic() - self._sync_began)
        if syncer is self._syncer:
            try:
                self._go_on(report)
            except BackendFailure as failure:
                self._on_failure(failure)
        for done in covered:
            done()

    def _go_on(self, report: Report | None) -> None:
        """Start the log over if possible, and commit for waiting callbacks, after a sync."""
        if report is not None:
            self._checkpoints += 1
            self._position.copied()
            self._log_bytes = report.log_pages * self._page_size
            if report.complete and self._connection().total_changes == self._changes:
                # A new transaction reads nothing from the log, so its first write starts the log over.
                self._execute("ROLLBACK")
                self._begin()
                self._log_bytes = 0
        self._go_on_committing()

    def _go_on_committing(self) -> None:
        """Commit for the callbacks that wait, if there are any."""
        if self._waiting:
            self._commit()
        elif self._written:
            self._append()

    def _sync_failed(self, syncer: Syncer, error: Exception) -> None:
        """Handle the end of the syncer's thread, on the loop's thread."""
        if syncer is self._syncer and self._failure is None:
            self._failure = self._explained(error)
            self._on_failure(self._failure)
