"""The lease of a primary master: two masters never serve at once, whatever the network does.

The primary of an epoch asks the other masters for its lease at short intervals. A master grants it if
that epoch is the newest in its log, on its disk; so after a newer one it never grants an older one
again. The primary may serve until ``LEASE_SECONDS`` after it *sent* the request that a majority
granted, itself included. A new primary serves when a majority has granted its epoch, and every lease of
an earlier epoch is over that a member of this majority can have granted. Any two majorities have a
master in common; that one granted the old lease not earlier than the request was sent. A master that
lost its log grants nothing until it has learned what it may have promised; by then its log has every
epoch that it ever granted.

Times are readings of one monotonic clock per machine, in seconds; only differences travel. The rates of
two clocks may differ by ``DRIFT``. Pure: time is an argument.
"""

from __future__ import annotations

from typing import NamedTuple

#: Short enough for a failover within seconds, long enough for the pauses of a busy machine.
LEASE_SECONDS = 2.0
#: Interval of requests: several may be lost before the lease is.
ASK_SECONDS = 0.4
#: Upper bound of the relative difference between the rates of two clocks.
DRIFT = 0.05
#: A lease is over this long after it was granted, by the clock of the master that granted it.
OVER_SECONDS = LEASE_SECONDS * (1 + DRIFT)


class Grant(NamedTuple):
    #: When the request was sent, by the clock of the primary.
    sent: float
    #: When all leases of earlier epochs are over that this master may have granted, by that clock.
    clear: float


class Lease:
    """The lease of the primary of one epoch, in its own process."""

    def __init__(self, me: str, epoch: int, now: float, doubt: bool, clear: float) -> None:
        """``doubt``: an earlier primary may still serve. ``clear``: when all leases are over that this
        master itself granted."""
        self.epoch = epoch
        #: The lease was held once: every earlier lease is over.
        self.begun = False
        self._me = me
        self._doubt = doubt
        self._grants: dict[str, Grant] = {me: Grant(now, clear)}
        self._until = now
        self._members: tuple[str, ...] = ()

    def granted(self, master: str, sent: float, age: float, now: float) -> None:
        """Note a grant. ``age``: seconds since ``master`` granted an earlier epoch."""
        grant = self._grants.get(master)
        if grant is None or sent > grant.sent:
            self._grants[master] = Grant(sent, now - age + OVER_SECONDS)

    def refresh(self, members: tuple[str, ...], now: float) -> None:
        """Extend the lease as far as the grants permit. Call it now and then, and after each grant."""
        self._grants[self._me] = self._grants[self._me]._replace(sent=now)
        grants = sorted(
            (grant for master, grant in self._grants.items() if master in members), reverse=True
        )
        majority = len(members) // 2 + 1
        if len(grants) < majority or self._me not in members:
            return
        if not self.begun:
            # A majority that is clear is enough, because each earlier lease needed one of its members.
            clear = sorted(grant.clear for grant in grants)[majority - 1]
            self.begun = not self._doubt or clear <= now
        self._until = max(self._until, grants[majority - 1].sent + LEASE_SECONDS)

    def left(self, now: float) -> float:
        """Return the seconds for which this master may serve; 0 or less: it must not serve."""
        return self._until - now if self.begun else 0.0


class LeaseGrantor:
    """Grants leases to other masters; as primary, to itself."""

    def __init__(self, now: float, epoch: int) -> None:
        """``now``: the start of the process, which does not know the grants of its predecessor."""
        self.epoch = epoch
        #: The last time at which an epoch before ``epoch`` was granted, or may have been.
        self.former = now
        self._last = now

    def decided(self, epoch: int, now: float) -> None:
        """Note that ``epoch`` is in the log, durably."""
        if epoch > self.epoch:
            self.epoch = epoch
            self.former = self._last

    def used(self, now: float) -> None:
        """Note that the lease of ``epoch`` was granted, or used by this master itself."""
        self._last = now

    def grant(self, epoch: int, now: float) -> float | None:
        """Grant ``epoch`` if it is the newest. Return the age for the answer, or None."""
        if epoch != self.epoch:
            return None
        self._last = now
        return max(0.0, now - self.former)
