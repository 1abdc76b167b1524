"""The workloads: one function each, which yields its figures as soon as it has them.

A workload gets a started System whose database may have the objects of earlier workloads. It uses
storages only in client processes (see clients). After an error the figures that were yielded before
remain. Reads and writes use the same interface as a ZODB Connection: the MVCC view of the storage
(`session`), or ZODB.DB where conflicts and invalidations matter.
"""

import os
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import transaction
from BTrees.Length import Length
from ZODB.Connection import TransactionMetaData
from ZODB.DB import DB
from ZODB.interfaces import IMVCCStorage
from ZODB.mvccadapter import MVCCAdapter
from ZODB.POSException import ConflictError
from ZODB.utils import z64

from tests.bench import clients
from tests.bench.clients import ClientFailed, NotApplicable, PeakMemory, Ready
from tests.bench.figures import Figure, Memory
from tests.bench.records import Source, record
from tests.bench.sizes import Limit, Sizes
from tests.bench.systems import System

T = TypeVar("T")
Results = Iterator[Figure | Memory]
Workload = Callable[[System, Sizes, Path], Results]

_BATCH = 5_000  # objects per transaction while a database is filled: 1.5 MB, small for everyone
_MB = 1_000_000
_RETRIES_MAX = 1_000  # of one increment: far more than fair clients need


def session(storage: Any) -> Any:
    """Return the view of one ZODB Connection of `storage`, at the newest transaction."""
    adapter = storage if IMVCCStorage.providedBy(storage) else MVCCAdapter(storage)
    instance = adapter.new_instance()
    instance.poll_invalidations()
    return instance


def commit(view: Any, records: list[tuple[bytes, bytes, bytes]]) -> bytes:
    """Commit (oid, serial, data) records through `view`. Return the tid."""
    meta = TransactionMetaData("bench", "commit")
    view.tpc_begin(meta)
    try:
        for oid, serial, data in records:
            view.store(oid, serial, data, "", meta)
        view.tpc_vote(meta)
        tid: bytes = view.tpc_finish(meta)
    except BaseException:
        view.tpc_abort(meta)
        raise
    return tid


def fill(system: System, count: int) -> list[bytes]:
    """Store `count` new objects. Return their oids."""
    rng = random.Random(count)
    storage = system.storage()
    view = session(storage)
    oids = [view.new_oid() for _ in range(count)]
    for start in range(0, count, _BATCH):
        commit(view, [(oid, z64, record(rng)) for oid in oids[start : start + _BATCH]])
    storage.close()
    rng.shuffle(oids)
    return oids


def import_and_iterate(system: System, sizes: Sizes, source: Path) -> Results:
    """Copy a Data.fs into the empty database (copyTransactionsFrom), then iterate over all of it."""

    def copy() -> tuple[int, float]:
        storage = system.storage()
        original = Source(source, sizes.imported, Limit(sizes.whole_seconds))
        begin = time.perf_counter()
        storage.copyTransactionsFrom(original)
        elapsed = time.perf_counter() - begin
        original.close()
        storage.close()
        return original.copied, elapsed

    def iterate() -> tuple[int, float, bool]:
        storage = system.storage()
        limit, count = Limit(sizes.whole_seconds), 0
        begin = time.perf_counter()
        for item in storage.iterator():
            for state in item:
                len(state.data)
            count += 1
            if limit.over():
                break
        elapsed = time.perf_counter() - begin
        partial = limit.over()
        storage.close()
        return count, elapsed, partial

    copied, elapsed = clients.run(copy, sizes.whole_seconds_max)
    yield Figure("import_per_s", copied / elapsed, copied < sizes.imported)
    count, elapsed, partial = clients.run(iterate, sizes.whole_seconds_max)
    if not partial and count != copied:
        raise ClientFailed(f"{copied} transactions were imported, iteration gave {count}")
    yield Figure("iteration_per_s", count / elapsed, partial)


def cold_load(system: System, sizes: Sizes, source: Path) -> Results:
    """Measure the time of one load by one thread, each of another object, with an empty cache."""
    oids = clients.run(lambda: fill(system, sizes.loads), sizes.seconds_max)

    def load() -> list[float]:
        storage = system.storage()
        view, limit = session(storage), Limit(sizes.seconds)
        samples = _timed(limit, view.load, oids)
        storage.close()
        return samples

    samples = clients.run(load, sizes.seconds_max)
    yield from percentiles("cold_load", samples, sizes.loads)


def loads(system: System, sizes: Sizes, source: Path) -> Results:
    """Measure loads per second of one client process, with 1 and with many threads, and an empty
    cache."""
    oids = clients.run(lambda: fill(system, sizes.objects), sizes.seconds_max)

    def load(threads: int, wanted: list[bytes]) -> tuple[int, float]:
        storage = system.storage()
        limit = Limit(sizes.seconds)
        barrier = threading.Barrier(threads + 1, timeout=sizes.seconds)

        def work(index: int) -> int:
            view, count = session(storage), 0
            barrier.wait()
            for oid in wanted[index::threads]:
                if limit.over():
                    break
                view.load(oid)
                count += 1
            return count

        with ThreadPoolExecutor(threads) as pool:
            futures = [pool.submit(work, index) for index in range(threads)]
            barrier.wait()
            begin = time.perf_counter()
            count = sum(future.result() for future in futures)
            elapsed = time.perf_counter() - begin
        storage.close()
        return count, elapsed

    few = oids[: sizes.loads]
    count, elapsed = clients.run(lambda: load(1, few), sizes.seconds_max)
    yield Figure("loads_1", count / elapsed, count < len(few))
    count, elapsed = clients.run(lambda: load(sizes.threads, oids), sizes.seconds_max)
    yield Figure("loads_many", count / elapsed, count < len(oids))


def prefetch(system: System, sizes: Sizes, source: Path) -> Results:
    """Measure the time to prefetch many objects and to load each of them."""
    oids = clients.run(lambda: fill(system, sizes.prefetched), sizes.seconds_max)

    def fetch() -> float:
        storage = system.storage()
        view = session(storage)
        begin = time.perf_counter()
        view.prefetch(oids)
        for oid in oids:
            view.load(oid)
        elapsed = time.perf_counter() - begin
        storage.close()
        return elapsed

    yield Figure("prefetch_ms", clients.run(fetch, sizes.seconds_max) * 1e3)


def commits(system: System, sizes: Sizes, source: Path) -> Results:
    """Measure the time of a commit of one object by one client, from begin to finish."""

    def work() -> list[float]:
        storage = system.storage()
        view, rng = session(storage), random.Random(1)
        oid, serial = view.new_oid(), z64

        def once(_number: int) -> None:
            nonlocal serial
            serial = commit(view, [(oid, serial, record(rng))])

        once(0)
        samples = _timed(Limit(sizes.seconds), once, range(sizes.commits))
        storage.close()
        return samples

    yield from percentiles("commit", clients.run(work, sizes.seconds_max), sizes.commits)


def undo(system: System, sizes: Sizes, source: Path) -> Results:
    """Measure the time of a transaction that undoes another one, and of the list of the last ones."""

    def work() -> tuple[list[float], list[float]]:
        storage = system.storage()
        view, rng = session(storage), random.Random(5)
        oids = [view.new_oid() for _ in range(max(sizes.undos, sizes.undo_log))]
        for oid in oids:
            serial = commit(view, [(oid, z64, record(rng))])
            commit(view, [(oid, serial, record(rng))])

        def listed(first: int, last: int) -> list[Any]:
            entries: list[Any] = storage.undoLog(first, last)
            if len(entries) != last - first:
                raise ClientFailed(f"undoLog({first}, {last}) gave {len(entries)} transactions")
            return entries

        # Every other one: the later change of each object.
        changes = [entry["id"] for entry in listed(0, 2 * len(oids))][::2][: sizes.undos]
        logs = _timed(Limit(sizes.seconds), lambda _: listed(0, sizes.undo_log), changes)

        def once(id: bytes) -> None:
            meta = TransactionMetaData("bench", "undo")
            storage.tpc_begin(meta)
            storage.undo(id, meta)
            storage.tpc_vote(meta)
            storage.tpc_finish(meta)

        undone = _timed(Limit(sizes.seconds), once, changes)
        storage.close()
        return undone, logs

    undone, logs = clients.run(work, sizes.seconds_max)
    for name, samples in ("undo_p50", undone), ("undo_log_p50", logs):
        yield Figure(name, statistics.median(samples), len(samples) < sizes.undos)


def disjoint(system: System, sizes: Sizes, source: Path) -> Results:
    """Measure commits per second of several client processes that each write an object of their own."""

    def work(index: int, ready: Ready) -> float:
        storage = system.storage()
        view, rng, count = session(storage), random.Random(index), 0
        oid, serial = view.new_oid(), z64
        serial = commit(view, [(oid, serial, record(rng))])
        ready()
        begin, limit = time.perf_counter(), Limit(sizes.commit_seconds)
        while not limit.over():
            serial = commit(view, [(oid, serial, record(rng))])
            count += 1
        elapsed = time.perf_counter() - begin
        storage.close()
        return count / elapsed

    yield Figure("disjoint_1", sum(clients.run_many(1, work, sizes.seconds_max)))
    need_processes(system)
    yield Figure("disjoint_many", sum(clients.run_many(sizes.clients, work, sizes.seconds_max)))


def counter(system: System, sizes: Sizes, source: Path) -> Results:
    """Measure commits per second of several client processes that add 1 to one BTrees.Length.

    Clients retry after unresolved conflicts, as applications do. In the end the counter must hold the
    number of commits: a lost or doubled increment is an error.
    """

    def prepare() -> None:
        with _root(system) as root:
            root["bench counter"] = Length()

    def value() -> int:
        with _root(system) as root:
            return int(root["bench counter"]())

    def work(index: int, ready: Ready) -> tuple[int, float]:
        database = DB(system.storage())
        connection, count = database.open(), 0
        length = connection.root()["bench counter"]
        length()
        ready()
        begin, limit = time.perf_counter(), Limit(sizes.commit_seconds)
        while not limit.over():
            _increment(length)
            count += 1
        elapsed = time.perf_counter() - begin
        connection.close()
        database.close()
        return count, elapsed

    clients.run(prepare, sizes.seconds_max)
    expected = 0
    for name, processes in (("counter_1", 1), ("counter_many", sizes.clients)):
        if processes > 1:
            need_processes(system)
        results = clients.run_many(processes, work, sizes.seconds_max)
        expected += sum(count for count, _ in results)
        found = clients.run(value, sizes.seconds_max)
        if found != expected:
            raise ClientFailed(f"{expected} increments were committed, the counter says {found}")
        yield Figure(name, sum(count / elapsed for count, elapsed in results))


def big_transaction(system: System, sizes: Sizes, source: Path) -> Results:
    """Measure one transaction of many objects of 1 KiB, and the memory of each process."""

    def work() -> tuple[int, float, dict[str, float]]:
        storage = system.storage()
        view, rng, meta = session(storage), random.Random(2), TransactionMetaData()
        memory, count = PeakMemory({"client": os.getpid()} | system.pids()), 0
        limit = Limit(sizes.whole_seconds)
        begin = time.perf_counter()
        view.tpc_begin(meta)
        while count < sizes.stored and not limit.over():
            view.store(view.new_oid(), z64, record(rng, 1024), "", meta)
            count += 1
        view.tpc_vote(meta)
        view.tpc_finish(meta)
        elapsed = time.perf_counter() - begin
        rise = memory.rise()
        storage.close()
        return count, elapsed, rise

    count, elapsed, rise = clients.run(work, sizes.whole_seconds_max)
    partial = count < sizes.stored
    yield Figure("big_transaction_mb_s", count * 1024 / elapsed / _MB, partial)
    yield from memory_figures("big_transaction", rise, partial)


def big_object(system: System, sizes: Sizes, source: Path) -> Results:
    """Measure the write of one very large object, and the read by another client."""
    size = sizes.big_mb * _MB
    data = record(random.Random(3), 2 * _MB) * (size // (2 * _MB))

    def write() -> tuple[bytes, float, dict[str, float]]:
        storage = system.storage()
        view, memory = session(storage), PeakMemory({"client": os.getpid()} | system.pids())
        oid = view.new_oid()
        begin = time.perf_counter()
        commit(view, [(oid, z64, data)])
        elapsed = time.perf_counter() - begin
        rise = memory.rise()
        storage.close()
        return oid, elapsed, rise

    def read(oid: bytes) -> tuple[float, dict[str, float]]:
        storage = system.storage()
        view, memory = session(storage), PeakMemory({"client": os.getpid()} | system.pids())
        begin = time.perf_counter()
        found, _ = view.load(oid)
        elapsed = time.perf_counter() - begin
        rise = memory.rise()
        if found != data:
            raise ClientFailed(f"{len(data)} bytes were written, {len(found)} others were read")
        storage.close()
        return elapsed, rise

    oid, elapsed, written = clients.run(write, sizes.whole_seconds_max)
    yield Figure("big_object_write_mb_s", len(data) / elapsed / _MB)
    yield from memory_figures("big_object_write", written)
    elapsed, rise = clients.run(lambda: read(oid), sizes.whole_seconds_max)
    yield Figure("big_object_read_mb_s", len(data) / elapsed / _MB)
    yield from memory_figures("big_object_read", rise)


def _timed(limit: Limit, function: Callable[[T], object], items: Iterable[T]) -> list[float]:
    """Return the µs of `function` for each of `items`, until the limit is over."""
    samples = []
    for item in items:
        begin = time.perf_counter_ns()
        function(item)
        samples.append((time.perf_counter_ns() - begin) / 1e3)
        if limit.over():
            break
    return samples


def percentiles(name: str, samples: list[float], wanted: int) -> Results:
    """Yield the median and the 99th percentile of samples in µs."""
    slowest = sorted(samples)[int(len(samples) * 0.99)]
    yield Figure(f"{name}_p50", statistics.median(samples), len(samples) < wanted)
    yield Figure(f"{name}_p99", slowest, len(samples) < wanted)


def memory_figures(prefix: str, rise: dict[str, float], partial: bool = False) -> Results:
    """Yield the memory of each process above idle, and that of the client and of the largest server."""
    servers = [value for name, value in rise.items() if name != "client"]
    yield Memory(prefix, rise, partial)
    yield Figure(f"{prefix}_client_mb", rise["client"], partial)
    if servers:
        yield Figure(f"{prefix}_server_mb", max(servers), partial)


def need_processes(system: System) -> None:
    """Raise NotApplicable if only one process can open the system."""
    if system.one_process:
        raise NotApplicable(f"only one process can open a {system.title}")


@contextmanager
def _root(system: System) -> Iterator[Any]:
    """Yield the root object of the database; commit its changes at the end."""
    database = DB(system.storage())
    with database.transaction() as connection:
        yield connection.root()
    database.close()


def _increment(length: Length) -> None:
    """Add 1 to `length` in a transaction of its own, however many conflicts that takes."""
    for _ in range(_RETRIES_MAX):
        transaction.begin()
        try:
            length.change(1)
            transaction.commit()
            return
        except ConflictError:
            transaction.abort()
    raise ClientFailed(f"one increment met {_RETRIES_MAX} conflicts in a row")


WORKLOADS: dict[str, Workload] = {
    "import": import_and_iterate,  # first: it needs an empty database
    "cold_load": cold_load,
    "loads": loads,
    "prefetch": prefetch,
    "commit": commits,
    "undo": undo,
    "disjoint": disjoint,
    "counter": counter,
    "big_transaction": big_transaction,
    "big_object": big_object,
}
