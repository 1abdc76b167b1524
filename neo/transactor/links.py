"""The network of a node, without sockets: sealed packets in datagrams and streams.

Each packet takes the best path: UDP, if the peer answered a probe of at least its size lately; else
TCP; else a relay, that is a third peer that reaches it. A packet without a path is dropped; the engine
resends. Peers are identified by the name in sealed packets, not by address, so several may share an
address, and ports may be mapped. A greeting proves nothing, because it may be replayed; only a packet
that was sealed for the current session proves its sender.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Annotated, NamedTuple, Protocol

from msgspec import Meta

from neo.transactor.codec import messages as codec
from neo.transactor.codec import pack, typed, unpack
from neo.transactor.debug import Debug
from neo.transactor.members import Address
from neo.transactor.messages import Ack, Message, Nack
from neo.transactor.sealing import (
    GREETING,
    NUMBER_SIZE,
    OVERHEAD,
    Keys,
    Packet,
    SealedSession,
    SealError,
    parse,
    relayed,
    tag,
)

#: Probed sizes of UDP payload: the minimum of every host, the minimum of IPv6, tunnels, Ethernet, jumbo
#: frames.
MTU_SIZES = (508, 1232, 1400, 1472, 8972)
#: Seconds for which the answer to a probe counts.
PROBE_LIFE = 6.0
#: Seconds for which a peer counts as reachable after it was heard, or was reported by a relay.
REACH_LIFE = 3.0
#: Interval of greetings to a peer without a session, or to a silent one; interval of dials.
GREET_SECONDS = 0.4
DIAL_SECONDS = 1.0
#: A session without a packet for this long is offered anew.
SILENT_SECONDS = 1.5
#: Interval of probes of all sizes; interval of notes about reachable peers.
PROBE_SECONDS = 2.0
REACH_SECONDS = 1.0
#: A packet passes one relay at most, because relays are chosen among peers with a direct path.
HOPS_MAX = 1
#: A stream without a packet for this long is broken: peers send something every second.
BROKEN_SECONDS = 10.0
LENGTH = struct.Struct(">I")
#: The longest packet on a stream: the largest specification, with some reserve.
STREAM_MAX = 72 * 1024 * 1024
#: Before a stream has proved its peer, it may carry a greeting, and not for longer than this.
STRANGER_MAX = 4096
STRANGER_SECONDS = 10.0

MESSAGES, PROBE, PROBED, REACH = range(4)


class Greeting(NamedTuple):
    offer: Annotated[bytes, Meta(min_length=NUMBER_SIZE, max_length=NUMBER_SIZE)]
    echo: bytes
    #: The sender has begun this session already.
    done: bool
    #: A digest of the first members, empty if they are unknown; the status of the engine.
    cluster: bytes
    status: bytes


class PeerLink:
    """The session with one peer, and the paths to it. Times are seconds of the owner's clock.

    A session needs a random number from each side. A greeting offers one, and echoes the other side's. A
    node that receives its own offer as echo knows that the greeting is no replay, and begins the session.
    Each offer is used once.
    """

    def __init__(self, name: str, address: Address, me: str, keys: Keys) -> None:
        self.name = name
        self.tag = tag(name)
        #: From the configuration or the list of members; and the source of its datagrams (port mapping).
        self.address = address
        self.udp_address = address
        self.session: SealedSession | None = None
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

    def offer(self, cluster: bytes, status: bytes) -> Greeting:
        """Return a greeting that begins a session."""
        self._offer = self._offer or self._keys.number()
        return Greeting(self._offer, b"", False, cluster, status)

    def answer(
        self, greeting: Greeting, cluster: bytes, status: bytes
    ) -> tuple[bool, Greeting | None]:
        """Handle a greeting. Return whether it began a session, and the answer to send, if any."""
        theirs = greeting.offer
        if self.session is not None and (theirs, greeting.echo) == self._pair:
            again = Greeting(greeting.echo, theirs, True, cluster, status)
            return False, None if greeting.done else again
        mine = self._offer = self._offer or self._keys.number()
        if greeting.echo != mine:
            return False, Greeting(mine, theirs, False, cluster, status)
        self._pair = (theirs, mine)
        self.session = self._keys.session(self._me, self.tag, mine, theirs)
        self._offer = b""
        return True, Greeting(mine, theirs, True, cluster, status)

    def seal(self, kind: int, value: object) -> bytes:
        """Return a packet of the session, which exists."""
        assert self.session is not None
        return self.session.seal(bytes([kind]) + pack(value))

    def open(self, packet: Packet) -> bytes:
        """Open a packet of the session. Raises SealError."""
        if self.session is None:
            raise SealError("there is no session yet")
        return self.session.open(packet)


class Transport(Protocol):
    """Sockets. No method raises: failures are reported by callbacks, or the data is lost."""

    def send_datagram(self, address: Address, data: bytes) -> None: ...

    def send_stream(self, conn: int, data: bytes) -> None: ...

    def dial(self, name: str, address: Address) -> None:
        """Connect to a peer; :meth:`Links.connected` follows if that succeeds."""

    def close_stream(self, conn: int) -> None: ...


class Links:
    def __init__(
        self,
        name: str,
        secret: str,
        transport: Transport,
        random_bytes: Callable[[int], bytes],
        receive: Callable[[str, list[Message]], None],
        greeting: Callable[[], tuple[bytes, bytes]],
        debug: Debug,
        udp: bool = True,
        mtu_limit: int = MTU_SIZES[-1],
    ) -> None:
        """``receive`` takes the name of the sender and its messages; the status from its greeting comes
        first. ``greeting`` returns a digest of the first members, and the encoded status of the
        engine."""
        self.name = name
        self.links: dict[str, PeerLink] = {}
        self.now = 0.0
        self._me = tag(name)
        self._keys = Keys(secret, random_bytes)
        self._transport = transport
        self._receive = receive
        self._greeting = greeting
        self._debug = debug
        self._sizes = [size for size in MTU_SIZES if udp and size <= mtu_limit]
        self._by_tag: dict[bytes, PeerLink] = {}
        self._streams: dict[int, bytearray] = {}
        self._owners: dict[int, PeerLink] = {}
        self._opened: dict[int, float] = {}
        self._probed = self._reached = -1e9
        #: Messages of the packet that is being parsed.
        self._arrived: list[Message] = []
        #: Peers that the debug messages have reported as connected.
        self._shown: set[str] = set()
        #: Counters for the operator: refused packets, and sent packets of messages.
        self.refused = self.sent = 0

    def set_peers(self, peers: dict[str, Address]) -> None:
        """Keep links to exactly these peers."""
        for name in self.links.keys() - peers.keys():
            link = self.links.pop(name)
            if link.conn is not None:
                self._drop_stream(link.conn)
        for name, address in peers.items():
            if name not in self.links:
                self.links[name] = PeerLink(name, address, self.name, self._keys)
            elif self.links[name].address != address:
                link = self.links[name]
                link.address = link.udp_address = address
                link.probed.clear()
                if link.conn is not None:
                    self._drop_stream(link.conn)
        self._by_tag = {link.tag: link for link in self.links.values()}

    def paths(self) -> dict[str, str]:
        """Describe the path to each peer, for people."""
        direct = self._direct()
        return {name: link.path(self.now, direct) for name, link in self.links.items()}

    # -- out ---------------------------------------------------------------------------------------

    def send(self, name: str, messages: list[Message]) -> None:
        """Send messages in as few packets as possible."""
        link = self.links.get(name)
        if link is None or link.session is None:
            return
        space = (link.mtu(self.now) or MTU_SIZES[-1]) - OVERHEAD - 8
        bundle: list[bytes] = []
        size = 0
        for message in messages:
            self._show(message, f"to {name}", "msg_payload")
            data = codec.encode(message)
            if bundle and size + len(data) > space:
                self._send_body(link, MESSAGES, bundle)
                bundle, size = [], 0
            bundle.append(data)
            size += len(data) + 5
        if bundle:
            self._send_body(link, MESSAGES, bundle)

    def _show(self, message: Message, way: str, *flags: str) -> None:
        if isinstance(message, Ack | Nack):
            flags += ("msg_ackobs",)
        for flag in flags:
            if self._debug.shows(flag):
                self._debug(flag, f"{way}: {message!r:.200}")

    def _send_body(self, link: PeerLink, kind: int, value: object) -> None:
        self.sent += kind == MESSAGES
        data = link.seal(kind, value)
        self._debug("pl_packets", f"sealed {len(data)} bytes for {link.name}")
        self._send_packet(link, data)

    def _send_packet(self, link: PeerLink, data: bytes) -> None:
        """Send over the best path; drop the packet if there is none."""
        self._debug("pl_queueing", f"{len(data)} bytes for {link.name}")
        relay = None
        if len(data) > link.mtu(self.now) and not link.direct(self.now):
            relay = self._relay_to(link)
        if relay is not None:
            self._debug("peerdi", f"to {link.name} through {relay.name}")
        self._send_direct(relay or link, data)

    def _send_direct(self, link: PeerLink, data: bytes) -> None:
        if len(data) <= link.mtu(self.now):
            self._datagram(link.udp_address, data)
        elif link.conn is not None:
            self._write(link.conn, data)

    def _write(self, conn: int, data: bytes) -> None:
        self._debug("pl_sendreceive", f"{len(data)} bytes to stream {conn}")
        self._transport.send_stream(conn, LENGTH.pack(len(data)) + data)

    def _datagram(self, address: Address, data: bytes) -> None:
        self._debug("pl_sendreceive", f"{len(data)} bytes to {address}")
        self._transport.send_datagram(address, data)

    def _relay_to(self, link: PeerLink) -> PeerLink | None:
        return self.links.get(link.relay(self.now, self._direct()) or "")

    def _heard(self) -> list[str]:
        """Return the names of peers that are heard without a relay; the peers are told that list."""
        return sorted(n for n, link in self.links.items() if link.heard_directly(self.now))

    def _direct(self) -> set[str]:
        return {name for name, link in self.links.items() if link.direct(self.now)}

    # -- time --------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Greet, dial, probe and clean up. ``now``: monotonic seconds."""
        self.now = now
        if self._debug.shows("connectivity"):
            self._show_changes()
        for conn, opened in list(self._opened.items()):
            if conn not in self._owners and now - opened > STRANGER_SECONDS:
                self._drop_stream(conn)
        for link in self.links.values():
            if link.conn is not None and now - link.conn_heard > BROKEN_SECONDS:
                self._drop_stream(link.conn)
            silent = link.session is None or now - link.heard > SILENT_SECONDS
            if silent and now - link.greeted >= GREET_SECONDS:
                link.greeted = now
                self._greet(link, link.offer(*self._greeting()))
            if link.conn is None and self.name < link.name and now - link.dialled >= DIAL_SECONDS:
                link.dialled = now
                self._transport.dial(link.name, link.address)
        if now - self._probed >= PROBE_SECONDS:
            self._probed = now
            for link in self.links.values():
                self._probe(link)
        if now - self._reached >= REACH_SECONDS:
            self._reached = now
            direct = self._heard()
            for link in self.links.values():
                if link.session is not None:
                    self._send_body(link, REACH, direct)
                    if link.conn is not None:
                        # A sealed packet proves to the other side which peer owns the stream.
                        self._write(link.conn, link.seal(REACH, direct))

    def _show_changes(self) -> None:
        before, self._shown = self._shown, self._direct()
        for name in sorted(self._shown ^ before):
            what = "is connected" if name in self._shown else "is not connected any more"
            self._debug("connectivity", f"{name} {what}")

    def _probe(self, link: PeerLink) -> None:
        for size in self._sizes if link.session is not None else []:
            assert link.session is not None
            padding = bytes([PROBE]) + size.to_bytes(2, "big")
            self._datagram(
                link.udp_address, link.session.seal(padding.ljust(size - OVERHEAD, b"\0"))
            )

    def _greet(self, link: PeerLink, greeting: Greeting) -> None:
        """Send a greeting over all paths, because it is not known yet which of them work."""
        data = self._seal_greeting(link, greeting)
        if self._sizes:
            self._datagram(link.udp_address, data)
            if link.udp_address != link.address:
                self._datagram(link.address, data)
        if link.conn is not None:
            self._write(link.conn, data)
        relay = self._relay_to(link)
        if relay is not None:
            self._send_direct(relay, data)

    def _seal_greeting(self, link: PeerLink, greeting: Greeting) -> bytes:
        return self._keys.seal_greeting(link.tag, self._me, pack(greeting))

    # -- in ----------------------------------------------------------------------------------------

    def datagram(self, address: Address, data: bytes) -> None:
        self._debug("pl_sendreceive", f"{len(data)} bytes from {address}")
        link = self._packet(data, lambda reply: self._datagram(address, reply))
        if link is not None:
            link.udp_address = address

    def connected(self, conn: int, name: str | None) -> None:
        """Add a stream to ``name``, or one from an unknown peer."""
        self._streams[conn] = bytearray()
        self._opened[conn] = self.now
        link = self.links.get(name) if name is not None else None
        if link is not None:
            self._own(conn, link)
            if link.session is None:
                self._greet(link, link.offer(*self._greeting()))
            else:
                self._write(conn, link.seal(REACH, self._heard()))

    def disconnected(self, conn: int) -> None:
        self._streams.pop(conn, None)
        self._opened.pop(conn, None)
        link = self._owners.pop(conn, None)
        if link is not None and link.conn == conn:
            link.conn = None
            self._debug("pl_connection", f"lost the connection with {link.name}")

    def stream(self, conn: int, data: bytes) -> None:
        buffer = self._streams.get(conn)
        if buffer is None:
            return
        self._debug("pl_readwrite", f"{len(data)} bytes from stream {conn}")
        buffer += data
        while len(buffer) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(buffer)
            if length > (STREAM_MAX if conn in self._owners else STRANGER_MAX):
                self._drop_stream(conn)
                return
            if len(buffer) < LENGTH.size + length:
                return
            packet = bytes(buffer[LENGTH.size : LENGTH.size + length])
            del buffer[: LENGTH.size + length]
            self._debug("pl_sendreceive", f"{length} bytes from stream {conn}")
            link = self._packet(packet, lambda reply: self._write(conn, reply))
            if link is not None:
                if self._owners.get(conn) is not link:
                    self._own(conn, link)
                link.conn_heard = self.now

    def _own(self, conn: int, link: PeerLink) -> None:
        """Assign the stream to the peer. A newer stream replaces an older one."""
        if link.conn is not None and link.conn != conn:
            self._drop_stream(link.conn)
        link.conn = conn
        link.conn_heard = self.now
        self._owners[conn] = link
        self._debug("pl_connection", f"connected with {link.name}")

    def _drop_stream(self, conn: int) -> None:
        self.disconnected(conn)
        self._transport.close_stream(conn)

    def _packet(self, data: bytes, reply: Callable[[bytes], None]) -> PeerLink | None:
        """Handle a packet. Return the peer if it provably sent the packet now, without a relay."""
        self._arrived = []
        try:
            packet = parse(data)
            link = self._by_tag.get(packet.sender)
            if link is None:
                raise SealError("the sender is not a member")
            if packet.to != self._me:
                self._relay(packet, data)
                return None
            if packet.kind == GREETING:
                if not self._on_greeting(link, packet, reply):
                    return None
            else:
                body = link.open(packet)
                self._debug("pl_packets", f"opened {len(data)} bytes of {link.name}")
                self._on_body(link, body, reply)
        except (SealError, ValueError, TypeError) as e:
            self.refused += 1
            self._debug("pl_packets", f"a packet was refused: {e}")
            return None
        link.heard = self.now
        if packet.hops == 0:
            link.heard_direct = self.now
        if self._arrived:
            self._receive(link.name, self._arrived)
        return link if packet.hops == 0 else None

    def _relay(self, packet: Packet, data: bytes) -> None:
        target = self._by_tag.get(packet.to)
        if target is not None and packet.hops < HOPS_MAX:
            self._send_direct(target, relayed(data))

    def _on_greeting(self, link: PeerLink, packet: Packet, reply: Callable[[bytes], None]) -> bool:
        """Handle a greeting. Return whether it began a session."""
        greeting = typed(Greeting, unpack(self._keys.open_greeting(packet)))
        cluster, status = self._greeting()
        if cluster and greeting.cluster and greeting.cluster != cluster:
            raise SealError(f"{link.name} began with other members: its configuration differs")
        begun, answer = link.answer(greeting, cluster, status)
        if begun:
            self._debug("pl_connection", f"a session with {link.name}")
            self._arrived = [codec.decode(greeting.status)]
        if answer is not None and packet.hops == 0:
            reply(self._seal_greeting(link, answer))
        elif answer is not None:
            self._greet(link, answer)
        if begun:
            self._probe(link)
        return begun

    def _on_body(self, link: PeerLink, body: bytes, reply: Callable[[bytes], None]) -> None:
        kind = body[0]
        if kind == PROBE and link.session is not None:
            reply(link.seal(PROBED, int.from_bytes(body[1:3], "big")))
            return
        value = unpack(body[1:])
        if kind == MESSAGES:
            self._arrived = [codec.decode(each) for each in value]
            for message in self._arrived:
                self._show(message, f"from {link.name}", "msg_arrived", "msg_payload")
        elif kind == PROBED and value in self._sizes:
            link.probed[value] = self.now
        elif kind == REACH:
            link.hears = self.name in value
            for name in value:
                if name in self.links and name != link.name:
                    if link.name not in self.links[name].relays:
                        self._debug("peerdi", f"{link.name} reaches {name}")
                    self.links[name].relays[link.name] = self.now
