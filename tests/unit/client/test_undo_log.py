"""The list of transactions that can be undone, and the partitions that an undo asks."""

from __future__ import annotations

from neo.protocol.ids import p64
from neo.protocol.packets import (
    AnswerObjectUndoSerial,
    AnswerTIDs,
    AnswerTransactionInformation,
    AskObjectUndoSerial,
    AskTIDs,
    AskTransactionInformation,
)
from tests.unit.client.committing import OID, OTHER, TTID, begin
from tests.unit.client.scripted import scripted


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
        partitions = {1: OID, 2: OTHER} if OID[-1] % 2 == 0 else {1: OTHER, 2: OID}
        for node in cluster.storages.values():
            node.answers[AskTransactionInformation] = lambda m: AnswerTransactionInformation(
                m.tid, b"", b"", b"", False, [OID, OTHER]
            )
            node.answers[AskObjectUndoSerial] = lambda m: AnswerObjectUndoSerial(
                {oid: (p64(50), None, True) for oid in m.oid_list}
            )
        t = begin(storage)
        storage.undo(p64(50), t)
        for nid, oid in partitions.items():
            assert cluster.storages[nid].asked(AskObjectUndoSerial) == [
                AskObjectUndoSerial(TTID, p64(101), p64(50), [oid])
            ]
