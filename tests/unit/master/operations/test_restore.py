"""What a restore leaves when it is over, on the master (specification 27.66, 27.67)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from neo.master.operations.part import TICK_SECONDS
from neo.operations.model import StepMark
from neo.protocol.enums import CellState, ClusterState, ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import (
    AnswerBeginOperation,
    AnswerUnfinishedTransactions,
    AskBeginOperation,
    AskPartitionTable,
    AskRecovery,
    AskTails,
    AskUnfinishedTransactions,
    NotifyOperationMark,
)
from tests.support.remote import Remote
from tests.unit.master import cluster
from tests.unit.master.cluster import Rows, spread, tid
from tests.unit.master.moves_world import OUT, UP, World


class Restoring(World):
    """A restore has begun."""

    def __init__(self, replicas: int) -> None:
        super().__init__(pending=0, replicas=replicas)
        self.replicas = replicas
        self.begin()

    def begin(self) -> None:
        asked = self.admin().ask(AskBeginOperation("restore", {"path": "/a", "tid": ""}, False))
        answer = asked.result()
        assert isinstance(answer, AnswerBeginOperation) and answer.id is not None
        self.id = answer.id

    def mark(self, nid: int, mark: StepMark, step: int = 0) -> None:
        self.storages[nid - 1].send(NotifyOperationMark(self.id, step, mark.value, 1.0, "", b""))
        self.host.advance(2 * TICK_SECONDS)

    def done(self, *nids: int) -> None:
        for step in range(2):
            for nid in nids:
                self.mark(nid, StepMark.DONE, step)

    def lose(self, nid: int) -> None:
        self.storages[nid - 1].lose()

    def return_(self, nid: int) -> Remote:
        self.storages[nid - 1] = storage = self.back(nid)
        return storage

    def recover(self, ltid: bytes | None = None, second: CellState = OUT) -> None:
        """Play RECOVERING and VERIFYING. ``ltid``: the last transaction that the nodes have. ``second``:
        the cells of node 2, if each partition has two."""
        assert self.master.cluster.state is ClusterState.RECOVERING
        rows: Rows = [[(1, UP), (2, second)]] * 4 if self.replicas else spread(1, 2)
        for storage in self.storages:
            while storage.has(AskRecovery):
                self.remember(storage, self.master.cluster.published.ptid)
            if storage.has(AskPartitionTable):
                self.tell_table(storage, self.master.cluster.published.ptid, rows)
        self.verify(*self.storages, ltid=ltid)
        assert self.master.cluster.state is ClusterState.RUNNING


def replicates(storage: Remote) -> bool:
    """Ask as a node with a cell that is out of date. Return whether it may replicate."""
    try:
        answer = storage.ask(AskUnfinishedTransactions([0])).result()
    except ErrorAnswer as e:
        assert e.code is ErrorCode.NOT_READY and "(restore) holds 'clients'" in e.message
        return False
    assert isinstance(answer, AnswerUnfinishedTransactions)
    return True


def test_no_cell_is_replicated_while_a_restore_may_be_undone_27_67() -> None:
    """A node that has undone its part would copy the rows of another one that has not."""
    world = Restoring(replicas=1)
    world.lose(2)
    assert not replicates(world.return_(2)), "rows of a node that goes on"
    world.mark(1, StepMark.FAILED)
    assert not replicates(world.storages[1])
    world.mark(2, StepMark.ROLLED_BACK)
    assert not replicates(world.storages[1]), "rows of a node that has not undone its part"
    world.mark(1, StepMark.ROLLED_BACK)
    world.recover()
    assert replicates(world.storages[1])


def test_cells_are_replicated_when_a_restore_has_succeeded_27_67() -> None:
    """Also those of a node that was away when it ended."""
    world = Restoring(replicas=1)
    world.done(1, 2)
    world.mark(1, StepMark.SUCCEEDED)
    world.lose(2)
    assert not replicates(world.return_(2)), "this master could forget the success"
    world.mark(2, StepMark.SUCCEEDED)
    world.recover(tid(50))
    assert replicates(world.storages[1])


def test_copies_are_not_compared_while_nodes_load_an_archive_27_103(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One node has loaded more than the other one, which is no disk that went back in time."""

    def not_asked(storages: Sequence[Remote]) -> None:
        assert not any(storage.has(AskTails) for storage in storages)

    world = Restoring(replicas=1)
    world.done(1)
    world.lose(2)
    world.lose(1)
    monkeypatch.setattr(cluster, "equal_tails", not_asked)
    world.storages = [world.join_storage(1), world.join_storage(2)]
    world.recover(tid(50), second=UP)


def test_an_archive_can_be_restored_after_a_restore_that_was_undone_27_66() -> None:
    """The master learned the last tid while nodes had restored rows."""
    world = Restoring(replicas=0)
    world.lose(2)
    world.storages[1] = world.join_storage(2)
    world.recover(tid(50))
    assert world.master.cluster.last_tid == tid(50)
    world.mark(1, StepMark.FAILED)
    world.mark(1, StepMark.ROLLED_BACK)
    world.mark(2, StepMark.ROLLED_BACK)
    world.recover()
    world.begin()
