"""The systems that are compared: how each is started, opened by a client, and stopped.

The driver starts and stops them; clients open storages in forked processes of their own, so a
System must be usable after a fork: it holds folders, addresses and process ids, never a storage.
"""

import contextlib
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ZODB.FileStorage import FileStorage

from tests.bench.figures import Figure, Memory
from tests.bench.sizes import Sizes
from tests.support.patience import PATIENCE_SECONDS, Deadline
from tests.support.ports import free_range

START_SECONDS_MAX = 60.0  # a new MariaDB server needs two on an idle machine


#: Does a workload of a system, with these sizes and a Data.fs to import, and yields its figures.
Work = Callable[["System", Sizes, Path], Iterator[Figure | Memory]]


class SystemFailed(Exception):
    """A system did not start; the message says why."""


class System(ABC):
    """A storage with its servers. Call stop before the next start."""

    title: str
    note = ""  # what readers must know to compare the figures
    one_process = False  # only one client process can open it

    @abstractmethod
    def start(self, folder: Path) -> None:
        """Start an empty database below `folder` (empty, kept until stop). Raise SystemFailed, or
        NotApplicable if this machine lacks what the system needs."""

    @abstractmethod
    def storage(self) -> Any:
        """Return a new client storage with an empty cache. Call in a client process."""

    @abstractmethod
    def pids(self) -> dict[str, int]:
        """Return the pids of the servers by a readable name; empty without servers."""

    @abstractmethod
    def stop(self) -> None:
        """End the servers; also call after a failed start."""

    def elsewhere(self, workload: str) -> Work | None:
        """Return how to do a workload if not with a storage in forks of this process."""
        return None


class FileStorageSystem(System):
    title = "FileStorage"
    note = "inside the client's process; no other process can share it"
    one_process = True

    def start(self, folder: Path) -> None:
        self._path = folder / "Data.fs"

    def storage(self) -> Any:
        return FileStorage(str(self._path))

    def pids(self) -> dict[str, int]:
        return {}

    def stop(self) -> None:
        pass


class EmbeddedSystem(System):
    title = "NEO embedded"
    note = "inside the client's process, on one SQLite database, 12 partitions"
    one_process = True

    def start(self, folder: Path) -> None:
        self._folder = folder / "embedded"

    def storage(self) -> Any:
        from neo.client import open

        return open(self._folder)

    def pids(self) -> dict[str, int]:
        return {}

    def stop(self) -> None:
        pass


class ZEOSystem(System):
    title = "ZEO"
    note = "one server process on a FileStorage"
    _server: subprocess.Popen[bytes] | None = None

    def start(self, folder: Path) -> None:
        self._address = ("127.0.0.1", free_range(1))
        log = folder / "zeo.log"
        with log.open("wb") as output:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "ZEO.runzeo", *self.options(folder)],
                stdout=output, stderr=subprocess.STDOUT, cwd=folder,
            )  # fmt: skip
        _wait_for_port(self._address, self._server, log)

    def options(self, folder: Path) -> list[str]:
        """Return the options of the server."""
        address = "{}:{}".format(*self._address)
        pid = str(folder / "zeo.pid")
        return ["-f", str(folder / "Data.fs"), "-a", address, "--pid-file", pid]

    def storage(self) -> Any:
        from ZEO.ClientStorage import ClientStorage

        return ClientStorage(self._address, wait_timeout=START_SECONDS_MAX)

    def pids(self) -> dict[str, int]:
        return {"runzeo": self._server.pid} if self._server else {}

    def stop(self) -> None:
        if self._server is not None:
            self._server.terminate()
            try:
                self._server.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
            self._server = None


class NEOSystem(System):
    """One master and two storage nodes, as real processes."""

    note = "one master, two storage nodes, 12 partitions, no replica"
    storages = 2
    processes = True

    def __init__(self, backend: str) -> None:
        self.title = {"sqlite": "NEO SQLite", "mariadb": "NEO MariaDB"}[backend]
        self._backend = backend
        self._stack = contextlib.ExitStack()

    def start(self, folder: Path) -> None:
        from tests.support.cluster import Cluster

        self._cluster = self._stack.enter_context(
            Cluster(
                storages=self.storages,
                backend=self._backend,
                partitions=12,
                folder=folder,
                processes=self.processes,
            )
        )

    def storage(self) -> Any:
        return self._cluster.storage()

    def pids(self) -> dict[str, int]:
        return dict(self._cluster.pids())

    def stop(self) -> None:
        self._stack.close()


class NEOOneStorage(NEOSystem):
    """One master and one storage node, as real processes: ZEO has one server, too."""

    note = "one master, one storage node, 12 partitions"
    storages = 1

    def __init__(self) -> None:
        super().__init__("sqlite")
        self.title = "NEO one storage node"


class NEOOneProcess(NEOSystem):
    """All nodes in one process, as ``neosimple`` starts them."""

    note = "one process: a master, one storage node, an admin node; 12 partitions"
    storages = 1
    processes = False

    def __init__(self) -> None:
        super().__init__("sqlite")
        self.title = "NEO one process"


def _wait_for_port(address: tuple[str, int], server: subprocess.Popen[bytes], log: Path) -> None:
    """Return when `server` accepts connections. Raise SystemFailed with the last lines of its log."""
    deadline = Deadline(START_SECONDS_MAX)
    while server.poll() is None and not deadline.passed():
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(address, 1):
            return
        deadline.pause()
    words = log.read_text(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
    raise SystemFailed(f"the server at {address[0]}:{address[1]} did not start: {words[0]}")


def _relstorage_sqlite() -> System:
    from tests.bench.relstorage_systems import RelStorageSQLite

    return RelStorageSQLite()


def _relstorage_mariadb() -> System:
    from tests.bench.relstorage_systems import RelStorageMariaDB

    return RelStorageMariaDB()


def _pgjsonb() -> System:
    from tests.bench.pgjsonb import PGJsonb

    return PGJsonb()


# A system whose packages are not installed fails when it is created; the others work.
SYSTEMS: dict[str, Callable[[], System]] = {
    "filestorage": FileStorageSystem,
    "zeo": ZEOSystem,
    "relstorage-sqlite": _relstorage_sqlite,
    "relstorage-mariadb": _relstorage_mariadb,
    "pgjsonb": _pgjsonb,
    "neo-embedded": EmbeddedSystem,
    "neo-one-process": NEOOneProcess,
    "neo-one-storage": NEOOneStorage,
    "neo-sqlite": lambda: NEOSystem("sqlite"),
    "neo-mariadb": lambda: NEOSystem("mariadb"),
}
