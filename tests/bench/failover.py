"""Measure how long applications wait when the primary is lost: ``python -m tests.bench.failover``.

Three masters and two storage nodes, real processes that sync, run in a network namespace of their own
each. A client commits one small transaction after the other. The primary is killed, stopped (SIGSTOP),
silently cut off from all machines, terminated, or commanded to hand over. Measured are the time until
the next commit is acknowledged, and the time until the admin node names the next primary and lists all
storage nodes as running under it.
"""

from __future__ import annotations

import argparse
import configparser
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import transaction
from ZODB.DB import DB

from neo.client import Storage
from neo.client.errors import NEOStorageError
from neo.protocol.enums import NodeState, NodeType
from neo.protocol.ids import nid_namespace
from neo.protocol.packets import AskNodeList, AskPrimary, SetPrimary
from tests.faults.machines import MachineCluster
from tests.faults.network import HUB, Network, isolated
from tests.support.cluster import AWAY
from tests.support.patience import PATIENCE_SECONDS, wait_until

MASTERS, STORAGES = 3, 2
PORT = 2050
#: Time between a recovery and the next loss of the primary, in which all masters hear that the primary
#: serves (it asks for a lease each 0.4 s). A master that has not heard it would wait longer.
QUIET_SECONDS = 1.0
M1 = nid_namespace(NodeType.MASTER) + 1
#: The groups of nodes whose waits are measured.
FOLLOWERS = ("applications", "admin and storage nodes")
WAYS = ("kill -9", "SIGSTOP", "cut off", "SIGTERM", "hand over")


def configure(folder: Path, network: Network) -> configparser.ConfigParser:
    """Return the content of neo.conf."""
    parser = configparser.ConfigParser(interpolation=None)
    machines = network.machines
    masters = [f"{machines[f'master{n + 1}'].address}:{PORT}" for n in range(MASTERS)]
    parser["DEFAULT"] = {
        "cluster": "failover",
        "masters": " ".join(masters),
        "partitions": "6",
        "replicas": "1",
        "autostart": str(STORAGES),
        "adapter": "SQLite",
    }
    for name, machine in machines.items():
        port = PORT + name.startswith("storage")
        parser[name] = {"bind": f"{machine.address}:{port}", "logfile": str(folder / f"{name}.log")}
        if name.startswith("storage"):
            parser[name]["database"] = str(folder / f"{name}.sqlite")
        else:
            parser[name]["election_log"] = str(folder / f"{name}.election")
    parser["admin"] = {"bind": f"{HUB}:{PORT + 2}", "logfile": str(folder / "admin.log")}
    return parser


class Counter:
    """A client that increments a number, and knows which commits were acknowledged."""

    def __init__(self, cluster: MachineCluster) -> None:
        self.db = DB(Storage(cluster.masters, cluster.name, wait_timeout=PATIENCE_SECONDS))
        self._connection = self.db.open()
        root: Any = self._connection.root()
        root["n"] = 0
        transaction.commit()
        self.acknowledged = 0

    def add(self) -> None:
        """Add one; repeat until a commit is acknowledged. An interrupted commit may have succeeded."""

        def committed() -> bool:
            transaction.abort()
            self._connection.sync()
            root: Any = self._connection.root()
            assert root["n"] >= self.acknowledged, "an acknowledged commit is lost"
            root["n"] = number = root["n"] + 1
            transaction.commit()
            self.acknowledged = number
            return True

        wait_until(committed, "no commit", excuses=(NEOStorageError,))

    def close(self) -> None:
        self._connection.close()
        self.db.close()


def settle(cluster: MachineCluster) -> str:
    """Wait until all nodes run and are up to date. Return the name of the primary's process."""

    def together() -> int | None:
        with cluster.admin() as admin:
            primary = admin.ask(AskPrimary()).primary_nid
        return primary if cluster.together() else None

    primary = wait_until(together, "the masters do not come together again", excuses=AWAY)
    cluster.wait_running(PATIENCE_SECONDS)
    wait_until(cluster.complete, "some cell is not up to date")
    return f"master{primary - M1 + 1}"


def lose(cluster: MachineCluster, how: str, name: str) -> None:
    """Let the primary fail."""
    process = cluster.processes[name]
    if how == "kill -9":
        cluster.kill(name)
    elif how == "SIGSTOP":
        process.send_signal(signal.SIGSTOP)
    elif how == "cut off":
        cluster.machines[name].unplug()
    elif how == "SIGTERM":
        process.send_signal(signal.SIGTERM)
    else:
        with cluster.admin() as admin:
            admin.ask(SetPrimary(M1 + int(name[-1]) % MASTERS))


def bring_back(cluster: MachineCluster, how: str, name: str) -> None:
    if how in ("kill -9", "SIGTERM"):
        cluster.restart(name)
    elif how == "SIGSTOP":
        cluster.processes[name].send_signal(signal.SIGCONT)
    elif how == "cut off":
        cluster.machines[name].plug()


def followed(cluster: MachineCluster, lost: int) -> float:
    """Return when the admin node and all storage nodes are connected to another primary than
    ``lost``."""

    def follow() -> float | None:
        with cluster.admin() as admin:
            if admin.ask(AskPrimary()).primary_nid == lost:
                return None
            nodes = admin.ask(AskNodeList(NodeType.STORAGE)).node_list
        return time.monotonic() if all(row[3] is NodeState.RUNNING for row in nodes) else None

    return wait_until(follow, "no node follows another primary", excuses=AWAY, poll=0.01)


def measure(
    cluster: MachineCluster, client: Counter, how: str, rounds: int
) -> dict[str, list[float]]:
    """Return, for each loss, the seconds without a commit, and until nodes have joined the next
    primary."""
    found: dict[str, list[float]] = {who: [] for who in FOLLOWERS}
    for _ in range(rounds):
        name = settle(cluster)
        settled = time.monotonic()
        while time.monotonic() - settled < QUIET_SECONDS:
            client.add()
        begin = time.monotonic()
        lose(cluster, how, name)
        with ThreadPoolExecutor(1) as others:
            late = others.submit(followed, cluster, M1 + int(name[-1]) - 1)
            client.add()
            ends = time.monotonic(), late.result()
        for who, end in zip(FOLLOWERS, ends, strict=True):
            found[who].append(end - begin)
        if how != "hand over":
            bring_back(cluster, how, name)
    return found


def inside(folder: Path, ways: list[str], rounds: int) -> dict[str, dict[str, list[float]]]:
    with ExitStack() as stack:
        nodes = [f"master{n + 1}" for n in range(MASTERS)]
        network = Network([*nodes, *(f"storage{n + 1}" for n in range(STORAGES))])
        stack.callback(network.close)
        cluster = stack.enter_context(MachineCluster(folder, network, configure(folder, network)))
        client = Counter(cluster)
        stack.callback(client.close)
        return {how: measure(cluster, client, how, rounds) for how in ways}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--ways", default=",".join(WAYS), help="some of: " + ", ".join(WAYS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--inside", type=Path, metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.inside is not None:
        found = inside(options.inside, options.ways.split(","), options.rounds)
        options.json.write_text(json.dumps(found))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "figures.json")
        module = [sys.executable, "-m", "tests.bench.failover", "--inside", folder]
        arguments = ["--rounds", str(options.rounds), "--ways", options.ways, "--json", str(path)]
        subprocess.run(isolated([*module, *arguments]), check=True)
        found = json.loads(path.read_text())
    if options.json is not None:
        options.json.write_text(json.dumps(found))
    print("| the primary is lost by | times |", *(f"{who}, median | worst |" for who in FOLLOWERS))
    print("|---|---|" + "---|---|" * len(FOLLOWERS))
    for how, times in found.items():
        cells = [
            f"{statistics.median(times[who]):.2f} s | {max(times[who]):.2f} s" for who in FOLLOWERS
        ]
        print(f"| {how} | {len(times[FOLLOWERS[0]])} | {' | '.join(cells)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
