"""The tables of a new database, against specification 14, column by column.

What is expected is written here a second time, on purpose: other programs read these databases.
SQLite has the types of the databases that exist already; MariaDB those of the specification, and
``bigdata``, where existing databases have values of 16 MiB and more.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any, NamedTuple

import pytest

from neo.storage.backend import schema
from neo.storage.backend.mariadb.link import Link, parse
from tests.unit.backend.harness import Harness


class Table(NamedTuple):
    columns: list[str]
    #: In any order, written as ``kind name (columns)``. Names that SQLite invents are left out.
    keys: set[str]
    #: MariaDB: the engine. SQLite: how rows are kept.
    kept: str


ROWID, CLUSTERED = "by rowid", "WITHOUT ROWID"


def table(columns: str, *keys: str, kept: str = "InnoDB") -> Table:
    """``columns`` is written as in CREATE TABLE."""
    return Table(columns.split(", "), set(keys), kept)


def sqlite_rowid(columns: str, *keys: str) -> Table:
    """A single INTEGER key is the rowid itself: never NULL, though SQLite does not say so."""
    return table(columns, *keys, kept=ROWID)


def sqlite_clustered(columns: str, *keys: str) -> Table:
    return table(columns, *keys, kept=CLUSTERED)


SQLITE_TRANS = (
    "packed BOOLEAN NOT NULL, oids BLOB NOT NULL, user BLOB NOT NULL, description BLOB NOT NULL, "
    "ext BLOB NOT NULL, ttid INTEGER NOT NULL"
)
SQLITE_OBJ = (
    "partition INTEGER NOT NULL, oid INTEGER NOT NULL, tid INTEGER NOT NULL, data_id INTEGER, "
    "value_tid INTEGER"
)
SQLITE = {
    "config": sqlite_rowid("name TEXT NOT NULL, value TEXT", "PRIMARY (name)"),
    "pt": sqlite_rowid(
        "partition INTEGER NOT NULL, nid INTEGER NOT NULL, tid INTEGER NOT NULL",
        "PRIMARY (partition, nid)",
    ),
    "trans": sqlite_clustered(
        "partition INTEGER NOT NULL, tid INTEGER NOT NULL, " + SQLITE_TRANS,
        "PRIMARY (partition, tid)",
    ),
    "obj": sqlite_clustered(
        SQLITE_OBJ,
        "PRIMARY (partition, oid, tid)",
        "KEY _obj_i1 (partition, tid, oid)",
        "KEY _obj_i2 (data_id)",
    ),
    "data": sqlite_rowid(
        "id INTEGER, hash BLOB NOT NULL, compression INTEGER NOT NULL, value BLOB NOT NULL",
        "PRIMARY (id)",
    ),
    "ttrans": sqlite_rowid("partition INTEGER NOT NULL, tid INTEGER, " + SQLITE_TRANS),
    "tobj": sqlite_rowid(SQLITE_OBJ, "PRIMARY (tid, oid)"),
    "prepared": sqlite_rowid(
        "ttid INTEGER, xid BLOB NOT NULL, since REAL NOT NULL, text BLOB NOT NULL, "
        "partitions BLOB NOT NULL",
        "PRIMARY (ttid)",
    ),
    "prepared_check": sqlite_clustered(
        "ttid INTEGER NOT NULL, oid INTEGER NOT NULL, serial INTEGER NOT NULL",
        "PRIMARY (ttid, oid)",
    ),
    "decided": sqlite_clustered(
        "xid BLOB NOT NULL, ttid INTEGER NOT NULL, tid INTEGER, time REAL NOT NULL",
        "PRIMARY (xid)",
    ),
    "content": sqlite_rowid(
        "data_id INTEGER, checksum BLOB NOT NULL, size INTEGER NOT NULL",
        "PRIMARY (data_id)",
        "KEY _content_i1 (checksum)",
    ),
    "operation": sqlite_rowid("id INTEGER, body BLOB NOT NULL", "PRIMARY (id)"),
    "operation_step": sqlite_clustered(
        "id INTEGER NOT NULL, step INTEGER NOT NULL, state INTEGER NOT NULL, "
        "undo_data BLOB NOT NULL, context BLOB NOT NULL",
        "PRIMARY (id, step)",
    ),
}

MARIADB_TRANS = (
    "packed BOOLEAN NOT NULL, oids MEDIUMBLOB NOT NULL, user BLOB NOT NULL, "
    "description BLOB NOT NULL, ext BLOB NOT NULL, ttid BIGINT UNSIGNED NOT NULL"
)
MARIADB_OBJ = (
    "partition SMALLINT UNSIGNED NOT NULL, oid BIGINT UNSIGNED NOT NULL, "
    "tid BIGINT UNSIGNED NOT NULL, data_id BIGINT UNSIGNED, value_tid BIGINT UNSIGNED"
)
MARIADB = {
    "config": table("name VARBINARY(255) NOT NULL, value VARBINARY(255)", "PRIMARY (name)"),
    "pt": table(
        "partition SMALLINT UNSIGNED NOT NULL, nid INT NOT NULL, tid BIGINT NOT NULL",
        "PRIMARY (partition, nid)",
    ),
    "trans": table(
        "partition SMALLINT UNSIGNED NOT NULL, tid BIGINT UNSIGNED NOT NULL, " + MARIADB_TRANS,
        "PRIMARY (partition, tid)",
    ),
    "obj": table(
        MARIADB_OBJ,
        "PRIMARY (partition, oid, tid)",
        "KEY tid (partition, tid, oid)",
        "KEY data_id (data_id)",
    ),
    "data": table(
        "id BIGINT UNSIGNED NOT NULL, hash BINARY(20) NOT NULL, compression TINYINT UNSIGNED, "
        "value LONGBLOB NOT NULL",
        "PRIMARY (id)",
    ),
    "bigdata": table(
        "id INT UNSIGNED NOT NULL AUTO_INCREMENT, value MEDIUMBLOB NOT NULL", "PRIMARY (id)"
    ),
    "ttrans": table(
        "partition SMALLINT UNSIGNED NOT NULL, tid BIGINT UNSIGNED, " + MARIADB_TRANS,
        "PRIMARY (ttid)",
    ),
    "tobj": table(MARIADB_OBJ, "PRIMARY (tid, oid)"),
    "prepared": table(
        "ttid BIGINT UNSIGNED NOT NULL, xid VARBINARY(140) NOT NULL, since DOUBLE NOT NULL, "
        "text BLOB NOT NULL, partitions MEDIUMBLOB NOT NULL",
        "PRIMARY (ttid)",
    ),
    "prepared_check": table(
        "ttid BIGINT UNSIGNED NOT NULL, oid BIGINT UNSIGNED NOT NULL, "
        "serial BIGINT UNSIGNED NOT NULL",
        "PRIMARY (ttid, oid)",
    ),
    "decided": table(
        "xid VARBINARY(140) NOT NULL, ttid BIGINT UNSIGNED NOT NULL, tid BIGINT UNSIGNED, "
        "time DOUBLE NOT NULL",
        "PRIMARY (xid)",
    ),
    "content": table(
        "data_id BIGINT UNSIGNED NOT NULL, checksum BINARY(32) NOT NULL, "
        "size BIGINT UNSIGNED NOT NULL",
        "PRIMARY (data_id)",
        "KEY checksum (checksum)",
    ),
    "operation": table("id BIGINT UNSIGNED NOT NULL, body MEDIUMBLOB NOT NULL", "PRIMARY (id)"),
    "operation_step": table(
        "id BIGINT UNSIGNED NOT NULL, step SMALLINT UNSIGNED NOT NULL, "
        "state TINYINT UNSIGNED NOT NULL, undo_data MEDIUMBLOB NOT NULL, "
        "context MEDIUMBLOB NOT NULL",
        "PRIMARY (id, step)",
    ),
}


def words(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def key(kind: str, name: str, columns: Sequence[str]) -> str:
    return words(kind, name, f"({', '.join(columns)})")


def sqlite_table(database: sqlite3.Connection, name: str) -> Table:
    info = database.execute(f"PRAGMA table_info({name})").fetchall()
    assert [default for *_, default, _ in info if default is not None] == []
    columns = [words(column, kind, "NOT NULL" * null) for _, column, kind, null, _, _ in info]
    primary = [column for _, column, *_ in sorted((pk, row) for *row, pk in info if pk)]
    keys = {key("PRIMARY", "", [str(row[1]) for row in primary])} if primary else set()
    for _, index, unique, origin, partial in database.execute(f"PRAGMA index_list({name})"):
        if origin != "pk":
            parts = [row[2] for row in database.execute(f"PRAGMA index_info({index})")]
            keys.add(words(key("UNIQUE" if unique else "KEY", index, parts), "partial" * partial))
    ((clustered,),) = database.execute("SELECT wr FROM pragma_table_list WHERE name = ?", (name,))
    return Table(columns, keys, CLUSTERED if clustered else ROWID)


def sqlite_tables(node: Harness) -> dict[str, Table]:
    with closing(sqlite3.connect(node.database)) as database:
        names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {name: sqlite_table(database, name) for (name,) in names}


def mariadb_column(name: str, kind: str, nullable: str, extra: str) -> str:
    """The type as the specification writes it: no display widths, BOOLEAN for its synonym."""
    kind = re.sub(r"int\(\d+\)", "int", kind.replace("tinyint(1)", "boolean"))
    return words(name, kind.upper(), "NOT NULL" * (nullable == "NO"), extra.upper())


def query(link: Link, sql: str, *names: str) -> list[list[Any]]:
    """Text as text; the driver gives bytes."""
    rows = link.execute(sql, [name.encode() for name in names])
    return [
        [value.decode() if isinstance(value, bytes) else value for value in row] for row in rows
    ]


def mariadb_table(link: Link, name: str, engine: str, options: str) -> Table:
    where = "WHERE table_schema = DATABASE() AND table_name = ?"
    found = query(
        link,
        "SELECT column_name, column_type, is_nullable, extra, column_default"
        f" FROM information_schema.columns {where} ORDER BY ordinal_position",
        name,
    )
    assert {default for *_, default in found} <= {None, "NULL"}
    keys: dict[str, list[str]] = {}
    kinds = {}
    for index, plain, column, length in query(
        link,
        "SELECT index_name, non_unique, column_name, sub_part"
        f" FROM information_schema.statistics {where} ORDER BY index_name, seq_in_index",
        name,
    ):
        keys.setdefault(index, []).append(words(column, "" if length is None else f"({length})"))
        kinds[index] = "KEY" if plain else "UNIQUE"
    return Table(
        [mariadb_column(*row[:4]) for row in found],
        {
            key("PRIMARY", "", columns) if index == "PRIMARY" else key(kinds[index], index, columns)
            for index, columns in keys.items()
        },
        words(engine, options),
    )


def mariadb_tables(node: Harness) -> dict[str, Table]:
    with closing(Link(parse(node.database))) as link:
        found = query(
            link,
            "SELECT table_name, engine, create_options FROM information_schema.tables"
            " WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE'",
        )
        return {name: mariadb_table(link, name, *rest) for name, *rest in found}


def expected(tables: dict[str, Table], index: str | None) -> dict[str, Table]:
    """``index``: the name of the one that finds equal content, or None without deduplication."""
    if index is None:
        return tables
    data = tables["data"]
    unique = key("UNIQUE", index, ["hash", "compression"])
    return {**tables, "data": data._replace(keys={*data.keys, unique})}


@pytest.mark.parametrize("dedup", [False, True])
def test_sqlite_has_the_tables_of_the_specification(sqlite: Harness, dedup: bool) -> None:
    """Specification 14.1, 14.2, 14.5, 14.38."""
    sqlite.ready(dedup=dedup)
    sqlite.close()
    assert sqlite_tables(sqlite) == expected(SQLITE, "_data_i1" if dedup else None)


@pytest.mark.parametrize("dedup", [False, True])
def test_mariadb_has_the_tables_of_the_specification(mariadb: Harness, dedup: bool) -> None:
    """Specification 14.1, 14.3, 14.4, 14.5, 14.38."""
    mariadb.ready(dedup=dedup)
    mariadb.close()
    assert mariadb_tables(mariadb) == expected(MARIADB, "hash" if dedup else None)


def test_the_program_knows_these_tables_and_no_others() -> None:
    assert set(schema.TABLES) == set(SQLITE) == set(MARIADB) - {"bigdata"}
