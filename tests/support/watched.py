"""A cluster with copies whose admin node serves the web page, an application at work, and what happens to
the cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from neo.admin.page.accounts import Accounts, hash_password
from neo.protocol.enums import NodeType
from neo.protocol.packets import AskNodeList
from tests.support.cluster import Cluster
from tests.support.ports import free_range
from tests.support.standstill import stand_still

#: Who may sign in on the page.
NAME, PASSWORD = "ada", "correct horse battery"
#: An application that commits some times per second.
APPLICATION = """
import sys, time, transaction, ZODB, zodburi
factory, _ = zodburi.resolve_uri(sys.argv[1])
root = ZODB.DB(factory()).open().root()
print("begun", flush=True)
while True:
    root["count"] = root.get("count", 0) + 1
    transaction.commit()
    time.sleep(0.05)
"""


#: A client that commits an object which another one has locked.
WAITING = """
import sys
from ZODB.Connection import TransactionMetaData
from neo.client import Storage
storage = Storage(*sys.argv[1:3])
oid, serial = map(bytes.fromhex, sys.argv[3:])
transaction = TransactionMetaData()
storage.tpc_begin(transaction)
storage.store(oid, serial, b"more", "", transaction)
storage.tpc_vote(transaction)
print(storage.tpc_finish(transaction).hex(), flush=True)
storage.close()
"""


class Watched:
    def __init__(self, cluster: Cluster, port: int) -> None:
        self.cluster = cluster
        self.url = f"http://127.0.0.1:{port}/"

    @contextmanager
    def blocked(self) -> Iterator[tuple[str, subprocess.Popen[str]]]:
        """Yield the ttid of a transaction that does not end, and the process of a client that waits for
        it."""
        simple = self.cluster.simple
        where = [simple.masters, simple.name]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with ExitStack() as stack:

            def run(*words: str) -> subprocess.Popen[str]:
                process = stack.enter_context(subprocess.Popen([sys.executable, *words], **pipes))
                stack.callback(process.kill)
                return process

            holder = run("-m", "tests.faults.standing", *where)
            assert holder.stdout is not None
            _, oid, serial, ttid = holder.stdout.readline().split()
            yield f"0x{ttid}", run("-c", WAITING, *where, oid, serial)

    def log(self) -> str:
        """Return the log of the admin node."""
        return self.cluster.simple.log("admin").read_text()

    def lose_storage(self) -> None:
        self.cluster.simple.kill("storage2")

    def bring_back(self) -> None:
        self.cluster.simple.restart("storage2")
        self.cluster.simple.wait_running()

    @contextmanager
    def operation(self, *words: str) -> Iterator[None]:
        """Begin an operation, for which the last storage node does nothing, because it stands still.
        ``words``: for neoctl; a backup, whose begin waits for the node for 13 seconds, if there are none.
        """
        pid = self.cluster.pids()[self._last_storage()]
        simple = self.cluster.simple
        backup = "backup", str(simple.folder.parent / "backup")
        line = ["-a", simple.admin_address, *(words or backup)]
        stand_still(pid)
        try:
            with subprocess.Popen([sys.executable, "-m", "neoctl", *line]) as process:
                try:
                    yield
                finally:
                    os.kill(pid, signal.SIGCONT)
                    process.wait()
        finally:
            os.kill(pid, signal.SIGCONT)

    def _last_storage(self) -> str:
        with self.cluster.simple.admin() as admin:
            rows = admin.ask(AskNodeList(NodeType.STORAGE)).node_list
        address = max(rows, key=lambda row: row[2] or 0)[1]
        return next(node.name for node in self.cluster.simple.conf.nodes if node.address == address)

    def lose_primary(self) -> None:
        self.cluster.simple.kill("master1")

    def lose_admin(self) -> None:
        self.cluster.simple.kill("admin")


@contextmanager
def watched(folder: Path) -> Iterator[Watched]:
    """Start all, and stop all. ``folder``: for files."""
    port, passwords = free_range(1), folder / "passwords"
    Accounts(str(passwords)).set(NAME, hash_password(PASSWORD))
    page = {"http": str(port), "http_passwords": str(passwords)}
    with ExitStack() as stack:
        shape = {"storages": 3, "replicas": 1, "partitions": 24, "name": "shop"}
        cluster = stack.enter_context(
            Cluster(folder=folder / "cluster", sections={"admin": page}, **shape)  # type: ignore[arg-type]
        )
        words = [sys.executable, "-c", APPLICATION, cluster.uri]
        application = stack.enter_context(
            # In the end it loses the master, and says so.
            subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        )
        stack.callback(application.kill)
        assert application.stdout is not None and application.stdout.readline() == b"begun\n"
        yield Watched(cluster, port)
