"""Timeouts and intervals of a node."""

from __future__ import annotations

from typing import NamedTuple


class Timing(NamedTuple):
    """In ticks of the owner; the defaults are for ticks of 25 ms."""

    #: Interval of resending.
    resend: int = 8
    #: Interval of requests for missing data.
    fetch: int = 40
    #: Interval of the heartbeat: a status to each peer.
    heartbeat: int = 10
    #: A peer that was silent for longer is suspected.
    silence: int = 60
    #: Timeout of round 0, even if its coordinator is alive.
    patience: int = 80
    #: Time for which the origin of the last transaction waits for posts of other nodes.
    courtesy: int = 4

    def patience_with(self, round_: int) -> int:
        """Return the timeout of a round. It grows, up to elevenfold, until some round is long enough."""
        return self.patience * (1 + min(round_, 10))
