"""Empty clusters in quick succession, for suites of many small tests.

One process runs a master and its storage nodes, each with its own core, host, port and database; every
test gets new ones on empty databases. The client runs in another process, behind sockets.
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
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import uvloop

from neo.client import NEOStorage
from neo.master.__main__ import load_settings as master_settings
from neo.master.__main__ import make_core as make_master
from neo.node.process import ProcessHost
from neo.protocol import codec
from neo.protocol.packets import CODES, AskOIDs, AskRevisions
from neo.storage.__main__ import load_settings as storage_settings
from neo.storage.__main__ import make_core as make_storage
from neo.storage.serving import identification
from tests.support import mariadb
from tests.support.ports import free_range

NAME = "test"
PARTITIONS = 12


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
    """The storage under test."""

    clock: Clock

    def tpc_begin(self, transaction: Any, tid: bytes | None = None, status: str = " ") -> None:
        self.clock.set(time.time())
        super().tpc_begin(transaction, tid, status)


class _Shell(ProcessHost):
    """The process of a master whose clock may be ahead."""

    clock: Clock

    def time(self) -> float:
        return max(time.time(), self.clock.get())


class Fleet:
    """A process for clusters. ``backend``: 'sqlite' or 'mariadb'. start() gives an empty cluster, also
    in place of another.

    ``foreign``: the storage nodes know only the messages of protocol version 1.
    """

    def __init__(
        self,
        storages: int,
        backend: str,
        server: mariadb.Server | None = None,
        replicas: int = 0,
        foreign: bool = False,
    ) -> None:
        self._foreign = foreign
        #: Files, or names of databases on the server.
        self.databases: list[str] = []
        self._replicas = replicas
        self._stack = ExitStack()
        self._storages = storages
        self._backend = backend
        self._server = server
        self._started = False
        self.masters = ""

    def __enter__(self) -> Fleet:
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        databases = [str(folder / f"{n}.sqlite") for n in range(self._storages)]
        if self._backend == "mariadb":
            assert self._server is not None
            databases = [self._server.create_database() for _ in databases]
        self.databases = databases
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
        if self._process.stdout.readline() != "done\n":
            self._log.seek(0)
            raise RuntimeError(f"the cluster's process failed:\n{self._log.read()}")

    def start(self) -> None:
        self.masters = f"127.0.0.1:{free_range(1)}"
        self._clock.set(0)
        self._tell(masters=self.masters, foreign=self._foreign)

    def stop(self) -> None:
        """Stop the nodes, so that their databases hold all data for other readers."""
        self._tell(masters=None, foreign=self._foreign)

    def storage(self, **options: Any) -> NEOStorage:
        storage = FleetStorage(self.masters, NAME, **options)
        storage.clock = self._clock
        return storage

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()
        self._stack.close()


class _Nodes:
    def __init__(self, folder: str, adapter: str, replicas: str, databases: list[str]) -> None:
        self._replicas = replicas
        self._clock = Clock(Path(folder) / "clock")
        self._adapter = adapter
        self._databases = databases
        self._running: list[tuple[ProcessHost, asyncio.Task[int]]] = []

    async def start(self, masters: str | None, foreign: bool) -> None:
        await self.stop()
        if foreign:
            _know_no_extensions()
        if masters is None:
            return
        common = ["--cluster", NAME, "--masters", masters, "--bind"]
        shape = ["-p", str(PARTITIONS), "-r", self._replicas, "-A", str(len(self._databases))]
        master = master_settings([*common, masters, *shape])
        host = _Shell(master, make_master)
        host.clock = self._clock
        self._run(host)
        await asyncio.sleep(0)
        for database in self._databases:
            settings = storage_settings(
                [*common, "127.0.0.1:0", "-a", self._adapter, "-d", database, "--reset"]
            )
            self._run(ProcessHost(settings, make_storage))

    def _run(self, host: ProcessHost) -> None:
        self._running.append((host, asyncio.create_task(host.run())))

    async def stop(self) -> None:
        running, self._running = self._running, []
        for host, _ in reversed(running):
            if host._core is not None:
                host._core.stop(0)
        for _, task in running:
            await task


def _know_no_extensions() -> None:
    """Let storage nodes of this process ignore features from now on."""
    identification.FEATURES = "unheard of"  # type: ignore[attr-defined]
    for message in (AskOIDs, AskRevisions):
        codec._READERS.pop(CODES[message], None)


async def _serve(folder: str, adapter: str, replicas: str, databases: list[str]) -> None:
    nodes = _Nodes(folder, adapter, replicas, databases)
    loop = asyncio.get_running_loop()
    while order := await loop.run_in_executor(None, sys.stdin.readline):
        await nodes.start(**json.loads(order))
        print("done", flush=True)
    await nodes.stop()


if __name__ == "__main__":
    import logging

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    uvloop.run(_serve(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
