"""The monotonic clock of a simulated machine: starts anywhere, and runs a little too fast or too slow."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from tests.simulator.world import Event, World

if TYPE_CHECKING:
    from tests.simulator.process import Process

#: The rates of any two clocks then differ by less than :data:`neo.master.election.lease.DRIFT`.
SKEW_MAX = 0.024
#: By how much wall clocks of a cluster are off at most: none, as NTP leaves them, or wrong.
OFF_SECONDS = (0.0, 0.05, 5.0, 7200.0)
#: What a clock shows when its machine starts.
START_SECONDS_MAX = 100_000.0


class Clock:
    def __init__(self, world: World, random: Random) -> None:
        self._world = world
        self._random = random
        self.rate = 1.0
        #: What it showed at a time of the world.
        self._shown = 0.0
        self._at = world.now

    def boot(self) -> None:
        """The machine starts."""
        self._at = self._world.now
        self._shown = self._random.uniform(0, START_SECONDS_MAX)

    def turn(self) -> None:
        """It runs differently fast from now on."""
        self._shown, self._at = self.read(), self._world.now
        self.rate = 1 + self._random.uniform(-SKEW_MAX, SKEW_MAX)

    def read(self) -> float:
        return self._shown + (self._world.now - self._at) * self.rate

    def call_later(self, delay: float, callback: Callable[[], None], name: str) -> Event:
        """When this clock is so many seconds further, whatever its rate is until then."""
        due = self.read() + delay
        event = self._world.call_later(delay / self.rate, lambda: None, name)

        def ring() -> None:
            left = due - self.read()
            if left > 1e-6:
                # It has become slower meanwhile.
                event.callback = ring
                self._world.again(left / self.rate, event)
            else:
                callback()

        event.callback = ring
        return event


class Clocks:
    """Gives each machine of a world a clock. Random numbers of their own: a seed's other choices are
    what they would be if all clocks were right."""

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
        """Masters that elect their primary have one already, whose rate is a fault of its own."""
        process.clock_skew = self._random.uniform(-self._off, self._off)
        if process.clock is None:
            process.clock = self.make()
