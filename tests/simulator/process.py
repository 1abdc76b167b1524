"""Simulated processes: a core with a virtual host, which can be killed, paused and started again."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from neo.net.fault_sites import FaultSite
from neo.node import backlog
from neo.node.core import Core
from neo.node.host import Timer
from neo.node.local import LocalLink
from neo.node.meter import Meter
from neo.node.peer import Peer
from neo.node.tracing import Tracer, Traces
from neo.protocol.packets import Address
from neo.storage.backend.api import BackendFailure
from tests.simulator.clock import Clock
from tests.simulator.network import RESET_SECONDS, End, Network
from tests.simulator.one_process import OneProcess
from tests.simulator.peer_faults import inject_faults
from tests.simulator.world import Event, Violation, World

#: Pause before a core is made again after a failure of its database, and before a supervisor restarts a
#: process that ended by itself.
RESTART_SECONDS = 1.0


class Machine(Protocol):
    """The state that survives a process: its disk. See ``disk.py``."""

    def crash(self) -> None:
        """Lose all data that was not synced."""


class SimNodeHost:
    """Implementation of :class:`neo.node.host.Host` for one life of a process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world
        self.random = Random(process.world.random.getrandbits(64))
        self.meter: Meter | None = None
        self.traces: Traces | None = None
        if process.tracer is not None:
            self.meter = Meter(self.monotonic)
            self.traces = Traces(process.tracer, self)
        self.dead = False

    def time(self) -> float:
        return self._world.epoch + self._world.now + self._process.clock_skew

    def monotonic(self) -> float:
        clock = self._process.clock
        return self._world.now if clock is None else clock.read()

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        return self._event(delay, callback, "timer")

    def from_thread(self, callback: Callable[..., None], *args: object) -> object:
        return self._event(0.0, lambda: callback(*args), "thread")

    def _event(self, delay: float, callback: Callable[[], None], what: str) -> Event:
        process = self._process
        # Without a clock of its own, the process uses the clock of the world.
        later = self._world.call_later if process.clock is None else process.clock.call_later
        return later(delay, lambda: process.run(self, callback), f"{process.name} {what}")

    def dial(self, peer: Peer) -> None:
        assert peer.address is not None
        group = self._process.group
        if group is not None and (target := group.member_at(peer.address)) is not None:
            group.dial(self._process, self, peer, target)
            return
        link = DialedLink(self._process, self, peer)
        peer.link = link
        self._process.network.connect(self._process.host, peer.address, link.connected, link.failed)

    def reopen_logs(self) -> None:
        pass  # there are no log files

    def stop(self, code: int) -> None:
        self._process.ended(self, code)

    def restart(self, why: str) -> None:
        self._process.restart_core(self)

    def renew(self) -> None:
        self.stop(0)

    @property
    def shared(self) -> bool:
        return self._process.group is not None

    def healthy(self) -> None:
        pass  # pauses between restarts do not grow here

    def fault(self, site: FaultSite) -> bool:
        return self._process.faults(self._process.name, site)


class PeerLink:
    """Connects a peer of a core to an end of a stream. Events go through the process."""

    def __init__(self, process: Process, host: SimNodeHost, peer: Peer) -> None:
        self.process = process
        self.host = host
        self.peer = peer
        self.end: End | None = None
        self._slow = False

    def attach(self, end: End) -> None:
        self.end = end
        end.receiver = self
        end.sent = self._sent
        self.process.ends.append(end)
        self._watch_unsent()

    def write(self, data: bytes) -> None:
        if self.end is not None:
            self.process.writes(self.peer)
            self.end.write(data)
            self._watch_unsent()

    @property
    def unsent(self) -> int:
        return 0 if self.end is None else self.end.unsent

    def _watch_unsent(self) -> None:
        if not self._slow and self.unsent > backlog.SLOW_BYTES:
            self._slow = True
            self.peer.slow()

    def _sent(self) -> None:
        if self._slow and self.unsent <= backlog.SLOW_BYTES // 4:
            self._slow = False
            self.process.run(self.host, self.peer.drained)

    def pause_reading(self) -> None:
        if self.end is not None:
            self.end.pause_reading()

    def resume_reading(self) -> None:
        if self.end is not None:
            self.end.resume_reading()

    def close(self) -> None:
        if self.end is not None:
            self.end.close()

    def received(self, data: bytes) -> None:
        self.process.run(self.host, lambda: self.peer.received(data))

    def lost(self, reason: str) -> None:
        self.process.run(self.host, lambda: self.peer.lost(reason))


class DialedLink(PeerLink):
    """A link that keeps written bytes until the dial has succeeded."""

    def __init__(self, process: Process, host: SimNodeHost, peer: Peer) -> None:
        super().__init__(process, host, peer)
        self._waiting: list[bytes] = []
        self._closed = False

    def write(self, data: bytes) -> None:
        if self.end is None:
            self._waiting.append(data)
        else:
            self.end.write(data)
            self._watch_unsent()

    def close(self) -> None:
        self._closed = True
        super().close()

    def connected(self, end: End) -> None:
        if self.host.dead:
            end.reset("reset by the peer")
            return
        self.attach(end)
        for data in self._waiting:
            end.write(data)
        self._watch_unsent()
        if self._closed:
            end.close()

    def failed(self, reason: str) -> None:
        if not self._closed:
            self.lost(f"cannot connect: {reason}")


MakeCore = Callable[[SimNodeHost], Core]


class Process:
    """A node process on a host of its own. ``make_core`` raises Violation where a real process raises
    StartFailure, because a simulated node has no wrong settings."""

    def __init__(
        self,
        world: World,
        network: Network,
        name: str,
        address: Address,
        make_core: MakeCore,
        machine: Machine | None = None,
        faults: Callable[[str, FaultSite], bool] = lambda who, site: False,
    ) -> None:
        self.world = world
        self.network = network
        self.name = self.host = name
        self.address = address
        self.machine = machine
        self.faults = faults
        self.clock_skew = 0.0
        self.clock: Clock | None = None
        #: Called at each write to a peer that dialed this process.
        self.writes: Callable[[Peer], None] = lambda peer: None
        #: Whether the process may end with an error now.
        self.may_fail: Callable[[], bool] = lambda: False
        #: What takes the spans of the node; None if it does not trace.
        self.tracer: Tracer | None = None
        self.core: Core | None = None
        self.exit_code: int | None = None
        self.lives = 0
        self.paused = False
        #: Whether a fault holds the process back: it must not be started then.
        self.held = False
        self.ends: list[End] = []
        #: The process that this node shares with others, and its links with them.
        self.group: OneProcess | None = None
        self.local_links: list[LocalLink] = []
        self._make_core = make_core
        self._host: SimNodeHost | None = None
        self._inbox: list[tuple[SimNodeHost, Callable[[], None]]] = []

    @property
    def alive(self) -> bool:
        return self._host is not None

    # -- life ------------------------------------------------------------------------------------

    def life(self) -> tuple[SimNodeHost | None, Core | None]:
        """Return the host and the core, if the process runs."""
        return self._host, self.core

    def start(self) -> None:
        assert not self.alive, self.name
        if self.group is not None:
            self.group.start()
        else:
            self.start_alone()

    def start_alone(self) -> None:
        """Start this node, not those that share its process."""
        self.lives += 1
        self.exit_code = None
        if self.clock is not None:
            self.clock.boot()
        self.world.log(self.name, f"starts (life {self.lives})")
        self._boot()

    def _boot(self) -> None:
        host = self._host = SimNodeHost(self)
        self.network.listeners[self.address] = self
        try:
            core = self.core = self._make_core(host)
        except BackendFailure as e:
            self.world.log(self.name, f"cannot start: {e}")
            self.restart_core(host)
            return
        self.run(host, core.start)

    def revive(self) -> None:
        """Start the process, unless it runs already or is held back."""
        if not self.alive and not self.held:
            self.start()

    def kill(self) -> None:
        """Kill the process (``kill -9``); its machine loses power."""
        if self.group is not None:
            self.group.kill()
        else:
            self.kill_alone()

    def kill_alone(self) -> None:
        if self.alive:
            self.world.log(self.name, "is killed")
            self._die("reset by the peer")
            if self.machine is not None:
                self.machine.crash()

    def terminate(self) -> None:
        """Send SIGTERM."""
        if self.core is not None:
            self.do(self.core.terminate)

    def do(self, callback: Callable[[], None]) -> None:
        """Execute an event from outside, unless the process is dead."""
        if self._host is not None and self.core is not None:
            self.run(self._host, callback)

    def pause(self) -> None:
        """Stop the process (SIGSTOP): connections stay, no event is executed."""
        if self.group is not None:
            self.group.pause()
        else:
            self.pause_alone()

    def pause_alone(self) -> None:
        if self.alive and not self.paused:
            self.world.log(self.name, "is paused")
            self.paused = True

    def resume(self) -> None:
        if self.group is not None:
            self.group.resume()
        else:
            self.resume_alone()

    def resume_alone(self) -> None:
        if self.paused:
            self.world.log(self.name, "goes on")
            self.paused = False
            inbox, self._inbox = self._inbox, []
            for host, callback in inbox:
                self.run(host, callback)

    def ended(self, host: SimNodeHost, code: int) -> None:
        """Handle the end of a core that stopped by itself."""
        if host is self._host:
            self.world.log(self.name, f"ends with exit code {code}")
            self.exit_code = code
            self._die("closed by the peer")
            if code and self.group is not None:
                self.group.kill()
            if code and not self.may_fail():
                self.world.fail(Violation(f"{self.name} ended with exit code {code}"))
            else:
                # A supervisor restarts a process that ended by itself.
                self.world.call_later(RESTART_SECONDS, self.revive, f"{self.name} revival")

    def restart_core(self, host: SimNodeHost) -> None:
        """Make the core of a storage node again, after its database failed."""
        if host is not self._host:
            return
        self.world.log(self.name, "makes its core again")
        self._die("closed by the peer")
        life = 0 if self.group is None else self.group.lives

        def boot() -> None:
            if self.group is not None and self.group.lives != life:
                return  # the process is another one
            if not self.alive and not self.held:
                self._boot()

        self.world.call_later(RESTART_SECONDS, boot, f"{self.name} restart")

    def _die(self, reason: str) -> None:
        assert self._host is not None
        self._host.dead = True
        self._host = None
        self.core = None
        self.paused = False
        self._inbox.clear()
        self.network.listeners.pop(self.address, None)
        links, self.local_links = self.local_links, []
        for link in links:
            link.close()
        ends, self.ends = self.ends, []
        for end in ends:
            self.world.call_later(RESET_SECONDS, resetter(end, reason), f"{end.name} reset")

    # -- events ----------------------------------------------------------------------------------

    def run(self, host: SimNodeHost, callback: Callable[[], None]) -> None:
        """Execute an event of this life of the process."""
        if host.dead:
            return
        if self.paused:
            self._inbox.append((host, callback))
            return
        if self.group is None:
            self._execute(callback)
        else:
            with self.group.working():
                self._execute(callback)

    def _execute(self, callback: Callable[[], None]) -> None:
        core = self.core
        callback()
        if core is not None:
            core.flush()

    def accepted(self, end: End) -> None:
        if self._host is None or self.core is None:
            end.reset("reset by the peer")
            return
        host, core = self._host, self.core

        def accept() -> None:
            peer = core.accepted((end.other.host, 0))
            inject_faults(host, peer)
            link = PeerLink(self, host, peer)
            peer.link = link
            link.attach(end)

        if self.paused:
            # The kernel accepts connections for a stopped process.
            hold = _Held(self, host, end)
            end.receiver = hold
            self._inbox.append((host, lambda: hold.release(accept)))
        else:
            self.run(host, accept)


class _Held:
    """Keeps bytes of a connection that a paused process has not accepted yet."""

    def __init__(self, process: Process, host: SimNodeHost, end: End) -> None:
        self._end = end
        self._data: list[bytes] = []
        self._lost: str | None = None

    def received(self, data: bytes) -> None:
        self._data.append(data)

    def lost(self, reason: str) -> None:
        self._lost = reason

    def release(self, accept: Callable[[], None]) -> None:
        accept()
        receiver = self._end.receiver
        if receiver is not None and receiver is not self:
            for data in self._data:
                receiver.received(data)
            if self._lost is not None:
                receiver.lost(self._lost)


def resetter(end: End, reason: str) -> Callable[[], None]:
    """Return a callback that resets an end after the death of its process."""
    return lambda: end.reset(reason)
