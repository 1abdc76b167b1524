"""Packs with garbage collection, against a scripted cluster."""

from __future__ import annotations

from hashlib import sha1

import pytest

import neo.client.pack
from neo.protocol.ids import ZERO_OID, p64, time_from_tid
from neo.protocol.packets import (
    AnswerObject,
    AnswerPack,
    AnswerStoreTransaction,
    AnswerTIDsFrom,
    AnswerTransactionInformation,
    AskFinishTransaction,
    AskObject,
    AskPack,
    AskStoreObject,
    AskStoreTransaction,
    AskTIDsFrom,
    AskTransactionInformation,
    InvalidateObjects,
    Message,
)
from tests.unit.client.scripted import scripted
from tests.unit.client.test_session import DB

GARBAGE = p64(1)
CREATED = p64(1 << 40)


def answer_object(m: AskObject) -> Message:
    checksum = sha1(b"data").digest()
    return AnswerObject(m.oid, CREATED, None, 0, checksum, b"data", None)


def answer_tids(m: AskTIDsFrom) -> Message:
    return AnswerTIDsFrom([CREATED] if m.min_tid <= CREATED <= m.max_tid else [])


def answer_information(m: AskTransactionInformation) -> Message:
    return AnswerTransactionInformation(m.tid, b"", b"", b"", False, [ZERO_OID, GARBAGE])


def test_connections_of_the_client_that_packs_hear_of_the_objects_that_it_deletes() -> None:
    """The master tells the other clients."""
    with scripted([1], cache_size=0) as (cluster, storage):
        cluster.storages[1].answers |= {
            AskObject: answer_object,
            AskTIDsFrom: answer_tids,
            AskTransactionInformation: answer_information,
        }
        cluster.master.answers[AskPack] = lambda m: AnswerPack(True)
        cluster.next_tid = 1 << 41
        cluster.last_tid = CREATED
        cluster.master.peer.close()
        storage.sync()  # joins again, and learns of the last transaction
        db = DB()
        storage.registerDB(db)
        storage.pack(time_from_tid(CREATED) + 1, lambda data: [])
        deleted = cluster.storages[1].asked(AskStoreObject)
        assert [m.oid for m in deleted] == [GARBAGE]
        assert db.calls == [(cluster.last_tid, GARBAGE)]


def test_garbage_is_kept_when_the_head_that_it_hangs_on_comes_back_into_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A chain of two objects, whose end is deleted first. Its head comes back into use meanwhile."""
    end, head, taken_back = GARBAGE, p64(2), p64(1 << 41)
    oids = {CREATED: [ZERO_OID, end, head], taken_back: [ZERO_OID]}
    data = {(ZERO_OID, taken_back): b"root", (head, CREATED): b"head"}
    references = {b"root": [head], b"head": [end]}
    committed = [CREATED]

    def record(m: AskObject) -> Message:
        serials = [tid for tid in committed if m.oid in oids[tid]]
        serial = m.at or max(tid for tid in serials if m.before is None or tid < m.before)
        found = data.get((m.oid, serial), b"data")
        return AnswerObject(m.oid, serial, None, 0, sha1(found).digest(), found, None)

    def vote(m: AskStoreTransaction) -> Message:
        if taken_back not in committed:
            committed.append(taken_back)
            cluster.tell(InvalidateObjects(taken_back, [ZERO_OID]))
        return AnswerStoreTransaction()

    monkeypatch.setattr(neo.client.pack, "DELETED_TOGETHER", 1)
    with scripted([1], cache_size=0) as (cluster, storage):
        cluster.storages[1].answers |= {
            AskObject: record,
            AskTIDsFrom: lambda m: AnswerTIDsFrom(
                [tid for tid in committed if m.min_tid <= tid <= m.max_tid]
            ),
            AskTransactionInformation: lambda m: AnswerTransactionInformation(
                m.tid, b"", b"", b"", False, oids[m.tid]
            ),
            AskStoreTransaction: vote,
        }
        cluster.master.answers[AskPack] = lambda m: AnswerPack(True)
        cluster.next_tid = 1 << 42
        cluster.last_tid = CREATED
        cluster.master.peer.close()
        storage.sync()  # joins again, and learns of the last transaction
        storage.pack(time_from_tid(CREATED) + 1, lambda record: references.get(record, []))
        assert [m.oid for m in cluster.storages[1].asked(AskStoreObject)] == [end]
        assert not cluster.master.asked(AskFinishTransaction)
