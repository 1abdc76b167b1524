"""An application that enters numbers into several databases, in each or in none, and records that:
``python -m tests.faults.clerk``.

Each transaction adds a new number to the set of its writer in every database, and raises a counter that
all writers share. The first database is the coordinator.
"""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import transaction
from BTrees.LLBTree import LLTreeSet
from persistent.mapping import PersistentMapping
from transaction.interfaces import TransientError
from ZODB.DB import DB
from ZODB.POSException import POSError

from neo.client import xa
from neo.client.uri import resolve
from tests.faults.watch import Watch
from tests.faults.writer import Ledger

WRITERS = 3
#: Pause of an application that cannot open a database.
RETRY_SECONDS = 0.1
#: How a database of PostgreSQL is given: this and its DSN.
SQL = "sql="
SQL_NAME = "sql"


def prepare_zodb(db: DB) -> None:
    with db.transaction() as connection:
        root = connection.root()
        root["count"] = PersistentMapping(value=0)
        for writer in range(WRITERS):
            root[writer] = LLTreeSet()


#: The same in PostgreSQL. The primary key lets no number in twice.
PREPARE_SQL = (
    "CREATE TABLE entry (writer int, number bigint, PRIMARY KEY (writer, number))",
    "CREATE TABLE counter (value int)",
    "INSERT INTO counter VALUES (0)",
)


class Clerk:
    """``databases``: URIs of NEO, or :data:`SQL` and a DSN. Raise the errors of the databases."""

    def __init__(self, databases: list[str], writer: int, ledger: Ledger, stack: ExitStack) -> None:
        self._writer = writer
        self._ledger = ledger
        self.manager = transaction.TransactionManager()
        storages, self._branches = [], []
        for text in databases:
            if text.startswith(SQL):
                connect = partial(psycopg.connect, text.removeprefix(SQL))
                branch = xa.DBAPIBranch(SQL_NAME, connect)
                stack.callback(branch.close)
                self._branches.append(branch)
            else:
                factory, _ = resolve(text)
                storages.append(stack.enter_context(closing(factory())))
        self._joined = xa.join(self.manager, [*storages, *self._branches], storages[0])
        self._connections = [DB(storage).open(self.manager) for storage in storages]

    def enter(self, number: int) -> None:
        """Add a number to all databases. Raise the errors of the databases."""
        manager, writer = self.manager, self._writer
        manager.begin()
        try:
            for connection in self._connections:
                root = connection.root()
                root[writer].insert(number)
                root["count"]["value"] += 1
            for branch in self._branches:
                sql = self._joined.session(branch).connection
                sql.execute("INSERT INTO entry VALUES (%s, %s)", (writer, number))
                sql.execute("UPDATE counter SET value = value + 1")
            manager.get().join(Watch(manager, "", lambda: self._ledger.vote(number)))
            self._ledger.attempt(number)
            manager.commit()
            self._ledger.acknowledge(number)
        finally:
            manager.abort()


def work(databases: list[str], writer: int, ledger: Ledger) -> None:
    """Enter numbers until a database fails in a way that needs a new start."""
    with ExitStack() as stack:
        clerk = Clerk(databases, writer, ledger, stack)
        while True:
            number = ledger.attempted + 1
            try:
                clerk.enter(number)
            except TransientError as e:
                print(f"{number} failed: {e}", flush=True)
                if ledger.attempted == number:
                    ledger.refuse(number)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("writer", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("databases", nargs="+")
    a = parser.parse_args()
    ledger = Ledger(a.folder, a.writer)
    while True:
        try:
            work(a.databases, a.writer, ledger)
        except (POSError, psycopg.Error) as e:
            print(f"after {ledger.attempted}: {type(e).__name__}: {e}", flush=True)
            time.sleep(RETRY_SECONDS)


def entries(connection: Any) -> set[tuple[int, int]]:
    """Return what is in a database of NEO, and check its counter."""
    root = connection.root()
    found = {(writer, number) for writer in range(WRITERS) for number in root[writer]}
    assert root["count"]["value"] == len(found), (root["count"]["value"], len(found))
    return found


if __name__ == "__main__":
    main()
