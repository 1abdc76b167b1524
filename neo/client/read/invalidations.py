"""Effects of committed transactions in this client: cache, ZODB's connections, last transaction.

The thread that leads on the master's connection applies transactions one by one, in the order of
arrival (:mod:`neo.client.read.cache` says why). Each is applied first to the storage cache, then to
ZODB's connections, then to ``last_tid``. So a thread that reads a tid there finds no older data.

A connection of ZODB that begins its transaction reads ``last_tid`` first and its invalidations
afterwards. Both must be from before a transaction, or both from after it:

* While a transaction is applied, threads wait for ``last_tid``: a connection that was opened after the
  invalidations were distributed would never get them.
* If the thread that applies a transaction is interrupted, for instance by the handler of a signal, the
  next thread that needs ``last_tid`` finishes the work first.
* The adapter takes the tid and the oids of an invalidation in one step, but invalidateCache() has no
  tid. So :meth:`_empty_caches` empties twice, with the new tid between. A thread that read the old tid
  then finds either the old tid and nothing newer, or the new tid and empty caches.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ZODB.interfaces import IStorage

from neo.client.read.cache import Cache
from neo.net.host import Lock, ThreadHost
from neo.protocol.ids import ZERO_TID, add64

logger = logging.getLogger("neo.client")


class _Effect(NamedTuple):
    """A transaction that is being applied. ``presence``: held by the thread that applies it."""

    tid: bytes
    oids: Sequence[bytes]
    of: object
    presence: Lock


class Invalidations:
    def __init__(self, cache: Cache, host: ThreadHost) -> None:
        self.cache = cache
        self._host = host
        #: Called with the tid of a pack, to forget contents of blobs.
        self.forget_contents: Callable[[bytes], object] = lambda tid: None
        #: The argument of registerDB().
        self.db: Any = None
        #: The last transaction whose effects are complete.
        self.last_tid = ZERO_TID
        #: That transaction with the oids that it changed; None if these are not known.
        self.last: tuple[bytes, Sequence[bytes]] | None = None
        # The last connection to a master. Messages of older ones are ignored: the new master told the
        # last transaction, and if theirs are newer, the database was truncated.
        self._of: object = None
        # The transaction that is being applied, or whose thread was interrupted while it was.
        self._effect: _Effect | None = None
        # Held while a transaction is applied. Reentrant, because a tpc_finish callback may load.
        self._lock = self._host.rlock()

    # -- reading: any thread ---------------------------------------------------------------------

    def last_transaction(self) -> bytes:
        """Return ``last_tid`` for a transaction that begins."""
        if self._effect is not None:
            with self._lock:
                self._mend()
                return self.last_tid
        return self.last_tid

    def view(self, before: bytes) -> bytes:
        """Return ``before``, but at most the view of the last transaction.

        Wait for a transaction that is being applied, so that no load sees it before :attr:`last_tid`.
        """
        if before <= add64(self.last_tid, 1):
            return before
        with self._lock:
            self._mend()
            return min(before, add64(self.last_tid, 1))

    # -- changes: the thread that leads on the master's connection -----------------------------------

    def _begins(self, tid: bytes, oids: Sequence[bytes], of: object) -> _Effect:
        """Return a transaction to apply. Call with the lock.

        Until ``_effect`` is None again, each thread that takes the lock finishes the transaction if the
        thread that holds its presence is gone.
        """
        return _Effect(tid, oids, of, self._host.presence())

    def _mend(self) -> None:
        """Finish a transaction whose thread was interrupted, as a transaction of another client.

        Call with the lock. Idempotent, because it may be interrupted, too.
        """
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
            last = self.last
        else:
            last = tid, effect.oids
            self.cache.invalidate(tid, effect.oids)
            if db is not None and not self._told(db.invalidate, tid, effect.oids):
                # Code of the application failed: remove all objects that may be stale.
                self._empty_caches(db, tid)
        self.last_tid = tid
        self.last = last
        self._effect = None

    def _over(self, tid: bytes, of: object) -> bool:
        """Return whether the transaction was applied, or comes from an old connection (``of``)."""
        return tid <= self.last_tid or (of is not None and of is not self._of)

    def invalidate(self, tid: bytes, oids: Sequence[bytes], of: object) -> None:
        """Apply a transaction of another client. ``of``: the connection to the master that announced it.
        As in committed(), it may have been applied before."""
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
        """Apply a transaction of this client. ``stored``: oid → data for the cache. ``callback``: of
        tpc_finish. ``of``: the connection to the master that answered; None after a lost answer.

        If the master was lost, another thread may have joined it again. Then the transaction was already
        applied with all others up to that moment, and must not be applied again among later loads. Its
        callback sets the adapter back to its tid. A connection that begins at that moment could take the
        invalidations of newer transactions with an older view, so those are distributed once more.

        If the callback fails, the transaction is applied as one of another client. The callback
        belongs to the application, so it is not called again.
        """
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
                # The callback may have loaded, and so joined the cluster again.
                self._effect = effect
                over = self._over(tid, of)
                if over and tid != self.last_tid:
                    self._empty_caches(self._adapter(), self.last_tid)
                # Nothing is called between these lines.
                if not over:
                    self.last_tid = tid
                    self.last = tid, effect.oids
                self._effect = None

    def packed(self, tid: bytes) -> None:
        """Forget what a pack removes, that any client asked for. Idempotent."""
        self.cache.packed(tid)
        self.forget_contents(tid)

    def distribute(self, tid: bytes, oids: Sequence[bytes]) -> None:
        """Invalidate objects in all connections of ZODB. Call in a tpc_finish callback, for a transaction
        that no connection of ZODB made."""
        db = self._adapter()
        if db is not None:
            db.invalidate(tid, oids)

    def joined(self, tid: bytes, of: object) -> None:
        """Switch to a new connection to a master, ``of``, whose last transaction is ``tid``
        (specification 16.2). After an exception from outside the client joins again."""
        with self._lock:
            self._mend()
            before, self._of = self._of, of
            if tid == self.last_tid and before is not None:
                return
            effect = self._begins(self.last_tid, (), None)
            with effect.presence:
                self._effect = effect
                self.cache.clear()
                if before is not None:
                    self._empty_caches(self._adapter(), tid)
                # Nothing is called between these lines.
                self.last = None
                self.last_tid = tid
                self._effect = None

    def learn(self, tid: bytes, oids: Sequence[bytes]) -> None:
        """Remember what a transaction changed, if it is the last one."""
        with self._lock:
            self._mend()
            if tid == self.last_tid:
                self.last = tid, oids

    def _adapter(self) -> Any:
        """Return ZODB's MVCC adapter, which distributes invalidations; None if there is no database.

        Skip wrapper storages, which transform records. Some of them add an argument to invalidate()
        that ZODB 5 does not have.
        """
        db = self.db
        while hasattr(db, "db"):
            db = db.db
        return None if db is None or IStorage.providedBy(db) else db

    def _told(self, method: Callable[..., object], *arguments: object) -> bool:
        """Call a method of the database. Return False after an exception: it must not end the thread."""
        try:
            method(*arguments)
        except Exception:
            logger.exception("%s() failed", method.__name__)
            return False
        return True

    def _empty_caches(self, db: Any, tid: bytes) -> None:
        """Empty the caches of ZODB's connections, see the module's docstring. Call with the lock.
        ``db``: may be None."""
        if db is not None:
            self._told(db.invalidateCache)
            self._told(db.invalidate, tid, ())
            self._told(db.invalidateCache)

    def close(self) -> None:
        """Stop telling the database, which may be half closed."""
        with self._lock:
            self.db = None

    def forked(self) -> None:
        """Replace locks, which threads of the parent may hold. Call in the child of a fork."""
        self._lock = self._host.rlock()
        self._effect = None
        self.cache = Cache(self.cache.capacity)
