"""The tables, and migrations of a database from older formats, in place (docs/formats.md).

``schema/*.sql`` is what is executed (specification 14).

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
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from typing import Any, NamedTuple

from neo.storage.backend.api import FILL_ANEW, BackendFailure

logger = logging.getLogger("neo.storage")

#: Version of the format, kept in the ``version`` row of ``config``.
VERSION = 3

#: Tables of a node, in the order in which a reset drops them: the seven tables of the format, the tables
#: of prepared transactions, the table of blobs, the journal of operations. MariaDB also has ``bigdata``.
TABLES = (
    *("config", "pt", "trans", "obj", "data", "ttrans", "tobj"),
    *("prepared", "prepared_check", "decided", "content"),
    *("operation", "operation_step"),
)

VIEWS = (
    *("show_pt", "show_trans", "show_ttrans", "show_obj", "show_tobj", "show_data"),
    *("show_prepared", "show_decided", "show_content"),
)


#: Drop the index of deduplication, which refuses a second row with an equal value.
WITHOUT_DEDUP = {
    "sqlite": "DROP INDEX IF EXISTS _data_i1",
    "mariadb": "DROP INDEX IF EXISTS `hash` ON data",
}


def equal_values(name: str) -> BackendFailure:
    """Return the failure of a database that cannot get the index of deduplication."""
    return BackendFailure(
        f"{name}: 'dedup' cannot be switched on, because equal values were stored without it and have"
        " rows of their own. Start the node without 'dedup'. Or, if every partition of the node has"
        " another copy, start it once with --reset and with 'dedup', and let the other nodes fill it"
    )


def statements(name: str) -> list[str]:
    """Return the statements of ``schema/<name>.sql``; no string or comment there has a semicolon."""
    text = resources.files("neo.schema").joinpath(f"{name}.sql").read_text("utf-8")
    text = re.sub(r"--[^\n]*", "", text)
    return [s.strip() for s in text.split(";") if s.strip()]


@dataclass
class Database:
    """A database that is being opened. ``begin``, ``end``: statements around a transaction."""

    #: "sqlite" or "mariadb".
    dialect: str
    #: Run a statement with ``?`` for parameters and return rows.
    execute: Callable[..., Sequence[Sequence[Any]]]
    begin: Sequence[str]
    end: Sequence[str]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the statements of the block together."""
        for statement in self.begin:
            self.execute(statement)
        yield
        for statement in self.end:
            self.execute(statement)


class Migration(NamedTuple):
    """A way to the next format. ``title``: the new feature, for the log. Each of the ``steps`` does a
    bounded piece of work, and returns whether more is left."""

    title: str
    steps: tuple[Callable[[Database], bool], ...]


#: Migrations by the format that they lead to. Format 3 is the first format that was released.
MIGRATIONS: dict[int, Migration] = {}


def check_version(found: str | None, database: str) -> None:
    """Raise BackendFailure for an unknown format."""
    if found is None:
        raise BackendFailure(
            f"{database}: there is a 'config' table without version: this is not a database of a"
            " NEO storage node. Give another database"
        )
    if found.isdecimal() and int(found) > VERSION:
        raise BackendFailure(
            f"{database}: the format of the database is {found}, newer than {VERSION}, the newest"
            " this program knows. Upgrade the program of this storage node"
        )
    oldest = min(MIGRATIONS, default=VERSION + 1) - 1
    if not found.isdecimal() or int(found) < oldest:
        raise BackendFailure(
            f"{database}: the format of the database is {found!r}, older than {oldest}. Open it once"
            f" with the NEO release that wrote it and that upgrades to format {oldest}. {FILL_ANEW}"
        )


def upgrade(name: str, config: Mapping[str, str], database: Database) -> None:
    """Migrate a database to the present format. ``config``: its rows; ``name``: for the log.

    Raise BackendFailure, and change nothing, if the format is unknown or newer.
    """
    check_version(config.get("version"), name)
    version = int(config["version"])
    begun = config.get("_migration")
    if begun is not None:
        _migrate(name, database, version, int(begun))
    while version < VERSION:
        version += 1
        with database.transaction():
            _set(database, "version", version)
            _set(database, "_migration", 0)
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
                    _set(database, "_migration", number)
    with database.transaction():
        database.execute("DELETE FROM config WHERE name=?", "_migration")
    logger.warning("%s: migrated to format %s", name, version)


def _set(database: Database, name: str, value: int) -> None:
    database.execute("REPLACE INTO config (name, value) VALUES (?, ?)", name, str(value))
