"""VERIFYING (specification 5): the end of interrupted transactions, and whose ids are believed."""

from __future__ import annotations

import pytest

from neo.protocol.enums import CellState, ErrorCode
from neo.protocol.ids import add64
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    AnswerFinalTID,
    AnswerLastIDs,
    AnswerLockedTransactions,
    AskBeginTransaction,
    AskFinalTID,
    AskLastIDs,
    AskLockedTransactions,
    AskTails,
    Error,
    ValidateTransaction,
)
from tests.support.remote import Remote
from tests.unit.master.cluster import (
    OUT,
    RECOVERING,
    RUNNING,
    UP,
    VERIFYING,
    MasterWorld,
    Rows,
    spread,
    tid,
)
from tests.unit.master.uneventful import nothing_prepared

BOTH: Rows = [[(1, UP), (2, UP)]] * 4
#: A transaction whose metadata is in partition 0 of 4.
TTID, TID = tid(100), tid(108)
#: The last tid that a transaction may have.
GREATEST_TID = tid(2**63 - 2**40)


def voted(storage: Remote, tids: dict[bytes, bytes | None]) -> None:
    storage.answer(storage.take(AskLockedTransactions), AnswerLockedTransactions(tids))


def final(storage: Remote, tid: bytes | None) -> None:
    storage.answer(storage.take(AskFinalTID), AnswerFinalTID(tid))


def last_ids(storage: Remote, loid: bytes | None, ltid: bytes) -> None:
    storage.answer(storage.take(AskLastIDs), AnswerLastIDs(loid, ltid))


def two(world: MasterWorld, first_cell: CellState = UP) -> tuple[Remote, Remote]:
    """Join S1 and S2 with two partitions each. The cell of S1 in partition 0 may be behind one of S2."""
    rows = spread(1, 2)
    if first_cell is not UP:
        rows[0] = [(1, first_cell), (2, UP)]
    first, second = world.storage(1, 5, rows, nid=1), world.storage(2, 5, nid=2)
    assert world.master.cluster.state is VERIFYING
    return first, second


def test_locked_transactions_are_finished_on_all_nodes_that_voted(world: MasterWorld) -> None:
    """Specification 5.1, 5.7."""
    first, second = two(world)
    voted(first, {TTID: TID})
    voted(second, {TTID: None})
    for storage in (first, second):
        assert storage.take(ValidateTransaction) == ValidateTransaction(TTID, TID)
        assert storage.has(AskLastIDs)


def test_nodes_that_unlocked_already_are_asked_for_the_tid(world: MasterWorld) -> None:
    """Specification 5.4, 5.5."""
    first, second = two(world)
    voted(first, {})
    voted(second, {TTID: None})
    final(first, TID)
    assert second.take(ValidateTransaction) == ValidateTransaction(TTID, TID)
    assert not first.has(ValidateTransaction)


def test_nodes_whose_cells_are_behind_are_asked_for_the_tid_too(world: MasterWorld) -> None:
    """Only that node had locked; the nodes with readable cells failed in the verification before
    (specification 5.5)."""
    first, second = two(world, OUT)
    voted(first, {})
    voted(second, {TTID: None})
    final(second, None)
    final(first, TID)
    assert second.take(ValidateTransaction) == ValidateTransaction(TTID, TID)


def test_transactions_that_no_node_locked_are_left(world: MasterWorld) -> None:
    """Specification 5.1, 5.5."""
    first, second = two(world)
    voted(first, {})
    voted(second, {TTID: None})
    final(first, None)
    assert not second.has(ValidateTransaction) and second.has(AskLastIDs)


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
    voted(first, {TTID: None})
    voted(second, {TTID: TID})
    voted(third, {})
    assert first.take(ValidateTransaction) == ValidateTransaction(TTID, TID)
    assert not second.has(ValidateTransaction) and not third.has(ValidateTransaction)


def test_a_storage_node_that_is_lost_starts_recovery_again(world: MasterWorld) -> None:
    """Specification 5.8."""
    two(world)[1].lose()
    assert world.master.cluster.state is RECOVERING


def test_a_storage_node_that_refuses_starts_recovery_again(world: MasterWorld) -> None:
    """Specification 5.8."""
    first, second = two(world)
    voted(first, {})
    question = second.take(AskLockedTransactions)
    second.answer(question, Error(ErrorCode.NOT_READY.value, "disk"))
    assert world.master.cluster.state is RECOVERING
    assert second.closed


# -- ids -------------------------------------------------------------------------------------------


def test_last_ids_continue_after_the_greatest_of_all_storages(world: MasterWorld) -> None:
    """Specification 5.11."""
    first, second = two(world)
    for storage in (first, second):
        voted(storage, {})
    last_ids(first, tid(12), tid(1000))
    last_ids(second, tid(15), tid(900))
    assert world.master.cluster.oids.take(1) == [tid(16)]
    assert world.master.cluster.last_tid == tid(1000)


def test_ttids_that_an_earlier_master_gave_are_not_given_again(world: MasterWorld) -> None:
    """The clock of the earlier master may have been ahead. A client may still ask for an outcome
    (specification 5.11)."""
    ahead = tid(2**62)
    storage = world.storage(1, 5, spread(1), nid=1)
    voted(storage, {ahead: None})
    final(storage, None)
    last_ids(storage, None, tid(77))
    world.make_ready(storage)
    assert world.master.cluster.last_tid == tid(77)
    assert world.client().ask(AskBeginTransaction(None)).result().ttid > ahead


@pytest.mark.parametrize("alone", [False, True], ids=["beside another copy", "alone"])
@pytest.mark.parametrize("beyond", [0, 1])
def test_a_node_after_whose_last_transaction_no_tid_is_left_is_sent_away(
    world: MasterWorld, beyond: int, alone: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Specification 5.11, 15.9."""
    storages = [world.storage(1, 5, spread(1) if alone else BOTH, nid=1)]
    if not alone:
        storages.append(world.storage(2, 5, nid=2))
    for storage in storages:
        voted(storage, {})
    last = add64(GREATEST_TID, beyond)
    last_ids(storages[0], None, last)
    if not alone:
        last_ids(storages[1], None, tid(77))
    assert storages[0].closed == bool(beyond)
    assert ("after which no tid is left" in caplog.text) is bool(beyond)
    assert world.master.cluster.state is (RECOVERING if alone and beyond else RUNNING)
    if world.master.cluster.state is RUNNING:
        assert world.master.cluster.last_tid == (tid(77) if beyond else last)


def test_copies_of_a_backup_are_compared_up_to_what_all_nodes_have() -> None:
    """Specification 5.21: what a node fetched beyond that need not be on the others."""
    world = MasterWorld(replicas=1)
    world.extra = {FEATURES: [FEATURE_OURS]}
    storages = [world.join_storage(nid) for nid in (1, 2)]
    for storage, backup_tid in zip(storages, (tid(15), tid(12)), strict=True):
        world.remember(storage, 7, BOTH, backup_tid)
    for storage in storages:
        voted(storage, {})
    nothing_prepared(storages)
    for storage in storages:
        last_ids(storage, None, tid(18))
    assert [storage.take(AskTails).max_tid for storage in storages] == [tid(12)] * 2
