"""The scheduler: events in order, virtual time, failures."""

from __future__ import annotations

from typing import NoReturn

import pytest

from tests.simulator import world as world_module
from tests.simulator.world import Violation, World


def test_events_run_in_the_order_of_their_times_then_of_their_creation() -> None:
    world, seen = World(0), list[str]()
    for delay, name in ((2.0, "late"), (1.0, "first"), (1.0, "second"), (0.0, "now")):
        world.call_later(delay, lambda name=name: seen.append(name))
    world.run(5.0)
    assert seen == ["now", "first", "second", "late"]
    assert world.now == 5.0


def test_time_stops_at_the_end_of_a_run_and_later_events_wait() -> None:
    world, seen = World(0), list[float]()
    world.call_later(1.5, lambda: seen.append(world.now))
    world.run(1.0)
    assert (world.now, seen) == (1.0, [])
    world.run(1.0)
    assert (world.now, seen) == (2.0, [1.5])


def test_a_cancelled_event_does_not_run_nor_let_later_ones_run_early() -> None:
    world, seen = World(0), list[str]()
    world.call_later(0.5, lambda: seen.append("cancelled")).cancel()
    world.call_later(3.0, lambda: seen.append("later"))
    world.run(1.0)
    assert (world.now, seen) == (1.0, [])
    with pytest.raises(Violation, match="not within 1 s of virtual time: it happens"):
        world.run_until(lambda: bool(seen), 1.0, "it happens")
    world.run_until(lambda: bool(seen), 2.5, "it happens")
    assert (world.now, seen) == (3.0, ["later"])


def test_time_never_goes_back() -> None:
    world, times = World(0), list[float]()

    def again() -> None:
        times.append(world.now)
        if len(times) < 200:
            world.call_later(world.random.choice([-1.0, 0.0, 0.3]), again)

    world.call_later(0.0, again)
    world.run(1000.0)
    assert len(times) == 200 and times == sorted(times)


def test_an_error_given_to_fail_ends_the_run() -> None:
    world = World(0)
    world.call_later(0.1, lambda: world.fail(Violation("the first")))
    world.call_later(0.2, lambda: world.fail(Violation("the second")))
    with pytest.raises(Violation, match="the first"):
        world.run(1.0)


def test_a_livelock_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_module, "EVENTS_MAX", 100)
    world = World(0)

    def again() -> None:
        world.call_later(0.0, again)

    again()
    with pytest.raises(Violation, match="livelock"):
        world.run(1.0)


def test_the_seed_decides_every_choice() -> None:
    def choices(seed: int) -> list[tuple[bool, float]]:
        world = World(seed)
        return [(world.chance(0.5), world.delay(1.0)) for _ in range(20)]

    assert choices(1) == choices(1) != choices(2)
    assert all(0.5 <= delay <= 15.0 for _, delay in choices(3))


def test_the_story_keeps_the_last_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(0)
    for number in range(world_module.STORY_LENGTH + 5):
        world.log("node", f"line {number}")
    assert len(world.story) == world_module.STORY_LENGTH
    assert world.story[0].endswith("line 5")


def test_an_error_of_an_event_reaches_whoever_runs_the_world() -> None:
    def broken() -> NoReturn:
        raise ZeroDivisionError("broken")

    world = World(0)
    world.call_later(0.0, broken)
    with pytest.raises(ZeroDivisionError):
        world.run(1.0)
