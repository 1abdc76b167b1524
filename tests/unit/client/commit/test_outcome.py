"""The outcome of a transaction whose master was lost in tpc_finish, when there is another number of
partitions by then (specification 27.99)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from neo.client.errors import OutcomeUnknownError, TransactionLostError
from neo.protocol.ids import MAX_TID, p64, u64
from neo.protocol.packets import (
    FEATURE_OURS,
    AnswerCommitted,
    AnswerFinalTID,
    AskCommitted,
    AskFinalTID,
    AskFinishTransaction,
    Message,
)
from tests.unit.client.committing import OID, TTID, begin
from tests.unit.client.scripted import scripted

#: Congruent to the ttid modulo 6, as masters give them if there are 6 partitions.
TID = u64(TTID) + 600
COUNT = 6


class Switching:
    """A cluster of one node with six partitions. ``committed``: whether the transaction is in it."""

    def __init__(self, cluster: Any, storage: Any, committed: bool, after: int) -> None:
        self._cluster = cluster
        self._storage = storage
        self._after = after
        self.committed = committed
        self.count = COUNT
        cluster.master.answers[AskFinalTID] = lambda m: AnswerFinalTID(MAX_TID)
        cluster.master.answers[AskFinishTransaction] = self.lose
        self.switches = False
        self.node = cluster.storages[1]
        self.node.answers[AskFinalTID] = lambda m: self._answer(u64(TTID) % self.count)
        self.node.answers[AskCommitted] = lambda m: AnswerCommitted(self._answer(m.partition).tid)

    def lose(self, m: Message) -> None:
        """Lose the master, and if :attr:`switches`, find another number afterwards."""
        if self.switches:
            self.switch()
        self._cluster.last_tid = p64(TID)
        self._cluster.master.peer.close()

    def _answer(self, partition: int) -> AnswerFinalTID:
        found = self.committed and TID % self.count == partition
        return AnswerFinalTID(p64(TID) if found else None)

    def switch(self) -> None:
        self.count = self._after
        self._cluster.cells = [[1]] * self._after

    def commit(self) -> bytes:
        t = begin(self._storage)
        self._storage.store(OID, None, b"one", "", t)
        self._storage.tpc_vote(t)
        tid: bytes = self._storage.tpc_finish(t)
        return tid


@contextmanager
def switching(committed: bool, after: int, *features: str) -> Iterator[Switching]:
    with scripted(*[[1]] * COUNT) as (cluster, storage):
        cluster.storage_features[1] = [*features]
        yield Switching(cluster, storage, committed, after)


AFTER = [1, 2, 3, 4, 5, 7, 12, 18, 35]


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("late", [True, False])
def test_all_partitions_that_the_tid_may_be_in_are_asked(
    after: int, committed: bool, late: bool
) -> None:
    """``late``: the switch comes while a storage node answers."""
    with switching(committed, after, FEATURE_OURS) as cluster:
        if late:

            def answer(m: AskFinalTID) -> Message:
                cluster.switch()
                cluster._cluster.master.peer.close()
                cluster._storage.replicas.barrier()
                return cluster._answer(u64(TTID) % cluster.count)

            cluster.node.answers[AskFinalTID] = answer
        cluster.switches = not late
        if committed:
            assert cluster.commit() == p64(TID)
        else:
            with pytest.raises(TransactionLostError):
                cluster.commit()
        asked = cluster.node.asked(AskCommitted)
        assert all(m.ttid == TTID for m in asked) and len(asked) <= after
        assert asked, "the partition of the ttid is not enough"


def test_a_node_of_an_earlier_release_cannot_tell() -> None:
    with switching(True, 12) as cluster:
        cluster.switches = True
        with pytest.raises(OutcomeUnknownError, match="are of an earlier release: upgrade them"):
            cluster.commit()
