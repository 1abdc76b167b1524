"""Transactions with one storage node, which vote behind their stores (specification 7.51)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from typing import Any

import pytest
from ZODB.POSException import ConflictError

from neo.client import NEOStorage
from neo.client.errors import TransactionLostError
from neo.protocol.ids import ZERO_TID, p64
from neo.protocol.packets import (
    FEATURE_OURS,
    AnswerStoreObject,
    AnswerVoteSingle,
    AskCheckCurrentSerial,
    AskFinishTransaction,
    AskObject,
    AskStoreObject,
    AskStoreTransaction,
    AskVoteSingle,
    AskVoteTransaction,
    Message,
)
from tests.unit.client.committing import OID, OTHER, TTID, Merging, begin, finish, stored, storing
from tests.unit.client.reading import answer
from tests.unit.client.scripted import Scripted, scripted

VOTES = AskVoteSingle, AskStoreTransaction, AskVoteTransaction


@contextmanager
def alone(*cells: tuple[int, ...]) -> Iterator[tuple[Scripted, NEOStorage]]:
    """Yield a cluster whose storage nodes announce the feature, which has arrived at the client."""
    with scripted(*cells) as (cluster, storage):
        for nid, node in cluster.storages.items():
            cluster.storage_features[nid] = [FEATURE_OURS]
            node.answers[AskVoteSingle] = lambda m: AnswerVoteSingle(True)
            storage._session.storages.features(nid)
        yield cluster, storage


def answers(*first: Message, then: Message) -> Callable[[Any], Message]:
    """Give these answers, one after the other."""
    following = chain(first, repeat(then))
    return lambda m: next(following)


def votes(cluster: Scripted, nid: int = 1) -> list[type]:
    return [type(m) for m in cluster.storages[nid].asked(*VOTES)]


def test_the_vote_is_sent_before_the_stores_are_answered() -> None:
    with alone((1,)) as (cluster, storage):
        node = cluster.storages[1]
        held: list[Any] = []
        node.answers[AskStoreObject] = lambda m: held.append(m)

        def vote(m: AskVoteSingle) -> Message:
            # The answers to both follow the vote.
            node.answer_last(AskStoreObject, AnswerStoreObject(None))
            return AnswerVoteSingle(True)

        node.answers[AskVoteSingle] = vote
        t = storing(storage, user="u", description="d", extension=b"e")
        storage.checkCurrentSerialInTransaction(OTHER, p64(8), t)
        finish(storage, t)
        assert node.asked(AskCheckCurrentSerial, *VOTES)[1:] == [
            AskVoteSingle(TTID, b"u", b"d", b"e", [OID], [OTHER], False)
        ]
        assert cluster.master.asked(AskFinishTransaction) == [
            AskFinishTransaction(TTID, [OID], [OTHER])
        ]


def test_a_refused_vote_is_repeated_when_conflicts_are_resolved() -> None:
    with alone((1,)) as (cluster, storage):
        merging, node = Merging(storage), cluster.storages[1]
        node.answers[AskStoreObject] = answers(
            AnswerStoreObject(p64(12)), then=AnswerStoreObject(None)
        )
        node.answers[AskVoteSingle] = answers(AnswerVoteSingle(False), then=AnswerVoteSingle(True))
        finish(storage, storing(storage, base=p64(7)))
        assert stored(cluster, 1) == [
            (OID, p64(7), b"one"),
            (OID, p64(12), b"one+" + p64(12)[-1:]),
        ]
        assert len(merging.calls) == 1
        assert votes(cluster) == [AskVoteSingle, AskVoteSingle]


def test_the_vote_is_repeated_behind_the_store_that_resolves_the_conflict() -> None:
    """Others wait for the object meanwhile (specification 7.60)."""
    with alone((1,)) as (cluster, storage):
        merging, node = Merging(storage), cluster.storages[1]
        stores: list[Any] = []

        def store(m: AskStoreObject) -> Message | None:
            stores.append(m)
            return AnswerStoreObject(p64(12)) if len(stores) == 1 else None  # the second one waits

        def vote(m: AskVoteSingle) -> Message:
            if len(stores) == 1:
                return AnswerVoteSingle(False)
            # The answer to the store follows the vote.
            node.answer_last(AskStoreObject, AnswerStoreObject(None))
            return AnswerVoteSingle(True)

        node.answers[AskStoreObject], node.answers[AskVoteSingle] = store, vote
        finish(storage, storing(storage, base=p64(7)))
        assert len(merging.calls) == 1
        assert votes(cluster) == [AskVoteSingle, AskVoteSingle]
        assert len(cluster.master.asked(AskFinishTransaction)) == 1


def test_a_node_that_refuses_twice_is_asked_as_ever() -> None:
    with alone((1,)) as (cluster, storage):
        cluster.storages[1].answers[AskVoteSingle] = lambda m: AnswerVoteSingle(False)
        finish(storage, storing(storage))
        assert votes(cluster) == [AskVoteSingle, AskVoteSingle, AskStoreTransaction]


def test_a_store_without_a_lock_is_voted_as_ever() -> None:
    with alone((1,)) as (cluster, storage):
        node = cluster.storages[1]
        node.answers[AskStoreObject] = lambda m: AnswerStoreObject(ZERO_TID)
        node.answers[AskVoteSingle] = lambda m: AnswerVoteSingle(False)
        t = storing(storage)
        with pytest.raises(TransactionLostError):
            storage.tpc_vote(t)
        assert votes(cluster) == [AskVoteSingle, AskStoreTransaction]


def test_a_conflict_that_cannot_be_resolved_is_raised_whatever_the_node_says_to_the_vote() -> None:
    with alone((1,)) as (cluster, storage):
        node = cluster.storages[1]
        node.answers[AskStoreObject] = lambda m: AnswerStoreObject(p64(12))
        node.answers[AskObject] = answer(b"committed", 12)
        t = storing(storage, base=p64(7))
        with pytest.raises(ConflictError):
            storage.tpc_vote(t)
        assert not cluster.master.asked(AskFinishTransaction)


@pytest.mark.parametrize(
    "cells", [((1, 2),), ((1,), (2,)), ((2,), (1,))], ids=["replicas", "object", "metadata"]
)
def test_a_second_node_has_all_votes_asked_as_ever(cells: tuple[tuple[int, ...], ...]) -> None:
    """A transaction that waits for a lock of another node must be able to give up its own (specification
    8.14, 8.23)."""
    with alone(*cells) as (cluster, storage):
        t = begin(storage)
        for oid in (p64(1), p64(2)):
            storage.store(oid, None, b"one", "", t)
        finish(storage, t)
        assert AskVoteSingle not in votes(cluster) + votes(cluster, 2)


def test_a_node_that_does_not_know_it_is_asked_as_ever() -> None:
    """Specification 21.4."""
    with scripted([1]) as (cluster, storage):
        finish(storage, storing(storage))
        assert votes(cluster) == [AskStoreTransaction]
