"""Undo by a client, and the list of transactions that can be undone."""

from __future__ import annotations

from hashlib import sha1
from typing import Any

import pytest
from ZODB.POSException import UndoError

from neo.protocol.enums import ErrorCode
from neo.protocol.ids import ZERO_HASH, p64
from neo.protocol.packets import (
    AnswerObject,
    AnswerObjectUndoSerial,
    AnswerTIDs,
    AnswerTransactionInformation,
    AskObject,
    AskObjectUndoSerial,
    AskStoreObject,
    AskTIDs,
    AskTransactionInformation,
)
from tests.unit.client.committing import OID, OTHER, TTID, Merging, begin, stored
from tests.unit.client.reading import refuse
from tests.unit.client.scripted import Scripted, scripted


def undo_script(
    cluster: Scripted, serials: dict[bytes, Any], packed: bool = False, node: int = 1
) -> None:
    answers = cluster.storages[node].answers
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
    """Specification 7.11, 16.18, 16.19."""
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


def test_undo_of_what_was_changed_later_is_merged() -> None:
    """Specification 16.19."""
    with scripted([1]) as (cluster, storage):
        undo_script(cluster, {OID: (p64(60), p64(40), False)})
        merging = Merging(storage)
        t = begin(storage)
        storage.undo(p64(50), t)
        storage.tpc_vote(t)
        old, current = b"at" + p64(40), b"at" + p64(60)
        assert merging.calls == [(OID, p64(60), p64(50), old, current)]
        assert stored(cluster, 1) == [(OID, p64(60), old + b"+\x3c")]


@pytest.mark.parametrize(
    ("serials", "packed"),
    [({OID: (p64(60), p64(40), False)}, False), ({OID: (p64(60), None, False)}, False), ({}, True)],
)
def test_what_cannot_be_undone_is_an_undo_error(serials: dict[bytes, Any], packed: bool) -> None:
    """Specification 16.18, 16.19."""
    with scripted([1]) as (cluster, storage):
        undo_script(cluster, serials, packed)
        t = begin(storage)
        with pytest.raises(UndoError):
            storage.undo(p64(50), t)


def test_an_undo_whose_data_is_packed_away_meanwhile_is_an_undo_error() -> None:
    """The pack begins after the storage node named the revision to go back to."""
    with scripted([1]) as (cluster, storage):
        undo_script(cluster, {OID: (p64(50), p64(40), True)})
        cluster.storages[1].answers[AskStoreObject] = refuse(ErrorCode.OID_NOT_FOUND)
        t = begin(storage)
        storage.undo(p64(50), t)
        with pytest.raises(UndoError, match="packed away") as raised:
            storage.tpc_vote(t)
        assert raised.value._oid == OID


def test_the_list_ends_at_the_first_packed_transaction() -> None:
    """Specification 16.20."""
    with scripted([1]) as (cluster, storage):
        answers = cluster.storages[1].answers
        answers[AskTIDs] = lambda m: AnswerTIDs([p64(60), p64(50), p64(40), p64(30)])
        answers[AskTransactionInformation] = lambda m: AnswerTransactionInformation(
            m.tid, b"", b"", b"", m.tid == p64(40), []
        )
        assert [entry["id"] for entry in storage.undoLog(0, 10)] == [p64(60), p64(50)]


def test_an_undo_asks_each_partition_about_its_objects() -> None:
    """Specification 16.18."""
    with scripted([1], [2]) as (cluster, storage):
        for nid in cluster.storages:
            undo_script(cluster, dict.fromkeys((OID, OTHER), (p64(50), None, True)), node=nid)
        storage.undo(p64(50), begin(storage))
        for nid, oid in ((1, OTHER), (2, OID)):
            assert cluster.storages[nid].asked(AskObjectUndoSerial) == [
                AskObjectUndoSerial(TTID, p64(101), p64(50), [oid])
            ]
