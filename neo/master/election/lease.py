"""The lease with which a primary master serves: two never do at once, whatever the network does.

The primary of an epoch asks the other masters for its lease, again and again. A master grants it if
that epoch is the newest in its log, on its disk; so once it has a newer one it never grants an older one
again. The primary may serve until ``LEASE_SECONDS`` after it *sent* the question that was answered by a
majority, itself included. A new primary serves when a majority granted its own epoch, and so many seconds
have passed since any of these granted an earlier one that a lease made with it is over. Any two
majorities have a master in common: that one granted the old lease not earlier than it was asked for.
A master that lost its log grants nothing until it has learned what it may have promised: by then its log
has every epoch that it ever granted.

Times are readings of one monotonic clock per machine, in seconds; only differences travel. Clocks may
run differently fast by ``DRIFT``. Pure: time is given.
"""

from __future__ import annotations

from typing import NamedTuple

#: Short enough for a failover of seconds, long enough for the pauses of a busy machine.
LEASE_SECONDS = 2.0
#: How often the primary asks: several questions may be lost before the lease is.
ASK_SECONDS = 0.4
#: The rates of two clocks differ by less than this.
DRIFT = 0.05
#: A lease is certainly over so long after it was granted, by the clock of who granted it.
OVER_SECONDS = LEASE_SECONDS * (1 + DRIFT)


class Grant(NamedTuple):
    #: When the question was sent, by the clock of the primary.
    sent: float
    #: When the last lease of an earlier epoch is over that this master may have granted, same clock.
    clear: float


class Lease:
    """Of the primary of one epoch, in its own process."""

    def __init__(self, me: str, epoch: int, now: float, doubt: bool, clear: float) -> None:
        """``doubt``: an earlier primary may still serve. ``clear``: when what this master itself granted
        is over."""
        self.epoch = epoch
        #: It was held once: every earlier lease is over.
        self.begun = False
        self._me = me
        self._doubt = doubt
        self._grants: dict[str, Grant] = {me: Grant(now, clear)}
        self._until = now
        self._members: tuple[str, ...] = ()

    def granted(self, master: str, sent: float, age: float, now: float) -> None:
        """``age``: seconds since ``master`` granted an earlier epoch."""
        grant = self._grants.get(master)
        if grant is None or sent > grant.sent:
            self._grants[master] = Grant(sent, now - age + OVER_SECONDS)

    def look(self, members: tuple[str, ...], now: float) -> None:
        """Compute how long it lasts. To be called now and then, and after each grant."""
        self._grants[self._me] = self._grants[self._me]._replace(sent=now)
        grants = sorted(
            (grant for master, grant in self._grants.items() if master in members), reverse=True
        )
        majority = len(members) // 2 + 1
        if len(grants) < majority or self._me not in members:
            return
        if not self.begun:
            # The first of the majority to be clear are enough: each earlier lease needed one of them.
            clear = sorted(grant.clear for grant in grants)[majority - 1]
            self.begun = not self._doubt or clear <= now
        self._until = max(self._until, grants[majority - 1].sent + LEASE_SECONDS)

    def left(self, now: float) -> float:
        """Seconds for which this master may serve; 0 or less: it must not."""
        return self._until - now if self.begun else 0.0


class Witness:
    """What a master grants to others; as primary, to itself."""

    def __init__(self, now: float, epoch: int) -> None:
        """``now``: of the start of the process. It does not know what it granted before."""
        self.epoch = epoch
        #: When an epoch before ``epoch`` was granted for the last time, or may have been.
        self.former = now
        self._last = now

    def decided(self, epoch: int, now: float) -> None:
        """``epoch`` is in the log, on the disk."""
        if epoch > self.epoch:
            self.epoch = epoch
            self.former = self._last

    def used(self, now: float) -> None:
        """The lease of ``epoch`` was granted, or used by this master itself."""
        self._last = now

    def grant(self, epoch: int, now: float) -> float | None:
        """Asked for ``epoch``: the age for the answer, None if there is none."""
        if epoch != self.epoch:
            return None
        self._last = now
        return max(0.0, now - self.former)
