"""Base of the workloads: a piece of application code and the invariants of its data."""

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

#: Errors because of other writers, or because the cluster is away: the application tries again.
EXPECTED = (POSError, TransientError)
#: Part of the transactions that use a connection that stays open, and part of these after which the
#: objects in the connection's cache are compared with the tables.
HELD_CHANCE = 0.3
CACHE_CHECK_CHANCE = 0.2


class Context:
    """The environment of a thread of a workload.

    ``db`` and ``storage``: those of its client process. ``open()`` opens another database in the same
    process; ``spawn(target)`` starts another thread there. ``new_file(data)``: the path of a file with
    this content, which a storage may take away.
    """

    def __init__(
        self,
        db: DB,
        random: Random,
        log: Callable[[str], None],
        open: Callable[[], DB],
        spawn: Callable[[Callable[[], None]], object],
        sleep: Callable[[float], None],
        new_file: Callable[[bytes], str],
    ) -> None:
        self.db = db
        self.random = random
        self.log = log
        self.open = open
        self.spawn = spawn
        self.sleep = sleep
        self.new_file = new_file
        self.storage: Recorded = db.storage
        self._held: tuple[Any, Any] | None = None

    @contextmanager
    def connection(self) -> Iterator[tuple[Any, Any]]:
        """Yield a connection and its transaction manager; abort what is left open. The connection is
        one of the pool, or the thread's own, which it keeps from transaction to transaction."""
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
            # A truncation deleted the snapshot of a transaction that goes on.
            if self.storage.is_void(connection._storage._start):
                raise TransientError(str(e)) from None
            raise
        finally:
            manager.abort()
            if not held:
                connection.close()

    def _record_cache(self, connection: Any) -> None:
        """Record objects that ZODB regards as current as reads: invalidations must have reached it."""
        start = connection._storage._start
        for oid, item in connection._cache.lru_items():
            if item._p_changed is False:
                self.storage.record(Read("", oid, start, item._p_serial))


def close(db: DB) -> None:
    """Close a database. ZODB's own close() fails if the open() of a connection was interrupted."""
    storage = db.storage
    try:
        db.close()
    except KeyError:
        storage.close()


class Workload:
    """A workload, with one instance per run. Several threads call its methods, one at a time.

    ``threads``: the number of threads that call :meth:`step`, over all client processes.
    ``rewindable``: a truncation may delete what steps did, but not what setup() did.
    """

    name: ClassVar[str]
    threads = 2
    rewindable: ClassVar[bool] = False

    def __init__(self, random: Random) -> None:
        self.random = random

    def setup(self, context: Context) -> None:
        """Create the data, in one transaction or several. Called again until it succeeds."""

    def step(self, context: Context, thread: int) -> None:
        """Do one piece of work. May raise EXPECTED errors; raise Violation for wrong data."""
        raise AssertionError("a workload without work")

    def writes(self, thread: int) -> bool:
        """Return whether steps of this thread commit, as long as nothing fails."""
        return True

    def check(self, context: Context) -> None:
        """Check the data at the end, when nothing fails any more. Raise Violation."""


class Tally:
    """Counts acknowledged commits, and attempts with an unknown outcome."""

    def __init__(self) -> None:
        self.certain = 0
        self.uncertain = 0

    @contextmanager
    def tried(self) -> Iterator[None]:
        """Surround a commit: until it is acknowledged, it may be committed whatever error is raised."""
        self.uncertain += 1
        yield
        self.uncertain -= 1
        self.certain += 1

    @property
    def most(self) -> int:
        return self.certain + self.uncertain
