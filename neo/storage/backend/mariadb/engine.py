"""An engine on MariaDB (InnoDB), written by a thread that commits in groups.

Reads run on the loop's thread, on a connection of their own with READ UNCOMMITTED: they see executed
writes, committed or not. Executed writes that a crash loses were never acknowledged as stored, and
verification repeats them. Writes are queued to :class:`~.writer.Writer`.

Values of 16 MiB and more are split into pieces of 8 MiB in table ``bigdata`` (specification 14.4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import Any, NoReturn

from neo.archive.room import Disk, known_disk
from neo.node.meter import Histogram
from neo.storage.backend import schema
from neo.storage.backend.acknowledged import ROW, Acknowledged
from neo.storage.backend.api import (
    BackendFailure,
    Done,
    RecordDamaged,
    Schedule,
    StatementRefused,
)
from neo.storage.backend.disk_work import DiskWork
from neo.storage.backend.mariadb.link import Error, Link, parse
from neo.storage.backend.mariadb.position import MariaDBPosition
from neo.storage.backend.mariadb.settings import ENGINE, check, check_engines, explain
from neo.storage.backend.mariadb.writer import Writer
from neo.storage.backend.regrouped import others, settle
from neo.storage.backend.schema import Database, upgrade
from neo.storage.backend.sql import Dialect, Row
from neo.storage.backend.tables import VERSION_ROW

#: From BIG_BYTES on, a value is split into pieces of PIECE_BYTES.
BIG_BYTES = 16 << 20
PIECE_BYTES = 8 << 20

#: Bit in ``data.compression``: the value is in ``bigdata``.
BIG = 0x80

#: Values up to SMALL_BYTES are inserted together in statements of about ROWS_BYTES, because a
#: statement costs the server ten times as much as a row.
SMALL_BYTES = 64 << 10
ROWS_BYTES = 512 << 10

_INSERT_DATA = "INSERT INTO data (id, hash, compression, value) VALUES (?, ?, ?, ?)"

#: Records that one query reads, each of at most SMALL_BYTES.
RECORDS = 32

_BIG_VALUE = Struct(">II")  # first bigdata.id, total length

#: Greatest value: the limit of SQLite, so that values can be replicated between backends.
VALUE_BYTES_MAX = 10**9 - 100

TABLES = (*schema.TABLES, "bigdata")
#: Row of ``config``: the database is being erased.
ERASING = "_erasing"

#: Seconds to wait for the lock of the database, because a server notices the end of the process that
#: held it after a moment.
LOCK_SECONDS = 1

OnFailure = Callable[[BackendFailure], None]


class MariaDB:
    """The engine on MariaDB.

    ``database``: ``[user[:password]@]database[unix_socket]``. ``engine``: InnoDB or None.
    ``on_failure``: called on the loop's thread when the writer's thread fails. ``acknowledged``: the
    position that this process acknowledged with earlier backends of this database. ``mark``: the file
    that keeps it for later processes. ``open`` raises DatabaseAway if the server does not answer, and
    WentBack if the database lacks acknowledged transactions.
    """

    dialect = Dialect(
        name="mariadb",
        partitions_max=1 << 16,
        text_max=(1 << 16) - 1,
        oids_max=(1 << 24) - 1,
        primary_key=" FORCE INDEX (PRIMARY)",
        value_length=(
            "IF(d.compression >= 128, CONV(HEX(SUBSTR(d.value, 5, 4)), 16, 10), LENGTH(d.value))"
        ),
        records_together=RECORDS,
        small_bytes=SMALL_BYTES,
        drops_at_once=True,
        big=BIG,
    )
    #: Other threads would need links of their own. No node with MariaDB runs in the process of a client.
    reader = None

    def __init__(
        self,
        database: str,
        engine: str | None,
        schedule: Schedule,
        on_failure: OnFailure,
        dedup: bool = False,
        acknowledged: Acknowledged | None = None,
        mark: str | None = None,
    ) -> None:
        self.dedup = dedup
        self.value_max = VALUE_BYTES_MAX
        self._schedule = schedule
        self._address = parse(database)
        self.name = f"MariaDB database {self._address.database}{self._address.socket or ''}"
        self._position = MariaDBPosition(self.name, acknowledged or Acknowledged(), mark)
        if engine is not None and engine.lower() != ENGINE.lower():
            raise BackendFailure(f"{self.name}: engine {engine!r} is not supported, use {ENGINE}")
        self._on_failure = on_failure
        self._reader: Link | None = None
        self._write_link: Link | None = None
        self._writer: Writer | None = None
        self._failure: BackendFailure | None = None
        self._syncs = Histogram()
        self._next_piece = 1
        #: Rows by statement, queued before any other write; ``data`` comes before rows that refer to it.
        self._rows: dict[str, list[Row]] = {}
        self._rows_size = 0
        self._attempts = 0
        #: Calls of the writer that wait until all attempts are over.
        self._after: list[Callable[[Writer], None]] = []

    # -- life -----------------------------------------------------------------------------------

    def open(self, reset: bool = False) -> None:
        assert self._reader is None, "already open"
        self._failure = None
        self._rows, self._rows_size = {}, 0
        self._attempts, self._after = 0, []
        try:
            link = self._write_link = Link(self._address)
            check(link, self.name)
            self._take_lock(link)
            self._create(link, reset)
            link.execute("SET autocommit=0")
            self._reader = Link(self._address)
            self._reader.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
            self._reader.execute("SET autocommit=1")
            self._next_piece = self._first_piece()
            self._position.opened()
            self._writer = Writer(
                link, self._position, self._schedule, self._write_failed, self._syncs
            )
        except (Error, OSError) as error:
            self._disconnect()
            raise explain(error, self.name) from error
        except BaseException:
            self._disconnect()
            raise

    def _first_piece(self) -> int:
        """Return an id for ``bigdata`` that no row has or ever had. Otherwise a row of ``data`` whose
        pieces are lost would refer to the pieces of another value. The server remembers the greatest
        id."""
        last = self.read("SELECT MAX(id) FROM bigdata")[0][0] or 0
        following = self.read(
            "SELECT AUTO_INCREMENT FROM information_schema.TABLES"
            " WHERE TABLE_SCHEMA=DATABASE() AND TABLE_NAME='bigdata'"
        )[0][0]
        return max(1 + last, following or 1)

    def _take_lock(self, link: Link) -> None:
        name = f"NEO.{self._address.database}"[:64]
        if link.execute("SELECT GET_LOCK(?, ?)", (name, LOCK_SECONDS))[0][0] != 1:
            raise BackendFailure(
                f"{self.name}: another process uses this database (it holds the lock {name}). Stop"
                " that process, or give another database"
            )

    def _is_erasing(self, link: Link) -> bool:
        """Return whether a process died while it erased the database."""
        if not link.execute("SHOW TABLES LIKE 'config'"):
            return False
        return bool(link.execute("SELECT 1 FROM config WHERE name = ?", (ERASING,)))

    def _erase(self, link: Link) -> None:
        """Drop all tables. MariaDB commits each statement. If the process dies in between, the next one
        must recognise the remaining tables as leftovers: hence the row in the table that is dropped
        last."""
        if link.execute("SHOW TABLES LIKE 'config'"):
            link.execute("REPLACE INTO config (name, value) VALUES (?, '')", (ERASING,))
        for view in schema.VIEWS:
            link.execute(f"DROP VIEW IF EXISTS {view}")
        existing = [row[0].decode() for row in link.execute("SHOW TABLES")]
        for table in (*TABLES, *others(existing)):
            if table != "config":
                link.execute(f"DROP TABLE IF EXISTS {table}")
        link.execute("DROP TABLE IF EXISTS config")

    def _create(self, link: Link, reset: bool) -> None:
        """Create missing tables. Write the version first, because MariaDB commits each statement."""
        link.execute(f"SET SESSION default_storage_engine={ENGINE}")
        if reset or self._is_erasing(link):
            reset = True
            self._erase(link)
        existing = {row[0].decode() for row in link.execute("SHOW TABLES")} - set(schema.VIEWS)
        rows: Sequence[Row] = ()
        config: dict[str, str] = {}
        if "config" in existing:
            rows = link.execute("SELECT name, value FROM config")
            config = {n.decode(): v.decode() for n, v in rows if v is not None}
        elif existing:
            raise BackendFailure(
                f"{self.name}: this database belongs to another program: it has the tables"
                f" {', '.join(sorted(existing)[:5])}. Give another database"
            )
        acknowledged = self._position.examine(config.get(ROW), not rows, reset)
        if rows or len(existing) > 1:
            database = Database(
                "mariadb",
                lambda sql, *args: link.execute(sql, args),
                begin=("START TRANSACTION",),
                end=("COMMIT",),
            )
            upgrade(self.name, config, database)
            settle("mariadb", database.execute, existing, config)
        files = "mariadb", "mariadb-views"
        create_config, *others = (s for file in files for s in schema.statements(file))
        link.execute(create_config)
        # Use one statement: a version without the other row identifies a database of an earlier release.
        new: list[Row] = [] if rows else [VERSION_ROW]
        if acknowledged is not None:
            new.append((ROW, acknowledged))
        link.write_many("INSERT INTO config (name, value) VALUES (?, ?)", new)
        link.flush()
        for statement in others:
            link.execute(statement)
        self._set_dedup(link)
        check_engines(link, self.name, TABLES)

    def _set_dedup(self, link: Link) -> None:
        if not self.dedup:
            link.execute(schema.WITHOUT_DEDUP["mariadb"])
            return
        try:
            for statement in schema.statements("mariadb-dedup"):
                link.execute(statement)
        except Error as error:
            failure = explain(error, self.name)
            if isinstance(failure, StatementRefused):
                failure = schema.equal_values(self.name)
            raise failure from error

    def close(self) -> None:
        if self._writer is not None and self._failure is None:
            self._queue()
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.stop()
        self._disconnect()
        if writer is not None and writer.error is not None and self._failure is None:
            self._fail(writer.error)

    def _disconnect(self) -> None:
        """Close the connections, so that the server rolls back and releases the lock."""
        for link in (self._write_link, self._reader):
            if link is not None:
                link.close()
        self._write_link = self._reader = None
        self._position.close()

    # -- primitives -----------------------------------------------------------------------------

    def read(self, sql: str, *args: Any) -> Sequence[Row]:
        reader = self._reader
        if self._failure is not None or reader is None:
            self._refuse()
        try:
            return reader.execute(sql, args)
        except Error as error:
            self._fail(error)

    def disk(self) -> Disk | None:
        # The server is on this machine: it is reached by a Unix socket.
        return known_disk(Path(self.read("SELECT @@datadir")[0][0].decode()))

    def work(self) -> DiskWork:
        return DiskWork(self._syncs, None, 0)

    def size(self) -> int:
        sql = (
            "SELECT SUM(data_length + index_length) FROM information_schema.tables"
            " WHERE table_schema = DATABASE()"
        )
        return int(self.read(sql)[0][0] or 0)

    def _fail(self, error: Exception) -> NoReturn:
        self._failure = explain(error, self.name)
        raise self._failure from error

    def _refuse(self) -> NoReturn:
        if self._failure is not None:
            raise self._failure
        raise BackendFailure(f"{self.name}: the database is not open")

    def _queue(self) -> Writer:
        """Return the writer after all earlier writes are in its queue."""
        writer = self._writer
        if self._failure is not None or writer is None:
            self._refuse()
        if self._rows:
            waiting, size = self._rows, self._rows_size
            self._rows, self._rows_size = {}, 0
            assert self._write_link is not None
            for sql, rows in waiting.items():
                self._pass(writer, self._write_link.write_many, (sql, rows), size // len(waiting))
        return writer

    def _pass(
        self, writer: Writer, run: Callable[..., None], args: tuple[Any, ...], size: int
    ) -> None:
        """Queue a call on the connection; in an attempt run it here, while the writer is idle."""
        if not self._attempts:
            writer.put(run, args, size)
            return
        try:
            run(*args)
        except Error as error:
            self._fail_attempt(error)

    def write_row(self, sql: str, *args: Any) -> None:
        size = 100 + sum(len(a) for a in args if isinstance(a, bytes))
        if size > SMALL_BYTES:
            self.write(sql, *args)
            return
        self._rows.setdefault(sql, []).append(args)
        self._rows_size += size
        if self._rows_size > ROWS_BYTES or self._failure or self._writer is None:
            self._queue()

    def _put(self, method: str, *args: Any, size: int = 0) -> None:
        self._pass(self._queue(), getattr(self._write_link, method), args, size)

    def write(self, sql: str, *args: Any) -> None:
        self._put("write", sql, args, size=sum(len(a) for a in args if isinstance(a, bytes)))

    def write_many(self, sql: str, rows: Sequence[Row]) -> None:
        self._put("write_many", sql, rows, size=100 * len(rows))

    def insert_value(self, data_id: int, checksum: bytes, compression: int, data: bytes) -> None:
        size = len(data)
        if size <= SMALL_BYTES:
            self.write_row(_INSERT_DATA, data_id, checksum, compression, data)
            return
        if size >= BIG_BYTES:
            first = self._next_piece
            self._next_piece += -(-size // PIECE_BYTES)
            row = data_id, checksum, compression | BIG
            self._pass(self._queue(), self._insert_pieces, (self._write_link, row, first, data), size)
            return
        values = data_id, checksum, compression
        self._put("write_value", "data", "id, hash, compression", values, data, size=len(data))

    @staticmethod
    def _insert_pieces(link: Link, row: tuple[int, bytes, int], first: int, data: bytes) -> None:
        """Insert a value in pieces; one call of the writer, because no commit may come between them."""
        view = memoryview(data)
        for number, start in enumerate(range(0, len(data), PIECE_BYTES), first):
            link.write_value("bigdata", "id", (number,), view[start : start + PIECE_BYTES])
        link.write_value("data", "id, hash, compression", row, _BIG_VALUE.pack(first, len(data)))

    def trigger_obstacle(self) -> str:
        table = "trigger_test"
        try:
            link = Link(self._address)
            try:
                link.execute(f"CREATE OR REPLACE TABLE {table} (id INT) ENGINE={ENGINE}")
                try:
                    link.execute(f"CREATE TRIGGER {table} BEFORE INSERT ON {table} FOR EACH ROW SET @a=1")
                finally:
                    link.execute(f"DROP TABLE {table}")
            finally:
                link.close()
        except Error as error:
            return (
                f"{self.name}: the user may not create triggers ({error}): GRANT TRIGGER on this database"
                " to it, and if the server has a binary log, SET GLOBAL log_bin_trust_function_creators=1"
            )
        return ""

    def big_value(self, data_id: int, compression: int, value: bytes | None) -> tuple[int, bytes]:
        first, size = _BIG_VALUE.unpack(value or b"")
        pieces = []
        for piece in range(first, first - (-size // PIECE_BYTES)):
            rows = self.read("SELECT value FROM bigdata WHERE id=?", piece)
            if not rows:
                raise RecordDamaged(
                    f"{self.name}: row {piece} of table 'bigdata', a part of row {data_id} of"
                    " 'data', is missing. Rebuild this node from a replica"
                )
            pieces.append(rows[0][0])
        return compression & ~BIG, b"".join(pieces)

    def delete_values(self, ids: Sequence[int]) -> None:
        rows = (
            f"d.id IN ({','.join(map(str, ids))})"
            " AND NOT EXISTS (SELECT 1 FROM obj WHERE obj.data_id=d.id)"
        )
        statements = [f"DELETE d FROM data d WHERE {rows}"]
        if self._next_piece > 1:
            start = "CONV(HEX(SUBSTR(d.value, 1, 4)), 16, 10) + 0"
            pieces = f"CEIL(CONV(HEX(SUBSTR(d.value, 5, 4)), 16, 10) / {PIECE_BYTES})"
            statements.insert(
                0,
                f"DELETE b FROM data d JOIN bigdata b ON b.id >= {start}"
                f" AND b.id < {start} + {pieces} WHERE d.compression >= {BIG} AND {rows}",
            )
        # One call of the writer for all statements, because no commit may come between them.
        self._put("write_all", statements)

    @contextmanager
    def attempt(self) -> Iterator[None]:
        self.drain()  # the writer is idle then, so this thread may use its connection
        name = f"attempt_{self._attempts}"
        self._attempts += 1
        after = len(self._after)
        try:
            self._put("write", f"SAVEPOINT {name}")
            try:
                yield
            finally:
                if self._failure is None:
                    self._flush()
        except StatementRefused:
            assert self._write_link is not None
            self._rows, self._rows_size = {}, 0
            del self._after[after:]
            self._put("discard")
            self._put("write", f"ROLLBACK TO SAVEPOINT {name}")
            self._flush()
            raise
        finally:
            self._attempts -= 1
            if not self._attempts:
                asked, self._after = self._after, []
                if self._failure is None and self._writer is not None:
                    for ask in asked:
                        ask(self._writer)

    def _flush(self) -> None:
        """Run what an attempt wrote. Raise StatementRefused."""
        self._queue()
        assert self._write_link is not None
        try:
            self._write_link.flush()
        except Error as error:
            self._fail_attempt(error)

    def _fail_attempt(self, error: Error) -> NoReturn:
        failure = explain(error, self.name)
        if not isinstance(failure, StatementRefused):
            self._failure = failure
        raise failure from error

    # -- durability -----------------------------------------------------------------------------

    def drain(self) -> None:
        writer = self._queue()
        if self._attempts:
            self._flush()
            return
        writer.drain()
        if writer.error is not None:
            self._fail(writer.error)

    def executed(self, done: Done) -> None:
        self._ask(lambda writer: writer.executed(done))

    def stored(self, done: Done, alone: bool = False) -> None:
        self._ask(lambda writer: writer.stored(done))

    def written(self, done: Done) -> None:
        # InnoDB takes the room of a row when it executes the statement.
        self.executed(done)

    def _ask(self, ask: Callable[[Writer], None]) -> None:
        writer = self._queue()
        if self._attempts:
            self._after.append(ask)
        else:
            ask(writer)

    def _write_failed(self, writer: Writer, error: Exception) -> None:
        """Handle the end of the writer's thread, on the loop's thread."""
        if writer is self._writer and self._failure is None:
            self._failure = explain(error, self.name)
            self._on_failure(self._failure)
