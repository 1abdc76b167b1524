"""Throttle of log messages whose cause may last for days: a wrong address, a health check, a lost
server."""

from __future__ import annotations

from collections.abc import Callable

#: Interval at which a lasting cause is logged again.
REPEAT_SECONDS = 60.0
#: Bound of the causes in memory, each a short text.
CAUSES_MAX = 256


class LogThrottle:
    """Admits the first message of a cause, then at most one a minute. ``monotonic``: the host's clock."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        #: When a cause was last logged, and how often it was suppressed since. The least recent cause
        #: first.
        self._causes: dict[str, tuple[float, int]] = {}

    def admit(self, cause: str) -> str | None:
        """Return None to suppress the message, else a text to append: how many were suppressed."""
        now = self._monotonic()
        told, left_out = self._causes.get(cause, (now - REPEAT_SECONDS, 0))
        if now - told < REPEAT_SECONDS:
            self._causes[cause] = told, left_out + 1
            return None
        self._causes.pop(cause, None)
        if len(self._causes) >= CAUSES_MAX:
            del self._causes[next(iter(self._causes))]
        self._causes[cause] = now, 0
        return f" ({left_out} times more in the last {now - told:.0f} s)" if left_out else ""
