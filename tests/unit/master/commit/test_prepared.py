"""Transactions that a coordinator prepares and decides (specification 24.1 to 24.16)."""

from __future__ import annotations

import pytest

from neo.master.commit import outcomes
from neo.master.commit import prepared as registry
from neo.protocol.enums import CellState, ClusterState, ErrorCode
from neo.protocol.ids import tid_from_time
from neo.protocol.packets import (
    FEATURE_OURS,
    AbortTransaction,
    AnswerFinishPrepared,
    AnswerPrepareTransaction,
    AskFinalTID,
    AskFinishTransaction,
    AskLockInformation,
    AskPrepared,
    AskPrepareInformation,
    AskRollbackPrepared,
    EndTransaction,
    Error,
    FailedVote,
    ForgetPrepared,
    InvalidateObjects,
    NotifyFeatures,
    NotifyUnlockInformation,
)
from tests.support.remote import Remote, error_of
from tests.unit.master.cluster import MasterWorld, tid
from tests.unit.master.committing import begin, lock, oid_of
from tests.unit.master.prepared_world import (
    XID,
    PreparedWorld,
    ask_prepare,
    decide,
    mark,
    prepared,
    refusal,
    remember,
    states,
)


@pytest.fixture
def world() -> PreparedWorld:
    return PreparedWorld()


@pytest.fixture
def client(world: PreparedWorld) -> Remote:
    return world.client()


def validate(world: MasterWorld) -> None:
    world.master.coordinator.transactions.validate()


def commit(world: PreparedWorld, peer: Remote, xid: bytes = XID) -> bytes:
    answer = decide(peer, True, xid)
    for storage in world.storages:
        lock(storage)
    final: bytes = answer.result().tid
    return final


def roll_back(world: PreparedWorld, peer: Remote, xid: bytes = XID) -> bytes:
    answer = decide(peer, False, xid)
    ttids = {remember(storage).ttid for storage in world.storages}
    assert answer.result() == AnswerFinishPrepared(None)
    (ttid,) = ttids
    return ttid


# -- prepare ---------------------------------------------------------------------------------------


def test_clients_and_storage_nodes_learn_that_the_master_prepares(client: Remote) -> None:
    """Specification 24.31."""
    assert FEATURE_OURS in client.take(NotifyFeatures).features


def test_a_transaction_is_prepared_when_all_its_nodes_have_the_mark(
    world: PreparedWorld, client: Remote
) -> None:
    """Specification 24.4, 24.5."""
    ttid, stored, checked = begin(client), oid_of(world, 1), oid_of(world, 2)
    answer = ask_prepare(client, ttid, [stored], checked=[checked])
    first, second = world.storages
    asked = mark(first)
    assert (asked.ttid, asked.xid, asked.text) == (ttid, XID, b"bob\nbuy")
    assert asked.since >= world.host.time()
    partition = world.master.partitions.partition
    assert set(asked.partition_list) == {1, 2, partition(ttid)}
    assert not answer.done and states(world) == []
    mark(second)
    assert answer.result() == AnswerPrepareTransaction()
    assert states(world) == [(XID, "prepared")]
    ((_, row_ttid, final, since, objects, text, _),) = world.rows()
    assert (row_ttid, final, since, objects, text) == (ttid, None, asked.since, 2, b"bob\nbuy")
    validate(world)


def test_what_cannot_be_prepared_is_refused_and_goes_on_as_it_was(
    world: PreparedWorld, client: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 24.2."""
    oid = [oid_of(world, 0)]
    prepared(world, client)
    imposed = begin(client, tid_from_time(world.host.time() + 60))
    assert "its tid is imposed" in refusal(ask_prepare(client, imposed, oid, b"x"))
    ttid = begin(client)
    assert "xid order-7 is that of transaction" in refusal(ask_prepare(client, ttid, oid))
    world.master.nodes.get(2).features = frozenset()  # type: ignore[union-attr]
    text = "DENIED: S2 cannot keep prepared transactions: update the storage nodes"
    assert refusal(ask_prepare(client, ttid, oid, b"x")) == text
    world.master.nodes.get(2).features = frozenset({FEATURE_OURS})  # type: ignore[union-attr]
    monkeypatch.setattr(registry, "PREPARED_MAX", 1)
    assert "1 transactions are prepared" in refusal(ask_prepare(client, ttid, oid, b"x"))
    monkeypatch.undo()
    commit(world, client)
    assert "was committed as 0x" in refusal(ask_prepare(client, ttid, oid))
    assert not any(storage.has(AskPrepareInformation) for storage in world.storages)
    assert not any(storage.has(AbortTransaction) for storage in world.storages)
    answer = ask_prepare(client, ttid, oid, b"x")  # it is as it was
    for storage in world.storages:
        mark(storage)
    assert answer.done


def test_a_transaction_that_cannot_be_finished_cannot_be_prepared(
    world: PreparedWorld, client: Remote
) -> None:
    """Specification 24.3."""
    ttid = begin(client)
    assert refusal(ask_prepare(client, ttid, [b"\xff" * 8])).startswith("PROTOCOL_ERROR")
    assert all(storage.take(AbortTransaction).ttid == ttid for storage in world.storages)
    other = begin(client)
    world.master.cluster.ready.clear()
    assert refusal(ask_prepare(client, other, [oid_of(world, 0)])).startswith("INCOMPLETE")
    assert len(world.master.coordinator.transactions) == 0
    assert "unknown transaction" in refusal(ask_prepare(client, other, []))


def test_nodes_that_failed_to_vote_are_disconnected_and_promise_nothing_afterwards(
    world: PreparedWorld, client: Remote
) -> None:
    """Specification 24.3, 24.5: the client is answered when the table without the node is confirmed."""
    first, second = world.storages
    ttid = begin(client)
    client.ask(FailedVote(ttid, [1])).result()
    answer = ask_prepare(client, ttid, [oid_of(world, 0)])
    assert first.closed
    mark(second)
    assert not answer.done
    world.confirm(second)
    assert answer.done
    transactions = world.master.coordinator.transactions
    (transaction,) = transactions.all()
    assert transaction.nodes == {2} and transaction.failed == frozenset()


def test_a_prepare_that_stops_the_operation_is_forgotten(
    world: PreparedWorld, client: Remote
) -> None:
    """Specification 24.3: S1, which is disconnected, is the only node that could tell the next
    master that S2 is complete."""
    first, second = world.storages
    cluster = world.master.cluster
    for state in (CellState.OUT_OF_DATE, CellState.UP_TO_DATE):
        world.confirm(first, second)
        cluster.change_partitions([(p, 2, state) for p in range(len(cluster.partitions))])
    ttid = begin(client)
    client.ask(FailedVote(ttid, [1])).result()
    ask_prepare(client, ttid, [oid_of(world, 0)])
    assert first.closed and client.closed
    assert cluster.state is ClusterState.RECOVERING
    assert not second.has(AskPrepareInformation)
    assert not world.master.coordinator.prepared and world.master.coordinator.idle()


def test_an_error_of_a_node_aborts_the_transaction_everywhere(
    world: PreparedWorld, client: Remote
) -> None:
    """Specification 24.5."""
    first, second = world.storages
    ttid = begin(client)
    answer = ask_prepare(client, ttid, [oid_of(world, 0)])
    question = first.take(AskPrepareInformation)
    first.answer(question, Error(ErrorCode.PROTOCOL_ERROR.value, "it was not voted"))
    assert refusal(answer).startswith("INCOMPLETE_TRANSACTION: S1")
    assert first.take(AbortTransaction).ttid == ttid and second.take(AbortTransaction).ttid == ttid
    assert not first.closed
    mark(second)  # what comes too late is ignored
    assert states(world) == [] and len(world.master.coordinator.transactions) == 0
    prepared(world, client)


def test_a_node_that_is_lost_does_not_keep_the_others_from_preparing(
    world: PreparedWorld, client: Remote
) -> None:
    """Specification 24.5."""
    first, second = world.storages
    answer = ask_prepare(client, begin(client), [oid_of(world, 0)])
    mark(first)
    second.lose()
    assert not answer.done, "the table in which S2 is out of date is not confirmed"
    world.confirm(first)
    assert answer.done
    served = world.master.cluster.served_ptid
    assert served == world.master.partitions.ptid, "no later master may take an older table"


def test_a_client_may_abort_until_it_is_answered(world: PreparedWorld, client: Remote) -> None:
    """Specification 24.6."""
    ttid = begin(client)
    answer = ask_prepare(client, ttid, [oid_of(world, 0)])
    client.send(AbortTransaction(ttid, [1]))
    assert refusal(answer).startswith("INCOMPLETE_TRANSACTION")
    assert all(storage.take(AbortTransaction).ttid == ttid for storage in world.storages)
    for storage in world.storages:
        mark(storage)
    assert states(world) == []


def test_the_abort_of_what_is_prepared_or_decided_is_ignored(
    world: PreparedWorld, client: Remote
) -> None:
    """Specification 24.6."""
    ttid = prepared(world, client)
    client.send(AbortTransaction(ttid, [1, 2]))
    assert states(world) == [(XID, "prepared")]
    decide(world.client(), True)
    client.send(AbortTransaction(ttid, [1, 2]))
    for storage in world.storages:
        lock(storage)
    client.send(AbortTransaction(ttid, [1, 2]))
    assert not client.closed
    assert not any(storage.has(AbortTransaction) for storage in world.storages)
    client.send(AbortTransaction(tid(3), []))
    assert client.closed, "what was never known still breaks the protocol"


@pytest.mark.parametrize("early", [True, False])
def test_the_loss_of_the_client_changes_nothing(world: PreparedWorld, early: bool) -> None:
    """Specification 24.6, requirement 5 of issue 23: the transaction outlives its client."""
    client = world.client()
    ask_prepare(client, begin(client), [oid_of(world, 0)])
    if early:
        client.lose()
    for storage in world.storages:
        mark(storage)
    if not early:
        client.lose()
    assert states(world) == [(XID, "prepared")]
    validate(world)
    (transaction,) = world.master.coordinator.transactions.all()
    assert transaction.client is None and transaction.preparer is None
    assert commit(world, world.client())


def test_finish_and_final_tid_of_what_is_prepared_are_refused(
    world: PreparedWorld, client: Remote
) -> None:
    """Specification 24.32."""
    ttid = prepared(world, client)
    text = refusal(world.client().ask(AskFinalTID(ttid)))
    assert text == "DENIED: transaction order-7 is prepared: its coordinator decides"
    assert refusal(client.ask(AskFinishTransaction(ttid, [], []))).startswith("PROTOCOL_ERROR")
    assert states(world) == [(XID, "prepared")]


# -- commit ----------------------------------------------------------------------------------------


def test_a_commit_is_the_finish_of_any_transaction(world: PreparedWorld, client: Remote) -> None:
    """Specification 24.11."""
    ttid = prepared(world, client)
    other, asker = world.client(), world.client()
    for peer in (client, other, asker):
        peer.received.clear()
    answer = decide(asker, True)
    first, second = world.storages
    final = lock(first).tid
    assert not answer.done and states(world) == [(XID, "committing")]
    lock(second)
    assert answer.result() == AnswerFinishPrepared(final)
    for peer in (client, other, asker):
        assert peer.take(InvalidateObjects) == InvalidateObjects(final, [oid_of(world, 0)])
    assert all(storage.take(NotifyUnlockInformation).ttid == ttid for storage in world.storages)
    assert not any(storage.has(AbortTransaction) for storage in world.storages)
    assert world.master.cluster.last_tid == final
    assert states(world) == [(XID, "committed")]


@pytest.mark.parametrize("second", [True, False])
def test_the_client_that_prepared_it_needs_no_invalidation_of_its_own_commit(
    world: PreparedWorld, client: Remote, second: bool
) -> None:
    """Specification 24.11, also if another one asked first."""
    prepared(world, client)
    client.received.clear()
    other = world.client()
    other.received.clear()
    if second:
        decide(other, True)
    commit(world, client)
    assert not client.has(InvalidateObjects) and other.has(InvalidateObjects)


def test_a_decision_may_be_repeated_and_not_changed(world: PreparedWorld, client: Remote) -> None:
    """Specification 24.10."""
    prepared(world, client)
    final = commit(world, client)
    other, admin = world.client(), world.admin()
    assert decide(other, True).result().tid == decide(admin, True).result().tid == final
    text = f"DENIED: transaction order-7 was committed as 0x{final.hex()}"
    assert refusal(decide(other, False)) == text
    prepared(world, client, b"x")
    roll_back(world, admin, b"x")
    assert decide(client, False, b"x").result().tid is None
    assert refusal(decide(client, True, b"x")) == "DENIED: transaction x was rolled back"


def test_several_may_ask_for_the_same_at_once(world: PreparedWorld, client: Remote) -> None:
    """Specification 24.10: clients and neoctl."""
    prepared(world, client)
    answers = [decide(peer, True) for peer in (client, world.client(), world.admin())]
    assert refusal(decide(world.client(), False)) == (
        "DENIED: transaction order-7 is being committed"
    )
    assert {
        len([m for m in s.received if isinstance(m, AskLockInformation)]) for s in world.storages
    } == {1}
    for storage in world.storages:
        lock(storage)
    assert len({answer.result().tid for answer in answers}) == 1
    prepared(world, client, b"x")
    answers = [decide(peer, False, b"x") for peer in (client, world.client(), world.admin())]
    assert refusal(decide(client, True, b"x")) == "DENIED: transaction x is being rolled back"
    for storage in world.storages:
        remember(storage)
        assert not storage.has(AskRollbackPrepared)
    assert {answer.result().tid for answer in answers} == {None}


@pytest.mark.parametrize("commits", [True, False])
def test_a_decision_goes_on_without_a_node_that_is_lost_when_the_table_says_so(
    world: PreparedWorld, client: Remote, commits: bool
) -> None:
    """Specification 24.11, 24.12: under the condition of rule 24.5."""
    prepared(world, client)
    first, second = world.storages
    answer = decide(client, commits)
    lock(first) if commits else remember(first)
    second.lose()
    assert not answer.done
    world.confirm(first)
    assert answer.done
    assert first.has(NotifyUnlockInformation if commits else AbortTransaction)


def test_a_commit_asks_the_nodes_that_have_the_rows(world: PreparedWorld, client: Remote) -> None:
    """Specification 24.11: a node that was lost and came back has none."""
    prepared(world, client)
    first, second = world.storages
    second.lose()
    second = world.back(2)
    world.confirm(first)
    answer = decide(client, True)
    assert not second.has(AskLockInformation)
    lock(first)
    world.confirm(first)
    assert answer.done
    assert second.has(AbortTransaction), "it did not ask for unfinished transactions"


# -- rollback --------------------------------------------------------------------------------------


def test_a_rollback_is_remembered_before_anything_is_dropped(
    world: PreparedWorld, client: Remote
) -> None:
    """Specification 24.12."""
    ttid = prepared(world, client)
    first, second = world.storages
    answer = decide(client, False)
    asked = remember(first)
    assert (asked.xid, asked.ttid, asked.time) == (XID, ttid, world.host.time())
    assert not answer.done and states(world) == [(XID, "rolling back")]
    assert not first.has(AbortTransaction)
    remember(second)
    assert answer.result() == AnswerFinishPrepared(None)
    assert first.take(AbortTransaction).ttid == ttid and second.take(AbortTransaction).ttid == ttid
    assert states(world) == [(XID, "rolled back")]
    assert len(world.master.coordinator.transactions) == 0


def test_a_node_that_gets_a_cell_meanwhile_remembers_the_rollback_too(
    world: PreparedWorld, client: Remote
) -> None:
    """Specification 24.12: all nodes that have a cell of the metadata's partition."""
    prepared(world, client)
    first, second = world.storages
    second.lose()
    world.confirm(first)
    answer = decide(client, False)
    back = world.back(2)
    remember(first)
    world.confirm(first)
    assert not answer.done
    remember(back)
    assert answer.done


def test_a_node_that_cannot_remember_is_disconnected(world: PreparedWorld, client: Remote) -> None:
    """Specification 24.12."""
    prepared(world, client)
    first, second = world.storages
    answer = decide(client, False)
    first.answer(first.take(AskRollbackPrepared), Error(ErrorCode.NOT_READY.value, "disk"))
    assert first.closed
    remember(second)
    world.confirm(second)
    assert answer.done


def test_who_rolls_back_first_wins(world: PreparedWorld, client: Remote) -> None:
    """Specification 24.13."""
    ttid = begin(client)
    answer = decide(world.admin(), False)
    text = refusal(ask_prepare(client, ttid, [oid_of(world, 0)]))
    assert text == "DENIED: xid order-7 is being rolled back: choose another one"
    (new,) = {remember(storage).ttid for storage in world.storages}
    assert answer.result() == AnswerFinishPrepared(None)
    assert new > ttid, "a new ttid"
    text = refusal(ask_prepare(client, ttid, [oid_of(world, 0)]))
    assert text == "DENIED: xid order-7 was rolled back: choose another one"
    assert states(world) == [(XID, "rolled back")]


def test_a_rollback_that_a_node_could_not_remember_is_refused(
    world: PreparedWorld, client: Remote
) -> None:
    """Specification 24.13."""
    world.master.nodes.get(2).features = frozenset()  # type: ignore[union-attr]
    text = "DENIED: S2 cannot keep prepared transactions: update the storage nodes"
    assert refusal(decide(client, False)) == text
    assert states(world) == []


def test_the_commit_of_an_unknown_xid_is_refused(world: PreparedWorld, client: Remote) -> None:
    """Specification 24.13."""
    assert refusal(decide(client, True)).startswith("DENIED: no transaction order-7 is prepared")


@pytest.mark.parametrize("commits", [True, False])
def test_a_decision_waits_while_the_transaction_is_being_prepared(
    world: PreparedWorld, client: Remote, commits: bool
) -> None:
    """Specification 24.14."""
    other = world.client()
    ask_prepare(client, begin(client), [oid_of(world, 0)])
    first, contrary = decide(other, commits), decide(world.admin(), not commits)
    assert not first.done
    for storage in world.storages:
        mark(storage)
    assert "is being" in refusal(contrary)
    for storage in world.storages:
        lock(storage) if commits else remember(storage)
    assert (first.result().tid is not None) is commits


def test_decisions_that_wait_for_a_transaction_that_cannot_be_prepared(
    world: PreparedWorld, client: Remote
) -> None:
    """Specification 24.13, 24.14."""
    ttid = begin(client)
    ask_prepare(client, ttid, [oid_of(world, 0)])
    committing, rolling_back = decide(world.client(), True), decide(world.client(), False)
    client.send(AbortTransaction(ttid, []))
    assert "no transaction order-7 is prepared" in refusal(committing)
    for storage in world.storages:
        assert remember(storage).ttid != ttid
    assert rolling_back.result().tid is None


# -- outcomes --------------------------------------------------------------------------------------


def test_an_outcome_is_forgotten_when_no_node_remembers_it(
    world: PreparedWorld, client: Remote
) -> None:
    """Specification 24.15."""
    prepared(world, client)
    assert refusal(client.ask(ForgetPrepared(XID))).startswith("DENIED: the outcome of transaction")
    commit(world, client)
    answers = [client.ask(ForgetPrepared(XID)), world.admin().ask(ForgetPrepared(XID))]
    first, second = world.storages
    first.answer(first.take(ForgetPrepared), Error(ErrorCode.ACK.value, ""))
    assert not answers[0].done and states(world) == [(XID, "committed")]
    assert refusal(ask_prepare(client, begin(client), [])).startswith("DENIED")
    second.answer(second.take(ForgetPrepared), Error(ErrorCode.ACK.value, ""))
    assert [answer.result().code for answer in answers] == [ErrorCode.ACK.value] * 2
    assert states(world) == []
    assert client.ask(ForgetPrepared(b"unknown")).result().code == ErrorCode.ACK.value
    prepared(world, client)


def test_old_outcomes_are_purged_when_another_one_is_remembered(
    world: PreparedWorld, client: Remote
) -> None:
    """Specification 24.15: after 30 days."""
    prepared(world, client, b"old")
    commit(world, client, b"old")
    world.host.now += outcomes.OUTCOME_SECONDS + 1
    prepared(world, client, b"new")
    commit(world, client, b"new")
    for storage in world.storages:
        asked = storage.take(ForgetPrepared)
        assert asked.xid == b"old" and not storage.has(ForgetPrepared)
        storage.answer(asked, Error(ErrorCode.ACK.value, ""))
    assert states(world) == [(b"new", "committed")]


def test_the_oldest_outcomes_above_the_bound_are_purged(
    world: PreparedWorld, client: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 24.15, 24.16."""
    monkeypatch.setattr(outcomes, "OUTCOMES_MAX", 2)
    for xid in (b"1", b"2", b"3", b"4"):
        roll_back(world, client, xid)
        assert world.storages[1].has(ForgetPrepared) is (xid > b"2")
        for storage in world.storages:
            if storage.has(ForgetPrepared):
                storage.answer(storage.take(ForgetPrepared), Error(ErrorCode.ACK.value, ""))
    assert [row[0] for row in world.rows()] == [b"4", b"3"]
    assert [row[0] for row in world.rows(1)] == [b"4"]
    assert client.ask(AskPrepared(0, None)).result().row_list == []
    for xid, found in ((b"3", [b"3"]), (b"1", [])):
        rows = client.ask(AskPrepared(9, xid)).result().row_list
        assert [row[0] for row in rows] == found


# -- the cluster -----------------------------------------------------------------------------------


def test_the_operator_cannot_end_a_prepared_transaction(
    world: PreparedWorld, client: Remote
) -> None:
    """Specification 24.29."""
    ttid = prepared(world, client)
    text = refusal(world.admin().ask(EndTransaction(ttid)))
    assert text == (
        f"DENIED: transaction 0x{ttid.hex()} is prepared, and its coordinator decides: 'neoctl"
        " rollback order-7' rolls it back"
    )
    assert states(world) == [(XID, "prepared")]


def test_begin_store_and_finish_of_others_go_on(world: PreparedWorld, client: Remote) -> None:
    """Specification 24.8: only its objects are locked, and they do not wait for it."""
    prepared(world, client)
    other = world.client()
    ttid = begin(other)
    answer = other.ask(AskFinishTransaction(ttid, [oid_of(world, 1)], []))
    for storage in world.storages:
        lock(storage)
    assert answer.done and states(world) == [(XID, "prepared")]


@pytest.mark.parametrize("commits", [True, False])
def test_a_decision_that_the_end_of_operation_interrupts(
    world: PreparedWorld, client: Remote, commits: bool
) -> None:
    """Specification 24.10: it may be repeated. neoctl stays connected, so it is refused."""
    prepared(world, client)
    admin = world.admin()
    answer, other = decide(admin, commits), decide(client, commits)
    for storage in world.storages:
        storage.lose()
    assert world.master.cluster.state is ClusterState.RECOVERING
    assert refusal(answer).startswith("NOT_READY: the operation of the cluster was interrupted")
    assert client.closed and not other.done, "a client asks the next master"
    for question in (AskPrepared(1, None), ForgetPrepared(XID)):
        assert error_of(world.admin().ask(question)).code is ErrorCode.DENIED
    assert "must be RUNNING" in refusal(decide(world.admin(), False))
