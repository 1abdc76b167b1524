"""The systems whose blobs are compared. Each client storage gets a cache of blobs of its own, which is
empty.

Blobs go over the network: no system shares a folder between server and clients, although all run on one
machine.
"""

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ZODB.FileStorage import FileStorage

from tests.bench.systems import START_SECONDS_MAX, FileStorageSystem, System, ZEOSystem

_ZEO_CONF = """
<zeo>
  address {address}
  pid-filename {folder}/zeo.pid
</zeo>
<filestorage 1>
  path {folder}/Data.fs
  blob-dir {folder}/blobs
</filestorage>
"""


def _cache(folder: Path) -> str:
    """Return a new folder for the blobs of one client."""
    return tempfile.mkdtemp(prefix="cache-", dir=folder)


class FileStorageBlobs(FileStorageSystem):
    note = "inside the client's process; a commit renames the file that the application wrote, unsynced"

    def start(self, folder: Path) -> None:
        super().start(folder)
        self._blobs = folder / "blobs"

    def storage(self) -> Any:
        return FileStorage(str(self._path), blob_dir=str(self._blobs))


class ZEOBlobs(ZEOSystem):
    note = "one server process on a FileStorage, which does not sync files of blobs"

    def start(self, folder: Path) -> None:
        self._folder = folder
        super().start(folder)

    def options(self, folder: Path) -> list[str]:
        path = folder / "zeo.conf"
        address = "{}:{}".format(*self._address)
        path.write_text(_ZEO_CONF.format(address=address, folder=folder))
        return ["-C", str(path)]

    def storage(self) -> Any:
        from ZEO.ClientStorage import ClientStorage

        return ClientStorage(
            self._address,
            wait_timeout=START_SECONDS_MAX,
            blob_dir=_cache(self._folder),
            shared_blob_dir=False,
        )


class NEOBlobs(System):
    """One master and one storage node, as real processes."""

    note = "one master, one storage node, 12 partitions; contents are synced before the vote"

    def __init__(self, backend: str) -> None:
        self.title = {"sqlite": "NEO SQLite", "mariadb": "NEO MariaDB"}[backend]
        self._backend = backend
        self._stack = contextlib.ExitStack()

    def start(self, folder: Path) -> None:
        from tests.support.cluster import Cluster

        self._folder = folder
        self._cluster = self._stack.enter_context(
            Cluster(storages=1, backend=self._backend, partitions=12, folder=folder / "neo")
        )

    def storage(self) -> Any:
        return self._cluster.storage(blob_dir=_cache(self._folder))

    def pids(self) -> dict[str, int]:
        return dict(self._cluster.pids())

    def stop(self) -> None:
        self._stack.close()


def _relstorage_mariadb() -> System:
    from tests.bench.relstorage_systems import RelStorageMariaDB

    class RelStorageBlobs(RelStorageMariaDB):
        note = f"{RelStorageMariaDB.note}; contents are rows of 1 MiB in the database"

        def start(self, folder: Path) -> None:
            self._folder = folder
            super().start(folder)

        def options(self) -> dict[str, Any]:
            return {"blob_dir": _cache(self._folder), "shared_blob_dir": False}

    return RelStorageBlobs()


# A system whose packages are not installed fails when it is created; the others work.
SYSTEMS: dict[str, Callable[[], System]] = {
    "filestorage": FileStorageBlobs,
    "zeo": ZEOBlobs,
    "relstorage-mariadb": _relstorage_mariadb,
    "neo-sqlite": lambda: NEOBlobs("sqlite"),
    "neo-mariadb": lambda: NEOBlobs("mariadb"),
}
