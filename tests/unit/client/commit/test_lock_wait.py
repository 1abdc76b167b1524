"""Stores wait for a lock up to ``wait-timeout`` and name its holder; the operator ends transactions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from transaction.interfaces import TransientError
from ZODB.POSException import ConflictError, ReadConflictError

from neo.client import NEOStorage
from neo.client.errors import NEOStorageError, TransactionLostError
from neo.client.host import system
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_TID, p64, parse_nid
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    AbortTransaction,
    AnswerLockHolders,
    AnswerRebaseTransaction,
    AnswerStoreObject,
    AnswerVoteSingle,
    AskCheckCurrentSerial,
    AskFinishTransaction,
    AskLockHolders,
    AskRebaseObject,
    AskRebaseTransaction,
    AskStoreObject,
    AskStoreTransaction,
    AskVoteSingle,
    HolderRow,
    Message,
    NotifyDeadlock,
    NotifyTransactionEnded,
    Ping,
    RequestIdentification,
)
from tests.support.patience import wait_until
from tests.unit.client.committing import (
    OID,
    OTHER,
    TTID,
    begin,
    finish,
    settle,
    stored,
    storing,
)
from tests.unit.client.peers import in_threads
from tests.unit.client.scripted import Node, Scripted, scripted

SHORT = 0.05
HOLDER: HolderRow = (p64(77), parse_nid("C7"), ("10.0.0.7", 4711), 95.2, "voted")
NAMED = (
    r"locked by another transaction for 31 s: C7 \(10\.0\.0\.7:4711\) holds it with transaction"
    r" 0x000000000000004d, which began 95 s ago and is voted; 'neoctl end 0x000000000000004d' ends it"
)
@pytest.fixture(autouse=True)
def short_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the interval at which a thread that waits for bytes checks its deadline."""
    monkeypatch.setattr(system, "TICK_SECONDS", SHORT / 2)


@contextmanager
def delayed(
    *requests: type[Message], feature: bool = True
) -> Iterator[tuple[Scripted, NEOStorage, Node]]:
    """Yield a client whose storage node does not answer these requests, and names HOLDER if
    ``feature``."""
    with scripted([1], wait_timeout=SHORT) as (cluster, storage):
        node = cluster.storages[1]
        node.answers |= dict.fromkeys(requests, lambda m: None)
        node.answers[AskLockHolders] = lambda m: AnswerLockHolders(31.0, [HOLDER])
        cluster.storage_features[1] = [FEATURE_OURS] if feature else []
        yield cluster, storage, node


def test_a_store_that_waits_for_too_long_is_a_conflict_that_names_the_holder() -> None:
    """Specification 7.41, 8.25."""
    with delayed(AskStoreObject) as (cluster, storage, node):
        t = storing(storage)
        with pytest.raises(ConflictError, match=NAMED) as raised:
            storage.tpc_vote(t)
        assert raised.value.oid == OID and isinstance(raised.value, TransientError)
        assert node.asked(AskLockHolders) == [AskLockHolders(TTID, OID)]
        storage.tpc_abort(t)
        assert node.wait_for(AbortTransaction) == AbortTransaction(TTID, [])
        assert cluster.master.wait_for(AbortTransaction) == AbortTransaction(TTID, [1])
        # The late answer has no effect, and the connection goes on.
        node.answer_last(AskStoreObject, AnswerStoreObject(ZERO_TID))
        node.answers[AskStoreObject] = lambda m: AnswerStoreObject(None)
        finish(storage, storing(storage))
        assert len(node.server.peers) == 1


def test_a_check_that_waits_is_a_conflict_of_reading() -> None:
    with delayed(AskCheckCurrentSerial) as (_, storage, _):
        t = begin(storage)
        storage.checkCurrentSerialInTransaction(OID, p64(7), t)
        with pytest.raises(ReadConflictError, match="C7"):
            storage.tpc_vote(t)


def test_a_rebase_that_waits_is_a_conflict() -> None:
    with delayed(AskRebaseObject) as (cluster, storage, node):
        node.answers[AskRebaseTransaction] = lambda m: AnswerRebaseTransaction([OID])
        t = storing(storage)
        settle(storage, t)
        cluster.tell(NotifyDeadlock(TTID, p64(1500)))
        node.wait_for(AskRebaseTransaction)
        with pytest.raises(ConflictError, match="C7"):
            storage.tpc_vote(t)


def test_a_node_without_the_feature_cannot_name_the_holder() -> None:
    """Nothing is voted while a store is not answered (specification 7.18, 8.28)."""
    with scripted([1, 2], wait_timeout=SHORT) as (cluster, storage):
        fast, slow = cluster.storages.values()
        slow.answers[AskStoreObject] = lambda m: None
        t = storing(storage)
        with pytest.raises(ConflictError, match="which transaction holds it is not known"):
            storage.tpc_vote(t)
        storage.tpc_abort(t)
        for node in fast, slow:
            node.wait_for(AbortTransaction)  # what was sent before has arrived
            assert not node.asked(AskStoreTransaction, AskLockHolders)


@pytest.mark.parametrize("feature", [False, True])
def test_an_answer_that_came_while_the_client_stood_still_is_taken(feature: bool) -> None:
    """A process that was stopped finds its deadline over and its answers in the socket
    (specification 8.28)."""
    with delayed(AskStoreObject, feature=feature) as (_, storage, node):
        pong: Any = node.answers[Ping]

        def stopped(m: Ping) -> Message:
            node.answer_last(AskStoreObject, AnswerStoreObject(None))
            return pong(m)

        node.answers[Ping] = stopped
        finish(storage, storing(storage))


def test_a_node_whose_disk_is_slow_is_no_conflict() -> None:
    """Specification 8.25."""
    with delayed(AskStoreObject) as (_, storage, node):

        def nobody(m: AskLockHolders) -> Message:
            if len(node.asked(AskLockHolders)) == 2:
                node.answer_last(AskStoreObject, AnswerStoreObject(None))
            return AnswerLockHolders(None, [])

        node.answers[AskLockHolders] = nobody
        finish(storage, storing(storage))
        assert len(node.asked(AskLockHolders)) == 2


def test_a_vote_waits_as_long_as_it_takes() -> None:
    with delayed(AskVoteSingle) as (_, storage, node):

        def answer() -> None:
            node.wait_for(AskVoteSingle)
            time.sleep(5 * SHORT)  # longer than the timeout of a store
            node.answer_last(AskVoteSingle, AnswerVoteSingle(True))

        thread = threading.Thread(target=answer)
        thread.start()
        finish(storage, storing(storage))
        thread.join()
        assert not node.asked(AskLockHolders)


def test_a_request_that_waits_only_since_a_moment_gets_its_time() -> None:
    """The node's count decides: a request may be delayed only after the one before it was answered
    (specification 8.25)."""
    with delayed(AskStoreObject) as (_, storage, node):
        waited = iter((SHORT / 2, SHORT / 2, SHORT))
        node.answers[AskLockHolders] = lambda m: AnswerLockHolders(next(waited), [HOLDER])
        with pytest.raises(ConflictError):
            storage.tpc_vote(storing(storage))
        assert len(node.asked(AskLockHolders)) == 3


def test_a_node_without_the_feature_gives_each_request_its_time() -> None:
    with scripted([1], wait_timeout=0.2) as (cluster, storage):
        node = cluster.storages[1]
        node.answers[AskStoreObject] = lambda m: None
        t = storing(storage)
        storage.store(OTHER, None, b"two", "", t)
        began: list[float] = []

        def first() -> None:
            node.wait_for(AskStoreObject, count=2)
            time.sleep(0.1)
            questions = [m for m in node.peer.received if isinstance(m, AskStoreObject)]
            began.append(time.monotonic())
            node.peer.answer(node.peer.received.index(questions[0]), AnswerStoreObject(None))

        thread = threading.Thread(target=first)
        thread.start()
        with pytest.raises(ConflictError) as raised:
            storage.tpc_vote(t)
        thread.join()
        assert raised.value.oid == OTHER and time.monotonic() - began[0] > 0.2


def test_a_connection_that_is_lost_while_the_node_is_asked_is_no_conflict() -> None:
    with delayed(AskStoreObject) as (_, storage, node):
        node.answers[AskLockHolders] = lambda m: node.peer.close()
        with pytest.raises(TransactionLostError):
            storage.tpc_vote(storing(storage))


# -- ended by the operator -------------------------------------------------------------------------


def end(cluster: Scripted, storage: Any, t: Any) -> None:
    cluster.tell(NotifyTransactionEnded(TTID))
    wait_until(lambda: storage._transactions[id(t)]._ended_by_operator, "it does not hear the end")


def test_the_master_is_told_that_the_client_wants_to_know() -> None:
    with scripted([1]) as (cluster, _):
        (request,) = cluster.master.asked(RequestIdentification)
        assert FEATURE_OURS in request.extra[FEATURES]


def test_each_later_step_says_that_the_operator_ended_the_transaction() -> None:
    with scripted([1]) as (cluster, storage):
        t = storing(storage)
        settle(storage, t)
        end(cluster, storage, t)
        steps: list[Callable[[], object]] = [
            lambda: storage.store(OTHER, None, b"two", "", t),
            lambda: storage.checkCurrentSerialInTransaction(OTHER, p64(7), t),
            lambda: storage.tpc_vote(t),
        ]
        for step in steps:
            with pytest.raises(TransactionLostError, match=r"ended by the operator \(neoctl end\)"):
                step()
        assert stored(cluster, 1) == [(OID, ZERO_TID, b"one")]
        storage.tpc_abort(t)
        assert cluster.master.wait_for(AbortTransaction) == AbortTransaction(TTID, [1])


def test_who_waits_for_a_lock_when_it_is_ended_hears_it() -> None:
    with scripted([1]) as (cluster, storage):
        node = cluster.storages[1]
        node.answers[AskStoreObject] = lambda m: None
        t = storing(storage)

        def ended() -> None:
            end(cluster, storage, t)
            node.answer_last(AskStoreObject, AnswerStoreObject(ZERO_TID))

        def vote() -> None:
            with pytest.raises(TransactionLostError, match="ended by the operator"):
                storage.tpc_vote(t)

        assert in_threads(vote, ended) == [None, None]


@pytest.mark.parametrize(
    ("ended", "error", "reason"),
    [
        (True, TransactionLostError, "ended by the operator"),
        (False, NEOStorageError, "storage node S1: .*it is unknown here"),
    ],
)
def test_a_vote_that_is_refused_first_says_why_the_node_does_not_know_it(
    ended: bool, error: type[Exception], reason: str
) -> None:
    """The reason comes on the master's connection, and may be read after the refusal."""
    with scripted([1]) as (cluster, storage):

        def refuse(m: AskStoreTransaction) -> Message:
            if ended:
                cluster.tell(NotifyTransactionEnded(TTID))
            raise ErrorAnswer(ErrorCode.PROTOCOL_ERROR, "it is unknown here")

        cluster.storages[1].answers[AskStoreTransaction] = refuse
        with pytest.raises(error, match=reason):
            storage.tpc_vote(storing(storage))


def test_the_master_refuses_to_finish_what_was_ended() -> None:
    with scripted([1]) as (cluster, storage):

        def refuse(m: AskFinishTransaction) -> Message:
            raise ErrorAnswer(ErrorCode.INCOMPLETE_TRANSACTION, "ended by the operator")

        cluster.master.answers[AskFinishTransaction] = refuse
        t = storing(storage)
        storage.tpc_vote(t)
        with pytest.raises(TransactionLostError, match="ended by the operator"):
            storage.tpc_finish(t)


def test_the_end_of_a_transaction_that_is_not_here_disturbs_nobody() -> None:
    with scripted([1]) as (cluster, storage):
        t = storing(storage)
        cluster.tell(NotifyTransactionEnded(p64(5)))
        finish(storage, t)
