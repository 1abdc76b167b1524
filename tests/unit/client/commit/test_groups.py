"""Copies whose transactions are voted and finished in groups (specification 7.68, 16.43 to 16.45)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from ZODB.Connection import TransactionMetaData
from ZODB.POSException import POSError

from neo.client import NEOStorage
from neo.client.commit.importing import GROUP, GROUP_BYTES, Import
from neo.protocol.enums import ErrorCode
from neo.protocol.ids import p64
from neo.protocol.packets import (
    FEATURE_CHAINS,
    FEATURE_OURS,
    AbortTransaction,
    AnswerTransactionFinished,
    AnswerVoteSingle,
    AskFinishTransaction,
    AskStoreObject,
    AskVoteSingle,
    NotifyChain,
)
from tests.unit.client.committing import refusing
from tests.unit.client.scripted import Scripted, scripted

COUNT = 2 * GROUP + 4
TIDS = [p64(3000 + n) for n in range(COUNT)]


@contextmanager
def cluster_of(*cells: list[int]) -> Iterator[tuple[Scripted, NEOStorage]]:
    """Yield a cluster of our nodes, which commit whatever they are asked for."""
    with scripted(*cells) as (cluster, storage):
        cluster.master.answers[AskFinishTransaction] = _finished
        for nid, node in cluster.storages.items():
            cluster.storage_features[nid] = [FEATURE_OURS]
            node.answers[AskVoteSingle] = lambda m: AnswerVoteSingle(True)
            storage._session.storages.features(nid)
        yield cluster, storage


def _finished(m: AskFinishTransaction) -> AnswerTransactionFinished:
    return AnswerTransactionFinished(m.ttid, m.ttid)


def copied(copy: Import, numbers: range, size: int = 1, oid: bytes | None = None) -> None:
    """Copy transactions of an object each, which is the same one if ``oid`` is given."""
    for n in numbers:
        transaction: Any = TransactionMetaData()
        copy.tpc_begin(transaction, TIDS[n])
        copy.restore(oid or p64(n + 1), TIDS[n], bytes(size), "", None, transaction)
        copy.tpc_vote(transaction)
        copy.tpc_finish(transaction)


def committed(cluster: Scripted) -> list[bytes]:
    return [m.ttid for m in cluster.master.asked(AskFinishTransaction)]


def chains(cluster: Scripted) -> list[list[bytes]]:
    return [m.ttid_list for m in cluster.master.asked(NotifyChain)]


def test_after_the_first_they_are_finished_sixteen_at_a_time() -> None:
    with cluster_of([1]) as (cluster, storage):
        copy = storage.importing()
        copied(copy, range(COUNT))
        copy.flush()
        assert committed(cluster) == TIDS and copy.finished == TIDS[-1]
        # The second one ended before the vote of the first.
        first, rest = chains(cluster)[0], chains(cluster)[1:]
        assert len(first) == GROUP and [t for each in (first, *rest) for t in each] == TIDS[2:]
        kinds = [type(m) for m in cluster.master.asked(NotifyChain, AskFinishTransaction)]
        assert kinds[2 : 3 + GROUP] == [NotifyChain, *[AskFinishTransaction] * GROUP]


def test_no_object_is_changed_twice_in_a_group() -> None:
    """Its second store waits for the lock of the first transaction, and its vote for the store."""
    with cluster_of([1]) as (cluster, storage):
        copy = storage.importing()
        copied(copy, range(COUNT), oid=p64(7))
        copy.flush()
        assert committed(cluster) == TIDS and chains(cluster) == []
        stores = cluster.storages[1].asked(AskStoreObject)
        assert [m.serial for m in stores[1:]] == TIDS[:-1], "each is based on the one before"


def test_a_group_is_bounded_by_its_data() -> None:
    with cluster_of([1]) as (cluster, storage):
        copy = storage.importing()
        copied(copy, range(COUNT), size=GROUP_BYTES // 2)
        copy.flush()
        assert committed(cluster) == TIDS
        assert {len(each) for each in chains(cluster)} == {2}


@pytest.mark.parametrize("lacks", ["the feature", "one node for all"])
def test_otherwise_they_are_finished_one_by_one(lacks: str) -> None:
    cells = [[1], [2]] if lacks == "one node for all" else [[1]]
    with cluster_of(*cells) as (cluster, storage):
        joined = storage._session.master.joined()
        if lacks == "the feature":
            joined.handler.features -= {FEATURE_CHAINS}
        copy = storage.importing()
        copied(copy, range(COUNT))
        copy.flush()
        assert committed(cluster) == TIDS and chains(cluster) == []


def test_what_follows_a_refused_one_is_not_committed_and_all_before_it_is() -> None:
    """Specification 16.45. The master refuses those that follow, too."""
    with cluster_of([1]) as (cluster, storage):
        failed = 5

        def finish(m: AskFinishTransaction) -> Any:
            if TIDS.index(m.ttid) >= failed:
                return refusing(ErrorCode.INCOMPLETE_TRANSACTION)(m)
            return _finished(m)

        cluster.master.answers[AskFinishTransaction] = finish
        copy = storage.importing()
        with pytest.raises(POSError, match="INCOMPLETE_TRANSACTION") as raised:
            copied(copy, range(COUNT))
            copy.flush()
        copy.abort(raised.value)
        assert copy.finished == TIDS[failed - 1] == storage.lastTransaction()
        assert not getattr(raised.value, "__notes__", [])
        assert not storage._transactions, "nothing is left"
        assert not storage._session.transactions.begun
        last = TransactionMetaData()
        storage.tpc_begin(last)
        storage.tpc_abort(last)


def test_those_that_voted_before_one_that_failed_are_committed() -> None:
    with cluster_of([1]) as (cluster, storage):
        node, failed = cluster.storages[1], 9

        def vote(m: AskVoteSingle) -> Any:
            refused = m.ttid == TIDS[failed]
            return refusing(ErrorCode.DENIED)(m) if refused else AnswerVoteSingle(True)

        node.answers[AskVoteSingle] = vote
        copy = storage.importing()
        with pytest.raises(POSError) as raised:
            copied(copy, range(COUNT))
            copy.flush()
        copy.abort(raised.value)
        assert committed(cluster) == TIDS[:failed] and copy.finished == TIDS[failed - 1]
        cluster.master.wait_for(AbortTransaction)
        assert TIDS[failed] in {m.ttid for m in cluster.master.asked(AbortTransaction)}


def test_an_error_of_the_source_leaves_all_before_it() -> None:
    with cluster_of([1]) as (cluster, storage):
        copy = storage.importing()
        copied(copy, range(GROUP + 5))
        copy.tpc_begin(TransactionMetaData(), TIDS[GROUP + 5])
        copy.abort(ValueError("the record cannot be read"))
        assert committed(cluster) == TIDS[: GROUP + 5]
        assert copy.finished == TIDS[GROUP + 4] and not storage._transactions


def test_an_interruption_waits_for_nothing() -> None:
    with cluster_of([1]) as (cluster, storage):
        copy = storage.importing()
        copied(copy, range(GROUP + 5))
        before = len(committed(cluster))
        copy.abort(KeyboardInterrupt())
        assert len(committed(cluster)) == before < GROUP + 5
        assert not storage._transactions
