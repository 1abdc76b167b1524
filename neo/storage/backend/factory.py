"""Make the backend for ``adapter``, ``database``, ``engine`` and ``mark`` of ``neo.conf``."""

from __future__ import annotations

from collections.abc import Callable

from neo.storage.backend.acknowledged import Acknowledged
from neo.storage.backend.api import BackendFailure, Schedule
from neo.storage.backend.sql_backend import SQLBackend
from neo.storage.backend.sqlite.position import SUFFIX

#: Names of adapters in settings; case does not matter.
ADAPTERS = ("SQLite", "MySQL", "MariaDB")


def make_backend(
    adapter: str,
    database: str,
    engine: str | None,
    schedule: Schedule,
    on_failure: Callable[[BackendFailure], None],
    dedup: bool = False,
    acknowledged: Acknowledged | None = None,
    mark: str | None = None,
) -> SQLBackend:
    """Return a backend, not open yet. Raise BackendFailure for a wrong setting.

    ``database``: a file for SQLite, ``[user[:password]@]database[unix_socket]`` for MariaDB.
    ``engine``: of MariaDB's tables; None: InnoDB. ``acknowledged``: the position that this process
    acknowledged. ``mark``: the file where a MariaDB node keeps that position.
    """
    name = adapter.lower()
    if name == "sqlite":
        if engine is not None:
            raise BackendFailure(
                f"engine {engine!r} is a setting of the adapter MySQL; remove it for SQLite"
            )
        if mark is not None:
            raise BackendFailure(
                f"mark {mark!r} is a setting of the adapter MySQL; remove it for SQLite, which keeps its"
                f" own beside the database: {database}{SUFFIX}"
            )
        from neo.storage.backend.sqlite.engine import SQLite

        return SQLBackend(SQLite(database, schedule, on_failure, dedup, acknowledged))
    if name in ("mysql", "mariadb"):
        try:
            from neo.storage.backend.mariadb.engine import MariaDB
        except ImportError as error:
            raise BackendFailure(
                f"adapter {adapter} needs the package mysqlclient, which cannot be imported:"
                f" {error}. Install it (pip install 'zodb-neo[mariadb]') or use SQLite"
            ) from error
        made = MariaDB(database, engine, schedule, on_failure, dedup, acknowledged, mark)
        return SQLBackend(made)
    raise BackendFailure(f"unknown adapter {adapter!r}: it is one of {', '.join(ADAPTERS)}")
