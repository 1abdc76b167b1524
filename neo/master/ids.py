"""Generators of tids and oids, PURE (specification, *tpc_begin*)."""

from __future__ import annotations

from collections.abc import Callable

from neo.protocol.ids import ZERO_OID, ZERO_TID, p64, tid_from_time, u64

#: At least so many tids are left out when others may have been given of which nobody here knows, and at
#: most twice as many: those of a minute by the clock, or of billions of transactions if that is behind.
UNKNOWN_TIDS = 2**32
#: No database has later tids: databases keep them in a signed column of 64 bits, and so many must be left
#: that others are given. They are of the year 5983.
GREATEST_TID = p64(2**63 - 2**40)
#: Oids are 8 bytes; the greatest is INVALID_OID.
_LAST_OID = 2**64 - 2


class TidGenerator:
    """One generator for ttids and final tids; whatever the clock does, each is greater than the last.

    ``time``: seconds since 1970. ``last``: no tid up to this one is given any more. ``given``: the last
    one that was given in the database as it is; what was given before a truncation does not count.
    """

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self.last = self.given = ZERO_TID

    def reset(self, last: bytes) -> None:
        """Continue after the greatest tid of the database. What was given before is not given again:
        a client may still ask what became of a ttid, and must not hear of another transaction."""
        self.last = max(self.last, last)
        self.given = last

    def seen(self, tid: bytes) -> None:
        """A tid was imposed from outside (IStorageRestoreable), or given by an earlier master."""
        self.last = max(self.last, tid)
        self.given = max(self.given, tid)

    def leave_out(self, count: int) -> None:
        """Give none of the next ``count`` tids."""
        self.last = p64(u64(self.last) + count)

    def ttid(self) -> bytes:
        """A temporary tid: the clock, or one more than the last."""
        self.last = self.given = max(tid_from_time(self._time()), p64(u64(self.last) + 1))
        return self.last

    def tid(self, ttid: bytes, partitions: int) -> bytes:
        """The final tid of ``ttid``: in the same partition, where its metadata is already stored."""
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
        """Continue after the greatest oid of the database. What was given before, and is not
        committed yet, is not given again: clients have it in objects that they will store."""
        self.last = max(self.last, last)

    def seen(self, oid: bytes) -> None:
        """A foreign oid was stored."""
        self.last = max(self.last, oid)

    def take(self, count: int) -> list[bytes]:
        """Raises OverflowError when there are not so many left."""
        first = u64(self.last) + 1
        if first + count - 1 > _LAST_OID:
            raise OverflowError("all oids are used")
        oids = [p64(number) for number in range(first, first + count)]
        self.last = oids[-1] if oids else self.last
        return oids
