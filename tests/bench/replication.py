"""Measure replication, catching up and packs, and the latency of clients meanwhile.

Run `python -m tests.bench.replication`. Two client processes work all the time: one commits small
objects, one loads without a cache. They pause between two operations, so that their latency shows the
effect of replication, not the load of the processors.
"""

import argparse
import json
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from transaction.interfaces import TransientError
from ZODB.serialize import referencesf
from ZODB.utils import z64

from neo.protocol.enums import CellState
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import A, AskPartitionList, Request, SetNumReplicas, TweakPartitionTable
from neoctl.client import AdminAway
from tests.bench import clients
from tests.bench.clients import ClientFailed
from tests.bench.records import record
from tests.bench.report import environment
from tests.bench.workloads import commit, session
from tests.support.cluster import Cluster
from tests.support.patience import wait_until

BACKENDS = ("sqlite", "mariadb")
RECORD = 1024  # bytes of an object that is copied
BATCH = 1_000  # objects in a transaction while the database is filled
PAUSE_SECONDS = 0.005  # pause of a client between two operations
SECONDS_MAX = 900.0  # for one step
ATTEMPTS = 3  # at a commit, as a transaction manager makes them
_MB = 1_000_000

_fork = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True)
class Sizes:
    """``quiet``: seconds without replication. ``absences``: seconds that a node is away."""

    objects: int = 100_000
    quiet: float = 10.0
    absences: tuple[float, ...] = (10.0, 60.0)


QUICK = Sizes(objects=1_000, quiet=0.5, absences=(0.5,))


class Row(NamedTuple):
    """One line of the table."""

    title: str
    unit: str
    value: float


class Sample(NamedTuple):
    """An operation: its begin by the monotonic clock, and its duration, in seconds."""

    begin: float
    elapsed: float


class Window:
    """The operations of clients between two moments."""

    def __init__(self) -> None:
        self.begin = time.monotonic()
        self.end = 0.0

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    def close(self) -> None:
        self.end = time.monotonic()

    def rows(self, what: str, kind: str, samples: Sequence[Sample]) -> Iterator[Row]:
        inside = sorted(s.elapsed * 1e3 for s in samples if self.begin <= s.begin < self.end)
        if inside:
            yield Row(f"{kind} {what}, p50", "ms", statistics.median(inside))
            yield Row(f"{kind} {what}, p99", "ms", inside[int(len(inside) * 0.99)])


class Clients:
    """Clients that commit, and clients that load, until :meth:`stop`."""

    def __init__(
        self, cluster: Cluster, oids: Sequence[bytes], committing: int = 1, loading: int = 1
    ) -> None:
        self._cluster = cluster
        self._oids = oids
        self._stopping = _fork.Event()
        self._committed = _fork.Value("q", 0)
        self._running = []
        self._committing = committing
        for work in [self._commit] * committing + [self._load] * loading:
            receiver, sender = _fork.Pipe(duplex=False)
            process = _fork.Process(target=self._run, args=(work, sender), daemon=True)
            process.start()
            sender.close()
            self._running.append((process, receiver))

    @property
    def committed(self) -> int:
        count: int = self._committed.value
        return count

    def _run(self, work: Callable[[Any], Callable[[], object]], sender: Any) -> None:
        storage = self._cluster.storage(cache_size=0)
        operation = work(session(storage))
        samples = []
        while not self._stopping.wait(PAUSE_SECONDS):
            begin = time.monotonic()
            operation()
            samples.append(Sample(begin, time.monotonic() - begin))
        storage.close()
        sender.send(samples)

    def _commit(self, view: Any) -> Callable[[], object]:
        rng = random.Random(1)
        oids = [view.new_oid() for _ in range(64)]
        serials = dict.fromkeys(oids, commit(view, [(oid, z64, record(rng)) for oid in oids]))

        def attempt(oid: bytes) -> bool:
            try:
                serials[oid] = commit(view, [(oid, serials[oid], record(rng))])
            except TransientError as e:
                print(f"a commit is tried again: {type(e).__name__}: {e}", file=sys.stderr)
                return False
            return True

        def once() -> None:
            """Commit as an application does, whose transaction manager tries again."""
            oid = rng.choice(oids)
            if not any(attempt(oid) for _ in range(ATTEMPTS)):
                raise ClientFailed(f"no commit in {ATTEMPTS} attempts")
            with self._committed.get_lock():
                self._committed.value += 1

        return once

    def _load(self, view: Any) -> Callable[[], object]:
        rng = random.Random(2)

        def once() -> None:
            view.poll_invalidations()  # a pack removes what older views see
            view.load(rng.choice(self._oids))

        return once

    def stop(self) -> tuple[list[Sample], list[Sample]]:
        """Stop the clients. Return the samples of commits and of loads. Raise ClientFailed."""
        self._stopping.set()
        found = []
        for process, receiver in self._running:
            try:
                found.append(receiver.recv())
            except EOFError:
                raise ClientFailed("a client died") from None
            process.join()
        commits, loads = found[: self._committing], found[self._committing :]
        return [*chain.from_iterable(commits)], [*chain.from_iterable(loads)]

    def kill(self) -> None:
        for process, receiver in self._running:
            process.kill()
            process.join()
            receiver.close()


class Bench:
    """The benchmark of one backend."""

    def __init__(self, backend: str, sizes: Sizes, say: Callable[[str], None]) -> None:
        self._backend = backend
        self._sizes = sizes
        self._say = say

    def run(self) -> Iterator[Row]:
        yield from self._alone()
        yield from self._loaded()

    @contextmanager
    def _filled(self) -> Iterator[tuple[Cluster, list[bytes]]]:
        """Yield a cluster of two nodes without replicas, and the oids of its objects."""
        with (
            tempfile.TemporaryDirectory(prefix="neo-bench-") as folder,
            Cluster(
                storages=2, backend=self._backend, partitions=12, folder=Path(folder)
            ) as cluster,
        ):
            self._say(f"  {self._sizes.objects} objects are written")
            yield cluster, clients.run(lambda: fill(cluster, self._sizes.objects), SECONDS_MAX)

    def _speed(self, what: str, seconds: float) -> Iterator[Row]:
        yield Row(f"copied {what}", "MB/s", self._sizes.objects * RECORD / seconds / _MB)
        yield Row(f"copied {what}", "objects/s", self._sizes.objects / seconds)

    def _alone(self) -> Iterator[Row]:
        with self._filled() as (cluster, _):
            self._say("  replication, no client works")
            yield from self._speed("while no client works", replicate(cluster).seconds)

    def _loaded(self) -> Iterator[Row]:
        with self._filled() as (cluster, oids):
            working = Clients(cluster, oids)
            try:
                yield from self._with_clients(cluster, working, oids)
            finally:
                working.kill()

    def _with_clients(
        self, cluster: Cluster, working: Clients, oids: Sequence[bytes]
    ) -> Iterator[Row]:
        windows = {}
        wait(lambda: working.committed > 0, "clients work")
        windows["without replicas"] = quiet(self._sizes.quiet)
        self._say("  replication, clients work")
        windows["during replication"] = replicate(cluster)
        windows["with a replica"] = quiet(self._sizes.quiet)
        missed = {}
        for seconds in self._sizes.absences:
            self._say(f"  a node is away for {seconds:g} s")
            what = f"after {seconds:g} s away"
            missed[what], windows[f"catching up {what}"] = _absence(cluster, working, seconds)
        clients.run(lambda: rewrite(cluster, oids), SECONDS_MAX)
        self._say("  a pack, clients work")
        windows["during a pack"] = clients.run(lambda: pack(cluster), SECONDS_MAX)
        commits, loads = working.stop()
        yield from self._speed("while clients work", windows["during replication"].seconds)
        for what, count in missed.items():
            yield Row(f"catching up {what}", "s", windows[f"catching up {what}"].seconds)
            yield Row(f"… transactions missed {what}", "", count)
        seconds = windows["during a pack"].seconds
        yield Row("packed while clients work", "revisions/s", len(oids) / seconds)
        for kind, samples in (("commit", commits), ("load", loads)):
            for what, window in windows.items():
                yield from window.rows(what, kind, samples)


def quiet(seconds: float) -> Window:
    """Let clients work for a time without anything else."""
    window = Window()
    time.sleep(seconds)
    window.close()
    return window


def fill(cluster: Cluster, count: int) -> list[bytes]:
    rng = random.Random(count)
    storage = cluster.storage()
    view = session(storage)
    oids = [view.new_oid() for _ in range(count)]
    for start in range(0, count, BATCH):
        commit(view, [(oid, z64, record(rng, RECORD)) for oid in oids[start : start + BATCH]])
    storage.close()
    return oids


def rewrite(cluster: Cluster, oids: Sequence[bytes]) -> None:
    """Write a second revision of each object, so that a pack can remove the first one."""
    rng = random.Random(len(oids))
    storage = cluster.storage()
    view = session(storage)
    for start in range(0, len(oids), BATCH):
        batch = oids[start : start + BATCH]
        commit(view, [(oid, view.load(oid)[1], record(rng, RECORD)) for oid in batch])
    storage.close()


def pack(cluster: Cluster) -> Window:
    """Pack everything, without garbage collection, which the client does."""
    storage = cluster.storage()
    window = Window()
    storage.pack(time.time(), referencesf, gc=False)
    window.close()
    storage.close()
    return window


def _ask(cluster: Cluster, message: Request[A]) -> A:
    with cluster.simple.admin() as admin:
        return admin.ask(message)


def _copied(cluster: Cluster) -> bool:
    """Return whether every partition has two complete copies."""
    try:
        rows = _ask(cluster, AskPartitionList(0, 0, None)).row_list
    except (AdminAway, ErrorAnswer):
        return False
    return bool(rows) and all(
        len(row) == 2 and all(state is CellState.UP_TO_DATE for _, state in row) for row in rows
    )


def wait(condition: Callable[[], bool], what: str, seconds: float | None = None) -> None:
    try:
        wait_until(condition, what, SECONDS_MAX if seconds is None else seconds)
    except AssertionError as e:
        raise ClientFailed(str(e)) from None


def replicate(cluster: Cluster, seconds: float | None = None) -> Window:
    """Make a second copy of everything: both nodes copy from each other at the same time. Raise
    ClientFailed after ``seconds`` (default: SECONDS_MAX)."""
    _ask(cluster, SetNumReplicas(1))
    window = Window()
    _ask(cluster, TweakPartitionTable(False, []))
    wait(lambda: _copied(cluster), "everything is copied", seconds)
    window.close()
    return window


def _absence(cluster: Cluster, working: Clients, seconds: float) -> tuple[int, Window]:
    """Return how many transactions a node missed, and the time from its start to its last cell."""
    before = working.committed
    cluster.simple.kill("storage2")
    wait(lambda: not _copied(cluster), "the node is known to be away")
    time.sleep(seconds)
    missed = working.committed - before
    window = Window()
    cluster.simple.restart("storage2")
    wait(lambda: _copied(cluster), "the node catches up")
    window.close()
    return missed, window


# -- report ----------------------------------------------------------------------------------------


def merged(found: dict[str, list[Row]]) -> list[tuple[str, dict[str, float]]]:
    """Merge the rows of all backends: title with unit → values, in the order of the first backend."""
    lines: dict[str, dict[str, float]] = {}
    for backend, rows in found.items():
        for row in rows:
            title = f"{row.title}, {row.unit}" if row.unit else row.title
            lines.setdefault(title, {})[backend] = row.value
    return list(lines.items())


def shown(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def markdown(found: dict[str, list[Row]]) -> str:
    lines = [
        environment(),
        "",
        "|  | " + " | ".join(found) + " |",
        "| --- " * (len(found) + 1) + "|",
    ]
    for title, values in merged(found):
        lines.append(f"| {title} | " + " | ".join(shown(values.get(b)) for b in found) + " |")
    return "\n".join(lines) + "\n"


def report(
    program: str,
    about: str | None,
    run: Callable[[str, bool, Callable[[str], None]], Iterator[Row]],
    arguments: list[str] | None,
) -> int:
    """Run a benchmark of the backends that the arguments name, and print the table. ``run`` is given a
    backend, whether it should be quick, and a function that shows progress. Raise ClientFailed."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=about)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    parser.add_argument("--quick", action="store_true", help="shows that everything works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table here")
    options = parser.parse_args(arguments)
    progress = Console(stderr=True, highlight=False, markup=False)
    found = {}
    for backend in options.backends:
        progress.print(backend)
        found[backend] = list(run(backend, options.quick, progress.print))
    if options.json is not None:
        rows = {backend: [row._asdict() for row in rows] for backend, rows in found.items()}
        options.json.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    if options.markdown is not None:
        options.markdown.write_text(markdown(found))
    table = Table("", *found)
    for title, values in merged(found):
        table.add_row(title, *(shown(values.get(backend)) for backend in found))
    Console(highlight=False).print(table)
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run and print the table. Raise ClientFailed."""

    def run(backend: str, quick: bool, say: Callable[[str], None]) -> Iterator[Row]:
        return Bench(backend, QUICK if quick else Sizes(), say).run()

    return report("tests.bench.replication", __doc__, run, arguments)


if __name__ == "__main__":
    sys.exit(main())
