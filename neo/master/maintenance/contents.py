"""What the storage nodes tell about their contents of blobs, for operators (specification 26.23)."""

from __future__ import annotations

from collections.abc import Callable

from neo.master.cluster import Cluster
from neo.node.core import Core
from neo.node.task import Future, first
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.packets import (
    FEATURE_BLOBS,
    FEATURE_LOST_CONTENTS,
    A,
    AskContentState,
    AskLostContents,
    ContentRow,
    LostContentRow,
    Request,
)

#: Timeout for the answer of a storage node, which is left out then, because an operator waits.
ANSWER_SECONDS = 3.0


class ContentReport:
    def __init__(self, cluster: Cluster, core: Core) -> None:
        self._cluster = cluster
        self._core = core

    def describe(self, answer: Callable[[list[ContentRow]], None]) -> None:
        """Call back with a row for each storage node that keeps contents, and answers."""
        self._core.spawn(self._describe(answer))

    async def _describe(self, answer: Callable[[list[ContentRow]], None]) -> None:
        rows: list[ContentRow] = []
        for nid, state in await self._ask(AskContentState(), FEATURE_BLOBS):
            rows.append((nid, state.count, state.size, state.free, state.lost, state.left))
        answer(rows)

    def lost(self, length: int, answer: Callable[[list[LostContentRow]], None]) -> None:
        """Call back with at most ``length`` revisions of each node that lost their contents."""
        self._core.spawn(self._lost(length, answer))

    async def _lost(self, length: int, answer: Callable[[list[LostContentRow]], None]) -> None:
        found = await self._ask(AskLostContents(length), FEATURE_LOST_CONTENTS)
        answer([row for _, lost in found for row in lost.row_list])

    async def _ask(self, question: Request[A], feature: str) -> list[tuple[int, A]]:
        """Return the answers of the storage nodes that keep contents, know the question, and answer."""
        asked: dict[int, Future[A]] = {
            peer.node.nid: peer.ask(question)
            for peer in self._cluster.storages()
            if peer.node is not None
            and peer.node.nid is not None
            and peer.node.features >= {FEATURE_BLOBS, feature}
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
