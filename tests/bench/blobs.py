"""`python -m tests.bench.blobs`: measure blobs of NEO and of its peers on this machine, in one run.

Clients use ZODB as applications do: they write into a new blob and commit, open a blob and read it. So
the time of a store includes writing the client's own file, and that of a first read includes the file in
the client's cache. No two contents are equal.
"""

import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import transaction
from ZODB.blob import Blob
from ZODB.DB import DB
from ZODB.utils import z64

from tests.bench import clients
from tests.bench.blob_systems import SYSTEMS
from tests.bench.clients import ClientFailed, PeakMemory, Ready
from tests.bench.command import command
from tests.bench.figures import Figure, Kind
from tests.bench.records import record
from tests.bench.runner import Suite
from tests.bench.sizes import Limit, Sizes
from tests.bench.systems import System
from tests.bench.workloads import (
    Results,
    Workload,
    commit,
    fill,
    memory_figures,
    need_processes,
    percentiles,
    session,
)

_KIB = 1 << 10
_MIB = 1 << 20
_MB = 1_000_000
_PAUSE_SECONDS = 0.005  # between two operations of the clients beside an upload
_PIECE = Random(0).randbytes(_MIB)  # of a content, after its number
_HEAD_BYTES = 16


def _kind(name: str, workload: str, title: str, unit: str) -> Kind:
    return Kind(name, workload, title, unit)


_SMALL = "{blobs:,} blobs of {blob_kib} KiB"
_MEDIUM = "{blobs_medium} blobs of {blob_medium_mib} MiB"
_HUGE = "one blob of {blob_huge_mib:,} MiB"

KINDS = (
    _kind("small_batch", "small", f"store {_SMALL}, {{blob_batch}} a transaction", "/s"),
    _kind("small_single", "small", f"store {_SMALL}, one a transaction", "/s"),
    _kind("small_read", "small", f"first read of {_SMALL}", "/s"),
    _kind("small_cached", "small", "… from the client's cache", "/s"),
    _kind("medium_store", "medium", f"store {_MEDIUM}", "MB/s"),
    _kind("medium_read", "medium", f"first read of {_MEDIUM}", "MB/s"),
    _kind("medium_cached", "medium", "… from the client's cache", "MB/s"),
    _kind("huge_store", "huge", f"store {_HUGE}", "MB/s"),
    _kind("huge_store_client_mb", "huge", "… client memory above idle", "MB"),
    _kind("huge_store_server_mb", "huge", "… memory above idle, largest server", "MB"),
    _kind("huge_read", "huge", f"first read of {_HUGE}", "MB/s"),
    _kind("huge_read_client_mb", "huge", "… client memory above idle", "MB"),
    _kind("huge_read_server_mb", "huge", "… memory above idle, largest server", "MB"),
    _kind("load_alone_p50", "upload", "cold load of another client, p50", "µs"),
    _kind("load_alone_p99", "upload", "cold load of another client, p99", "µs"),
    _kind("load_beside_p50", "upload", "… while a client uploads, p50", "µs"),
    _kind("load_beside_p99", "upload", "… while a client uploads, p99", "µs"),
    _kind("load_slower", "upload", "… p99, divided by that without an upload", "times"),
    _kind("load_floor_p50", "upload", "… while processes pass files on as fast, p50", "µs"),
    _kind("load_floor_p99", "upload", "… while processes pass files on as fast, p99", "µs"),
    _kind("commit_alone_p50", "upload", "commit of another client, p50", "µs"),
    _kind("commit_alone_p99", "upload", "commit of another client, p99", "µs"),
    _kind("commit_beside_p50", "upload", "… while a client uploads, p50", "µs"),
    _kind("commit_beside_p99", "upload", "… while a client uploads, p99", "µs"),
    _kind("commit_slower", "upload", "… p99, divided by that without an upload", "times"),
    _kind("commit_floor_p50", "upload", "… while processes pass files on as fast, p50", "µs"),
    _kind("commit_floor_p99", "upload", "… while processes pass files on as fast, p99", "µs"),
    _kind("upload", "upload", "the upload meanwhile, blobs of {upload_mib} MiB", "MB/s"),
)


# -- blobs -----------------------------------------------------------------------------------------


def _pieces(number: int, size: int) -> Iterator[bytes]:
    """Yield a content of `size` bytes. Its head is the number, so that contents differ."""
    yield number.to_bytes(_HEAD_BYTES, "big")
    left = size - _HEAD_BYTES
    while left > 0:
        yield _PIECE[:left]
        left -= _MIB


def _write(connection: Any, number: int, size: int) -> bytes:
    """Add a blob to the open transaction. Return its oid."""
    blob = Blob()
    with blob.open("w") as file:
        for piece in _pieces(number, size):
            file.write(piece)
    connection.add(blob)
    oid: bytes = blob._p_oid
    return oid


def _read(connection: Any, oid: bytes, number: int, size: int) -> None:
    """Read a blob. Raise ClientFailed if it is not the content that was written."""
    with connection.get(oid).open("r") as file:
        right = all(file.read(len(piece)) == piece for piece in _pieces(number, size))
        if not right or file.read(1):
            raise ClientFailed(f"blob {number} of {size} bytes was read with another content")


@contextmanager
def _connection(system: System) -> Iterator[Any]:
    database = DB(system.storage())
    connection = database.open()
    yield connection
    transaction.abort()
    connection.close()
    database.close()


def _memory(system: System) -> PeakMemory:
    return PeakMemory({"client": os.getpid()} | system.pids())


def _store(
    system: System, numbers: range, size: int, batch: int
) -> tuple[list[bytes], float, dict[str, float]]:
    """Store blobs. Return their oids, the seconds, and the rise of memory."""
    os.sync()  # the writes of earlier work are not those of this one
    with _connection(system) as connection:
        memory, oids = _memory(system), []
        begin = time.perf_counter()
        for index, number in enumerate(numbers, 1):
            oids.append(_write(connection, number, size))
            if index % batch == 0 or index == len(numbers):
                transaction.commit()
        elapsed = time.perf_counter() - begin
        rise = memory.rise()
    return oids, elapsed, rise


def _read_all(
    system: System, oids: list[bytes], numbers: range, size: int
) -> tuple[float, float, dict[str, float]]:
    """Read blobs with an empty cache, then from the cache. Return the seconds of both, and the rise of
    memory of the first."""
    with _connection(system) as connection:
        memory, elapsed = _memory(system), []
        rise: dict[str, float] = {}
        for _ in range(2):
            connection.cacheMinimize()
            begin = time.perf_counter()
            for oid, number in zip(oids, numbers, strict=True):
                _read(connection, oid, number, size)
            elapsed.append(time.perf_counter() - begin)
            rise = rise or memory.rise()
    return elapsed[0], elapsed[1], rise


# -- workloads -------------------------------------------------------------------------------------


def small(system: System, sizes: Sizes, source: Path) -> Results:
    """Measure many small blobs: stored by a hundred, stored one by one, read by another client."""
    size, count = sizes.blob_kib * _KIB, sizes.blobs
    batch, single = range(count), range(count, 2 * count)
    oids, elapsed, _ = clients.run(
        lambda: _store(system, batch, size, sizes.blob_batch), sizes.whole_seconds_max
    )
    yield Figure("small_batch", count / elapsed)
    _, elapsed, _ = clients.run(lambda: _store(system, single, size, 1), sizes.whole_seconds_max)
    yield Figure("small_single", count / elapsed)
    first, cached, _ = clients.run(
        lambda: _read_all(system, oids, batch, size), sizes.whole_seconds_max
    )
    yield Figure("small_read", count / first)
    yield Figure("small_cached", count / cached)


def medium(system: System, sizes: Sizes, source: Path) -> Results:
    """Measure blobs of a usual size, one a transaction, and their reads by another client."""
    size, numbers = sizes.blob_medium_mib * _MIB, range(sizes.blobs_medium)
    megabytes = len(numbers) * size / _MB
    oids, elapsed, _ = clients.run(
        lambda: _store(system, numbers, size, 1), sizes.whole_seconds_max
    )
    yield Figure("medium_store", megabytes / elapsed)
    first, cached, _ = clients.run(
        lambda: _read_all(system, oids, numbers, size), sizes.whole_seconds_max
    )
    yield Figure("medium_read", megabytes / first)
    yield Figure("medium_cached", megabytes / cached)


def huge(system: System, sizes: Sizes, source: Path) -> Results:
    """Measure one very large blob, its read by another client, and the memory of each process."""
    size, numbers = sizes.blob_huge_mib * _MIB, range(1)
    oids, elapsed, rise = clients.run(
        lambda: _store(system, numbers, size, 1), sizes.whole_seconds_max
    )
    yield Figure("huge_store", size / elapsed / _MB)
    yield from memory_figures("huge_store", rise)
    first, _, rise = clients.run(
        lambda: _read_all(system, oids, numbers, size), sizes.whole_seconds_max
    )
    yield Figure("huge_read", size / first / _MB)
    yield from memory_figures("huge_read", rise)


def upload(system: System, sizes: Sizes, source: Path) -> Results:
    """Measure the loads and commits of two clients: alone, while a third one uploads, and while processes
    that know nothing of the system pass on files of the same size at the same speed."""
    need_processes(system)
    oids = clients.run(lambda: fill(system, sizes.objects), sizes.seconds_max)
    third, seconds = len(oids) // 3, sizes.upload_seconds
    samples: dict[str, list[list[float]]] = {}
    speed = 0.0

    def work(index: int, ready: Ready) -> list[float]:
        if index == 0:
            return _load_slowly(system, part, seconds, ready)
        if index == 1:
            return _commit_slowly(system, seconds, ready)
        if when == "beside":
            return _upload(system, sizes, ready)
        ends[index - 2].settimeout(sizes.whole_seconds_max)
        with ends[index - 2] as end, tempfile.TemporaryDirectory(dir=source.parent) as folder:
            if index == 2:
                return _send_files(Path(folder), sizes, end, speed, ready)
            return _keep_files(Path(folder), sizes, end, ready)

    for number, (when, count) in enumerate((("alone", 2), ("beside", 3), ("floor", 4))):
        part = oids[number * third : (number + 1) * third]
        with ExitStack() as stack:
            ends = [stack.enter_context(end) for end in socket.socketpair()]
            samples[when] = clients.run_many(count, work, sizes.whole_seconds_max)
        if when == "beside":
            speed = samples[when][2][0]
    for index, what in enumerate(("load", "commit")):
        slowest = {}
        for when, found in samples.items():
            for figure in percentiles(f"{what}_{when}", found[index], 0):
                yield figure
                if isinstance(figure, Figure):
                    slowest[figure.name] = figure.value
        ratio = slowest[f"{what}_beside_p99"] / slowest[f"{what}_alone_p99"]
        yield Figure(f"{what}_slower", ratio)
    yield Figure("upload", speed)


def _load_slowly(system: System, oids: list[bytes], seconds: float, ready: Ready) -> list[float]:
    """Load objects, each once, so that no cache has them. Return the µs of each load."""
    storage = system.storage()
    view, samples = session(storage), []
    ready()
    limit = Limit(seconds)
    for oid in oids:
        begin = time.perf_counter()
        view.load(oid)
        samples.append((time.perf_counter() - begin) * 1e6)
        if limit.over():
            break
        time.sleep(_PAUSE_SECONDS)
    storage.close()
    return samples


def _commit_slowly(system: System, seconds: float, ready: Ready) -> list[float]:
    """Commit one object again and again. Return the µs of each commit."""
    storage = system.storage()
    view, rng, samples = session(storage), Random(1), []
    oid = view.new_oid()
    serial = commit(view, [(oid, z64, record(rng))])
    ready()
    limit = Limit(seconds)
    while not limit.over():
        begin = time.perf_counter()
        serial = commit(view, [(oid, serial, record(rng))])
        samples.append((time.perf_counter() - begin) * 1e6)
        time.sleep(_PAUSE_SECONDS)
    storage.close()
    return samples


def _upload(system: System, sizes: Sizes, ready: Ready) -> list[float]:
    """Store blobs as long as the other clients work. Return the MB/s."""
    size = sizes.upload_mib * _MIB
    with _connection(system) as connection:
        ready()
        begin, limit, count = time.perf_counter(), Limit(sizes.upload_seconds), 0
        while not limit.over():
            _write(connection, count, size)
            transaction.commit()
            count += 1
        elapsed = time.perf_counter() - begin
    return [count * size / elapsed / _MB]


def _send_files(
    folder: Path, sizes: Sizes, end: socket.socket, speed: float, ready: Ready
) -> list[float]:
    """Do the least that an application and a client do for an upload: write files and send them, at
    `speed` MB/s. What other clients lose beside this, they lose to the machine."""
    size = sizes.upload_mib * _MIB
    ready()
    limit, path, begin, count = Limit(sizes.upload_seconds), folder / "sent", time.perf_counter(), 0
    while not limit.over():
        with path.open("wb") as file:
            for piece in _pieces(count, size):
                file.write(piece)
        with path.open("rb") as file:
            end.sendfile(file)
        end.recv(1)
        path.unlink()
        count += 1
        time.sleep(max(0.0, begin + count * size / _MB / speed - time.perf_counter()))
    end.shutdown(socket.SHUT_RDWR)  # a close is not enough: every client has a copy of both ends
    return []


def _keep_files(folder: Path, sizes: Sizes, end: socket.socket, ready: Ready) -> list[float]:
    """Do the least that a server does for an upload: write what comes and sync it, before it answers."""
    size, buffer, number = sizes.upload_mib * _MIB, bytearray(_MIB), 0
    ready()
    while True:
        with (folder / str(number)).open("wb") as file:
            left = size
            while left:
                received = end.recv_into(buffer, min(left, _MIB))
                if not received:
                    return []
                file.write(memoryview(buffer)[:received])
                left -= received
            file.flush()
            os.fsync(file.fileno())
        end.send(b".")
        number += 1


WORKLOADS: dict[str, Workload] = {
    "small": small,
    "medium": medium,
    "huge": huge,
    "upload": upload,
}


def main(arguments: list[str] | None = None) -> int:
    """Run and print the tables. Return 1 if a figure of NEO failed; a failure of another system is a
    result."""
    suite = Suite(WORKLOADS, KINDS)
    return command("python -m tests.bench.blobs", __doc__, SYSTEMS, suite, arguments)


if __name__ == "__main__":
    sys.exit(main())
