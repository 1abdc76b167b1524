"""Generators of tids and oids, PURE (specification 15.6, 15.7)."""

from __future__ import annotations

from collections.abc import Callable

from neo.protocol.ids import ZERO_OID, ZERO_TID, p64, tid_from_time, u64

#: Least number of tids to skip when a master may have allocated tids that are unknown here; at most
#: twice as many are skipped. That is a minute by the clock, or billions of transactions if the clock is
#: behind.
UNKNOWN_TIDS = 2**32
#: Bounds of the tids to skip when the clock is behind and a crash may have taken a vote: more than are
#: given in a second, and so many that none meets the lost one by chance; at most 4 seconds by the clock.
LOST_TIDS = 2**20, 2**28
#: Greatest tid of a database, in the year 5983. Databases keep tids in a signed column of 64 bits; the
#: rest is left for tids to come.
GREATEST_TID = p64(2**63 - 2**40)
#: Oids have 8 bytes; the greatest one is INVALID_OID.
_LAST_OID = 2**64 - 2


class TidGenerator:
    """Allocate ttids and final tids. Each is greater than the last, also if the clock goes back.

    ``time``: seconds since 1970. ``last``: no tid up to this one is allocated any more. ``given``: the
    last tid that was allocated in the database as it is, without those before a truncation.
    """

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self.last = self.given = ZERO_TID

    def reset(self, last: bytes) -> None:
        """Continue after the greatest tid of the database. Earlier tids are not allocated again,
        because a client may still ask for the outcome of a ttid and must not get that of another
        transaction."""
        self.last = max(self.last, last)
        self.given = last

    def seen(self, tid: bytes) -> None:
        """Skip a tid that a client imposed (IStorageRestoreable) or an earlier master allocated."""
        self.last = max(self.last, tid)
        self.given = max(self.given, tid)

    def leave_out(self, count: int) -> None:
        """Skip the next ``count`` tids."""
        self.last = p64(u64(self.last) + count)

    def ttid(self) -> bytes:
        """Return a temporary tid: the time, or one more than the last tid."""
        self.last = self.given = max(tid_from_time(self._time()), p64(u64(self.last) + 1))
        return self.last

    def tid(self, ttid: bytes, partitions: int) -> bytes:
        """Return the final tid of ``ttid``, in the same partition, where the metadata is stored
        already."""
        minimum = u64(self.last)
        tid = max(u64(tid_from_time(self._time())), minimum + 1)
        tid += u64(ttid) % partitions - tid % partitions
        if tid <= minimum:
            tid += partitions
        self.last = self.given = p64(tid)
        return self.last


class OidGenerator:
    def __init__(self) -> None:
        self.last = ZERO_OID

    def reset(self, last: bytes) -> None:
        """Continue after the greatest oid of the database. Oids that were allocated and are not committed
        are not allocated again, because clients have them in objects that they will store."""
        self.last = max(self.last, last)

    def seen(self, oid: bytes) -> None:
        """Skip an oid that was not allocated here and was stored."""
        self.last = max(self.last, oid)

    def take(self, count: int) -> list[bytes]:
        """Allocate ``count`` oids. Raise OverflowError if fewer are left."""
        first = u64(self.last) + 1
        if first + count - 1 > _LAST_OID:
            raise OverflowError("all oids are used")
        oids = [p64(number) for number in range(first, first + count)]
        self.last = oids[-1] if oids else self.last
        return oids
