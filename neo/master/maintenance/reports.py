"""What the storage nodes tell for operators: their contents of blobs (specification 26.23), and what is
wrong with them (specification 17.32)."""

from __future__ import annotations

from typing import TypeVar

from neo.master.cluster import Cluster
from neo.node.core import Core
from neo.node.task import Future, first
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.packets import (
    FEATURE_BLOBS,
    FEATURE_OURS,
    Answer,
    AnswerContents,
    AnswerLostContents,
    AnswerNodeConditions,
    AnswerNodeDisks,
    AskConditions,
    AskContentState,
    AskDisks,
    AskLostContents,
    Request,
)

A = TypeVar("A", bound=Answer)

#: Timeout for the answer of a storage node, which is left out then, because an operator waits.
ANSWER_SECONDS = 3.0


class Reports:
    def __init__(self, cluster: Cluster, core: Core) -> None:
        self._cluster = cluster
        self._core = core

    async def contents(self) -> AnswerContents:
        """Return a row for each storage node that keeps contents, and answers."""
        answers = await self._ask(AskContentState(), FEATURE_BLOBS)
        return AnswerContents(
            [(nid, a.count, a.size, a.free, a.lost, a.left) for nid, a in answers]
        )

    async def conditions(self) -> AnswerNodeConditions:
        """Return what is wrong with each storage node that answers."""
        answers = await self._ask(AskConditions(), FEATURE_OURS)
        return AnswerNodeConditions([(nid, each) for nid, a in answers for each in a.condition_list])

    async def disks(self) -> AnswerNodeDisks:
        """Return the disks of each storage node that answers."""
        answers = await self._ask(AskDisks(), FEATURE_OURS)
        return AnswerNodeDisks([(nid, a.version, a.size, a.disk_list) for nid, a in answers])

    async def lost(self, length: int) -> AnswerLostContents:
        """Return at most ``length`` revisions of each node that lost their contents."""
        answers = await self._ask(AskLostContents(length), FEATURE_BLOBS)
        return AnswerLostContents([row for _, a in answers for row in a.row_list])

    async def _ask(self, question: Request[A], feature: str) -> list[tuple[int, A]]:
        """Return the answers of the storage nodes that announced a feature."""
        asked: dict[int, Future[A]] = {
            peer.node.nid: peer.ask(question)
            for peer in self._cluster.storages()
            if peer.node is not None
            and peer.node.nid is not None
            and feature in peer.node.features
        }
        limit = self._core.sleep(ANSWER_SECONDS)
        answers: list[tuple[int, A]] = []
        for nid, future in sorted(asked.items()):
            await first(future, limit)
            if not future.done:
                continue
            try:
                answers.append((nid, future.result()))
            except (ConnectionLost, ErrorAnswer):
                continue  # the node is away, or stops
        return answers
