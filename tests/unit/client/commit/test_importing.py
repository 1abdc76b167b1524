"""Copies of transactions, several in flight (specification 16.43 to 16.46)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import StorageError

from neo.client import NEOStorage
from neo.client.settings import UNANSWERED_MIN_BYTES
from neo.protocol.enums import ErrorCode
from neo.protocol.ids import ZERO_TID, p64
from neo.protocol.packets import (
    FEATURE_BLOBS,
    AbortTransaction,
    AnswerFinalTID,
    AnswerStoreBlob,
    AnswerTransactionFinished,
    AskBeginTransaction,
    AskFinalTID,
    AskFinishTransaction,
    AskObject,
    AskStoreBlob,
    AskStoreObject,
    AskStoreTransaction,
    Message,
)
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.unit.client.committing import refusing, stored
from tests.unit.client.scripted import Scripted, scripted

TIDS = [p64(3000 + n) for n in range(8)]


class Transaction(TransactionMetaData):
    """A transaction of a source. ``records``: (oid, data, tid of the data or None)."""

    status = " "

    def __init__(self, tid: bytes, *records: tuple[bytes, bytes, bytes | None]) -> None:
        super().__init__()
        self.tid = tid
        self._records = records

    def __iter__(self) -> Iterator[Any]:
        for oid, data, origin in self._records:
            yield SimpleNamespace(oid=oid, tid=self.tid, data=data, data_txn=origin)


def source(*transactions: Transaction) -> Any:
    return SimpleNamespace(iterator=lambda: iter(transactions))


def different(count: int) -> list[Transaction]:
    """Return transactions of different objects."""
    return [Transaction(TIDS[n], (p64(n + 1), b"%d" % n, None)) for n in range(count)]


def finished(m: AskFinishTransaction) -> Message:
    return AnswerTransactionFinished(m.ttid, m.ttid)  # the ttid is the imposed tid


@contextmanager
def cluster_of(*cells: list[int]) -> Iterator[tuple[Scripted, NEOStorage]]:
    with scripted(*cells) as (cluster, storage):
        cluster.master.answers[AskFinishTransaction] = finished
        yield cluster, storage


def committed(cluster: Scripted) -> list[bytes]:
    """Return the transactions that the master was asked to finish, in order."""
    return [m.ttid for m in cluster.master.asked(AskFinishTransaction)]


@contextmanager
def copying(storage: NEOStorage, transactions: list[Transaction]) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=storage.copyTransactionsFrom, args=[source(*transactions)])
    thread.start()
    try:
        yield thread
    finally:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


def test_while_one_is_finished_the_next_are_voted_stored_and_begun() -> None:
    """Specification 16.43. None is finished before the one before it is committed."""
    with cluster_of([1]) as (cluster, storage):
        master, node = cluster.master, cluster.storages[1]
        master.answers[AskFinishTransaction] = lambda m: None
        with copying(storage, different(6)):
            for n in range(3):
                master.wait_for(AskFinishTransaction, count=n + 1)
                master.wait_for(AskBeginTransaction, count=n + 4)
                node.wait_for(AskStoreTransaction, count=n + 2)
                node.wait_for(AskStoreObject, count=n + 3)
                assert len(stored(cluster, 1)) == n + 3
                assert committed(cluster) == TIDS[: n + 1]
                if n == 2:
                    master.answers[AskFinishTransaction] = finished
                master.answer_last(
                    AskFinishTransaction, AnswerTransactionFinished(TIDS[n], TIDS[n])
                )
        assert committed(cluster) == TIDS[:6]
        assert storage.lastTransaction() == TIDS[5]


def test_an_object_that_changes_again_is_based_on_the_transaction_in_flight() -> None:
    """Specification 16.44: no store is refused and sent again."""
    with cluster_of([1]) as (cluster, storage):
        oid = p64(1)
        storage.copyTransactionsFrom(
            source(*[Transaction(tid, (oid, b"data", None)) for tid in TIDS[:4]])
        )
        bases = [base for _, base, _ in stored(cluster, 1)]
        # The votes of a transaction are asked when the next one has begun.
        assert bases == [ZERO_TID, *TIDS[:3]]


def test_a_failure_commits_all_before_it_and_nothing_after_it() -> None:
    """Specification 16.45."""
    with cluster_of([1]) as (cluster, storage):
        node = cluster.storages[1]
        voted = node.answers[AskStoreTransaction]
        votes = iter([voted, voted, refusing(ErrorCode.DENIED)])
        node.answers[AskStoreTransaction] = lambda m: next(votes)(m)
        with pytest.raises(StorageError):
            storage.copyTransactionsFrom(source(*different(6)))
        assert committed(cluster) == TIDS[:2]
        assert storage.lastTransaction() == TIDS[1]
        cluster.master.wait_for(AbortTransaction, count=3)
        assert {m.ttid for m in cluster.master.asked(AbortTransaction)} == set(TIDS[2:5])
        node.answers[AskStoreTransaction] = voted
        storage.copyTransactionsFrom(source(*different(6)[2:]))
        assert committed(cluster) == TIDS[:6]


def test_the_outcome_of_the_transaction_before_a_failure_is_known() -> None:
    """Specification 16.45: the master is lost while it finishes one; it is committed nevertheless."""
    with cluster_of([1]) as (cluster, storage):
        master = cluster.master
        master.answers[AskFinishTransaction] = lambda m: None
        master.answers[AskFinalTID] = lambda m: AnswerFinalTID(
            m.ttid if m.ttid == TIDS[0] else None
        )
        failures: list[Exception] = []

        def copy() -> None:
            try:
                storage.copyTransactionsFrom(source(*different(4)))
            except StorageError as e:
                failures.append(e)

        thread = threading.Thread(target=copy)
        thread.start()
        master.wait_for(AskFinishTransaction)
        cluster.last_tid = TIDS[0]
        master.server.peers[-1].close()
        thread.join(PATIENCE_SECONDS)
        assert len(failures) == 1 and "master" in str(failures[0])
        assert master.asked(AskFinalTID)
        wait_until(lambda: storage.lastTransaction() == TIDS[0], "the transaction is not applied")


@pytest.mark.parametrize("how", ["large", "origin"])
def test_what_needs_earlier_transactions_waits_until_they_are_committed(how: str) -> None:
    """Specification 16.46: data that is not sent without waiting for answers, which may wait for a lock
    of an earlier transaction; data that an earlier one has."""
    with cluster_of([1]) as (cluster, storage):
        before: list[int] = []
        cluster.storages[1].answers[AskObject] = refusing(ErrorCode.OID_NOT_FOUND)
        large = bytes(storage._session.settings.unanswered_max + 1)
        assert len(large) > UNANSWERED_MIN_BYTES
        data, origin = (large, None) if how == "large" else (b"x", TIDS[1])
        answer = cluster.storages[1].answers[AskStoreObject]

        def store(m: AskStoreObject) -> Message | None:
            if m.ttid == TIDS[3]:
                before.append(len(committed(cluster)))
            return answer(m)

        cluster.storages[1].answers[AskStoreObject] = store
        last = Transaction(TIDS[3], (p64(9), data, origin))
        storage.copyTransactionsFrom(source(*different(3), last))
        assert before == [3]
        assert committed(cluster) == TIDS[:4]


@pytest.mark.parametrize("oid", [p64(7), p64(8)])
def test_the_object_of_a_blob_is_stored_again_when_its_transaction_is_committed(
    oid: bytes, tmp_path: Path
) -> None:
    """Specification 16.46: a node stores the record of a blob when it has the content, and so after a
    request that came later. Other objects need not wait."""
    with cluster_of([1]) as (cluster, storage):
        node, before = cluster.storages[1], list[tuple[bytes, int]]()
        cluster.storage_features[1] = [FEATURE_BLOBS]
        node.answers[AskStoreBlob] = lambda m: AnswerStoreBlob(m.ttid, m.oid)
        answer = node.answers[AskStoreObject]

        def store(m: AskStoreObject) -> Message | None:
            before.append((m.oid, len(committed(cluster))))
            if len(before) == 2:
                came.set()
            return answer(m)

        def finish(m: AskFinishTransaction) -> Message | None:
            # The first transaction does not end before the other object is stored.
            in_time.append(oid == p64(7) or came.wait(PATIENCE_SECONDS))
            return finished(m)

        in_time: list[bool] = []
        came, finished = threading.Event(), cluster.master.answers[AskFinishTransaction]
        node.answers[AskStoreObject] = store
        cluster.master.answers[AskFinishTransaction] = finish
        (tmp_path / "content").write_bytes(b"content")
        copy = storage.importing()
        try:
            blob, again = Transaction(TIDS[0]), Transaction(TIDS[1])
            copy.tpc_begin(blob, TIDS[0])
            content = str(tmp_path / "content")
            copy.restoreBlob(p64(7), TIDS[0], b"data", content, None, blob)
            copy.tpc_finish(blob)
            copy.tpc_begin(again, TIDS[1])
            copy.restore(oid, TIDS[1], b"again", "", None, again)
            copy.tpc_finish(again)
            copy.flush()
        except BaseException as e:
            copy.abort(e)
            raise
        assert [each for each, _ in before] == [p64(7), oid] and all(in_time)
        assert before[1] == (p64(7), 1) or oid == p64(8)
        assert committed(cluster) == TIDS[:2]
