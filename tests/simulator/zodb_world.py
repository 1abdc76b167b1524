"""ZODB inside a simulated world: its locks park, its sets are ordered, its tracebacks are skipped.

ZODB holds locks while it calls the storage, which may park. Another simulated thread must then park on
that lock, not block the one real thread that runs. So ZODB gets its locks from this module: simulated
ones in a simulated thread, real ones elsewhere. ZODB also passes invalidations to its connections in
the order of a set that hashes by address, which no seed decides. And it formats the traceback of each
commit that fails, which takes a twentieth of a run and is never read.
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
    """A replacement for ZODB's set of connections, in the order in which they were opened."""

    def add(self, item: Any) -> None:
        self[item] = None

    def remove(self, item: Any) -> None:
        del self[item]


def _save_error(transaction: Any) -> Any:
    """Replace Transaction._saveAndGetCommitishError, without formatting the traceback."""
    transaction.status = Status.COMMITFAILED
    transaction._failure_traceback = StringIO()
    return sys.exc_info()


@contextmanager
def simulated_zodb(threads: Threads) -> Iterator[None]:
    """Inside the block, locks and sets that ZODB creates belong to the world of ``threads``."""

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
