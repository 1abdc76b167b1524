"""Measure backups against `cp` and `repozo`, and commits while nodes are copied and replaced, and while
the number of partitions changes.

Run `python -m tests.bench.operations`. A speed is that of the objects' data: the same bytes for a backup
of NEO, for `cp` of all its databases (two copies of everything), and for `repozo` of a FileStorage with
the same objects. After `cp` and `repozo` the files are synced, as a backup of NEO syncs its own.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ZODB.FileStorage import FileStorage

from tests.bench import clients
from tests.bench.clients import ClientFailed
from tests.bench.replication import (
    RECORD,
    SECONDS_MAX,
    Clients,
    Row,
    Window,
    fill,
    pack,
    quiet,
    report,
    rewrite,
    wait,
)
from tests.support.cluster import Cluster

#: Clients that commit during operations.
WRITERS = 4
_MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """``rounds``: of full copies. ``changed``: parts of the objects that are written anew before an
    incremental copy; ``packed``: before a pack and one. ``quiet``: seconds without an operation."""

    objects: int = 100_000
    rounds: int = 3
    changed: tuple[float, ...] = (0.0, 0.01, 0.1)
    packed: float = 0.01
    quiet: float = 10.0


QUICK = Sizes(objects=1_000, rounds=1, changed=(0.1,), packed=0.1, quiet=0.5)


class Bench:
    """The benchmark of one backend."""

    def __init__(self, backend: str, sizes: Sizes, say: Callable[[str], None]) -> None:
        self._backend = backend
        self._sizes = sizes
        self._say = say
        self._speeds: dict[str, list[float]] = {}

    def run(self) -> Iterator[Row]:
        with tempfile.TemporaryDirectory(prefix="neo-bench-") as folder:
            place = Path(folder)
            databases = place / "cluster"
            databases.mkdir()
            with Cluster(
                storages=3, backend=self._backend, partitions=12, replicas=1, folder=databases
            ) as cluster:
                self._say(f"  {self._sizes.objects} objects are written")
                oids = clients.run(lambda: fill(cluster, self._sizes.objects), SECONDS_MAX)
                clients.run(lambda: _copy_to_file(cluster, place / "Data.fs"), SECONDS_MAX)
                yield from self._full(cluster, databases, place)
                yield from self._increments(cluster, oids, place)
                yield from self._beside(cluster, oids, place)

    def _full(self, cluster: Cluster, databases: Path, place: Path) -> Iterator[Row]:
        """Alternate between all three, so that the machine is the same for them."""
        self._say("  full copies: neoctl backup, cp, repozo")
        for number in range(self._sizes.rounds):
            backup, copy, repozo = (place / f"{kind}{number}" for kind in ("neo", "cp", "repozo"))
            self._measure("neoctl backup", lambda to=backup: _neoctl(cluster, "backup", to))
            self._measure("cp of all databases", lambda to=copy: _cp(databases, to))
            self._measure("repozo of a FileStorage", lambda to=repozo: _repozo(place / "Data.fs", to))
        for title, speeds in self._speeds.items():
            yield Row(f"full copy: {title}", "MB/s", statistics.median(speeds))
        ours, cp, repozo_speed = (statistics.median(speeds) for speeds in self._speeds.values())
        yield Row("neoctl backup ÷ cp", "times", ours / cp)
        yield Row("neoctl backup ÷ repozo", "times", ours / repozo_speed)

    def _measure(self, title: str, work: Callable[[], None]) -> None:
        begin = time.monotonic()
        work()
        seconds = time.monotonic() - begin
        self._speeds.setdefault(title, []).append(self._sizes.objects * RECORD / seconds / _MB)

    def _increments(
        self, cluster: Cluster, oids: Sequence[bytes], place: Path
    ) -> Iterator[Row]:
        self._say("  incremental copies")
        whole = size_of(place / "neo0")
        for part in self._sizes.changed:
            self._change(cluster, oids, part)
            yield from self._increment(cluster, place, f"{part:.0%} of the objects changed", whole)
        part = self._sizes.packed
        self._change(cluster, oids, part)
        clients.run(lambda: pack(cluster), SECONDS_MAX)
        yield from self._increment(cluster, place, f"{part:.0%} changed, and a pack", whole)

    def _change(self, cluster: Cluster, oids: Sequence[bytes], part: float) -> None:
        changed = oids[: int(len(oids) * part)]
        clients.run(lambda: rewrite(cluster, changed), SECONDS_MAX)

    def _increment(self, cluster: Cluster, place: Path, after: str, whole: int) -> Iterator[Row]:
        """``whole``: bytes of a full copy."""
        before, begin = size_of(place / "neo0"), time.monotonic()
        _neoctl(cluster, "backup", place / "neo0")
        title = f"increment after {after}"
        yield Row(title, "s", time.monotonic() - begin)
        yield Row(f"… {title}, bytes", "% of full", 100 * (size_of(place / "neo0") - before) / whole)

    def _beside(self, cluster: Cluster, oids: Sequence[bytes], place: Path) -> Iterator[Row]:
        """A node is removed first: the cluster has two, and the third is new."""
        _neoctl(cluster, "remove", "S3")
        wait(lambda: _newcomer(cluster) is not None, "a new node comes")
        new = _newcomer(cluster)
        working = Clients(cluster, oids, committing=WRITERS, loading=0)
        windows: dict[str, Window] = {}
        try:
            wait(lambda: working.committed > 0, "clients work")
            windows["without an operation"] = quiet(self._sizes.quiet)
            self._say("  a full copy, clients work")
            windows["during a full copy"] = window = Window()
            _neoctl(cluster, "backup", place / "beside")
            window.close()
            self._say("  a node is replaced, clients work")
            windows["while a node is replaced"] = window = Window()
            _neoctl(cluster, "replace", "S1", str(new))
            window.close()
            self._say("  objects are divided anew, clients work")
            windows["while 12 partitions become 48"] = window = Window()
            _neoctl(cluster, "set", "partitions", "48")
            window.close()
            commits, _ = working.stop()
        finally:
            working.kill()
        for what, window in windows.items():
            yield Row(f"{what}: takes", "s", window.seconds)
            inside = [s.elapsed * 1e3 for s in commits if window.begin <= s.begin < window.end]
            yield Row(f"{what}: {WRITERS} clients", "commits/s", len(inside) / window.seconds)
            yield from window.rows(what, "commit", commits)
            yield Row(f"commit {what}, longest", "ms", max(inside, default=0.0))


def _neoctl(cluster: Cluster, *words: object) -> None:
    """Raise ClientFailed unless the operation succeeds."""
    command = [sys.executable, "-m", "neoctl", "-a", cluster.simple.admin_address]
    done = subprocess.run([*command, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        raise ClientFailed(f"neoctl {words[0]}: {done.stdout}{done.stderr}")


def _newcomer(cluster: Cluster) -> str | None:
    """Return a node without cells; start what was dropped."""
    for name, process in list(cluster.simple.processes.items()):
        if process.poll() is not None:
            cluster.simple.restart(name)
    command = [sys.executable, "-m", "neoctl", "-a", cluster.simple.admin_address, "--json"]
    done = subprocess.run([*command, "print", "node", "storage"], capture_output=True, text=True)
    rows = json.loads(done.stdout).get("nodes", [])
    return next((str(row["nid"]) for row in rows if row["state"] == "PENDING"), None)


def _cp(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-r", source, target], check=True)
    _sync(target)


def _repozo(source: Path, target: Path) -> None:
    target.mkdir()
    command = [sys.executable, "-m", "ZODB.scripts.repozo", "-B", "-F", "-r", target, "-f", source]
    subprocess.run([str(word) for word in command], check=True, capture_output=True)
    _sync(target)


def _sync(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def size_of(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _copy_to_file(cluster: Cluster, path: Path) -> None:
    source, target = cluster.storage(), FileStorage(str(path))
    target.copyTransactionsFrom(source)
    target.close()
    source.close()


def main(arguments: list[str] | None = None) -> int:
    """Run and print the table. Raise ClientFailed."""

    def run(backend: str, quick: bool, say: Callable[[str], None]) -> Iterator[Row]:
        return Bench(backend, QUICK if quick else Sizes(), say).run()

    return report("tests.bench.operations", __doc__, run, arguments)


if __name__ == "__main__":
    sys.exit(main())
