"""A cache of object revisions, several per object, bounded in bytes.

Why the cache never returns stale data
--------------------------------------
A record is ``(oid, tid, next_tid, data)``: the object is ``data`` for every view in ``(tid,
next_tid]``, where a view is the ``before`` of loadBefore. ``next_tid`` None means that it is current.
A closed interval never changes. So only current records, and loads that may create one, can be
wrong. Their correctness follows from one order, the order of arrival on the master's connection:

1. ``last_tid`` is the last transaction whose invalidation took effect here. The one thread that leads
   on that connection applies invalidations one by one, in the order of their tids; the answer
   to the client's own tpc_finish is applied in the same order.
2. A view is at most ``last_tid + 1`` (the storage class bounds it). The master sends an invalidation
   only after all storage nodes have locked the transaction. So every transaction up to ``last_tid`` is
   readable on the storage nodes, or read-locked there, and a load waits for it.
3. So an answer without a next revision was complete for all transactions up to the ``last_tid`` at the
   beginning of the load. :meth:`load_begins` registers the load *before* it reads ``last_tid``. An
   invalidation that arrives before the answer is cached closes the record with its tid
   (:meth:`load_ends`).
4. The first invalidation of an object after its record was cached closes the record; by 3, it is the
   next revision.
5. A new connection to a master may have missed invalidations, and the database may have been truncated
   meanwhile, whatever its last tid is now. It removes everything, and the loads in flight leave no
   record (:meth:`clear`).
6. Records that an earlier process kept are added as the answers of one load are: invalidations since
   they began to be compared with the cluster remove them (:meth:`restoring`, :meth:`restore`).
   :mod:`neo.client.warm.validation` says why they are right up to then.

Replacement
-----------
S3-FIFO: new records enter a small queue; those that are used again there move to the main queue, a
clock of up to three chances. So objects that are read once, as in a full iteration, do not evict
objects in use. A hit sets a number and takes no lock. Recently evicted (oid, tid) are kept as *ghosts*,
without data; a record whose ghost is known enters the main queue directly.

Exceptions from outside
-----------------------
The handler of a signal may raise an exception in the middle of a change. Each change is marked as *torn*
from its first line to its last; the next change that finds the mark empties the cache first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from neo.protocol.ids import ZERO_TID
from neo.protocol.packets import AnswerCache

#: Memory of a record besides its data: measured, with its key and its entries in the queues.
OVERHEAD_BYTES = 450
#: Part of the capacity for records that were used once.
SMALL_PART = 0.1
#: An object that needs more than this part of the capacity is not cached.
LARGEST_PART = 0.25
MAX_CHANCES = 3
#: Revisions of one object; the oldest is evicted. Each lookup walks over them. Only views that are older
#: than this many commits of the object miss one.
REVISIONS_MAX = 16


class Loaded(NamedTuple):
    """A result of loadBefore."""

    data: bytes
    tid: bytes
    next_tid: bytes | None


class Record:
    __slots__ = ("chances", "data", "main", "next_tid", "oid", "size", "tid")

    def __init__(self, oid: bytes, tid: bytes, next_tid: bytes | None, data: bytes) -> None:
        self.oid = oid
        self.tid = tid
        self.next_tid = next_tid
        self.data: bytes | None = data  # None: the record was removed
        self.size = len(data) + OVERHEAD_BYTES
        self.chances = 0
        self.main = False


class Load:
    """A load in flight. ``next_tid``: the first invalidation of its object since it began."""

    __slots__ = ("keep", "next_tid")

    def __init__(self) -> None:
        self.next_tid: bytes | None = None
        self.keep = True


class Cache:
    """See the module's docstring. ``capacity``: bytes; 0 caches nothing. Thread-safe."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.size = 0
        self._lock = threading.Lock()
        self._records: dict[bytes, tuple[Record, ...]] = {}  # newest first
        self._loads: dict[bytes, list[Load]] = {}
        self._small: OrderedDict[Record, None] = OrderedDict()
        self._main: OrderedDict[Record, None] = OrderedDict()
        self._small_size = 0
        self._ghosts: OrderedDict[tuple[bytes, bytes], None] = OrderedDict()
        self._torn = False
        # Revisions that have a next one up to this tid may be gone (specification 16.39).
        self._packed = ZERO_TID
        #: How many records were added, and how often the cache was emptied.
        self.added = self.emptied = 0
        #: Loads that found a revision here, and loads that went to the cluster. Hits are counted without
        #: the lock, so threads that load at the same instant may lose some.
        self.hits = self.misses = 0
        # What was invalidated since restoring(); None if the cache is not being restored.
        self._since: set[bytes] | None = None

    def __len__(self) -> int:
        return sum(map(len, self._records.values()))

    def figures(self, name: str) -> AnswerCache:
        """Return the figures of this cache for monitoring. Any thread; it takes no lock, so the figures
        may be of different instants."""
        entries = len(self._small) + len(self._main)
        return AnswerCache(
            name, self.capacity, max(0, self.size), entries, self.hits, self.misses
        )

    # -- reading ---------------------------------------------------------------------------------

    def load_before(self, oid: bytes, before: bytes) -> Loaded | None:
        """Return the cached revision of a view. ``before`` is at most last_tid + 1."""
        # Tuples are replaced, never changed, so this needs no lock.
        for record in self._records.get(oid, ()):
            tid = record.tid
            if tid < before:
                next_tid = record.next_tid
                if next_tid is None or before <= next_tid:
                    data = record.data
                    if data is not None:
                        if record.chances < MAX_CHANCES:
                            record.chances += 1
                        self.hits += 1
                        return Loaded(data, tid, next_tid)
                return None
        return None

    def load_at(self, oid: bytes, tid: bytes) -> bytes | None:
        """Return the cached data of exactly this revision."""
        for record in self._records.get(oid, ()):
            if record.tid == tid:
                if record.chances < MAX_CHANCES:
                    record.chances += 1
                return record.data
        return None

    # -- loads in flight -------------------------------------------------------------------------

    def load_begins(self, oid: bytes, load: Load | None = None) -> Load:
        """Register a load. Call before ``last_tid`` is read to bound the view.

        load_ends() must follow, whatever exception comes; pass ``load`` if an exception could lose the
        result of this call.
        """
        load = load or Load()
        with self._lock:
            if self._torn:
                self._empty()
            self._torn = True
            self.misses += 1
            loads = self._loads.get(oid)
            if loads is None:
                self._loads[oid] = [load]
            else:
                loads.append(load)
            self._torn = False
        return load

    def load_ends(self, oid: bytes, load: Load, loaded: Loaded | None) -> Loaded | None:
        """Cache a loaded revision (None: nothing). Return it with its true next tid. Idempotent."""
        with self._lock:
            if self._torn:
                self._empty()
            self._torn = True
            loads = self._loads.get(oid)
            if loads == [load]:
                del self._loads[oid]
            elif loads is not None and load in loads:
                loads.remove(load)
            if loaded is not None:
                if loaded.next_tid is None and load.next_tid is not None and load.keep:
                    loaded = loaded._replace(next_tid=load.next_tid)
                if load.keep:
                    self._add(Record(oid, loaded.tid, loaded.next_tid, loaded.data))
            self._torn = False
        return loaded

    # -- changes: the thread that leads on the master's connection ---------------------------------

    def invalidate(self, tid: bytes, oids: Iterable[bytes]) -> None:
        """Close the current records of objects that a transaction changed. Idempotent."""
        with self._lock:
            self._change_begins()
            for oid in oids:
                self._close(oid, tid)
            self._torn = False

    def committed(self, tid: bytes, stored: dict[bytes, bytes | None]) -> None:
        """Apply a transaction of this client: oid → data, None if it is not to be cached."""
        with self._lock:
            self._change_begins()
            for oid, data in stored.items():
                self._close(oid, tid)
                if data is not None:
                    self._add(Record(oid, tid, None, data))
            self._torn = False

    def _change_begins(self) -> None:
        """Mark the cache as torn. Call with the lock."""
        if self._torn:
            self._empty()
        self._torn = True

    def _close(self, oid: bytes, tid: bytes) -> None:
        if self._since is not None:
            self._since.add(oid)
        for load in self._loads.get(oid, ()):
            if load.next_tid is None:
                load.next_tid = tid
        records = self._records.get(oid)
        # After a recovery the master may send the invalidation of a transaction again.
        if records is not None and records[0].next_tid is None and records[0].tid < tid:
            records[0].next_tid = tid

    def packed(self, tid: bytes) -> None:
        """Remove the revisions that a pack at ``tid`` removes, and keep none from now on. Idempotent."""
        with self._lock:
            self._change_begins()
            self._packed = max(self._packed, tid)
            for records in list(self._records.values()):
                for record in records:
                    if record.next_tid is not None and record.next_tid <= tid:
                        self._remove(record)
            self._torn = False

    def clear(self) -> None:
        """Remove everything: invalidations may have been missed, or the history may be another one."""
        with self._lock:
            self._torn = True
            self._empty()
            self._torn = False

    def _empty(self) -> None:
        for loads in self._loads.values():
            for load in loads:
                load.keep = False
        self._since = None
        self.emptied += 1
        self._loads = {}
        self._records = {}
        self._small, self._main, self._ghosts = OrderedDict(), OrderedDict(), OrderedDict()
        self.size = self._small_size = 0

    # -- records of an earlier process ---------------------------------------------------------------

    def restoring(self) -> None:
        """Note invalidations from now on, for restore(). Call before ``last_tid`` is read."""
        with self._lock:
            self._since = set()

    def restore(self, records: Iterable[Record]) -> int:
        """Add records that were right at the ``last_tid`` that was read after restoring(). Return how
        many were added."""
        with self._lock:
            self._change_begins()
            since, self._since = self._since, None
            added = self.added
            if since is not None:  # the cache was not emptied meanwhile
                for record in records:
                    if record.next_tid is not None or record.oid not in since:
                        self._add(record)
            self._torn = False
            return self.added - added

    def kept(self) -> tuple[int, list[Record]]:
        """Return ``emptied``, and all records; those that are evicted last come last."""
        with self._lock:
            return self.emptied, [*self._small, *self._main]

    # -- replacement: with the lock ----------------------------------------------------------------

    def _add(self, record: Record) -> None:
        if record.size > self.capacity * LARGEST_PART:
            return
        if record.next_tid is not None and record.next_tid <= self._packed:
            return
        records = self._records.get(record.oid, ())
        place = 0
        for known in records:
            if known.tid <= record.tid:
                if known.tid == record.tid:
                    return
                break
            place += 1
        if len(records) >= REVISIONS_MAX:
            if place == len(records):
                return
            self._remove(records[-1])
            records = records[:-1]
        self._records[record.oid] = (*records[:place], record, *records[place:])
        self.size += record.size
        self.added += 1
        if record.main or self._ghosts.pop((record.oid, record.tid), self) is None:
            record.main = True
            self._main[record] = None
        else:
            self._small[record] = None
            self._small_size += record.size
        while self.size > self.capacity:
            self._evict()

    def _evict(self) -> None:
        """Evict one record, or move one to its next queue."""
        if self._small and (self._small_size > self.capacity * SMALL_PART or not self._main):
            record, _ = self._small.popitem(last=False)
            self._small_size -= record.size
            if record.chances:
                record.chances = 0
                record.main = True
                self._main[record] = None
                return
            self._ghosts[record.oid, record.tid] = None
            # Bound: as many ghosts as cached objects.
            while len(self._ghosts) > len(self._records):
                self._ghosts.popitem(last=False)
        else:
            record, _ = self._main.popitem(last=False)
            if record.chances:
                record.chances -= 1
                self._main[record] = None
                return
        self._unlink(record)

    def _remove(self, record: Record) -> None:
        if record.main:
            del self._main[record]
        else:
            del self._small[record]
            self._small_size -= record.size
        self._unlink(record)

    def _unlink(self, record: Record) -> None:
        self.size -= record.size
        record.data = None
        rest = tuple(r for r in self._records[record.oid] if r is not record)
        if rest:
            self._records[record.oid] = rest
        else:
            del self._records[record.oid]
