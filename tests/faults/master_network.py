"""Three masters and two storage nodes, each on a machine of its own, whose links are cut.

``python -m tests.faults.master_network --inside FOLDER`` cuts every set of masters from the others, and
every one-way path, while writers write: see :mod:`tests.faults.test_master_network`. Run in namespaces of
its own (:func:`tests.faults.network.isolated`).
"""

from __future__ import annotations

import argparse
import configparser
import re
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from itertools import permutations
from pathlib import Path
from typing import Any

import transaction
from ZODB.DB import DB

from neo.client import Storage
from neo.client.errors import NEOStorageError
from neo.protocol.enums import NodeType
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import nid_namespace
from neo.protocol.packets import AskElection, AskPrimary
from neo.simple import Cluster
from neo.simple.conf import NodeConf
from neoctl.client import AdminAway
from tests.faults.network import HUB, Network, isolated

MASTERS, STORAGES = 3, 2
PORT = 2050
DEADLINE_SECONDS = 60
M1 = nid_namespace(NodeType.MASTER) + 1


class MasterCluster(Cluster):
    """Its nodes run on machines of the network; the admin node, and we, on the hub."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.machines = network.machines
        parser = configparser.ConfigParser(interpolation=None)
        masters = [f"{network.machines[f'master{n + 1}'].address}:{PORT}" for n in range(MASTERS)]
        parser["DEFAULT"] = {
            "cluster": "cut",
            "masters": " ".join(masters),
            "partitions": "6",
            "replicas": "1",
            "autostart": str(STORAGES),
            "adapter": "SQLite",
        }
        for name, machine in network.machines.items():
            parser[name] = {
                "bind": f"{machine.address}:{PORT + name.startswith('storage')}",
                "logfile": str(folder / f"{name}.log"),
            }
            if name.startswith("storage"):
                parser[name]["database"] = str(folder / f"{name}.sqlite")
            else:
                parser[name]["election_log"] = str(folder / f"{name}.election")
        parser["admin"] = {"bind": f"{HUB}:{PORT + 2}", "logfile": str(folder / "admin.log")}
        with open(folder / "neo.conf", "x") as file:
            parser.write(file)
        super().__init__(folder)

    def command(self, node: NodeConf) -> list[str]:
        machine = self.machines.get(node.name)
        return [*(machine.prefix if machine else ()), *super().command(node)]

    def primary(self) -> str:
        """The name of its process. Waits."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            try:
                with self.admin() as admin:
                    return f"master{admin.ask(AskPrimary()).primary_nid - M1 + 1}"
            except (AdminAway, ErrorAnswer):
                assert time.monotonic() < deadline, "no primary"
                time.sleep(0.05)

    def settle(self) -> None:
        """Until all masters run and know all, and all storage nodes are used."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            try:
                with self.admin() as admin:
                    if not any(row[4] for row in admin.ask(AskElection()).master_list):
                        break
            except (AdminAway, ErrorAnswer):
                pass
            assert time.monotonic() < deadline, "the masters do not come together again"
            time.sleep(0.05)
        self.wait_running(DEADLINE_SECONDS)


class Counter:
    """A client that adds one, and knows what was acknowledged."""

    def __init__(self, cluster: Cluster) -> None:
        self.db = DB(Storage(cluster.masters, cluster.name, wait_timeout=DEADLINE_SECONDS))
        self._connection = self.db.open()
        root: Any = self._connection.root()
        root["n"] = 0
        transaction.commit()
        self.acknowledged = 0

    def add(self) -> None:
        """Until it is acknowledged. What was interrupted may have happened."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            try:
                self._connection.sync()
                root: Any = self._connection.root()
                assert root["n"] >= self.acknowledged, "an acknowledged commit is lost"
                root["n"] = number = root["n"] + 1
                transaction.commit()
                self.acknowledged = number
                return
            except NEOStorageError:
                transaction.abort()
                assert time.monotonic() < deadline, "no commit"
                time.sleep(0.02)

    def close(self) -> None:
        self._connection.close()
        self.db.close()


def reigns(cluster: Cluster) -> list[tuple[datetime, datetime, int, str]]:
    """(begin, end, epoch, master) of each time that a master served, by the clock of this machine."""
    found = []
    for number in range(1, MASTERS + 1):
        name = f"master{number}"
        begin: tuple[datetime, int] | None = None
        last = datetime.min
        for line in cluster.log(name).read_text().splitlines():
            stamp = re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}", line)
            if stamp is None:
                continue
            last = datetime.fromisoformat(stamp[0])
            epoch = re.search(r"this master is the primary, M\d, in epoch (\d+)", line)
            if epoch is not None:
                begin = last, int(epoch[1])
            elif "this master is not the primary any more" in line and begin is not None:
                found.append((begin[0], last, begin[1], name))
                begin = None
        if begin is not None:
            found.append((begin[0], datetime.max, begin[1], name))
    return sorted(found)


def check_reigns(cluster: Cluster) -> int:
    """Never two at once, never two in one epoch; how many there were."""
    seen = reigns(cluster)
    for (_, end, epoch, name), (begin, _, epoch2, name2) in zip(seen, seen[1:], strict=False):
        assert end <= begin, f"{name} in epoch {epoch} until {end}, {name2} from {begin}"
        assert epoch < epoch2 or (epoch == epoch2 and name == name2), seen
    return len(seen)


def cuts(cluster: MasterCluster) -> dict[str, list[tuple[str, str]]]:
    """Name -> the ways (from, to) on which everything is lost."""
    names = [f"master{n + 1}" for n in range(MASTERS)]
    pairs = list(permutations(names, 2))
    found = {f"{a} says nothing to {b}": [(a, b)] for a, b in pairs}
    for name in names:
        found[f"{name} alone"] = [pair for pair in pairs if name in pair]
        found[f"{name} hears nobody"] = [pair for pair in pairs if pair[1] == name]
    found["all apart"] = pairs
    return found


def run(folder: Path, seconds: float) -> str:
    """The report. Raises AssertionError."""
    lines = []
    with ExitStack() as stack:
        nodes = [f"master{n + 1}" for n in range(MASTERS)]
        network = Network([*nodes, *(f"storage{n + 1}" for n in range(STORAGES))])
        stack.callback(network.close)
        cluster = stack.enter_context(MasterCluster(folder, network))
        client = Counter(cluster)
        stack.callback(client.close)
        for what, ways in cuts(cluster).items():
            machines = [(network.machines[a], network.machines[b]) for a, b in ways]
            for machine, other in machines:
                machine.lose(other)
            worst = _commit_for(seconds, client.add, what != "all apart")
            for machine, other in machines:
                machine.find(other)
            client.add()
            cluster.settle()
            check_reigns(cluster)
            lines.append(f"{what}: longest commit {worst:.2f} s")
        lines.append(f"{check_reigns(cluster)} times a master served, never two at once")
    return "\n".join(lines)


def _commit_for(seconds: float, add: Callable[[], None], possible: bool) -> float:
    """Commit for a while, if that is possible; the longest time that one took."""
    end = time.monotonic() + seconds
    worst = 0.0
    while (begin := time.monotonic()) < end:
        if possible:
            add()
        else:
            time.sleep(seconds)
        worst = max(worst, time.monotonic() - begin)
    return worst


def command(folder: Path, seconds: float) -> list[str]:
    """What runs it on a network of its own. Raises NetworkError."""
    module = [sys.executable, "-m", "tests.faults.master_network", "--inside", str(folder)]
    return isolated([*module, "--seconds", str(seconds)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--inside", type=Path, metavar="FOLDER", required=True)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    print(run(options.inside, options.seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
