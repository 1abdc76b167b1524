"""``getSize()`` and ``len()``: sizes of storage nodes, each partition counted once, kept for some
seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from neo.client import NEOStorage
from neo.client.maintenance import size
from neo.client.maintenance.size import Totals, total
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import FEATURE_OURS, AnswerSize, AskSize, Ping
from tests.support.patience import PATIENCE_SECONDS
from tests.unit.client.committing import dialed
from tests.unit.client.scripted import Scripted, scripted

MEGA = 1_000_000


@contextmanager
def sized(
    *cells: Sequence[int],
    answers: dict[int, Any],
    features: Sequence[str] = (FEATURE_OURS,),
    connected: bool = True,
) -> Iterator[tuple[Scripted, NEOStorage]]:
    """Yield a client that is connected to these nodes, which give these answers."""
    with scripted(*cells) as (cluster, storage):
        for nid, answer in answers.items():
            cluster.storage_features[nid] = list(features)
            cluster.storages[nid].answers[AskSize] = answer
            if connected:
                dialed(storage, nid)
        yield cluster, storage


def says(*numbers: int) -> Any:
    return lambda m: AnswerSize(*numbers)


@pytest.mark.parametrize(
    ("readable", "answers", "found"),
    [
        ([[1], [2]], {1: (5 * MEGA, 1, 10, 1), 2: (7 * MEGA, 1, 20, 1)}, (12 * MEGA, 30)),
        # With a replica both nodes have each partition, which counts once.
        ([[1, 2], [1, 2]], {1: (8 * MEGA, 2, 10, 2), 2: (8 * MEGA, 2, 10, 2)}, (8 * MEGA, 10)),
        # A cell that is being filled has its share of the database, and is not readable.
        ([[1], [1]], {1: (9 * MEGA, 3, 10, 2)}, (6 * MEGA, 10)),
        # The second node did not answer: its partition counts as the mean of the others.
        ([[1], [2], [1]], {1: (8 * MEGA, 2, 20, 2)}, (12 * MEGA, 30)),
        ([[1], []], {1: (4 * MEGA, 1, 10, 1)}, (8 * MEGA, 20)),
        ([[1]], {1: (4 * MEGA, 0, 0, 0)}, (4 * MEGA, 0)),
    ],
    ids=["two nodes", "replicas", "filling", "one away", "unreadable", "new"],
)
def test_each_partition_is_counted_once(
    readable: list[list[int]],
    answers: dict[int, tuple[int, int, int, int]],
    found: tuple[int, int],
) -> None:
    """Specification 16.29."""
    assert total(readable, {nid: AnswerSize(*answer) for nid, answer in answers.items()}) == found


def test_without_an_answer_nothing_is_known() -> None:
    assert total([[1], [2]], {}) is None
    assert total([[1]], {3: AnswerSize(1, 1, 1, 1)}) is None


def test_the_nodes_are_asked_and_the_answer_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {1: says(5 * MEGA, 1, 10, 1), 2: says(7 * MEGA, 1, 20, 1)}
    with sized([1], [2], answers=answers) as (cluster, storage):
        assert (storage.getSize(), len(storage), bool(storage)) == (12 * MEGA, 30, True)
        assert all(len(node.asked(AskSize)) == 1 for node in cluster.storages.values())
        cluster.storages[1].answers[AskSize] = says(6 * MEGA, 1, 11, 1)
        assert len(storage) == 30
        monkeypatch.setattr(storage._size, "_good_until", 0.0)
        assert (len(storage), storage.getSize()) == (31, 13 * MEGA)


def test_nodes_without_the_feature_are_not_asked() -> None:
    """Specification 16.29, 21.4."""
    answers = {1: says(5 * MEGA, 1, 10, 1)}
    with sized([1], answers=answers, features=["unheard of"]) as (cluster, storage):
        assert (storage.getSize(), len(storage)) == (0, 0)
        assert not cluster.storages[1].asked(AskSize)


def test_a_node_that_is_not_connected_yet_is_connected_to() -> None:
    with sized([1], answers={1: says(5 * MEGA, 1, 10, 1)}, connected=False) as (_, storage):
        assert (storage.getSize(), len(storage)) == (5 * MEGA, 10)


def test_what_is_known_stays_when_nodes_refuse_or_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(m: AskSize) -> AnswerSize:
        raise ErrorAnswer(ErrorCode.NOT_READY, "not now")

    with sized([1], answers={1: says(5 * MEGA, 1, 10, 1)}) as (cluster, storage):
        assert len(storage) == 10
        cluster.storages[1].answers[AskSize] = refuse
        losses: list[Callable[[], object]] = [lambda: None, cluster.close, storage.close]
        for lose in losses:
            lose()
            monkeypatch.setattr(storage._size, "_good_until", 0.0)
            assert storage._size.totals() == Totals(5 * MEGA, 10)


@pytest.mark.parametrize("silent", [Ping, AskSize])
def test_a_node_that_does_not_answer_is_waited_for_a_moment(
    silent: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(size, "MOMENT_SECONDS", 0.2)
    answers = {1: says(5 * MEGA, 1, 10, 1), 2: says(5 * MEGA, 1, 10, 1)}
    with sized([1], [2], answers=answers) as (cluster, storage):
        cluster.storages[1].answers[silent] = lambda m: None
        began = time.monotonic()
        assert storage.getSize() == 10 * MEGA  # the two partitions count alike
        assert time.monotonic() - began < PATIENCE_SECONDS  # the client's own timeout
        # The connection stays open.
        assert dialed(storage, 1).lost is None
