"""A writer of blobs that records its commits: ``python -m tests.faults.blob_writer``.

Each writer owns a few objects, each with a number and a blob. A transaction writes a number and the
content that is made from it. The numbers go into a :class:`Ledger`. At any time, in any snapshot, the
number of an object and its blob are of one transaction.

The writer pauses between two transactions while the file ``pause`` is in its folder.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import transaction
from persistent.mapping import PersistentMapping
from ZODB.blob import Blob
from ZODB.DB import DB
from ZODB.POSException import POSError

from tests.faults.contents import MIB, Made
from tests.faults.load import WRITERS, Load
from tests.faults.writer import Ledger, opened

#: Objects of a writer.
SLOTS = 4
#: Of contents, in bytes. Most of the time goes into the large ones, so that most kills hit an upload.
SIZES = (10, 70_000, 2 * MIB, 8 * MIB)
#: Of the cache, which all writers share.
CACHE_BYTES = 20 * MIB
POLL_SECONDS = 0.005


def made(writer: int, number: int) -> Made:
    name = f"writer {writer} number {number}"
    return Made(name, Random(name).choice(SIZES))


def prepare(db: DB, writers: int) -> None:
    """Create the objects of all writers."""
    with db.transaction() as connection:
        for writer in range(writers):
            for slot in range(SLOTS):
                item = connection.root()[writer, slot] = PersistentMapping(number=0, blob=Blob())
                made(writer, 0).write(item["blob"])


def problem(connection: Any, writer: int, slot: int) -> str | None:
    """Read an object. Return how its blob differs from its number."""
    item = connection.root()[writer, slot]
    return made(writer, item["number"]).problem(item["blob"])


def check(db: DB, ledgers: list[Ledger]) -> None:
    """Check that all acknowledged contents are there, and each belongs to its number."""
    acknowledged = [ledger.all_acknowledged() for ledger in ledgers]
    with db.transaction() as connection:
        for writer, ledger in enumerate(ledgers):
            for slot in range(SLOTS):
                found = connection.root()[writer, slot]["number"]
                least = max((n for n in acknowledged[writer] if n % SLOTS == slot), default=0)
                attempted = {n for n in ledger.all_attempted() if n % SLOTS == slot}
                assert found >= least and found in attempted | {0}, (writer, slot, found, least)
                wrong = problem(connection, writer, slot)
                assert wrong is None, wrong


class Pause:
    """The files by which a test lets its writers pause."""

    def __init__(self, folder: Path) -> None:
        self._flag = folder / "pause"
        self._folder = folder

    def _paused(self, writer: int) -> Path:
        return self._folder / f"writer{writer}.paused"

    def keep(self, writer: int) -> None:
        """Pause, in the process of a writer, if the test wants that."""
        while self._flag.exists():
            self._paused(writer).touch()
            time.sleep(POLL_SECONDS)
        self._paused(writer).unlink(missing_ok=True)

    @contextmanager
    def all(self, load: Load) -> Iterator[None]:
        """No writer has a transaction in progress meanwhile."""
        paused = [self._paused(writer) for writer in range(WRITERS)]
        self._flag.touch()
        load.wait(lambda: all(path.exists() for path in paused), "a writer does not pause")
        yield
        self._flag.unlink()
        load.wait(lambda: not any(path.exists() for path in paused), "a writer stays paused")


def write_for_ever(db: DB, writer: int, ledger: Ledger, pause: Pause) -> None:
    """Write until a signal ends the process; try again while the cluster is away."""
    number = ledger.attempted
    while True:
        pause.keep(writer)
        number += 1
        try:
            with db.transaction(transaction.TransactionManager()) as connection:
                wrong = problem(connection, writer, number % SLOTS)
                if wrong is not None:
                    sys.exit(f"writer {writer} reads something else: {wrong}")
                ledger.attempt(number)
                item = connection.root()[writer, number % SLOTS]
                item["number"] = number
                made(writer, number).write(item["blob"])
            ledger.acknowledge(number)
        except (POSError, transaction.interfaces.TransientError) as e:
            print(f"writer {writer}: {number} failed: {type(e).__name__}: {e}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("masters")
    parser.add_argument("name")
    parser.add_argument("writer", type=int)
    parser.add_argument("folder", type=Path)
    a = parser.parse_args()
    cache = str(a.folder / "cache")
    db = opened(a.masters, a.name, blob_dir=cache, blob_cache_size=CACHE_BYTES)
    write_for_ever(db, a.writer, Ledger(a.folder, a.writer), Pause(a.folder))


if __name__ == "__main__":
    main()
