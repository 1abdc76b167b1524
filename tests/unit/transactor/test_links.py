"""Links between peers on a simulated network: paths, sizes, streams."""

from __future__ import annotations

import pytest

from neo.transactor.links import MTU_SIZES, SILENT_SECONDS
from neo.transactor.messages import Ask, Data, Message, Nack, Sid, Spec, Status
from tests.unit.transactor.internet import Host, Internet


def big(size: int) -> Message:
    return Data(Spec(Sid(0, 1), 0, bytes(size)))


def test_the_status_comes_first_and_messages_arrive_in_one_packet() -> None:
    """Specification 20.23."""
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
    """Specification 20.35."""
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


def test_two_peers_without_a_path_use_a_third_as_relay() -> None:
    """Specification 20.2, 20.35."""
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
    net.mapped["b"] = ("gateway", 4000)  # an address that is in no list
    net.streams = lambda x, y: False
    net.run()
    for sender, receiver in (("a", "b"), ("b", "a"), ("c", "b"), ("a", "c")):
        net[sender].send(receiver)
        assert net[receiver].heard(sender)


def test_a_stream_that_was_opened_before_the_session_is_used_soon() -> None:
    net = Internet("a", "b")
    net.run()
    net["a"].dial("b", net["b"].address)
    lost = net.flying.pop()  # the packet that would have identified the peer
    assert lost is not None
    net.run(2)
    for one, other in (("a", "b"), ("b", "a")):
        conn = net[one].links.links[other].conn
        assert conn is not None and conn in net.conns


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


def test_debug_flags_show_both_directions_and_connections() -> None:
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
