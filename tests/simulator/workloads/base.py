"""Base of the workloads: a piece of application code and what must always be true of its data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, ClassVar

import transaction
from transaction.interfaces import TransientError
from ZODB.DB import DB
from ZODB.POSException import POSError

from tests.simulator.history import Read
from tests.simulator.recorded import Recorded
from tests.simulator.world import Violation

#: What an application meets when others write too, or when the cluster is away: it tries again.
EXPECTED = (POSError, TransientError)
#: How many transactions go on in a connection that stays open, and after how many the objects in the
#: connection's cache are compared with the tables.
HELD_CHANCE = 0.3
CACHE_CHECK_CHANCE = 0.2


class Context:
    """What a thread of a workload works with. ``db``: of its client process. ``storage``: of ``db``.

    ``open()`` gives another database in the same process. ``spawn(target)``: another thread there.
    """

    def __init__(
        self,
        db: DB,
        random: Random,
        log: Callable[[str], None],
        open: Callable[[], DB],
        spawn: Callable[[Callable[[], None]], object],
        sleep: Callable[[float], None],
    ) -> None:
        self.db = db
        self.random = random
        self.log = log
        self.open = open
        self.spawn = spawn
        self.sleep = sleep
        self.storage: Recorded = db.storage
        self._held: tuple[Any, Any] | None = None

    @contextmanager
    def connection(self) -> Iterator[tuple[Any, Any]]:
        """(connection, transaction manager); whatever is left open is aborted.

        It is one of the pool, or the thread's own one, which lives on from transaction to
        transaction.
        """
        held = self.random.random() < HELD_CHANCE
        if held and self._held is not None:
            connection, manager = self._held
            manager.begin()
        else:
            manager = transaction.TransactionManager()
            connection = self.db.open(manager)
            if held:
                self._held = connection, manager
        try:
            yield connection, manager
            if self.random.random() < CACHE_CHECK_CHANCE:
                self._record_cache(connection)
        except Violation as e:
            # A truncation took away the snapshot of a transaction that goes on.
            if self.storage.is_void(connection._storage._start):
                raise TransientError(str(e)) from None
            raise
        finally:
            manager.abort()
            if not held:
                connection.close()

    def _record_cache(self, connection: Any) -> None:
        """Objects that ZODB holds for current are reads, too: invalidations must have reached it."""
        start = connection._storage._start
        for oid, item in connection._cache.lru_items():
            if item._p_changed is False:
                self.storage.record(Read("", oid, start, item._p_serial))


def close(db: DB) -> None:
    """Close a database. ZODB alone fails if the open() of one of its connections was interrupted."""
    storage = db.storage
    try:
        db.close()
    except KeyError:
        storage.close()


class Workload:
    """One instance a run; its methods are called by several threads, one after the other.

    ``threads``: how many threads do :meth:`step`, over all client processes. ``rewindable``: a
    truncation may take away what steps did, and not what setup() did.
    """

    name: ClassVar[str]
    threads = 2
    rewindable: ClassVar[bool] = False

    def __init__(self, random: Random) -> None:
        self.random = random

    def setup(self, context: Context) -> None:
        """Create the data, in one transaction or several. Tried again until it succeeds."""

    def step(self, context: Context, thread: int) -> None:
        """One piece of work. May raise EXPECTED errors; raises Violation when something is wrong."""
        raise AssertionError("a workload without work")

    def writes(self, thread: int) -> bool:
        """Whether steps of this thread go on to commit, as long as nothing fails."""
        return True

    def check(self, context: Context) -> None:
        """At the end, when nothing fails any more. Raises Violation."""


class Tally:
    """Counts what was acknowledged, and what was tried with an outcome that nobody knows."""

    def __init__(self) -> None:
        self.certain = 0
        self.uncertain = 0

    @contextmanager
    def tried(self) -> Iterator[None]:
        """Around a commit: until it is acknowledged it may be there, whatever error comes."""
        self.uncertain += 1
        yield
        self.uncertain -= 1
        self.certain += 1

    @property
    def most(self) -> int:
        return self.certain + self.uncertain
