"""The last transaction that took effect in this client, and everything that follows it.

Transactions take effect one by one, by the thread that leads on the master's connection, in the order
of arrival (:mod:`neo.client.cache` says why that matters). In each, the order is: storage cache, then
ZODB's connections, then ``last_tid``; so that whoever sees a tid there finds nothing older elsewhere.

A connection of ZODB that begins its transaction reads ``last_tid`` first and its invalidations
afterwards, and must get both from before or both from after:

* While a transaction takes effect, nobody is told ``last_tid``: a connection that was opened after the
  invalidations were distributed would never get them.
* A transaction whose thread was interrupted while it took effect, by a signal's handler for instance, is
  finished by the next thread that comes, before that is told ``last_tid``.
* The adapter takes the tid and the oids of an invalidation in one step, but invalidateCache() without
  a tid. So :meth:`_empty_caches` empties twice, with the new tid between: who read the old one before
  finds either the old tid and nothing newer, or the new tid and empty caches.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ZODB.interfaces import IStorage

from neo.client.cache import Cache
from neo.net.host import Host, Lock
from neo.protocol.ids import ZERO_TID, add64

logger = logging.getLogger("neo.client")


class _Effect(NamedTuple):
    """A transaction that is taking effect. ``presence``: taken by the thread that is at it."""

    tid: bytes
    oids: Sequence[bytes]
    of: object
    presence: Lock


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
        # What takes effect now, or an exception from outside interrupted.
        self._effect: _Effect | None = None
        # Held while a transaction takes effect. Reentrant: a tpc_finish callback may load.
        self._lock = self._host.rlock()

    # -- reading: any thread ---------------------------------------------------------------------

    def last_transaction(self) -> bytes:
        """``last_tid`` for a transaction that begins."""
        if self._effect is not None:
            with self._lock:
                self._mend()
                return self.last_tid
        return self.last_tid

    def view(self, before: bytes) -> bytes:
        """``before``, but at most the view of the last transaction. Waits for one that is just
        taking effect, so that nothing is seen before :attr:`last_tid` has it."""
        if before <= add64(self.last_tid, 1):
            return before
        with self._lock:
            self._mend()
            return min(before, add64(self.last_tid, 1))

    # -- changes: the thread that leads on the master's connection -----------------------------------

    def _begins(self, tid: bytes, oids: Sequence[bytes], of: object) -> _Effect:
        """With the lock. Until ``_effect`` is None again, whoever takes the lock finishes what is left of
        this one when its thread, which holds its presence, is gone."""
        return _Effect(tid, oids, of, self._host.presence())

    def _mend(self) -> None:
        """With the lock: finish what an exception from outside interrupted, for all connections of ZODB
        as if it was of another client. Idempotent, so that it can be interrupted, too."""
        effect = self._effect
        if effect is not None and not effect.presence.locked():
            with effect.presence:
                self._apply(effect)

    def _apply(self, effect: _Effect) -> None:
        tid = effect.tid
        db = self._adapter()
        if self._over(tid, effect.of):
            if tid != self.last_tid:
                self._empty_caches(db, self.last_tid)
            # Nothing is called between these lines and the end.
            tid = self.last_tid
        else:
            self.cache.invalidate(tid, effect.oids)
            if db is not None and not self._told(db.invalidate, tid, effect.oids):
                # Something of the application failed: nothing stale must remain behind it.
                self._empty_caches(db, tid)
        self.last_tid = tid
        self._effect = None

    def _over(self, tid: bytes, of: object) -> bool:
        """Whether what ``of`` says of this transaction took effect, or never will."""
        return tid <= self.last_tid or (of is not None and of is not self._of)

    def invalidate(self, tid: bytes, oids: Sequence[bytes], of: object) -> None:
        """A transaction of another client. ``of``: who says so. As in committed(), it may have taken
        effect."""
        with self._lock:
            self._mend()
            if self._over(tid, of):
                return
            effect = self._begins(tid, oids, of)
            with effect.presence:
                self._effect = effect
                self._apply(effect)

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
        invalidations of newer ones with a view from before them: those must come once more.

        If the callback does not come to its end, the transaction is for all connections of ZODB one of
        another client: the callback is not begun again, since it is the application's."""
        with self._lock:
            self._mend()
            effect = self._begins(tid, list(stored), of)
            with effect.presence:
                self._effect = effect
                if not self._over(tid, of):
                    self.cache.committed(tid, stored)
                try:
                    callback(tid)
                except BaseException:
                    self._effect = effect
                    self._apply(effect)
                    raise
                # It may load, and so join the cluster again.
                self._effect = effect
                over = self._over(tid, of)
                if over and tid != self.last_tid:
                    self._empty_caches(self._adapter(), self.last_tid)
                # Nothing is called between these lines.
                if not over:
                    self.last_tid = tid
                self._effect = None

    def distribute(self, tid: bytes, oids: Sequence[bytes]) -> None:
        """In a tpc_finish callback: no connection of ZODB made this transaction, all must hear."""
        db = self._adapter()
        if db is not None:
            db.invalidate(tid, oids)

    def joined(self, tid: bytes, of: object) -> None:
        """``of``: a new connection to a master, whose last transaction is ``tid`` (*Joining a
        Cluster*). After an exception from outside the client joins again."""
        with self._lock:
            self._mend()
            before, self._of = self._of, of
            if tid == self.last_tid and before is not None:
                return
            effect = self._begins(self.last_tid, (), None)
            with effect.presence:
                self._effect = effect
                if tid < self.last_tid:
                    self.cache.clear()  # the database was truncated
                else:
                    self.cache.drop_current()
                if before is not None:
                    self._empty_caches(self._adapter(), tid)
                # Nothing is called between these lines.
                self.last_tid = tid
                self._effect = None

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
        self._effect = None
        self.cache = Cache(self.cache.capacity)
