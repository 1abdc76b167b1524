"""The scheduler of a simulated world: one queue of events, one random source, one virtual clock.

Theory of operation
-------------------
Everything that happens is an *event*: a callback at a virtual time. Events run one after the other, on
one thread at a time, in the order of their times, then of their creation. All choices (delays, faults,
the next thread) come from ``random``, which is seeded: the same seed gives the same run, event by
event. Every event adds to ``digest``, so that two runs can be compared. The last events are kept as
``story``, to be read when an oracle fails.

Rules: nothing in a simulated world reads the real clock, the real network, real randomness, object
addresses or the order of a set of objects that hash by address.
"""

from __future__ import annotations

import heapq
from array import array
from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from math import inf
from random import Random

#: Number of events in the story: enough to see the last few seconds of a cluster.
STORY_LENGTH = 4000
#: A run with more events than this counts as a livelock. A run has 23,000 events on average. The
#: longest run that was no livelock had 816,562, with a backup and large objects that were fetched one
#: by one: runs with a backup may have twice as many. Runs with several masters may have more, too,
#: because masters always exchange messages.
EVENTS_MAX = 500_000
#: Number of events that are added to the digest together.
DIGEST_BATCH = 4096


class Violation(AssertionError):
    """An oracle found a violated rule."""


class Event:
    """A callback in the future; also the timer that a core gets."""

    __slots__ = ("callback", "name")

    def __init__(self, callback: Callable[[], None], name: str) -> None:
        self.callback: Callable[[], None] | None = callback
        self.name = name

    def cancel(self) -> None:
        self.callback = None


class World:
    """A simulated world. ``now``: seconds since its beginning. ``epoch``: the time of its clocks then.

    ``slowness``: factor for time limits, because requests one by one take longer with slow links.
    ``slow_readers``: factor by which clients read many objects more slowly than usual; writers pause
    longer to leave them time.
    """

    epoch = 1_800_000_000.0

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.now = 0.0
        self.slowness = 1.0
        self.slow_readers = 1.0
        self.events = 0
        self.events_max = EVENTS_MAX
        self.story: deque[str] = deque(maxlen=STORY_LENGTH)
        self._digest = blake2b(digest_size=16)
        # Events that are not in the digest yet: to add each one by itself would take too long.
        self._names: list[str] = []
        self._times = array("d")
        self._queue: list[tuple[float, int, Event]] = []
        self._order = 0
        self._failure: BaseException | None = None

    # -- events ----------------------------------------------------------------------------------

    def call_later(self, delay: float, callback: Callable[[], None], name: str = "") -> Event:
        return self.call_at(self.now + delay, callback, name)

    def call_at(self, time: float, callback: Callable[[], None], name: str = "") -> Event:
        """Call back at ``time``, but not before now. Callbacks at one time run in the order of these
        calls. To convert a time to a delay would round it, which could change the order."""
        event = Event(callback, name)
        self._push(time, event)
        return event

    def again(self, delay: float, event: Event) -> None:
        """Schedule an event once more. It has a callback and is not scheduled now."""
        self._push(self.now + delay, event)

    def _push(self, time: float, event: Event) -> None:
        self._order += 1
        heapq.heappush(self._queue, (max(time, self.now), self._order, event))

    def fail(self, error: BaseException) -> None:
        """End the run with this error. May be called in any thread."""
        if self._failure is None:
            self._failure = error

    def step(self, end: float = inf) -> bool:
        """Run the next event. Return False if there is none until ``end``. Raise the error of the
        world."""
        queue = self._queue
        while queue and queue[0][0] <= end:
            time, _, event = heapq.heappop(queue)
            callback, event.callback = event.callback, None
            if callback is None:
                continue  # the event was cancelled
            self.now = time
            self.events += 1
            if self.events > self.events_max:
                raise Violation(f"livelock: {self.events_max} events and no end")
            self._names.append(event.name)
            self._times.append(time)
            if len(self._times) >= DIGEST_BATCH:
                self._add_to_digest()
            callback()
            if self._failure is not None:
                raise self._failure
            return True
        return False

    def run(self, seconds: float, events: float = inf) -> None:
        """Run for some virtual time, or until about so many events have run."""
        end = self.now + seconds
        events += self.events
        while self.events < events:
            if not self.step(end):
                self.now = end
                break

    def run_until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Run until the condition holds. Raise Violation if it does not within the virtual time.
        ``seconds`` is the limit of a world with usual links; ``slowness`` extends it."""
        seconds *= self.slowness
        end = self.now + seconds
        while not condition():
            if not self.step(end):
                raise Violation(f"not within {seconds:g} s of virtual time: {what}")

    # -- chance ----------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def delay(self, typical: float) -> float:
        """Return a duration around ``typical``, rarely ten times as long."""
        stretched = 10.0 if self.random.random() < 0.02 else 1.0
        return typical * stretched * (0.5 + self.random.random())

    # -- what happened ---------------------------------------------------------------------------

    def log(self, who: str, what: str) -> None:
        """Add a line to the story and the digest. It must not contain anything of the real world."""
        line = f"{self.now:10.4f} {who:<10} {what}"
        self._names.append(line)
        self.story.append(line)

    @property
    def digest(self) -> str:
        """Return the digest of all events and lines until now."""
        self._add_to_digest()
        return self._digest.hexdigest()

    def _add_to_digest(self) -> None:
        self._digest.update("\n".join(self._names).encode())
        self._digest.update(self._times.tobytes())
        self._names.clear()
        del self._times[:]
