"""A client with a mixed load that checks its invariants: ``python -m tests.faults.mixed``.

It transfers between accounts, counts and inserts with conflict resolution, undoes, and commits big
transactions, while a second thread reads all of that in snapshots. A :class:`Journal` gets each attempt
before the commit, and each acknowledgement after it. The client ends at SIGTERM, or with a message when
an invariant is violated. It retries after all other errors.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import transaction
from BTrees.IOBTree import IOBTree
from BTrees.Length import Length
from persistent.mapping import PersistentMapping
from ZODB.DB import DB
from ZODB.POSException import POSError, POSKeyError

from neo.client.errors import CorruptedError
from tests.faults.pace import PAUSE_SECONDS
from tests.faults.writer import opened

KINDS = ("transfer", "count", "insert", "whole", "undo", "big")
ACCOUNTS, BALANCE = 24, 100
#: Number of a client's objects that always hold the same number, and of those with much data each.
WHOLE, BIG = 4, 100
BIG_BYTES = 20_000
#: Interval of big transactions: each writes 2 MB on each of its nodes.
BIG_SECONDS = 5.0
WAIT_SECONDS = 10.0
#: Interval between two reads of the reading thread.
READ_SECONDS = 0.05


class Violation(Exception):
    """An invariant is violated."""


class Entry(NamedTuple):
    """``when``: time of the monotonic clock. ``number``: number of the client's attempt."""

    when: float
    kind: str
    number: int


class Journal:
    """Entries in a file, each written by one system call, so that readers see complete entries."""

    _FORM = struct.Struct("<dII")

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, kind: str, number: int) -> None:
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            os.write(fd, self._FORM.pack(time.monotonic(), KINDS.index(kind), number))
        finally:
            os.close(fd)

    def __len__(self) -> int:
        return self.path.stat().st_size // self._FORM.size if self.path.exists() else 0

    def entries(self) -> list[Entry]:
        data = self.path.read_bytes() if self.path.exists() else b""
        return [Entry(when, KINDS[kind], n) for when, kind, n in self._FORM.iter_unpack(data)]


class Journals:
    """The journals of one client: attempts, and acknowledged transactions."""

    def __init__(self, folder: Path, client: int) -> None:
        self.attempted = Journal(folder / f"client{client}.attempted")
        self.acknowledged = Journal(folder / f"client{client}.acknowledged")


# -- the data --------------------------------------------------------------------------------------


def prepare(storage: Any, clients: int) -> None:
    """Create all objects of the clients."""
    db = DB(storage)
    try:
        with db.transaction() as connection:
            root = connection.root()
            root["length"] = Length()
            root["tree"] = IOBTree()
            for number in range(ACCOUNTS):
                root["account", number] = PersistentMapping(balance=BALANCE)
            for client in range(clients):
                root["undo", client] = PersistentMapping(value=0)
                for number in range(WHOLE):
                    root["whole", client, number] = PersistentMapping(value=0)
                for number in range(BIG):
                    root["big", client, number] = PersistentMapping(value=0)
    finally:
        db.close()


def one_number(root: Any, kind: str, client: int, count: int) -> int:
    """Return the number that the objects of a client hold. Raise Violation if they differ."""
    found = {root[kind, client, number]["value"] for number in range(count)}
    if len(found) != 1:
        raise Violation(f"half a transaction ({kind}) of client {client}: {sorted(found)}")
    value: int = found.pop()
    return value


def check_sum(root: Any) -> None:
    total = sum(root["account", number]["balance"] for number in range(ACCOUNTS))
    if total != ACCOUNTS * BALANCE:
        raise Violation(f"the accounts have {total}, not {ACCOUNTS * BALANCE}")


def check_end(connection: Any, folder: Path, clients: int) -> Counter[str]:
    """Check the data at the end with a new client. Raise Violation.

    Return the number of acknowledged transactions of each kind. None of them is missing, each
    transaction in the database was tried, and none is there in part.
    """
    root = connection.root()
    check_sum(root)
    done: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    keys: set[int] = set()
    for client in range(clients):
        journals = Journals(folder, client)
        attempted, acknowledged = journals.attempted.entries(), journals.acknowledged.entries()
        done.update(entry.kind for entry in acknowledged)
        tried.update(entry.kind for entry in attempted)
        for kind, count in (("whole", WHOLE), ("big", BIG)):
            least = max((e.number for e in acknowledged if e.kind == kind), default=0)
            possible = {e.number for e in attempted if e.kind == kind and e.number >= least}
            found = one_number(root, kind, client, count)
            if found not in possible | {least}:
                raise Violation(f"client {client}, {kind}: {least} was acknowledged, {found} is there")
        inserted = {e.number for e in acknowledged if e.kind == "insert"}
        lost = [n for n in inserted if root["tree"].get(n * clients + client) != n]
        if lost:
            raise Violation(f"client {client}: acknowledged inserts are lost: {sorted(lost)[:5]}")
        keys.update(e.number * clients + client for e in attempted if e.kind == "insert")
    strange = set(root["tree"].keys()) - keys
    if strange:
        raise Violation(f"no client inserted {sorted(strange)[:5]}")
    if not done["count"] <= root["length"]() <= tried["count"]:
        raise Violation(
            f"{done['count']} increments were acknowledged, {tried['count']} tried, "
            f"the counter says {root['length']()}"
        )
    return done


# -- the client ------------------------------------------------------------------------------------


class Client:
    """The client. Its main thread writes; the other thread is :meth:`read_for_ever`."""

    def __init__(self, db: DB, client: int, clients: int, folder: Path, seed: int) -> None:
        self.client = client
        self.clients = clients
        self.journals = Journals(folder, client)
        self.stopping = threading.Event()
        self._db = db
        self._random = random.Random(f"{seed}/{client}")
        self._number = 0
        self._big_after = 0.0
        self._last: Counter[str] = Counter()  # the last acknowledged number of each kind
        self._undone = {0}  # values that the object of undo() may hold

    def run(self) -> None:
        """Write until SIGTERM."""
        while not self.stopping.wait(PAUSE_SECONDS):
            kind = self._random.choice(KINDS)
            if kind == "big":
                if time.monotonic() < self._big_after:
                    continue
                self._big_after = time.monotonic() + BIG_SECONDS
            self._number += 1
            with self._told(kind):
                getattr(self, kind)()

    def close(self) -> None:
        """Close the database. Call it when both threads have ended."""
        self._db.close()

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Print and swallow the errors that a failing cluster may cause."""
        try:
            yield
        except (POSKeyError, CorruptedError) as e:
            raise Violation(f"{what}: {type(e).__name__}: {e}") from e
        except (POSError, transaction.interfaces.TransientError) as e:
            print(f"{time.monotonic():.3f} {what} failed: {type(e).__name__}: {e}", flush=True)

    @contextmanager
    def _transaction(self) -> Iterator[tuple[Any, Any]]:
        """Yield a snapshot's root and the manager that commits changes. Always close the connection."""
        manager = transaction.TransactionManager()
        connection = self._db.open(manager)
        try:
            yield connection.root(), manager
        finally:
            manager.abort()
            connection.close()

    def _commit(self, kind: str, change: Callable[[Any], None]) -> None:
        with self._transaction() as (root, manager):
            change(root)
            manager.get().note(f"client {self.client} {kind} {self._number}")
            self.journals.attempted.write(kind, self._number)
            manager.commit()
        self.journals.acknowledged.write(kind, self._number)
        self._last[kind] = self._number

    def transfer(self) -> None:
        def change(root: Any) -> None:
            source, target = self._random.sample(range(ACCOUNTS), 2)
            amount = self._random.randrange(1, 20)
            root["account", source]["balance"] -= amount
            root["account", target]["balance"] += amount

        self._commit("transfer", change)

    def count(self) -> None:
        self._commit("count", lambda root: root["length"].change(1))

    def insert(self) -> None:
        """Insert into buckets into which other clients insert, too."""
        key = self._number * self.clients + self.client
        self._commit("insert", lambda root: root["tree"].insert(key, self._number))

    def whole(self) -> None:
        def change(root: Any) -> None:
            found = one_number(root, "whole", self.client, WHOLE)
            if found < self._last["whole"]:
                raise Violation(f"{self._last['whole']} was acknowledged, {found} is read")
            for number in range(WHOLE):
                root["whole", self.client, number]["value"] = self._number

        self._commit("whole", change)

    def big(self) -> None:
        def change(root: Any) -> None:
            one_number(root, "big", self.client, BIG)
            for number in range(BIG):
                item = root["big", self.client, number]
                item.update(value=self._number, data=self._random.randbytes(BIG_BYTES))

        self._commit("big", change)

    def undo(self) -> None:
        """Change an object, undo that, and check that the old value is back."""
        before = 0

        def change(root: Any) -> None:
            nonlocal before
            before = root["undo", self.client]["value"]
            if before not in self._undone:
                raise Violation(f"undo: {before} is read, not one of {self._undone}")
            self._undone.add(self._number)
            root["undo", self.client]["value"] = self._number

        self._commit("undo", change)
        self._undone = {self._number}
        note = f"client {self.client} undo {self._number}".encode()
        (found,) = self._db.undoLog(0, -1, lambda entry: entry["description"] == note)
        self._undone = {before, self._number}
        manager = transaction.TransactionManager()
        self._db.undo(found["id"], manager.get())
        self._number += 1
        self.journals.attempted.write("undo", self._number)
        manager.commit()
        self.journals.acknowledged.write("undo", self._number)
        self._undone = {before}

    def read_for_ever(self) -> None:
        """Check snapshots, in a thread of its own: transactions of all clients are complete."""
        choices = random.Random(self.client)
        while not self.stopping.wait(READ_SECONDS):
            client = choices.randrange(self.clients)
            with self._told("reading"), self._transaction() as (root, _):
                check_sum(root)
                one_number(root, "whole", client, WHOLE)
                one_number(root, "big", client, BIG)
                if client == self.client and root["length"]() < 0:
                    raise Violation("the counter is negative")


def _guarded(function: Callable[[], None]) -> None:
    """Run a function in a thread; end the process if an invariant is violated."""
    try:
        function()
    except BaseException as e:  # noqa: BLE001 - the process ends with it
        print(f"{time.monotonic():.3f} VIOLATION {type(e).__name__}: {e}", flush=True)
        os._exit(3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("masters")
    parser.add_argument("name")
    parser.add_argument("client", type=int)
    parser.add_argument("clients", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("seed", type=int)
    a = parser.parse_args()
    db = opened(a.masters, a.name, WAIT_SECONDS)
    client = Client(db, a.client, a.clients, a.folder, a.seed)
    signal.signal(signal.SIGTERM, lambda number, frame: client.stopping.set())
    reader = threading.Thread(target=_guarded, args=(client.read_for_ever,))
    reader.start()
    _guarded(client.run)
    reader.join()
    client.close()


if __name__ == "__main__":
    main()
