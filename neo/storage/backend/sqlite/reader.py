"""Queries of any thread on what a SQLite database has committed.

Each query has a connection for itself, which only reads, and one snapshot. It neither waits for the
engine's connection nor is waited for: in WAL mode readers and the writer do not block each other. It does
not see the open transaction of the engine.

An exception from outside (:mod:`neo.net.channel`) may end a query at any instruction. Then its connection
is lost to the pool, and closed with its last reference; a snapshot ends with the cursor, which only the
stack of the interrupted call refers to.
"""

from __future__ import annotations

import sqlite3
from typing import Any, NoReturn
from urllib.parse import quote

from neo.storage.backend.api import BackendFailure
from neo.storage.backend.sql import Dialect, Row

#: Connections that are kept for the next queries. Each has a page cache; more threads than these rarely
#: are inside a query at the same moment, because they share one interpreter.
IDLE_MAX = 8
#: Page cache of one connection, which a commit of the engine empties.
CACHE_BYTES = 4 << 20


class SQLiteReader:
    """Implements :class:`~neo.storage.backend.sql.Querying`. ``dialect``: of the engine; a value that it
    does not select is not read here.

    :meth:`open` and :meth:`close` are called with the database open, on the thread of the event loop.
    """

    def __init__(self, path: str, dialect: Dialect) -> None:
        self.dialect = dialect
        self._path = path
        self._uri = f"file:{quote(path)}?mode=ro"
        #: Appended to and popped by any thread.
        self._idle: list[sqlite3.Connection] = []
        self._closed = True

    def open(self) -> None:
        self._closed = False

    def close(self) -> None:
        """Close the connections; those of queries in progress are closed at the end of the query."""
        self._closed = True
        self._close_idle()

    def _close_idle(self) -> None:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                return  # another thread was faster
            connection.close()

    def read(self, sql: str, *args: Any) -> list[Row]:
        """Return the rows of a query. Raise BackendFailure, from which nothing follows for the engine.
        Its own queries meet the same error, if there is one."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect()
        try:
            # No variable refers to the cursor: it would keep the snapshot after an exception.
            rows = connection.execute(sql, args).fetchall()
        except sqlite3.Error as error:
            connection.close()
            raise self._failed(error) from error
        if len(self._idle) < IDLE_MAX:
            self._idle.append(connection)
        else:
            connection.close()
        if self._closed:
            self._close_idle()
        return rows

    def _connect(self) -> sqlite3.Connection:
        if self._closed:
            raise BackendFailure(f"{self._path}: the database is not open")
        try:
            connection = sqlite3.connect(
                self._uri, uri=True, timeout=0, isolation_level=None, check_same_thread=False
            )
            connection.execute(f"PRAGMA cache_size=-{CACHE_BYTES >> 10}")
        except sqlite3.Error as error:
            raise self._failed(error) from error
        return connection

    def _failed(self, error: sqlite3.Error) -> BackendFailure:
        return BackendFailure(f"{self._path}: a query of another thread failed: {error}")

    def drain(self) -> None:
        """Do nothing: a query sees what is committed when it begins."""

    def big_value(self, data_id: int, compression: int, value: bytes | None) -> NoReturn:
        """Raise BackendFailure: such a value is read in place, which takes a second snapshot."""
        raise BackendFailure(f"{self._path}: row {data_id} of 'data' is read by the engine only")
