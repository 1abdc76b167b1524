"""Threads that commit, and remember each transaction that was acknowledged.

Each thread owns objects in all partitions, changes some or all of them in one transaction, and counts the
changes in one more object. Now and then it changes an object of all threads, too, so that there are
conflicts. The description of a transaction has its number of objects: one that is there in part is seen
even if it was not acknowledged.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import transaction
from persistent.mapping import PersistentMapping
from ZODB.DB import DB
from ZODB.POSException import POSError

THREADS, OBJECTS = 5, 6
_SHARED, _TOTAL = "shared", "total"
#: Data of an object, so that a transaction is more than one packet now and then.
_DATA_BYTES = 400


class Acknowledged(NamedTuple):
    """``when``: time of the monotonic clock after the commit."""

    when: float
    tid: bytes
    oids: frozenset[bytes]


def prepare(db: DB) -> None:
    """Create the objects of all threads."""
    with db.transaction() as connection:
        root = connection.root()
        root[_SHARED] = PersistentMapping()
        for number in range(THREADS):
            for index in [*range(OBJECTS), _TOTAL]:
                root[number, index] = PersistentMapping(value=0)


def newest(root: Any) -> bytes:
    """Read all objects. Return the greatest tid. Raise AssertionError if a transaction is there in
    part."""
    tids = [root._p_serial]
    for number in range(THREADS):
        items = [root[number, index] for index in range(OBJECTS)]
        total = root[number, _TOTAL]
        found = sum(item["value"] for item in items)
        assert found == total["value"], f"half a transaction: {found} changes, not {total['value']}"
        tids += [item._p_serial for item in (*items, total)]
    tid: bytes = max(tids)
    return tid


class Load:
    """The threads, with a client. ``acknowledged``: grows while they run."""

    def __init__(self, db: DB, seed: int) -> None:
        self.acknowledged: list[Acknowledged] = []
        self._db = db
        self._stopping = threading.Event()
        self._commits = [0] * THREADS
        self._errors: list[str] = []
        self._threads = [
            threading.Thread(target=self._run, args=(number, random.Random(f"{seed}/{number}")))
            for number in range(THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def commits(self) -> Sequence[int]:
        """Return the number of commits of each thread."""
        return tuple(self._commits)

    def check(self) -> None:
        """Raise AssertionError if a thread ended."""
        assert all(thread.is_alive() for thread in self._threads), self._errors

    def stop(self) -> None:
        """End the threads, also if their cluster does not answer."""
        self._stopping.set()
        self._db.storage.close()  # what waits for the cluster fails
        for thread in self._threads:
            thread.join()
        self._db.close()

    def _run(self, number: int, choices: random.Random) -> None:
        try:
            while not self._stopping.is_set():
                self._write(number, choices)
        except (POSError, transaction.interfaces.TransientError) as e:
            self._errors.append(f"{type(e).__name__}: {e}")
            if not self._stopping.is_set():
                raise

    def _write(self, number: int, choices: random.Random) -> None:
        manager = transaction.TransactionManager()
        connection = self._db.open(manager)
        try:
            root = connection.root()
            count = choices.choice([1, 2, OBJECTS, OBJECTS])
            changed = [root[number, i] for i in choices.sample(range(OBJECTS), count)]
            changed.append(root[number, _TOTAL])
            if choices.random() < 0.2:
                changed.append(root[_SHARED])
            for item in changed:
                more = count if item is root[number, _TOTAL] else 1
                item.update(value=item.get("value", 0) + more, data=choices.randbytes(_DATA_BYTES))
            manager.get().note(str(len(changed)))
            manager.commit()
            # Until it is used again, an object has the tid of its last commit.
            tid, oids = changed[0]._p_serial, frozenset(item._p_oid for item in changed)
            self.acknowledged.append(Acknowledged(time.monotonic(), tid, oids))
            self._commits[number] += 1
        except transaction.interfaces.TransientError:
            pass  # a conflict
        finally:
            manager.abort()
            connection.close()


def check(
    db: DB, expected: Sequence[Acknowledged], since: bytes, seen: Iterable[bytes] = ()
) -> int:
    """Check that all ``expected`` transactions are there with all of their objects, that none after
    ``since`` is there in part, and that those that were ``seen`` are there. Return the number of
    transactions there."""
    found = {}
    for there in db.storage.iterator(since):
        found[there.tid] = frozenset(record.oid for record in there)
        if there.tid > since:
            assert len(found[there.tid]) == int(there.description), f"half of {there.tid.hex()}"
    lost = [item for item in expected if found.get(item.tid) != item.oids]
    assert not lost, (
        f"{len(lost)} of {len(expected)} acknowledged transactions are lost:"
        f" {[(item.tid.hex(), sorted(item.oids), found.get(item.tid)) for item in lost[:3]]}"
    )
    gone = sorted({tid for tid in seen if tid > since} - found.keys())
    assert not gone, f"{len(gone)} transactions were read, and are gone: {[t.hex() for t in gone[:3]]}"
    return len(found)
