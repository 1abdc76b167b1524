"""Databases on a small disk of their own, which fills up or becomes read-only.

``python -m tests.faults.small_disk FOLDER SCENARIO`` mounts the disk on the
folder. Run it by ``unshare --mount``, so that no other process sees the disk and nothing of it is left.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from contextlib import closing, suppress
from pathlib import Path
from shutil import disk_usage

from ZODB.DB import DB
from ZODB.POSException import POSError

from neo.simple import ClusterError
from tests.faults.contents import Made, check_folder, check_fresh, parts, put
from tests.faults.load import Load, check
from tests.faults.writer import OBJECTS, prepare, values
from tests.support.cluster import Cluster
from tests.support.mariadb import Server
from tests.support.patience import PATIENCE_SECONDS, wait_until

#: Free space beside the databases of a new cluster; the writers need some seconds to fill it.
FREE_BYTES = 3 << 20
#: More than the writers fill between two loads of ballast, also on a busy machine.
SQLITE_BYTES = 64 << 20
#: A MariaDB server needs room for itself.
MARIADB_BYTES = 400 << 20


def mount(folder: Path, size: int) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder], check=True)


class Ballast:
    """A file that takes the free space except FREE_BYTES."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "ballast"

    def load(self) -> None:
        portion = bytes(1 << 16)
        with open(self._path, "wb", buffering=0) as file:
            with suppress(OSError):  # until no space is free
                while True:
                    file.write(portion)
            file.truncate(self._path.stat().st_size - FREE_BYTES)

    def drop(self) -> None:
        self._path.unlink()


def _is_full(log: str) -> bool:
    """Return whether a log says that the disk is full. A MariaDB server may end by itself then."""
    return "no space" in log or "the server is away" in log


def write_until_full(cluster: Cluster, ballast: Ballast) -> None:
    """Fill the disk. Neither nodes nor clients are restarted: they go on when there is space."""
    log = cluster.simple.log("storage1")
    with tempfile.TemporaryDirectory() as ledgers:
        prepare(cluster.storage(), 2)
        load = Load(cluster, Path(ledgers))
        processes = cluster.pids()
        load.start()
        try:
            load.wait_commits(1)
            for _ in range(2):
                ballast.load()
                before = len(log.read_text())
                load.wait(
                    lambda before=before: _is_full(log.read_text()[before:]),
                    "the disk does not fill up",
                )
                ballast.drop()
                if cluster.server is not None and not cluster.server.running:
                    cluster.server.start()
                load.wait_commits(3)
                check(cluster, load)
        finally:
            load.stop()
        assert cluster.pids() == processes
        cluster.simple.check()
        told = "".join(path.read_text() for path in Path(ledgers).glob("writer*.log"))
        assert re.search(r"not acknowledged: .*the peer says: the database failed: ", told), told


def full_sqlite(folder: Path) -> None:
    mount(folder, SQLITE_BYTES)
    with Cluster(storages=1, partitions=4, database=f"{folder}/storage{{n}}.sqlite") as cluster:
        write_until_full(cluster, Ballast(folder))


def full_mariadb(folder: Path) -> None:
    mount(folder, MARIADB_BYTES)
    server = Server(folder)
    try:
        server.install()
        server.start()
        with Cluster(storages=1, backend="mariadb", partitions=4, server=server) as cluster:
            write_until_full(cluster, Ballast(folder))
    finally:
        server.stop()


def readonly(folder: Path) -> None:
    """Mount the disk read-only, as the system does after an error."""
    mount(folder, SQLITE_BYTES)
    with Cluster(storages=1, partitions=4, database=f"{folder}/storage{{n}}.sqlite") as cluster:
        prepare(cluster.storage(), 1)
        cluster.simple.kill("storage1")
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        try:
            cluster.simple.restart("storage1")
        except ClusterError as e:
            assert "storage1 ended with exit code 1" in str(e), e
            assert "writable" in str(e), e
        else:
            raise AssertionError("it started on a disk where it cannot write")
        cluster.simple.processes.pop("storage1")
        subprocess.run(["mount", "-o", "remount,bind,rw", folder], check=True)
        cluster.simple.restart("storage1")
        cluster.simple.wait_running()
        db = DB(cluster.storage(wait_timeout=PATIENCE_SECONDS))
        assert values(db.open(), 0) == [0] * OBJECTS
        db.close()


def full_blobs(folder: Path) -> None:
    """Upload contents that do not fit. The node goes on, and the space is free again."""
    mount(folder, SQLITE_BYTES)
    small = {"small": Made("small", 1000), "half": Made("half", SQLITE_BYTES // 2)}
    with Cluster(storages=1, partitions=4, database=f"{folder}/storage{{n}}.sqlite") as cluster:
        processes = cluster.pids()
        with closing(DB(cluster.storage())) as db:
            put(db, small)
            for number in range(2):
                before = disk_usage(folder).used
                try:
                    put(db, {"large": Made("large", SQLITE_BYTES)})
                except POSError as e:
                    print(f"{type(e).__name__}: {e}")
                    assert re.search(r"no space|disk is full", str(e), re.IGNORECASE), e
                else:
                    raise AssertionError("it was stored on a disk where it does not fit")
                wait_until(lambda: not parts(cluster, "storage1"), "the part stays")
                assert disk_usage(folder).used <= before + FREE_BYTES
                small[f"after {number}"] = Made(f"after {number}", 10_000)
                put(db, {f"after {number}": small[f"after {number}"]})
        check_fresh(cluster, small)
        check_folder(cluster, "storage1")
        assert cluster.pids() == processes
        cluster.simple.check()


SCENARIOS = {
    "full-sqlite": full_sqlite,
    "full-mariadb": full_mariadb,
    "full-blobs": full_blobs,
    "readonly": readonly,
}

if __name__ == "__main__":
    SCENARIOS[sys.argv[2]](Path(sys.argv[1]))
