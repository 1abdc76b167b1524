"""A synchronous backup starts again: what is locked says what is complete (specification 25.24)."""

from __future__ import annotations

from typing import Any

import pytest

from neo.protocol.enums import CellState
from neo.protocol.packets import (
    FEATURE_OURS,
    AnswerFinalTID,
    AnswerLastIDs,
    AnswerLockedTransactions,
    AnswerRecovery,
    AskFinalTID,
    AskLastIDs,
    AskLockedTransactions,
    AskPartitionTable,
    AskRecovery,
    AskTails,
    NotifySynced,
    ValidateTransaction,
)
from tests.support.remote import Remote
from tests.unit.master.backup_world import BackupWorld
from tests.unit.master.cluster import Rows, tid
from tests.unit.master.uneventful import equal_tails, nothing_prepared

UP, OUT = CellState.UP_TO_DATE, CellState.OUT_OF_DATE
BOTH: Rows = [[(1, UP), (2, UP)]] * 4


class Restart:
    """S1 and S2 of a backup, which remember that they are complete up to 12."""

    def __init__(
        self, rows: Rows = BOTH, features: tuple[str, ...] = (FEATURE_OURS,), own: Rows = BOTH
    ) -> None:
        """``own``: the table that S2 had when it was lost."""
        self.world = BackupWorld()
        self.world.extra = {"features": ["unheard of", *features]}
        self.one, self.two = (self.world.join_storage(nid) for nid in (1, 2))
        self.world.remember(self.two, 7, own, tid(12))
        self.world.remember(self.one, 8, rows, tid(12))
        if self.two.has(AskPartitionTable):
            self.world.tell_table(self.two, 7, own)

    def find(self, one: dict[bytes, Any], two: dict[bytes, Any]) -> None:
        """Say what the nodes have locked (tid) or voted (None)."""
        for storage, tids in ((self.one, one), (self.two, two)):
            question = storage.take(AskLockedTransactions)
            storage.answer(question, AnswerLockedTransactions(tids))
        nothing_prepared((self.one, self.two))

    def told(self, storage: Remote) -> list[Any]:
        return [m for m in storage.received if type(m) in (NotifySynced, ValidateTransaction)]

    def serve(self) -> None:
        for storage in (self.one, self.two):
            storage.answer(storage.take(AskLastIDs), AnswerLastIDs(None, tid(20)))

    @property
    def backup_tid(self) -> bytes:
        found: bytes = self.world.admin().ask(AskRecovery()).result().backup_tid
        return found


def test_readable_cells_are_complete_up_to_the_greatest_locked_tid() -> None:
    """Specification 25.24: they are told when the transactions are finished. If one of them is found
    alone at the next start, the lock may be lost, and it drops its vote."""
    restart = Restart()
    restart.find({tid(13): tid(16), tid(17): tid(20)}, {tid(17): None})
    assert restart.told(restart.one) == [
        ValidateTransaction(tid(13), tid(16)),
        ValidateTransaction(tid(17), tid(20)),
        NotifySynced(tid(20)),
    ]
    assert restart.told(restart.two) == [
        ValidateTransaction(tid(17), tid(20)),
        NotifySynced(tid(20)),
    ]
    restart.serve()
    for storage in (restart.one, restart.two):
        assert storage.take(AskTails).max_tid == tid(20)


def test_readers_see_what_was_finished_at_once() -> None:
    """Specification 25.24, 13.24: nothing needs to be fetched."""
    restart = Restart()
    restart.find({tid(17): tid(20)}, {tid(17): None})
    restart.serve()
    equal_tails((restart.one, restart.two))
    assert restart.backup_tid == tid(20)


def test_a_vote_of_what_another_node_has_fetched_says_nothing() -> None:
    """Specification 25.24: an order was done there, which others may not have done."""
    restart = Restart()
    restart.find({}, {tid(16): None})
    while restart.one.has(AskFinalTID):
        restart.one.answer(restart.one.take(AskFinalTID), AnswerFinalTID(tid(20)))
    assert restart.told(restart.two) == [ValidateTransaction(tid(16), tid(20))]
    assert not restart.told(restart.one)


def test_votes_that_are_not_locked_say_nothing() -> None:
    """Specification 25.24: the upstream cluster did not count on them."""
    restart = Restart()
    restart.find({tid(16): None}, {})
    while restart.one.has(AskFinalTID):
        restart.one.answer(restart.one.take(AskFinalTID), AnswerFinalTID(None))
    while restart.two.has(AskFinalTID):
        restart.two.answer(restart.two.take(AskFinalTID), AnswerFinalTID(None))
    assert restart.told(restart.one) == restart.told(restart.two) == []


def test_what_only_a_node_that_is_out_of_date_has_locked_says_nothing() -> None:
    """It may have been away when the others gave the transaction up (specification 25.24)."""
    restart = Restart(rows=[[(1, UP), (2, OUT)]] * 4)
    restart.find({}, {tid(17): tid(20)})
    assert restart.told(restart.one) == restart.told(restart.two) == []


@pytest.mark.parametrize("alone", [True, False])
def test_a_node_that_does_not_know_its_readable_cell_keeps_what_it_remembers(alone: bool) -> None:
    """Specification 25.24, 4.24: unless another node can replace the cell."""
    rows: Rows = [[(2, UP)] if alone else [(1, UP), (2, UP)], *BOTH[1:]]
    restart = Restart(rows, own=[[(1, CellState.FEEDING), (2, OUT)], *BOTH[1:]])
    restart.find({tid(17): tid(20)}, {})
    assert NotifySynced(tid(20)) in restart.told(restart.one)
    assert (NotifySynced(tid(20)) in restart.told(restart.two)) is not alone


def test_a_node_that_does_not_know_the_feature_is_not_told() -> None:
    """Specification 21.2."""
    restart = Restart(features=())
    restart.find({tid(17): tid(20)}, {})
    assert not restart.one.has(NotifySynced) and restart.one.has(ValidateTransaction)


def test_a_cluster_that_is_no_backup_is_not_told() -> None:
    """Specification 25.24."""
    world = BackupWorld()
    world.extra = {"features": [FEATURE_OURS]}
    storage = world.join_storage(1)
    storage.answer(storage.take(AskRecovery), AnswerRecovery(8, None, None))
    world.tell_table(storage, 8, [[(1, UP)]] * 4)
    storage.answer(
        storage.take(AskLockedTransactions), AnswerLockedTransactions({tid(17): tid(20)})
    )
    nothing_prepared([storage])
    assert storage.has(ValidateTransaction) and not storage.has(NotifySynced)
