"""Whether a synchronous backup leaves again and again, PURE (specification 25.67).

Each time that such a backup comes into sync it looks sound, so that operators must be told of its losses.
"""

from __future__ import annotations

from collections import deque

#: A backup *flaps* that was lost so often within this time.
FLAP_LOSSES = 3
FLAP_SECONDS = 300.0


class Losses:
    """The last losses of one backup. Bound: those that fit into FLAP_SECONDS, since a join comes a second
    after a loss at the earliest (specification 25.18)."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=int(FLAP_SECONDS))
        self._reason = ""

    def add(self, now: float, reason: str) -> None:
        """Note a loss. ``now``: by a monotonic clock."""
        self._times.append(now)
        self._reason = reason

    def clear(self) -> None:
        self._times.clear()

    def since(self, now: float) -> float | None:
        """Return the seconds since the first of the losses that count; None if the backup does not
        flap."""
        while self._times and now - self._times[0] > FLAP_SECONDS:
            self._times.popleft()
        return now - self._times[0] if len(self._times) >= FLAP_LOSSES else None

    def text(self, now: float) -> str:
        """Return how often the backup left, and why it left last; empty if it does not flap."""
        seconds = self.since(now)
        if seconds is None:
            return ""
        count, reason = len(self._times), self._reason
        return f"it left {count} times in {seconds:.0f} seconds, the last time because: {reason}"
