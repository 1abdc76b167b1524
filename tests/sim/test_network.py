"""The simulated network: streams keep their order, links are cut and healed, connections end."""

from __future__ import annotations

import pytest

from tests.simulator.network import DIAL_SECONDS, HELD_SECONDS_MAX, End, Network
from tests.simulator.world import World

ADDRESS = ("127.0.0.1", 1)


class Sink:
    """A receiver that keeps what arrives."""

    def __init__(self, end: End) -> None:
        self.data = b""
        self.ended: str | None = None
        self.end = end
        end.receiver = self

    def received(self, data: bytes) -> None:
        assert self.ended is None
        self.data += data

    def lost(self, reason: str) -> None:
        assert self.ended is None
        self.ended = reason


class Server:
    def __init__(self, host: str) -> None:
        self.host = host
        self.sinks: list[Sink] = []

    def accepted(self, end: End) -> None:
        self.sinks.append(Sink(end))


class Net:
    """Two hosts, a server on ``b``."""

    def __init__(self, seed: int = 0) -> None:
        self.world = World(seed)
        self.network = Network(self.world)
        self.server = Server("b")
        self.network.listeners[ADDRESS] = self.server
        self.failed: list[str] = []

    def dial(self, seconds: float = DIAL_SECONDS) -> Sink:
        made: list[Sink] = []
        self.network.connect("a", ADDRESS, lambda end: made.append(Sink(end)), self.failed.append)
        self.world.run(seconds)
        return made[0]

    def run(self, seconds: float = 1.0) -> None:
        self.world.run(seconds)


@pytest.mark.parametrize("seed", range(5))
def test_bytes_arrive_in_order_whole_and_both_ways(seed: int) -> None:
    net = Net(seed)
    net.network.split_probability = 0.5
    client, server = net.dial(), net.server.sinks[0]
    sent = [bytes([n]) * (n + 1) for n in range(50)]
    for data in sent:
        client.end.write(data)
        server.end.write(data[::-1])
    net.run()
    assert client.data == server.data == b"".join(sent)


def test_nobody_listening_is_refused() -> None:
    net = Net()
    del net.network.listeners[ADDRESS]
    with pytest.raises(IndexError):
        net.dial()
    assert net.failed == ["connection refused by 127.0.0.1:1"]


@pytest.mark.parametrize("cut", [("a", "b"), ("b", "a")])
def test_a_dial_over_a_cut_link_times_out(cut: tuple[str, str]) -> None:
    net = Net()
    net.network.cut(*cut)
    with pytest.raises(IndexError):
        net.dial()
    net.run()
    assert net.failed == ["no answer"]


def test_a_cut_is_one_way_and_what_was_held_arrives_when_it_heals() -> None:
    net = Net()
    client, server = net.dial(), net.server.sinks[0]
    net.network.cut("a", "b")
    client.end.write(b"one ")
    client.end.write(b"two")
    server.end.write(b"back")
    net.run()
    assert (server.data, client.data) == (b"", b"back")
    net.network.heal()
    net.run()
    assert server.data == b"one two"


def test_a_cut_that_lasts_ends_the_connection_on_both_ends() -> None:
    net = Net()
    client, server = net.dial(), net.server.sinks[0]
    net.network.cut("a", "b")
    client.end.write(b"never")
    net.run(HELD_SECONDS_MAX + 1)
    assert (client.ended, server.ended) == ("timed out", "timed out")
    net.network.heal()
    net.run()
    assert server.data == b""


def test_what_was_written_before_a_close_arrives_before_the_end() -> None:
    net = Net()
    client, server = net.dial(), net.server.sinks[0]
    client.end.write(b"last words")
    client.end.close()
    net.run()
    assert (server.data, server.ended) == (b"last words", "closed by the peer")
    assert client.ended is None  # the client closed it


def test_a_close_over_a_cut_link_is_heard_of_when_it_heals() -> None:
    net = Net()
    client, server = net.dial(), net.server.sinks[0]
    net.network.cut("a", "b")
    client.end.write(b"last words")
    client.end.close()
    net.run()
    assert (server.data, server.ended) == (b"", None)
    net.network.heal()
    net.run()
    assert (server.data, server.ended) == (b"last words", "closed by the peer")


def test_a_reset_loses_what_is_held() -> None:
    net = Net()
    client, server = net.dial(), net.server.sinks[0]
    net.network.cut("a", "b")
    client.end.write(b"lost")
    client.end.reset("reset by the peer")
    net.network.heal()
    net.run()
    assert (server.data, server.ended) == (b"", "reset by the peer")


def test_nothing_leaves_a_closed_end() -> None:
    net = Net()
    client, server = net.dial(), net.server.sinks[0]
    server.end.close()
    net.run()
    client.end.write(b"too late")
    net.run()
    assert (client.ended, server.data) == ("closed by the peer", b"")


def test_a_slow_link_takes_its_time_in_one_direction() -> None:
    net = Net()
    client, server = net.dial(), net.server.sinks[0]
    net.network.slow("a", "b", 2.0)
    client.end.write(b"slow")
    server.end.write(b"fast")
    net.run(0.5)
    assert (client.data, server.data) == (b"fast", b"")
    net.run(40)
    assert server.data == b"slow"


@pytest.mark.parametrize("seed", range(20))
def test_what_waits_for_one_late_portion_arrives_in_order(seed: int) -> None:
    # At small times, differences of times are rounded most.
    net = Net(seed)
    sink = net.dial(seconds=0.01)
    net.network.slow("a", "b", 1.0)
    sink.end.write(b"late")
    net.network.slow("a", "b", 0.001)
    for number in range(100):
        net.run(net.world.random.random() * 0.001)
        sink.end.write(bytes([number]))
    net.run(20.0)
    assert net.server.sinks[0].data == b"late" + bytes(range(100))


def test_a_connection_that_is_reset_ends_on_both_sides_and_loses_what_is_on_its_way() -> None:
    net = Net()
    near = net.dial()
    far = net.server.sinks[0]
    near.end.write(b"lost")
    (connection,) = net.network.connections
    connection.sever()
    net.run()
    assert near.ended == far.ended == "reset by the network"
    assert far.data == b"" and not net.network.connections


@pytest.mark.parametrize("seed", range(5))
def test_an_end_that_is_not_read_from_keeps_what_arrives_in_order(seed: int) -> None:
    net = Net(seed)
    near = net.dial()
    (far,) = net.server.sinks
    sent: list[int] = []
    near.end.sent = lambda: sent.append(near.end.unsent)
    far.end.pause_reading()
    for part in range(10):
        near.end.write(b"%d" % part * 10)
        net.run(0.001)
    net.run()
    assert far.data == b"" and not sent
    assert near.end.unsent == 100
    far.end.resume_reading()
    near.end.write(b"last")
    net.run()
    assert far.data == b"".join(b"%d" % part * 10 for part in range(10)) + b"last"
    assert near.end.unsent == sent[-1] == 0
