"""A client that uploads blobs and records what it did: ``python -m tests.faults.blob_writer``.

Each writer owns some items, each with a number and a blob, and an object without a blob. A transaction
writes its number into several items, a new content into the blob of each, and data into the object. Some
transactions are aborted before their vote, some after it. All this follows from the number
(:func:`planned`). At any time, in any snapshot, the number of an item and its blob are of one
transaction.

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
from typing import Any, NamedTuple

import transaction
from persistent.mapping import PersistentMapping
from ZODB.blob import Blob
from ZODB.DB import DB
from ZODB.POSException import POSError

from neo.protocol.blobs import PIECE_BYTES
from tests.faults.contents import MIB, Made
from tests.faults.load import Load
from tests.faults.watch import Watch
from tests.faults.writer import Ledger, opened

WRITERS = 3
#: Items of a writer.
SLOTS = 5
#: Of contents, in bytes, around the bounds of pieces. Few are large, so that there are many votes.
SIZES = (0, 0, 1, 10, 4000, 70_000, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * MIB + 7)
#: How a transaction ends, and how often.
FINISHED, BEFORE_VOTE, AFTER_VOTE = "finished", "aborted before its vote", "aborted after its vote"
_ENDS = {FINISHED: 6, BEFORE_VOTE: 1, AFTER_VOTE: 3}
#: Of the cache, which all writers share.
CACHE_BYTES = 20 * MIB
POLL_SECONDS = 0.005


class Planned(NamedTuple):
    """A transaction. ``contents``: by item. ``data``: of the object without a blob."""

    end: str
    contents: dict[int, Made]
    data: bytes


def planned(writer: int, number: int) -> Planned:
    choices = Random(f"writer {writer} number {number}")
    (end,) = choices.choices([*_ENDS], [*_ENDS.values()])
    slots = choices.sample(range(SLOTS), choices.randint(0, SLOTS))
    sizes = {slot: choices.choice(SIZES) for slot in slots}
    data = choices.randbytes(choices.choice((10, 3000)))
    return Planned(end, {slot: made(writer, number, slot, sizes[slot]) for slot in slots}, data)


def made(writer: int, number: int, slot: int, size: int) -> Made:
    return Made(f"writer {writer} number {number} item {slot}", size)


def first(writer: int, slot: int) -> Made:
    """Return the content of an item before its first transaction."""
    return made(writer, 0, slot, SIZES[slot])


def prepare(db: DB) -> None:
    """Create the objects of all writers."""
    with db.transaction() as connection:
        for writer in range(WRITERS):
            connection.root()[writer] = PersistentMapping(number=0)
            for slot in range(SLOTS):
                item = connection.root()[writer, slot] = PersistentMapping(number=0, blob=Blob())
                first(writer, slot).write(item["blob"])


def problem(connection: Any, writer: int, slot: int) -> str | None:
    """Read an item. Return how its blob differs from its number."""
    item = connection.root()[writer, slot]
    number = item["number"]
    content = planned(writer, number).contents[slot] if number else first(writer, slot)
    return content.problem(item["blob"])


class Uploads(Ledger):
    """What a writer did, in files that survive its death."""

    def __init__(self, folder: Path, writer: int) -> None:
        super().__init__(folder, writer)
        self._tids = folder / f"writer{writer}.tids"

    def finish(self, number: int, tid: bytes) -> None:
        with open(self._tids, "ab", buffering=0) as file:
            file.write(b"%020d" % number + tid)
        self.acknowledge(number)

    def tids(self) -> dict[int, bytes]:
        """Return the tid of each acknowledged transaction, by number."""
        data = self._tids.read_bytes() if self._tids.exists() else b""
        records = [data[place : place + 28] for place in range(0, len(data), 28)]
        return {int(record[:20]): record[20:] for record in records}


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


class Aborted(Exception):
    """The transaction is aborted on purpose."""


class Writer:
    def __init__(self, db: DB, number: int, ledger: Uploads) -> None:
        self._db = db
        self._writer = number
        self._ledger = ledger

    def write(self, number: int) -> None:
        """Make a transaction. Raise Aborted, and the errors of the database."""
        plan = planned(self._writer, number)

        def vote(end: str) -> None:
            if end == BEFORE_VOTE:
                self._ledger.vote(number)
            if plan.end == end:
                raise Aborted(end)

        manager = transaction.TransactionManager()
        connection = self._db.open(manager)
        try:
            own = connection.root()[self._writer]
            own.update(number=number, data=plan.data)
            for slot, content in plan.contents.items():
                item = connection.root()[self._writer, slot]
                item["number"] = number
                content.write(item["blob"])
            for key, end in (("", BEFORE_VOTE), ("~", AFTER_VOTE)):
                manager.get().join(Watch(manager, key, lambda end=end: vote(end)))
            manager.get().note(f"{self._writer} {number}")
            self._ledger.attempt(number)
            manager.commit()
            # Until it is used again, an object has the tid of its last commit.
            self._ledger.finish(number, own._p_serial)
        finally:
            manager.abort()
            connection.close()

    def read(self, writer: int, slot: int) -> None:
        """Read an item of any writer. End the process if its blob is of another transaction."""
        with self._db.transaction(transaction.TransactionManager()) as connection:
            wrong = problem(connection, writer, slot)
            if wrong is not None:
                sys.exit(f"writer {self._writer} reads something else: {wrong}")


def write_for_ever(db: DB, writer: int, ledger: Uploads, pause: Pause) -> None:
    """Write until a signal ends the process; try again while the cluster is away."""
    number, its = ledger.attempted, Writer(db, writer, ledger)
    while True:
        pause.keep(writer)
        number += 1
        try:
            its.read(number % WRITERS, number % SLOTS)
            its.write(number)
        except Aborted as e:
            print(f"writer {writer}: {number} is {e}", flush=True)
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
    write_for_ever(db, a.writer, Uploads(a.folder, a.writer), Pause(a.folder))


if __name__ == "__main__":
    main()
