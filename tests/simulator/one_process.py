"""Nodes that share a process: they die together, and reach each other without the network.

Their links are those of the product (:mod:`neo.node.local`) in its checking mode: each message is
compared with what decoding its bytes would give. :class:`LocalEnd` is the oracle of deliveries: messages
arrive in order, all of them before the end of the connection, and while no core of the process is at
work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from neo.node.local import Deliveries, LocalLink, Parcel, join
from neo.node.peer import Link, Peer, Wire
from neo.protocol.packets import Address, Message
from tests.simulator.peer_faults import inject_faults
from tests.simulator.world import Violation, World
from tests.support.passing import difference

if TYPE_CHECKING:
    from tests.simulator.process import Process, SimNodeHost

#: Time that a turn of the loop takes. Not zero, so that virtual time passes in whatever the nodes do.
TURN_SECONDS = 1e-5
#: The same on a busy machine. A client may hear of a commit before a storage node of the process does.
BUSY_TURN_SECONDS = 0.003


class OneProcess:
    """A process with several nodes. ``turn_seconds``: what a turn of its loop takes."""

    def __init__(
        self, world: World, members: list[Process], turn_seconds: float = TURN_SECONDS
    ) -> None:
        self.world = world
        self.members = members
        self._turn_seconds = turn_seconds
        self.lives = 0
        #: What each end has written and the other one has not received.
        self.written: dict[LocalLink, deque[Parcel]] = {}
        self._working = 0
        self._paused_delivery = False
        self._deliveries: Deliveries
        for member in members:
            member.group = self
        self._begin()

    def _begin(self) -> None:
        life = self.lives = self.lives + 1
        self._paused_delivery = False
        self.written.clear()
        self._deliveries = Deliveries(lambda: self._wake(life), self._check)

    def _check(self, message: Message, detached: Message) -> None:
        if (wrong := difference(message, detached)) is not None:
            self.world.fail(Violation(f"a message is not passed as its bytes: {wrong}"))

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all nodes. Those that run end first, as when an operator starts the program again."""
        self.kill()
        self._begin()
        for member in self.members:
            if not member.alive:
                member.start_alone()

    def kill(self) -> None:
        """Kill all nodes. The core of a node that was about to start again is not made."""
        self.lives += 1
        for member in self.members:
            member.kill_alone()

    def pause(self) -> None:
        for member in self.members:
            member.pause_alone()

    def resume(self) -> None:
        for member in self.members:
            member.resume_alone()
        if self._paused_delivery:
            self._paused_delivery = False
            self._wake(self.lives)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Inside the block, a core is on the stack."""
        self._working += 1
        try:
            yield
        finally:
            self._working -= 1

    def check_idle(self) -> None:
        """Fail the world if a core is on the stack."""
        if self._working:
            self.world.fail(Violation("a message is delivered while a core is at work"))

    # -- connections -----------------------------------------------------------------------------

    def member_at(self, address: Address) -> Process | None:
        for member in self.members:
            if member.address == address and member.alive:
                return member
        return None

    def dial(self, process: Process, host: SimNodeHost, peer: Peer, target: Process) -> None:
        end = LocalEnd(self, process, host, peer)
        join(end, self._deliveries, lambda link: self._accept(process.address, target, link))

    def _accept(self, address: Address, target: Process, link: LocalLink) -> None:
        host, core = target.life()
        if host is None or core is None:
            link.refuse("not started yet")
            return

        def accept() -> None:
            peer = core.accepted(address)
            link.attach(LocalEnd(self, target, host, peer))
            inject_faults(host, peer)

        target.run(host, accept)

    def _wake(self, life: int) -> None:
        deliveries = self._deliveries

        def run() -> None:
            if life != self.lives:
                return
            if any(member.paused for member in self.members):
                self._paused_delivery = True
            else:
                deliveries.run()

        self.world.call_later(self._turn_seconds, run, "deliveries")


class LocalEnd:
    """Connects a peer of a core to its end of a local connection, as the link of the peer and as the end
    of that link. Events go through the process."""

    def __init__(self, group: OneProcess, process: Process, host: SimNodeHost, peer: Peer) -> None:
        self._group = group
        self._process = process
        self._host = host
        self._peer = peer
        self._link: LocalLink

    # -- the end of the link ---------------------------------------------------------------------

    @property
    def connection(self) -> Wire:
        return self._peer.connection

    @connection.setter
    def connection(self, connection: Wire) -> None:
        self._peer.connection = connection

    @property
    def link(self) -> Link | None:
        return self._peer.link

    @link.setter
    def link(self, link: Link | None) -> None:
        assert isinstance(link, LocalLink)
        self._link = link
        self._group.written[link] = deque()
        self._process.local_links.append(link)
        self._peer.link = self

    def received(self, data: Any) -> None:
        written = self._group.written.get(self._link.other)
        if written is not None and (not written or written.popleft() is not data):
            self._fail("gets messages in another order than they were sent")
        self._run(lambda: self._peer.received(data))

    def slow(self) -> None:
        self._peer.slow()

    def drained(self) -> None:
        self._run(self._peer.drained)

    def lost(self, reason: str) -> None:
        if self._group.written.get(self._link.other):
            self._fail("loses a connection before it has what was sent")
        self._run(lambda: self._peer.lost(reason))

    def _run(self, callback: Callable[[], None]) -> None:
        self._group.check_idle()
        self._process.run(self._host, callback)

    def _fail(self, what: str) -> None:
        self._group.world.fail(Violation(f"{self._process.name} {what}"))

    # -- the link of the peer --------------------------------------------------------------------

    @property
    def unsent(self) -> int:
        return self._link.unsent

    def write(self, data: Parcel) -> None:
        self._group.written[self._link].append(data)
        self._link.write(data)

    def pause_reading(self) -> None:
        self._link.pause_reading()

    def resume_reading(self) -> None:
        self._link.resume_reading()

    def close(self) -> None:
        self._link.close()
