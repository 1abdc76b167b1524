"""The thread in which all nodes of an embedded database run.

A core is never called by a thread of the application: an exception from outside (a signal's handler,
another thread) may come between any two instructions of such a thread, and would leave a core in the
middle of an event. No other code knows this thread, so that no such exception comes here.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from neo.node.local import Deliveries

#: An event: a function and its only argument. Both are made before :meth:`Loop.put` is called.
Event = tuple[Callable[[Any], object], Any]

#: Unlike CLOCK_MONOTONIC, it continues while the machine is suspended, as in the process of a node.
monotonic = partial(time.clock_gettime, time.CLOCK_BOOTTIME)


class LoopTimer:
    """A callback that is due at a time."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Loop:
    """Runs events in the order of their arrival, and timers, in a thread of its own.

    ``failed`` is called there with an unexpected error of an event: the state of the nodes is unknown
    then. ``after``: called after each event.
    """

    def __init__(
        self, failed: Callable[[Exception], None], after: Callable[[], None], name: str
    ) -> None:
        events: SimpleQueue[Event] = SimpleQueue()
        #: Have an event run. Any thread may call it. It is a function of C: the event is queued when it
        #: returns, and not if it raises.
        self.put = events.put
        self._get = events.get
        self._failed = failed
        self._after = after
        self._timers: list[tuple[float, int, LoopTimer]] = []
        self._numbers = itertools.count()
        self._stopped = False
        #: Messages between two nodes. The loop looks at them after each event.
        self.deliveries = Deliveries(wake=lambda: None)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def call_later(self, delay: float, callback: Callable[[], None]) -> LoopTimer:
        """Start a timer. Call in the loop's thread."""
        timer = LoopTimer(callback)
        heapq.heappush(self._timers, (monotonic() + delay, next(self._numbers), timer))
        return timer

    def stop(self) -> None:
        """End the thread after this event. Call in the loop's thread."""
        self._stopped = True

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped:
            try:
                self._step()
                self._after()
            except Exception as e:  # noqa: BLE001  # reported: it is a bug
                self._failed(e)

    def _step(self) -> None:
        """Run what is due, or the next event, for which it waits."""
        deliveries, timeout = self.deliveries, None
        if deliveries.waiting:
            deliveries.run()
        if self._timers:
            timeout = self._run_timers()
        try:
            function, argument = self._get(not deliveries.waiting, timeout)
        except Empty:
            return
        function(argument)

    def _run_timers(self) -> float | None:
        """Run the timers that are due. Return the seconds until the next one."""
        timers, now = self._timers, monotonic()
        while timers and timers[0][0] <= now:
            timer = heapq.heappop(timers)[2]
            callback = timer.callback
            if callback is not None:
                callback()
        while timers and timers[0][2].callback is None:
            heapq.heappop(timers)
        if not timers:
            return None
        return max(0.0, timers[0][0] - monotonic())
