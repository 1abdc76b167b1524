"""What stays wrong for days is told at once, and then once a minute with its count."""

from __future__ import annotations

from neo.node.log_throttle import CAUSES_MAX, REPEAT_SECONDS, LogThrottle


class Clock:
    now = 5.0

    def __call__(self) -> float:
        return self.now


def test_the_first_is_told_and_the_others_are_counted() -> None:
    clock = Clock()
    throttle = LogThrottle(clock)
    told = []
    for second in range(181):
        clock.now = 5.0 + second
        if (more := throttle.admit("no route")) is not None:
            told.append((second, more))
    again = " (59 times more in the last 60 s)"
    assert told == [(0, ""), (60, again), (120, again), (180, again)]


def test_causes_are_told_apart() -> None:
    throttle = LogThrottle(Clock())
    assert [throttle.admit(cause) for cause in "abab"] == ["", "", None, None]


def test_what_came_only_once_is_not_counted() -> None:
    clock = Clock()
    throttle = LogThrottle(clock)
    assert throttle.admit("a") == ""
    clock.now += 10 * REPEAT_SECONDS
    assert throttle.admit("a") == ""


def test_the_oldest_cause_is_forgotten_first() -> None:
    throttle = LogThrottle(Clock())
    for number in range(CAUSES_MAX + 1):
        throttle.admit(str(number))
    assert throttle.admit("1") is None
    assert throttle.admit("0") == ""
