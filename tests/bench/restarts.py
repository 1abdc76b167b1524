"""The first page of a site after a restart, with and without ``cache-dir``.

    python -m tests.bench.restarts [OBJECTS]

A process loads objects through ZODB's view of a storage, and ends. Then the same is done again: without a
kept cache, with one, and with one while 1 % of the objects were changed meanwhile. Each line has the
loads that the cluster was asked for, and the time until all objects were there: with the time to open
the storage, and of that alone.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from ZODB.utils import z64

from neo.client import Storage
from neo.simple import Cluster
from tests.bench.records import record
from tests.bench.workloads import commit, session
from tests.support.loads import counted_loads

OBJECTS = 2000
#: One object of so many is changed while the process is away.
CHANGED_EACH = 100


class Start(NamedTuple):
    """``loads``: from the cluster. ``opened``, ``seconds``: until it is open, and all is read."""

    name: str
    loads: int
    opened: float
    seconds: float

    def line(self, objects: int) -> str:
        part = 100 * self.loads / objects
        return (
            f"{self.name:36} {self.loads:6} loads ({part:5.1f} %)"
            f"  open {1000 * self.opened:6.1f} ms, all {1000 * self.seconds:7.1f} ms"
        )


def start(name: str, cluster: Cluster, oids: list[bytes], **options: Any) -> Start:
    """Open a storage, load all objects, close it."""
    begin = time.perf_counter()
    with counted_loads() as loads, closing(_open(cluster, **options)) as storage:
        opened = time.perf_counter() - begin
        view = session(storage)
        for oid in oids:
            view.load(oid)
        return Start(name, loads[0], opened, time.perf_counter() - begin)


def _open(cluster: Cluster, **options: Any) -> Storage:
    return Storage(cluster.masters, cluster.name, **options)


def measure(folder: Path, objects: int = OBJECTS) -> Iterator[Start]:
    """Yield the starts on a small cluster in a folder."""
    random = Random(0)
    with Cluster(str(folder / "cluster"), storages=1) as cluster:
        with closing(_open(cluster)) as storage:
            view = session(storage)
            oids = [view.new_oid() for _ in range(objects)]
            commit(view, [(oid, z64, record(random)) for oid in oids])
        yield start("no cache-dir", cluster, oids)
        kept = {"cache_dir": str(folder / "caches")}
        yield start("cache-dir, first start", cluster, oids, **kept)
        yield start("cache-dir, restart", cluster, oids, **kept)
        with closing(_open(cluster)) as storage:
            view = session(storage)
            for oid in oids[::CHANGED_EACH]:
                view.poll_invalidations()
                commit(view, [(oid, view.load(oid)[1], record(random))])
        yield start("cache-dir, restart, 1 % changed", cluster, oids, **kept)


def main(objects: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for each in measure(Path(folder), objects):
            print(each.line(objects), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else OBJECTS)
