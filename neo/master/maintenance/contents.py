"""What the storage nodes tell about their contents of blobs, for operators (specification 26.23)."""

from __future__ import annotations

from collections.abc import Callable

from neo.master.cluster import Cluster
from neo.node.core import Core
from neo.node.task import Future, first
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.packets import (
    FEATURE_BLOBS,
    AnswerContentState,
    AskContentState,
    ContentRow,
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
        asked: dict[int, Future[AnswerContentState]] = {
            peer.node.nid: peer.ask(AskContentState())
            for peer in self._cluster.storages()
            if peer.node is not None
            and peer.node.nid is not None
            and FEATURE_BLOBS in peer.node.features
        }
        limit = self._core.sleep(ANSWER_SECONDS)
        rows: list[ContentRow] = []
        for nid, future in sorted(asked.items()):
            await first(future, limit)
            if not future.done:
                continue
            try:
                state = future.result()
            except (ConnectionLost, ErrorAnswer):
                continue  # the node is away, or stops
            rows.append((nid, state.count, state.size, state.free, state.lost, state.left))
        answer(rows)
