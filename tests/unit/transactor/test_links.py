"""Links between peers on an imagined network: paths, sealing, replays, and who is believed."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from functools import partial

import pytest

from neo.transactor.codec import messages as codec
from neo.transactor.debug import ALL, Debug
from neo.transactor.link import MTU_SIZES
from neo.transactor.links import SILENT_SECONDS, STRANGER_SECONDS, Links
from neo.transactor.members import Address
from neo.transactor.messages import Ask, Data, Message, Nack, Sid, Spec, Status
from neo.transactor.sealing import Keys, SealError, parse, relayed, tag

ASK = Ask(7)


class Internet:
    """Packets arrive at once, unless the test forbids it."""

    def __init__(self, *names: str, secret: str = "secret", **options: object) -> None:
        self.random = random.Random(1)
        self.now = 100.0
        #: Whether a datagram of this size gets from one to the other; whether streams work.
        self.datagrams: Callable[[str, str, int], bool] = lambda a, b, size: True
        self.streams: Callable[[str, str], bool] = lambda a, b: True
        #: A datagram of this node seems to come from there.
        self.mapped: dict[str, Address] = {}
        self.flying: deque[Callable[[], None]] = deque()
        #: Streams to these swallow everything.
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
        """Nothing gets through between these two."""
        datagrams, streams = self.datagrams, self.streams
        self.datagrams = lambda x, y, size: {x, y} != {a, b} and datagrams(x, y, size)
        self.streams = lambda x, y: {x, y} != {a, b} and streams(x, y)
        for conn, (host, other, peer) in list(self.conns.items()):
            if {host.name, peer.name} == {a, b} and conn in self.conns:
                host.close_stream(conn)
                host.links.disconnected(conn)
                assert other not in self.conns


class Host:
    """A node's network."""

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


def big(size: int) -> Message:
    return Data(Spec(Sid(0, 1), 0, bytes(size)))


def test_the_status_comes_first_and_messages_arrive_in_one_packet() -> None:
    net = Internet("a", "b")
    net.run()
    assert net["a"].got[0] == ("b", Status(1, 1, False, False))
    assert net["a"].links.paths() == {"b": "udp 8972 tcp"}
    before = net.counted["datagrams"]
    net["a"].links.send("b", [Ask(n) for n in range(1, 40)])
    assert net.counted["datagrams"] == before + 1
    net.drain()
    assert net["b"].got[-39:] == [("a", Ask(n)) for n in range(1, 40)]


@pytest.mark.parametrize("limit", [*MTU_SIZES, 0])
def test_the_path_mtu_is_one_of_five_sizes_and_bigger_packets_take_tcp(limit: int) -> None:
    net = Internet("a", "b")
    net.datagrams = lambda x, y, size: size <= limit
    net.run()
    assert net["a"].links.links["b"].mtu(net.now) == limit
    before = dict(net.counted)
    net["a"].send("b", big(300))
    net["a"].send("b", big(100_000))
    assert net["b"].heard("a", big(300)) and net["b"].heard("a", big(100_000))
    assert net.counted["streams"] - before["streams"] == (1 if limit else 2)


def test_when_a_path_shrinks_the_next_smaller_size_is_used() -> None:
    net = Internet("a", "b")
    net.run()
    net.datagrams = lambda x, y, size: size <= 1300
    net.run(8)
    assert net["a"].links.paths() == {"b": "udp 1232 tcp"}
    net.datagrams = lambda x, y, size: True
    net.run(3)
    assert net["a"].links.paths() == {"b": "udp 8972 tcp"}


def test_without_tcp_udp_is_enough_for_small_messages() -> None:
    net = Internet("a", "b")
    net.streams = lambda x, y: False
    net.run()
    net["b"].send("a")
    net["b"].send("a", big(100_000))
    assert net["a"].heard("b") and not net["a"].heard("b", big(100_000))


def test_two_peers_who_cannot_see_each_other_use_a_third() -> None:
    net = Internet("a", "b", "c")
    net.cut("a", "b")
    net.run()
    assert net["a"].links.paths()["b"] == "through c"
    net["a"].send("b")
    net["b"].send("a", big(50_000))
    assert net["b"].heard("a") and net["a"].heard("b", big(50_000))


def test_a_stream_that_swallows_everything_is_left_and_closed() -> None:
    net = Internet("a", "b", "c")
    net.run()
    net.datagrams = lambda x, y, size: "b" not in (x, y) or "c" in (x, y)
    net.swallowed = {"b"}
    net.run(8)
    net["a"].send("b")
    assert net["b"].heard("a")
    assert net["a"].links.paths()["b"] == "through c"
    before = set(net.conns)
    net.run(6)
    assert before - set(net.conns)  # and another is dialled


def test_a_cut_between_two_peers_is_got_around_after_a_while() -> None:
    net = Internet("a", "b", "c")
    net.run()
    assert net["a"].links.paths()["b"] == "udp 8972 tcp"
    net.cut("a", "b")
    net.run(10)
    net["a"].send("b")
    assert net["b"].heard("a")


def test_peers_on_one_host_and_behind_mapped_ports_are_told_apart_by_their_names() -> None:
    net = Internet("a", "b", "c")
    net.mapped["b"] = ("gateway", 4000)  # nobody has that address in a list
    net.streams = lambda x, y: False
    net.run()
    for sender, receiver in (("a", "b"), ("b", "a"), ("c", "b"), ("a", "c")):
        net[sender].send(receiver)
        assert net[receiver].heard(sender)


def test_a_peer_with_another_key_is_refused() -> None:
    net = Internet("a", "b")
    net.add("c", 2, "wrong")
    for host in net.hosts.values():
        host.meet()
    net.run()
    net["c"].send("a")
    assert {name for name, _ in net["a"].got} == {"b"}
    assert net["a"].links.refused > 0


def test_a_peer_that_began_with_other_members_is_refused() -> None:
    net = Internet("a", "b", "c")
    net["c"].cluster = b"another"
    net.run()
    assert net["a"].links.paths()["c"] == "not reached"
    net["c"].cluster = b""  # it does not know yet
    net.run()
    assert net["a"].links.paths()["c"] != "not reached"


def test_who_is_not_a_member_is_not_heard() -> None:
    net = Internet("a", "b")
    net.run()
    net["a"].links.set_peers({})
    net["b"].send("a", Ask(99))
    assert not net["a"].heard("b", Ask(99))


def test_a_member_with_another_address_is_found_there() -> None:
    net = Internet("a", "b")
    net.run()
    net["b"].address = ("elsewhere", 9)
    net["a"].links.set_peers({"b": ("elsewhere", 9)})
    net.run()
    net["a"].send("b")
    assert net["b"].heard("a")


def test_replayed_packets_are_refused_in_this_session_and_in_later_ones() -> None:
    net = Internet("a", "b")
    net.run()
    net["a"].send("b", Ask(1))
    net.drain()
    tape = [data for sender, receiver, data in net.tape if receiver == "b"]
    count = net["b"].got.count(("a", Ask(1)))
    refused = net["b"].links.refused
    for data in tape:
        net["b"].links.datagram(("attacker", 1), data)
    net.drain()
    assert net["b"].got.count(("a", Ask(1))) == count == 1
    assert net["b"].links.refused > refused
    assert net["b"].links.links["a"].udp_address == net["a"].address
    # b starts again: nothing of the old sessions is good.
    old = net["b"].address
    net.hosts["b"] = Host(net, "b", old, "secret")
    net["b"].meet()
    for data in tape:
        net["b"].links.datagram(("attacker", 1), data)
    net.drain()
    assert net["b"].got == []
    net.run()
    net["a"].send("b", Ask(2))
    assert net["b"].heard("a", Ask(2)) and not net["b"].heard("a", Ask(1))


def test_every_flipped_bit_is_seen() -> None:
    keys = Keys("secret", random.Random(2).randbytes)
    a, b = tag("a"), tag("b")
    out, back = keys.session(a, b, b"1" * 16, b"2" * 16), keys.session(b, a, b"2" * 16, b"1" * 16)
    data = out.seal(b"content")
    for at in range(len(data)):
        for bit in range(8):
            if at != 3:  # counts relays
                wrong = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
                with pytest.raises(SealError):
                    packet = parse(wrong)
                    if packet.to != b or packet.sender != a:
                        raise SealError("somebody else's")
                    back.open(packet)
    assert back.open(parse(relayed(data))) == b"content"
    with pytest.raises(SealError, match="before"):
        back.open(parse(data))


def test_packets_may_overtake_each_other_within_a_window() -> None:
    keys = Keys("", random.Random(2).randbytes)
    a, b = tag("a"), tag("b")
    out, back = keys.session(a, b, b"1" * 16, b"2" * 16), keys.session(b, a, b"2" * 16, b"1" * 16)
    packets = [out.seal(b"%d" % n) for n in range(1200)]
    assert back.open(parse(packets[1199])) == b"1199"
    assert back.open(parse(packets[600])) == b"600"
    for late in (600, 1199, 3):
        with pytest.raises(SealError, match="before"):
            back.open(parse(packets[late]))


def test_equal_messages_do_not_look_equal() -> None:
    net = Internet("a", "b")
    net.run()
    net.tape.clear()
    net["a"].send("b")
    net["a"].send("b")
    net.drain()
    first, second = [data for _, receiver, data in net.tape if receiver == "b"][-2:]
    assert first[28:] != second[28:]


def test_a_stream_that_was_opened_before_the_session_is_used_soon() -> None:
    net = Internet("a", "b")
    net.run()
    net["a"].dial("b", net["b"].address)
    lost = net.flying.pop()  # what would have said whose it is
    assert lost is not None
    net.run(2)
    for one, other in (("a", "b"), ("b", "a")):
        conn = net[one].links.links[other].conn
        assert conn is not None and conn in net.conns


def test_garbage_does_no_harm() -> None:
    net = Internet("a", "b")
    net.run()
    chance = random.Random(3)
    for _ in range(300):
        net["a"].links.datagram(("attacker", 1), chance.randbytes(chance.randrange(200)))
        whole = bytearray(chance.choice(net.tape)[2])
        whole[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        net["a"].links.datagram(("attacker", 1), bytes(whole))
    net["b"].send("a")
    assert net["a"].heard("b")


def test_a_stream_of_a_stranger_is_closed() -> None:
    net = Internet("a", "b")
    closed: list[int] = []
    net["a"].close_stream = closed.append  # type: ignore[method-assign, assignment]
    net["a"].links.connected(99, None)
    net["a"].links.stream(99, b"\0\0\xff\xff")
    net["a"].links.connected(98, None)
    net.run(STRANGER_SECONDS + 1)
    assert closed == [99, 98]


def test_a_peer_that_starts_again_is_greeted_again() -> None:
    net = Internet("a", "b")
    net.run()
    net.hosts["b"] = Host(net, "b", ("here", 1), "secret")
    net["b"].meet()
    net["b"].status = Status(5, 2, False, False)
    net.run(SILENT_SECONDS + 3)
    net["a"].send("b")
    net["b"].send("a")
    assert net["b"].heard("a") and net["a"].heard("b")
    assert net["a"].heard("b", Status(5, 2, False, False))


def test_debug_flags_show_both_directions_and_who_comes_and_goes() -> None:
    net = Internet("a", "b", "c")
    lines: list[str] = []
    net["a"].debug.write = lines.append

    def shown(flag: str) -> str:
        return "\n".join(line for line in lines if line.startswith(flag + ": "))

    net.run()
    assert shown("connectivity").splitlines() == [f"connectivity: {n} is connected" for n in "bc"]
    assert "peerdi: b reaches c" in lines
    lines.clear()
    net["a"].send("b")
    net.drain()
    assert "to b: Ask(tid=7)" in shown("msg_payload")
    assert "bytes to ('here', 1)" in shown("pl_sendreceive") and "sealed" in shown("pl_packets")
    assert "bytes for b" in shown("pl_queueing")
    lines.clear()
    net["b"].send("a", Nack(7, 1))
    net.drain()
    assert "from b: Nack(" in shown("msg_payload") and "from b: Nack(" in shown("msg_arrived")
    assert "from b: Nack(" in shown("msg_ackobs")
    assert "bytes from ('here', 1)" in shown("pl_sendreceive") and "opened" in shown("pl_packets")
    lines.clear()
    net.cut("a", "b")
    net.run()
    assert shown("connectivity") == "connectivity: b is not connected any more"
    assert "lost the connection with b" in shown("pl_connection")
