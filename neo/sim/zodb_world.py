"""ZODB inside a simulated world: its locks park, and its sets are ordered.

ZODB holds locks while it calls the storage, which may park. Another simulated thread must then park
on that lock as well, not block the one real thread that runs. So ZODB gets its locks from here:
simulated ones in a simulated thread, real ones elsewhere. It also tells its connections of
invalidations in the order of a set that hashes by address, which no seed decides.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ZODB.mvccadapter
import ZODB.utils

from neo.sim.threads import SimLock, Threads


class OrderedSet(dict[Any, None]):
    """What ZODB does with its set of connections, in the order in which they were opened."""

    def add(self, item: Any) -> None:
        self[item] = None

    def remove(self, item: Any) -> None:
        del self[item]


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
    ]
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
    for owner, name, value in replaced:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)
