"""Revisions of objects in memory, several per object, bounded in bytes.

Why it never gives stale data
-----------------------------
A record is ``(oid, tid, next_tid, data)``: the object is ``data`` for every view in ``(tid,
next_tid]``, where a view is the ``before`` of loadBefore; ``next_tid`` None says that it is current.
A finished interval never changes. So only current records, and the loads that may make one, can be
wrong, and all follows from one order, the order of arrival on the master's connection:

1. ``last_tid`` is the last transaction whose invalidation took effect here. Invalidations take effect
   one by one, in the order of the tids, by the one thread that leads on that connection; the answer
   to our own tpc_finish takes its place among them.
2. A view is at most ``last_tid + 1`` (the storage class bounds it). Every transaction up to
   ``last_tid`` is readable on the storage nodes or read-locked there, hence a load waits for it:
   the master sends invalidations only after all nodes have locked the transaction.
3. So an answer without next revision was complete for all transactions up to the ``last_tid`` of the
   moment when the load began. Later ones announce themselves: :meth:`load_begins` registers the
   load *before* it reads ``last_tid``, and an invalidation that arrives before the answer is put into
   the cache closes the record with the first such tid (:meth:`load_ends`).
4. A current record is closed by the first invalidation of its object after it was put in, which is
   by 3 the next revision.
5. After a new connection to a master, invalidations may be missing: all current records go, and the
   loads under way leave none (:meth:`drop_current`). If the database went back in time, everything
   goes (:meth:`clear`).

Replacement
-----------
S3-FIFO: new records pass a small queue; those that were used there at least once more reach the
main one, a clock of up to three chances. Objects that are read once, as a full iteration does, do not
drive out those in use. A hit sets a number and takes no lock. Recently evicted (oid, tid) are
remembered as *ghosts*, without data: seen again, they go straight to the main queue.

Exceptions from outside
-----------------------
The handler of a signal may raise an exception in the middle of a change. The change is marked as *torn*
from its first line to its last, and who comes next and finds the mark begins with an empty cache.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

#: What a record costs besides its data: measured, with its key and places in the queues.
OVERHEAD_BYTES = 450
#: Part of the capacity for records that were used once.
SMALL_PART = 0.1
#: An object that would take more of the cache than this part is not kept.
LARGEST_PART = 0.25
MAX_CHANCES = 3
#: Revisions of one object; the oldest goes. Each look at an object is a walk over them, and only views
#: as old as that many commits of it miss one.
REVISIONS_MAX = 16


class Loaded(NamedTuple):
    """What loadBefore returns."""

    data: bytes
    tid: bytes
    next_tid: bytes | None


class Record:
    __slots__ = ("chances", "data", "main", "next_tid", "oid", "size", "tid")

    def __init__(self, oid: bytes, tid: bytes, next_tid: bytes | None, data: bytes) -> None:
        self.oid = oid
        self.tid = tid
        self.next_tid = next_tid
        self.data: bytes | None = data  # None: it was removed
        self.size = len(data) + OVERHEAD_BYTES
        self.chances = 0
        self.main = False


class Load:
    """A load under way. ``next_tid``: the first invalidation of its object since it began."""

    __slots__ = ("keep", "next_tid")

    def __init__(self) -> None:
        self.next_tid: bytes | None = None
        self.keep = True


class Cache:
    """See the module's docstring. ``capacity``: bytes; 0 keeps nothing. Any thread."""

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

    def __len__(self) -> int:
        return sum(map(len, self._records.values()))

    # -- reading ---------------------------------------------------------------------------------

    def load_before(self, oid: bytes, before: bytes) -> Loaded | None:
        """The revision of this view, if it is here. ``before`` is at most last_tid + 1."""
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
                        return Loaded(data, tid, next_tid)
                return None
        return None

    def load_at(self, oid: bytes, tid: bytes) -> bytes | None:
        """The data of exactly this revision, if it is here."""
        for record in self._records.get(oid, ()):
            if record.tid == tid:
                if record.chances < MAX_CHANCES:
                    record.chances += 1
                return record.data
        return None

    # -- loads under way -------------------------------------------------------------------------

    def load_begins(self, oid: bytes, load: Load | None = None) -> Load:
        """To call before ``last_tid`` is read to bound the view. load_ends() must follow, whatever
        exception comes: a caller that cannot be sure to get the result gives ``load``."""
        load = load or Load()
        with self._lock:
            if self._torn:
                self._empty()
            self._torn = True
            loads = self._loads.get(oid)
            if loads is None:
                self._loads[oid] = [load]
            else:
                loads.append(load)
            self._torn = False
        return load

    def load_ends(self, oid: bytes, load: Load, loaded: Loaded | None) -> Loaded | None:
        """Keep what was loaded (None: nothing). Returns it with its true next tid. Idempotent."""
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
                if loaded.next_tid is not None or load.keep:
                    self._add(Record(oid, loaded.tid, loaded.next_tid, loaded.data))
            self._torn = False
        return loaded

    # -- changes: the thread that leads on the master's connection ---------------------------------

    def invalidate(self, tid: bytes, oids: Iterable[bytes]) -> None:
        """A transaction was committed. Idempotent."""
        with self._lock:
            self._change_begins()
            for oid in oids:
                self._close(oid, tid)
            self._torn = False

    def committed(self, tid: bytes, stored: dict[bytes, bytes | None]) -> None:
        """Our own transaction was committed: oid → data, None if it is not to be kept."""
        with self._lock:
            self._change_begins()
            for oid, data in stored.items():
                self._close(oid, tid)
                if data is not None:
                    self._add(Record(oid, tid, None, data))
            self._torn = False

    def _change_begins(self) -> None:
        """With the lock."""
        if self._torn:
            self._empty()
        self._torn = True

    def _close(self, oid: bytes, tid: bytes) -> None:
        for load in self._loads.get(oid, ()):
            if load.next_tid is None:
                load.next_tid = tid
        records = self._records.get(oid)
        # After a recovery the same transaction may be announced twice.
        if records is not None and records[0].next_tid is None and records[0].tid < tid:
            records[0].next_tid = tid

    def drop_current(self) -> None:
        """Invalidations may be missing: forget what was current."""
        with self._lock:
            self._change_begins()
            self._spoil_loads()
            for records in list(self._records.values()):
                if records[0].next_tid is None:
                    self._remove(records[0])
            self._torn = False

    def clear(self) -> None:
        with self._lock:
            self._torn = True
            self._empty()
            self._torn = False

    def _empty(self) -> None:
        self._spoil_loads()
        self._loads = {}
        self._records = {}
        self._small, self._main, self._ghosts = OrderedDict(), OrderedDict(), OrderedDict()
        self.size = self._small_size = 0

    def _spoil_loads(self) -> None:
        for loads in self._loads.values():
            for load in loads:
                load.keep = False

    # -- replacement: with the lock ----------------------------------------------------------------

    def _add(self, record: Record) -> None:
        if record.size > self.capacity * LARGEST_PART:
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
        if self._ghosts.pop((record.oid, record.tid), self) is None:
            record.main = True
            self._main[record] = None
        else:
            self._small[record] = None
            self._small_size += record.size
        while self.size > self.capacity:
            self._evict()

    def _evict(self) -> None:
        """Free one record, or move one on."""
        if self._small and (self._small_size > self.capacity * SMALL_PART or not self._main):
            record, _ = self._small.popitem(last=False)
            self._small_size -= record.size
            if record.chances:
                record.chances = 0
                record.main = True
                self._main[record] = None
                return
            self._ghosts[record.oid, record.tid] = None
            # As many ghosts as records that are still here.
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
