"""How it is seen that a node's jobs give way to clients."""

from __future__ import annotations

from collections.abc import Callable

from tests.unit.storage.world import World


def slow_clock(world: World, seconds: float) -> Callable[[], float]:
    """Each look takes so long."""

    def monotonic() -> float:
        world.host.now += seconds
        return world.host.now

    return monotonic


def in_pauses(world: World, work: Callable[[], object], left: Callable[[], int]) -> list[int]:
    """What is left of a job after each of three pauses, clients being at work all the time. Nothing is
    done as long as a pause lasts."""
    counts = []
    for _ in range(3):
        world.settle()
        counts.append(left())
        for _ in range(5):
            world.host.advance(0)
            world.settle()
        assert left() == counts[-1], "it does not pause"
        work()
        world.host.advance(0.05)
    return counts
