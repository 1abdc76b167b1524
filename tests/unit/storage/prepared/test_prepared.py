"""Prepared transactions of a storage node (specification 24)."""

from __future__ import annotations

import shutil
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest

from neo.protocol.enums import CellState, ErrorCode, NodeState
from neo.protocol.ids import ZERO_TID, p64, time_from_tid
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    AbortTransaction,
    AnswerInformationLocked,
    AnswerLockedTransactions,
    AnswerPreparedTransactions,
    AnswerPrepareInformation,
    AnswerRollbackPrepared,
    AskCheckCurrentSerial,
    AskFinalTID,
    AskLockedTransactions,
    AskLockInformation,
    AskLocks,
    AskPreparedTransactions,
    AskPrepareInformation,
    AskRebaseObject,
    AskRebaseTransaction,
    AskRollbackPrepared,
    AskStoreObject,
    AskVoteTransaction,
    Error,
    ForgetPrepared,
    NotifyDeadlock,
    NotifyFeatures,
    NotifyPartitionChanges,
    NotifyPrepared,
    NotifyReady,
    NotifyTransactionFinished,
    NotifyUnlockInformation,
    StartOperation,
    StopOperation,
    ValidateTransaction,
)
from neo.storage.prepared.waits import PREPARED_WAIT
from tests.unit.storage.prepared.fetching import restart
from tests.unit.storage.requests import (
    commit,
    data_of,
    finish,
    load,
    store,
    store_request,
    vote,
    voted,
)
from tests.unit.storage.world import (
    C1,
    DISCARDED,
    OUT,
    UP,
    End,
    MakeWorld,
    World,
    check_refused,
    refused,
)

XID = b"order-7"
TEXT = b"jim: pays"
#: Seconds since 1970 at which tests prepare: the host's clock.
SINCE = 1000.0
BAD = CellState.CORRUPTED


def request(ttid: int, *partitions: int) -> AskPrepareInformation:
    return AskPrepareInformation(p64(ttid), XID, SINCE, TEXT, [*(partitions or (0, 1))])


def prepare(client: End, master: End, ttid: int, *oids: int) -> None:
    """Store these objects on top of nothing, vote with metadata, and prepare."""
    voted(client, ttid, *oids)
    assert master.ask(request(ttid)) == AnswerPrepareInformation(p64(ttid))


def check(client: End, ttid: int, oid: int, serial: int) -> Any:
    return client.ask(AskCheckCurrentSerial(p64(ttid), p64(oid), p64(serial)))


def phases(master: End) -> dict[bytes, str]:
    return {ttid: phase for ttid, _, phase, _, _ in master.ask(AskLocks()).row_list}


def marked(master: End) -> list[bytes]:
    return [mark[0] for mark in master.ask(AskPreparedTransactions()).mark_list]


# -- preparing (24.4, 24.6) ----------------------------------------------------------------------


def test_features_are_announced_to_the_master(world: World, master: End) -> None:
    assert {FEATURE_OURS} <= {*world.request.extra[FEATURES]}


def test_a_mark_is_answered_when_it_and_the_vote_are_durable(
    world: World, master: End, client: End
) -> None:
    """Specification 14.40, 24.4: the vote need not have been answered."""
    store(client, 10, 1)
    voted = client.ask_later(AskVoteTransaction(p64(10)))
    answers = master.ask_later(request(10))
    assert not voted and not answers
    world.wait(lambda: bool(answers), "the mark is not answered")
    assert voted and answers == [AnswerPrepareInformation(p64(10))]


def test_a_mark_that_was_answered_survives_a_power_cut(
    world: World, master: End, client: End, tmp_path: Path
) -> None:
    """24.4: a copy of the files is what is left."""
    voted(client, 10, 1)
    answers = master.ask_later(request(10))
    world.wait(lambda: bool(answers), "the mark is not answered")
    left = tmp_path / "left"
    left.mkdir()
    for file in tmp_path.glob("node.sqlite*"):
        shutil.copy(file, left)
    after = World(str(left / "node.sqlite"))
    assert [mark.xid for mark in after.backend.marks.prepared()] == [XID]
    assert [change.oid for change in after.backend.commits.prepared_rows(p64(10)).stored] == [p64(1)]
    after.close()


@pytest.mark.parametrize("state", ["unknown", "stores", "locked"])
def test_what_has_not_voted_here_cannot_be_prepared(
    world: World, master: End, client: End, state: str
) -> None:
    if state != "unknown":
        store(client, 10, 1)
    if state == "locked":
        vote(client, 10, 1)
        master.ask(AskLockInformation(p64(10), p64(12)))
    check_refused(master.ask(request(10)), ErrorCode.PROTOCOL_ERROR, "does not have its vote")
    assert world.backend.marks.prepared() == []
    assert not master.closed


@pytest.mark.parametrize(
    ("state", "prepared"), [(BAD, True), (DISCARDED, True), (OUT, False), (UP, False)]
)
def test_a_node_to_which_clients_store_nothing_has_nothing_to_mark(
    world: World, state: CellState, prepared: bool
) -> None:
    """24.4: S1 takes part, because it has a cell in some state (rule 7.26)."""
    master = world.operate([[(1, UP), (2, UP)], [(1, UP)]])
    if state is not UP:
        master.send(NotifyPartitionChanges(2, 1, [(0, 1, state)]))
    answer = master.ask(request(10, 0))
    if prepared:
        assert answer == AnswerPrepareInformation(p64(10))
        assert master.ask(AskLockInformation(p64(10), p64(12))) == AnswerInformationLocked(p64(10))
    else:
        assert "does not have its vote" in refused(answer)[1]
    assert world.backend.marks.prepared() == []


def test_a_mark_with_an_impossible_partition_is_refused(
    world: World, master: End, client: End
) -> None:
    voted(client, 10, 1)
    check_refused(master.ask(request(10, 0, 2)), ErrorCode.PROTOCOL_ERROR, "2 partitions")
    assert phases(master) == {p64(10): "voted"}


def test_a_mark_that_the_database_refuses_leaves_a_voted_transaction(world: World) -> None:
    master = world.operate([[(1, UP)], [(1, OUT), (2, UP)]])
    client = world.client(master)
    lockless = client.ask(AskCheckCurrentSerial(p64(10), p64(3), b"\xff" * 8))
    assert lockless.locked == ZERO_TID
    vote(client, 10)
    code, _ = refused(master.ask(request(10)))
    assert code == ErrorCode.DENIED.value
    assert phases(master) == {p64(10): "voted"}


def test_the_client_cannot_end_a_prepared_transaction(
    world: World, master: End, client: End, other: End
) -> None:
    """24.6, from the receipt of the request on, before the mark is durable."""
    voted(client, 10, 1)
    answers = master.ask_later(request(10))
    client.send(AbortTransaction(p64(10), []))
    client.disconnect()
    world.notify(master, world.client_row(C1, NodeState.DOWN))
    world.wait(lambda: bool(answers), "the mark is not answered")
    assert phases(master) == {p64(10): "prepared"}
    assert not other.ask_later(store_request(12, 1))
    finish(master, 10, 20)
    assert load(other, 1).data == data_of(10)


def test_the_master_ends_a_prepared_transaction(world: World, master: End, client: End) -> None:
    prepare(client, master, 10, 1, 2)
    master.send(AbortTransaction(p64(10), []))
    world.settle()
    assert marked(master) == [] and phases(master) == {}
    assert world.backend.commits.locked_transactions().keys() == set()
    assert store(client, 12, 1) is None


def test_the_data_of_a_prepared_transaction_cannot_be_read(
    world: World, master: End, client: End, other: End
) -> None:
    """24.8"""
    commit(master, client, 4, 6, 1)
    assert store(client, 10, 1, 6) is None
    vote(client, 10, 1)
    master.ask(request(10))
    assert load(other, 1).serial == p64(6)


# -- the decision (24.11 to 24.15) ---------------------------------------------------------------


def test_a_commit_removes_the_mark_and_stores_the_outcome(
    world: World, master: End, client: End
) -> None:
    """24.11"""
    prepare(client, master, 10, 1, 2)
    finish(master, 10, 20)
    outcome = (XID, p64(10), p64(20), time_from_tid(p64(20)))
    assert master.ask(AskPreparedTransactions()) == AnswerPreparedTransactions([], [outcome])
    assert load(client, 2).serial == p64(20)


def test_a_rollback_is_remembered_before_it_is_answered_and_can_be_forgotten(
    make_world: MakeWorld, world: World, master: End
) -> None:
    """24.12, 24.13, 24.15"""
    ask = AskRollbackPrepared(XID, p64(10), 7.5)
    assert master.ask(ask) == AnswerRollbackPrepared(p64(10))
    world, master = restart(make_world)
    assert master.ask(AskPreparedTransactions()).decided_list == [(XID, p64(10), None, 7.5)]
    for _ in range(2):
        assert master.ask(ForgetPrepared(XID)) == Error(ErrorCode.ACK.value, "")
    world, master = restart(make_world)
    assert master.ask(AskPreparedTransactions()).decided_list == []


def test_the_outcome_of_a_prepared_transaction_is_open(
    world: World, master: End, client: End, other: End
) -> None:
    """24.32"""
    prepare(client, master, 10, 1)
    check_refused(other.ask(AskFinalTID(p64(10))), ErrorCode.DENIED, "outcome is open")
    finish(master, 10, 20)
    assert other.ask(AskFinalTID(p64(10))).tid == p64(20)


# -- restart and verification (24.17 to 24.22) ---------------------------------------------------


def test_marks_are_told_with_the_objects_that_the_node_stores_and_checks(
    make_world: MakeWorld, world: World, master: End, client: End
) -> None:
    """24.17"""
    commit(master, client, 4, 6, 5)
    assert check(client, 10, 5, 6).locked is None
    prepare(client, master, 10, 1, 2)
    world = make_world()
    master = world.join()
    world.send_table(master)
    mark = (p64(10), XID, SINCE, TEXT, [0, 1], [p64(1), p64(2)], [p64(5)])
    assert master.ask(AskPreparedTransactions()) == AnswerPreparedTransactions([mark], [])
    assert master.ask(AskLockedTransactions()) == AnswerLockedTransactions({p64(10): None})


def test_locks_of_stores_and_checks_are_taken_again_after_any_number_of_restarts(
    make_world: MakeWorld, world: World, master: End, client: End
) -> None:
    """24.20"""
    commit(master, client, 4, 6, 5)
    assert check(client, 10, 5, 6).locked is None
    prepare(client, master, 10, 1)
    for _ in range(2):
        world, master = restart(make_world, 10)
        client = world.client(master)
        world.core.locks.validate()
        assert phases(master) == {p64(10): "prepared"}
        assert not client.ask_later(store_request(12, 1))
        assert not client.ask_later(store_request(14, 5, 6))
        assert store(client, 16, 3) is None
    finish(master, 10, 20)
    assert load(client, 1).data == data_of(10)
    assert marked(master) == []


def test_a_prepared_transaction_with_only_a_check_survives(
    make_world: MakeWorld, world: World, master: End, client: End
) -> None:
    commit(master, client, 4, 6, 5)
    assert check(client, 10, 5, 6).locked is None
    client.ask(AskVoteTransaction(p64(10)))
    master.ask(request(10, 1))
    world, master = restart(make_world, 10)
    client = world.client(master)
    waits = client.ask_later(store_request(12, 5, 6))
    assert not waits
    assert master.ask(AskLockInformation(p64(10), p64(20))) == AnswerInformationLocked(p64(10))
    master.send(NotifyUnlockInformation(p64(10)))
    world.settle()
    assert waits[0].locked is None
    assert marked(master) == []


def test_other_votes_are_dropped_at_the_start(
    make_world: MakeWorld, world: World, master: End, client: End
) -> None:
    """24.20, 24.21: with their marks, and votes without a mark."""
    prepare(client, master, 10, 1)
    prepare(client, master, 12, 2)
    voted(client, 14, 3)
    world, master = restart(make_world, 10, 14)
    assert marked(master) == [p64(10)]
    assert world.backend.commits.locked_transactions() == {p64(10): None}
    world, master = restart(make_world)
    assert marked(master) == []
    # The greatest ttid that was dropped is still told, so that no master gives it again.
    assert master.ask(AskLockedTransactions()) == AnswerLockedTransactions({p64(14): None})


def test_what_one_master_let_stay_is_not_for_the_next_one(make_world: MakeWorld) -> None:
    world = make_world()
    master = world.operate()
    prepare(world.client(master), master, 10, 1)
    world = make_world()
    master = world.join()
    world.send_table(master)
    master.send(NotifyPrepared([p64(10)]))
    master.disconnect()
    world.host.advance(10)
    master = world.join()
    master.send(NotifyFeatures([FEATURE_OURS]))
    world.send_table(master)
    master.send(StartOperation(False))
    world.settle()
    assert marked(master) == []


def test_the_operation_stops_and_starts_again(world: World, master: End, client: End) -> None:
    prepare(client, master, 10, 1)
    master.send(NotifyFeatures([FEATURE_OURS]))
    master.send(StopOperation())
    assert marked(master) == [p64(10)]
    master.send(NotifyPrepared([p64(10)]))
    master.send(StartOperation(False))
    master.take(NotifyReady)
    assert phases(master) == {p64(10): "prepared"}


def test_a_transaction_whose_tid_is_known_is_validated_with_its_outcome(
    make_world: MakeWorld, world: World, master: End
) -> None:
    """24.18"""
    prepare(world.client(master), master, 10, 1)
    master.ask(AskLockInformation(p64(10), p64(20)))
    world = make_world()
    master = world.join()
    world.send_table(master)
    assert master.ask(AskLockedTransactions()).tid_dict == {p64(10): p64(20)}
    master.send(ValidateTransaction(p64(10), p64(20)))
    outcome = (XID, p64(10), p64(20), time_from_tid(p64(20)))
    assert master.ask(AskPreparedTransactions()) == AnswerPreparedTransactions([], [outcome])


def test_the_lock_of_a_restored_transaction_waits_for_the_disk(make_world: MakeWorld) -> None:
    world = make_world()
    master = world.operate()
    prepare(world.client(master), master, 10, 1)
    world, master = restart(make_world, 10)
    world.settle()
    answers = master.ask_later(AskLockInformation(p64(10), p64(20)))
    assert not answers
    world.wait(lambda: bool(answers), "the lock is not answered")


def test_a_node_with_marks_refuses_a_master_that_does_not_know_them(
    make_world: MakeWorld, world: World, master: End, caplog: pytest.LogCaptureFixture
) -> None:
    """24.22"""
    prepare(world.client(master), master, 10, 1)
    world = make_world()
    master = world.join()
    world.send_table(master)
    master.send(StartOperation(False))
    world.core.flush()
    assert master.closed
    assert "update the master" in caplog.text and "order-7" in caplog.text
    assert not world.core.cluster.operational
    assert [mark.xid for mark in world.backend.marks.prepared()] == [XID]


# -- cells (24.20, 24.35) ------------------------------------------------------------------------


def test_a_transaction_without_a_cell_of_this_node_is_dropped(
    world: World, master: End, client: End
) -> None:
    """24.35"""
    store(client, 10, 1)
    client.ask(AskVoteTransaction(p64(10)))
    master.ask(request(10, 1))
    voted(client, 12, 0)
    master.ask(request(12, 0, 1))
    master.send(NotifyPartitionChanges(2, 0, [(1, 1, DISCARDED)]))
    assert marked(master) == [p64(12)]
    assert phases(master) == {p64(12): "prepared"}
    world.core.locks.validate()
    world.wait(lambda: world.backend.reads.tids_ascending(ZERO_TID, p64(99), 9, 1) == [], "not erased")
    finish(master, 12, 20)
    assert load(client, 0).serial == p64(20)


# -- waits (24.9) --------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["store", "check"])
def test_who_waits_for_a_prepared_transaction_is_refused_after_some_seconds(
    world: World, master: End, client: End, other: End, what: str
) -> None:
    prepare(client, master, 10, 1)
    world.host.advance(2)
    if what == "store":
        waits = other.ask_later(store_request(12, 1))
    else:
        waits = other.ask_later(AskCheckCurrentSerial(p64(12), p64(1), ZERO_TID))
    world.host.advance(PREPARED_WAIT - 0.5)
    assert not waits
    world.host.advance(0.5)
    code, text = refused(waits[0])
    assert code == ErrorCode.INCOMPLETE_TRANSACTION.value
    assert text.startswith("prepared: ")
    assert "order-7" in text and p64(1).hex() in text and " 7 s" in text
    world.core.locks.validate()
    # The request is gone: the client aborts, and nothing is left.
    other.send(AbortTransaction(p64(12), []))
    finish(master, 10, 20)
    assert phases(master) == {}
    assert world.backend.maintenance.prune_orphans(True, 0, 100)[0] == 0


def test_a_wait_that_began_before_the_prepare_counts(
    world: World, master: End, client: End, other: End
) -> None:
    store(client, 10, 1)
    waits = other.ask_later(store_request(12, 1))
    world.host.advance(PREPARED_WAIT - 1)
    vote(client, 10, 1)
    master.ask(request(10))
    world.host.advance(PREPARED_WAIT)
    assert refused(waits[0])[1].startswith("prepared: ")


def test_a_wait_for_another_transaction_is_not_bounded(
    world: World, master: End, client: End, other: End
) -> None:
    prepare(client, master, 10, 1)
    store(client, 12, 2)
    waits = other.ask_later(store_request(14, 2))
    for _ in range(30):
        world.host.advance(1)
    assert not waits
    client.send(AbortTransaction(p64(12), []))
    assert waits[0].locked is None


def test_a_rebase_that_waits_for_a_prepared_transaction_is_refused(
    world: World, master: End, client: End, other: End
) -> None:
    assert store(other, 8, 2) is None
    assert store(client, 10, 3) is None
    assert not other.ask_later(store_request(8, 3)) and master.take(NotifyDeadlock)
    prepare(client, master, 10, 2)
    assert other.ask(AskRebaseTransaction(p64(8), p64(11))).oid_list == [p64(2)]
    waits = other.ask_later(AskRebaseObject(p64(8), p64(2)))
    world.host.advance(PREPARED_WAIT)
    assert refused(waits[0])[1].startswith("prepared: ")
    assert refused(other.ask(AskVoteTransaction(p64(8))))


def test_the_timer_runs_only_while_something_is_prepared_and_delayed(
    world: World, master: End, client: End, other: End
) -> None:
    waits = world.core.participant._waits
    prepare(client, master, 10, 1)
    world.host.advance(PREPARED_WAIT)
    assert not waits._planned
    other.ask_later(store_request(12, 1))
    assert waits._planned
    master.send(AbortTransaction(p64(10), []))
    world.host.advance(PREPARED_WAIT)
    assert not waits._planned
    other.send(AbortTransaction(p64(12), []))


def test_a_finished_transaction_that_the_node_was_not_asked_to_lock_is_dropped(
    world: World, master: End, client: End
) -> None:
    prepare(client, master, 10, 1)
    master.send(NotifyTransactionFinished(p64(10), p64(20)))
    world.settle()
    assert marked(master) == [] and phases(master) == {}


def test_an_undo_in_a_prepared_transaction_does_not_hold_up_a_pack(
    world: World, master: End, client: End
) -> None:
    """24.8: pack keeps the data to which it refers."""
    commit(master, client, 4, 6, 1)
    commit(master, client, 7, 8, 1, 6)
    undo = AskStoreObject(p64(1), p64(8), 0, sha1(b"").digest(), b"", p64(6), p64(10))
    assert client.ask(undo).locked is None
    vote(client, 10, 1)
    assert world.core.locks.undoing(lambda oid: True)
    master.ask(request(10))
    assert not world.core.locks.undoing(lambda oid: True)
    world.backend.maintenance.pack(p64(8), 1, p64(0), 10)
    finish(master, 10, 20)
    assert load(client, 1).data == data_of(4)
