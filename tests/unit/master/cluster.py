"""A primary master; the tests play its storage nodes, clients and admin nodes."""

from __future__ import annotations

from typing import Any

from neo.master.primary import PrimaryMaster
from neo.master.settings import MasterSettings
from neo.protocol.enums import CellState, ClusterState, ErrorCode, NodeType
from neo.protocol.packets import (
    AnswerLastIDs,
    AnswerLockedTransactions,
    AnswerPartitionTable,
    AnswerRecovery,
    AskLastIDs,
    AskLockedTransactions,
    AskPartitionTable,
    AskRecovery,
    CellRow,
    NotifyReady,
    Request,
    RequestIdentification,
    SetClusterState,
    StartOperation,
)
from tests.support.remote import FakeHost, Remote, error_of
from tests.unit.master.uneventful import equal_tails, nothing_prepared

MASTER_ADDRESS = ("127.0.0.1", 10000)
Rows = list[list[CellRow]]

UP, OUT, FEEDING, CORRUPTED, DISCARDED = (
    CellState.UP_TO_DATE,
    CellState.OUT_OF_DATE,
    CellState.FEEDING,
    CellState.CORRUPTED,
    CellState.DISCARDED,
)
RECOVERING, VERIFYING, RUNNING, STOPPING = (
    ClusterState.RECOVERING,
    ClusterState.VERIFYING,
    ClusterState.RUNNING,
    ClusterState.STOPPING,
)


def tid(number: int) -> bytes:
    return number.to_bytes(8, "big")


class MasterWorld:
    #: Extra properties of nodes that join.
    extra: dict[str, Any] = {}

    def __init__(self, **settings: Any) -> None:
        values = {"partitions": 4, "replicas": 0, **settings}
        self.host = FakeHost()
        self._admin: Remote | None = None
        #: Storage nodes of a world that was made in a certain state.
        self.storages: list[Remote] = []
        self.master = PrimaryMaster(
            self.host, MasterSettings("test", [MASTER_ADDRESS], **values), MASTER_ADDRESS
        )
        self.host.core = self.master
        self.master.start()
        self.master.flush()

    def join(
        self, node_type: NodeType, nid: int | None = None, port: int | None = None, **extra: Any
    ) -> Remote:
        """Let a node identify itself. ``extra``: what it tells besides what all nodes here do."""
        remote = Remote.connect(self.master)
        address = None if port is None else ("127.0.0.1", port)
        remote.identified = remote.ask(  # type: ignore[attr-defined]
            RequestIdentification(node_type, nid, address, "test", None, {**self.extra, **extra})
        )
        return remote

    def admin(self) -> Remote:
        """Return the admin node, without the messages that it received before."""
        if self._admin is None:
            self._admin = self.join(NodeType.ADMIN, port=9000)
        self._admin.received.clear()
        return self._admin

    def denied(self, message: Request[Any]) -> str:
        """Return the text with which a command of the operator is refused."""
        error = error_of(self.admin().ask(message))
        assert error.code is ErrorCode.DENIED, error
        return error.message

    def client(self, **extra: Any) -> Remote:
        return self.join(NodeType.CLIENT, **extra)

    def storage(
        self,
        number: int,
        ptid: int | None = None,
        rows: Rows | None = None,
        nid: int | None = None,
    ) -> Remote:
        """Join a storage node that answers AskRecovery; with a table, also AskPartitionTable."""
        remote = self.join(NodeType.STORAGE, nid, port=9100 + number)
        self.remember(remote, ptid, rows)
        return remote

    def join_storage(self, nid: int) -> Remote:
        """Join a storage node with an id that has not answered anything yet."""
        return self.join(NodeType.STORAGE, nid, port=9100 + nid)

    def back(self, nid: int) -> Remote:
        """Let a storage node that was lost come back, ready."""
        storage = self.join_storage(nid)
        self.make_ready(storage)
        return storage

    def remember(
        self,
        storage: Remote,
        ptid: int | None = None,
        rows: Rows | None = None,
        backup_tid: bytes | None = None,
    ) -> None:
        """Answer AskRecovery, and AskPartitionTable if the storage node is asked and has a table."""
        storage.answer(storage.take(AskRecovery), AnswerRecovery(ptid, backup_tid, None))
        if rows is not None and storage.has(AskPartitionTable):
            self.tell_table(storage, ptid, rows)

    def tell_table(self, storage: Remote, ptid: int | None, rows: Rows) -> None:
        question = storage.take(AskPartitionTable)
        storage.answer(question, AnswerPartitionTable(ptid, 0, rows))

    def verify(self, *storages: Remote, ltid: bytes | None = None) -> None:
        """Play an uneventful VERIFYING, then become ready."""
        for storage in storages:
            question = storage.take(AskLockedTransactions)
            storage.answer(question, AnswerLockedTransactions({}))
        nothing_prepared(storages)
        for storage in storages:
            storage.answer(storage.take(AskLastIDs), AnswerLastIDs(None, ltid))
        self.make_ready(*storages)

    def make_ready(self, *storages: Remote) -> None:
        if (left := self.master.coordinator.backups.lease_left) > 0:
            self.host.advance(left)
        equal_tails(storages)
        for storage in storages:
            storage.take(StartOperation)
            storage.send(NotifyReady())

    def running(self, count: int = 2, **settings: Any) -> list[Remote]:
        """Create a database that ``count`` storage nodes serve."""
        storages = [self.storage(i + 1) for i in range(count)]
        admin = self.admin()
        admin.ask(SetClusterState(ClusterState.VERIFYING)).result()
        self.verify(*storages)
        assert self.master.cluster.state is ClusterState.RUNNING
        for storage in storages:
            storage.received.clear()
        return storages


def spread(*nids: int, partitions: int = 4) -> Rows:
    """Return rows without replicas, whose partitions are assigned to the nodes in turn."""
    return [[(nids[p % len(nids)], CellState.UP_TO_DATE)] for p in range(partitions)]
