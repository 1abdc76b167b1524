"""A writing load that records its commits: ``python -m tests.faults.writer``.

Each writer owns a few objects in different partitions. One transaction writes the same number into all
of them. Before a commit the number goes to the file *attempted*, after it to *acknowledged*. At any
time, in any snapshot, all objects of a writer hold one number between the two.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import transaction
from persistent.mapping import PersistentMapping
from ZODB.DB import DB
from ZODB.POSException import POSError

from neo.client import Storage
from neo.client.errors import UnavailableError
from tests.faults.pace import PAUSE_SECONDS

OBJECTS = 4


class Ledger:
    """The numbers of one writer, in files that survive its death."""

    def __init__(self, folder: Path, writer: int) -> None:
        self._attempted = folder / f"writer{writer}.attempted"
        self._acknowledged = folder / f"writer{writer}.acknowledged"
        self._refused = folder / f"writer{writer}.refused"
        self._voting = folder / f"writer{writer}.voting"

    @staticmethod
    def _write(path: Path, number: int) -> None:
        # One system call writes a record, so that a reader sees all of it or nothing.
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            os.write(fd, b"%020d" % number)
        finally:
            os.close(fd)

    @staticmethod
    def _read(path: Path) -> int:
        if not path.exists():
            return 0
        return int(path.read_bytes()[-20:] or 0)

    @staticmethod
    def _all(path: Path) -> list[int]:
        data = path.read_bytes() if path.exists() else b""
        return [int(data[place : place + 20]) for place in range(0, len(data), 20)]

    def attempt(self, number: int) -> None:
        self._write(self._attempted, number)

    def acknowledge(self, number: int) -> None:
        self._write(self._acknowledged, number)

    def refuse(self, number: int) -> None:
        """Note a number of which the writer was told that it is not committed."""
        self._write(self._refused, number)

    def vote(self, number: int) -> None:
        """Note a number that begins to vote."""
        self._write(self._voting, number)

    @property
    def attempted(self) -> int:
        return self._read(self._attempted)

    @property
    def acknowledged(self) -> int:
        return self._read(self._acknowledged)

    @property
    def voting(self) -> int:
        return self._read(self._voting)

    def all_refused(self) -> list[int]:
        return self._all(self._refused)

    def all_attempted(self) -> list[int]:
        return self._all(self._attempted)

    def all_acknowledged(self) -> list[int]:
        return self._all(self._acknowledged)


def prepare(storage: Any, writers: int) -> None:
    """Create the objects of all writers."""
    db = DB(storage)
    try:
        with db.transaction() as connection:
            root = connection.root()
            for writer in range(writers):
                for number in range(OBJECTS):
                    root[writer, number] = PersistentMapping(value=0)
    finally:
        db.close()


def values(connection: Any, writer: int) -> list[int]:
    """Return the values of a writer's objects in the connection's snapshot."""
    root = connection.root()
    return [root[writer, number]["value"] for number in range(OBJECTS)]


def write_for_ever(db: DB, writer: int, ledger: Ledger) -> None:
    """Write until a signal ends the process; try again while the cluster is away."""
    number = ledger.attempted
    while True:
        time.sleep(PAUSE_SECONDS)
        number += 1
        try:
            with db.transaction(transaction.TransactionManager()) as connection:
                found = set(values(connection, writer))
                if len(found) != 1:
                    sys.exit(f"writer {writer} sees half a transaction: {found}")
                ledger.attempt(number)
                root = connection.root()
                for index in range(OBJECTS):
                    root[writer, index]["value"] = number
            ledger.acknowledge(number)
        except (POSError, transaction.interfaces.TransientError) as e:
            print(
                f"writer {writer}: {number} not acknowledged: {type(e).__name__}: {e}", flush=True
            )


def opened(masters: str, name: str, wait_timeout: float = 5.0, **options: Any) -> DB:
    """Open the database. Try again while the cluster is away, as an application that is restarted.
    There is no deadline here: the parent process has one."""
    while True:
        try:
            storage = Storage(masters, name, wait_timeout=wait_timeout, **options)
        except UnavailableError as e:
            print(f"not opened: {e}", flush=True)
            continue
        try:
            return DB(storage)
        except POSError as e:
            storage.close()
            print(f"no root: {e}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("masters")
    parser.add_argument("name")
    parser.add_argument("writer", type=int)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    db = opened(arguments.masters, arguments.name)
    write_for_ever(db, arguments.writer, Ledger(arguments.folder, arguments.writer))


if __name__ == "__main__":
    main()
