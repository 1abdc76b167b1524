"""Clusters whose storage nodes keep prepared transactions, and the steps of a coordinator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from neo.node.task import Future
from neo.protocol.enums import ClusterState
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    AnswerFinalTID,
    AnswerLastIDs,
    AnswerLockedTransactions,
    AnswerPreparedTransactions,
    AnswerPrepareInformation,
    AnswerRecovery,
    AnswerRollbackPrepared,
    AskFinalTID,
    AskFinishPrepared,
    AskLastIDs,
    AskLockedTransactions,
    AskPreparedTransactions,
    AskPrepareInformation,
    AskPrepareTransaction,
    AskRecovery,
    AskRollbackPrepared,
    PreparedMark,
    PreparedRow,
)
from neo.protocol.packets import AskPrepared as AskPreparedRows
from tests.support.remote import Remote, error_of
from tests.unit.master.cluster import MasterWorld, Rows
from tests.unit.master.committing import begin, oid_of
from tests.unit.master.uneventful import equal_tails

XID = b"order-7"
NOTHING = AnswerPreparedTransactions([], [])
Answers = Iterable[AnswerPreparedTransactions]


class PreparedWorld(MasterWorld):
    extra = {FEATURES: [FEATURE_OURS]}

    def __init__(self, count: int = 2, **settings: Any) -> None:
        super().__init__(**{"replicas": 1, **settings})
        self.storages = self.running(count)

    def verify(self, *storages: Remote, ltid: bytes | None = None) -> None:
        self.find(storages, [NOTHING] * len(storages), ltid=ltid)
        self.make_ready(*storages)

    @staticmethod
    def find(
        storages: Iterable[Remote],
        answers: Answers,
        locked: Sequence[dict[bytes, bytes | None]] = (),
        final: bytes | None = None,
        ltid: bytes | None = None,
    ) -> None:
        """Play VERIFYING: what the nodes remember of prepared transactions, and have locked, by
        ttid; ``final``: their answer to AskFinalTID."""
        storages = list(storages)
        locks = locked or [{}] * len(storages)
        for storage, answer, known in zip(storages, answers, locks, strict=True):
            voted = {ttid: None for ttid, *_ in answer.mark_list}
            question = storage.take(AskLockedTransactions)
            storage.answer(question, AnswerLockedTransactions({**voted, **known}))
        for storage, answer in zip(storages, answers, strict=True):
            if storage.has(AskPreparedTransactions):
                storage.answer(storage.take(AskPreparedTransactions), answer)
        while asked := [storage for storage in storages if storage.has(AskFinalTID)]:
            for storage in asked:
                storage.answer(storage.take(AskFinalTID), AnswerFinalTID(final))
        for storage in storages:
            storage.answer(storage.take(AskLastIDs), AnswerLastIDs(None, ltid))
        equal_tails(storages)

    def confirm(self, *storages: Remote) -> None:
        """Make the partition table durable on these nodes."""
        for storage in storages:
            while storage.has(AskRecovery):
                ptid = self.master.partitions.ptid
                storage.answer(storage.take(AskRecovery), AnswerRecovery(ptid, None, None))

    def restart(
        self, answers: Answers, rows: Rows | None = None, **found: Any
    ) -> tuple[MasterWorld, list[Remote]]:
        """Start another master with the storage nodes of this one. Return them before they are ready."""
        world = PreparedWorld.__new__(PreparedWorld)
        MasterWorld.__init__(world, replicas=1)
        ptid = self.master.partitions.ptid
        rows = rows or self.master.partitions.row_list()
        storages = [world.join_storage(nid) for nid, _ in enumerate(answers, 1)]
        for storage in storages:
            world.remember(storage, ptid, rows)
        assert world.master.cluster.state is ClusterState.VERIFYING
        world.confirm(*storages)
        world.find(storages, answers, **found)
        assert world.master.cluster.state is ClusterState.RUNNING
        return world, storages

    def rows(self, length: int = 10) -> list[PreparedRow]:
        rows: list[PreparedRow] = self.admin().ask(AskPreparedRows(length, None)).result().row_list
        return rows


def states(world: MasterWorld) -> list[tuple[bytes, str]]:
    rows = world.admin().ask(AskPreparedRows(10, None)).result().row_list
    return [(row[0], row[-1]) for row in rows]


def ask_prepare(
    client: Remote, ttid: bytes, stored: list[bytes], xid: bytes = XID, checked: Any = ()
) -> Future[Any]:
    return client.ask(AskPrepareTransaction(ttid, xid, stored, list(checked), b"bob\nbuy"))


def mark(storage: Remote) -> AskPrepareInformation:
    question = storage.take(AskPrepareInformation)
    storage.answer(question, AnswerPrepareInformation(question.ttid))
    return question


def remember(storage: Remote) -> AskRollbackPrepared:
    question = storage.take(AskRollbackPrepared)
    storage.answer(question, AnswerRollbackPrepared(question.ttid))
    return question


def prepared(world: PreparedWorld, client: Remote, xid: bytes = XID, number: int = 0) -> bytes:
    """Prepare a transaction that stores one object."""
    ttid = begin(client)
    answer = ask_prepare(client, ttid, [oid_of(world, number)], xid)
    for storage in world.storages:
        mark(storage)
    answer.result()
    return ttid


def decide(peer: Remote, commit: bool, xid: bytes = XID) -> Future[Any]:
    return peer.ask(AskFinishPrepared(xid, commit))


def refusal(future: Future[Any]) -> str:
    error = error_of(future)
    return f"{error.code.name}: {error.message}"


def mark_of(
    ttid: bytes, stored: list[bytes], partitions: list[int], xid: bytes = XID, since: float = 5.0
) -> PreparedMark:
    return ttid, xid, since, b"", partitions, stored, []
