"""How a cluster grows: with storage nodes, with clients, with objects.

    python -m tests.bench.scale nodes [--storages 1,2,4] [--clients 1,4,16] [--seconds 3]
    python -m tests.bench.scale objects [--counts 100000,10000000] [--bulk 2000000]

``nodes``: the rate of cold loads and of commits of one object, each client on objects of its own, and the
time of a processor that an operation takes in the clients, the master and all storage nodes together. On
one machine the processors are full soon: these times say which process is full first on others.

``objects``: the same work in a small and in a large database on two storage nodes, and what else depends
on the size: the time to start, to pack, to copy everything to a second node, the bytes on the disk, and
the memory of the largest storage node. Large databases are filled without a client
(:mod:`tests.bench.bulk`).
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from ZODB.utils import p64, u64, z64

from tests.bench import bulk, clients
from tests.bench.clients import Ready
from tests.bench.operations import size_of
from tests.bench.records import SIZE, record
from tests.bench.replication import pack, replicate
from tests.bench.workloads import commit, session
from tests.support.cluster import Cluster

#: Objects in a transaction while a database is filled.
BATCH = 20_000
#: From so many objects on, databases are filled without a client.
BULK = 2_000_000
#: Objects in the database of ``nodes``: more than all clients load.
POPULATION = 100_000
#: Objects of a client that commits: each has a revision of its own in turn.
OWN = 64
#: Loads, and commits, of which ``objects`` gives the median.
SAMPLES = 1_000
#: For one step on the largest database.
STEP_SECONDS = 7_200.0
_MB = 1_000_000
_TICKS = os.sysconf("SC_CLK_TCK")

Operation = Callable[[], object]


class Rate(NamedTuple):
    """``per_s``: operations of all clients. ``micros``: of a processor per operation, by process."""

    what: str
    storages: int
    clients: int
    per_s: float
    micros: dict[str, float]

    def line(self) -> str:
        times = "  ".join(f"{name} {value:5.0f}" for name, value in self.micros.items())
        return (
            f"{self.what:7} {self.storages} storage nodes, {self.clients:2} clients:"
            f" {self.per_s:7.0f}/s   microseconds of a processor each: {times}"
        )


class Row(NamedTuple):
    """One figure of a database of so many objects."""

    title: str
    unit: str
    objects: int
    value: float

    def line(self) -> str:
        return f"{self.objects:>10,} objects: {self.title:34} {self.value:10,.1f} {self.unit}"


# -- storage nodes and clients -----------------------------------------------------------------------


def growing(
    folder: Path, storages: Sequence[int], counts: Sequence[int], seconds: float, population: int
) -> Iterator[Rate]:
    """Yield the rates of each number of storage nodes and of clients."""
    for number in storages:
        place = folder / f"{number}-nodes"
        place.mkdir()
        with Cluster(storages=number, folder=place, processes=True) as cluster:
            oids = clients.run(lambda: filled(cluster, population), STEP_SECONDS)
            for what, work in (("load", loading), ("commit", committing)):
                for count in counts:
                    yield _rate(cluster, what, work, oids, number, count, seconds)


def _rate(
    cluster: Cluster,
    what: str,
    work: Callable[[Any, Sequence[bytes]], Operation],
    oids: Sequence[bytes],
    storages: int,
    count: int,
    seconds: float,
) -> Rate:
    def client(index: int, ready: Ready) -> tuple[int, float, float]:
        storage = cluster.storage(cache_size=0)
        operation = work(session(storage), oids[index::count])
        ready()
        spent, done = time.process_time(), 0
        begin = time.monotonic()
        while (elapsed := time.monotonic() - begin) < seconds:
            operation()
            done += 1
        spent = time.process_time() - spent
        storage.close()
        return done, elapsed, spent

    before = _spent(cluster)
    results = clients.run_many(count, client, STEP_SECONDS)
    after = _spent(cluster)
    done = sum(each[0] for each in results)
    used = {"clients": sum(each[2] for each in results)}
    for name, value in after.items():
        role = "master" if name.startswith("master") else "storage"
        if not name.startswith("admin"):
            used[role] = used.get(role, 0.0) + value - before[name]
    per_s = sum(each[0] / each[1] for each in results)
    return Rate(what, storages, count, per_s, {name: 1e6 * s / done for name, s in used.items()})


def _spent(cluster: Cluster) -> dict[str, float]:
    """Return the seconds of a processor that each node has used."""
    found = {}
    for name, pid in cluster.pids().items():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        found[name] = (int(fields[11]) + int(fields[12])) / _TICKS
    return found


def loading(view: Any, oids: Sequence[bytes]) -> Operation:
    """Return the load of an object that the client does not have."""
    rng = random.Random(len(oids))
    return lambda: view.load(rng.choice(oids))


def committing(view: Any, oids: Sequence[bytes]) -> Operation:
    """Return the commit of one object."""
    rng = random.Random(len(oids))
    serials = {oid: view.load(oid)[1] for oid in oids[:OWN]}
    order = list(serials)

    def once() -> None:
        oid = rng.choice(order)
        serials[oid] = commit(view, [(oid, serials[oid], record(rng))])

    return once


def filled(cluster: Cluster, count: int) -> list[bytes]:
    """Store new objects. Return some of their oids in a random order, at most POPULATION."""
    rng = random.Random(count)
    storage = cluster.storage(cache_size=0)
    view = session(storage)
    sample: list[bytes] = []
    for start in range(0, count, BATCH):
        oids = [view.new_oid() for _ in range(min(BATCH, count - start))]
        commit(view, [(oid, z64, record(rng)) for oid in oids])
        sample += rng.sample(oids, len(oids) * min(POPULATION, count) // count)
    storage.close()
    rng.shuffle(sample)
    return sample


# -- objects -----------------------------------------------------------------------------------------


def large(folder: Path, counts: Sequence[int], bulk_count: int = BULK) -> Iterator[Row]:
    """Yield the figures of databases of different sizes. ``bulk_count``: from so many objects on they are
    filled without a client."""
    for count in counts:
        place = folder / f"{count}-objects"
        place.mkdir()
        with Cluster(storages=2, folder=place, processes=True) as cluster:
            for title, unit, value in _sized(cluster, place, count, count >= bulk_count):
                yield Row(title, unit, count, value)


def _loaded(cluster: Cluster, count: int) -> list[bytes]:
    """Store new objects in the databases themselves. Return some of their oids in a random order."""

    def begun() -> tuple[int, int]:
        storage = cluster.storage()
        view = session(storage)
        oid = view.new_oid()
        tid = commit(view, [(oid, z64, record(random.Random(0)))])
        storage.close()
        return u64(oid), u64(tid)

    last_oid, last_tid = clients.run(begun, STEP_SECONDS)
    names = [node.name for node in cluster.simple.conf.of_role("storage")]
    databases = [Path(cluster.database(name)) for name in names]
    cluster.simple.stop()
    bulk.load(databases, last_tid, last_oid + 1, count, STEP_SECONDS)
    cluster.simple.start(STEP_SECONDS)
    oids = range(last_oid + 1, last_oid + 1 + count)
    return list(map(p64, random.Random(count).sample(oids, min(POPULATION, count))))


def _sized(
    cluster: Cluster, folder: Path, count: int, directly: bool
) -> Iterator[tuple[str, str, float]]:
    begin = time.monotonic()
    if directly:
        how, oids = "written to the databases", _loaded(cluster, count)
    else:
        how, oids = "written", clients.run(lambda: filled(cluster, count), STEP_SECONDS)
    yield how, "MB/s", count * SIZE / (time.monotonic() - begin) / _MB
    yield "on the disk, for each object", "bytes", size_of(folder) / count
    for title, work in (("cold load p50", loading), ("commit p50", committing)):
        yield title, "µs", clients.run(lambda work=work: _median(cluster, work, oids), STEP_SECONDS)
    begin = time.monotonic()
    cluster.simple.stop()
    yield "stop", "s", time.monotonic() - begin
    begin = time.monotonic()
    cluster.simple.start(STEP_SECONDS)
    yield "start, until it serves", "s", time.monotonic() - begin
    yield "memory of a storage node, started", "MB", _memory(cluster)
    rewritten = oids[: max(len(oids) // 10, 1)]
    clients.run(lambda: _rewrite(cluster, rewritten), STEP_SECONDS)
    window = clients.run(lambda: pack(cluster), STEP_SECONDS)
    yield f"pack of {len(rewritten):,} old revisions", "s", window.seconds
    window = replicate(cluster, STEP_SECONDS)
    yield "copy of everything to another node", "MB/s", count * SIZE / window.seconds / _MB
    yield "greatest memory of a storage node", "MB", _memory(cluster)


def _memory(cluster: Cluster) -> float:
    """Return the MB that the largest storage node has used at most."""
    found = 0
    for name, pid in cluster.pids().items():
        if name.startswith("storage"):
            status = Path(f"/proc/{pid}/status").read_text()
            found = max(found, int(status.partition("VmHWM:")[2].split()[0]))
    return found * 1024 / _MB


def _median(
    cluster: Cluster, work: Callable[[Any, Sequence[bytes]], Operation], oids: Sequence[bytes]
) -> float:
    storage = cluster.storage(cache_size=0)
    operation, times = work(session(storage), oids), []
    for _ in range(min(SAMPLES, len(oids))):
        begin = time.perf_counter()
        operation()
        times.append(time.perf_counter() - begin)
    storage.close()
    return 1e6 * statistics.median(times)


def _rewrite(cluster: Cluster, oids: Sequence[bytes]) -> None:
    rng, left = random.Random(0), iter(oids)
    storage = cluster.storage(cache_size=0)
    view = session(storage)
    while batch := list(islice(left, BATCH)):
        commit(view, [(oid, view.load(oid)[1], record(rng)) for oid in batch])
    storage.close()


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main(arguments: list[str] | None = None) -> int:
    """Run one of the two, and print each line as soon as it is known. Raise ClientFailed."""
    parser = argparse.ArgumentParser(prog="tests.bench.scale", description=__doc__)
    parser.add_argument("what", choices=["nodes", "objects"])
    parser.add_argument("--storages", type=_numbers, default=[1, 2, 4])
    parser.add_argument("--clients", type=_numbers, default=[1, 2, 4, 8, 16])
    parser.add_argument("--seconds", type=float, default=3.0, help="for one rate (default 3)")
    parser.add_argument("--counts", type=_numbers, default=[100_000, 10_000_000])
    parser.add_argument("--population", type=int, default=POPULATION, help="objects of ``nodes``")
    parser.add_argument("--bulk", type=int, default=BULK, help="objects from which no client writes")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="neo-bench-") as name:
        folder = Path(name)
        found: Iterator[Rate | Row] = (
            growing(
                folder, options.storages, options.clients, options.seconds, options.population
            )
            if options.what == "nodes"
            else large(folder, options.counts, options.bulk)
        )
        for each in found:
            print(each.line(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
