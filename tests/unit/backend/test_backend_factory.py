"""Adapters by the names that users type, and the statements of ``schema/``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from neo.storage.backend import factory, schema
from neo.storage.backend.api import BackendFailure
from neo.storage.backend.mariadb.engine import TABLES, MariaDB
from neo.storage.backend.sql_backend import SQLBackend
from neo.storage.backend.sqlite.engine import SQLite


def make(adapter: str, database: str, engine: str | None = None) -> SQLBackend:
    return factory.make_backend(adapter, database, engine, lambda *args: None, lambda failure: None)


def test_adapters_by_name(tmp_path: Path) -> None:
    assert isinstance(make("SQLite", str(tmp_path / "db")).engine, SQLite)
    assert isinstance(make("MySQL", "neo1").engine, MariaDB)
    assert isinstance(make("mariadb", "neo1", "InnoDB").engine, MariaDB)


def test_an_unknown_adapter_names_the_known_ones() -> None:
    with pytest.raises(BackendFailure, match="'Oracle'.*SQLite, MySQL, MariaDB"):
        make("Oracle", "x")


def test_without_mysqlclient_the_message_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "neo.storage.backend.mariadb.engine", None)
    with pytest.raises(BackendFailure, match="mysqlclient.*pip install"):
        make("MySQL", "neo1")


@pytest.mark.parametrize(
    ("name", "tables"), [("sqlite", schema.TABLES), ("mariadb", TABLES)], ids=str
)
def test_the_schema_creates_the_specified_tables_and_views(
    name: str, tables: tuple[str, ...]
) -> None:
    created = [s.split("(")[0].split()[-1] for s in schema.statements(name) if "TABLE" in s]
    assert sorted(created) == sorted(tables)
    views = [s.split(" VIEW ")[1].split() for s in schema.statements(f"{name}-views")]
    shown = [next(word for word in words if word.startswith("show_")) for words in views]
    assert tuple(shown) == schema.VIEWS
