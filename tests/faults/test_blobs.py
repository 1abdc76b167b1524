"""Blobs on real processes: damaged files, a cache that processes share, very large contents.

``NEO_BLOB_MB`` chooses the size of the very large one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from ZODB.DB import DB

from tests.faults.blob_client import SHARED_BYTES, shared
from tests.faults.contents import MIB, Made, check_fresh, check_readable, path, put
from tests.support.cluster import Cluster
from tests.support.memory import Process
from tests.support.patience import PATIENCE_SECONDS, wait_until

LARGE_BYTES = int(os.environ.get("NEO_BLOB_MB", "200")) * MIB
#: What each process may need more than when it is idle, for a content of any size.
RISE_BYTES = 32 * MIB
TRANSFER_SECONDS = 600
#: Clients that read what is damaged on one of two replicas. Each begins with one of them at random.
CLIENTS = 6
READERS = 2
SHARED = 300
#: Of the shared cache: a few of all blobs.
CACHED = 20
CACHE_BYTES = CACHED * SHARED_BYTES
SHARE_SECONDS = 3.0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(storages=2, partitions=2, replicas=1) as running:
        yield running


def command(cluster: Cluster, *words: object) -> list[str]:
    module = [sys.executable, "-m", "tests.faults.blob_client"]
    return [*module, cluster.simple.masters, cluster.simple.name, *map(str, words)]


def transfer(cluster: Cluster, work: str) -> None:
    """Store or read the large content. Check the memory of all processes."""
    nodes = {name: Process(pid) for name, pid in cluster.pids().items()}
    words = command(cluster, work, LARGE_BYTES)
    done = subprocess.run(
        words, stdout=subprocess.PIPE, text=True, timeout=TRANSFER_SECONDS, check=True
    )
    rise = {"client": int(done.stdout), **{name: node.above() for name, node in nodes.items()}}
    print(work, {name: f"{value / MIB:.1f} MiB" for name, value in rise.items()})
    too_much = {name: value for name, value in rise.items() if value > RISE_BYTES}
    assert not too_much, rise


@pytest.mark.timeout(2 * TRANSFER_SECONDS + 60)
def test_the_memory_of_no_process_rises_with_the_size_of_a_blob(cluster: Cluster) -> None:
    transfer(cluster, "store")
    transfer(cluster, "read")


def remove(file: Path) -> None:
    file.unlink()


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def flip(file: Path) -> None:
    """Flip one bit in the middle."""
    with open(file, "r+b") as opened:
        opened.seek(file.stat().st_size // 2)
        byte = opened.read(1)[0]
        opened.seek(-1, os.SEEK_CUR)
        opened.write(bytes([byte ^ 1]))


def test_what_is_damaged_on_one_replica_is_read_from_the_other(cluster: Cluster) -> None:
    ways: dict[str, Callable[[Path], None]] = {"remove": remove, "truncate": truncate, "flip": flip}
    contents = {name: Made(name, 2 * MIB + 5) for name in ways}
    with closing(DB(cluster.storage())) as db:
        put(db, contents)
        for name, damage in ways.items():
            file = path(cluster, "storage1", contents[name].content())
            os.chmod(file, 0o600)
            damage(file)
        check_readable(db, contents)  # its cache has them
    for _ in range(CLIENTS):
        check_fresh(cluster, contents)
    log = cluster.simple.log("storage1")
    bad = [made.content().checksum.hex() for made in contents.values()]
    wait_until(lambda: all(text in log.read_text() for text in bad), "storage1 does not say what is bad")
    cluster.simple.check()


def test_processes_share_a_cache_that_is_too_small(cluster: Cluster, tmp_path: Path) -> None:
    with closing(DB(cluster.storage())) as db:
        put(db, {name: made for number in range(SHARED) for name, made in shared(number).items()})
    cache = tmp_path / "cache"
    words = ["share", SHARE_SECONDS, "--cache", cache, "--size", CACHE_BYTES, "--count", SHARED]
    readers = [
        subprocess.Popen(command(cluster, *words), stdout=subprocess.PIPE, text=True)
        for _ in range(READERS)
    ]
    try:
        for reader in readers:
            said, _ = reader.communicate(timeout=PATIENCE_SECONDS)
            assert reader.returncode == 0
            assert int(said) > 3 * CACHED  # so that most were evicted, and fetched again
    finally:
        for reader in readers:
            reader.kill()
    kept = sum(file.stat().st_size for file in cache.rglob("*") if file.is_file())
    assert kept < 3 * SHARED * SHARED_BYTES // 4, "the cache does not become smaller"
