"""Transactions of a copy that are finished at the same time (specification 7.68 to 7.70)."""

from __future__ import annotations

import pytest

from neo.protocol.enums import ErrorCode
from neo.protocol.packets import (
    FEATURE_CHAINS,
    FEATURE_OURS,
    AbortTransaction,
    AnswerTransactionFinished,
    AskFinishTransaction,
    AskLockInformation,
    AskRecovery,
    NotifyChain,
    NotifyPresetEnded,
)
from tests.support.remote import Remote, error_of
from tests.unit.master.cluster import MasterWorld, tid
from tests.unit.master.committing import begin, lock

TIDS = [tid(1000 + n) for n in range(5)]


def chain(world: MasterWorld) -> tuple[Remote, Remote]:
    """Return a client with a chain of voted transactions, and the storage node."""
    (storage,) = world.running(1)
    client = world.client()
    assert [begin(client, each) for each in TIDS] == TIDS
    client.send(NotifyChain(TIDS))
    return client, storage


def test_all_are_locked_at_once_and_finished_in_their_order(world: MasterWorld) -> None:
    client, storage = chain(world)
    answers = [client.ask(AskFinishTransaction(each, [], [])) for each in TIDS]
    asked = [m.ttid for m in storage.received if isinstance(m, AskLockInformation)]
    assert asked == TIDS and not any(answer.done for answer in answers)
    for each, answer in zip(TIDS, answers, strict=True):
        assert not answer.done
        lock(storage)
        assert answer.result() == AnswerTransactionFinished(each, each)


@pytest.mark.parametrize("when", ["before the chain is told", "before it is asked for"])
def test_what_follows_one_that_was_aborted_is_refused(world: MasterWorld, when: str) -> None:
    """The second one is aborted, by the client here, as by the operator or another client's later tid."""
    (storage,) = world.running(1)
    client = world.client()
    for each in TIDS:
        begin(client, each)
    abort, told = AbortTransaction(TIDS[1], []), NotifyChain(TIDS)
    for message in (abort, told) if when == "before the chain is told" else (told, abort):
        client.send(message)
    first = client.ask(AskFinishTransaction(TIDS[0], [], []))
    lock(storage)
    assert first.result().tid == TIDS[0]
    for each, before in zip(TIDS[2:], TIDS[1:], strict=False):
        storage.received.clear()
        error = error_of(client.ask(AskFinishTransaction(each, [], [])))
        assert error.code is ErrorCode.INCOMPLETE_TRANSACTION
        culprit = each if (when, each) == ("before the chain is told", TIDS[2]) else before
        assert culprit.hex() in error.message and "is to be committed before it" in error.message
        assert storage.take(AbortTransaction).ttid == each and not storage.has(AskLockInformation)
    assert world.master.cluster.last_tid == TIDS[0]


def test_one_that_is_asked_for_too_early_is_refused(world: MasterWorld) -> None:
    client, storage = chain(world)
    error = error_of(client.ask(AskFinishTransaction(TIDS[1], [], [])))
    assert error.code is ErrorCode.INCOMPLETE_TRANSACTION
    assert TIDS[0].hex() in error.message
    answer = client.ask(AskFinishTransaction(TIDS[0], [], []))
    lock(storage)
    assert answer.result().tid == TIDS[0]


def test_a_transaction_of_another_client_is_not_chained(world: MasterWorld) -> None:
    (storage,) = world.running(1)
    client, other = world.client(), world.client()
    begin(client, TIDS[0])
    begin(other, TIDS[1])
    client.send(NotifyChain(TIDS[:2]))
    answer = other.ask(AskFinishTransaction(TIDS[1], [], []))
    lock(storage)
    assert answer.result().tid == TIDS[1]


def test_a_long_chain_is_not_kept_in_memory(world: MasterWorld) -> None:
    client, storage = chain(world)
    second = world.master.coordinator.transactions.get(TIDS[1])
    assert second is not None and second.follows is not None
    for each in TIDS[:2]:
        client.ask(AskFinishTransaction(each, [], []))
        lock(storage)
    assert second.follows is None


def test_a_node_is_told_which_tid_may_be_imposed_again_before_it_confirms(world: MasterWorld) -> None:
    """Specification 7.71."""
    (storage,) = world.running(1)
    assert storage.peer.node is not None
    storage.peer.node.features = frozenset({FEATURE_OURS, FEATURE_CHAINS})
    client = world.client()
    begin(client, TIDS[0])
    begin(client)
    storage.received.clear()
    client.send(AbortTransaction(TIDS[0], [1]))
    kinds = (AbortTransaction, NotifyPresetEnded, AskRecovery)
    assert [type(m) for m in storage.received if isinstance(m, kinds)] == list(kinds)
    assert storage.take(NotifyPresetEnded) == NotifyPresetEnded(TIDS[0])
