"""Reads that go from partition to partition while their number is changed (specification 27.98)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from neo.client.errors import ClosedError, RegroupedError
from neo.client.history.iterator import Objects
from neo.client.history.scan import Order, Range, Scanner
from neo.client.history.transactions import tids_ascending, tids_descending
from neo.protocol.enums import CellState
from neo.protocol.ids import ZERO_TID, p64, u64
from neo.protocol.packets import (
    FEATURE_OURS,
    AnswerOIDs,
    AnswerRevisions,
    AnswerTIDs,
    AnswerTIDsFrom,
    AskOIDs,
    AskRevisions,
    AskTIDs,
    AskTIDsFrom,
    Message,
    SendPartitionTable,
)
from tests.unit.client.scripted import scripted

IDS = [p64(number) for number in range(1, 60)]
LAST = p64(100)
#: Reads until each change, and the number of partitions from then on; a node and a client agree on it.
CHANGES = [
    *([(1, 3)], [(2, 4)], [(3, 3)], [(1, 3), (4, 5)]),
    *([(2, 1), (5, 2)], [(3, 3), (3, 2)], [(1, 3), (1, 2)]),
]


class Regrouping:
    """A cluster whose node changes the number while it answers."""

    def __init__(
        self, cluster: Any, storage: Any, changes: list[tuple[int, int]], anew: bool
    ) -> None:
        """``anew``: with each change, the client connects to the master anew."""
        self._cluster = cluster
        self._anew = anew
        self.storage = storage
        self._changes = list(changes)
        self._asked, self._ptid = 0, 1
        self.count = 2
        answers = cluster.storages[1].answers
        answers[AskTIDs] = self._then(self._tids)
        answers[AskTIDsFrom] = self._then(self._tids_from)
        answers[AskOIDs] = self._then(self._oids)
        answers[AskRevisions] = self._then(self._revisions)

    def _then(self, answer: Callable[[Any], Message]) -> Callable[[Any], Message]:
        def change_and_answer(message: Any) -> Message:
            self._asked += 1
            while self._changes and self._changes[0][0] <= self._asked:
                self._change(self._changes.pop(0)[1])
            return answer(message)

        return change_and_answer

    def _change(self, count: int) -> None:
        self.count = count
        self._ptid += 1
        if self._anew:
            self._cluster.cells = [[1]] * count
            self._cluster.master.peer.close()
        else:
            rows = [[(1, CellState.UP_TO_DATE)] for _ in range(count)]
            self._cluster.tell(SendPartitionTable(self._ptid, 0, rows))
        with suppress(ClosedError):  # it had asked ahead
            self.storage.replicas.barrier()

    def _of(self, partition: int) -> list[bytes]:
        return [id_ for id_ in IDS if u64(id_) % self.count == partition]

    def _tids(self, m: AskTIDs) -> Message:
        return AnswerTIDs(self._of(m.partition)[::-1][m.first : m.last])

    def _tids_from(self, m: AskTIDsFrom) -> Message:
        found = [tid for tid in self._of(m.partition) if m.min_tid <= tid <= m.max_tid]
        return AnswerTIDsFrom(found[: m.length])

    def _oids(self, m: AskOIDs) -> Message:
        return AnswerOIDs([oid for oid in self._of(m.partition) if oid >= m.min_oid][: m.length])

    def _revisions(self, m: AskRevisions) -> Message:
        row = p64(7), 0, bytes(20), 1, None, None
        return AnswerRevisions([(oid, *row) for oid in self._of(m.partition)], False)


@contextmanager
def regrouping(changes: list[tuple[int, int]], anew: bool = False) -> Iterator[Regrouping]:
    with scripted([1], [1]) as (cluster, storage):
        cluster.storage_features[1] = [FEATURE_OURS]
        yield Regrouping(cluster, storage, changes, anew)


@pytest.mark.parametrize("changes", CHANGES, ids=str)
@pytest.mark.parametrize(("page", "anew"), [(1, False), (7, False), (1000, False), (7, True)])
def test_tids_are_listed_once_and_in_order(
    changes: list[tuple[int, int]], page: int, anew: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neo.client.history.transactions.PAGE", page)
    with regrouping(changes, anew) as cluster:
        assert list(tids_ascending(cluster.storage.replicas, ZERO_TID, LAST)) == IDS
    with regrouping(changes) as cluster:
        assert list(tids_descending(cluster.storage.replicas, LAST, page)) == IDS[::-1]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
@pytest.mark.parametrize("window", [1, 7, 100])
def test_objects_are_listed_once(
    changes: list[tuple[int, int]], window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neo.client.history.iterator.WINDOW", window)
    with regrouping(changes) as cluster:
        found = list(Objects(cluster.storage.replicas).after(None))
        assert sorted(found) == IDS


def test_a_scan_of_partitions_ends_when_there_is_another_number() -> None:
    with regrouping([(2, 3)]) as cluster:
        scanner = Scanner(cluster.storage)
        what = Range(Order.SNAPSHOT, LAST, data=False)
        (page,) = scanner.revisions(0, what)
        assert [p64(revision.oid) for revision in page] == [id_ for id_ in IDS if u64(id_) % 2 == 0]
        with pytest.raises(RegroupedError, match="was changed from 2 to 3: begin again"):
            list(scanner.revisions(1, what))
        with pytest.raises(RegroupedError):
            list(scanner.transactions(0))
        again = Scanner(cluster.storage)
        assert sum(len(page) for number in range(3) for page in again.revisions(number, what)) == len(IDS)
        with pytest.raises(RegroupedError):
            list(Scanner(cluster.storage, 2).revisions(0, what))
