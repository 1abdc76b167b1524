"""Several masters in the simulator: their log and their election, without storage nodes."""

from __future__ import annotations

from random import Random

from neo.master.election.leadership import Tenure
from neo.master.election.node import MasterNode
from neo.master.primary import PrimaryMaster
from neo.master.settings import MasterSettings
from neo.node.host import Host
from neo.node.known_masters import RememberedMasters
from neo.protocol.packets import Address
from tests.simulator.log_disk import LogPlatter, SimLogDisk
from tests.simulator.network import Network
from tests.simulator.process import Process, SimNodeHost
from tests.simulator.world import World

PORT = 10000


class Masters:
    def __init__(
        self, count: int, seed: int = 0, configured: int | None = None, replicas: int = 0
    ) -> None:
        """``configured``: number of masters in the setting ``masters``; the others join later."""
        self.world = World(seed)
        self.replicas = replicas
        self.network = Network(self.world)
        self.addresses: list[Address] = [("127.0.0.1", PORT + i) for i in range(count)]
        self.configured = self.addresses[:configured]
        self.platters = [LogPlatter(Random(seed * 100 + i)) for i in range(count)]
        #: The files in which some of them keep the list of masters.
        self.remembered: dict[int, RememberedMasters] = {}
        self.processes = [self._process(i) for i in range(count)]
        #: Observed leaderships: (epoch, name of the process).
        self.served: set[tuple[int, str]] = set()

    def _process(self, i: int) -> Process:
        platter = self.platters[i]

        def make(host: SimNodeHost) -> MasterNode:
            later = host.call_later
            masters = self.configured
            if self.addresses[i] not in masters:
                masters = [*masters, self.addresses[i]]
            settings = MasterSettings("test", masters, partitions=4, replicas=self.replicas)
            remembered = self.remembered.get(i)

            def make_primary(host: Host, tenure: Tenure) -> PrimaryMaster:
                return PrimaryMaster(host, settings, self.addresses[i], tenure)

            disk = SimLogDisk(platter, later)
            address = self.addresses[i]
            return MasterNode(host, "test", masters, address, disk, make_primary, remembered)

        return Process(self.world, self.network, f"m{i}", self.addresses[i], make, platter)

    @classmethod
    def elected(cls, count: int = 3, *, configured: int | None = None) -> Masters:
        """Return masters of which one serves; those that are not configured are not started."""
        masters = cls(count, configured=configured)
        masters.start(*range(configured or count))
        masters.until_serving()
        masters.run(1)
        return masters

    def others(self, but: int | None = None) -> list[int]:
        """Return the masters but one, which is the primary unless it is said."""
        but = self.serving()[0] if but is None else but
        return [i for i in range(len(self.processes)) if i != but]

    def start(self, *which: int) -> None:
        for i in which or range(len(self.processes)):
            self.processes[i].start()

    def core(self, i: int) -> MasterNode:
        core = self.processes[i].core
        assert isinstance(core, MasterNode)
        return core

    def primary(self) -> PrimaryMaster:
        """The primary master that serves."""
        primary = self.core(self.serving()[0]).primary
        assert isinstance(primary, PrimaryMaster)
        return primary

    def cores(self) -> list[MasterNode]:
        return [p.core for p in self.processes if isinstance(p.core, MasterNode)]

    def serving(self) -> list[int]:
        """Return the masters that may serve now, by their own judgement, even if they are paused."""
        return [
            i
            for i, process in enumerate(self.processes)
            if isinstance(process.core, MasterNode)
            and (candidate := process.core.candidate) is not None
            and candidate.tenure is not None
            and candidate.tenure.left() > 0
        ]

    def check(self) -> None:
        """Check that there is one primary at most, one per epoch, and that logs are prefixes of one."""
        serving = self.serving()
        assert len(serving) <= 1, f"{self.world.now}: {serving} serve at once"
        for i in serving:
            candidate = self.core(i).candidate
            assert candidate is not None and candidate.tenure is not None
            self.served.add((candidate.tenure.epoch, self.processes[i].name))
        epochs = [epoch for epoch, _ in self.served]
        assert len(epochs) == len(set(epochs)), self.served
        logs = sorted((p.entries for p in self.platters), key=len)
        for shorter, longer in zip(logs, logs[1:], strict=False):
            assert longer[: len(shorter)] == shorter

    def run(self, seconds: float) -> None:
        end = self.world.now + seconds
        while self.world.step(end):
            self.check()
        self.world.now = end

    def until_serving(self, seconds: float = 10.0, but: int | None = None) -> int:
        """Run until a master serves, and return it."""
        end = self.world.now + seconds
        while True:
            serving = [i for i in self.serving() if i != but]
            if serving:
                return serving[0]
            assert self.world.step(end), f"nobody serves after {seconds} s"
            self.check()

    def cut(self, i: int, *others: int) -> None:
        for j in others:
            self.network.cut(f"m{i}", f"m{j}")
            self.network.cut(f"m{j}", f"m{i}")
