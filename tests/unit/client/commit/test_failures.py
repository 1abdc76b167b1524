"""Nodes that are lost, or refuse, in the middle of a commit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from transaction.interfaces import TransientError

from neo.client.errors import (
    NEOStorageError,
    OutcomeUnknownError,
    TransactionLostError,
    UnavailableError,
)
from neo.net.connection import Received
from neo.protocol.enums import ErrorCode
from neo.protocol.ids import MAX_TID, ZERO_TID, p64
from neo.protocol.packets import (
    FEATURE_OURS,
    AbortTransaction,
    AnswerBeginTransaction,
    AnswerFinalTID,
    AnswerRebaseTransaction,
    AnswerStoreObject,
    AskBeginTransaction,
    AskFinalTID,
    AskFinishTransaction,
    AskRebaseTransaction,
    AskStoreObject,
    AskStoreTransaction,
    Error,
    FailedVote,
    InvalidateObjects,
    Message,
    NotifyDeadlock,
    NotifyFeatures,
    NotifyNodeInformation,
    StopOperation,
)
from tests.support.patience import wait_until
from tests.unit.client.committing import (
    OID,
    OTHER,
    TTID,
    begin,
    dialed,
    finish,
    refusing,
    settle,
    stored,
    storing,
)
from tests.unit.client.peers import Peer
from tests.unit.client.reading import DB
from tests.unit.client.scripted import Scripted, scripted


def test_a_transaction_does_not_go_on_under_another_connection_to_the_master() -> None:
    """The master would not know the transaction, and could not end its deadlocks."""
    with scripted([1]) as (cluster, storage):
        t = storing(storage)
        settle(storage, t)
        cluster.master.peer.close()
        storage.sync()
        with pytest.raises(TransactionLostError):
            storage.store(OTHER, None, b"two", "", t)
        with pytest.raises(TransactionLostError):
            storage.tpc_vote(t)
        assert len(stored(cluster, 1)) == 1
        storage.tpc_abort(t)


def test_the_end_of_a_lost_transaction_takes_nothing_from_a_new_one_with_its_ttid() -> None:
    """A new master whose clock is behind may allocate a ttid again. Its second transaction must hear of
    deadlocks, or it waits for ever."""
    with scripted([1]) as (cluster, storage):
        cluster.storages[1].answers[AskRebaseTransaction] = lambda m: AnswerRebaseTransaction([])
        lost = begin(storage)
        settle(storage, lost)
        cluster.master.peer.close()
        storage.sync()
        cluster.master.answers[AskBeginTransaction] = lambda m: AnswerBeginTransaction(TTID)
        new = storing(storage)
        storage.tpc_abort(lost)
        cluster.tell(NotifyDeadlock(TTID, p64(1500)))
        cluster.storages[1].wait_for(AskRebaseTransaction)
        storage.tpc_vote(new)


def test_the_master_may_refuse_to_go_on_without_a_node() -> None:
    """Specification 7.23, 7.41."""
    with scripted([1, 2]) as (cluster, storage):
        cluster.master.answers[FailedVote] = refusing(ErrorCode.INCOMPLETE_TRANSACTION)
        cluster.storages[1].answers[AskStoreObject] = lambda m: cluster.storages[1].peer.close()
        t = storing(storage)
        with pytest.raises(TransactionLostError, match="INCOMPLETE_TRANSACTION") as raised:
            storage.tpc_vote(t)
        assert isinstance(raised.value, TransientError)
        storage.tpc_abort(t)
        assert cluster.master.wait_for(AbortTransaction) == AbortTransaction(TTID, [1, 2])
        assert cluster.storages[2].wait_for(AbortTransaction) == AbortTransaction(TTID, [])


def test_an_object_that_only_a_lost_node_had_locked_fails_the_vote() -> None:
    """Specification 7.22."""
    with scripted([1], [2]) as (cluster, storage):
        cluster.storages[2].answers[AskStoreObject] = lambda m: cluster.storages[2].peer.close()
        t = storing(storage, OTHER, b"two")
        storage.store(OID, None, b"one", "", t)
        with pytest.raises(TransactionLostError):
            storage.tpc_vote(t)


def test_nobody_waits_for_a_node_that_was_lost_between_two_stores() -> None:
    """The node takes no further part in the transaction, however long the client waits
    (specification 7.9)."""
    with scripted([1]) as (_, storage):
        t = storing(storage)
        settle(storage, t)
        dialed(storage, 1).close("lost")
        with pytest.raises(UnavailableError, match="failed during the transaction"):
            storage.store(OTHER, None, b"two", "", t)


@pytest.mark.parametrize("replica_lost", [False, True])
def test_stores_without_locks_count_only_beside_a_node_that_locked(replica_lost: bool) -> None:
    """Specification 7.22."""
    with scripted([1, 2]) as (cluster, storage):
        cluster.master.answers[FailedVote] = lambda m: Error(ErrorCode.ACK.value, "")
        cluster.storages[1].answers[AskStoreObject] = lambda m: AnswerStoreObject(ZERO_TID)
        t = storing(storage)
        settle(storage, t)
        if replica_lost:
            cluster.storages[2].peer.close()
            with pytest.raises(TransactionLostError, match="has locked"):
                storage.tpc_vote(t)
            storage.tpc_abort(t)
        else:
            finish(storage, t)


def last_words(cluster: Scripted, nid: int) -> Callable[[Message], None]:
    """Return an answer: that of a storage node that cannot write."""

    def fail(m: Message) -> None:
        peer = cluster.storages[nid].peer
        peer.answer(None, Error(ErrorCode.NOT_READY.value, "the database failed: disk full"))
        peer.close()

    return fail


@pytest.mark.parametrize("request_type", [AskStoreObject, AskStoreTransaction])
def test_the_error_says_what_the_storage_node_said_when_it_left(request_type: type) -> None:
    with scripted([1]) as (cluster, storage):
        cluster.storages[1].answers[request_type] = last_words(cluster, 1)
        t = storing(storage)
        words = r"S1 127.0.0.1:\d+: the peer says: the database failed: disk full"
        with pytest.raises(TransactionLostError, match=words):
            storage.tpc_vote(t)


def test_the_error_says_which_node_the_cluster_cannot_serve_without() -> None:
    with scripted([1], [2], wait_timeout=0.2) as (cluster, storage):
        t = storing(storage, OTHER, b"two")
        settle(storage, t)
        cluster.master._identify = refuse_late
        cluster.tell(NotifyNodeInformation(time.time(), cluster.rows(down=[1])), StopOperation())
        master = storage._session.master.current
        assert master is not None
        wait_until(lambda: master.channel.lost is not None, "the loss is not seen")
        stopped = "the cluster stopped serving; S1 is not running"
        with pytest.raises(TransactionLostError, match=f"during the transaction: {stopped}$"):
            storage.tpc_vote(t)
        storage.tpc_abort(t)
        with pytest.raises(UnavailableError, match=f"NOT_READY: Retry Later, since {stopped}$"):
            storage.sync()


def refuse_late(peer: Peer, received: Received) -> None:
    """Refuse like a master whose cluster is not RUNNING."""
    peer.answer(received.message_id, Error(ErrorCode.NOT_READY.value, "Retry Later"))
    peer.close()


def test_a_partition_without_writable_cell_is_a_transient_error() -> None:
    """Specification 7.8."""
    with scripted([1], [], wait_timeout=0.2) as (_, storage):
        t = begin(storage)
        with pytest.raises(UnavailableError, match="writable cell"):
            storage.store(OID, None, b"one", "", t)


def test_a_transaction_that_stored_nothing_yet_begins_again() -> None:
    with scripted([1]) as (cluster, storage):
        cluster.master.answers[AskBeginTransaction] = lambda m: cluster.master.peer.close()
        t = begin(storage)
        cluster.master.wait_for(AskBeginTransaction)
        cluster.master.answers[AskBeginTransaction] = cluster._begin
        storage.store(OID, None, b"one", "", t)
        finish(storage, t)


@pytest.mark.parametrize("known_by", ["master", "storage", "nobody", "the master asks, nobody"])
def test_the_outcome_is_asked_for_when_the_master_is_lost_in_tpc_finish(known_by: str) -> None:
    """Specification 7.37, 7.39."""
    with scripted([1]) as (cluster, storage):
        tid = p64(3000)
        committed = known_by in ("master", "storage")

        def lose(m: Message) -> None:
            if committed:
                cluster.last_tid = tid
            cluster.master.peer.close()

        cluster.master.answers[AskFinishTransaction] = lose
        final = {"master": tid, "nobody": None}.get(known_by, MAX_TID)
        cluster.master.answers[AskFinalTID] = lambda m: AnswerFinalTID(final)
        found = tid if committed else None
        cluster.storages[1].answers[AskFinalTID] = lambda m: AnswerFinalTID(found)
        t = storing(storage)
        storage.tpc_vote(t)
        called: list[bytes] = []
        if committed:
            assert storage.tpc_finish(t, called.append) == tid
            assert called == [tid]
            assert storage.lastTransaction() == tid
        else:
            with pytest.raises(TransactionLostError, match="was not committed"):
                storage.tpc_finish(t, called.append)
        asked = [AskFinalTID(TTID)] if final == MAX_TID else []
        assert cluster.storages[1].asked(AskFinalTID) == asked


@pytest.mark.parametrize("who", ["master", "storage", "nobody"])
def test_an_outcome_that_nobody_tells_is_not_to_be_tried_again(who: str) -> None:
    """Frameworks would repeat a transient error, and so commit twice (specification 7.40)."""
    with scripted([1], wait_timeout=0.2) as (cluster, storage):
        refuse = refusing(ErrorCode.PROTOCOL_ERROR)
        cluster.master.answers[AskFinalTID] = lambda m: AnswerFinalTID(MAX_TID)
        cluster.storages[1].answers[AskFinalTID] = refuse
        if who == "master":
            cluster.master.answers[AskFinalTID] = refuse

        def lose(m: Message) -> None:
            if who == "nobody":
                cluster.master.server.close_listener()
            cluster.master.peer.close()

        cluster.master.answers[AskFinishTransaction] = lose
        t = storing(storage)
        storage.tpc_vote(t)
        reason = "did not answer for" if who == "nobody" else "PROTOCOL_ERROR"
        with pytest.raises(OutcomeUnknownError, match=reason) as raised:
            storage.tpc_finish(t)
        assert not isinstance(raised.value, TransientError)
        assert TTID.hex() in str(raised.value)


def test_what_the_master_sends_after_the_end_of_a_transaction_takes_effect_after_it() -> None:
    with scripted([1]) as (cluster, storage):
        order: list[Any] = []

        def finish(m: AskFinishTransaction) -> None:
            # In one packet: the answer, and the next transaction of another client.
            answer = cluster._finish(m)
            peer = cluster.master.peer
            peer.connection.answer(len(peer.received) - 1, answer)
            peer.connection.send(InvalidateObjects(p64(9000), [OID]))
            peer.flush()

        class Ordered(DB):
            def invalidate(self, tid: bytes, oids: list[bytes]) -> None:
                order.append((tid, storage.lastTransaction()))

        storage.registerDB(db := Ordered())
        cluster.master.answers[AskFinishTransaction] = finish
        t = storing(storage)
        storage.tpc_vote(t)
        tid = storage.tpc_finish(t, lambda tid: order.append((tid, "ours")))
        storage.sync()
        assert order == [(tid, "ours"), (p64(9000), tid)]
        assert db.calls == [], "the caches were not emptied"
        assert storage.loadBefore(OID, p64(9000)) == (b"one", tid, p64(9000))


def test_an_abort_before_the_answer_to_the_first_request() -> None:
    with scripted([1]) as (cluster, storage):
        t = begin(storage)
        storage.tpc_abort(t)
        assert cluster.master.wait_for(AbortTransaction) == AbortTransaction(TTID, [])


@pytest.mark.parametrize("foreign", [False, True])
def test_a_node_of_another_implementation_is_not_sent_what_it_cannot_take(
    foreign: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A foreign node would end (specification 2.39). This implementation's nodes announce their
    features."""
    for module in ("transaction", "abilities"):
        monkeypatch.setattr(f"neo.client.commit.{module}.FOREIGN_LARGEST_BYTES", 1000)
    with scripted([1], compress=False) as (cluster, storage):
        dialed(storage, 1)
        if not foreign:
            cluster.storages[1].peer.send(NotifyFeatures([FEATURE_OURS]))
        t = begin(storage)
        storage.store(OID, None, bytes(1000), "", t)
        if foreign:
            with pytest.raises(NEOStorageError, match="1001 bytes, more than 1000, .* S1, of another"):
                storage.store(OTHER, None, bytes(1001), "", t)
        else:
            storage.store(OTHER, None, bytes(1001), "", t)
        settle(storage, t)
        assert len(stored(cluster, 1)) == 2 - foreign
