"""A cluster with copies whose admin node serves the web page, an application at work, and what happens to
the cluster."""

from __future__ import annotations

import configparser
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from neo.protocol.enums import NodeType
from neo.protocol.packets import AskNodeList
from neo.simple import Cluster
from tests.support.cluster import simple_cluster
from tests.support.ports import free_range

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


class Watched:
    def __init__(self, cluster: Cluster, port: int) -> None:
        self.cluster = cluster
        self.url = f"http://127.0.0.1:{port}/"

    def lose_storage(self) -> None:
        self.cluster.kill("storage2")

    def bring_back(self) -> None:
        self.cluster.restart("storage2")
        self.cluster.wait_running()

    @contextmanager
    def operation(self) -> Iterator[None]:
        """Begin an upgrade of all storage nodes, in turn, the last of which stands still."""
        pid = self.cluster.processes[self._last_storage()].pid
        words = ["-a", self.cluster.admin_address, "upgrade"]
        os.kill(pid, signal.SIGSTOP)
        try:
            with subprocess.Popen([sys.executable, "-m", "neoctl", *words]) as process:
                try:
                    yield
                finally:
                    os.kill(pid, signal.SIGCONT)
                    process.wait()
        finally:
            os.kill(pid, signal.SIGCONT)

    def _last_storage(self) -> str:
        with self.cluster.admin() as admin:
            rows = admin.ask(AskNodeList(NodeType.STORAGE)).node_list
        address = max(rows, key=lambda row: row[2] or 0)[1]
        return next(node.name for node in self.cluster.conf.nodes if node.address == address)

    def lose_primary(self) -> None:
        self.cluster.kill("master1")

    def lose_admin(self) -> None:
        self.cluster.kill("admin")


def _serve_page(conf: Path, port: int) -> None:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(conf)
    parser["admin"]["http"] = str(port)
    with conf.open("w") as file:
        parser.write(file)


@contextmanager
def watched(folder: Path) -> Iterator[Watched]:
    """Start all, and stop all. ``folder``: for files."""
    port = free_range(1)
    with ExitStack() as stack:
        shape = {"storages": 3, "replicas": 1, "partitions": 24, "name": "shop"}
        cluster = simple_cluster(folder / "cluster", **shape)
        _serve_page(cluster.conf.path, port)
        stack.enter_context(cluster)
        words = [sys.executable, "-c", APPLICATION, cluster.uri]
        application = stack.enter_context(
            # In the end it loses the master, and says so.
            subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        )
        stack.callback(application.kill)
        assert application.stdout is not None and application.stdout.readline() == b"begun\n"
        yield Watched(cluster, port)
