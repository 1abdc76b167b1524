"""record_iternext(): iteration over all current records, with read-ahead into the cache."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Protocol

from ZODB.POSException import POSKeyError
from ZODB.utils import maxtid

from neo.client.replicas import WINDOW

#: Read-ahead takes at most one part in this many of the cache, so that the application's objects stay.
CACHE_PART = 8


class _Storage(Protocol):
    def loadBefore(self, oid: bytes, tid: bytes) -> tuple[bytes, bytes, bytes | None] | None: ...

    def prefetch(self, oids: Iterable[bytes], tid: bytes) -> None: ...


class Walk:
    """An iteration over ``oids``, by one thread at a time. ``cache_size``: bytes.

    An object that changes after it was read ahead is read again, because the cache is invalidated.
    """

    def __init__(self, storage: _Storage, oids: Iterator[bytes], cache_size: int) -> None:
        self._storage = storage
        self._oids = oids
        self._room = cache_size // CACHE_PART
        self._ahead: deque[bytes] = deque()
        self._count = 1  # objects of the last portion; grows slowly, since sizes are not known
        self._largest = 1

    def next(self) -> bytes | None:
        """Return the oid of the next record; None at the end."""
        if not self._ahead:
            self._count = max(1, min(2 * self._count, WINDOW, self._room // self._largest))
            self._ahead.extend(islice(self._oids, self._count))
            if len(self._ahead) > 1:
                self._storage.prefetch(self._ahead, maxtid)
        return self._ahead[0] if self._ahead else None

    def take(self) -> tuple[bytes, bytes, bytes] | None:
        """Return the next record as (oid, serial, data); None at the end."""
        while self.next() is not None:
            oid = self._ahead.popleft()
            try:
                found = self._storage.loadBefore(oid, maxtid)
            except POSKeyError:
                continue  # deleted since its oid was listed
            if found is not None:
                self._largest = max(self._largest * 99 // 100, len(found[0]), 1)
                return oid, found[1], found[0]
        return None
