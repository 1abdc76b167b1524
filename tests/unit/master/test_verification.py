"""VERIFYING: which nodes are told of an interrupted transaction, and whose ids are believed."""

from __future__ import annotations

import pytest

from neo.master.ids import GREATEST_TID
from neo.protocol.enums import CellState, ClusterState
from neo.protocol.ids import add64
from neo.protocol.packets import (
    FEATURE_TAILS,
    FEATURES,
    AnswerLastIDs,
    AnswerLockedTransactions,
    AnswerPartitionTable,
    AnswerRecovery,
    AskLastIDs,
    AskLockedTransactions,
    AskPartitionTable,
    AskRecovery,
    AskTails,
    ValidateTransaction,
)
from tests.support.remote import Remote
from tests.unit.master.cluster import MasterWorld, Rows, spread, tid

UP, OUT = CellState.UP_TO_DATE, CellState.OUT_OF_DATE
BOTH: Rows = [[(1, UP), (2, UP)]] * 4


def voted(storage: Remote, tids: dict[bytes, bytes | None]) -> None:
    storage.answer(storage.take(AskLockedTransactions), AnswerLockedTransactions(tids))


def test_interrupted_transactions_are_finished_in_the_order_of_their_tids(
    world: MasterWorld,
) -> None:
    """Specification 5.7: not in the order of their ttids, nor of the answer."""
    storage = world.storage(1, 5, spread(1), nid=1)
    found = [(tid(100), tid(148)), (tid(104), tid(140)), (tid(108), tid(144))]
    voted(storage, dict(found))
    told = [m for m in storage.received if type(m) is ValidateTransaction]
    assert [(m.ttid, m.tid) for m in told] == [found[1], found[2], found[0]]


def test_a_node_that_is_out_of_date_gets_an_interrupted_transaction_by_replication(
    world: MasterWorld,
) -> None:
    """Specification 5.4: the tid that such a node knows counts, its vote does not."""
    rows: Rows = [[(1, UP), (2, OUT)]] * 3 + [[(3, UP), (2, OUT)]]
    first, second = world.storage(1, 5, rows, nid=1), world.storage(2, 5, nid=2)
    third = world.storage(3, 5, nid=3)
    voted(first, {tid(100): None})
    voted(second, {tid(100): tid(108)})
    voted(third, {})
    assert first.take(ValidateTransaction) == ValidateTransaction(tid(100), tid(108))
    assert not second.has(ValidateTransaction) and not third.has(ValidateTransaction)


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_node_after_whose_last_transaction_no_tid_is_left_is_sent_away(beyond: int) -> None:
    """Specification 5.11."""
    world = MasterWorld()
    first, second = world.storage(1, 5, BOTH, nid=1), world.storage(2, 5, nid=2)
    for storage in first, second:
        voted(storage, {})
    last = add64(GREATEST_TID, beyond)
    first.answer(first.take(AskLastIDs), AnswerLastIDs(None, last))
    second.answer(second.take(AskLastIDs), AnswerLastIDs(None, tid(77)))
    assert first.closed == bool(beyond)
    assert world.master.cluster.state is ClusterState.RUNNING
    assert world.master.cluster.last_tid == (tid(77) if beyond else last)


def test_copies_of_a_backup_are_compared_up_to_what_all_nodes_have() -> None:
    """Specification 5.21: what a node fetched beyond that need not be on the others."""
    world = MasterWorld(replicas=1)
    world.extra = {FEATURES: [FEATURE_TAILS]}
    storages = [world.join_storage(nid) for nid in (1, 2)]
    for storage, backup_tid in zip(storages, (tid(15), tid(12)), strict=True):
        storage.answer(storage.take(AskRecovery), AnswerRecovery(7, backup_tid, None))
        if storage.has(AskPartitionTable):
            storage.answer(storage.take(AskPartitionTable), AnswerPartitionTable(7, 1, BOTH))
    for storage in storages:
        voted(storage, {})
    for storage in storages:
        storage.answer(storage.take(AskLastIDs), AnswerLastIDs(None, tid(18)))
    assert [storage.take(AskTails).max_tid for storage in storages] == [tid(12)] * 2
