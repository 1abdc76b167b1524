"""The scheduler of a simulated world: one queue of events, one random source, one virtual clock.

Theory of operation
-------------------
Everything that happens is an *event*: a callback at a virtual time. Events run one after the other,
on one thread at a time, in the order of their times, then of their creation. All choices (delays,
faults, who runs next) come from ``random``, which is seeded: the same seed gives the same run, event
by event. Every event adds to ``digest``, so that two runs can be compared; the last of them are kept
as ``story``, to be read when an oracle complains.

Rules: nothing in a simulated world looks at the real clock, the real network, real randomness, object
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

#: Events that the story remembers: enough to see the last few seconds of a cluster.
STORY_LENGTH = 4000
#: A run that needs more events than this is a livelock. On average a run needs 23,000; the longest that
#: was none had 816,562 with a backup, which is allowed twice as many: large objects, fetched one by one.
#: Several masters are never silent, and are allowed more, too.
EVENTS_MAX = 500_000
#: Events that are added to the digest together.
DIGEST_BATCH = 4096


class Violation(AssertionError):
    """An oracle found that something is not as it must be."""


class Event:
    """A callback to come; also the timer that a core gets."""

    __slots__ = ("callback", "name")

    def __init__(self, callback: Callable[[], None], name: str) -> None:
        self.callback: Callable[[], None] | None = callback
        self.name = name

    def cancel(self) -> None:
        self.callback = None


class World:
    """``now``: seconds since the world began. ``epoch``: what the clocks of its nodes show then.

    ``slowness``: how many times longer everything may take than in a world with usual links. What is
    asked for one by one ends later there; that it ends is what matters. ``slow_readers``: how many times
    slower clients read many objects than usual; who writes leaves them the time.
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
        # What is not in the digest yet: to add event by event would take longer than the events.
        self._names: list[str] = []
        self._times = array("d")
        self._queue: list[tuple[float, int, Event]] = []
        self._order = 0
        self._failure: BaseException | None = None

    # -- events ----------------------------------------------------------------------------------

    def call_later(self, delay: float, callback: Callable[[], None], name: str = "") -> Event:
        return self.call_at(self.now + delay, callback, name)

    def call_at(self, time: float, callback: Callable[[], None], name: str = "") -> Event:
        """Not before now. What is called at one time is called in the order of these calls: a delay
        that is computed from that time would be rounded, and could lead to another one."""
        event = Event(callback, name)
        self._push(time, event)
        return event

    def again(self, delay: float, event: Event) -> None:
        """The event happens once more; it has a callback, and is not waited for now."""
        self._push(self.now + delay, event)

    def _push(self, time: float, event: Event) -> None:
        self._order += 1
        heapq.heappush(self._queue, (max(time, self.now), self._order, event))

    def fail(self, error: BaseException) -> None:
        """End the run with this error, from whatever thread runs now."""
        if self._failure is None:
            self._failure = error

    def step(self, end: float = inf) -> bool:
        """Run the next event. False if there is none until ``end``. Raises what the world failed
        with."""
        queue = self._queue
        while queue and queue[0][0] <= end:
            time, _, event = heapq.heappop(queue)
            callback, event.callback = event.callback, None
            if callback is None:
                continue  # it was cancelled
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
        """Let virtual time pass, but not many more events than that."""
        end = self.now + seconds
        events += self.events
        while self.events < events:
            if not self.step(end):
                self.now = end
                break

    def run_until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Until the condition holds. Raises Violation when it does not within the virtual time, which is
        that of a world with usual links."""
        seconds *= self.slowness
        end = self.now + seconds
        while not condition():
            if not self.step(end):
                raise Violation(f"not within {seconds:g} s of virtual time: {what}")

    # -- chance ----------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def delay(self, typical: float) -> float:
        """A duration around ``typical``, seldom ten times as long."""
        stretched = 10.0 if self.random.random() < 0.02 else 1.0
        return typical * stretched * (0.5 + self.random.random())

    # -- what happened ---------------------------------------------------------------------------

    def log(self, who: str, what: str) -> None:
        """A line of the story. Part of the digest: it must not contain anything of the real world."""
        line = f"{self.now:10.4f} {who:<10} {what}"
        self._names.append(line)
        self.story.append(line)

    @property
    def digest(self) -> str:
        """Of all events and lines until now."""
        self._add_to_digest()
        return self._digest.hexdigest()

    def _add_to_digest(self) -> None:
        self._digest.update("\n".join(self._names).encode())
        self._digest.update(self._times.tobytes())
        self._names.clear()
        del self._times[:]
