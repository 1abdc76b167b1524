"""Everything fails at random under a mixed load: ``python -m tests.faults.storm --seconds 600``.

A cluster of real processes, each on a machine of its own (:mod:`tests.faults.network`), and clients
with a mixed load (:mod:`tests.faults.mixed`). Processes are killed, terminated or stopped; machines are
cut off; packets from one machine to another are lost; one or two faults are active at a time. In the
end everything is healed. Then no client may have ended, all invariants hold, ``neoctl check`` finds no
difference, and replicas are equal row by row.
"""

from __future__ import annotations

import argparse
import configparser
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from ZODB.DB import DB

from neo.client import Storage
from neo.protocol.enums import NodeState, NodeType
from neo.protocol.packets import AskNodeList
from tests.faults.machines import MachineCluster
from tests.faults.mixed import check_end, prepare
from tests.faults.mixed_load import Load
from tests.faults.network import HUB, Machine, Network, isolated
from tests.faults.operator import findings
from tests.faults.rows import check_equal
from tests.support import mariadb, seeds
from tests.support.standstill import stand_still

STORAGES, REPLICAS, PARTITIONS, CLIENTS = 4, 1, 6, 4
MASTER_PORT = 2050


def configuration(
    folder: Path, network: Network, databases: Sequence[str]
) -> configparser.ConfigParser:
    masters = f"{network.machines['master1'].address}:{MASTER_PORT}"
    parser = configparser.ConfigParser(interpolation=None)
    parser["DEFAULT"] = {
        "cluster": "storm",
        "masters": masters,
        "partitions": str(PARTITIONS),
        "replicas": str(REPLICAS),
        "autostart": str(STORAGES),
        "adapter": "MySQL" if "@" in databases[0] else "SQLite",
    }
    parser["master1"] = {"bind": masters, "logfile": str(folder / "master1.log")}
    for number, database in enumerate(databases, 1):
        name = f"storage{number}"
        parser[name] = {
            "bind": f"{network.machines[name].address}:{MASTER_PORT + 1}",
            "logfile": str(folder / f"{name}.log"),
            "database": database,
        }
    parser["admin"] = {"bind": f"{HUB}:{MASTER_PORT + 2}", "logfile": str(folder / "admin.log")}
    return parser


# -- faults ----------------------------------------------------------------------------------------


class Fault(NamedTuple):
    """A fault. ``begin``, ``end``: seconds of the monotonic clock."""

    begin: float
    end: float
    what: str
    kind: str


class Storm:
    """Faults drawn from a seed. ``patient``: some last longer than any timeout for a peer."""

    def __init__(self, cluster: MachineCluster, load: Load, seed: int, patient: bool) -> None:
        self.cluster = cluster
        self.load = load
        self.faults: list[Fault] = []
        self._random = random.Random(seed)
        self._patient = patient

    def run(self, seconds: float) -> None:
        """Inject faults until ``seconds`` are over and the last fault is healed."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with ExitStack() as stack:
                for victim in self._victims():
                    stack.enter_context(self._fault(victim))
                # A fixed time: the cluster need not reach any state during the fault.
                time.sleep(self._seconds())
            self.load.wait_progress()
            if self._random.random() < 0.5:
                self.load.wait(self.cluster.complete, "some cell is not up to date")

    def vanish(self) -> None:
        """Let a machine disappear: no connection is closed, and no packet comes any more. Other nodes
        have copies of all its data. When it comes back later, it catches up."""
        name = self._random.choice([n for n in self.cluster.machines if n.startswith("storage")])
        machine = self.cluster.machines[name]
        begin = time.monotonic()
        print(f"{begin:.3f} {name} vanishes", flush=True)
        machine.unplug()
        self.load.wait_progress()
        self.load.wait(lambda: self._given_up(name), f"{name} is not given up")
        self.load.wait_progress()
        machine.plug()
        self.faults.append(Fault(begin, time.monotonic(), f"{name} vanishes", "vanished"))

    def _given_up(self, name: str) -> bool:
        """Return whether the others have given the node up."""
        number = int(name.removeprefix("storage"))
        address = self.cluster.conf.of_role("storage")[number - 1].address
        with self.cluster.admin() as admin:
            nodes = admin.ask(AskNodeList(NodeType.STORAGE)).node_list
        return any(row[1] == address and row[3] is NodeState.DOWN for row in nodes)

    def _victims(self) -> list[str]:
        names = [name for name in self.cluster.machines if not name.startswith("client")]
        return self._random.sample(names, self._random.choice((1, 1, 1, 2)))

    def _seconds(self) -> float:
        if self._patient and self._random.random() < 0.07:
            return 30 + 30 * self._random.random()
        return self._random.choice((0.05, 0.5, 2.0, 6.0)) * (0.5 + self._random.random())

    @contextmanager
    def _fault(self, name: str) -> Iterator[None]:
        kind = self._random.choice(sorted(KINDS))
        begin = time.monotonic()
        with KINDS[kind](self, name) as what:
            print(f"{begin:.3f} {what}", flush=True)
            yield
        self.faults.append(Fault(begin, time.monotonic(), what, kind))

    @contextmanager
    def killed(self, name: str) -> Iterator[str]:
        self.cluster.kill(name)
        yield f"{name} is killed"
        self.cluster.restart(name)

    @contextmanager
    def terminated(self, name: str) -> Iterator[str]:
        self.cluster.terminate(name)
        yield f"{name} ends"
        self.cluster.restart(name)

    @contextmanager
    def stopped(self, name: str) -> Iterator[str]:
        process = self.cluster.processes[name]
        stand_still(process.pid)
        yield f"{name} stands still"
        process.send_signal(signal.SIGCONT)

    @contextmanager
    def cut_off(self, name: str) -> Iterator[str]:
        machine = self.cluster.machines[name]
        machine.unplug()
        yield f"{name} is cut off"
        machine.plug()

    def _other(self, name: str) -> tuple[str, Machine]:
        other = self._random.choice([other for other in self.cluster.machines if other != name])
        return other, self.cluster.machines[other]

    @contextmanager
    def one_way(self, name: str) -> Iterator[str]:
        """Lose packets in one direction, perhaps where the master does not notice it."""
        other, its = self._other(name)
        machine = self.cluster.machines[name]
        machine.lose(its)
        yield f"what {name} sends to {other} is lost"
        machine.find(its)

    @contextmanager
    def both_ways(self, name: str) -> Iterator[str]:
        other, its = self._other(name)
        machine = self.cluster.machines[name]
        machine.lose(its)
        its.lose(machine)
        yield f"{name} and {other} lose what they send to each other"
        its.find(machine)
        machine.find(its)


KINDS = {
    "killed": Storm.killed,
    "terminated": Storm.terminated,
    "stopped": Storm.stopped,
    "cut off": Storm.cut_off,
    "lost one way": Storm.one_way,
    "lost both ways": Storm.both_ways,
}


# -- report ----------------------------------------------------------------------------------------


class Gap(NamedTuple):
    """A time without any acknowledged commit."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


def longest_gap(times: Sequence[float]) -> Gap:
    """Return the longest gap between two of these times. Raise ValueError for fewer than two."""
    times = sorted(times)
    return max(map(Gap, times, times[1:]), key=lambda gap: gap.seconds)


def report(faults: Sequence[Fault], load: Load, done: Counter[str]) -> str:
    """Return a text with the faults, the acknowledged transactions, and the longest gap."""
    times = [[e.when for e in j.acknowledged.entries()] for j in load.journals]
    everybody = [when for of_client in times for when in of_client]
    lines = [
        "faults: " + ", ".join(f"{n} {kind}" for kind, n in Counter(f.kind for f in faults).items()),
        "acknowledged: " + ", ".join(f"{n} {kind}" for kind, n in sorted(done.items())),
        f"commits a second: {len(everybody) / (max(everybody) - min(everybody)):.1f}",
    ]
    gaps = {"any client": longest_gap(everybody)}
    gaps |= {f"client {client}": longest_gap(of_client) for client, of_client in enumerate(times)}
    for who, gap in gaps.items():
        during = [
            f"{fault.what} for {fault.end - fault.begin:.1f} s"
            for fault in faults
            if fault.begin < gap.end and fault.end > gap.begin
        ]
        lines.append(
            f"longest time without a commit of {who}: {gap.seconds:.1f} s"
            f" (from {gap.begin:.3f}; {'; '.join(during) or 'nothing failed'})"
        )
    return "\n".join(lines)


# -- the whole -------------------------------------------------------------------------------------


@contextmanager
def databases(backend: str, folder: Path) -> Iterator[list[str]]:
    """Yield the settings ``database`` of the storage nodes."""
    numbers = range(1, STORAGES + 1)
    if backend == "sqlite":
        yield [str(folder / f"storage{number}.sqlite") for number in numbers]
        return
    with mariadb.running_server() as server:
        yield [server.create_database() for _ in numbers]


def run(folder: Path, backend: str, seconds: float, seed: int) -> str:
    """Run the storm. Return the report. Raise AssertionError, Violation."""
    nodes = ["master1", *(f"storage{n}" for n in range(1, STORAGES + 1))]
    with ExitStack() as stack:
        network = Network([*nodes, *(f"client{n}" for n in range(CLIENTS))])
        stack.callback(network.close)
        names = stack.enter_context(databases(backend, folder))
        conf = configuration(folder, network, names)
        cluster = stack.enter_context(MachineCluster(folder, network, conf))
        prepare(Storage(cluster.masters, cluster.name), CLIENTS)
        prefixes = [network.machines[f"client{n}"].prefix for n in range(CLIENTS)]
        load = Load(cluster.masters, cluster.name, folder, prefixes, seed)
        stack.callback(load.kill)
        storm = Storm(cluster, load, seed, patient=seconds > 120)
        load.wait_progress()
        storm.run(seconds)
        load.wait(cluster.complete, "some cell is not up to date")
        storm.vanish()
        load.wait_progress()
        load.wait(cluster.complete, "some cell is not up to date")
        load.stop()
        db = DB(Storage(cluster.masters, cluster.name))
        try:
            done = check_end(db.open(), folder, CLIENTS)
        finally:
            db.close()
        assert findings(cluster.admin_address) == {"equal": PARTITIONS}
        cluster.stop_all()
        check_equal(cluster.conf.path, PARTITIONS, REPLICAS + 1)
        return report(storm.faults, load, done)


def command(folder: Path, backend: str, seconds: float, seed: int) -> list[str]:
    """Return the command that runs a storm on a network of its own. Raise NetworkError."""
    options = ["--backend", backend, "--seconds", str(seconds), "--seed", str(seed)]
    module = [sys.executable, "-m", "tests.faults.storm", "--inside", str(folder)]
    return isolated([*module, *options])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--seed", type=int, default=seeds.FIXED)
    parser.add_argument("--backend", choices=("sqlite", "mariadb"), default="sqlite")
    parser.add_argument("--inside", type=Path, metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside is not None:
        print(run(options.inside, options.backend, options.seconds, options.seed))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        told = command(Path(folder), options.backend, options.seconds, options.seed)
        print(f"--seed {options.seed}", flush=True)
        return subprocess.run(told).returncode


if __name__ == "__main__":
    sys.exit(main())
