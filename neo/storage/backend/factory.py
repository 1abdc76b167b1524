"""The backend of a configuration: ``adapter``, ``database`` and ``engine`` of ``neo.conf``."""

from __future__ import annotations

from collections.abc import Callable

from neo.storage.backend.acknowledged import Acknowledged
from neo.storage.backend.api import Backend, BackendFailure, Schedule

#: Names of adapters as users type them, without regard to case.
ADAPTERS = ("SQLite", "MySQL", "MariaDB")


def make_backend(
    adapter: str,
    database: str,
    engine: str | None,
    schedule: Schedule,
    on_failure: Callable[[BackendFailure], None],
    dedup: bool = False,
    acknowledged: Acknowledged | None = None,
) -> Backend:
    """The backend, not open yet. Raises BackendFailure when a setting is wrong.

    ``database``: a file for SQLite, ``[user[:password]@]database[unix_socket]`` for MariaDB.
    ``engine``: of MariaDB's tables, None for InnoDB. ``acknowledged``: of this process.
    """
    name = adapter.lower()
    if name == "sqlite":
        if engine is not None:
            raise BackendFailure(
                f"engine {engine!r} is a setting of the adapter MySQL; remove it for SQLite"
            )
        from neo.storage.backend.sqlite import SQLite

        return SQLite(database, schedule, on_failure, dedup, acknowledged=acknowledged)
    if name in ("mysql", "mariadb"):
        try:
            from neo.storage.backend.mariadb import MariaDB
        except ImportError as error:
            raise BackendFailure(
                f"adapter {adapter} needs the package mysqlclient, which cannot be imported:"
                f" {error}. Install it (pip install 'zodb-neo[mariadb]') or use SQLite."
            ) from error
        return MariaDB(database, engine, schedule, on_failure, dedup, acknowledged)
    raise BackendFailure(f"unknown adapter {adapter!r}: it is one of {', '.join(ADAPTERS)}")
