"""The monotonic clock of a simulated machine: starts at any value, runs a little too fast or too
slow."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from tests.simulator.world import Event, World

if TYPE_CHECKING:
    from tests.simulator.process import Process

#: The rates of any two clocks then differ by less than :data:`neo.master.election.lease.DRIFT`.
SKEW_MAX = 0.024
#: Greatest errors of the wall clocks of a cluster: none, as NTP leaves them, or wrong.
OFF_SECONDS = (0.0, 0.05, 5.0, 7200.0)
#: Greatest value of a clock when its machine starts.
START_SECONDS_MAX = 100_000.0
#: Resolution of timers: a timer may ring this much before its time, because floats are rounded. Shorter
#: delays are extended to this one, because the sum of a time of the world and a much smaller delay is
#: the same time: a core that waits again for the rest would do so for ever, and the world would stop.
RESOLUTION_SECONDS = 1e-6


class Clock:
    def __init__(self, world: World, random: Random) -> None:
        self._world = world
        self._random = random
        self.rate = 1.0
        #: The value of the clock at a time of the world.
        self._shown = 0.0
        self._at = world.now

    def boot(self) -> None:
        """Start the machine: the clock begins at a new value."""
        self._at = self._world.now
        self._shown = self._random.uniform(0, START_SECONDS_MAX)

    def turn(self) -> None:
        """Change the rate of the clock from now on."""
        self._shown, self._at = self.read(), self._world.now
        self.rate = 1 + self._random.uniform(-SKEW_MAX, SKEW_MAX)

    def read(self) -> float:
        return self._shown + (self._world.now - self._at) * self.rate

    def call_later(self, delay: float, callback: Callable[[], None], name: str) -> Event:
        """Call back when this clock has advanced by ``delay``, whatever its rate is until then."""
        if 0 < delay < RESOLUTION_SECONDS:
            delay = RESOLUTION_SECONDS
        due = self.read() + delay
        event = self._world.call_later(delay / self.rate, lambda: None, name)

        def ring() -> None:
            left = due - self.read()
            if left > RESOLUTION_SECONDS:
                # The clock has become slower meanwhile.
                event.callback = ring
                self._world.again(left / self.rate, event)
            else:
                callback()

        event.callback = ring
        return event


class Clocks:
    """Give each machine of a world a clock. The random numbers are separate, so that the other choices
    of a seed are the same as with right clocks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = Random(f"clocks {world.seed}")
        self._off = self._random.choice(OFF_SECONDS)

    def make(self) -> Clock:
        clock = Clock(self._world, self._random)
        clock.boot()
        clock.turn()
        return clock

    def give(self, process: Process) -> None:
        """Give the process a clock, unless it has one: several masters have clocks with faults of their
        own."""
        process.clock_skew = self._random.uniform(-self._off, self._off)
        if process.clock is None:
            process.clock = self.make()
