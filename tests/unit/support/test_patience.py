"""Waiting, on a clock of the test's own: nothing sleeps."""

from __future__ import annotations

import pytest

from tests.support.patience import Clock, Deadline, unit, wait_until


class Machine:
    """``standstills``: seconds of a standstill, by the number of the pause in which it happens."""

    def __init__(self, standstills: dict[int, float] | None = None) -> None:
        self.now = 1000.0
        self.pauses = 0
        self._standstills = standstills or {}

    def sleep(self, seconds: float) -> None:
        self.pauses += 1
        self.now += seconds + self._standstills.get(self.pauses, 0.0)

    def deadline(self, seconds: float, scale: float = 1.0) -> Deadline:
        return Deadline(seconds, Clock(lambda: self.now, self.sleep), scale)


def test_what_a_condition_returns_is_returned() -> None:
    machine = Machine()
    found = wait_until(lambda: machine.pauses * (machine.pauses > 2), "x", deadline=machine.deadline(5))
    assert (found, machine.pauses) == (3, 3)


def test_what_never_happens_is_named_when_the_time_is_over() -> None:
    machine = Machine()
    with pytest.raises(AssertionError, match="^the moon does not rise$"):
        wait_until(
            lambda: False, lambda: "the moon does not rise", poll=0.5, deadline=machine.deadline(5)
        )
    assert machine.now == 1005


def test_a_standstill_of_the_machine_is_not_counted() -> None:
    machine = Machine({2: 3600.0, 5: 20.0})
    wait_until(lambda: machine.pauses == 9, "it ends", poll=0.5, deadline=machine.deadline(7))
    with pytest.raises(AssertionError, match="it ends"):  # pauses that are a little late count
        machine = Machine(dict.fromkeys(range(100), 0.9))
        wait_until(lambda: machine.pauses == 9, "it ends", poll=0.5, deadline=machine.deadline(7))


def test_a_standstill_during_a_look_counts_little() -> None:
    machine = Machine()

    def look() -> bool:
        machine.now += 3600.0 * (machine.pauses == 2)
        return machine.pauses == 3

    wait_until(look, "it ends", deadline=machine.deadline(60))


def test_a_condition_that_blocks_each_time_ends_too() -> None:
    machine = Machine()

    def look() -> bool:
        machine.now += 5.0
        return False

    with pytest.raises(AssertionError):
        wait_until(look, "it blocks", deadline=machine.deadline(60))
    assert machine.pauses == 11


def test_an_excuse_is_told_and_another_error_is_raised_at_once() -> None:
    machine = Machine()
    with pytest.raises(AssertionError, match=r"it is away \(OSError: no route\)"):
        wait_until(refuse, "it is away", excuses=(OSError,), deadline=machine.deadline(1))
    pauses = machine.pauses
    with pytest.raises(OSError, match="no route"):
        wait_until(refuse, "it is away", deadline=machine.deadline(1))
    assert machine.pauses == pauses


def refuse() -> bool:
    raise OSError("no route")


def test_a_slow_machine_has_more_time() -> None:
    machine = Machine()
    slow, quick = machine.deadline(5, 3.0), machine.deadline(5)
    machine.now += 6
    assert quick.passed() and not slow.passed()
    machine.now += 9
    assert slow.passed()
    assert 1.0 <= unit() <= 4.0
