"""A connection to a MariaDB server: address, statements, settings.

It uses the C layer of mysqlclient, because a cursor would double the time of a short SELECT.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from MySQLdb import _mysql
from MySQLdb.constants import CLIENT, FIELD_TYPE

from neo.storage.backend.api import BackendFailure

Error = _mysql.MySQLError

Literal = int | float | bytes | memoryview | str | None

#: Numbers are converted; all other values are bytes.
_CONVERSIONS = dict.fromkeys(
    (FIELD_TYPE.TINY, FIELD_TYPE.SHORT, FIELD_TYPE.INT24, FIELD_TYPE.LONG, FIELD_TYPE.LONGLONG), int
) | {FIELD_TYPE.DOUBLE: float}

_ADDRESS = re.compile(
    r"(?:(?P<user>[^:@]+)(?::(?P<password>.*))?@)?(?P<database>[^@:./~]+)(?P<socket>[/~].*)?"
)

#: Timeout of a connection.
CONNECT_SECONDS = 10

#: Timeout of a statement. Counting the orphans of a big database takes minutes; a server that is
#: silent for longer hangs, and other nodes may have replicas.
SILENT_SECONDS = 600

#: Prevent the server from closing idle connections: a year, the greatest value.
_IDLE_SECONDS = 31536000

#: Statements without results are sent together up to this many bytes, because a round trip costs as
#: much as a short statement.
TOGETHER_BYTES = 256 << 10

#: Bytes of a statement besides the literal of a value.
STATEMENT_OVERHEAD = 1024


class Address(NamedTuple):
    """An address of a database. ``user`` None: that of this process; ``socket`` None: the default."""

    user: str | None
    password: str | None
    database: str
    socket: str | None


def parse(text: str) -> Address:
    """Parse ``[user[:password]@]database[unix_socket]``; the socket begins with ``/`` or ``~``.

    Raise BackendFailure.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise BackendFailure(
            f"database {text!r} is not of the form [user[:password]@]database[unix_socket], as in"
            " neo:secret@neo1/run/mysqld/mysqld.sock"
        )
    user, password, database, path = match.group("user", "password", "database", "socket")
    return Address(user, password, database, path and os.path.expanduser(path))


class Link:
    """One connection, for one thread at a time."""

    def __init__(self, address: Address) -> None:
        user, password, database, socket = address
        options: dict[str, Any] = {"user": user, "password": password, "unix_socket": socket}
        self._db = _mysql.connect(
            database=database,
            conv=_CONVERSIONS,
            connect_timeout=CONNECT_SECONDS,
            client_flag=CLIENT.MULTI_STATEMENTS,
            read_timeout=SILENT_SECONDS,
            write_timeout=SILENT_SECONDS,
            **{name: value for name, value in options.items() if value is not None},
        )
        self._templates: dict[str, bytes] = {}
        self._statements: list[bytes] = []  # not sent yet
        self._length = 0
        self._db.set_character_set("binary")
        self.execute(
            "SET SESSION sql_mode='STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO',"
            f" SESSION wait_timeout={_IDLE_SECONDS}, SESSION max_statement_time=0"
        )
        self.packet_max: int = self.execute("SELECT @@max_allowed_packet")[0][0]

    def execute(self, sql: str, args: Sequence[Literal] = ()) -> Sequence[Sequence[Any]]:
        """Run a statement with ``?`` for parameters and return all rows. Raise Error."""
        assert not self._statements
        db = self._db
        db.query(self._template(sql) % tuple(map(self._literal, args)))
        result = db.store_result()
        rows: Sequence[Sequence[Any]] = () if result is None else result.fetch_row(0)
        return rows

    def write(self, sql: str, args: Sequence[Literal] = ()) -> None:
        """Run a statement without results, at the latest in :meth:`flush`.

        Raise Error, perhaps of an earlier statement.
        """
        self._write(self._template(sql) % tuple(map(self._literal, args)))

    def write_all(self, statements: Sequence[str]) -> None:
        """Write statements without parameters."""
        for sql in statements:
            self._write(sql.encode())

    def _write(self, statement: bytes) -> None:
        if self._length + len(statement) > TOGETHER_BYTES:
            self.flush()
        self._statements.append(statement)
        self._length += len(statement)

    def flush(self) -> None:
        """Run all written statements in one round trip."""
        if self._statements:
            statements, self._statements, self._length = self._statements, [], 0
            self._db.query(statements[0] if len(statements) == 1 else b";".join(statements))
            self._db.store_result()
            while self._db.next_result() == 0:
                self._db.store_result()

    def discard(self) -> None:
        """Forget the statements that were not sent, after an error."""
        self._statements, self._length = [], 0

    def write_many(self, sql: str, rows: Sequence[Sequence[Literal]]) -> None:
        """Write ``INSERT ... VALUES (?, ...)`` for many short rows, in few statements."""
        head, _, values = self._template(sql).rpartition(b" VALUES ")
        head += b" VALUES "
        room = self.packet_max - STATEMENT_OVERHEAD
        texts: list[bytes] = []
        length = 0
        for row in rows:
            text = values % tuple(map(self._literal, row))
            length += len(text) + 1
            if length > room:
                self._write(head + b",".join(texts))
                texts.clear()
                length = len(text) + 1
            texts.append(text)
        if texts:
            self._write(head + b",".join(texts))

    def _template(self, sql: str) -> bytes:
        template = self._templates.get(sql)
        if template is None:
            template = sql.replace("%", "%%").replace("?", "%b").encode()
            if len(self._templates) < 200:  # bounded, because lists of ids make ever new texts
                self._templates[sql] = template
        return template

    def _literal(self, value: Literal) -> bytes:
        if type(value) is int:
            return b"%d" % value
        if value is None:
            return b"NULL"
        if isinstance(value, float):
            return repr(value).encode()
        if isinstance(value, str):
            value = value.encode()
        quoted: bytes = self._db.string_literal(bytes(value))
        return quoted

    def write_value(
        self, table: str, columns: str, values: Sequence[Literal], value: bytes | memoryview
    ) -> None:
        """Insert a row whose last column is ``value`` and first is ``id``.

        Use several statements if the value does not fit in a packet; escapes may double its length.
        """
        places = "?, " * len(values)
        sql = f"INSERT INTO {table} ({columns}, value) VALUES ({places}?)"
        if 2 * len(value) + STATEMENT_OVERHEAD <= self.packet_max:
            self.write(sql, (*values, value))
            return
        # Half of a packet always fits. The whole value mostly does, so try it first.
        literal = self._literal(value)
        if len(literal) + STATEMENT_OVERHEAD <= self.packet_max:
            self._write(self._template(sql) % (*map(self._literal, values), literal))
            return
        del literal
        view = memoryview(value)
        step = (self.packet_max - STATEMENT_OVERHEAD) // 2
        self.write(sql, (*values, view[:step]))
        append = f"UPDATE {table} SET value=CONCAT(value, ?) WHERE id=?"
        for i in range(step, len(view), step):
            self.write(append, (view[i : i + step], values[0]))

    def variable(self, name: str) -> str | None:
        """Return a global setting of the server as text; None if the server does not have it."""
        rows = self.execute("SHOW GLOBAL VARIABLES LIKE ?", (name,))
        return rows[0][1].decode() if rows else None

    def close(self) -> None:
        self._db.close()
