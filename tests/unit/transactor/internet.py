"""A simulated network, and peers on it."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from functools import partial

from neo.transactor.codec import messages as codec
from neo.transactor.debug import ALL, Debug
from neo.transactor.links import Links
from neo.transactor.members import Address
from neo.transactor.messages import Ask, Message, Status

ASK = Ask(7)


class Internet:
    """Packets arrive at once, unless the test prevents it."""

    def __init__(self, *names: str, secret: str = "secret", **options: object) -> None:
        self.random = random.Random(1)
        self.now = 100.0
        #: Whether a datagram of this size gets from one node to another; whether streams work.
        self.datagrams: Callable[[str, str, int], bool] = lambda a, b, size: True
        self.streams: Callable[[str, str], bool] = lambda a, b: True
        #: Source address of a node's datagrams, if ports are mapped.
        self.mapped: dict[str, Address] = {}
        self.flying: deque[Callable[[], None]] = deque()
        #: Nodes whose streams swallow all data.
        self.swallowed: set[str] = set()
        self.tape: list[tuple[str, str, bytes]] = []
        self.counted: dict[str, int] = {"datagrams": 0, "streams": 0}
        self.conns: dict[int, tuple[Host, int, Host]] = {}
        self.hosts: dict[str, Host] = {}
        for port, name in enumerate(names):
            self.add(name, port, secret)
        for host in self.hosts.values():
            host.meet()

    def add(self, name: str, port: int, secret: str = "secret") -> Host:
        self.hosts[name] = Host(self, name, ("here", port), secret)
        return self.hosts[name]

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def run(self, seconds: float = 5.0) -> None:
        for _ in range(int(seconds / 0.1)):
            self.now += 0.1
            for host in list(self.hosts.values()):
                host.links.tick(self.now)
            self.drain()

    def drain(self) -> None:
        for _ in range(1000):
            if not self.flying:
                return
            self.flying.popleft()()
        raise AssertionError("packets without end")

    def cut(self, a: str, b: str) -> None:
        """Cut the path between two nodes."""
        datagrams, streams = self.datagrams, self.streams
        self.datagrams = lambda x, y, size: {x, y} != {a, b} and datagrams(x, y, size)
        self.streams = lambda x, y: {x, y} != {a, b} and streams(x, y)
        for conn, (host, other, peer) in list(self.conns.items()):
            if {host.name, peer.name} == {a, b} and conn in self.conns:
                host.close_stream(conn)
                host.links.disconnected(conn)
                assert other not in self.conns


class Host:
    """The network of one node."""

    def __init__(self, net: Internet, name: str, address: Address, secret: str) -> None:
        self.net = net
        self.name = name
        self.address = address
        self.got: list[tuple[str, Message]] = []
        self.cluster = b"cluster"
        self.status = Status(1, 1, False, False)
        self.debug = Debug(ALL)
        self.links = Links(
            name, secret, self, net.random.randbytes, self.receive,
            lambda: (self.cluster, codec.encode(self.status)), self.debug,
        )  # fmt: skip

    def meet(self) -> None:
        hosts = self.net.hosts.values()
        self.links.set_peers({host.name: host.address for host in hosts if host is not self})

    def receive(self, name: str, messages: list[Message]) -> None:
        self.got += [(name, message) for message in messages]

    def send_datagram(self, address: Address, data: bytes) -> None:
        for host in self.net.hosts.values():
            where = self.net.mapped.get(host.name, host.address)
            if where == address and self.net.datagrams(self.name, host.name, len(data)):
                self.net.tape.append((self.name, host.name, data))
                self.net.counted["datagrams"] += 1
                source = self.net.mapped.get(self.name, self.address)
                self.net.flying.append(partial(host.links.datagram, source, data))

    def send_stream(self, conn: int, data: bytes) -> None:
        if conn in self.net.conns and self.net.conns[conn][2].name not in self.net.swallowed:
            _, other, peer = self.net.conns[conn]
            self.net.counted["streams"] += 1
            self.net.flying.append(partial(peer.links.stream, other, data))

    def dial(self, name: str, address: Address) -> None:
        for host in self.net.hosts.values():
            if host.address == address and self.net.streams(self.name, host.name):
                conn = 2 * len(self.net.conns) + self.net.random.randrange(1 << 40) * 2
                self.net.conns[conn] = (self, conn + 1, host)
                self.net.conns[conn + 1] = (host, conn, self)
                host.links.connected(conn + 1, None)
                self.links.connected(conn, name)

    def close_stream(self, conn: int) -> None:
        if conn in self.net.conns:
            _, other, peer = self.net.conns.pop(conn)
            self.net.conns.pop(other, None)
            peer.links.disconnected(other)

    def send(self, name: str, message: Message = ASK) -> None:
        self.links.send(name, [message])

    def heard(self, name: str, message: Message = ASK) -> bool:
        self.net.drain()
        return (name, message) in self.got
