"""Where the time of one commit goes, in each shape of a database.

    python -m tests.bench.budget [SHAPE...]      of embedded, one-process, one-storage, two-storages

A client commits one object at a time. For each shape the tables have

* the steps that the client sees, in microseconds of the clock (medians),
* what a load and a commit cost each process, or the threads of the client and those of the nodes, without
  anything that measures inside: microseconds of a processor, system calls, syncs and waits,
* the pieces of which a commit consists in each of them. They are of a run of its own, in which each piece
  takes some microseconds more: microseconds of a processor and of the clock, without the pieces inside.

Where other programs run, give it the processors (``chrt -f 10 python -m tests.bench.budget``).
"""

from __future__ import annotations

import json
import os
import runpy
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial, wraps
from pathlib import Path
from typing import Any, NamedTuple

from ZODB.utils import p64

import neo.client
from neo.client import Storage
from neo.net.connection import Connection
from neo.node.local import LocalConnection
from neo.simple import Cluster
from neo.simple.conf import NodeConf
from neo.storage.backend.sqlite.engine import SQLite
from neo.storage.backend.sqlite.wal_sync import Syncer

SHAPES = ("embedded", "one-process", "one-storage", "two-storages")
#: Loads and commits of one run.
OPERATIONS = 200
STEPS = ("tpc_begin", "store", "tpc_vote", "tpc_finish")
#: The pieces that are not one of a statement: methods of a class.
METHODS: list[tuple[str, type, tuple[str, ...]]] = [
    ("sync", Syncer, ("_sync_log",)),
    ("encoding", Connection, ("send", "ask", "answer", "take")),
    ("messages as objects", LocalConnection, ("send", "ask", "answer", "take")),
]
STATEMENTS = ("_execute", "read", "write", "write_row", "write_many")
STATEMENT, COMMIT = "statement", "COMMIT, BEGIN"
#: Names of the threads of an embedded database: of its nodes, and of the one that syncs.
EMBEDDED_THREADS = ("neo /", "sync /")

Open = Callable[[], Storage]


class Piece(NamedTuple):
    """How often it ran; microseconds of a processor, and of the clock."""

    times: float = 0.0
    cpu: float = 0.0
    wall: float = 0.0

    def __sub__(self, other: Piece) -> Piece:
        return Piece(*(a - b for a, b in zip(self, other, strict=True)))

    def plus(self, times: float, cpu: float, wall: float) -> Piece:
        return Piece(self.times + times, self.cpu + cpu, self.wall + wall)


class Pieces:
    """The pieces that ran in this process while they were measured, in all threads."""

    def __init__(self) -> None:
        #: By whether a thread of the nodes of an embedded database ran it, and by name.
        self._found: defaultdict[tuple[bool, str], Piece] = defaultdict(Piece)
        self._local = threading.local()
        self._lock = threading.Lock()

    @contextmanager
    def measured(self) -> Iterator[Pieces]:
        """Measure what is made meanwhile; objects that keep a method keep the measured one."""
        saved = []
        for name, owner, methods in METHODS:
            saved += [self._replace(owner, method, name) for method in methods]
        saved += [self._replace(SQLite, method, STATEMENT) for method in STATEMENTS]
        try:
            yield self
        finally:
            for owner, method, original in saved:
                setattr(owner, method, original)

    def _replace(self, owner: type, method: str, name: str) -> tuple[type, str, Callable[..., Any]]:
        original = getattr(owner, method)

        @wraps(original)
        def measuring(this: Any, *args: Any, **options: Any) -> Any:
            inner = getattr(self._local, "inner", (0.0, 0.0))
            self._local.inner = (0.0, 0.0)
            cpu, wall = time.thread_time(), time.perf_counter()
            try:
                return original(this, *args, **options)
            finally:
                cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
                inside = self._local.inner
                self._local.inner = (inner[0] + cpu, inner[1] + wall)
                own = name
                if name is STATEMENT and args[0].startswith(("COMMIT", "BEGIN")):
                    own = COMMIT
                self._add(own, cpu - inside[0], wall - inside[1])

        setattr(owner, method, measuring)
        return owner, method, original

    def _add(self, name: str, cpu: float, wall: float) -> None:
        key = _of_nodes(threading.current_thread()), name
        with self._lock:
            self._found[key] = self._found[key].plus(1, cpu * 1e6, wall * 1e6)

    def now(self, nodes: bool | None = None) -> dict[str, Piece]:
        """Return all of them by name. ``nodes``: only those of the nodes of an embedded database, or only
        the others."""
        found: defaultdict[str, Piece] = defaultdict(Piece)
        with self._lock:
            for (of_nodes, name), piece in self._found.items():
                if nodes in (None, of_nodes):
                    found[name] = found[name].plus(*piece)
        return dict(found)


def _of_nodes(thread: threading.Thread) -> bool:
    """Return whether a thread of this process is one of the nodes of an embedded database."""
    return thread.name.startswith(EMBEDDED_THREADS)


# -- shapes -----------------------------------------------------------------------------------------


class MeasuredCluster(Cluster):
    """A cluster of which the processes measure their pieces, once ``pieces`` is set."""

    pieces = False

    def _run(self, name: str, command: list[str], nodes: Sequence[NodeConf]) -> bool:
        if self.pieces:
            assert command[1] == "-m"
            # By its file: the process runs in the folder of the cluster, which lacks the tests.
            command = [command[0], __file__, str(self._socket(name)), *command[2:]]
        return super()._run(name, command, nodes)

    def _socket(self, name: str) -> Path:
        return Path(self.folder) / f"{name}.pieces"

    def of(self, name: str) -> dict[str, Piece]:
        """Return what a process has measured until now."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self._socket(name)))
            with connection.makefile("rb") as answer:
                return {piece: Piece(*figures) for piece, figures in json.loads(answer.read()).items()}


def _main_of_a_process(path: str, module: str, *arguments: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener, Pieces().measured() as pieces:
        listener.bind(path)
        listener.listen()
        threading.Thread(target=_serve, args=(listener, pieces), daemon=True).start()
        sys.argv = [module, *arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)


def _serve(listener: socket.socket, pieces: Pieces) -> None:
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(json.dumps(pieces.now()).encode())


def shaped(shape: str, folder: Path) -> MeasuredCluster | None:
    """Return the cluster of a shape; None for an embedded database."""
    from tests.support.ports import free_range

    if shape == "embedded":
        return None
    storages = 2 if shape == "two-storages" else 1
    # With one partition for each, the second commit in two concerns both storage nodes.
    return MeasuredCluster(
        folder,
        storages=storages,
        partitions=12 if storages > 1 else 1,
        port_base=free_range(2 + storages),
        processes=shape != "one-process",
    )


def opens(cluster: Cluster | None, folder: Path) -> Open:
    if cluster is None:
        return partial(neo.client.open, folder / "database", compress=False)
    return partial(Storage, cluster.masters, cluster.name, compress=False)


# -- measures ---------------------------------------------------------------------------------------


class Result(NamedTuple):
    """``steps``: microseconds of the clock. ``costs``: of a load and of a commit, by part. ``pieces``: of
    a commit, by process."""

    steps: Mapping[str, float]
    costs: Mapping[str, Mapping[str, Any]]
    pieces: Mapping[str, Mapping[str, Piece]]


def measure(shape: str, folder: Path, operations: int = OPERATIONS, trace: bool = True) -> Result:
    """Measure one shape. ``trace``: count system calls, too, which needs strace."""
    costs, steps = _plain(shape, folder / "plain", operations, trace)
    return Result(steps, costs, _in_pieces(shape, folder / "pieces", operations))


def _plain(
    shape: str, folder: Path, operations: int, trace: bool
) -> tuple[dict[str, Any], dict[str, float]]:
    from tests.bench.calls import fill, measured
    from tests.bench.system_calls import costs_of, let_trace

    let_trace()
    cluster = shaped(shape, folder)
    steps = Steps()
    with cluster or nullcontext():
        open_storage = opens(cluster, folder)
        most = len(cluster.processes) + 1 if cluster else 2
        oids = [p64(n) for n in range(1, operations * (most + 1) + 2)]
        fill(open_storage, oids)

        def cost(work: Callable[[Any], object], items: list[Any]) -> dict[str, Any]:
            return costs_of(_parts(cluster), work, items, trace)

        with steps.measured():
            return measured(open_storage, oids, cost), steps.medians(operations)


class Steps:
    """How long the methods of commits take, in microseconds of the clock."""

    def __init__(self) -> None:
        self._times: dict[str, list[float]] = {name: [] for name in STEPS}

    @contextmanager
    def measured(self) -> Iterator[None]:
        originals = {name: getattr(Storage, name) for name in STEPS}
        for name, original in originals.items():
            setattr(Storage, name, self._timed(original, self._times[name]))
        try:
            yield
        finally:
            for name, original in originals.items():
                setattr(Storage, name, original)

    @staticmethod
    def _timed(original: Callable[..., Any], times: list[float]) -> Callable[..., Any]:
        @wraps(original)
        def timed(*args: Any, **options: Any) -> Any:
            begin = time.perf_counter()
            try:
                return original(*args, **options)
            finally:
                times.append((time.perf_counter() - begin) * 1e6)

        return timed

    def medians(self, count: int) -> dict[str, float]:
        """Return the medians of the first ``count``, after one that warms up."""
        found = {name: statistics.median(times[1 : count + 1]) for name, times in self._times.items()}
        sums = [sum(each) for each in zip(*self._times.values(), strict=True)]
        return {**found, "together": statistics.median(sums[1 : count + 1])}


def _parts(cluster: Cluster | None) -> dict[str, Any]:
    """Return what has costs of its own; in one process with the nodes, groups of threads."""
    from tests.bench.system_calls import Part

    if cluster is not None:
        pids = {name: process.pid for name, process in cluster.processes.items() if name != "admin"}
        return {"client": Part(os.getpid()), **{name: Part(pid) for name, pid in pids.items()}}
    groups: dict[bool, list[int]] = {False: [], True: []}
    for thread in threading.enumerate():
        if thread.native_id is not None:
            groups[_of_nodes(thread)].append(thread.native_id)
    return {"client": Part(os.getpid(), groups[False]), "nodes": Part(os.getpid(), groups[True])}


def _in_pieces(shape: str, folder: Path, operations: int) -> dict[str, dict[str, Piece]]:
    from tests.bench.calls import fill, measured

    cluster = shaped(shape, folder)
    if cluster is not None:
        cluster.pieces = True
    with Pieces().measured() as own, cluster or nullcontext():
        open_storage = opens(cluster, folder)
        oids = [p64(n) for n in range(1, operations + 2)]
        fill(open_storage, oids)

        def snapshot() -> dict[str, dict[str, Piece]]:
            if cluster is None:
                return {"client": own.now(nodes=False), "nodes": own.now(nodes=True)}
            names = [name for name in cluster.processes if name != "admin"]
            return {"client": own.now(), **{name: cluster.of(name) for name in names}}

        def differences(work: Callable[[Any], object], items: list[Any]) -> dict[str, dict[str, Piece]]:
            before = snapshot()
            for item in items:
                work(item)
            return {
                process: {
                    name: Piece(*(n / len(items) for n in piece - before[process].get(name, Piece())))
                    for name, piece in pieces.items()
                }
                for process, pieces in snapshot().items()
            }

        return measured(open_storage, oids, differences)["commit"]


# -- report -----------------------------------------------------------------------------------------


def report(shape: str, result: Result) -> Iterator[str]:
    """Yield the lines of the tables of a shape."""
    yield f"\n{shape}\n"
    yield "| step of a commit | µs of the clock |\n|---|---|"
    for name, micros in result.steps.items():
        yield f"| {name} | {micros:,.0f} |"
    yield "\n| | µs of a processor | system calls | syncs | waits |\n|---|---|---|---|---|"
    for operation, costs in result.costs.items():
        for part, cost in costs.items():
            figures = f"{cost.us:,.0f} | {cost.calls:.1f} | {cost.syncs:.1f} | {cost.waits:.1f}"
            yield f"| {operation}: {part} | {figures} |"
    yield "\n| piece of a commit | how often | µs of a processor | µs of the clock |\n|---|---|---|---|"
    for process, pieces in result.pieces.items():
        for name, piece in sorted(pieces.items(), key=lambda item: -item[1].wall):
            if piece.times >= 0.05:
                yield f"| {process}: {name} | {piece.times:.1f} | {piece.cpu:,.0f} | {piece.wall:,.0f} |"


def main(shapes: Sequence[str]) -> None:
    for shape in shapes or SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            for line in report(shape, measure(shape, Path(folder))):
                print(line, flush=True)


if __name__ == "__main__":
    if sys.argv[2:] and "/" in sys.argv[1]:
        _main_of_a_process(*sys.argv[1:])
    else:
        main(sys.argv[1:])
