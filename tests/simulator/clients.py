"""The host of a simulated client process: streams, sleeping threads and a clock for the real code.

:class:`SimHost` implements :class:`neo.net.host.ThreadHost`, the only environment of the client.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType

from neo.net.fault_sites import FaultSite
from neo.net.host import DirectReads, Watch, Watched, Wire
from neo.net.tls import TlsLink
from neo.protocol.packets import Address
from tests.simulator.clock import Clock
from tests.simulator.network import RESET_SECONDS, End, Network
from tests.simulator.process import resetter
from tests.simulator.threads import Interrupted, SimLock, SimThread, Threads
from tests.simulator.world import World

#: Interval at which a thread that waits for bytes reads the clock, and at which the watcher looks for
#: channels without a reader; as in the real host.
TICK_SECONDS = 0.25
SWEEP_SECONDS = 0.5


class ClientProcess:
    """A process of an application: threads, and the streams of its storage."""

    def __init__(
        self,
        world: World,
        network: Network,
        threads: Threads,
        name: str,
        faults: Callable[[str, FaultSite], bool] = lambda who, site: False,
        clock: Clock | None = None,
    ) -> None:
        self.world = world
        self.network = network
        self.threads = threads
        self.name = self.host = name
        self.faults = faults
        self.clock = clock
        self.dead = False
        self.paused = False
        self.ends: list[End] = []
        self.members: list[SimThread] = []
        self.hosts: list[SimHost] = []
        #: Whether channels may be left without a reader. Before that, a sweep finds nothing to do.
        self.swept = False
        #: Threads that will run when the process is not stopped any more.
        self._held: list[SimThread] = []

    def spawn(self, target: Callable[[], None], name: str = "") -> SimThread:
        """Start a new thread of the application."""
        name = f"{self.name}/{name or len(self.members)}"
        thread = SimThread(self.threads, name, target, lambda: self.dead, self._hold)
        self.members.append(thread)
        return thread

    @property
    def finished(self) -> bool:
        return all(thread.finished for thread in self.members)

    def interrupt(self, thread: SimThread, points: list[int]) -> None:
        """Raise exceptions from outside in ``thread``, each after the given number of points. If the
        thread waits at a point now, that is the next one."""
        if not self.dead:
            thread.interrupts = points
            thread.wake()
            self.sweep()

    def sweep(self) -> None:
        """Let watchers look for channels that have no reader, from now on: a thread may be stopped while
        it reads; and a copy that waits for a storage node has asked the master for the next one, so
        that no watcher is woken by what the master tells."""
        if not self.swept:
            self.swept = True
            for host in self.hosts:
                host.sweep_soon()

    def kill(self) -> None:
        """Kill the process (``kill -9``). Every thread ends at the place where it stands."""
        if self.dead:
            return
        self.world.log(self.name, "is killed")
        self.dead = True
        self.paused = False
        for end in self.ends:
            reset = resetter(end, "reset by the peer")
            self.world.call_later(RESET_SECONDS, reset, f"{end.name} reset")
        for thread in self.members:
            thread.wake()

    def pause(self) -> None:
        """Stop the process (SIGSTOP): no thread runs, connections stay, received bytes wait in the
        kernel."""
        if not self.dead and not self.paused:
            self.world.log(self.name, "is paused")
            self.paused = True

    def resume(self) -> None:
        if self.paused:
            self.world.log(self.name, "goes on")
            self.paused = False
            held, self._held = self._held, []
            for thread in held:
                thread.wake()

    def _hold(self, thread: SimThread) -> bool:
        """Return whether a thread must not run now. It is then resumed as soon as it may run."""
        if self.paused and not self.dead and thread not in self._held:
            self._held.append(thread)
        return self.paused and not self.dead


class SimWire:
    """A blocking socket."""

    def __init__(self, host: SimHost, end: End) -> None:
        self._host = host
        self._end = end
        self._arrived = bytearray()
        self._lost: str | None = None
        self._closed = False
        self._reader: SimThread | None = None
        self.watch: SimWatch | None = None
        end.receiver = self

    # -- Receiver ----------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        self._arrived += data
        self._notify()

    def lost(self, reason: str) -> None:
        self._lost = reason
        self._notify()

    def _notify(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.wake()
        if self.watch is not None:
            self.watch.check()

    @property
    def readable(self) -> bool:
        return bool(self._arrived) or self._lost is not None or self._closed

    # -- Wire --------------------------------------------------------------------------------------

    def send(self, outgoing: list[bytes]) -> None:
        thread = self._host.thread()
        thread.preempt()
        thread.point()
        if self._lost is not None or self._closed:
            raise BrokenPipeError(32, self._lost or "closed")
        data = b"".join(outgoing)
        if thread.interrupts and len(data) > 1:
            # A part was sent; the next call continues there.
            half = len(data) // 2
            self._end.write(data[:half])
            data = data[half:]
            outgoing[:] = [data]
            thread.point()
        self._end.write(data)
        outgoing.clear()
        thread.point()

    def receive(self, portions: list[bytes], wait: bool) -> bool:
        thread = self._host.thread()
        thread.preempt()
        thread.point()
        if not self.readable and wait:
            self._wait(thread)
        if self._arrived:
            portions.append(bytes(self._arrived))
            self._arrived.clear()
            thread.point()
            return True
        if self._lost is not None or self._closed:
            portions.append(b"")
            return True
        return False

    def _wait(self, thread: SimThread) -> None:
        """Wait until something can be read, or a tick passes."""
        expired = False

        def expire() -> None:
            nonlocal expired
            expired = True
            if self._reader is thread:
                self._reader = None
                thread.resume()

        timer = self._host.world.call_later(TICK_SECONDS, expire, f"{thread.name} tick")
        try:
            while not self.readable and not expired:
                self._reader = thread
                thread.park()
                thread.point()
        except Interrupted:
            self._reader = None
            timer.cancel()
            raise
        timer.cancel()

    def flow(self) -> tuple[int, int]:
        return 0, 0

    def end(self) -> None:
        self._host.point()
        self._closed = True
        self._end.close()
        self._notify()
        self._host.point()

    def close(self) -> None:
        """Do nothing: there is no descriptor to release."""


class SimPresence:
    """A lock on which no thread blocks."""

    def __init__(self, host: SimHost) -> None:
        self._host = host
        self._taken = False

    def __enter__(self) -> None:
        self._taken = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._taken = False
        if kind is None:
            self._host.point()

    def locked(self) -> bool:
        return self._taken


class SimWaker:
    """Wakes one thread."""

    def __init__(self, host: SimHost) -> None:
        self._host = host
        self._woken = False
        self._sleeper: SimThread | None = None

    def wait(self, seconds: float) -> None:
        thread = self._sleeper = self._host.thread()
        timer = self._host.world.call_later(seconds, self.wake, f"{thread.name} looks")
        try:
            while not self._woken:
                thread.park()
                thread.point()
        finally:
            timer.cancel()
        thread.point()

    def wake(self) -> None:
        self._host.point()
        self._woken = True
        if self._sleeper is not None:
            self._sleeper.wake()
        self._host.point()


class SimWatch:
    """The watcher's interest in a stream."""

    def __init__(self, host: SimHost, wire: SimWire, watched: Watched) -> None:
        self._host = host
        self._wire = wire
        self.watched = watched
        self._armed = False
        wire.watch = self

    def arm(self) -> None:
        self._host.point()
        self._armed = True
        self.check()
        self._host.point()

    def disarm(self) -> None:
        self._host.point()
        self._armed = False
        self._host.point()

    def forget(self) -> None:
        self._host.point()
        self._armed = False
        self._wire.watch = None
        self._host.watches.pop(self, None)
        self._host.point()

    def check(self) -> None:
        """Pass the stream to the watcher if it has bytes to read."""
        if self._armed and self._wire.readable:
            self._armed = False
            self._host.serve(self.watched)


class SimHost:
    """All blocking operations, for the client of one process."""


    def __init__(self, process: ClientProcess) -> None:
        self._process = process
        self.world = process.world
        self.direct: DirectReads | None = None
        #: All watches, in the order of their creation.
        self.watches: dict[SimWatch, None] = {}
        self._to_serve: deque[Watched] = deque()
        self._watcher: SimThread | None = None
        self._sweeps = False
        self._stopped = False
        process.hosts.append(self)
        if process.swept:
            self.sweep_soon()

    def thread(self) -> SimThread:
        """Return the thread that runs now."""
        current = self._process.threads.current
        assert current is not None, "simulated clients run in simulated threads only"
        return current

    def point(self) -> None:
        """Let an exception from outside come here: at the begin of a host function, or at its end."""
        current = self._process.threads.current
        if current is not None:
            current.point()

    def name(self) -> str:
        return self._process.name

    def now(self) -> float:
        self.point()
        clock = self._process.clock
        return self.world.now if clock is None else clock.read()

    def sleep(self, seconds: float) -> None:
        thread = self.thread()
        thread.point()
        thread.sleep(self._real(seconds), points=True)

    def _real(self, seconds: float) -> float:
        """Convert seconds of this process's clock to seconds of the world."""
        clock = self._process.clock
        return seconds if clock is None else seconds / clock.rate

    def lock(self) -> SimLock:
        return SimLock(self._process.threads, points=True)

    def presence(self) -> SimPresence:
        return SimPresence(self)

    def rlock(self) -> SimLock:
        return SimLock(self._process.threads, reentrant=True, points=True)

    def waker(self) -> SimWaker:
        self.point()
        return SimWaker(self)

    def background(self, job: Callable[[], None], name: str) -> None:
        self._process.spawn(job, name)

    def choose(self, items: Sequence[int]) -> int:
        return self.world.random.choice(items)

    def fault(self, site: FaultSite) -> bool:
        return self._process.faults(self._process.name, site)

    def connect(self, address: Address, tls: TlsLink | None, seconds: float | None = None) -> Wire:
        assert tls is None, "simulated streams are plain"
        thread = self.thread()
        result: list[SimWire | str] = []

        def failed(reason: str) -> None:
            if not result:
                result.append(reason)
                thread.resume()

        def connected(end: End) -> None:
            if self._process.dead or result:
                end.reset("reset by the peer")
            else:
                self._process.ends.append(end)
                result.append(SimWire(self, end))
                thread.resume()

        self._process.network.connect(self._process.host, address, connected, failed)
        if seconds is not None:
            name = f"{self._process.name} dial"
            self.world.call_later(self._real(seconds), lambda: failed("no answer"), name)
        try:
            while not result:
                thread.park()
                thread.point()
        except BaseException:
            if not result:
                result.append("given up")
            elif isinstance(result[0], SimWire):
                result[0]._end.close()
            raise
        outcome = result[0]
        if isinstance(outcome, str):
            raise ConnectionRefusedError(111, outcome)
        return outcome

    def watch(self, wire: Wire, watched: Watched) -> Watch:
        assert isinstance(wire, SimWire)
        watch = SimWatch(self, wire, watched)
        self.watches[watch] = None
        return watch

    # -- the watcher -------------------------------------------------------------------------------

    def serve(self, watched: Watched) -> None:
        """Let the watcher's thread read a stream."""
        self._to_serve.append(watched)
        if self._watcher is None:
            self._watcher = self._process.spawn(self._watch, "watcher")
        else:
            self._watcher.wake()

    def sweep_soon(self) -> None:
        """Let the watcher look for channels that a thread left without a reader, from now on."""
        self.world.call_later(
            self._real(SWEEP_SECONDS), self._sweep, f"{self._process.name} sweeps"
        )

    def _sweep(self) -> None:
        if not self._stopped and not self._process.dead:
            self._sweeps = True
            if self._watcher is None:
                self._watcher = self._process.spawn(self._watch, "watcher")
            else:
                self._watcher.wake()
            self.sweep_soon()

    def _watch(self) -> None:
        while not self._stopped:
            while self._to_serve:
                self._to_serve.popleft().serve()
            if self._sweeps:
                self._sweeps = False
                for watch in list(self.watches):
                    watch.watched.sweep()
            self.thread().park()

    def reopen_logs(self) -> None:
        """Do nothing: there is no log file."""

    def stop(self) -> None:
        self._stopped = True
        if self._watcher is not None:
            self._watcher.wake()

    def forked(self) -> None:
        raise AssertionError("simulated processes do not fork")
