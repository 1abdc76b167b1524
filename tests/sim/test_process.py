"""Simulated processes: what ends with them, events that wait while they are stopped, their clocks."""

from __future__ import annotations

from neo.node.core import Core
from neo.node.handler import Handler, on
from neo.node.peer import Peer
from neo.protocol.packets import Message, Ping, Pong
from neo.storage.backend.api import BackendFailure
from tests.simulator.network import Network
from tests.simulator.process import RESTART_SECONDS, Process, SimNodeHost
from tests.simulator.world import World


class Answering(Handler):
    def __init__(self) -> None:
        self.lost_peers: list[str] = []

    def lost(self, peer: Peer, reason: str) -> None:
        self.lost_peers.append(reason)

    @on(Ping)
    def ping(self, peer: Peer, message_id: int, m: Ping) -> Message:
        return Pong()


class Node(Core):
    must_identify = False

    def __init__(self, host: SimNodeHost) -> None:
        super().__init__(host)
        self.handler = Answering()

    def stranger_handler(self) -> Handler:
        return self.handler


class Disk:
    crashes = 0

    def crash(self) -> None:
        self.crashes += 1


class Pair:
    """Two nodes; the first has dialed the second."""

    def __init__(self) -> None:
        self.world = World(0)
        self.network = Network(self.world)
        self.disk = Disk()
        self.a = Process(self.world, self.network, "a", ("127.0.0.1", 1), Node)
        self.b = Process(self.world, self.network, "b", ("127.0.0.1", 2), Node, self.disk)
        self.a.start()
        self.b.start()
        self.handler = Answering()
        self.answers: list[object] = []
        self.peer = self.node(self.a).dial(self.b.address, self.handler)
        self.world.run(1.0)

    @staticmethod
    def node(process: Process) -> Node:
        assert isinstance(process.core, Node)
        return process.core

    def ask(self) -> None:
        core = self.node(self.a)
        self.peer.ask(Ping()).then(lambda future: self.answers.append(future))
        core.flush()


def test_nodes_talk() -> None:
    pair = Pair()
    pair.ask()
    pair.world.run(1.0)
    assert len(pair.answers) == 1


def test_a_killed_process_is_noticed_by_its_peers_and_its_machine_crashes() -> None:
    pair = Pair()
    pair.b.kill()
    pair.world.run(1.0)
    assert pair.handler.lost_peers == ["reset by the peer"]
    assert pair.disk.crashes == 1 and not pair.b.alive


def test_nothing_happens_in_a_process_after_its_death() -> None:
    pair, seen = Pair(), list[str]()
    pair.node(pair.b).call_later(0.5, lambda: seen.append("timer of the dead"))
    pair.b.kill()
    pair.b.start()
    pair.world.run(2.0)
    assert not seen and pair.b.lives == 2


def test_a_process_that_is_stopped_by_a_signal_does_its_work_later() -> None:
    pair = Pair()
    pair.b.pause()
    pair.ask()
    pair.world.run(5.0)
    assert not pair.answers and not pair.handler.lost_peers
    pair.b.resume()
    pair.world.run(1.0)
    assert len(pair.answers) == 1


def test_connections_to_a_stopped_process_wait_in_the_kernel() -> None:
    pair = Pair()
    pair.b.pause()
    pair.peer = pair.node(pair.a).dial(pair.b.address, pair.handler)
    pair.ask()
    pair.world.run(2.0)
    assert not pair.answers
    pair.b.resume()
    pair.world.run(1.0)
    assert len(pair.answers) == 1


def test_clocks_differ_by_process_and_timers_do_not_care() -> None:
    pair, fired = Pair(), list[float]()
    pair.b.clock_skew = -5000.0
    a, b = pair.node(pair.a).host, pair.node(pair.b).host
    assert a.time() - b.time() == 5000.0
    assert a.monotonic() == b.monotonic()
    pair.node(pair.b).call_later(2.0, lambda: fired.append(pair.world.now))
    start = pair.world.now
    pair.world.run(3.0)
    assert fired == [start + 2.0]


def test_a_core_that_cannot_be_made_is_made_again_later() -> None:
    world, failures = World(0), [BackendFailure("disk full")]

    def make(host: SimNodeHost) -> Node:
        if failures:
            raise failures.pop()
        return Node(host)

    process = Process(world, Network(world), "a", ("127.0.0.1", 1), make)
    process.start()
    assert not process.alive
    world.run(RESTART_SECONDS + 0.1)
    assert process.alive and process.core is not None
