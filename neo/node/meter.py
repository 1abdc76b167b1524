"""What a node measures while it serves: how long requests take, and which took too long.

PURE. A node whose settings ask for neither has no meter, and its peers measure nothing
(:mod:`neo.node.measured_peer`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from math import inf

from neo.protocol.packets import Message

#: Upper bounds of the buckets of a histogram, in seconds: from a read in memory to the longest waits for
#: a lock.
BOUNDS = 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0


class Histogram:
    """Durations. ``counts`` has a number for each of BOUNDS, and one for all that is longer."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count a duration. One thread at a time calls this."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds


class Meter:
    """The durations of all messages that a node took, by their type. It outlives the cores of the node.

    ``clock``: seconds that never jump. ``slow``: seconds from which a request is logged, None for never.
    """

    def __init__(self, clock: Callable[[], float], slow: float | None = None) -> None:
        self.clock = clock
        self.slow = inf if slow is None else slow
        #: Bound: one for each message of the protocol.
        self.durations: dict[type[Message], Histogram] = {}

    def took(self, kind: type[Message], seconds: float) -> None:
        """Count a message that was answered, or a notification that was taken."""
        histogram = self.durations.get(kind)
        if histogram is None:
            histogram = self.durations[kind] = Histogram()
        histogram.observe(seconds)
