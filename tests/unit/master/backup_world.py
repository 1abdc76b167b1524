"""A master whose cluster is a backup: the upstream cluster is played by the test."""

from __future__ import annotations

from typing import Any

from neo.protocol.enums import CellState, ClusterState, NodeState, NodeType
from neo.protocol.ids import nid_namespace
from neo.protocol.packets import (
    AcceptIdentification,
    AnswerLastTransaction,
    AnswerRecovery,
    AskLastTransaction,
    AskRecovery,
    NodeRow,
    NotifyNodeInformation,
    NotifyReplicationDone,
    Replicate,
    RequestIdentification,
    SendPartitionTable,
    SetClusterState,
    StartOperation,
)
from tests.support.remote import Remote
from tests.unit.master.cluster import MasterWorld, spread, tid

UPSTREAM = ("127.0.0.1", 7000)
SOURCE, OTHER = ("127.0.0.1", 7101), ("127.0.0.1", 7102)
UP_C1 = nid_namespace(NodeType.CLIENT) + 1
UP, OUT = CellState.UP_TO_DATE, CellState.OUT_OF_DATE
SETTINGS: dict[str, Any] = {"upstream_cluster": "up", "upstream_masters": [UPSTREAM]}


class BackupWorld(MasterWorld):
    extra = {"features": ["oids"]}

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**SETTINGS, **settings})

    def upstream(
        self, last: int, rows: Any = None, admin: Any = None, sources: Any = (SOURCE, OTHER)
    ) -> Remote:
        """Play the upstream master, which was dialed: accept, and answer with its last transaction."""
        remote = self.host.dialed[-1]
        question = remote.take(RequestIdentification)
        assert question.extra["backup"] == "test" and question.name == "up"
        remote.answer(question, AcceptIdentification(NodeType.MASTER, -0x0FFFFFFF, UP_C1))
        nodes: list[NodeRow] = [
            (NodeType.STORAGE, address, nid, NodeState.RUNNING, 5.0)
            for nid, address in enumerate(sources, 1)
        ]
        nodes.append((NodeType.CLIENT, None, UP_C1, NodeState.RUNNING, 6.0))
        if admin:
            nodes.append((NodeType.ADMIN, admin, -0x2FFFFFFF, NodeState.RUNNING, 7.0))
        remote.send(NotifyNodeInformation(1.0, nodes))
        rows = rows or spread(1, 2, partitions=self.master.settings.partitions)
        remote.send(SendPartitionTable(1, 0, rows))
        self.greet(remote)
        remote.answer(remote.take(AskLastTransaction), AnswerLastTransaction(tid(last)))
        return remote

    def greet(self, upstream: Remote) -> None:
        """Play what a synchronous backup asks before it compares histories."""

    def starting(self, count: int = 1) -> list[Remote]:
        """Make a new cluster that looks for its upstream cluster."""
        storages = self.running(count)
        self.admin().ask(SetClusterState(ClusterState.STARTING_BACKUP))
        assert self.master.cluster.state is ClusterState.STARTING_BACKUP
        return storages

    def backingup(self, count: int = 1, last: int = 0) -> tuple[Remote, list[Remote]]:
        """Make a new cluster that is BACKINGUP."""
        storages = self.starting(count)
        upstream = self.upstream(last)
        for storage in storages:
            storage.take(StartOperation)
            storage.take(Replicate)
            durable(storage, 0)
        assert self.master.cluster.state is ClusterState.BACKINGUP
        return upstream, storages


def durable(storage: Remote, last: int, ptid: int = 1) -> None:
    """Answer for a storage node that has its data up to ``last``, and this partition table, on its
    disk."""
    storage.answer(storage.take(AskRecovery), AnswerRecovery(ptid, tid(last), None))


def complete(last: int, *storages: Remote, ptid: int = 1) -> None:
    """Answer each AskRecovery."""
    for storage in storages:
        while storage.has(AskRecovery):
            durable(storage, last, ptid)


def fetched(storage: Remote, number: int, *partitions: int) -> None:
    """Let a node tell that it has replicated these partitions up to a transaction."""
    for partition in partitions:
        storage.send(NotifyReplicationDone(partition, tid(number)))
