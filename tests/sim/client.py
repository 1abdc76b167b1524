"""A simulated client process without a cluster, for tests."""

from __future__ import annotations

from random import Random

from tests.simulator.clients import ClientProcess, SimHost
from tests.simulator.clock import Clock
from tests.simulator.network import End, Network
from tests.simulator.threads import Threads
from tests.simulator.world import World

ADDRESS = ("127.0.0.1", 1)


class Server:
    host = "server"

    def __init__(self) -> None:
        self.ends: list[End] = []

    def accepted(self, end: End) -> None:
        self.ends.append(end)


class Client:
    """A process with a thread that reads the bytes of a server."""

    def __init__(self, rate: float = 1.0) -> None:
        self.world = world = World(0)
        network = Network(world)
        clock = Clock(world, Random(0))
        clock.boot()
        clock.rate = rate
        self.server = network.listeners[ADDRESS] = Server()
        self.process = ClientProcess(world, network, Threads(world), "client", clock=clock)
        self.host = SimHost(self.process)
        self.read = b""

    def reads(self) -> None:
        wire = self.host.connect(ADDRESS, None)
        portions: list[bytes] = []
        while wire.receive(portions, wait=True) and portions[-1]:
            self.read += portions[-1]
