"""Empty clusters in quick succession, for suites of many small tests.

One process runs a master and its storage nodes, each with its own core, host, port and database; every
test gets new ones on empty databases. The client runs in another process, behind sockets.

A cluster can have a synchronous backup, of the same shape and in the same process. It is in sync before
the cluster is used, and nothing is committed without it. When the cluster stops, the backup must have all
that was acknowledged.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import uvloop

from neo.client import NEOStorage
from neo.master.__main__ import load_settings as master_settings
from neo.master.__main__ import make_core as make_master
from neo.master.primary import PrimaryMaster
from neo.node.node_host import NodeHost
from neo.node.process import Process
from neo.protocol import codec
from neo.protocol.enums import ClusterState
from neo.protocol.ids import ZERO_TID
from neo.protocol.packets import CODES, AskOIDs, AskRevisions
from neo.storage.__main__ import load_settings as storage_settings
from neo.storage.__main__ import make_core as make_storage
from neo.storage.serving import identification
from tests.support import mariadb
from tests.support.patience import PATIENCE_SECONDS, Deadline
from tests.support.ports import free_range

NAME = "test"
BACKUP = "backup"
PARTITIONS = 12
POLL_SECONDS = 0.01


class Clock:
    """Return the seconds since 1970, shared by two processes."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(struct.pack("d", 0.0))
        with open(path, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 8)

    def set(self, seconds: float) -> None:
        struct.pack_into("d", self._memory, 0, seconds)

    def get(self) -> float:
        seconds: float = struct.unpack_from("d", self._memory)[0]
        return seconds


class FleetStorage(NEOStorage):
    """The storage under test. ``acknowledged``: the tids of all commits of a cluster."""

    clock: Clock
    acknowledged: list[bytes]

    def tpc_begin(self, transaction: Any, tid: bytes | None = None, status: str = " ") -> None:
        self.clock.set(time.time())
        super().tpc_begin(transaction, tid, status)

    def tpc_finish(
        self, transaction: Any, func: Callable[[bytes], object] = lambda tid: None
    ) -> bytes:
        tid = super().tpc_finish(transaction, func)
        self.acknowledged.append(tid)
        return tid


class _Shell(NodeHost):
    """The process of a master whose clock may be ahead."""

    clock: Clock

    def time(self) -> float:
        return max(time.time(), self.clock.get())


class Fleet:
    """A process for clusters. ``backend``: 'sqlite' or 'mariadb'. start() gives an empty cluster, also
    in place of another.

    ``foreign``: the storage nodes know only the messages of protocol version 1. ``sync``: the cluster has
    a synchronous backup.
    """

    def __init__(
        self,
        storages: int,
        backend: str,
        server: mariadb.Server | None = None,
        replicas: int = 0,
        foreign: bool = False,
        sync: bool = False,
    ) -> None:
        self._foreign = foreign
        self._sync = sync
        #: Files, or names of databases on the server; those of the cluster, not of its backup.
        self.databases: list[str] = []
        self._replicas = replicas
        self._stack = ExitStack()
        self._storages = storages
        self._backend = backend
        self._server = server
        self.masters = ""
        self._acknowledged: list[bytes] = []

    def __enter__(self) -> Fleet:
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        count = self._storages * (1 + self._sync)
        databases = [str(folder / f"{n}.sqlite") for n in range(count)]
        if self._backend == "mariadb":
            assert self._server is not None
            databases = [self._server.create_database() for _ in databases]
        self.databases = databases[: self._storages]
        adapter = "SQLite" if self._backend == "sqlite" else "MySQL"
        self._clock = Clock(folder / "clock")
        self._log = self._stack.enter_context(open(folder / "log", "w+"))
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.zodb.fleet",
                str(folder),
                adapter,
                str(self._replicas),
                str(self._storages),
                *databases,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        return self

    def _tell(self, **order: Any) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        if (answer := self._process.stdout.readline()) != "done\n":
            self._log.seek(0)
            raise RuntimeError(f"the cluster's process failed: {answer}\n{self._log.read()}")

    def start(self) -> None:
        """Start an empty cluster. Raise RuntimeError if the backup of the one before lacks something."""
        self.stop()
        port = free_range(2)
        self.masters = f"127.0.0.1:{port}"
        self._clock.set(0)
        backup = f"127.0.0.1:{port + 1}" if self._sync else None
        self._tell(masters=self.masters, backup=backup, foreign=self._foreign)

    def stop(self) -> None:
        """Stop the nodes, so that their databases hold all data for other readers. Raise RuntimeError if
        the backup lacks something."""
        acknowledged, self._acknowledged = self._acknowledged, []
        self._tell(acknowledged=max(acknowledged, default=ZERO_TID).hex())

    def storage(self, **options: Any) -> NEOStorage:
        storage = FleetStorage(self.masters, NAME, **options)
        storage.clock = self._clock
        storage.acknowledged = self._acknowledged
        return storage

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            if self._process.poll() is None:
                self.stop()
        finally:
            self._process.stdin.close()
            self._process.wait(PATIENCE_SECONDS)
            self._process.stdout.close()
            self._stack.close()


class _Nodes:
    def __init__(
        self, folder: str, adapter: str, replicas: str, storages: str, databases: list[str]
    ) -> None:
        self._replicas = replicas
        self._clock = Clock(Path(folder) / "clock")
        self._folder = folder
        self._adapter = adapter
        self._storages = int(storages)
        self._databases = databases
        self._running: list[tuple[Process, asyncio.Task[int]]] = []
        self._master: NodeHost | None = None
        self._backup: NodeHost | None = None

    async def start(self, masters: str, backup: str | None, foreign: bool) -> None:
        if foreign:
            _know_no_extensions()
        own, copies = self._databases[: self._storages], self._databases[self._storages :]
        if backup is None:
            self._master = await self._cluster(NAME, masters, own, [])
            return
        waiting = ["--sync-backups", BACKUP, "--sync-policy", "stop"]
        self._master = await self._cluster(NAME, masters, own, waiting)
        following = ["--upstream-cluster", NAME, "--upstream-masters", masters, "--sync"]
        self._backup = await self._cluster(BACKUP, backup, copies, following)
        await self._follow(self._backup)

    async def _cluster(
        self, name: str, masters: str, databases: list[str], settings: list[str]
    ) -> NodeHost:
        """Start a cluster. Return its master."""
        common = ["--cluster", name, "--masters", masters, "--bind"]
        shape = ["-p", str(PARTITIONS), "-r", self._replicas, "-A", str(len(databases))]
        process = Process()
        host = _Shell(process, master_settings([*common, masters, *shape, *settings]), make_master)
        host.clock = self._clock
        self._run(process)
        await asyncio.sleep(0)
        for database in databases:
            options = ["127.0.0.1:0", "-a", self._adapter, "-d", database, "--reset"]
            if self._adapter != "SQLite":
                folder = f"{self._folder}/{database.replace('/', '-')}.blobs"
                options += ["--blob-dir", folder]
            process = Process()
            NodeHost(process, storage_settings([*common, *options]), make_storage)
            self._run(process)
        return host

    async def _follow(self, host: NodeHost) -> None:
        """Make a cluster a backup, and wait until it is in sync."""
        await _until(lambda: isinstance(host.core, PrimaryMaster), "the master of the backup begins")
        master = _primary(host)
        cluster = master.cluster
        await _until(
            lambda: cluster.state is ClusterState.RUNNING and not cluster.starting,
            "the backup runs",
        )
        master.backup.check_start()
        master.backup.start(lambda error: None)
        master.flush()

        def in_sync() -> bool:
            sync = master.backup.synchronous
            return sync is not None and sync.in_sync

        await _until(in_sync, "the backup is in sync")

    def _lost(self, acknowledged: bytes) -> str:
        """Return what the backup lacks of that which was acknowledged (specification 25.4)."""
        if self._master is None or self._backup is None:
            return ""
        backup = _primary(self._backup).backup.current
        last = max(acknowledged, _primary(self._master).cluster.last_tid)
        complete = ZERO_TID if backup is None else backup.cells.complete
        if complete >= last:
            return ""
        return f"{last.hex()} is acknowledged, the backup has {complete.hex()}"

    def _run(self, process: Process) -> None:
        self._running.append((process, asyncio.create_task(process.run())))

    async def stop(self, acknowledged: str) -> str:
        """Stop all nodes. Return what the backup lacks."""
        lost = self._lost(bytes.fromhex(acknowledged))
        self._master = self._backup = None
        running, self._running = self._running, []
        for process, _ in reversed(running):
            for host in process.nodes:
                if host.core is not None:
                    host.core.stop(0)
        for _, task in running:
            await task
        return lost


def _know_no_extensions() -> None:
    """Let storage nodes of this process ignore features from now on."""
    identification.FEATURES = "unheard of"  # type: ignore[attr-defined]
    for message in (AskOIDs, AskRevisions):
        codec._READERS.pop(CODES[message], None)


def _primary(host: NodeHost) -> PrimaryMaster:
    assert isinstance(host.core, PrimaryMaster)
    return host.core


async def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = Deadline()
    while not condition():
        assert not deadline.passed(), what
        await asyncio.sleep(POLL_SECONDS)


async def _serve(
    folder: str, adapter: str, replicas: str, storages: str, databases: list[str]
) -> None:
    nodes = _Nodes(folder, adapter, replicas, storages, databases)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order = json.loads(line)
        wrong = await (nodes.start(**order) if "masters" in order else nodes.stop(**order))
        print(wrong or "done", flush=True)


if __name__ == "__main__":
    import logging

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    folder, adapter, replicas, storages, *databases = sys.argv[1:]
    uvloop.run(_serve(folder, adapter, replicas, storages, databases))
