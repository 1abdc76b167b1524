"""The link to one peer: its session, and the paths to it.

A session needs a random number from each side. A greeting offers one, and echoes the other side's. A
node that receives its own offer as echo knows that the greeting is no replay, and begins the session.
Each offer is used once.
"""

from __future__ import annotations

from typing import NamedTuple

import msgpack

from neo.transactor.members import Address
from neo.transactor.sealing import NUMBER_SIZE, OVERHEAD, Keys, Packet, SealError, Session, tag

#: Probed sizes of UDP payload: the minimum of every host, the minimum of IPv6, tunnels, Ethernet, jumbo
#: frames.
MTU_SIZES = (508, 1232, 1400, 1472, 8972)
#: Seconds for which the answer to a probe counts.
PROBE_LIFE = 6.0
#: Seconds for which a peer counts as reachable after it was heard, or was reported by a relay.
REACH_LIFE = 3.0


class Greeting(NamedTuple):
    offer: bytes
    echo: bytes
    #: The sender has begun this session already.
    done: bool
    #: A digest of the first members, empty if they are unknown; the status of the engine.
    cluster: bytes
    status: bytes

    def encode(self) -> bytes:
        packed: bytes = msgpack.packb(list(self))
        return packed

    @classmethod
    def decode(cls, data: bytes) -> Greeting:
        """Decode and check a greeting. Raises SealError."""
        try:
            greeting = cls(*msgpack.unpackb(data))
        except (ValueError, TypeError, msgpack.UnpackException):
            raise SealError("not a greeting") from None
        if len(greeting.offer) != NUMBER_SIZE:
            raise SealError("not a greeting")
        return greeting


class Answer(NamedTuple):
    """The first fields of a greeting that answers another one."""

    offer: bytes
    echo: bytes
    done: bool


class Link:
    """The state of one peer. Times are seconds of the owner's clock."""

    def __init__(self, name: str, address: Address, me: str, keys: Keys) -> None:
        self.name = name
        self.tag = tag(name)
        #: From the configuration or the list of members; and the source of its datagrams (port mapping).
        self.address = address
        self.udp_address = address
        self.session: Session | None = None
        self.conn: int | None = None
        self.heard = self.heard_direct = -1e9
        self.greeted = self.dialled = self.conn_heard = -1e9
        #: The peer said that it hears this node without a relay.
        self.hears = True
        #: Time of the last answered probe, by size.
        self.probed: dict[int, float] = {}
        #: Peers that reach this one directly, and when they said so.
        self.relays: dict[str, float] = {}
        self._me = tag(me)
        self._keys = keys
        self._offer = b""
        self._pair = (b"", b"")

    def mtu(self, now: float) -> int:
        """Return the largest payload that UDP carries to this peer now; 0 if none."""
        return max((size for size, at in self.probed.items() if now - at < PROBE_LIFE), default=0)

    def direct(self, now: float) -> bool:
        """Return whether the peer is reached without a relay."""
        way = self.conn is not None or self.mtu(now) > 0
        return way and self.hears and self.heard_directly(now)

    def heard_directly(self, now: float) -> bool:
        return now - self.heard_direct < REACH_LIFE

    def relay(self, now: float, usable: set[str]) -> str | None:
        """Return the name of a usable peer that reaches this one."""
        names = [n for n, at in self.relays.items() if now - at < REACH_LIFE and n in usable]
        return min(names) if names else None

    def path(self, now: float, usable: set[str]) -> str:
        """Describe the path, for people."""
        if self.session is None:
            return "not reached"
        if self.direct(now):
            mtu = self.mtu(now)
            ways = [f"udp {mtu}"] if mtu else []
            return " ".join([*ways, "tcp"] if self.conn is not None else ways)
        relay = self.relay(now, usable)
        return f"through {relay}" if relay else "not reached"

    def offer(self, fresh: bytes, cluster: bytes, status: bytes) -> Greeting:
        """Return a greeting that begins a session."""
        self._offer = self._offer or fresh
        return Greeting(self._offer, b"", False, cluster, status)

    def answer(self, greeting: Greeting, fresh: bytes) -> tuple[bool, Answer | None]:
        """Handle a greeting. Return whether it began a session, and the answer to send, if any."""
        if self.session is not None and (greeting.offer, greeting.echo) == self._pair:
            return False, None if greeting.done else Answer(greeting.echo, greeting.offer, True)
        self._offer = self._offer or fresh
        if greeting.echo != self._offer:
            return False, Answer(self._offer, greeting.offer, False)
        self._pair = (greeting.offer, greeting.echo)
        self.session = self._keys.session(self._me, self.tag, self._offer, greeting.offer)
        mine, self._offer = self._offer, b""
        return True, Answer(mine, greeting.offer, True)

    def open(self, packet: Packet) -> bytes:
        """Open a packet of the session. Raises SealError."""
        if self.session is None:
            raise SealError("there is no session yet")
        return self.session.open(packet)


def room(mtu: int) -> int:
    """Return the space for messages in a datagram of this size."""
    return mtu - OVERHEAD - 8
