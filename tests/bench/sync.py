"""Measure what a synchronous backup costs: ``python -m tests.bench.sync``.

Two sites are network namespaces with a delaying cable between them. Three clusters of real processes,
which sync: one without a backup, and one with its synchronous backup on the other site. Clients, which
are near the upstream cluster, do the same work on both clusters in turns, so that all figures of a round
see the same machine. Compare ratios: all processes of both sites share the processors of one machine.
"""

from __future__ import annotations

import argparse
import configparser
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from ZODB.Connection import TransactionMetaData
from ZODB.utils import z64

from neo.client import Storage
from neo.protocol.enums import ClusterState
from neo.protocol.packets import AskSync, SetClusterState, SetSync
from neo.simple import Cluster
from neo.simple.conf import NodeConf
from tests.bench import clients, floor
from tests.bench.clients import ClientFailed, Ready
from tests.bench.records import record
from tests.bench.report import environment
from tests.bench.sizes import Limit
from tests.bench.sizes import Sizes as FloorSizes
from tests.bench.workloads import commit, session
from tests.faults.link import Link
from tests.faults.network import Machine, Network, isolated
from tests.support.cluster import AWAY
from tests.support.patience import wait_until

STORAGES, PARTITIONS = 2, 12
PLAIN, UPSTREAM, BACKUP = "plain", "upstream", "backup"
SECONDS_MAX = 60.0
CONNECTS = 30
#: A shorter round trip, in ms, is no unit of time: what computers do takes longer.
TRIP_MIN = 1.0
#: Prints the median time, in ms, in which connections are opened: one round trip.
CONNECT = """
import socket, statistics, sys, time
times = []
for _ in range(int(sys.argv[3])):
    begin = time.perf_counter()
    socket.create_connection((sys.argv[1], int(sys.argv[2]))).close()
    times.append(time.perf_counter() - begin)
print(statistics.median(times) * 1e3)
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """``seconds``: of one measurement. ``pair``: number of clients that are compared, once when they only
    commit, and once when they do other work for ``think`` ms after each commit."""

    seconds: float = 5.0
    rounds: int = 3
    crowds: tuple[int, ...] = (8, 32, 64)
    pair: int = 8
    think: float = 50.0


USUAL = Sizes()
QUICK = Sizes(seconds=0.2, rounds=1, crowds=(4,), pair=2)
ONLY_COMMIT, THINK = "only commit", "think"


class Way(NamedTuple):
    """``trip``: round trip between the sites, in ms. ``sync``: commits wait for the backup."""

    title: str
    cluster: str
    trip: float
    sync: bool


WITHOUT = Way("without a backup", PLAIN, 0.0, False)
ASYNC = Way("asynchronous, 10 ms", UPSTREAM, 10.0, False)
FAR = Way("synchronous, 10 ms", UPSTREAM, 10.0, True)
WAYS = (
    WITHOUT,
    Way("synchronous, 0 ms", UPSTREAM, 0.0, True),
    Way("synchronous, 2 ms", UPSTREAM, 2.0, True),
    FAR,
    ASYNC,
)
CROWD_WAYS = (WITHOUT, FAR, ASYNC)

#: Title of a row → title of a way → the value of each round.
Rows = dict[str, dict[str, list[float]]]


class SiteCluster(Cluster):
    """A cluster whose processes all run on one machine of the network."""

    def __init__(self, folder: Path, machine: Machine, port: int, settings: dict[str, str]) -> None:
        """``port``: the first one of its nodes. ``settings``: of its master."""
        self._machine = machine
        names = ["master", *(f"storage{n + 1}" for n in range(STORAGES)), "admin"]
        address = {name: f"{machine.address}:{port + n}" for n, name in enumerate(names)}
        parser = configparser.ConfigParser(interpolation=None)
        parser["DEFAULT"] = {
            "masters": address["master"],
            "partitions": str(PARTITIONS),
            "replicas": "0",
            "autostart": str(STORAGES),
            "adapter": "SQLite",
            **settings,
        }
        for name in names:
            parser[name] = {"bind": address[name], "logfile": str(folder / f"{name}.log")}
            if name.startswith("storage"):
                parser[name]["database"] = str(folder / f"{name}.sqlite")
        folder.mkdir()
        with (folder / "neo.conf").open("x") as file:
            parser.write(file)
        super().__init__(folder)

    def command(self, node: NodeConf) -> list[str]:
        return [*self._machine.prefix, *super().command(node)]

    def storage(self) -> Any:
        return Storage(self.masters, self.name)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition that asks the admin node. Raise ClientFailed."""
        try:
            wait_until(condition, what, SECONDS_MAX, excuses=AWAY)
        except AssertionError as e:
            raise ClientFailed(str(e)) from None


class Sites:
    """The clusters, and the cable between the two sites."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        network = Network(["here", "there"])
        stack.callback(network.close)
        self._here, self._there = network.machines["here"], network.machines["there"]
        self._link = Link(self._here, self._there, 0.0)
        stack.callback(self._link.close)

        def cluster(name: str, machine: Machine, port: int, settings: dict[str, str]) -> SiteCluster:
            settings = {"cluster": name, **settings}
            return stack.enter_context(SiteCluster(folder / name, machine, port, settings))

        self.clusters = {PLAIN: cluster(PLAIN, self._here, 2050, {})}
        upstream = cluster(UPSTREAM, self._here, 2060, {"sync_backups": BACKUP})
        self.clusters[UPSTREAM] = upstream
        following = {"upstream_cluster": UPSTREAM, "upstream_masters": upstream.masters, "sync": "true"}
        self._backup = cluster(BACKUP, self._there, 2070, following)
        self._backup.until(self._followed, "the backup follows")

    def _followed(self) -> bool:
        with self._backup.admin() as admin:
            admin.ask(SetClusterState(ClusterState.STARTING_BACKUP))
        return True

    def begin(self, way: Way) -> float:
        """Set the delay, and whether commits wait. Return the round trip in ms, as it is."""
        self._link.set(way.trip / 2e3, way.trip / 2e3)
        upstream = self.clusters[UPSTREAM]
        upstream.until(lambda: self._switched(upstream, way.sync), f"{way.title}: the backup is ready")
        return self._trip()

    def _switched(self, upstream: SiteCluster, sync: bool) -> bool:
        with upstream.admin() as admin:
            admin.ask(SetSync(BACKUP, sync))
            return admin.ask(AskSync()).backup_list[0][1] == ("sync" if sync else "off")

    def _trip(self) -> float:
        host, port = self._backup.conf.of_role("admin")[0].address
        command = [*self._here.prefix, sys.executable, "-c", CONNECT, host, str(port), str(CONNECTS)]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def latency(cluster: SiteCluster, seconds: float) -> dict[str, float]:
    """Return the median ms of a commit by one client, and of its vote and its finish."""

    def work() -> list[tuple[float, float, float]]:
        storage = cluster.storage()
        view, rng = session(storage), random.Random(1)
        oid = view.new_oid()
        serial, limit, samples = commit(view, [(oid, z64, record(rng))]), Limit(seconds), []
        while not limit.over():
            meta = TransactionMetaData("bench", "commit")
            times = [time.perf_counter()]
            view.tpc_begin(meta)
            view.store(oid, serial, record(rng), "", meta)
            times.append(time.perf_counter())
            view.tpc_vote(meta)
            times.append(time.perf_counter())
            serial = view.tpc_finish(meta)
            times.append(time.perf_counter())
            begin, stored, voted, finished = times
            samples.append((finished - begin, voted - stored, finished - voted))
        storage.close()
        return samples

    columns = zip(*clients.run(work, SECONDS_MAX), strict=True)
    return {
        name: statistics.median(column) * 1e3
        for name, column in zip(("commit", "vote", "finish"), columns, strict=True)
    }


def rate(cluster: SiteCluster, count: int, seconds: float, think: float = 0.0) -> float:
    """Return the commits per second of so many clients, each of which writes an object of its own.
    ``think``: the seconds that it pauses after each commit; as on a machine of its own, its other work
    takes no processor from the clusters."""

    def work(index: int, ready: Ready) -> float:
        storage = cluster.storage()
        view, rng, done = session(storage), random.Random(index), 0
        oid = view.new_oid()
        serial = commit(view, [(oid, z64, record(rng))])
        ready()
        begin, limit = time.perf_counter(), Limit(seconds)
        while not limit.over():
            serial = commit(view, [(oid, serial, record(rng))])
            done += 1
            if think:  # the application's other work, which takes no processor from the nodes
                time.sleep(think)
        elapsed = time.perf_counter() - begin
        storage.close()
        return done / elapsed

    return sum(clients.run_many(count, work, SECONDS_MAX))


def measure(sites: Sites, sizes: Sizes, say: Callable[[str], None]) -> Iterator[tuple[str, str, float]]:
    """Yield (row, way, value). Each round begins with another way."""
    for number in range(sizes.rounds):
        say(f"round {number + 1} of {sizes.rounds}")
        for way in _rotated(WAYS, number):
            trip = sites.begin(way)
            if way is not WITHOUT:
                yield "round trip", way.title, trip
            for name, value in latency(sites.clusters[way.cluster], sizes.seconds).items():
                yield name, way.title, value
            for name, think in (ONLY_COMMIT, 0.0), (THINK, sizes.think / 1e3):
                commits = rate(sites.clusters[way.cluster], sizes.pair, sizes.seconds, think)
                yield name, way.title, commits
        for count in sizes.crowds:
            for way in _rotated(CROWD_WAYS, number):
                sites.begin(way)
                yield str(count), way.title, rate(sites.clusters[way.cluster], count, sizes.seconds)


def _rotated(ways: tuple[Way, ...], number: int) -> tuple[Way, ...]:
    shift = number % len(ways)
    return ways[shift:] + ways[:shift]


# -- report ----------------------------------------------------------------------------------------


def latency_table(rows: Rows) -> list[list[str]]:
    """Return the lines about one client; the first one has the titles."""
    titles = [way.title for way in WAYS]
    lines = [["", *titles]]
    for name in ("round trip", "commit", "vote", "finish"):
        values = (rows[name].get(title) for title in titles)
        lines.append([f"{name}, ms", *("–" if v is None else _ms(v) for v in values)])
    for name in ("vote", "finish"):
        more = {way.title: _more(rows, name, way) for way in WAYS if way.sync}
        trips = {way.title: rows["round trip"][way.title] for way in WAYS if way.sync}
        units = {
            title: [a / b for a, b in zip(more[title], trips[title], strict=True)]
            for title in more
            if statistics.median(trips[title]) >= TRIP_MIN
        }
        rest = {
            title: [a - b for a, b in zip(more[title], trips[title], strict=True)] for title in more
        }
        for what, values_of in (
            (f"{name}: more than without a backup, ms", more),
            ("… in round trips", units),
            ("… without one round trip, ms", rest),
        ):
            found = (values_of.get(title) for title in titles)
            lines.append([what, *("–" if v is None else _ms(v) for v in found)])
    return lines


def _more(rows: Rows, name: str, way: Way) -> list[float]:
    """Return how much longer something takes than without a backup, in each round."""
    return [a - b for a, b in zip(rows[name][way.title], rows[name][WITHOUT.title], strict=True)]


def crowd_table(rows: Rows, crowds: tuple[int, ...]) -> list[list[str]]:
    """Return the lines about many clients. The bound: how many commits they can do if each takes two
    round trips longer and nothing else changes."""
    lines = [
        [
            "clients",
            "without a backup, commits/s",
            "one commit then takes, ms",
            *(f"{way.title}, ratio" for way in CROWD_WAYS[1:]),
            "bound with 2 round trips",
        ]
    ]
    for count in crowds:
        found = rows[str(count)]
        alone = found[WITHOUT.title]
        taken = [count / value * 1e3 for value in alone]
        bounds = [ms / (ms + 2 * FAR.trip) for ms in taken]
        line = [str(count), f"{statistics.median(alone):,.0f}", _ms(taken)]
        for way in CROWD_WAYS[1:]:
            ratios = [a / b for a, b in zip(found[way.title], alone, strict=True)]
            line.append(_spread(ratios))
        lines.append([*line, f"{statistics.median(bounds):.2f}"])
    return lines


def think_table(rows: Rows, sizes: Sizes) -> list[list[str]]:
    """Return the lines about the clients that do other work, or none, between commits. The bound is that
    of :func:`crowd_table`, where other work counts as a part of the commit."""
    lines = [["", *(way.title for way in WAYS)]]
    for name, what in (
        (ONLY_COMMIT, f"{sizes.pair} clients that only commit"),
        (THINK, f"{sizes.pair} clients that do other work for {sizes.think:g} ms after each commit"),
    ):
        found, alone = rows[name], rows[name][WITHOUT.title]
        lines.append(
            [f"{what}: commits/s", *(f"{statistics.median(found[way.title]):,.0f}" for way in WAYS)]
        )
        ratios, bounds = ["… ratio"], ["… bound with 2 round trips"]
        for way in WAYS:
            pairs = zip(found[way.title], alone, strict=True)
            ratios.append("–" if way is WITHOUT else _spread([a / b for a, b in pairs]))
            taken = [sizes.pair / value * 1e3 for value in alone]
            bound = statistics.median(ms / (ms + 2 * way.trip) for ms in taken)
            bounds.append(f"{bound:.2f}" if way.sync else "–")
        lines += [ratios, bounds]
    return lines


def _ms(values: list[float]) -> str:
    return f"{statistics.median(values):.2f}"


def _spread(values: list[float]) -> str:
    """Return the median, with the least and the greatest value of several."""
    text = f"{statistics.median(values):.2f}"
    return text if len(values) == 1 else f"{text} ({min(values):.2f} to {max(values):.2f})"


def markdown(lines: list[list[str]]) -> str:
    first, *others = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([first, "| --- " * len(lines[0]) + "|", *others]) + "\n"


# -- processes -------------------------------------------------------------------------------------


def inside(folder: Path, sizes: Sizes) -> dict[str, Any]:
    """Measure in the namespaces of this process."""
    rows: Rows = {}
    with ExitStack() as stack:
        sites = Sites(folder, stack)
        syncs = floor.measure(folder, FloorSizes(echoes=100))["fdatasync_us"]
        progress = Console(stderr=True, highlight=False, markup=False)
        for row, way, value in measure(sites, sizes, progress.print):
            rows.setdefault(row, {}).setdefault(way, []).append(value)
    return {"rows": rows, "fdatasync_us": syncs}


def main(arguments: list[str] | None = None) -> int:
    """Run and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.sync", description=__doc__)
    parser.add_argument("--rounds", type=int, help=f"default: {USUAL.rounds}, with --quick 1")
    parser.add_argument(
        "--think",
        type=float,
        default=USUAL.think,
        metavar="MS",
        help="other work of clients after each commit, default: %(default)g",
    )
    parser.add_argument("--quick", action="store_true", help="shows that everything works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables here")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    sizes = QUICK if options.quick else USUAL
    sizes = replace(sizes, rounds=options.rounds or sizes.rounds, think=options.think)
    if options.inside is not None:
        options.json.write_text(json.dumps(inside(options.inside, sizes)))
        return 0
    with tempfile.TemporaryDirectory(prefix="neo-bench-") as folder:
        path = Path(folder, "figures.json")
        command = [sys.executable, "-m", "tests.bench.sync", "--inside", folder, "--json", str(path)]
        command += ["--rounds", str(sizes.rounds), "--think", str(sizes.think)]
        command += ["--quick"] if options.quick else []
        subprocess.run(isolated(command), check=True)
        found = json.loads(path.read_text())
    rows = found["rows"]
    tables = [latency_table(rows), crowd_table(rows, sizes.crowds), think_table(rows, sizes)]
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    if options.markdown is not None:
        syncs = f"A sync of the disk takes {found['fdatasync_us']:.0f} µs. {environment()}"
        options.markdown.write_text("\n".join([syncs, "", *map(markdown, tables)]))
    for first, *lines in tables:
        table = Table(*first)
        for line in lines:
            table.add_row(*line)
        Console(highlight=False).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
