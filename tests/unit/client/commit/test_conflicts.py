"""Conflicts and deadlocks (specification 8.7 to 8.9, 16.14, 8.14 to 8.23)."""

from __future__ import annotations

import threading
from hashlib import sha1
from typing import Any

import pytest
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import ConflictError, ReadConflictError

from neo.client import NEOStorage
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import MAX_TID, ZERO_HASH, ZERO_TID, p64
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    AnswerCheckCurrentSerial,
    AnswerObject,
    AnswerRebaseObject,
    AnswerRebaseTransaction,
    AnswerStoreObject,
    AskCheckCurrentSerial,
    AskObject,
    AskRebaseObject,
    AskRebaseTransaction,
    AskStoreObject,
    NotifyConflictData,
    NotifyDeadlock,
    NotifyFeatures,
    RequestIdentification,
)
from tests.support.patience import PATIENCE_SECONDS
from tests.unit.client.committing import OID, OTHER, TTID, Merging, begin, finish, stored, storing
from tests.unit.client.reading import refuse
from tests.unit.client.scripted import scripted


def restoring(
    storage: NEOStorage, tid: bytes, data: bytes = b"data", data_txn: bytes | None = None
) -> TransactionMetaData:
    """Begin a transaction that is copied with its tid, and restore an object in it."""
    transaction = TransactionMetaData()
    storage.tpc_begin(transaction, tid)
    storage.restore(OID, tid, data, "", data_txn, transaction)
    return transaction


def conflict_once(serial: bytes | None) -> Any:
    """Answer the first store with ``answer``, later ones with success."""
    answers = [AnswerStoreObject(serial)]
    return lambda m: answers.pop() if answers else AnswerStoreObject(None)


# -- conflicts -----------------------------------------------------------------------------------


def test_a_conflict_is_resolved_and_stored_again_on_all_cells() -> None:
    """Specification 16.14, 16.17."""
    with scripted([1, 2]) as (cluster, storage):
        merging = Merging(storage)
        for node in cluster.storages.values():
            node.answers[AskStoreObject] = conflict_once(p64(9))
        t = storing(storage, OID, b"one", p64(7))
        assert storage.tpc_vote(t) == [OID]
        assert [call[:4] for call in merging.calls] == [(OID, p64(9), p64(7), b"one")]
        again = [(OID, p64(7), b"one"), (OID, p64(9), b"one+\x09")]
        assert stored(cluster, 1) == stored(cluster, 2) == again
        tid = storage.tpc_finish(t)
        assert storage.load(OID) == (b"one+\x09", tid)


@pytest.mark.parametrize("what", ["sent", "damaged", "another revision"])
def test_a_revision_that_comes_with_a_conflict_is_not_loaded(what: str) -> None:
    """Specification 8.31."""
    with scripted([1]) as (cluster, storage):
        merging, node = Merging(storage), cluster.storages[1]
        checksum = sha1(b"theirs" if what != "damaged" else b"other").digest()
        serial = p64(8) if what == "another revision" else p64(9)
        conflict = conflict_once(p64(9))

        def answer(m: AskStoreObject) -> Any:
            if m.serial == p64(7):
                node.peer.send(NotifyConflictData(TTID, OID, serial, 0, checksum, b"theirs"))
            return conflict(m)

        node.answers[AskStoreObject] = answer
        finish(storage, storing(storage, OID, b"one", p64(7)))
        sent = b"theirs" if what == "sent" else b""
        assert merging.calls == [(OID, p64(9), p64(7), b"one", sent)]
        (identified,) = node.asked(RequestIdentification)
        assert FEATURE_OURS in identified.extra[FEATURES]


def test_a_conflict_that_cannot_be_resolved_is_raised() -> None:
    with scripted([1]) as (cluster, storage):
        cluster.storages[1].answers[AskStoreObject] = lambda m: AnswerStoreObject(p64(9))
        t = begin(storage)
        with pytest.raises(ConflictError) as raised:
            storage.store(OID, p64(7), b"not a pickle", "", t)
            storage.tpc_vote(t)
        assert (raised.value.oid, raised.value.serials) == (OID, (p64(9), p64(7)))


def test_a_conflict_that_cannot_be_resolved_is_raised_when_the_other_transaction_can_be_read() -> None:
    """Specification 8.34: it may only be locked when the node tells of it."""
    with scripted([1]) as (cluster, storage):
        node = cluster.storages[1]

        def conflict(m: AskStoreObject) -> Any:
            node.peer.send(NotifyFeatures([FEATURE_OURS]))
            return AnswerStoreObject(p64(9))

        node.answers[AskStoreObject] = conflict
        node.answers[AskObject] = refuse(ErrorCode.OID_NOT_FOUND)
        t = begin(storage)
        with pytest.raises(ConflictError):
            storage.deleteObject(OID, p64(7), t)
            storage.tpc_vote(t)
        assert [m.at for m in node.asked(AskObject) if m.at == p64(9)]


@pytest.mark.parametrize(
    ("asked", "serial", "error"),
    [
        pytest.param("check", p64(9), ReadConflictError, id="a check"),
        pytest.param("deletion", p64(9), ConflictError, id="a deletion"),
        pytest.param("check", MAX_TID, ReadConflictError, id="a check of what is gone"),
        pytest.param("store", MAX_TID, ConflictError, id="a store where the object is gone"),
    ],
)
def test_what_cannot_be_merged_is_a_conflict(
    asked: str, serial: bytes, error: type[ConflictError]
) -> None:
    """Specification 16.15."""
    with scripted([1]) as (cluster, storage):
        merging = Merging(storage)
        node = cluster.storages[1]
        node.answers[AskCheckCurrentSerial] = lambda m: AnswerCheckCurrentSerial(serial)
        node.answers[AskStoreObject] = lambda m: AnswerStoreObject(serial)
        t = begin(storage)
        gone = serial == MAX_TID
        with pytest.raises(error, match="gone" if gone else None) as raised:
            if asked == "check":
                storage.checkCurrentSerialInTransaction(OID, p64(7), t)
            elif asked == "deletion":
                storage.deleteObject(OID, p64(7), t)
            else:
                storage.store(OID, p64(7), b"one", "", t)
            storage.tpc_vote(t)
        assert raised.value.oid == OID and not merging.calls
        assert gone or raised.value.serials == (p64(9), p64(7))


def test_what_is_restored_where_the_object_is_gone_is_a_creation() -> None:
    """Specification 16.21."""
    with scripted([1]) as (cluster, storage):
        committed = []
        for tid, locked in (p64(5), None), (p64(6), MAX_TID):
            cluster.storages[1].answers[AskStoreObject] = conflict_once(locked)
            t = restoring(storage, tid)
            storage.tpc_vote(t)
            committed.append(storage.tpc_finish(t))
        assert [base for _, base, _ in stored(cluster, 1)] == [ZERO_TID, committed[0], ZERO_TID]


def current(serial: bytes, base: bytes) -> Any:
    """A node with the object at ``serial``, or without it, that takes a few stores based on
    ``base``."""
    left = [1, 2, 3, 4]

    def answer(m: AskStoreObject) -> AnswerStoreObject:
        if not left:
            raise ErrorAnswer(ErrorCode.PROTOCOL_ERROR, "again and again")
        left.pop()
        return AnswerStoreObject(None if m.serial == base else serial)

    return answer


def test_what_is_restored_follows_what_is_current_at_each_node() -> None:
    """Replicas are packed at different moments, and so an object may exist on only some of them."""
    with scripted([1, 2]) as (cluster, storage):
        at = {1: ZERO_TID, 2: p64(9)}
        cluster.storages[1].answers[AskStoreObject] = current(MAX_TID, at[1])
        cluster.storages[2].answers[AskStoreObject] = current(p64(9), at[2])
        for tid in p64(11), p64(12):
            t = restoring(storage, tid)
            storage.tpc_vote(t)
            if tid == p64(11):
                last = storage.tpc_finish(t)
        assert stored(cluster, 1) == [(OID, base, b"data") for base in (at[1], last, at[1])]
        assert stored(cluster, 2) == [(OID, base, b"data") for base in (at[1], at[2], last, at[2])]


def test_a_deletion_is_a_store_of_nothing() -> None:
    """Specification 7.11."""
    with scripted([1]) as (cluster, storage):
        t = begin(storage)
        storage.deleteObject(OID, p64(7), t)
        storage.tpc_vote(t)
        (message,) = cluster.storages[1].asked(AskStoreObject)
        assert message == AskStoreObject(OID, p64(7), 0, ZERO_HASH, b"", None, TTID)


def test_restored_objects_follow_whatever_is_current() -> None:
    """Specification 16.21."""
    with scripted([1]) as (cluster, storage):
        cluster.storages[1].answers[AskStoreObject] = conflict_once(p64(9))
        t = restoring(storage, p64(5))
        storage.restore(OTHER, p64(5), None, "", None, t)
        finish(storage, t)
        assert stored(cluster, 1) == [
            (OID, ZERO_TID, b"data"), (OTHER, ZERO_TID, b""), (OID, p64(9), b"data")
        ]  # fmt: skip
        # The base of the next one is guessed correctly.
        t = restoring(storage, p64(6), b"more")
        storage.tpc_vote(t)
        assert stored(cluster, 1)[3:] == [(OID, storage.lastTransaction(), b"more")]


@pytest.mark.parametrize("same", [True, False])
def test_a_restored_undo_refers_to_the_data_if_it_is_the_same(same: bool) -> None:
    """Specification 16.21."""
    with scripted([1]) as (cluster, storage):
        known = b"data" if same else b"other"
        cluster.storages[1].answers[AskObject] = lambda m: AnswerObject(
            m.oid, p64(4), None, 0, sha1(known).digest(), known, p64(3)
        )
        t = restoring(storage, p64(5), b"data", p64(4))
        storage.tpc_vote(t)
        (message,) = cluster.storages[1].asked(AskStoreObject)
        expected = (b"", p64(3)) if same else (b"data", None)
        assert (message.data, message.data_serial) == expected


# -- deadlocks -----------------------------------------------------------------------------------


def test_a_deadlock_is_solved_by_rebasing_on_every_node() -> None:
    """Specification 8.16, 8.21."""
    with scripted([1], [2]) as (cluster, storage):
        # Node 2 grants oid 1; node 1 delays oid 2.
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
        t = storing(storage, OID, b"one", p64(7))
        storage.store(OTHER, p64(8), b"two", "", t)
        waiting.wait_for(AskStoreObject)
        voting = threading.Thread(target=storage.tpc_vote, args=[t])
        voting.start()
        cluster.tell(NotifyDeadlock(TTID, p64(1500)))
        for node in (granted, waiting):
            assert node.wait_for(AskRebaseTransaction) == AskRebaseTransaction(TTID, p64(1500))
        waiting.answer_last(AskStoreObject, AnswerStoreObject(None))
        voting.join(PATIENCE_SECONDS)
        assert not voting.is_alive()
        assert granted.asked(AskRebaseObject) == [AskRebaseObject(TTID, OID)]
        assert stored(cluster, 2)[1][:2] == (OID, p64(9))
        assert [call[:3] for call in merging.calls] == [(OID, p64(9), p64(7))]
        # An older or repeated locking tid changes nothing.
        cluster.tell(NotifyDeadlock(TTID, p64(1400)), NotifyDeadlock(TTID, p64(1500)))
        storage.tpc_finish(t)
        assert len(granted.asked(AskRebaseTransaction)) == 1


def test_what_is_restored_is_rebased_upon_what_is_current_at_that_node() -> None:
    with scripted([1, 2]) as (cluster, storage):
        first, second = cluster.storages[1], cluster.storages[2]
        first.answers[AskRebaseTransaction] = lambda m: AnswerRebaseTransaction([OID])
        second.answers[AskRebaseTransaction] = lambda m: AnswerRebaseTransaction([])
        stored_there = 0, sha1(b"data").digest(), b"data"
        first.answers[AskRebaseObject] = lambda m: AnswerRebaseObject(
            (ZERO_TID, p64(9), stored_there)
        )
        t = restoring(storage, TTID)
        second.wait_for(AskStoreObject)
        cluster.tell(NotifyDeadlock(TTID, p64(1500)))
        first.wait_for(AskRebaseTransaction)
        storage.tpc_vote(t)
        assert stored(cluster, 1) == [(OID, ZERO_TID, b"data"), (OID, p64(9), b"data")]
        assert stored(cluster, 2) == [(OID, ZERO_TID, b"data")]


def test_a_node_that_comes_in_after_a_deadlock_is_rebased_before_its_first_store() -> None:
    """Specification 8.16."""
    with scripted([1], [2]) as (cluster, storage):
        for node in cluster.storages.values():
            node.answers[AskRebaseTransaction] = lambda m: AnswerRebaseTransaction([])
        t = storing(storage, OID, b"one", p64(7))
        cluster.tell(NotifyDeadlock(TTID, p64(1500)))
        cluster.storages[2].wait_for(AskRebaseTransaction)
        storage.store(OTHER, p64(7), b"two", "", t)
        storage.tpc_vote(t)
        log = cluster.storages[1].asked(AskRebaseTransaction, AskStoreObject)
        assert [type(m) for m in log] == [AskRebaseTransaction, AskStoreObject]
