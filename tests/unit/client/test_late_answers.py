"""Answers to stores that come late: the client still has what it needs for them."""

from __future__ import annotations

from typing import Any

from neo.protocol.ids import p64
from neo.protocol.packets import AnswerStoreObject, AskStoreObject
from tests.unit.client.committing import OID, Merging, begin, stored
from tests.unit.client.scripted import scripted


def test_a_conflict_that_the_last_node_finds_is_resolved_with_the_data_of_the_store() -> None:
    """The other node has answered long before (specification 16.14, 16.16)."""
    with scripted([1, 2], cache_size=0) as (cluster, storage):
        merging = Merging(storage)
        held: list[Any] = []
        cluster.storages[2].answers[AskStoreObject] = lambda m: held.append(m)
        t = begin(storage)
        storage.store(OID, p64(7), b"one", "", t)
        cluster.storages[2].wait_for(AskStoreObject)
        storage.sync()
        cluster.storages[2].answers[AskStoreObject] = lambda m: AnswerStoreObject(None)
        cluster.storages[2].answer_last(AskStoreObject, AnswerStoreObject(p64(9)))
        assert storage.tpc_vote(t) == [OID]
        assert [call[:4] for call in merging.calls] == [(OID, p64(9), p64(7), b"one")]
        again = [(OID, p64(7), b"one"), (OID, p64(9), b"one+\x09")]
        assert stored(cluster, 1) == stored(cluster, 2) == again
        storage.tpc_abort(t)
