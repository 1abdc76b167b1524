"""What the storage nodes tell for operators: their contents of blobs (specification 26.23), and what is
wrong with them (specification 17.32)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from neo.master.cluster import Cluster
from neo.node.core import Core
from neo.node.task import Future, first
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.packets import (
    FEATURE_BLOBS,
    FEATURE_CONDITIONS,
    FEATURE_LOST_CONTENTS,
    Answer,
    AskConditions,
    AskContentState,
    AskLostContents,
    Condition,
    ContentRow,
    LostContentRow,
    Request,
)

A = TypeVar("A", bound=Answer)

#: Timeout for the answer of a storage node, which is left out then, because an operator waits.
ANSWER_SECONDS = 3.0


class Reports:
    def __init__(self, cluster: Cluster, core: Core) -> None:
        self._cluster = cluster
        self._core = core

    def contents(self, answer: Callable[[list[ContentRow]], None]) -> None:
        """Call back with a row for each storage node that keeps contents, and answers."""

        async def describe() -> None:
            answers = await self._ask(AskContentState(), FEATURE_BLOBS)
            answer([(nid, a.count, a.size, a.free, a.lost, a.left) for nid, a in answers])

        self._core.spawn(describe())

    def conditions(self, answer: Callable[[list[tuple[int, Condition]]], None]) -> None:
        """Call back with what is wrong with each storage node that answers."""

        async def describe() -> None:
            answers = await self._ask(AskConditions(), FEATURE_CONDITIONS)
            answer([(nid, each) for nid, a in answers for each in a.condition_list])

        self._core.spawn(describe())

    def lost(self, length: int, answer: Callable[[list[LostContentRow]], None]) -> None:
        """Call back with at most ``length`` revisions of each node that lost their contents."""

        async def describe() -> None:
            answers = await self._ask(AskLostContents(length), FEATURE_BLOBS, FEATURE_LOST_CONTENTS)
            answer([row for _, a in answers for row in a.row_list])

        self._core.spawn(describe())

    async def _ask(self, question: Request[A], *features: str) -> list[tuple[int, A]]:
        """Return the answers of the storage nodes that announced these features."""
        asked: dict[int, Future[A]] = {
            peer.node.nid: peer.ask(question)
            for peer in self._cluster.storages()
            if peer.node is not None
            and peer.node.nid is not None
            and peer.node.features.issuperset(features)
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
