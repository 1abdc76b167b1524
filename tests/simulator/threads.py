"""Threads of simulated clients: greenlets that run one at a time, scheduled by the world.

A thread *parks* wherever a real one would block: on a lock, on a stream, asleep. The scheduler then
executes other events, one of which resumes the thread. So blocking code runs unchanged, and its
interleavings come from the seed. At locks and streams a thread is also parked at random for a moment
(*preempted*), though nothing forces it to wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import TracebackType

from greenlet import getcurrent, greenlet

from tests.simulator.world import World

#: Times for which a preempted thread waits: shorter or longer than the latency of the network.
PREEMPT_SECONDS = (0.00002, 0.002)
#: Typical time until a scheduled thread runs.
SWITCH_SECONDS = 0.00001


class Killed(BaseException):
    """Raised in a thread whose process was killed. Nothing in a dead process has an effect any more."""


class Interrupted(BaseException):
    """An exception from outside, such as KeyboardInterrupt, in a thread of an application."""


class Threads:
    """All threads of a world. ``preemption``: probability of a preemption at each lock and stream."""

    def __init__(self, world: World, preemption: float = 0.02) -> None:
        self.world = world
        self.preemption = preemption
        self.current: SimThread | None = None


class SimThread:
    """A simulated thread. ``dead()`` returns whether the process of this thread was killed.
    ``hold(thread)`` returns whether the process is stopped; it then resumes the thread later."""

    def __init__(
        self,
        threads: Threads,
        name: str,
        target: Callable[[], None],
        dead: Callable[[], bool],
        hold: Callable[[SimThread], bool] = lambda thread: False,
    ) -> None:
        self.threads = threads
        self.name = name
        self.finished = False
        self._target = target
        self._dead = dead
        self._hold = hold
        #: Whether the process was killed, so that the thread only unwinds.
        self._killed = False
        #: Exceptions from outside to come: the number of points from one to the next.
        self.interrupts: list[int] = []
        self._greenlet = greenlet(self._run)
        self._scheduler: greenlet | None = None
        self._parked = True
        self.wake()

    # -- in the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            if not self._dead():
                self._target()
        except Killed:
            pass  # as intended
        except BaseException as e:  # noqa: BLE001  # raised again where the world is run
            self.threads.world.fail(e)
        finally:
            self.finished = True

    def park(self) -> None:
        """Give control to the scheduler, and wait for :meth:`resume`. Raise Killed."""
        self._check()
        self._parked = True
        assert self._scheduler is not None
        self._scheduler.switch()
        # Events kill processes, while all threads are parked.
        self._killed = self._dead()
        self._check()

    def _check(self) -> None:
        if self._killed:
            raise Killed

    def point(self) -> None:
        """Raise Interrupted if an exception from outside is to come at this point."""
        interrupts = self.interrupts
        if interrupts and not self._killed:
            interrupts[0] -= 1
            if interrupts[0] < 0:
                del interrupts[0]
                self.threads.world.log(self.name, "is interrupted")
                raise Interrupted

    def preempt(self) -> None:
        """Let other threads run, at random."""
        if self._killed:
            raise Killed
        threads = self.threads
        if threads.preemption and threads.world.chance(threads.preemption):
            world = threads.world
            self.sleep(world.delay(world.random.choice(PREEMPT_SECONDS)))

    def sleep(self, seconds: float, points: bool = False) -> None:
        """Sleep. ``points``: exceptions from outside may end the sleep."""
        world = self.threads.world
        woken = False

        def wake() -> None:
            nonlocal woken
            woken = True
            self.resume()

        world.call_later(seconds, wake, f"{self.name} wakes")
        while not woken:
            self.park()
            if points:
                self.point()

    # -- elsewhere -------------------------------------------------------------------------------

    def wake(self) -> None:
        """Resume the thread soon."""
        world = self.threads.world
        world.call_later(world.delay(SWITCH_SECONDS), self.resume, f"{self.name} runs")

    def resume(self) -> None:
        """Run the thread until it parks again. Call in an event."""
        if self.finished or not self._parked or self._hold(self):
            return
        self._parked = False
        previous, self.threads.current = self.threads.current, self
        self._scheduler = getcurrent()
        self._greenlet.parent = self._scheduler
        self._greenlet.switch()
        self.threads.current = previous


class SimLock:
    """A lock like threading.Lock; ``reentrant``: like RLock. Only simulated threads contend for it.

    ``points``: exceptions from outside may come after a release, and while a thread waits for the lock,
    which it then does not get. ZODB's locks have no points, because ZODB does not promise to survive
    that.
    """

    def __init__(self, threads: Threads, reentrant: bool = False, points: bool = False) -> None:
        self._threads = threads
        self._reentrant = reentrant
        self._points = points
        self._owner: SimThread | None = None
        self._depth = 0
        self._waiters: deque[SimThread] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        thread = self._threads.current
        if thread is None:
            return True
        if self._reentrant and self._owner is thread:
            self._depth += 1
            return True
        thread.preempt()
        while self._owner is not None:
            if not blocking:
                return False
            self._wait(thread)
        self._owner = thread
        self._depth = 1
        return True

    def _wait(self, thread: SimThread) -> None:
        """Wait until a release, or until another reason to try again."""
        self._waiters.append(thread)
        try:
            thread.park()
            if self._points:
                thread.point()
        except BaseException:
            self._waiters.remove(thread)
            self._wake_next()
            raise
        self._waiters.remove(thread)

    def _wake_next(self) -> None:
        # The thread leaves the queue when it runs, so that a wake-up for another reason is not lost.
        if self._owner is None and self._waiters:
            self._waiters[0].wake()

    def release(self) -> None:
        if self._threads.current is None or self._owner is None:
            return
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
            self._wake_next()

    def locked(self) -> bool:
        return self._owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()
        thread = self._threads.current
        if self._points and kind is None and thread is not None:
            thread.point()
