"""The last transaction that took effect in this client, and everything that follows it.

Transactions take effect one by one, by the thread that leads on the master's connection, in the order
of arrival (:mod:`neo.client.cache` says why that matters). In each, the order is: storage cache, then
ZODB's connections, then ``last_tid``; so that whoever sees a tid there finds nothing older elsewhere.

A connection of ZODB that begins its transaction reads ``last_tid`` first and its invalidations
afterwards, and must get both from before or both from after:

* While a transaction takes effect, nobody is told ``last_tid``: a connection that was opened after the
  invalidations were distributed would never get them.
* The adapter takes the tid and the oids of an invalidation in one step, but invalidateCache() without
  a tid. So :meth:`_empty_caches` empties twice, with the new tid between: who read the old one before
  finds either the old tid and nothing newer, or the new tid and empty caches.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ZODB.interfaces import IStorage

from neo.client.cache import Cache
from neo.net.host import Host
from neo.protocol.ids import ZERO_TID, add64

logger = logging.getLogger("neo.client")


class Invalidations:
    def __init__(self, cache: Cache, host: Host) -> None:
        self.cache = cache
        self._host = host
        #: What registerDB() was given.
        self.db: Any = None
        #: The last transaction whose effects are complete.
        self.last_tid = ZERO_TID
        # The connection to a master that was joined last. What others still say is over: the new one told
        # the last transaction, and if theirs are newer, the database went back to before them.
        self._of: object = None
        self._taking_effect = False
        # Held while a transaction takes effect. Reentrant: a tpc_finish callback may load.
        self._lock = self._host.rlock()

    # -- reading: any thread ---------------------------------------------------------------------

    def last_transaction(self) -> bytes:
        """``last_tid`` for a transaction that begins."""
        if self._taking_effect:
            with self._lock:
                return self.last_tid
        return self.last_tid

    def view(self, before: bytes) -> bytes:
        """``before``, but at most the view of the last transaction. Waits for one that is just
        taking effect, so that nothing is seen before :attr:`last_tid` has it."""
        if before <= add64(self.last_tid, 1):
            return before
        with self._lock:
            return min(before, add64(self.last_tid, 1))

    # -- changes: the thread that leads on the master's connection -----------------------------------

    @contextmanager
    def _effect(self) -> Iterator[None]:
        with self._lock:
            self._taking_effect = True
            try:
                yield
            finally:
                self._taking_effect = False

    def _over(self, tid: bytes, of: object) -> bool:
        """Whether what ``of`` says of this transaction took effect, or never will."""
        return tid <= self.last_tid or (of is not None and of is not self._of)

    def invalidate(self, tid: bytes, oids: Sequence[bytes], of: object) -> None:
        """A transaction of another client. ``of``: who says so. As in committed(), it may have taken
        effect."""
        with self._effect():
            if self._over(tid, of):
                return
            self.cache.invalidate(tid, oids)
            db = self._adapter()
            if db is not None and not self._told(db.invalidate, tid, oids):
                # Something of the application failed: nothing stale must remain behind it.
                self._empty_caches(db, tid)
            self.last_tid = tid

    def committed(
        self,
        tid: bytes,
        stored: dict[bytes, bytes | None],
        callback: Callable[[bytes], object],
        of: object = None,
    ) -> None:
        """A transaction of this client: oid → data for the cache. ``callback``: of tpc_finish. ``of``:
        who says so; None if it was asked afterwards, of those that are here now.

        If the master was lost, another thread may have joined it again: then the transaction took effect
        with all up to there, and must not do so once more in the middle of later loads. Its callback
        brings the adapter back to its tid, so that a connection that begins just then could take the
        invalidations of newer ones with a view from before them: those must come once more."""
        with self._effect():
            if not self._over(tid, of):
                self.cache.committed(tid, stored)
            try:
                callback(tid)
            finally:
                # It may load, and so join the cluster again.
                if not self._over(tid, of):
                    self.last_tid = tid
                elif tid != self.last_tid:
                    self._empty_caches(self._adapter(), self.last_tid)

    def distribute(self, tid: bytes, oids: Sequence[bytes]) -> None:
        """In a tpc_finish callback: no connection of ZODB made this transaction, all must hear."""
        db = self._adapter()
        if db is not None:
            db.invalidate(tid, oids)

    def joined(self, tid: bytes, of: object) -> None:
        """``of``: a new connection to a master, whose last transaction is ``tid`` (*Joining a
        Cluster*)."""
        with self._effect():
            before, self._of = self._of, of
            if tid == self.last_tid and before is not None:
                return
            if tid < self.last_tid:
                self.cache.clear()  # the database was truncated
            else:
                self.cache.drop_current()
            if before is not None:
                self._empty_caches(self._adapter(), tid)
            self.last_tid = tid

    def _adapter(self) -> Any:
        """What distributes invalidations: behind wrappers, which only transform records.

        They cannot be trusted to hand invalidations on: some add an argument that is gone since
        ZODB 5. None if there is no database yet, or any more.
        """
        db = self.db
        while hasattr(db, "db"):
            db = db.db
        return None if db is None or IStorage.providedBy(db) else db

    def _told(self, method: Callable[..., object], *arguments: object) -> bool:
        """The thread serves everybody: it must survive what a database does."""
        try:
            method(*arguments)
        except Exception:
            logger.exception("%s() failed", method.__name__)
            return False
        return True

    def _empty_caches(self, db: Any, tid: bytes) -> None:
        """With the lock; see the module's docstring. ``db``: maybe None."""
        if db is not None:
            self._told(db.invalidateCache)
            self._told(db.invalidate, tid, ())
            self._told(db.invalidateCache)

    def close(self) -> None:
        """Nothing is told to the database any more: it may be half closed."""
        with self._lock:
            self.db = None

    def forked(self) -> None:
        """In the child of a fork: locks may be held by threads that are not here."""
        self._lock = self._host.rlock()
        self._taking_effect = False
        self.cache = Cache(self.cache.capacity)
