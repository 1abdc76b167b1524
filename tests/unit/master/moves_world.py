"""A master whose storage nodes know operations, and what they do when cells move."""

from __future__ import annotations

from typing import Any

from neo.master.maintenance.membership import Membership
from neo.master.operations.moves import MovesCells
from neo.operations.model import Operation
from neo.protocol.enums import CellState, ErrorCode, NodeType
from neo.protocol.packets import (
    FEATURE_OURS,
    AnswerBeginOperation,
    AnswerDisks,
    AnswerRecovery,
    AskBeginOperation,
    AskDisks,
    AskRecovery,
    AskUnfinishedTransactions,
    NotifyReady,
    NotifyReplicationDone,
    StartOperation,
)
from tests.support.remote import error_of
from tests.unit.master.cluster import MasterWorld

UP, OUT = CellState.UP_TO_DATE, CellState.OUT_OF_DATE


class OpenTransactions:
    """The open transactions, as the test says."""

    def __init__(self) -> None:
        self.now: list[bytes] = []

    def ttids(self) -> list[bytes]:
        return self.now


class World(MasterWorld):
    """Storage nodes that know operations. S1 and S2 have two partitions each, if not otherwise said."""

    extra = {"features": [FEATURE_OURS]}

    def __init__(self, count: int = 2, pending: int = 1, replicas: int = 0) -> None:
        super().__init__(replicas=replicas)
        self.storages = self.running(count)
        self.fresh = [
            self.join(NodeType.STORAGE, port=9200 + number) for number in range(pending)
        ]
        self.table = self.master.partitions
        self.open = OpenTransactions()
        membership = Membership(self.master.cluster)
        self.moves = MovesCells(self.master.cluster, membership, self.open)

    def plan(self, kind: str, **arguments: Any) -> AnswerBeginOperation:
        asked = self.admin().ask(AskBeginOperation(kind, arguments, True))
        self.tell_disks({})
        answer = asked.result()
        assert isinstance(answer, AnswerBeginOperation)
        return answer

    def tell_disks(self, told: dict[int, AnswerDisks]) -> None:
        """Let the nodes that are asked tell their disks; those without an answer here have none."""
        for nid, peer in enumerate((*self.storages, *self.fresh), 1):
            if peer.has(AskDisks):
                peer.answer(peer.take(AskDisks), told.get(nid, AnswerDisks("0.1.0", 0, [])))

    def refusal(self, kind: str, **arguments: Any) -> str:
        error = error_of(self.admin().ask(AskBeginOperation(kind, arguments, True)))
        assert error.code is ErrorCode.DENIED
        return error.message

    def operation(self, kind: str, **arguments: Any) -> Operation:
        """Return what would begin."""
        planned = self.master.operations._kinds[kind].plan(arguments)
        return Operation(7, kind, planned.arguments, 1, planned.steps, ("table",), 0.0, 1.0, True)

    def until(self, method: Any, *arguments: Any) -> None:
        """Call as often as it is needed, with what storage nodes do meanwhile, and once more."""
        for _ in range(20):
            if method(*arguments):
                break
            self.confirm()
        else:
            raise AssertionError("it is never done")
        before = self.table.ptid
        assert method(*arguments) and self.table.ptid == before

    def confirm(self) -> None:
        """Let the nodes have the table on their disks, and new ones be ready."""
        self.master.flush()
        for storage in (*self.storages, *self.fresh):
            if storage.has(StartOperation):
                storage.take(StartOperation)
                storage.send(NotifyReady())
            while storage.has(AskRecovery):
                answer = AnswerRecovery(self.table.ptid, None, None)
                storage.answer(storage.take(AskRecovery), answer)

    def copied(self, nid: int) -> None:
        """Let a node say that its new cells are complete."""
        peer = (*self.storages, *self.fresh)[nid - 1]  # ids are given in their order
        new = [p for p in self.table.assigned(nid) if self.table.rows[p][nid] is OUT]
        peer.ask(AskUnfinishedTransactions(new)).result()
        for partition in new:
            peer.send(NotifyReplicationDone(partition, bytes(8)))
        self.confirm()




def names(planned: AnswerBeginOperation) -> list[tuple[str, list[int]]]:
    """Return the names of the steps, and the nodes of each."""
    return [(name, list(nids)) for name, nids, *_ in planned.step_list]


def with_arguments(operation: Operation, arguments: dict[str, Any]) -> Operation:
    return Operation(
        operation.id, operation.kind, arguments, 1, operation.steps, ("table",), 0.0, 1.0, True
    )
