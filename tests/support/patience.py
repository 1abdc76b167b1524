"""Wait for what real processes, threads and sockets do.

A test says what it waits for. Its limit ends a test that would wait for ever, and is no measure of speed:
it is longer on a slow machine, and does not count the time in which the machine stood still.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import NamedTuple, TypeVar

Result = TypeVar("Result")

#: Limit of a wait, of a process that a test starts, of a thread and of a socket, if nothing else is said:
#: far more than any of them takes.
PATIENCE_SECONDS = 120.0
#: Interval between two looks at a condition.
POLL_SECONDS = 0.02
#: Lateness of a pause that a busy machine may have. What is later, the machine stood still.
LATE_SECONDS = 1.0
#: Most that one look at a condition counts. An admin node that does not answer is given up by then.
LOOK_SECONDS = 10.0
#: Duration of the computation on a machine that does nothing else.
REFERENCE_SECONDS = 0.005
#: A machine that stands still during the measurement is not slower than that.
UNIT_MAX = 4.0


class Clock(NamedTuple):
    """The clock of the machine, or of a test."""

    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep


MACHINE = Clock()


@cache
def unit() -> float:
    """Return how many times slower this machine is than the one of the reference, at least 1."""

    def measure() -> float:
        begin = time.perf_counter()
        sum(number * number for number in range(100_000))
        return time.perf_counter() - begin

    return min(max(min(measure() for _ in range(3)) / REFERENCE_SECONDS, 1.0), UNIT_MAX)


class Deadline:
    """The end of a wait, so many seconds of a quick machine from now, not counting its standstills."""

    def __init__(
        self, seconds: float = PATIENCE_SECONDS, clock: Clock = MACHINE, scale: float | None = None
    ) -> None:
        self._clock = clock
        self._left = seconds * (unit() if scale is None else scale)
        self._counted = clock.monotonic()

    def passed(self) -> bool:
        """Count the time since the last look or pause. Return whether none is left."""
        self._count(LOOK_SECONDS)
        return self._left <= 0

    def pause(self, seconds: float = POLL_SECONDS) -> None:
        """Sleep between two looks."""
        self._count(LOOK_SECONDS)
        self._clock.sleep(seconds)
        self._count(seconds + LATE_SECONDS)

    def _count(self, most: float) -> None:
        now = self._clock.monotonic()
        self._left -= min(now - self._counted, most)
        self._counted = now


def wait_until(
    condition: Callable[[], Result | None],
    what: str | Callable[[], str],
    seconds: float = PATIENCE_SECONDS,
    *,
    excuses: tuple[type[Exception], ...] = (),
    poll: float = POLL_SECONDS,
    deadline: Deadline | None = None,
) -> Result:
    """Wait until a condition holds. Return what it returned. Raise AssertionError with ``what`` does not
    happen when the time is over. A condition that raises one of ``excuses`` is asked again."""
    deadline = deadline or Deadline(seconds)
    while True:
        excuse = ""
        try:
            if result := condition():
                return result
        except excuses as e:
            excuse = f" ({type(e).__name__}: {e})"
        if deadline.passed():
            raise AssertionError(f"{what if isinstance(what, str) else what()}{excuse}")
        deadline.pause(poll)
