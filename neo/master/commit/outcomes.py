"""Outcomes of prepared transactions, which are remembered for coordinators that ask again, PURE
(specification 24.10, 24.15)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

#: Bounds of the outcomes that are remembered. A coordinator that has noted an outcome orders to forget
#: it, so that few remain; 30 days are enough to repair a coordinator by hand.
OUTCOMES_MAX = 100_000
OUTCOME_SECONDS = 30 * 86400.0
#: Bound of the outcomes that are purged when a new one is added: after a long pause the master does not
#: send a message for each old outcome at once.
PURGED_MAX = 100


class Outcome(NamedTuple):
    """``tid``: None if the transaction was rolled back. ``time``: when, in seconds since 1970."""

    ttid: bytes
    tid: bytes | None
    time: float

    def __str__(self) -> str:
        return "rolled back" if self.tid is None else f"committed as 0x{self.tid.hex()}"


class Outcomes:
    """Outcomes by xid, the oldest first."""

    def __init__(self) -> None:
        self._by_xid: dict[bytes, Outcome] = {}

    def get(self, xid: bytes) -> Outcome | None:
        return self._by_xid.get(xid)

    def add(self, xid: bytes, outcome: Outcome) -> None:
        self._by_xid[xid] = outcome

    def forget(self, xid: bytes) -> None:
        self._by_xid.pop(xid, None)

    def known(self, ttid: bytes) -> bool:
        """Return whether the outcome of this transaction is remembered. Slow: for rare cases."""
        return any(outcome.ttid == ttid for outcome in self._by_xid.values())

    def newest(self, length: int) -> Iterator[tuple[bytes, Outcome]]:
        """Yield up to ``length`` outcomes, the newest first."""
        return islice(reversed(self._by_xid.items()), length)

    def stale(self, now: float) -> list[bytes]:
        """Return xids to purge, the oldest first."""
        excess = len(self._by_xid) - OUTCOMES_MAX
        return [
            xid
            for position, (xid, outcome) in enumerate(islice(self._by_xid.items(), PURGED_MAX))
            if position < excess or outcome.time < now - OUTCOME_SECONDS
        ]

    def clear(self) -> None:
        self._by_xid.clear()
