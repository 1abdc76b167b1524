"""Databases of all released formats are opened, and older ones brought to the present format.

There is one released format so far. What leads from one to the next is therefore tested with formats
that do not exist.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neo.storage.backend import schema
from neo.storage.backend.api import BackendFailure
from neo.storage.backend.mariadb.link import Link, parse
from neo.storage.backend.schema import Database, Migration
from tests.formats.make import BIG, CONFIG, huge, rows
from tests.unit.backend.harness import Harness, p64

FORMATS = Path(__file__).parents[2] / "formats"
RELEASED = sorted(int(path.stem.partition("-")[2]) for path in FORMATS.glob("format-*.sqlite"))


KINDS = {"SQLite": "sqlite", "MySQL": "mariadb"}


def load(node: Harness, number: int) -> None:
    """Put the database of a release where the harness opens it."""
    if node.adapter == "SQLite":
        shutil.copy(FORMATS / f"format-{number}.sqlite", node.database)
        return
    link = Link(parse(node.database))
    for statement in (FORMATS / f"format-{number}.mariadb.sql").read_text().split(";\n"):
        if statement.strip():
            link.execute(statement.replace("?", "??"))
    link.close()


def test_every_released_format_is_kept() -> None:
    assert RELEASED[-1] == schema.VERSION
    for number in RELEASED:
        for name in "mariadb.sql", "sqlite.json", "mariadb.json":
            assert (FORMATS / f"format-{number}.{name}").exists()


@pytest.mark.parametrize("number", RELEASED)
def test_a_database_of_a_release_is_opened_with_all_its_rows(node: Harness, number: int) -> None:
    load(node, number)
    backend = node.open()
    name = f"format-{number}.{KINDS[node.adapter]}.json"
    assert rows(backend) == json.loads((FORMATS / name).read_text())
    assert {row: backend.tables.get_config(row) for row in CONFIG} == CONFIG
    assert backend.reads.load(p64(4), None, None).data == huge(node.adapter)
    assert backend.reads.load(p64(2), None, None).data == BIG
    assert backend.reads.load(p64(0), None, None)[:2] == (p64(36), None)
    assert backend.reads.load(p64(3), None, None).compression is None
    assert backend.commits.locked_transactions() == {p64(42): None, p64(45): p64(48)}
    assert backend.commits.final_tid(p64(39)) == p64(39)
    node.commit(backend, 51, {0: b"goes on"})
    assert backend.reads.load(p64(0), None, None).data == b"goes on"


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("4", "format of the database is 4, newer than 3.*Upgrade the program"),
        ("2", "format of the database is '2', older than 3"),
        (None, "without version.*another database"),
    ],
)
def test_another_format_is_refused(
    node: Harness, backend: Any, version: str | None, message: str
) -> None:
    if version is None:
        backend.engine.write("DELETE FROM config WHERE name='version'")
    else:
        backend.engine.write("UPDATE config SET value=? WHERE name='version'", version)
    backend.close()
    with pytest.raises(BackendFailure, match=message):
        node.open()
    assert node.open(reset=True).tables.get_config("version") == "3"


# -- migrations ---------------------------------------------------------------------------------


def _column(database: Database) -> bool:
    """A definition: SQLite knows no IF NOT EXISTS here, but takes it back with the transaction."""
    exists = "" if database.dialect == "sqlite" else "IF NOT EXISTS"
    database.execute(f"ALTER TABLE trans ADD COLUMN {exists} length INTEGER NULL")
    return False


def _lengths(database: Database) -> bool:
    """Rows, two at a time; those that have it are not found again."""
    found = database.execute(
        "SELECT tid, oids FROM trans WHERE length IS NULL ORDER BY tid LIMIT 2"
    )
    for tid, oids in found:
        database.execute("UPDATE trans SET length=? WHERE tid=?", len(oids) // 8, tid)
    return bool(found)


def _row(database: Database) -> bool:
    database.execute("REPLACE INTO config (name, value) VALUES (?, ?)", "five", "yes")
    return False


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that knows two formats more."""
    monkeypatch.setattr(schema, "VERSION", 5)
    monkeypatch.setitem(schema.MIGRATIONS, 4, Migration("lengths", (_column, _lengths)))
    monkeypatch.setitem(schema.MIGRATIONS, 5, Migration("a row", (_row,)))


def lengths(node: Harness, backend: object) -> list[int]:
    return [
        length for _, length in sorted(map(tuple, node.select(backend, "tid, length", "trans")))
    ]


@pytest.mark.usefixtures("newer")
def test_an_older_database_is_migrated_format_by_format(node: Harness) -> None:
    load(node, 3)
    backend = node.open()
    assert lengths(node, backend) == [4, 2, 1, 1]
    assert (backend.tables.get_config("version"), backend.tables.get_config("five")) == ("5", "yes")
    assert backend.tables.get_config("_migration") is None
    node.close()
    backend = node.open()
    assert lengths(node, backend) == [4, 2, 1, 1]


class Crash(Exception):
    pass


def crash_at(
    monkeypatch: pytest.MonkeyPatch, execute: Callable[..., object], count: int
) -> Callable[..., object]:
    left = [count]

    def crashing(*args: object) -> object:
        if left[0] == 0:
            raise Crash
        left[0] -= 1
        return execute(*args)

    return crashing


@pytest.mark.usefixtures("newer")
@pytest.mark.parametrize("count", range(18))
def test_a_migration_that_is_cut_short_anywhere_goes_on(
    node: Harness, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """The process dies before one statement after the other."""
    load(node, 3)
    with monkeypatch.context() as patch:
        original = schema.upgrade

        def upgrade_with_crash(name: str, config: dict[str, str], database: Database) -> None:
            crashing = crash_at(patch, database.execute, count)
            patch.setattr(database, "execute", crashing, raising=True)
            original(name, config, database)

        module = "sqlite" if node.adapter == "SQLite" else "mariadb"
        patch.setattr(f"neo.storage.backend.{module}.engine.upgrade", upgrade_with_crash)
        with pytest.raises(Crash):
            node.open()
    backend = node.open()
    assert lengths(node, backend) == [4, 2, 1, 1]
    assert (backend.tables.get_config("version"), backend.tables.get_config("five")) == ("5", "yes")
    assert backend.tables.get_config("_migration") is None


def test_a_half_migrated_database_is_refused_by_the_program_of_before(
    node: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(node, 3)

    def fails(database: Database) -> bool:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(schema, "VERSION", 4)
        patch.setitem(schema.MIGRATIONS, 4, Migration("never ends", (fails,)))
        with pytest.raises(Crash):
            node.open()
    with pytest.raises(BackendFailure, match="format of the database is 4, newer than 3"):
        node.open()


@pytest.mark.usefixtures("newer")
def test_formats_without_a_way_to_the_present_one_are_refused(sqlite: Harness) -> None:
    load(sqlite, 3)
    with sqlite3.connect(sqlite.database) as database:
        database.execute("UPDATE config SET value='2' WHERE name='version'")
    database.close()
    with pytest.raises(BackendFailure, match=re.escape("is '2', older than 3")):
        sqlite.open()
    with sqlite3.connect(sqlite.database) as database:
        assert database.execute("SELECT value FROM config WHERE name='version'").fetchone() == (
            "2",
        )
    database.close()
