"""Links between peers on a simulated network: sealing, replays, authentication."""

from __future__ import annotations

import random

import pytest

from neo.transactor.links import STRANGER_SECONDS
from neo.transactor.messages import Ask
from neo.transactor.sealing import Keys, SealError, parse, relayed, tag
from tests.unit.transactor.internet import Host, Internet


def test_a_peer_with_another_key_is_refused() -> None:
    """Specification 20.31."""
    net = Internet("a", "b")
    net.add("c", 2, "wrong")
    for host in net.hosts.values():
        host.meet()
    net.run()
    net["c"].send("a")
    assert {name for name, _ in net["a"].got} == {"b"}
    assert net["a"].links.refused > 0


def test_a_peer_that_began_with_other_members_is_refused() -> None:
    """Specification 20.32."""
    net = Internet("a", "b", "c")
    net["c"].cluster = b"another"
    net.run()
    assert net["a"].links.paths()["c"] == "not reached"
    net["c"].cluster = b""  # it does not know yet
    net.run()
    assert net["a"].links.paths()["c"] != "not reached"


def test_packets_of_strangers_are_refused() -> None:
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
    """Specification 20.32, 20.36."""
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
    """Specification 20.30."""
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
    with pytest.raises(SealError, match="duplicate"):
        back.open(parse(data))


def test_packets_may_overtake_each_other_within_a_window() -> None:
    """Specification 20.33."""
    keys = Keys("", random.Random(2).randbytes)
    a, b = tag("a"), tag("b")
    out, back = keys.session(a, b, b"1" * 16, b"2" * 16), keys.session(b, a, b"2" * 16, b"1" * 16)
    packets = [out.seal(b"%d" % n) for n in range(1200)]
    assert back.open(parse(packets[1199])) == b"1199"
    assert back.open(parse(packets[600])) == b"600"
    for late in (600, 1199, 3):
        with pytest.raises(SealError, match="duplicate"):
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
