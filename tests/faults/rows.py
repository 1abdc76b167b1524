"""Compare the databases of stopped storage nodes row by row: replicas must be equal."""

from __future__ import annotations

import configparser
import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from neo.protocol.enums import CellState

Rows = Iterable[tuple[Any, ...]]
Query = Callable[[str], Rows]
#: The rows of a cell: partition → name of the node → rows.
Cells = dict[int, dict[str, set[tuple[Any, ...]]]]


@contextmanager
def _sqlite(path: str) -> Iterator[Query]:
    with closing(sqlite3.connect(path)) as db:
        yield lambda sql: db.execute(sql)


@contextmanager
def _mariadb(database: str) -> Iterator[Query]:
    import MySQLdb
    from MySQLdb.cursors import SSCursor

    user, _, rest = database.partition("@")
    name, _, path = rest.partition("/")
    socket = f"/{path}"
    with closing(MySQLdb.connect(user=user, db=name, unix_socket=socket, cursorclass=SSCursor)) as db:

        def query(sql: str) -> Rows:
            with db.cursor() as cursor:
                cursor.execute(sql)
                yield from cursor

        yield query


def cells(conf: Path, names: Sequence[str] = ()) -> Cells:
    """Return all cells of the cluster of a ``neo.conf``, or of its storage nodes with such names.

    Rows have the data itself in place of data ids. Raise AssertionError for a cell that is not
    UP_TO_DATE, or for rows of unfinished transactions.
    """
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(conf)
    found: Cells = {}
    for name in parser.sections():
        if name in names or (not names and name.startswith("storage")):
            section = parser[name]
            opened = _sqlite if section.get("adapter", "SQLite") == "SQLite" else _mariadb
            # A path may be relative to the folder in which the nodes run.
            database = section["database"]
            with opened(database if "@" in database else str(conf.parent / database)) as query:
                _read(name, query, found)
    return found


def _read(name: str, query: Query, found: Cells) -> None:
    ((nid,),) = query("SELECT value FROM config WHERE name='nid'")
    for table in ("ttrans", "tobj"):
        left = list(query(f"SELECT * FROM {table}"))
        assert not left, f"{name} has rows in {table}: {left[:3]}"
    own = list(query(f"SELECT `partition`, tid FROM pt WHERE nid={int(nid)}"))
    for partition, tid in own:
        assert tid == -CellState.UP_TO_DATE.value, f"{name}: partition {partition} has tid {tid}"
        objects = query(
            "SELECT oid, tid, value_tid, hash, compression, value FROM obj"
            f" LEFT JOIN data ON data.id=data_id WHERE `partition`={partition}"
        )
        transactions = query(f"SELECT * FROM trans WHERE `partition`={partition}")
        found.setdefault(partition, {})[name] = {*map(_digested, objects), *transactions}


def _digested(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replace data by its digest: a database may have more data than memory."""
    *others, checksum, compression, value = row
    if value is not None:
        assert hashlib.sha1(value).digest() == checksum, f"{others}: the data is damaged"
    return (*others, checksum, compression)


def check_equal(conf: Path, partitions: int, copies: int, names: Sequence[str] = ()) -> None:
    """Raise AssertionError unless every partition has ``copies`` copies with the same rows."""
    compared = cells(conf, names)
    assert len(compared) == partitions, sorted(compared)
    for partition, by_node in compared.items():
        assert len(by_node) == copies, (partition, list(by_node))
        (name, rows), *others = by_node.items()
        assert rows, f"nothing was written into partition {partition}"
        for other, other_rows in others:
            difference = sorted(rows ^ other_rows, key=repr)
            assert not difference, f"partition {partition} of {name}, {other}: {difference[:3]}"
