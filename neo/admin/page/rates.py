"""How many transactions are committed per second, from samples of a counter. Pure."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from neo.admin.facts import Data

#: Seconds between two samples: short enough to see that commits stop, and one message costs nothing.
SAMPLE_SECONDS = 5.0
#: Samples that are kept: ten minutes, which is what a page draws.
SAMPLES_MAX = 120


class _Rate(NamedTuple):
    """``at``: end of its interval, seconds of a monotonic clock. ``per_second``: None if it is not known,
    because the master changed or did not answer."""

    at: float
    per_second: float | None


class CommitRates:
    """``at`` is always the seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._rates: deque[_Rate] = deque(maxlen=SAMPLES_MAX)
        #: When the counter was read last, since when it counts, and its value.
        self._last: tuple[float, float, int] | None = None

    def add(self, at: float, since: float, count: int) -> None:
        """Add a sample. ``since``: names the counter; another one begins anew."""
        last, self._last = self._last, (at, since, count)
        if last is None or last[1] != since or at <= last[0]:
            return
        self._rates.append(_Rate(at, (count - last[2]) / (at - last[0])))

    def miss(self, at: float) -> None:
        """Note that nothing was told."""
        self._last = None
        self._rates.append(_Rate(at, None))

    def data(self, at: float) -> Data:
        """Return ``per_second`` of the last interval, null if it is not known; ``total`` and ``since``:
        the counter of the primary master, null if it is not known; ``history``: ``[age, per_second]`` of
        each interval, the oldest first, ages in seconds."""
        rate = self._rates[-1].per_second if self._rates and self._last is not None else None
        return {
            "per_second": rate,
            "total": None if self._last is None else self._last[2],
            "since": None if self._last is None else self._last[1],
            "history": [[round(at - each.at, 1), each.per_second] for each in self._rates],
        }
