"""Measure the cost of a decision of the transactor: ``python -m tests.bench.transactor``.

Real processes that sync, on loopback. Packets per peer are those of the whole cluster for one decision,
without heartbeats, divided by the number of peers of a node; the normal case needs three.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from neo.transactor.client import Transactor
from tests.support.patience import wait_until
from tests.support.slow_network import SlowNetwork
from tests.support.transactors import Transactors

IDLE_SECONDS = 2.0
#: Decisions before the measurement, until connections exist and code is warm.
WARM = 20


class Figures(NamedTuple):
    peers: int
    #: Delay of each packet, in milliseconds.
    delay: float
    decisions_per_second: float
    median_ms: float
    worst_ms: float
    packets_per_peer: float


def _sent(cluster: Transactors) -> int:
    total = 0
    for daemon in cluster.daemons.values():
        lines = dict(line.split(": ", 1) for line in daemon.say("dump").splitlines())
        total += int(lines["packets sent"])
    return total


def measure(peers: int, delay: float, decisions: int, folder: Path) -> Figures:
    """Measure one cluster. ``delay`` in seconds."""
    cluster = Transactors(folder, peers)
    network = None
    if delay:
        # Each node is known to the others by a port of the slow network, and listens on its own.
        targets = {name: daemon.ports["peer"] for name, daemon in cluster.daemons.items()}
        network = SlowNetwork(targets, delay)
        for name, daemon in cluster.daemons.items():
            daemon.settings["bind"] = f"127.0.0.1:{targets[name]}"
            daemon.ports["peer"] = network.ports[name]
    with cluster:
        client = Transactor(cluster["a"].service, lambda tid, data: tid)
        for n in range(WARM if not delay else 2):
            client.execute(b"warm %d" % n, 60)
        before = _sent(cluster)
        time.sleep(IDLE_SECONDS)
        idle = (_sent(cluster) - before) / IDLE_SECONDS
        times: list[float] = []
        before, begun = _sent(cluster), time.monotonic()
        for n in range(decisions):
            at = time.perf_counter()
            client.execute(b"transaction %d" % n, 60)
            times.append(time.perf_counter() - at)
        took = time.monotonic() - begun
        wait_until(
            lambda: all(
                d.info("tlog tid") == str(client.tid - 1) for d in cluster.daemons.values()
            ),
            str,
        )
        packets = _sent(cluster) - before - idle * (time.monotonic() - begun)
        client.close()
    if network is not None:
        network.close()
    return Figures(
        peers, delay * 1000, decisions / took, statistics.median(times) * 1000, max(times) * 1000,
        packets / decisions / (peers - 1),
    )  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.transactor", description=__doc__)
    parser.add_argument("--peers", default="3,5", help="sizes of clusters (default: 3,5)")
    parser.add_argument(
        "--delays", default="0,40", help="added delays in milliseconds (default: 0,40)"
    )
    parser.add_argument("--decisions", type=int, default=500, help="without delay (default: 500)")
    parser.add_argument("--json", metavar="FILE", help="write the figures there")
    options = parser.parse_args(arguments)
    results = []
    print("| peers | added delay | decisions/s | median | worst | packets per peer and decision |")
    print("|---|---|---|---|---|---|")
    for delay in map(float, options.delays.split(",")):
        for peers in map(int, options.peers.split(",")):
            decisions = options.decisions if not delay else max(5, options.decisions // 20)
            with tempfile.TemporaryDirectory() as folder:
                f = measure(peers, delay / 1000, decisions, Path(folder))
            results.append(f)
            print(
                f"| {f.peers} | {f.delay:.0f} ms | {f.decisions_per_second:.0f} | {f.median_ms:.2f} ms"
                f" | {f.worst_ms:.1f} ms | {f.packets_per_peer:.2f} |",
                flush=True,
            )
    if options.json:
        Path(options.json).write_text(json.dumps([f._asdict() for f in results], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
