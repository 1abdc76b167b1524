"""When a client votes, and which answers and notifications it ignores by then."""

from __future__ import annotations

import threading

import pytest

from neo.client.errors import TransactionLostError
from neo.client.host import system
from neo.protocol.enums import ErrorCode
from neo.protocol.ids import ZERO_TID, p64
from neo.protocol.packets import (
    AbortTransaction,
    AnswerRebaseTransaction,
    AnswerStoreObject,
    AskFinishTransaction,
    AskRebaseTransaction,
    AskStoreObject,
    AskStoreTransaction,
    Error,
    FailedVote,
    NotifyDeadlock,
)
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.unit.client.committing import (
    OID,
    OTHER,
    TTID,
    Merging,
    dialed,
    finish,
    refusing,
    settle,
    stored,
    storing,
)
from tests.unit.client.scripted import Node, scripted


@pytest.fixture(autouse=True)
def short_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the intervals at which threads check deadlines, and connections on which none waits."""
    monkeypatch.setattr(system, "TICK_SECONDS", 0.02)
    monkeypatch.setattr(system, "SWEEP_SECONDS", 0.02)


def answer_store(node: Node, number: int, locked: bytes | None) -> None:
    """Answer one of the stores that a node got, counted from 0."""
    received = node.peer.received
    stores = [i for i, message in enumerate(received) if isinstance(message, AskStoreObject)]
    node.peer.answer(stores[number], AnswerStoreObject(locked))


def test_a_late_answer_to_a_store_that_conflicted_elsewhere_is_ignored() -> None:
    """Specification 7.17: the object is stored again while the second node has not answered."""
    with scripted([1, 2]) as (cluster, storage):
        merging = Merging(storage)
        first, second = cluster.storages.values()
        first.answers[AskStoreObject] = second.answers[AskStoreObject] = lambda m: None
        t = storing(storage, OID, b"one", p64(7))
        vote = threading.Thread(target=storage.tpc_vote, args=[t])
        vote.start()
        first.wait_for(AskStoreObject)
        answer_store(first, 0, p64(9))
        for node in first, second:
            node.wait_for(AskStoreObject, count=2)
        # The second node had delayed the first store: its answer must not pass for one to the second,
        # or the data is dropped while the first node may still find another conflict.
        answer_store(second, 0, ZERO_TID)
        answer_store(second, 1, None)
        participants = storage._begun(t)._participants
        wait_until(
            lambda: len(participants.asked) - len(participants.ready) == 1, "more than one is asked"
        )
        answer_store(first, 1, p64(11))
        for node in first, second:
            node.wait_for(AskStoreObject, count=3)
            answer_store(node, 2, None)
        vote.join(PATIENCE_SECONDS)
        assert not vote.is_alive() and len(merging.calls) == 2
        assert first.asked(AskStoreTransaction) and second.asked(AskStoreTransaction)
        storage.tpc_finish(t)


def test_a_conflict_that_the_last_node_finds_is_resolved_with_the_data_of_the_store() -> None:
    """The other node has answered long before (specification 16.14, 16.16)."""
    with scripted([1, 2], cache_size=0) as (cluster, storage):
        merging = Merging(storage)
        late = cluster.storages[2]
        late.answers[AskStoreObject] = lambda m: None
        t = storing(storage, OID, b"one", p64(7))
        late.wait_for(AskStoreObject)
        storage.sync()
        late.answers[AskStoreObject] = lambda m: AnswerStoreObject(None)
        late.answer_last(AskStoreObject, AnswerStoreObject(p64(9)))
        assert storage.tpc_vote(t) == [OID]
        assert [call[:4] for call in merging.calls] == [(OID, p64(9), p64(7), b"one")]
        again = [(OID, p64(7), b"one"), (OID, p64(9), b"one+\x09")]
        assert stored(cluster, 1) == stored(cluster, 2) == again


def test_a_node_that_was_lost_gets_no_more_of_the_transaction() -> None:
    """The transaction goes on, and the master is told. Though the node is connected again, it lacks what
    was stored before (specification 7.9, 7.23)."""
    with scripted([1, 2]) as (cluster, storage):
        cluster.master.answers[FailedVote] = lambda m: Error(ErrorCode.ACK.value, "")
        lost, other = cluster.storages.values()
        t = storing(storage, p64(2))
        settle(storage, t)
        dialed(storage, 1).close("lost")
        storage.store(p64(4), None, b"two", "", t)
        dialed(storage, 1)  # another one
        storage.store(p64(6), None, b"three", "", t)
        finish(storage, t)
        assert cluster.master.asked(FailedVote) == [FailedVote(TTID, [1])]
        assert len(lost.server.peers) == 2 and not lost.asked(AskStoreTransaction)
        assert (len(stored(cluster, 1)), len(stored(cluster, 2))) == (1, 3)


def test_a_transaction_whose_metadata_nobody_voted_is_aborted() -> None:
    """Specification 7.22: all nodes with its objects are there, and its partition has a lost one."""
    with scripted([1], [2]) as (cluster, storage):
        keeper = cluster.storages[2]
        keeper.answers[AskStoreTransaction] = lambda m: keeper.peer.close()
        cluster.master.answers[FailedVote] = lambda m: Error(ErrorCode.ACK.value, "")
        t = storing(storage, OTHER, b"two")
        with pytest.raises(TransactionLostError, match="no storage node has the transaction's metadata"):
            storage.tpc_vote(t)
        assert not cluster.master.asked(FailedVote)


def test_a_deadlock_after_the_vote_is_ignored() -> None:
    """Specification 8.16: others wait for the transaction, which gives up no lock any more."""
    with scripted([1]) as (cluster, storage):
        cluster.storages[1].answers[AskRebaseTransaction] = lambda m: AnswerRebaseTransaction([])
        t = storing(storage)
        storage.tpc_vote(t)
        cluster.tell(NotifyDeadlock(TTID, p64(1500)))
        storage.sync()
        storage.tpc_finish(t)
        cluster.tell(NotifyDeadlock(TTID, p64(1600)))
        storage.sync()
        assert not cluster.storages[1].asked(AskRebaseTransaction)


def test_the_master_alone_aborts_what_it_was_asked_to_finish() -> None:
    """Specification 7.45."""
    with scripted([1]) as (cluster, storage):
        refuse = refusing(ErrorCode.INCOMPLETE_TRANSACTION)
        cluster.master.answers[AskFinishTransaction] = refuse
        t = storing(storage)
        storage.tpc_vote(t)
        with pytest.raises(TransactionLostError):
            storage.tpc_finish(t)
        storage.tpc_abort(t)
        again = storing(storage, OID, b"two")
        settle(storage, again)  # what was sent before has arrived
        assert len(stored(cluster, 1)) == 2
        for node in cluster.master, cluster.storages[1]:
            assert not node.asked(AbortTransaction)
