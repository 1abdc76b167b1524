"""How long applications wait when the primary master is lost: ``python -m tests.bench.failover``.

Three masters and two storage nodes, real processes, each on a machine of its own (network namespaces),
with syncs. A client commits one small transaction after the other. The primary is killed, stopped
(SIGSTOP), cut off from everybody without a word, asked to end, or told to hand over; what is measured is
the time from then until the next commit is acknowledged.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from neo.protocol.packets import SetPrimary
from tests.faults.master_network import M1, MASTERS, STORAGES, Counter, MasterCluster
from tests.faults.network import Network, isolated

WAYS = ("kill -9", "SIGSTOP", "cut off", "SIGTERM", "hand over")


def lose(cluster: MasterCluster, how: str, name: str) -> None:
    """Take the primary away."""
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


def bring_back(cluster: MasterCluster, how: str, name: str) -> None:
    if how in ("kill -9", "SIGTERM"):
        cluster.restart(name)
    elif how == "SIGSTOP":
        cluster.processes[name].send_signal(signal.SIGCONT)
    elif how == "cut off":
        cluster.machines[name].plug()


def measure(cluster: MasterCluster, client: Counter, how: str, rounds: int) -> list[float]:
    """Seconds without a commit, each time."""
    found = []
    for _ in range(rounds):
        cluster.settle()
        for _ in range(20):
            client.add()
        name = cluster.primary()
        begin = time.monotonic()
        lose(cluster, how, name)
        client.add()
        found.append(time.monotonic() - begin)
        if how != "hand over":
            bring_back(cluster, how, name)
    return found


def inside(folder: Path, ways: list[str], rounds: int) -> dict[str, list[float]]:
    with ExitStack() as stack:
        nodes = [f"master{n + 1}" for n in range(MASTERS)]
        network = Network([*nodes, *(f"storage{n + 1}" for n in range(STORAGES))])
        stack.callback(network.close)
        cluster = stack.enter_context(MasterCluster(folder, network))
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
    print("| the primary is lost by | times | median | worst |")
    print("|---|---|---|---|")
    for how, seconds in found.items():
        median, worst = statistics.median(seconds), max(seconds)
        print(f"| {how} | {len(seconds)} | {median:.2f} s | {worst:.2f} s |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
