from __future__ import annotations

import threading
import time
from collections.abc import Callable
from hashlib import sha1
from typing import Any

import pytest
from transaction.interfaces import TransientError
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import (
    ConflictError,
    ReadConflictError,
    ReadOnlyError,
    StorageTransactionError,
    UndoError,
)

from neo.client import NEOStorage
from neo.client.errors import (
    NEOStorageError,
    OutcomeUnknownError,
    TransactionLostError,
    UnavailableError,
)
from neo.net.connection import Received
from neo.protocol.enums import CellState, ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import MAX_TID, ZERO_HASH, ZERO_TID, p64
from neo.protocol.packets import (
    AbortTransaction,
    AnswerBeginTransaction,
    AnswerCheckCurrentSerial,
    AnswerFinalTID,
    AnswerObject,
    AnswerObjectUndoSerial,
    AnswerRebaseObject,
    AnswerRebaseTransaction,
    AnswerStoreObject,
    AnswerTransactionInformation,
    AskBeginTransaction,
    AskCheckCurrentSerial,
    AskFinalTID,
    AskFinishTransaction,
    AskObject,
    AskObjectUndoSerial,
    AskRebaseObject,
    AskRebaseTransaction,
    AskStoreObject,
    AskStoreTransaction,
    AskTransactionInformation,
    AskVoteTransaction,
    Error,
    FailedVote,
    InvalidateObjects,
    Message,
    NotifyDeadlock,
    NotifyNodeInformation,
    RequestIdentification,
    StopOperation,
)
from tests.unit.client.peers import Peer, wait_until
from tests.unit.client.scripted import Scripted, scripted

OID, OTHER = p64(1), p64(2)
TTID = p64(1001)


def begin(storage: NEOStorage, **metadata: Any) -> TransactionMetaData:
    transaction = TransactionMetaData(**metadata)
    storage.tpc_begin(transaction)
    return transaction


def test_a_transaction_does_not_go_on_under_another_connection_to_the_master() -> None:
    """The master would know nothing of it, and could not end its deadlocks."""
    with scripted([1]) as (cluster, storage):
        t = begin(storage)
        storage._commit(t).settle()
        assert storage._commit(t).ttid == TTID
        cluster.master.peer.close()
        storage.sync()
        with pytest.raises(TransactionLostError):
            storage.store(OID, None, b"one", "", t)
        assert stored(cluster, 1) == []
        storage.tpc_abort(t)


def stored(cluster: Scripted, nid: int) -> list[tuple[bytes, bytes, bytes]]:
    return [(m.oid, m.serial, m.data) for m in cluster.storages[nid].asked(AskStoreObject)]


def refusing(code: ErrorCode) -> Any:
    def refuse(m: Message) -> Message:
        raise ErrorAnswer(code)

    return refuse


class Merging:
    """Stands for conflict resolution: joins the new data and the serial of the other."""

    def __init__(self, storage: NEOStorage) -> None:
        self.calls: list[tuple[bytes, ...]] = []
        storage.tryToResolveConflict = self

    def __call__(
        self, oid: bytes, committed: bytes, old: bytes, new: bytes, committed_data: bytes = b""
    ) -> bytes:
        self.calls.append((oid, committed, old, new, committed_data))
        return new + b"+" + committed[-1:]


def conflict_once(serial: bytes) -> Any:
    """Answers the first store with a conflict, later ones with success."""
    answers = [AnswerStoreObject(serial)]
    return lambda m: answers.pop() if answers else AnswerStoreObject(None)


# -- the normal case -----------------------------------------------------------------------------


def test_a_transaction_is_sent_as_specified() -> None:
    with scripted([1], [2], [3]) as (cluster, storage):
        t = begin(storage, user="u", description="d", extension=b"e")
        storage.store(OID, p64(7), b"one", "", t)
        storage.checkCurrentSerialInTransaction(OTHER, p64(8), t)
        assert storage.tpc_vote(t) is None
        tids: list[bytes] = []
        tid = storage.tpc_finish(t, tids.append)
        assert tids == [tid] == [storage.lastTransaction()]
        checksum = sha1(b"one").digest()
        # 1001 % 3 == 2: the metadata are on node 3, which has none of the objects.
        assert cluster.storages[2].asked(AskStoreObject, AskVoteTransaction) == [
            AskStoreObject(OID, p64(7), 0, checksum, b"one", None, TTID),
            AskVoteTransaction(TTID),
        ]
        assert cluster.storages[3].asked(AskCheckCurrentSerial, AskStoreTransaction) == [
            AskCheckCurrentSerial(TTID, OTHER, p64(8)),
            AskStoreTransaction(TTID, b"u", b"d", b"e", [OID]),
        ]
        assert cluster.storages[1].log == []
        assert cluster.master.asked(AskFinishTransaction) == [
            AskFinishTransaction(TTID, [OID], [OTHER])
        ]


def test_a_commit_of_one_object_takes_two_messages_to_the_master_and_two_to_its_node() -> None:
    with scripted([1]) as (cluster, storage):
        storage.sync()  # what follows the identification is over
        nodes = cluster.master, cluster.storages[1]
        before = [len(node.log) for node in nodes]
        t = begin(storage)
        storage.store(OID, p64(7), b"one", "", t)
        storage.tpc_vote(t)
        storage.tpc_finish(t)
        sent = [
            [type(m) for m in node.log[start:] if not isinstance(m, RequestIdentification)]
            for node, start in zip(nodes, before, strict=True)
        ]
        assert sent == [
            [AskBeginTransaction, AskFinishTransaction],
            [AskStoreObject, AskStoreTransaction],
        ]


def test_data_is_stored_on_every_writable_cell_and_kept_in_the_cache() -> None:
    with scripted([1, 2]) as (cluster, storage):
        t = begin(storage)
        storage.store(OID, None, b"one", "", t)
        storage.tpc_vote(t)
        tid = storage.tpc_finish(t)
        assert stored(cluster, 1) == stored(cluster, 2) == [(OID, ZERO_TID, b"one")]
        assert storage.load(OID) == (b"one", tid)


def test_compression_is_used_when_it_gains() -> None:
    with scripted([1]) as (cluster, storage):
        t = begin(storage)
        storage.store(OID, None, bytes(1000), "", t)
        storage.store(OTHER, None, b"short", "", t)
        storage.tpc_vote(t)
        first, second = cluster.storages[1].asked(AskStoreObject)
        assert (first.compression, second.compression) == (1, 0)
        assert first.checksum == sha1(first.data).digest() and len(first.data) < 100
        storage.tpc_abort(t)


def test_tpc_begin_does_not_wait_for_the_master() -> None:
    with scripted([1]) as (cluster, storage):
        cluster.master.answers[AskBeginTransaction] = lambda m: None
        t = begin(storage)
        cluster.master.wait_for(AskBeginTransaction)
        storage.close()
        with pytest.raises(NEOStorageError):
            storage.store(OID, None, b"", "", t)


def test_metadata_goes_to_who_keeps_it_when_the_master_has_answered() -> None:
    """The client waits in the vote; meanwhile the partition of the ttid gets another copy."""
    with scripted([2], [2], [1]) as (cluster, storage):
        cluster.master.answers[AskBeginTransaction] = lambda m: None
        t = begin(storage)
        vote = threading.Thread(target=storage.tpc_vote, args=(t,))
        vote.start()
        cluster.master.wait_for(AskBeginTransaction)
        # 1001 % 3 == 2
        cluster.tell(cluster.change((2, 2, CellState.OUT_OF_DATE)))
        cluster.master.answer_last(AskBeginTransaction, AnswerBeginTransaction(TTID))
        vote.join()
        for nid in 1, 2:
            assert len(cluster.storages[nid].asked(AskStoreTransaction)) == 1
        storage.tpc_finish(t)


def test_many_stores_are_throttled_by_their_size() -> None:
    with scripted([1], cache_size=0) as (cluster, storage):
        waiting: list[Any] = []
        cluster.storages[1].answers[AskStoreObject] = lambda m: waiting.append(m)
        t = begin(storage)
        data = bytes(1 << 20)
        storage._options = storage._options._replace(compress=0)
        storage._commits[id(t)]._options = storage._options

        def store() -> None:
            for n in range(8):
                storage.store(p64(n), None, data, "", t)

        thread = threading.Thread(target=store)
        thread.start()
        cluster.storages[1].wait_for(AskStoreObject, count=5)
        thread.join(0.1)
        assert thread.is_alive() and len(waiting) == 5
        cluster.storages[1].answers[AskStoreObject] = lambda m: AnswerStoreObject(None)
        peer = cluster.storages[1].peer
        for i, message in enumerate(list(peer.received)):
            if isinstance(message, AskStoreObject):
                peer.answer(i, AnswerStoreObject(None))
        thread.join(10)
        assert not thread.is_alive()
        storage.tpc_abort(t)


def test_phases_out_of_order_are_refused() -> None:
    with scripted([1]) as (_, storage):
        t = begin(storage)
        with pytest.raises(StorageTransactionError):
            storage.tpc_begin(t)
        with pytest.raises(StorageTransactionError):
            storage.tpc_finish(t)
        with pytest.raises(StorageTransactionError):
            storage.store(OID, None, b"", "", TransactionMetaData())
        storage.tpc_abort(t)
        storage.tpc_abort(t)


def test_a_new_object_has_its_oid_from_the_master_that_ends_the_transaction() -> None:
    """Another one may have given the same oid to another application meanwhile."""
    with scripted([1]) as (cluster, storage):
        oid = storage.new_oid()
        t = begin(storage)
        storage.store(oid, None, b"of the same master", "", t)
        storage.tpc_abort(t)
        cluster.master.peer.close()
        storage.sync()
        t = begin(storage)
        with pytest.raises(TransactionLostError, match=oid.hex()):
            storage.store(oid, None, b"of the one before", "", t)
        storage.tpc_abort(t)
        t = begin(storage)
        storage.store(p64(0), None, b"an oid that nobody gave", "", t)
        storage.store(oid, TTID, b"no new object", "", t)
        storage.store(storage.new_oid(), None, b"of this master", "", t)
        with pytest.raises(TransactionLostError, match=oid.hex()):
            storage.store(oid, None, b"of the one before", "", t)
        storage.tpc_abort(t)


def test_transactions_of_one_storage_may_overlap() -> None:
    with scripted([1]) as (cluster, storage):
        first, second = begin(storage), begin(storage)
        storage.store(OID, None, b"1", "", first)
        storage.store(OTHER, None, b"2", "", second)
        for t in (second, first):
            storage.tpc_vote(t)
            storage.tpc_finish(t)
        finished = cluster.master.asked(AskFinishTransaction)
        assert [m.stored_list for m in finished] == [[OTHER], [OID]]


def test_a_read_only_cluster_refuses_with_the_error_of_zodb() -> None:
    with scripted([1]) as (cluster, storage):
        cluster.master.answers[AskBeginTransaction] = refusing(ErrorCode.READ_ONLY_ACCESS)
        t = begin(storage)
        with pytest.raises(ReadOnlyError):
            storage.store(OID, None, b"", "", t)
        storage.tpc_abort(t)


def test_an_object_that_a_storage_node_refuses_fails_the_vote_and_nothing_else() -> None:
    text = "the object has 5 bytes; the database keeps at most 4 in one record"

    def refuse(m: AskStoreObject) -> Message:
        if len(m.data) > 4:
            raise ErrorAnswer(ErrorCode.DENIED, text)
        return AnswerStoreObject(None)

    with scripted([1, 2]) as (cluster, storage):
        for node in cluster.storages.values():
            node.answers[AskStoreObject] = refuse
        t = begin(storage)
        storage.store(OTHER, None, b"four", "", t)
        storage.store(OID, None, b"large", "", t)
        with pytest.raises(NEOStorageError) as raised:
            storage.tpc_vote(t)
        assert str(raised.value).endswith(f", object {OID.hex()}: DENIED: {text}")
        assert not isinstance(raised.value, TransientError)
        storage.tpc_abort(t)
        for node in cluster.storages.values():
            node.wait_for(AbortTransaction)
            assert not node.asked(AskStoreTransaction, AskVoteTransaction)
        t = begin(storage)
        storage.store(OID, None, b"four", "", t)
        storage.tpc_vote(t)
        storage.tpc_finish(t)
        assert not cluster.master.asked(FailedVote)


# -- conflicts -----------------------------------------------------------------------------------


def test_a_conflict_is_resolved_and_stored_again_on_all_cells() -> None:
    with scripted([1, 2]) as (cluster, storage):
        merging = Merging(storage)
        for node in cluster.storages.values():
            node.answers[AskStoreObject] = conflict_once(p64(9))
        t = begin(storage)
        storage.store(OID, p64(7), b"one", "", t)
        assert storage.tpc_vote(t) == [OID]
        assert [call[:4] for call in merging.calls] == [(OID, p64(9), p64(7), b"one")]
        again = [(OID, p64(7), b"one"), (OID, p64(9), b"one+\x09")]
        assert stored(cluster, 1) == stored(cluster, 2) == again
        tid = storage.tpc_finish(t)
        assert storage.load(OID) == (b"one+\x09", tid)


def test_a_conflict_that_cannot_be_resolved_is_raised() -> None:
    with scripted([1]) as (cluster, storage):
        cluster.storages[1].answers[AskStoreObject] = lambda m: AnswerStoreObject(p64(9))
        t = begin(storage)
        with pytest.raises(ConflictError) as raised:
            storage.store(OID, p64(7), b"not a pickle", "", t)
            storage.tpc_vote(t)
        assert (raised.value.oid, raised.value.serials) == (OID, (p64(9), p64(7)))
        storage.tpc_abort(t)


@pytest.mark.parametrize("deleting", [False, True])
def test_conflicts_of_checks_and_deletions_are_not_resolved(deleting: bool) -> None:
    with scripted([1]) as (cluster, storage):
        node = cluster.storages[1]
        node.answers[AskCheckCurrentSerial] = lambda m: AnswerCheckCurrentSerial(p64(9))
        node.answers[AskStoreObject] = lambda m: AnswerStoreObject(p64(9))
        t = begin(storage)
        with pytest.raises(ConflictError if deleting else ReadConflictError) as raised:
            if deleting:
                storage.deleteObject(OID, p64(7), t)
            else:
                storage.checkCurrentSerialInTransaction(OID, p64(7), t)
            storage.tpc_vote(t)
        assert raised.value.serials == (p64(9), p64(7))
        storage.tpc_abort(t)


def test_a_deletion_is_a_store_of_nothing() -> None:
    with scripted([1]) as (cluster, storage):
        t = begin(storage)
        storage.deleteObject(OID, p64(7), t)
        storage.tpc_vote(t)
        (message,) = cluster.storages[1].asked(AskStoreObject)
        assert message == AskStoreObject(OID, p64(7), 0, ZERO_HASH, b"", None, TTID)
        storage.tpc_abort(t)


def test_restored_objects_follow_whatever_is_current() -> None:
    with scripted([1]) as (cluster, storage):
        cluster.storages[1].answers[AskStoreObject] = conflict_once(p64(9))
        t = TransactionMetaData()
        storage.tpc_begin(t, p64(5))
        storage.restore(OID, p64(5), b"data", "", None, t)
        storage.restore(OTHER, p64(5), None, "", None, t)
        storage.tpc_vote(t)
        storage.tpc_finish(t)
        assert stored(cluster, 1) == [
            (OID, ZERO_TID, b"data"), (OTHER, ZERO_TID, b""), (OID, p64(9), b"data")
        ]  # fmt: skip
        # The next one guesses right.
        t = TransactionMetaData()
        storage.tpc_begin(t, p64(6))
        storage.restore(OID, p64(6), b"more", "", None, t)
        storage.tpc_vote(t)
        assert stored(cluster, 1)[3:] == [(OID, storage.lastTransaction(), b"more")]
        storage.tpc_abort(t)


@pytest.mark.parametrize("same", [True, False])
def test_a_restored_undo_refers_to_the_data_if_it_is_the_same(same: bool) -> None:
    with scripted([1]) as (cluster, storage):
        known = b"data" if same else b"other"
        cluster.storages[1].answers[AskObject] = lambda m: AnswerObject(
            m.oid, p64(4), None, 0, sha1(known).digest(), known, p64(3)
        )
        t = TransactionMetaData()
        storage.tpc_begin(t, p64(5))
        storage.restore(OID, p64(5), b"data", "", p64(4), t)
        storage.tpc_vote(t)
        (message,) = cluster.storages[1].asked(AskStoreObject)
        expected = (b"", p64(3)) if same else (b"data", None)
        assert (message.data, message.data_serial) == expected
        storage.tpc_abort(t)


# -- deadlocks -----------------------------------------------------------------------------------


def test_a_deadlock_is_solved_by_rebasing_on_every_node() -> None:
    with scripted([1], [2]) as (cluster, storage):
        # Oid 1 is on node 2, and granted; oid 2 on node 1, where it waits.
        granted, waiting = cluster.storages[2], cluster.storages[1]
        waiting.answers[AskStoreObject] = lambda m: None
        for node in (granted, waiting):
            node.answers[AskRebaseTransaction] = lambda m: AnswerRebaseTransaction([])
        granted.answers[AskRebaseTransaction] = lambda m: AnswerRebaseTransaction([OID])
        data = b"from the storage"
        granted.answers[AskRebaseObject] = lambda m: AnswerRebaseObject(
            (p64(7), p64(9), (0, sha1(data).digest(), data))
        )
        merging = Merging(storage)
        t = begin(storage)
        storage.store(OID, p64(7), b"one", "", t)
        storage.store(OTHER, p64(8), b"two", "", t)
        waiting.wait_for(AskStoreObject)
        voting = threading.Thread(target=storage.tpc_vote, args=[t])
        voting.start()
        cluster.tell(NotifyDeadlock(TTID, p64(1500)))
        for node in (granted, waiting):
            assert node.wait_for(AskRebaseTransaction) == AskRebaseTransaction(TTID, p64(1500))
        waiting.answer_last(AskStoreObject, AnswerStoreObject(None))
        voting.join(10)
        assert not voting.is_alive()
        assert granted.asked(AskRebaseObject) == [AskRebaseObject(TTID, OID)]
        assert stored(cluster, 2)[1][:2] == (OID, p64(9))
        assert [call[:3] for call in merging.calls] == [(OID, p64(9), p64(7))]
        # An older or repeated one changes nothing.
        cluster.tell(NotifyDeadlock(TTID, p64(1400)), NotifyDeadlock(TTID, p64(1500)))
        storage.tpc_finish(t)
        assert len(granted.asked(AskRebaseTransaction)) == 1


def test_a_node_that_comes_in_after_a_deadlock_is_rebased_before_its_first_store() -> None:
    with scripted([1], [2]) as (cluster, storage):
        for node in cluster.storages.values():
            node.answers[AskRebaseTransaction] = lambda m: AnswerRebaseTransaction([])
        t = begin(storage)
        storage.store(OID, p64(7), b"one", "", t)
        cluster.tell(NotifyDeadlock(TTID, p64(1500)))
        cluster.storages[2].wait_for(AskRebaseTransaction)
        storage.store(OTHER, p64(7), b"two", "", t)
        storage.tpc_vote(t)
        log = cluster.storages[1].asked(AskRebaseTransaction, AskStoreObject)
        assert [type(m) for m in log] == [AskRebaseTransaction, AskStoreObject]
        storage.tpc_abort(t)


# -- failures ------------------------------------------------------------------------------------


def test_a_lost_replica_is_reported_and_the_transaction_goes_on() -> None:
    with scripted([1, 2]) as (cluster, storage):
        cluster.master.answers[FailedVote] = lambda m: Error(ErrorCode.ACK.value, "")
        t = begin(storage)
        storage.store(OID, None, b"one", "", t)
        storage._commits[id(t)].settle()
        cluster.storages[1].peer.close()
        storage.store(OTHER, None, b"two", "", t)
        storage.tpc_vote(t)
        storage.tpc_finish(t)
        assert cluster.master.asked(FailedVote) == [FailedVote(TTID, [1])]


def test_the_master_may_refuse_to_go_on_without_a_node() -> None:
    with scripted([1, 2]) as (cluster, storage):
        cluster.master.answers[FailedVote] = refusing(ErrorCode.INCOMPLETE_TRANSACTION)
        cluster.storages[1].answers[AskStoreObject] = lambda m: cluster.storages[1].peer.close()
        t = begin(storage)
        storage.store(OID, None, b"one", "", t)
        with pytest.raises(TransactionLostError, match="INCOMPLETE_TRANSACTION") as raised:
            storage.tpc_vote(t)
        assert isinstance(raised.value, TransientError)
        storage.tpc_abort(t)
        assert cluster.master.wait_for(AbortTransaction) == AbortTransaction(TTID, [1, 2])
        assert cluster.storages[2].wait_for(AbortTransaction) == AbortTransaction(TTID, [])


def test_an_object_that_only_a_lost_node_had_locked_fails_the_vote() -> None:
    with scripted([1], [2]) as (cluster, storage):
        cluster.storages[2].answers[AskStoreObject] = lambda m: cluster.storages[2].peer.close()
        t = begin(storage)
        storage.store(OTHER, None, b"two", "", t)
        storage.store(OID, None, b"one", "", t)
        with pytest.raises(TransactionLostError):
            storage.tpc_vote(t)
        storage.tpc_abort(t)


def test_nobody_waits_for_a_node_that_was_lost_between_two_stores() -> None:
    """It stays out of the transaction, however long one waits."""
    with scripted([1]) as (_, storage):
        t = begin(storage)
        storage.store(OID, None, b"one", "", t)
        storage._commit(t).settle()
        storage._session.storage(1).close("lost")
        with pytest.raises(UnavailableError, match="failed during the transaction"):
            storage.store(OTHER, None, b"two", "", t)
        storage.tpc_abort(t)


@pytest.mark.parametrize("replica_lost", [False, True])
def test_stores_without_locks_count_only_beside_a_node_that_locked(replica_lost: bool) -> None:
    with scripted([1, 2]) as (cluster, storage):
        cluster.master.answers[FailedVote] = lambda m: Error(ErrorCode.ACK.value, "")
        cluster.storages[1].answers[AskStoreObject] = lambda m: AnswerStoreObject(ZERO_TID)
        t = begin(storage)
        storage.store(OID, None, b"one", "", t)
        storage._commits[id(t)].settle()
        if replica_lost:
            cluster.storages[2].peer.close()
            with pytest.raises(TransactionLostError, match="has locked"):
                storage.tpc_vote(t)
            storage.tpc_abort(t)
        else:
            storage.tpc_vote(t)
            storage.tpc_finish(t)


def last_words(cluster: Scripted, nid: int) -> Callable[[Message], None]:
    """To be an answer: as a storage node that cannot write."""

    def fail(m: Message) -> None:
        peer = cluster.storages[nid].peer
        peer.answer(None, Error(ErrorCode.NOT_READY.value, "the database failed: disk full"))
        peer.close()

    return fail


@pytest.mark.parametrize("request_type", [AskStoreObject, AskStoreTransaction])
def test_the_error_says_what_the_storage_node_said_when_it_left(request_type: type) -> None:
    with scripted([1]) as (cluster, storage):
        cluster.storages[1].answers[request_type] = last_words(cluster, 1)
        t = begin(storage)
        storage.store(OID, None, b"one", "", t)
        words = r"S1 127.0.0.1:\d+: the peer says: the database failed: disk full"
        with pytest.raises(TransactionLostError, match=words):
            storage.tpc_vote(t)
        storage.tpc_abort(t)


def test_the_error_says_which_node_the_cluster_cannot_serve_without() -> None:
    with scripted([1], [2], wait_timeout=0.2) as (cluster, storage):
        t = begin(storage)
        storage.store(OTHER, None, b"two", "", t)
        storage._commit(t).settle()
        cluster.master._identify = refuse_late
        cluster.tell(NotifyNodeInformation(time.time(), cluster.rows(down=[1])), StopOperation())
        master = storage._session._master
        assert master is not None
        wait_until(lambda: master.lost is not None)
        stopped = "the cluster stopped serving; S1 is not running"
        with pytest.raises(TransactionLostError, match=f"during the transaction: {stopped}$"):
            storage.tpc_vote(t)
        storage.tpc_abort(t)
        with pytest.raises(UnavailableError, match=f"NOT_READY: Retry Later, since {stopped}$"):
            storage.sync()


def refuse_late(peer: Peer, received: Received) -> None:
    """As a master whose cluster is not RUNNING."""
    peer.answer(received.message_id, Error(ErrorCode.NOT_READY.value, "Retry Later"))
    peer.close()


def test_a_partition_without_writable_cell_is_a_transient_error() -> None:
    with scripted([1], [], wait_timeout=0.2) as (_, storage):
        t = begin(storage)
        with pytest.raises(UnavailableError, match="writable cell"):
            storage.store(OID, None, b"one", "", t)
        storage.tpc_abort(t)


def test_a_transaction_dies_with_the_connection_to_the_master() -> None:
    with scripted([1]) as (cluster, storage):
        t = begin(storage)
        storage.store(OID, None, b"one", "", t)
        cluster.master.peer.close()
        storage.sync()
        with pytest.raises(TransactionLostError):
            storage.tpc_vote(t)
        storage.tpc_abort(t)


def test_a_transaction_that_stored_nothing_yet_begins_again() -> None:
    with scripted([1]) as (cluster, storage):
        cluster.master.answers[AskBeginTransaction] = lambda m: cluster.master.peer.close()
        t = begin(storage)
        cluster.master.wait_for(AskBeginTransaction)
        cluster.master.answers[AskBeginTransaction] = cluster._begin
        storage.store(OID, None, b"one", "", t)
        storage.tpc_vote(t)
        storage.tpc_finish(t)


@pytest.mark.parametrize("known_by", ["master", "storage", "nobody"])
def test_the_outcome_is_asked_for_when_the_master_is_lost_in_tpc_finish(known_by: str) -> None:
    with scripted([1]) as (cluster, storage):
        tid = p64(3000)

        def lose(m: Message) -> None:
            if known_by != "nobody":
                cluster.last_tid = tid
            cluster.master.peer.close()

        cluster.master.answers[AskFinishTransaction] = lose
        final = {"master": tid, "storage": MAX_TID, "nobody": None}[known_by]
        cluster.master.answers[AskFinalTID] = lambda m: AnswerFinalTID(final)
        cluster.storages[1].answers[AskFinalTID] = lambda m: AnswerFinalTID(tid)
        t = begin(storage)
        storage.store(OID, None, b"one", "", t)
        storage.tpc_vote(t)
        called: list[bytes] = []
        if known_by == "nobody":
            with pytest.raises(TransactionLostError):
                storage.tpc_finish(t, called.append)
        else:
            assert storage.tpc_finish(t, called.append) == tid
            assert called == [tid]
            assert storage.lastTransaction() == tid


@pytest.mark.parametrize("who", ["master", "storage", "nobody"])
def test_an_outcome_that_nobody_tells_is_not_to_be_tried_again(who: str) -> None:
    """A transient error would be repeated by frameworks: twice is as bad as not at all."""
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
        t = begin(storage)
        storage.store(OID, None, b"one", "", t)
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
            # In one packet: the answer, and the next transaction of somebody else.
            answer = cluster._finish(m)
            peer = cluster.master.peer
            peer.connection.answer(len(peer.received) - 1, answer)
            peer.connection.send(InvalidateObjects(p64(9000), [OID]))
            peer.flush()

        class DB:
            transform_record_data = untransform_record_data = staticmethod(lambda data: data)

            def invalidate(self, tid: bytes, oids: list[bytes]) -> None:
                order.append((tid, storage._invalidations.last_tid))

            def invalidateCache(self) -> None:
                order.append("all")

        storage.registerDB(DB())
        cluster.master.answers[AskFinishTransaction] = finish
        t = begin(storage)
        storage.store(OID, None, b"one", "", t)
        storage.tpc_vote(t)
        tid = storage.tpc_finish(t, lambda tid: order.append((tid, "ours")))
        storage.sync()
        assert order == [(tid, "ours"), (p64(9000), tid)]
        assert storage.loadBefore(OID, p64(9000)) == (b"one", tid, p64(9000))


def test_an_abort_before_the_answer_to_the_first_request() -> None:
    with scripted([1]) as (cluster, storage):
        t = begin(storage)
        storage.tpc_abort(t)
        assert cluster.master.wait_for(AbortTransaction) == AbortTransaction(TTID, [])


# -- undo ----------------------------------------------------------------------------------------


def undo_script(cluster: Scripted, serials: dict[bytes, Any], packed: bool = False) -> None:
    answers = cluster.storages[1].answers
    answers[AskTransactionInformation] = lambda m: AnswerTransactionInformation(
        m.tid, b"", b"", b"", packed, sorted(serials)
    )
    answers[AskObjectUndoSerial] = lambda m: AnswerObjectUndoSerial(
        {oid: serials[oid] for oid in m.oid_list}
    )
    answers[AskObject] = lambda m: AnswerObject(
        m.oid, m.at, None, 0, sha1(b"at" + m.at).digest(), b"at" + m.at, None
    )


def test_undo_makes_earlier_data_current_or_removes_a_creation() -> None:
    with scripted([1]) as (cluster, storage):
        undo_script(cluster, {OID: (p64(50), p64(40), True), OTHER: (p64(50), None, True)})
        t = begin(storage)
        assert storage.undo(p64(50), t) == (TTID, [OID, OTHER])
        assert cluster.storages[1].asked(AskObjectUndoSerial) == [
            AskObjectUndoSerial(TTID, p64(101), p64(50), [OID, OTHER])
        ]
        storage.tpc_vote(t)
        assert cluster.storages[1].asked(AskStoreObject) == [
            AskStoreObject(OID, p64(50), 0, ZERO_HASH, b"", p64(40), TTID),
            AskStoreObject(OTHER, p64(50), 0, ZERO_HASH, b"", None, TTID),
        ]
        storage.tpc_abort(t)


def test_undo_of_what_was_changed_later_is_merged() -> None:
    with scripted([1]) as (cluster, storage):
        undo_script(cluster, {OID: (p64(60), p64(40), False)})
        merging = Merging(storage)
        t = begin(storage)
        storage.undo(p64(50), t)
        storage.tpc_vote(t)
        old, current = b"at" + p64(40), b"at" + p64(60)
        assert merging.calls == [(OID, p64(60), p64(50), old, current)]
        assert stored(cluster, 1) == [(OID, p64(60), old + b"+\x3c")]
        storage.tpc_abort(t)


@pytest.mark.parametrize(
    ("serials", "packed"),
    [({OID: (p64(60), p64(40), False)}, False), ({OID: (p64(60), None, False)}, False), ({}, True)],
)
def test_what_cannot_be_undone_is_an_undo_error(serials: dict[bytes, Any], packed: bool) -> None:
    with scripted([1]) as (cluster, storage):
        undo_script(cluster, serials, packed)
        t = begin(storage)
        with pytest.raises(UndoError):
            storage.undo(p64(50), t)
        storage.tpc_abort(t)
