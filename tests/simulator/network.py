"""The simulated network: streams are delayed, split, held, and broken, but never reordered.

A stream has two ends. What one end writes is *delivered* to the other end later, in portions of any
size. A direction between two hosts may be *cut*: bytes are then held, as TCP would retransmit them, and
delivered when the link heals. If that takes too long, both ends learn that the connection is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from neo.protocol.packets import Address
from tests.simulator.world import World

#: Typical latency between two hosts.
LATENCY_SECONDS = 0.0003
#: A stream that is held for longer than the keep-alive time (neo.net.sockets) is lost.
HELD_SECONDS_MAX = 90.0
#: A dial to a host that cannot be reached fails after the timeout of the hosts.
DIAL_SECONDS = 10.0
#: Time until a dialing process learns that no process listens, or a peer that its process died.
RESET_SECONDS = 0.0005


class Receiver(Protocol):
    """The receiver of the bytes of one end of a stream."""

    def received(self, data: bytes) -> None: ...

    def lost(self, reason: str) -> None: ...


class End:
    """One end of a stream. ``receiver`` gets what the other end writes."""

    def __init__(self, network: Network, host: str, name: str) -> None:
        self.network = network
        self.host = host
        self.name = name
        self.other: End
        self.receiver: Receiver | None = None
        self.closed = False
        #: Number of bytes that were written and not yet received by the other end.
        self.unsent = 0
        #: Called when the other end received some of them.
        self.sent: Callable[[], None] = lambda: None
        self._paused = False
        self._unread: list[bytes] = []
        self._last_delivery = 0.0
        self._held: list[bytes] = []
        self._held_since: float | None = None
        self._finishing: str | None = None

    def link(self, other: End) -> None:
        self.other, other.other = other, self

    # -- writing -----------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if self.closed or not data:
            return
        self.unsent += len(data)
        if self.network.is_cut(self.host, self.other.host):
            self._hold()
            self._held.append(data)
        else:
            for portion in self._split(data):
                self._send(portion)

    def close(self) -> None:
        """Close the stream: what was written still arrives, then the other end learns of the end."""
        if not self.closed:
            self.closed = True
            self.receiver = None
            self._finish("closed by the peer")

    def reset(self, reason: str) -> None:
        """End the stream because the process of this end died: bytes on their way may be lost."""
        if not self.closed:
            self.closed = True
            self.receiver = None
            self._held.clear()
            self._finish(reason)

    def sever(self) -> None:
        """End the connection, though both processes live: bytes on their way are lost."""
        for end in (self, self.other):
            end._held.clear()
            end.end("reset by the network")

    def _finish(self, reason: str) -> None:
        self._finishing = reason
        if self._held or self.network.is_cut(self.host, self.other.host):
            self._hold()
        else:
            self._at_delivery(lambda: self.other.end(reason), f"{self.other.name} end")

    def end(self, reason: str) -> None:
        """Tell the receiver that nothing comes any more."""
        receiver, self.receiver = self.receiver, None
        if not self.closed:
            self.closed = True
            if receiver is not None:
                receiver.lost(reason)

    # -- delivery ----------------------------------------------------------------------------------

    def _split(self, data: bytes) -> list[bytes]:
        world = self.network.world
        if len(data) < 2 or not world.chance(self.network.split_probability):
            return [data]
        at = world.random.randrange(1, len(data))
        return [data[:at], data[at:]]

    def _send(self, data: bytes) -> None:
        self._at_delivery(lambda: self.other.arrive(data), f"{self.other.name} {len(data)}")

    def _at_delivery(self, callback: Callable[[], None], name: str) -> None:
        """Call back after the latency, and after everything that was sent before."""
        network = self.network
        delay = network.world.delay(network.latency(self.host, self.other.host))
        self._last_delivery = max(self._last_delivery, network.world.now + delay)
        network.world.call_at(self._last_delivery, callback, name)

    def arrive(self, data: bytes) -> None:
        if self._paused or self._unread:
            self._unread.append(data)
        else:
            self._take(data)

    def _take(self, data: bytes) -> None:
        self.other.unsent -= len(data)
        if self.receiver is not None:
            self.receiver.received(data)
        self.other.sent()

    # -- flow control --------------------------------------------------------------------------------

    def pause_reading(self) -> None:
        """Let received bytes wait here. If the connection ends meanwhile, they are lost, as with a
        reset."""
        self._paused = True

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            if self._unread:
                # Not at once: the receiver may be executing an event.
                self.network.world.call_later(0.0, self._take_unread, f"{self.name} reads on")

    def _take_unread(self) -> None:
        while self._unread and not self._paused:
            self._take(self._unread.pop(0))

    # -- cuts --------------------------------------------------------------------------------------

    def _hold(self) -> None:
        if self._held_since is not None:
            return
        since = self._held_since = self.network.world.now

        def give_up() -> None:
            if self._held_since == since:
                self._held.clear()
                self.end("timed out")
                self.other.end("timed out")

        self.network.holding.append(self)
        self.network.world.call_later(HELD_SECONDS_MAX, give_up, f"{self.name} timeout")

    def release(self) -> None:
        """Deliver the held bytes: the direction is not cut any more."""
        self._held_since = None
        held, self._held = self._held, []
        for data in held:
            self._send(data)
        if self._finishing is not None:
            reason = self._finishing
            self._at_delivery(lambda: self.other.end(reason), f"{self.other.name} end")


class Listener(Protocol):
    """A process that listens on an address."""

    host: str

    def accepted(self, end: End) -> None: ...


class Network:
    def __init__(self, world: World) -> None:
        self.world = world
        self.split_probability = 0.05
        self.listeners: dict[Address, Listener] = {}
        self.holding: list[End] = []
        self._cuts: set[tuple[str, str]] = set()
        self._slow: dict[tuple[str, str], float] = {}
        self._streams = 0
        #: One end of each connection; some may be over.
        self._connections: list[End] = []

    # -- topology ----------------------------------------------------------------------------------

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def latency(self, source: str, target: str) -> float:
        return self._slow.get((source, target), LATENCY_SECONDS)

    def cut(self, source: str, target: str) -> None:
        """Cut one direction: nothing passes until it is healed."""
        self._cuts.add((source, target))

    def slow(self, source: str, target: str, seconds: float) -> None:
        self._slow[source, target] = seconds

    def heal(self) -> None:
        """Restore all links."""
        self._cuts.clear()
        self._slow.clear()
        holding, self.holding = self.holding, []
        for end in holding:
            end.release()

    def join(self, one: str, other: str) -> None:
        """Restore the links between two hosts, in both directions."""
        pair = {one, other}
        self._cuts = {cut for cut in self._cuts if set(cut) != pair}
        for end in [end for end in self.holding if {end.host, end.other.host} == pair]:
            self.holding.remove(end)
            end.release()

    # -- connections -------------------------------------------------------------------------------

    @property
    def connections(self) -> list[End]:
        """Return one end of each open connection, in the order of their beginning."""
        self._connections = [
            end for end in self._connections if not end.closed and not end.other.closed
        ]
        return self._connections

    def connect(
        self,
        host: str,
        address: Address,
        connected: Callable[[End], None],
        failed: Callable[[str], None],
    ) -> None:
        """Dial from a host. ``connected`` or ``failed`` is called later."""
        listener = self.listeners.get(address)
        unreachable = listener is not None and (
            self.is_cut(host, listener.host) or self.is_cut(listener.host, host)
        )
        if unreachable:
            self.world.call_later(DIAL_SECONDS, lambda: failed("no answer"), f"{host} dial timeout")
            return
        delay = self.world.delay(LATENCY_SECONDS)

        def arrive() -> None:
            target = self.listeners.get(address)
            if target is None:
                failed(f"connection refused by {address[0]}:{address[1]}")
                return
            self._streams += 1
            name = f"{host}>{target.host}#{self._streams}"
            near = End(self, host, f"{name}.dialer")
            far = End(self, target.host, f"{name}.server")
            near.link(far)
            self._connections = [*self.connections, near]
            target.accepted(far)
            connected(near)

        self.world.call_later(delay, arrive, f"{host} dial {address[1]}")
