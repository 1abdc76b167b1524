"""A commit from begin to finish, without interference (specification 7)."""

from __future__ import annotations

import threading
from hashlib import sha1
from typing import Any

import pytest
from transaction.interfaces import TransientError
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import ReadOnlyError, StorageTransactionError

from neo.client.errors import NEOStorageError, TransactionLostError
from neo.protocol.enums import CellState, ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_TID, p64
from neo.protocol.packets import (
    AbortTransaction,
    AnswerBeginTransaction,
    AnswerStoreObject,
    AskBeginTransaction,
    AskCheckCurrentSerial,
    AskFinishTransaction,
    AskStoreObject,
    AskStoreTransaction,
    AskVoteTransaction,
    FailedVote,
    Message,
    RequestIdentification,
)
from tests.support.patience import PATIENCE_SECONDS
from tests.unit.client.committing import OID, OTHER, TTID, begin, finish, refusing, stored, storing
from tests.unit.client.scripted import scripted


def test_a_transaction_is_sent_as_specified() -> None:
    """Specification 7.11, 7.19, 7.25."""
    with scripted([1], [2], [3]) as (cluster, storage):
        t = storing(storage, OID, b"one", p64(7), user="u", description="d", extension=b"e")
        storage.checkCurrentSerialInTransaction(OTHER, p64(8), t)
        assert storage.tpc_vote(t) is None
        tids: list[bytes] = []
        tid = storage.tpc_finish(t, tids.append)
        assert tids == [tid] == [storage.lastTransaction()]
        checksum = sha1(b"one").digest()
        # 1001 % 3 == 2: node 3 has the metadata, and none of the objects.
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
        storage.sync()  # after the identification
        nodes = cluster.master, cluster.storages[1]
        before = [len(node.log) for node in nodes]
        t = storing(storage, OID, b"one", p64(7))
        finish(storage, t)
        sent = [
            [type(m) for m in node.log[start:] if not isinstance(m, RequestIdentification)]
            for node, start in zip(nodes, before, strict=True)
        ]
        assert sent == [
            [AskBeginTransaction, AskFinishTransaction],
            [AskStoreObject, AskStoreTransaction],
        ]


def test_data_is_stored_on_every_writable_cell_and_kept_in_the_cache() -> None:
    """Specification 7.8, 16.11."""
    with scripted([1, 2]) as (cluster, storage):
        t = storing(storage)
        tid = finish(storage, t)
        assert stored(cluster, 1) == stored(cluster, 2) == [(OID, ZERO_TID, b"one")]
        assert storage.load(OID) == (b"one", tid)


def test_compression_is_used_when_it_gains() -> None:
    """Specification 15.16."""
    with scripted([1]) as (cluster, storage):
        t = begin(storage)
        storage.store(OID, None, bytes(1000), "", t)
        storage.store(OTHER, None, b"short", "", t)
        storage.tpc_vote(t)
        first, second = cluster.storages[1].asked(AskStoreObject)
        assert (first.compression, second.compression) == (1, 0)
        assert first.checksum == sha1(first.data).digest() and len(first.data) < 100


def test_tpc_begin_does_not_wait_for_the_master() -> None:
    """Specification 7.1."""
    with scripted([1]) as (cluster, storage):
        cluster.master.answers[AskBeginTransaction] = lambda m: None
        t = begin(storage)
        cluster.master.wait_for(AskBeginTransaction)
        storage.close()
        with pytest.raises(NEOStorageError):
            storage.store(OID, None, b"", "", t)


def test_metadata_goes_to_who_keeps_it_when_the_master_has_answered() -> None:
    """While the client waits in the vote, the partition of the ttid gets another copy
    (specification 7.19)."""
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
    """Specification 7.10."""
    with scripted([1], cache_size=0, compress=0) as (cluster, storage):
        waiting: list[Any] = []
        cluster.storages[1].answers[AskStoreObject] = lambda m: waiting.append(m)
        t = begin(storage)
        data = bytes(1 << 20)

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
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


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


def test_a_new_object_has_its_oid_from_the_master_that_ends_the_transaction() -> None:
    """Another master may have given the same oid to another application (specification 16.23)."""
    with scripted([1]) as (cluster, storage):
        oid = storage.new_oid()
        t = storing(storage, oid, b"of the same master")
        storage.tpc_abort(t)
        cluster.master.peer.close()
        storage.sync()
        t = begin(storage)
        with pytest.raises(TransactionLostError, match=oid.hex()):
            storage.store(oid, None, b"of the one before", "", t)
        storage.tpc_abort(t)
        t = storing(storage, p64(0), b"an oid that nobody gave")
        storage.store(oid, TTID, b"no new object", "", t)
        storage.store(storage.new_oid(), None, b"of this master", "", t)
        with pytest.raises(TransactionLostError, match=oid.hex()):
            storage.store(oid, None, b"of the one before", "", t)


def test_transactions_of_one_storage_may_overlap() -> None:
    with scripted([1]) as (cluster, storage):
        first, second = begin(storage), begin(storage)
        storage.store(OID, None, b"1", "", first)
        storage.store(OTHER, None, b"2", "", second)
        for t in (second, first):
            finish(storage, t)
        finished = cluster.master.asked(AskFinishTransaction)
        assert [m.stored_list for m in finished] == [[OTHER], [OID]]


def test_a_read_only_cluster_refuses_with_the_error_of_zodb() -> None:
    """Specification 16.25."""
    with scripted([1]) as (cluster, storage):
        cluster.master.answers[AskBeginTransaction] = refusing(ErrorCode.READ_ONLY_ACCESS)
        t = begin(storage)
        with pytest.raises(ReadOnlyError):
            storage.store(OID, None, b"", "", t)


def test_an_object_that_a_storage_node_refuses_fails_the_vote_and_nothing_else() -> None:
    text = "the object has 5 bytes; the database keeps at most 4 in one record"

    def refuse(m: AskStoreObject) -> Message:
        if len(m.data) > 4:
            raise ErrorAnswer(ErrorCode.DENIED, text)
        return AnswerStoreObject(None)

    with scripted([1, 2]) as (cluster, storage):
        for node in cluster.storages.values():
            node.answers[AskStoreObject] = refuse
        t = storing(storage, OTHER, b"four")
        storage.store(OID, None, b"large", "", t)
        with pytest.raises(NEOStorageError) as raised:
            storage.tpc_vote(t)
        assert str(raised.value).endswith(f", object {OID.hex()}: DENIED: {text}")
        assert not isinstance(raised.value, TransientError)
        storage.tpc_abort(t)
        for node in cluster.storages.values():
            node.wait_for(AbortTransaction)
            assert not node.asked(AskStoreTransaction, AskVoteTransaction)
        t = storing(storage, OID, b"four")
        finish(storage, t)
        assert not cluster.master.asked(FailedVote)
