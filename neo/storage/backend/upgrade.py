"""From older formats of a database to the present one, in place (docs/formats.md).

Theory of operation
-------------------
The row ``version`` of ``config`` has the number of the format. A *migration* leads to the format of its
number from the one before, in *steps*. Its first act is to write its number into ``version``, with a
row ``_migration`` that counts the steps that are done: from then on a program that only knows the older
format refuses the database, and a newer one goes on where it was, whatever happened to the process.

A step is called again until it says that nothing is left. Each call is one transaction, together with
the count. MariaDB commits a change of a table's definition at once, so that a call may be repeated after
a crash although it had effect: a step must stand that (``IF NOT EXISTS``; rows that are converted
already are not found again).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from neo.storage.backend import schema

logger = logging.getLogger("neo.storage")


class Database:
    """A backend while it is being opened. ``dialect``: "sqlite" or "mariadb". ``execute``: runs a
    statement with ``?`` for parameters, and returns rows. ``begin`` and ``end``: around a
    transaction."""

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
        """What is inside is committed together."""
        for statement in self._begin:
            self.execute(statement)
        yield
        for statement in self._end:
            self.execute(statement)


#: Does a bounded piece of work; returns whether more is left.
Step = Callable[[Database], bool]


class Migration(NamedTuple):
    """``title``: what is new, for the log."""

    title: str
    steps: tuple[Step, ...]


#: By the format that it leads to. Format 3 is the first one that was released.
MIGRATIONS: dict[int, Migration] = {}


def upgrade(name: str, config: Mapping[str, str], database: Database) -> None:
    """Bring a database to the present format. ``config``: its rows; ``name``: for the log.

    Raises BackendFailure, with nothing changed, if the format is unknown or newer.
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
    logger.warning("%s: becomes format %s (%s)", name, version, title)
    for number, step in enumerate(steps[done:], done + 1):
        more = True
        while more:
            with database.transaction():
                more = step(database)
                if not more:
                    _set(database, "_migration", str(number))
    with database.transaction():
        database.execute("DELETE FROM config WHERE name=?", "_migration")
    logger.warning("%s: is format %s", name, version)


def _set(database: Database, name: str, value: str) -> None:
    database.execute("REPLACE INTO config (name, value) VALUES (?, ?)", name, value)
