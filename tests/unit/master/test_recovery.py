"""RECOVERING and VERIFYING (specification 4, 5)."""

from __future__ import annotations

import pytest

from neo.master.clock import CHECK_SECONDS
from neo.master.ids import UNKNOWN_TIDS
from neo.master.phases.recovery import GIVEN_UP_TABLES, UNKNOWN_TABLES
from neo.protocol.enums import CellState, ClusterState, ErrorCode, NodeState, NodeType
from neo.protocol.ids import add64, tid_from_time
from neo.protocol.packets import (
    AcceptIdentification,
    AnswerFinalTID,
    AnswerLastIDs,
    AnswerLockedTransactions,
    AnswerRecovery,
    AskBeginTransaction,
    AskFinalTID,
    AskFinishTransaction,
    AskLastIDs,
    AskLockedTransactions,
    AskPartitionTable,
    AskRecovery,
    Error,
    NotifyClusterInformation,
    NotifyNodeInformation,
    SendPartitionTable,
    SetClusterState,
    StartOperation,
    StopOperation,
    Truncate,
    ValidateTransaction,
)
from tests.support.remote import error_of
from tests.unit.master.cluster import MasterWorld, spread, tid
from tests.unit.master.committing import begin, lock

RECOVERING, VERIFYING, RUNNING = (
    ClusterState.RECOVERING,
    ClusterState.VERIFYING,
    ClusterState.RUNNING,
)


def test_a_new_database_waits_for_the_operator(world: MasterWorld) -> None:
    """Specification 4.17."""
    world.storage(1)
    assert world.master.cluster.state is RECOVERING
    world.admin().ask(SetClusterState(VERIFYING)).result()
    assert world.master.cluster.state is VERIFYING
    assert world.master.partitions.ptid == 1


def test_autostart_creates_the_database_when_enough_storages_are_there() -> None:
    """Specification 4.17, 4.25."""
    world = MasterWorld(autostart=2)
    world.storage(1)
    assert world.master.cluster.state is RECOVERING
    world.storage(2)
    assert world.master.cluster.state is VERIFYING
    assert world.master.partitions.nodes() == {1, 2}


def test_start_is_denied_without_storage(world: MasterWorld) -> None:
    """Specification 4.26."""
    error = error_of(world.admin().ask(SetClusterState(VERIFYING)))
    assert error.code is ErrorCode.DENIED
    assert "no storage node" in error.message


def test_newcomer_gets_its_identity_first_and_storages_are_asked_what_they_know(
    world: MasterWorld,
) -> None:
    """Specification 3.19, 3.21, 4.14."""
    storage = world.join(NodeType.STORAGE, port=9101)
    assert storage.names() == ["AcceptIdentification", "NotifyNodeInformation", "AskRecovery"]


def test_first_row_of_the_node_table_is_the_newcomer(world: MasterWorld) -> None:
    """Specification 3.17, 3.20."""
    world.storage(1)
    storage = world.storage(2)
    accepted = storage.take(AcceptIdentification)
    rows = storage.take(NotifyNodeInformation).node_list
    assert accepted.your_nid == rows[0][2] == 2
    assert rows[0][3] is NodeState.PENDING
    assert {row[0] for row in rows[1:]} == {NodeType.STORAGE, NodeType.MASTER}


def test_order_of_messages_at_start(world: MasterWorld) -> None:
    """Specification 4.25."""
    storage = world.storage(1)
    storage.received.clear()
    world.admin().ask(SetClusterState(VERIFYING))
    assert storage.names() == [
        "NotifyNodeInformation",
        "NotifyClusterInformation",
        "SendPartitionTable",
        "AskLockedTransactions",
    ]


def test_existing_database_starts_when_all_its_readable_nodes_are_back(world: MasterWorld) -> None:
    """Specification 4.18."""
    rows = spread(1, 2)
    first = world.storage(1, 5, rows, nid=1)
    assert world.master.cluster.state is RECOVERING
    second = world.storage(2, 5, nid=2)
    assert world.master.cluster.state is VERIFYING
    world.verify(first, second, ltid=tid(77))
    assert world.master.cluster.state is RUNNING
    assert world.master.cluster.last_tid == tid(77)


def test_table_is_asked_from_a_node_that_has_the_newest(world: MasterWorld) -> None:
    """Specification 4.15."""
    old = world.storage(1, 5, spread(1, 3), nid=1)
    new = world.storage(2, 6, spread(2), nid=2)
    assert world.master.partitions.ptid == 6 + UNKNOWN_TABLES
    assert not old.has(AskPartitionTable)  # it gave it when it was the only one
    assert world.master.cluster.state is VERIFYING
    assert new.has(SendPartitionTable)


def test_another_node_is_asked_when_the_one_with_the_table_is_lost(world: MasterWorld) -> None:
    """Specification 4.15."""
    first = world.storage(1, 5, nid=1)
    second = world.storage(2, 5, nid=2)
    assert first.has(AskPartitionTable) and not second.has(AskPartitionTable)
    first.lose()
    assert second.has(AskPartitionTable)


def test_forced_start_without_a_replica_outdates_its_cells(world: MasterWorld) -> None:
    """Specification 4.19, 4.25."""
    rows = [[(1, CellState.UP_TO_DATE), (2, CellState.UP_TO_DATE)] for _ in range(4)]
    world.storage(1, 5, rows, nid=1)
    assert world.master.cluster.state is RECOVERING
    world.admin().ask(SetClusterState(VERIFYING)).result()
    assert world.master.cluster.state is VERIFYING
    assert world.master.partitions.state(0, 2) is CellState.OUT_OF_DATE


@pytest.mark.parametrize(("clock", "ptid"), [(0.0, 6 + GIVEN_UP_TABLES), (1.8e9, 1_800_000_000_001)])
def test_what_was_given_up_has_older_tables_whatever_its_masters_did(
    world: MasterWorld, clock: float, ptid: int
) -> None:
    """S2 went on alone, and its master was restarted again and again; then the operator starts with S1
    alone. Else S2 could not come back: its table would be newer, or another one of that number. And if
    S2 was started so, too, the start that was later counts (specification 9.18)."""
    rows = [[(1, CellState.UP_TO_DATE), (2, CellState.UP_TO_DATE)] for _ in range(4)]
    world.host.now = clock
    world.storage(1, 5, rows, nid=1)
    world.admin().ask(SetClusterState(VERIFYING)).result()
    assert world.master.partitions.ptid == ptid
    assert 5 + 100 * (UNKNOWN_TABLES + 1) < GIVEN_UP_TABLES


def test_a_restarted_master_leaves_out_numbers_of_tables_that_others_may_have(
    world: MasterWorld,
) -> None:
    """With two tables of one version, the next master could take the wrong one for the last. The
    connected nodes may not know the nodes that have one (specification 9.18)."""
    world.storage(1, 5, spread(1), nid=1)
    assert world.master.cluster.state is VERIFYING
    assert world.master.partitions.ptid == 5 + UNKNOWN_TABLES


#: Later than the clock of the world, which is therefore behind.
AHEAD = tid(2**62)


@pytest.mark.parametrize("state", [CellState.UP_TO_DATE, CellState.OUT_OF_DATE])
def test_tids_that_absent_nodes_may_have_are_left_out(world: MasterWorld, state: CellState) -> None:
    """A node that was given up must not take another transaction for its own when it comes back. Once a
    table was published, it does not show any more which nodes were given up (specification 5.12)."""
    storage = world.storage(1, 5, [[(1, CellState.UP_TO_DATE), (2, state)]] * 4, nid=1)
    if world.master.cluster.state is RECOVERING:
        world.admin().ask(SetClusterState(VERIFYING)).result()
    world.verify(storage, ltid=AHEAD)
    begun = begin(world.client())
    assert add64(AHEAD, UNKNOWN_TIDS) < begun <= add64(AHEAD, 2 * UNKNOWN_TIDS)
    assert world.master.cluster.last_tid == AHEAD


def test_two_masters_that_leave_out_tids_do_not_go_on_with_the_same_ones() -> None:
    """S1 and S2 have the same last transaction. Each goes on alone, under a master that was restarted
    within a minute: first S2, then S1, when the operator has given up S2. When S2 comes back, it would
    take the transactions of S1 for its own."""
    begun = set()
    for nid in (1, 2):
        world = MasterWorld()
        world.host.random.seed(nid)
        storage = world.storage(
            nid, 5, [[(nid, CellState.UP_TO_DATE), (3 - nid, CellState.OUT_OF_DATE)]] * 4, nid=nid
        )
        world.verify(storage, ltid=AHEAD)
        begun.add(begin(world.client()))
    assert len(begun) == 2


def test_no_tids_are_left_out_when_every_copy_is_there(world: MasterWorld) -> None:
    """Specification 5.12."""
    first, second = world.storage(1, 5, spread(1, 2), nid=1), world.storage(2, 5, nid=2)
    world.verify(first, second, ltid=AHEAD)
    assert begin(world.client()) == add64(AHEAD, 1)


@pytest.mark.parametrize("behind", [59, 61])
def test_a_clock_that_is_behind_the_last_transaction_is_told(
    world: MasterWorld, behind: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Tids are times (specification 15.11). Only the log explains why new transactions have a wrong
    time."""
    last = tid_from_time(world.host.time() + behind)
    world.verify(world.storage(1, 5, spread(1), nid=1), ltid=last)
    told = [r.getMessage() for r in caplog.records if "behind the last transaction" in r.getMessage()]
    assert len(told) == (behind > 60)
    assert all("61 s" in line and last.hex() in line for line in told)


def test_a_clock_that_jumps_back_is_told_once_until_it_is_right_again(
    world: MasterWorld, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> int:
        return sum("behind the last transaction" in r.getMessage() for r in caplog.records)

    now = world.host.time()
    world.verify(world.storage(1, 5, spread(1), nid=1), ltid=tid_from_time(now))
    for jump, expected in ((0, 0), (-3600, 1), (0, 1), (3600, 1), (-3600, 2)):
        world.host.now += jump
        world.host.advance(CHECK_SECONDS)
        assert told() == expected


def test_forced_start_is_denied_when_a_partition_cannot_be_read(world: MasterWorld) -> None:
    """Specification 4.18, 4.26."""
    world.storage(1, 5, spread(1, 2), nid=1)
    error = error_of(world.admin().ask(SetClusterState(VERIFYING)))
    assert error.code is ErrorCode.DENIED
    assert "S2" in error.message


def test_verification_finishes_locked_transactions_on_all_who_voted(world: MasterWorld) -> None:
    """Specification 5.1, 5.7."""
    rows = spread(1, 2)
    first, second = world.storage(1, 5, rows, nid=1), world.storage(2, 5, nid=2)
    ttid, final = tid(100), tid(108)
    first.answer(first.take(AskLockedTransactions), AnswerLockedTransactions({ttid: final}))
    second.answer(second.take(AskLockedTransactions), AnswerLockedTransactions({ttid: None}))
    for storage in (first, second):
        assert storage.take(ValidateTransaction) == ValidateTransaction(ttid, final)
        assert storage.has(AskLastIDs)


def test_verification_asks_the_tid_of_those_who_already_unlocked(world: MasterWorld) -> None:
    """Specification 5.4, 5.5."""
    first, second = world.storage(1, 5, spread(1, 2), nid=1), world.storage(2, 5, nid=2)
    ttid, final = tid(100), tid(108)  # partition 0 of 4, on S1
    first.answer(first.take(AskLockedTransactions), AnswerLockedTransactions({}))
    second.answer(second.take(AskLockedTransactions), AnswerLockedTransactions({ttid: None}))
    first.answer(first.take(AskFinalTID), AnswerFinalTID(final))
    assert second.take(ValidateTransaction) == ValidateTransaction(ttid, final)
    assert not first.has(ValidateTransaction)


def test_verification_asks_the_tid_of_those_whose_cells_are_behind_too(world: MasterWorld) -> None:
    """Only that node had locked; the nodes with readable cells failed in the verification before
    (specification 5.5)."""
    rows = [[(1, CellState.OUT_OF_DATE), (2, CellState.UP_TO_DATE)], *spread(1, 2)[1:]]
    first, second = world.storage(1, 5, rows, nid=1), world.storage(2, 5, nid=2)
    ttid, final = tid(100), tid(108)  # partition 0 of 4
    first.answer(first.take(AskLockedTransactions), AnswerLockedTransactions({}))
    second.answer(second.take(AskLockedTransactions), AnswerLockedTransactions({ttid: None}))
    second.answer(second.take(AskFinalTID), AnswerFinalTID(None))
    first.answer(first.take(AskFinalTID), AnswerFinalTID(final))
    assert second.take(ValidateTransaction) == ValidateTransaction(ttid, final)


def test_verification_leaves_transactions_that_nobody_locked(world: MasterWorld) -> None:
    """Specification 5.1, 5.5."""
    first, second = world.storage(1, 5, spread(1, 2), nid=1), world.storage(2, 5, nid=2)
    first.answer(first.take(AskLockedTransactions), AnswerLockedTransactions({}))
    second.answer(second.take(AskLockedTransactions), AnswerLockedTransactions({tid(100): None}))
    first.answer(first.take(AskFinalTID), AnswerFinalTID(None))
    assert not second.has(ValidateTransaction) and second.has(AskLastIDs)


def test_ttids_that_an_earlier_master_gave_are_not_given_again(world: MasterWorld) -> None:
    """The clock of the earlier master may have been ahead. A client may still ask for an outcome
    (specification 5.11)."""
    ahead = tid(2**62)
    first = world.storage(1, 5, spread(1), nid=1)
    first.answer(first.take(AskLockedTransactions), AnswerLockedTransactions({ahead: None}))
    first.answer(first.take(AskFinalTID), AnswerFinalTID(None))
    first.answer(first.take(AskLastIDs), AnswerLastIDs(None, tid(77)))
    world.make_ready(first)
    assert world.master.cluster.last_tid == tid(77)
    assert world.client().ask(AskBeginTransaction(None)).result().ttid > ahead


def test_loss_of_a_needed_storage_stops_the_operation(world: MasterWorld) -> None:
    """Specification 4.12, 4.13."""
    first, second = world.running()
    client = world.client()
    client.received.clear()
    second.lose()
    assert world.master.cluster.state is RECOVERING
    assert client.has(StopOperation) and client.closed
    names = first.names()
    assert names.index("StopOperation") < names.index("NotifyClusterInformation")
    assert names[-2] == "AskRecovery" or names[-1] == "AskRecovery"


def test_the_cluster_comes_back_by_itself(world: MasterWorld) -> None:
    first, second = world.running()
    rows = world.master.partitions.row_list()
    second.lose()
    world.remember(first, 1, rows)
    assert world.master.cluster.state is RECOVERING
    second = world.storage(2, 1, nid=2)
    assert world.master.cluster.state is VERIFYING
    world.verify(first, second)
    assert world.master.cluster.state is RUNNING


def test_a_table_older_than_the_one_in_use_is_refused() -> None:
    """Specification 4.16: with it an acknowledged commit would be lost."""
    world = MasterWorld(replicas=1)
    first, second = world.running()
    rows = world.master.partitions.row_list()
    first.lose()
    assert world.master.cluster.state is RUNNING and world.master.partitions.ptid == 2
    client = world.client()
    ttid = begin(client)
    answer = client.ask(AskFinishTransaction(ttid, [], []))
    lock(second)
    assert answer.done
    second.lose()
    assert world.master.cluster.state is RECOVERING
    world.storage(1, 1, rows, nid=1)
    assert world.master.cluster.state is RECOVERING
    error = error_of(world.admin().ask(SetClusterState(VERIFYING)))
    assert "2 was in use" in error.message


def test_a_table_that_nobody_committed_with_is_not_missed() -> None:
    """A storage node may lose what it was told just before its end; nothing depends on it
    (specification 4.19)."""
    world = MasterWorld(replicas=1)
    first, second = world.running()
    rows = world.master.partitions.row_list()
    first.lose()
    second.lose()
    world.storage(2, 1, rows, nid=2)
    assert world.master.cluster.state is VERIFYING


def test_loss_during_verification_starts_recovery_again(world: MasterWorld) -> None:
    """Specification 5.8."""
    world.storage(1, 5, spread(1, 2), nid=1)
    second = world.storage(2, 5, nid=2)
    assert world.master.cluster.state is VERIFYING
    second.lose()
    assert world.master.cluster.state is RECOVERING


def test_a_storage_that_refuses_verification_starts_recovery_again(world: MasterWorld) -> None:
    """Specification 5.8."""
    first, second = world.storage(1, 5, spread(1, 2), nid=1), world.storage(2, 5, nid=2)
    first.answer(first.take(AskLockedTransactions), AnswerLockedTransactions({}))
    question = second.take(AskLockedTransactions)
    second.answer(question, Error(ErrorCode.NOT_READY.value, "disk"))
    assert world.master.cluster.state is RECOVERING
    assert second.closed


def test_truncation_is_remembered_by_all_before_any_is_truncated(world: MasterWorld) -> None:
    """Specification 4.21."""
    first, second = world.running()
    rows = world.master.partitions.row_list()
    world.master.cluster.last_tid = tid(90)
    world.admin().ask(Truncate(tid(50))).result()
    assert world.master.cluster.state is RECOVERING
    for storage in (first, second):
        world.remember(storage, 1, rows)
    for storage in (first, second):
        assert storage.take(Truncate).tid == tid(50)
        assert not storage.has(AskLockedTransactions)
        storage.answer(storage.take(AskRecovery), AnswerRecovery(1, None, tid(50)))
    assert world.master.cluster.state is VERIFYING
    world.verify(first, second, ltid=tid(50))
    assert world.master.cluster.truncate_tid is None


def test_storage_without_cells_stays_pending_and_others_are_told(world: MasterWorld) -> None:
    """Specification 3.17, 3.21."""
    (first,) = world.running(1)
    spare = world.join(NodeType.STORAGE, port=9109)
    assert world.master.nodes.get(2).state is NodeState.PENDING  # type: ignore[union-attr]
    assert spare.has(SendPartitionTable) and not spare.has(StartOperation)
    assert first.has(NotifyNodeInformation)


def test_state_changes_are_told_to_everybody(world: MasterWorld) -> None:
    """Specification 4.10."""
    admin = world.admin()
    world.storage(1)
    admin.ask(SetClusterState(VERIFYING))
    assert admin.take(NotifyClusterInformation).state is VERIFYING


def test_last_ids_continue_after_the_greatest_of_all_storages(world: MasterWorld) -> None:
    """Specification 5.11."""
    first, second = world.storage(1, 5, spread(1, 2), nid=1), world.storage(2, 5, nid=2)
    for storage in (first, second):
        storage.answer(storage.take(AskLockedTransactions), AnswerLockedTransactions({}))
    first.answer(first.take(AskLastIDs), AnswerLastIDs(tid(12), tid(1000)))
    second.answer(second.take(AskLastIDs), AnswerLastIDs(tid(15), tid(900)))
    assert world.master.cluster.oids.take(1) == [tid(16)]
    assert world.master.cluster.last_tid == tid(1000)
