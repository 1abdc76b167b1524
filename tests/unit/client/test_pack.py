"""Packs with garbage collection, against a scripted cluster."""

from __future__ import annotations

from hashlib import sha1

from neo.protocol.ids import ZERO_OID, p64, time_from_tid
from neo.protocol.packets import (
    AnswerObject,
    AnswerPack,
    AnswerTIDsFrom,
    AnswerTransactionInformation,
    AskObject,
    AskPack,
    AskStoreObject,
    AskTIDsFrom,
    AskTransactionInformation,
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
