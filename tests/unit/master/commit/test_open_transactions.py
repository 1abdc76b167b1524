"""List open transactions, and end one, as the operator asks."""

from __future__ import annotations

import pytest

from neo.master.commit import open_transactions
from neo.protocol.enums import ErrorCode, NodeType
from neo.protocol.ids import format_nid, p64, tid_from_time
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    AbortTransaction,
    AnswerLocks,
    AskFinishTransaction,
    AskLockInformation,
    AskLocks,
    AskTransactions,
    EndTransaction,
    Error,
    FailedVote,
    LockRow,
    NotifyFeatures,
    NotifyTransactionEnded,
    TransactionRow,
)
from tests.support.remote import Remote, error_of
from tests.unit.master.cluster import MasterWorld
from tests.unit.master.committing import begin, lock

C1, C2 = -0x1FFFFFFF, -0x1FFFFFFE
HERE = ("127.0.0.1", 9999)


def knows(storage: Remote) -> None:
    """Announce FEATURE_OURS for a storage node."""
    assert storage.peer.node is not None
    storage.peer.node.features = frozenset({FEATURE_OURS})


def tell(
    world: MasterWorld, storages: list[Remote], *reports: list[LockRow]
) -> list[TransactionRow]:
    """Return the list for the operator when the storage nodes answer with these rows."""
    for storage in storages:
        knows(storage)
    answer = world.admin().ask(AskTransactions())
    for storage, rows in zip(storages, reports, strict=True):
        storage.answer(storage.take(AskLocks), AnswerLocks(rows))
    shown: list[TransactionRow] = answer.result().row_list
    return shown


@pytest.fixture
def storages(world: MasterWorld) -> list[Remote]:
    return world.running(2)


# -- what is shown ---------------------------------------------------------------------------------


def test_transactions_are_shown_with_client_age_phase_and_who_waits(
    world: MasterWorld, storages: list[Remote]
) -> None:
    """Specification 8.27, 8.30."""
    first, second = world.client(), world.client()
    held = begin(first)
    world.host.advance(90)
    waits, alone = begin(second), begin(second)
    world.host.advance(2)
    rows = tell(
        world,
        storages,
        [(held, C1, "voted", [waits], 1.5), (waits, C2, "waiting", [], 0.0)],
        [(held, C1, "voted", [waits, p64(9)], 1.0), (waits, C2, "storing", [], 0.0)],
    )
    assert rows == [
        (held, C1, HERE, 92.0, "voted", 2, 1.5),
        (waits, C2, HERE, 2.0, "waiting", 0, 0.0),
        (alone, C2, HERE, 2.0, "begun", 0, 0.0),
    ]


def test_a_transaction_has_voted_when_all_nodes_have_its_vote(
    world: MasterWorld, storages: list[Remote]
) -> None:
    ttid = begin(world.client())
    ((*_, phase, _, _),) = tell(
        world, storages, [(ttid, C1, "voted", [], 0.0)], [(ttid, C1, "storing", [], 0.0)]
    )
    assert phase == "storing"


def test_what_is_being_finished_is_shown_so_and_without_a_client_that_left(
    world: MasterWorld, storages: list[Remote]
) -> None:
    """Specification 8.27, 8.30."""
    client = world.client()
    ttid = begin(client)
    client.ask(AskFinishTransaction(ttid, [], []))
    client.lose()
    rows = tell(world, storages, [(ttid, C1, "locked", [], 0.0)], [])
    assert rows == [(ttid, C1, None, 0.0, "finishing", 0, 0.0)]


def test_a_node_that_does_not_answer_is_left_out(
    world: MasterWorld, storages: list[Remote]
) -> None:
    """Specification 8.30."""
    ttid = begin(world.client())
    for storage in storages:
        knows(storage)
    answer = world.admin().ask(AskTransactions())
    storages[1].answer(
        storages[1].take(AskLocks), AnswerLocks([(ttid, C1, "voted", [p64(9)], 7.0)])
    )
    assert not answer.done
    world.host.advance(open_transactions.LOCKS_SECONDS)
    ((*_, phase, waiting, seconds),) = answer.result().row_list
    assert (phase, waiting, seconds) == ("voted", 1, 7.0)
    # The master does not wait for the node any more, and its loss has no effect.
    storages[0].lose()


def test_storage_nodes_without_the_feature_are_not_asked(
    world: MasterWorld, storages: list[Remote]
) -> None:
    """Specification 8.30."""
    ttid = begin(world.client())
    answer = world.admin().ask(AskTransactions())
    assert answer.result().row_list == [(ttid, C1, HERE, 0.0, "begun", 0, 0.0)]
    assert not any(storage.has(AskLocks) for storage in storages)


def test_a_node_that_is_lost_or_refuses_does_not_keep_the_others_from_being_shown(
    world: MasterWorld, storages: list[Remote]
) -> None:
    for storage in storages:
        knows(storage)
    ttid = begin(world.client())
    answer = world.admin().ask(AskTransactions())
    storages[0].answer(storages[0].take(AskLocks), Error(ErrorCode.NOT_READY.value, "no"))
    storages[1].answer(storages[1].take(AskLocks), AnswerLocks([(ttid, C1, "voted", [], 0.0)]))
    assert [row[4] for row in answer.result().row_list] == ["voted"]


def test_admin_and_storage_nodes_learn_that_the_master_knows_it(world: MasterWorld) -> None:
    world.extra = {FEATURES: [FEATURE_OURS]}
    admin = world.join(NodeType.ADMIN, port=9005)
    assert FEATURE_OURS in admin.take(NotifyFeatures).features


# -- the end ---------------------------------------------------------------------------------------


def test_the_operator_ends_a_transaction_everywhere(
    world: MasterWorld, storages: list[Remote]
) -> None:
    """Specification 7.49, 7.50."""
    client, other = (world.client(features=[FEATURE_OURS]) for _ in range(2))
    ttid = begin(client)
    answer = world.admin().ask(EndTransaction(ttid)).result()
    assert answer.message == f"transaction 0x{ttid.hex()} is ended: its locks are released"
    for storage in storages:
        assert storage.take(AbortTransaction) == AbortTransaction(ttid, [])
    assert client.take(NotifyTransactionEnded) == NotifyTransactionEnded(ttid)
    assert not other.has(NotifyTransactionEnded)
    assert ttid not in world.master.coordinator.transactions.ttids()


def test_a_client_without_the_feature_is_not_told_but_refused_cleanly(
    world: MasterWorld, storages: list[Remote]
) -> None:
    """Specification 7.50."""
    client = world.client()
    ttid = begin(client)
    world.admin().ask(EndTransaction(ttid)).result()
    assert not client.has(NotifyTransactionEnded)
    for question in (FailedVote(ttid, [1]), AskFinishTransaction(ttid, [], [])):
        error = error_of(client.ask(question))
        assert error.code is ErrorCode.INCOMPLETE_TRANSACTION
        assert "ended by the operator" in error.message
    assert not client.closed
    assert begin(client) > ttid


@pytest.fixture
def ended(world: MasterWorld, storages: list[Remote]) -> tuple[Remote, bytes]:
    """Return a client, and its transaction that the operator has ended."""
    client = world.client()
    ttid = begin(client)
    world.admin().ask(EndTransaction(ttid)).result()
    for storage in storages:
        storage.received.clear()
    return client, ttid


def test_what_was_stored_after_the_end_is_released_at_the_finish(
    ended: tuple[Remote, bytes], storages: list[Remote]
) -> None:
    """A node that did not know the transaction when it was ended still accepts its stores."""
    client, ttid = ended
    error_of(client.ask(AskFinishTransaction(ttid, [], [])))
    assert all(storage.take(AbortTransaction).ttid == ttid for storage in storages)


def test_the_client_aborts_what_was_ended_and_goes_on(
    ended: tuple[Remote, bytes], storages: list[Remote]
) -> None:
    """Specification 7.50."""
    client, ttid = ended
    client.send(AbortTransaction(ttid, [1]))
    assert storages[0].take(AbortTransaction).ttid == ttid
    assert not storages[1].has(AbortTransaction) and not client.closed
    client.send(AbortTransaction(ttid, [1]))  # once is enough: it is unknown now
    assert client.closed


def test_what_is_being_finished_cannot_be_ended(world: MasterWorld, storages: list[Remote]) -> None:
    """Specification 7.49."""
    client = world.client()
    ttid = begin(client)
    answer = client.ask(AskFinishTransaction(ttid, [], []))
    error = error_of(world.admin().ask(EndTransaction(ttid)))
    assert error.code is ErrorCode.DENIED
    (asked,) = (storage for storage in storages if storage.has(AskLockInformation))
    assert asked.peer.node is not None
    assert error.message == (
        f"transaction 0x{ttid.hex()} is being finished and cannot be ended any more: it waits for"
        f" {format_nid(asked.peer.node.nid)}"
    )
    lock(asked)
    assert answer.result().ttid == ttid


def test_an_unknown_transaction_cannot_be_ended(world: MasterWorld, storages: list[Remote]) -> None:
    """Specification 7.49."""
    assert "neoctl print transactions" in world.denied(EndTransaction(p64(7)))


def test_ending_twice_releases_what_came_in_between(
    world: MasterWorld, ended: tuple[Remote, bytes], storages: list[Remote]
) -> None:
    """Specification 7.49, 8.27, 8.30."""
    _, ttid = ended
    (row,) = tell(world, storages, [(ttid, C1, "storing", [p64(9)], 6.0)], [])
    assert row[:3] == (ttid, C1, HERE) and row[4:] == ("ended", 1, 6.0)
    world.admin().ask(EndTransaction(ttid)).result()
    assert all(storage.take(AbortTransaction).ttid == ttid for storage in storages)


def test_what_only_storage_nodes_know_is_shown_if_it_makes_others_wait(
    world: MasterWorld, storages: list[Remote]
) -> None:
    """Specification 8.30."""
    old = tid_from_time(world.host.time() - 50)
    rows = tell(
        world, storages, [(old, C1, "locked", [p64(9)], 6.0), (p64(3), C2, "locked", [], 0.0)], []
    )
    assert [(row[0], row[2], round(row[3]), *row[4:]) for row in rows] == [
        (old, None, 50, "locked", 1, 6.0)
    ]


def test_a_tid_that_was_ended_can_be_imposed_again(
    world: MasterWorld, storages: list[Remote]
) -> None:
    client = world.client()
    imposed = tid_from_time(world.host.time() + 60)
    assert begin(client, imposed) == imposed
    world.admin().ask(EndTransaction(imposed)).result()
    assert begin(client, imposed) == imposed
    client.send(AbortTransaction(imposed, [1, 2]))
    assert not client.closed
    assert imposed not in world.master.coordinator.transactions.ttids()


def test_what_was_ended_is_forgotten_with_its_client(
    world: MasterWorld, ended: tuple[Remote, bytes]
) -> None:
    client, ttid = ended
    client.lose()
    assert world.denied(EndTransaction(ttid))


def test_what_was_ended_is_remembered_within_a_bound(
    world: MasterWorld, storages: list[Remote], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_transactions, "ENDED_MAX", 1)
    client = world.client()
    first, second = begin(client), begin(client)
    for ttid in (first, second):
        world.admin().ask(EndTransaction(ttid)).result()
    assert error_of(client.ask(AskFinishTransaction(second, [], []))).code is (
        ErrorCode.INCOMPLETE_TRANSACTION
    )
    assert error_of(client.ask(AskFinishTransaction(first, [], []))).code is (
        ErrorCode.PROTOCOL_ERROR
    )
