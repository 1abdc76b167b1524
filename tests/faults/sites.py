"""Two clusters of processes, of which one is a backup of the other."""

from __future__ import annotations

from collections.abc import Callable

from ZODB.DB import DB

from neo.protocol.enums import ClusterState, NodeState, NodeType
from neo.protocol.packets import (
    A,
    AnswerClusterState,
    AnswerNodeList,
    AnswerRecovery,
    AskClusterState,
    AskNodeList,
    AskRecovery,
    Request,
    SetClusterState,
)
from tests.support.cluster import AWAY, Cluster
from tests.support.patience import PATIENCE_SECONDS, wait_until


class Site:
    """A cluster and its admin node."""

    def __init__(self, cluster: Cluster, tls: dict[str, str]) -> None:
        self.cluster = cluster
        self.tls = tls

    def ask(self, message: Request[A]) -> A:
        with self.cluster.simple.admin() as admin:
            return admin.ask(message)

    def db(self) -> DB:
        return DB(self.cluster.storage(**self.tls))

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition, while all processes run."""

        def checked() -> bool:
            self.cluster.simple.check()
            return condition()

        wait_until(checked, what, excuses=AWAY)

    def state(self) -> ClusterState | None:
        answer = self.ask(AskClusterState())
        assert isinstance(answer, AnswerClusterState)
        return answer.state

    def set_state(self, wanted: ClusterState, reached: ClusterState) -> None:
        """Repeat the command, which is refused as long as clients are connected."""

        def asked() -> bool:
            self.ask(SetClusterState(wanted))
            return True

        self.wait(asked, f"{wanted.name} is refused")
        self.wait(lambda: self.state() is reached, f"it does not become {reached.name}")

    def has(self, tid: bytes) -> bool:
        """Return whether the cluster is a backup and all its nodes have the transaction."""
        answer = self.ask(AskRecovery())
        nodes = self.ask(AskNodeList(NodeType.STORAGE))
        assert isinstance(answer, AnswerRecovery) and isinstance(nodes, AnswerNodeList)
        running = all(row[3] is NodeState.RUNNING for row in nodes.node_list)
        return running and answer.backup_tid == tid

    def configure_upstream(self, other: Cluster) -> None:
        """Add the upstream cluster to neo.conf, and restart the master."""
        path = self.cluster.simple.conf.path
        lines = (
            f"[DEFAULT]\nupstream_cluster = {other.simple.name}\n"
            f"upstream_masters = {other.simple.masters}\n"
        )
        path.write_text(path.read_text().replace("[DEFAULT]\n", lines, 1))
        self.cluster.simple.restart("master1")
        self.cluster.simple.wait_running()

    def stop(self) -> None:
        self.ask(SetClusterState(ClusterState.STOPPING))
        for name, process in self.cluster.simple.processes.items():
            if name != "admin":
                process.wait(PATIENCE_SECONDS)
        self.cluster.simple.stop()


def write(db: DB, count: int = 5) -> bytes:
    """Commit some transactions. Return the last tid."""
    for _ in range(count):
        with db.transaction() as connection:
            root = connection.root()
            number = root.get("count", 0) + 1
            root["count"] = number
            root[number] = f"value {number}" * 100
    tid: bytes = db.lastTransaction()
    return tid


def follows(backup: Site, tid: bytes) -> None:
    backup.wait(lambda: backup.has(tid), f"the backup does not reach {tid.hex()}")
