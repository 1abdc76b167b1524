"""Messages whose cause may stay for days: a wrong address, a health check, a server that is away."""

from __future__ import annotations

from collections.abc import Callable

#: A cause that stays is told again this often.
REPEAT_SECONDS = 60.0
#: Causes that are remembered, each by a short text: more at a time than a person would tell apart.
CAUSES_MAX = 256


class Noise:
    """Lets the first message of a cause through, then at most one a minute.

    ``monotonic``: the shell's clock.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        #: When a cause was told, and how often it was not since; the one told longest ago first.
        self._causes: dict[str, tuple[float, int]] = {}

    def admit(self, cause: str) -> str | None:
        """None if the message is to be left out; else what to add to it: how many were."""
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
