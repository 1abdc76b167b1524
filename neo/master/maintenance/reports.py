"""What the storage nodes tell for operators: their contents of blobs (specification 26.23), and what is
wrong with them (specification 17.32). A node that does not answer is waited for once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

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
    Condition,
    Request,
)

A = TypeVar("A", bound=Answer)

#: Timeout for the answer of a storage node, which is left out then, because an operator waits.
ANSWER_SECONDS = 3.0
#: A node that is silent for longer is a problem: until then it may be a slow disk.
SILENT_SECONDS = 10.0
SILENT_ADVICE = (
    "look at its process and its disk; if it is lost, stop the process or the machine: its copies serve"
)


class _Silence(NamedTuple):
    """``answer``: to the question that a node has not answered in time. ``since``: when it was asked, by
    the monotonic clock."""

    answer: Future[Any]
    since: float


class Reports:
    def __init__(self, cluster: Cluster, core: Core) -> None:
        self._cluster = cluster
        self._core = core
        #: Nodes that are not waited for again, until they have answered or are lost.
        self._silences: dict[int, _Silence] = {}

    async def contents(self) -> AnswerContents:
        """Return a row for each storage node that keeps contents, and answers."""
        answers = await self._ask(AskContentState(), FEATURE_BLOBS)
        return AnswerContents(
            [(nid, a.count, a.size, a.free, a.lost, a.left) for nid, a in answers]
        )

    async def conditions(self) -> AnswerNodeConditions:
        """Return what is wrong with each storage node: what it says, or that it does not answer."""
        answers = await self._ask(AskConditions(), FEATURE_OURS)
        said = [(nid, each) for nid, a in answers for each in a.condition_list]
        return AnswerNodeConditions([*said, *self._silent_conditions()])

    def _silent_conditions(self) -> Iterator[tuple[int, Condition]]:
        now = self._core.host.monotonic()
        for nid, silence in sorted(self._silences.items()):
            if not silence.answer.done:
                seconds = now - silence.since
                severity = "problem" if seconds >= SILENT_SECONDS else "warning"
                text = f"has not answered for {seconds:.0f} s; what touches its copies may wait for it"
                yield nid, ("silent", severity, text, SILENT_ADVICE)

    async def disks(self) -> AnswerNodeDisks:
        """Return the disks of each storage node that answers."""
        answers = await self._ask(AskDisks(), FEATURE_OURS)
        return AnswerNodeDisks([(nid, a.version, a.size, a.disk_list) for nid, a in answers])

    async def lost(self, length: int) -> AnswerLostContents:
        """Return at most ``length`` revisions of each node that lost their contents."""
        answers = await self._ask(AskLostContents(length), FEATURE_BLOBS)
        return AnswerLostContents([row for _, a in answers for row in a.row_list])

    async def _ask(self, question: Request[A], feature: str) -> list[tuple[int, A]]:
        """Return the answers of the storage nodes that announced a feature. Those that are silent are not
        asked: they have a question, and would make each operator wait anew."""
        self._silences = {nid: each for nid, each in self._silences.items() if not each.answer.done}
        began = self._core.host.monotonic()
        asked: dict[int, Future[A]] = {
            peer.node.nid: peer.ask(question)
            for peer in self._cluster.storages()
            if peer.node is not None
            and peer.node.nid is not None
            and feature in peer.node.features
            and peer.node.nid not in self._silences
        }
        limit = self._core.sleep(ANSWER_SECONDS)
        answers: list[tuple[int, A]] = []
        for nid, future in sorted(asked.items()):
            await first(future, limit)
            if not future.done:
                self._silences.setdefault(nid, _Silence(future, began))
                continue
            try:
                answers.append((nid, future.result()))
            except (ConnectionLost, ErrorAnswer):
                continue  # the node is away, or stops
        return answers
