"""Migrations of a database from older formats, in place (docs/formats.md).

Theory of operation
-------------------
The row ``version`` of ``config`` has the number of the format. A *migration* leads to that number from
the previous one, in *steps*. It first writes its number into ``version``, and a row ``_migration`` that
counts completed steps. From then on an older program refuses the database, and a newer one resumes the
migration after a crash.

A step is called until it reports that nothing is left. Each call is one transaction, which includes the
count. MariaDB commits a change of a table's definition at once, so a crash may repeat a call that took
effect: steps must be idempotent (``IF NOT EXISTS``; converted rows are not selected again).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from neo.storage.backend import schema

logger = logging.getLogger("neo.storage")


class Database:
    """A database that is being opened.

    ``dialect``: "sqlite" or "mariadb". ``execute``: run a statement with ``?`` for parameters and
    return rows. ``begin``, ``end``: statements around a transaction.
    """

    def __init__(
        self,
        dialect: str,
        execute: Callable[..., Sequence[Sequence[Any]]],
        begin: Sequence[str],
        end: Sequence[str],
    ) -> None:
        self.dialect = dialect
        self.execute = execute
        self._begin = begin
        self._end = end

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the statements of the block together."""
        for statement in self._begin:
            self.execute(statement)
        yield
        for statement in self._end:
            self.execute(statement)


#: Do a bounded piece of work; return whether more is left.
Step = Callable[[Database], bool]


class Migration(NamedTuple):
    """A way to the next format. ``title``: the new feature, for the log."""

    title: str
    steps: tuple[Step, ...]


#: By the format that it leads to. Format 3 is the first one that was released.
MIGRATIONS: dict[int, Migration] = {}


def upgrade(name: str, config: Mapping[str, str], database: Database) -> None:
    """Migrate a database to the present format. ``config``: its rows; ``name``: for the log.

    Raise BackendFailure, and change nothing, if the format is unknown or newer.
    """
    oldest = min(MIGRATIONS, default=schema.VERSION + 1) - 1
    schema.check_version(config.get("version"), name, oldest)
    version = int(config["version"])
    begun = config.get("_migration")
    if begun is not None:
        _migrate(name, database, version, int(begun))
    while version < schema.VERSION:
        version += 1
        with database.transaction():
            _set(database, "version", str(version))
            _set(database, "_migration", "0")
        _migrate(name, database, version, 0)


def _migrate(name: str, database: Database, version: int, done: int) -> None:
    title, steps = MIGRATIONS[version]
    logger.warning("%s: migrating to format %s (%s)", name, version, title)
    for number, step in enumerate(steps[done:], done + 1):
        more = True
        while more:
            with database.transaction():
                more = step(database)
                if not more:
                    _set(database, "_migration", str(number))
    with database.transaction():
        database.execute("DELETE FROM config WHERE name=?", "_migration")
    logger.warning("%s: migrated to format %s", name, version)


def _set(database: Database, name: str, value: str) -> None:
    database.execute("REPLACE INTO config (name, value) VALUES (?, ?)", name, value)
