"""ZODB inside a simulated world: its locks park, its sets are ordered, its failures are not told.

ZODB holds locks while it calls the storage, which may park. Another simulated thread must then park
on that lock as well, not block the one real thread that runs. So ZODB gets its locks from here:
simulated ones in a simulated thread, real ones elsewhere. It also tells its connections of
invalidations in the order of a set that hashes by address, which no seed decides. And it writes down
the traceback of each commit that fails, which takes a twentieth of a run, for nobody.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import ZODB.mvccadapter
import ZODB.utils
from transaction import Transaction
from transaction._transaction import Status

from tests.simulator.threads import SimLock, Threads


class OrderedSet(dict[Any, None]):
    """What ZODB does with its set of connections, in the order in which they were opened."""

    def add(self, item: Any) -> None:
        self[item] = None

    def remove(self, item: Any) -> None:
        del self[item]


def _save_error(transaction: Any) -> Any:
    """In place of Transaction._saveAndGetCommitishError, without the text of the traceback."""
    transaction.status = Status.COMMITFAILED
    transaction._failure_traceback = StringIO()
    return sys.exc_info()


@contextmanager
def simulated_zodb(threads: Threads) -> Iterator[None]:
    """While the block runs, what ZODB creates belongs to the world of ``threads``."""

    def lock() -> Any:
        return threading.Lock() if threads.current is None else SimLock(threads)

    def rlock() -> Any:
        return threading.RLock() if threads.current is None else SimLock(threads, reentrant=True)

    adapter = ZODB.mvccadapter.MVCCAdapter
    original_init = adapter.__init__

    def init(self: Any, *args: Any, **kw: Any) -> None:
        original_init(self, *args, **kw)
        self._instances = OrderedSet()

    replaced = [
        (ZODB.utils, "Lock", lock),
        (ZODB.utils, "RLock", rlock),
        (ZODB.mvccadapter, "Lock", lock),
        (adapter, "__init__", init),
        (Transaction, "_saveAndGetCommitishError", _save_error),
    ]
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
    for owner, name, value in replaced:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)
