"""Tables ``obj`` and ``trans`` once more, for another number of partitions (specification 27.92).

Theory of operation
-------------------
The number of partitions is in the key of each row. To change it while the node works, the rows are copied
into *other tables*, ``obj_by_48`` and ``trans_by_48`` for 48 partitions, in small steps. From the first
step on, triggers make each change of a row in both tables; so when all rows are copied, both have the
same rows, and stay so. The *switch* gives the tables each other's names, and turns the triggers around:
the former tables are kept up to date too, and the way back is another switch.

Rows of ``config``: ``_regrouping`` has the number of partitions of other tables that are being filled,
``_regrouped`` of those that are complete.

MariaDB commits each change of a definition, so a process may die in the middle of a switch. The names of
the tables tell it, since ``pt`` still has the former number: :func:`settle` gives them back when the
database is opened.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from neo.storage.backend.api import Place
from neo.storage.backend.schema import statements
from neo.storage.backend.sql import Engine
from neo.storage.backend.tables import Tables

REGROUPING, REGROUPED = "_regrouping", "_regrouped"

#: The tables, with the columns of their keys behind the partition, and the others.
_TABLES: Mapping[str, tuple[str, ...]] = {
    "obj": ("oid", "tid", "data_id", "value_tid"),
    "trans": ("tid", "packed", "oids", "user", "description", "ext", "ttid"),
}
_NAME = re.compile(r"(?:obj|trans)_by_(\d+)")
_EVENTS = "insert", "update", "delete"

_OBJ_PAGE = (
    "`partition`=? AND oid>=? AND (oid>? OR tid>?) AND (oid<? OR (oid=? AND tid<=?))",
    "SELECT oid, tid FROM obj{hint} WHERE `partition`=? AND oid>=? AND (oid>? OR tid>?)"
    " ORDER BY oid, tid LIMIT ?",
)
_TRANS_PAGE = (
    "`partition`=? AND tid>? AND tid<=?",
    "SELECT tid FROM trans WHERE `partition`=? AND tid>? ORDER BY tid LIMIT ?",
)

Execute = Callable[..., Any]


def other(table: str, partitions: int) -> str:
    """Return the name of a table for this number of partitions."""
    return f"{table}_by_{partitions}"


def others(existing: Iterable[str]) -> list[str]:
    """Return which of these names are other tables."""
    return [name for name in existing if _NAME.fullmatch(name)]


def _definitions(dialect: str, partitions: int) -> Iterator[str]:
    """Yield the statements that create other tables."""
    for statement in statements(dialect):
        for table in _TABLES:
            if re.match(rf"CREATE (TABLE IF NOT EXISTS|INDEX IF NOT EXISTS \w+ ON) {table} ", statement):
                named = re.sub(rf"\b{table} \(", f"{other(table, partitions)} (", statement)
                yield named.replace(f"_{table}_i", f"_{other(table, partitions)}_i")


def _triggers(partitions: int) -> Iterator[str]:
    """Yield the statements that create the triggers, for both databases."""
    for table, columns in _TABLES.items():
        target = other(table, partitions)
        key = columns[: 2 if table == "obj" else 1]
        values = ", ".join(f"NEW.{column}" for column in columns)
        put = (
            f"REPLACE INTO {target} (`partition`, {', '.join(columns)})"
            f" VALUES (NEW.{key[0]} % {partitions}, {values})"
        )
        where = " AND ".join(f"{column}=OLD.{column}" for column in key)
        remove = f"DELETE FROM {target} WHERE `partition`=OLD.{key[0]} % {partitions} AND {where}"
        for event in _EVENTS:
            body = remove if event == "delete" else put
            yield (
                f"CREATE TRIGGER {table}_{event} AFTER {event.upper()} ON {table}"
                f" FOR EACH ROW BEGIN {body}; END"
            )


def _no_triggers() -> Iterator[str]:
    for table in _TABLES:
        for event in _EVENTS:
            yield f"DROP TRIGGER IF EXISTS {table}_{event}"


def _renamed(dialect: str, names: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield the statements that rename tables, in this order."""
    if dialect == "mariadb":
        yield "RENAME TABLE " + ", ".join(f"{before} TO {after}" for before, after in names)
        return
    # Views keep the names that they were defined with.
    yield "PRAGMA legacy_alter_table=ON"
    for before, after in names:
        yield f"ALTER TABLE {before} RENAME TO {after}"
    yield "PRAGMA legacy_alter_table=OFF"


def switch_statements(dialect: str, before: int, after: int) -> list[str]:
    """Return the statements that give the tables each other's names, and turn the triggers around."""
    names: list[tuple[str, str]] = []
    for table in _TABLES:
        names += [(table, other(table, before)), (other(table, after), table)]
    return [*_no_triggers(), *_renamed(dialect, names), *_triggers(before)]


def settle(
    dialect: str, execute: Execute, existing: Iterable[str], config: Mapping[str, str]
) -> None:
    """Undo a switch in the middle of which the process died, and create the triggers that should be
    there. Call before missing tables are created."""
    known, counts = {*existing}, [config.get(REGROUPING), config.get(REGROUPED)]
    if "pt" not in known or not any(counts):
        return
    active = 1 + (execute("SELECT MAX(`partition`) FROM pt")[0][0] or 0)
    names: list[tuple[str, str]] = []
    for table in _TABLES:
        if other(table, active) in known:
            if table in known:
                names.append((table, other(table, int(config[REGROUPED]))))
            names.append((other(table, active), table))
    for statement in _no_triggers():
        execute(statement)
    if names:
        for statement in _renamed(dialect, names):
            execute(statement)
    for count in filter(None, counts):
        for statement in (*_definitions(dialect, int(count)), *_triggers(int(count))):
            execute(statement)


class RegroupedTables:
    def __init__(self, engine: Engine, tables: Tables) -> None:
        self._engine = engine
        self._tables = tables
        self._read = engine.read
        self._write = engine.write

    # -- Backend ----------------------------------------------------------------------------------

    def regrouped(self) -> int | None:
        count = self._tables.get_config(REGROUPED)
        return None if count is None else int(count)

    def begin_regrouping(self, partitions: int) -> str:
        if why := self._engine.trigger_obstacle():
            return why
        dialect = self._engine.dialect.name
        self._tables.set_config(REGROUPED, None)
        self._tables.set_config(REGROUPING, str(partitions))
        for statement in (
            *_no_triggers(),
            *_definitions(dialect, partitions),
            *_triggers(partitions),
        ):
            self._write(statement)
        # Rows that were written before the triggers must be seen by the pages that follow.
        self._engine.drain()
        return ""

    def regroup(self, after: Place, length: int) -> Place | None:
        partitions = int(self._tables.get_config(REGROUPING) or 0)
        number, partition, first, second = after
        if number == 2:
            self._tables.set_config(REGROUPING, None)
            self._tables.set_config(REGROUPED, str(partitions))
            return None
        table = ("obj", "trans")[number]
        start: tuple[int, ...]
        if table == "obj":
            where, page = _OBJ_PAGE
            start = (partition, max(first, 0), first, second)
        else:
            where, page = _TRANS_PAGE
            start = (partition, first)
        hint = self._engine.dialect.primary_key
        rows = self._read(page.format(hint=hint), *start, length)
        if rows:
            last = rows[-1]
            end = (last[0], last[0], last[1]) if table == "obj" else (last[0],)
            columns = ", ".join(_TABLES[table])
            self._write(
                f"REPLACE INTO {other(table, partitions)} (`partition`, {columns}) SELECT"
                f" {_TABLES[table][0]} % {partitions}, {columns} FROM {table}{hint} WHERE {where}",
                *start,
                *end,
            )
        if len(rows) == length:
            return (number, partition, rows[-1][0], rows[-1][1] if table == "obj" else -1)
        if partition + 1 < self._tables.modulo:
            return (number, partition + 1, -1, -1)
        return (number + 1, 0, -1, -1)

    def switch_partitions(self, partitions: int) -> None:
        before = self._tables.modulo
        for statement in switch_statements(self._engine.dialect.name, before, partitions):
            self._write(statement)
        self._write(f"UPDATE tobj SET `partition`=oid % {partitions}")
        self._write(f"UPDATE ttrans SET `partition`=ttid % {partitions}")
        self._tables.regroup(partitions)
        self._tables.set_config(REGROUPED, str(before))

    def drop_regrouped(self, length: int) -> bool:
        count = self._tables.get_config(REGROUPING) or self._tables.get_config(REGROUPED)
        if count is None:
            return True
        if self.regrouped() is not None:
            # The other tables will lack rows from now on.
            self._tables.set_config(REGROUPED, None)
            self._tables.set_config(REGROUPING, count)
        for statement in (*_no_triggers(), *_definitions(self._engine.dialect.name, int(count))):
            self._write(statement)
        self._engine.drain()
        if not self._emptied(int(count), length):
            return False
        for table in _TABLES:
            self._write(f"DROP TABLE IF EXISTS {other(table, int(count))}")
        self._tables.set_config(REGROUPING, None)
        return True

    def _emptied(self, partitions: int, length: int) -> bool:
        """Delete rows of the other tables, so that dropping them takes no time; return whether none is
        left."""
        if self._engine.dialect.drops_at_once:
            return True
        for table in _TABLES:
            name, key = other(table, partitions), _TABLES[table][0]
            rows = self._read(
                f"SELECT `partition`, {key} FROM {name} ORDER BY `partition`, {key} LIMIT ?", length
            )
            if rows:
                partition, last = rows[-1]
                self._write(f"DELETE FROM {name} WHERE `partition`<?", partition)
                self._write(f"DELETE FROM {name} WHERE `partition`=? AND {key}<=?", partition, last)
                return False
        return True
