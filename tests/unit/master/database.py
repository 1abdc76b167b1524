"""Masters with the storage nodes of one database."""

from __future__ import annotations

from typing import Any

from neo.protocol.enums import ClusterState, NodeType
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
    RequestIdentification,
    SetClusterState,
)
from tests.support.remote import Remote
from tests.unit.master.changing_masters import admin
from tests.unit.master.masters import Masters
from tests.unit.master.uneventful import equal_tails, nothing_prepared


class Database(Masters):
    """Three masters, and storage nodes that are played."""

    #: Extra properties of these.
    extra: dict[str, Any] = {}

    def __init__(self) -> None:
        super().__init__(3, replicas=1)
        self.start()
        self.until_serving()
        self.run(1)

    @property
    def state(self) -> ClusterState:
        return self.primary().cluster.state

    def storage(self, nid: int, ptid: int | None, rows: list[list[CellRow]]) -> Remote:
        """A storage node that joins the primary with the table it has."""
        remote = Remote.connect(self.core(self.serving()[0]))
        address = ("127.0.0.1", 9100 + nid)
        request = RequestIdentification(NodeType.STORAGE, nid, address, "test", None, self.extra)
        remote.ask(request).result()
        remote.answer(remote.take(AskRecovery), AnswerRecovery(ptid, None, None))
        if remote.has(AskPartitionTable):
            remote.answer(remote.take(AskPartitionTable), AnswerPartitionTable(ptid, 1, rows))
        return remote

    def verify(self, *storages: Remote) -> None:
        self.run(0.2)  # the log has the table
        for storage in storages:
            storage.answer(storage.take(AskLockedTransactions), AnswerLockedTransactions({}))
        nothing_prepared(storages)
        for storage in storages:
            storage.answer(storage.take(AskLastIDs), AnswerLastIDs(None, None))
        equal_tails(storages)

    def create(self) -> tuple[Remote, Remote]:
        storages = self.storage(1, None, []), self.storage(2, None, [])
        asked = admin(self).ask(SetClusterState(ClusterState.VERIFYING))
        self.verify(*storages)
        asked.result()
        assert self.state is ClusterState.RUNNING
        return storages

    def fail_over(self) -> None:
        first = self.serving()[0]
        self.processes[first].kill()
        self.until_serving(but=first)
        self.processes[first].start()
        self.run(1)
