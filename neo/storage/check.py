"""CheckPartition: compare the readable cells of a partition (specification, messages 50 to 54).

Theory of operation
-------------------
One node, which the master chose, asks all nodes with a readable cell, itself included, for digests of
the same range, and goes on behind it while all are equal. Where they differ

* and there is a reference, the others are wrong;
* else the greatest group of equal ones is right, if it is greater than any other;
* else nobody knows: all of them are reported, and the master leaves the decision to the operator.

Wrong nodes are reported and left out, and the comparison goes on with the others. Only ids are
compared: a pack may make them differ for a moment, while it has ended on one node and another has not
heard of it. So what differs is asked again before it is believed.

One partition is compared at a time, with the pace of replication.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from neo.node.task import Future, Task
from neo.protocol.enums import NodeState, NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import ZERO_OID, add64, format_nid
from neo.protocol.packets import (
    FEATURE_MAINTENANCE,
    AskCheckSerialRange,
    AskCheckTIDRange,
    CheckPartition,
    Message,
    NotifyPartitionChecked,
    NotifyPartitionCorrupted,
)
from neo.storage.backend.api import RecordDamaged
from neo.storage.digests import serial_digest, tid_digest

if TYPE_CHECKING:
    from neo.storage.core import StorageCore

logger = logging.getLogger("neo.storage")

#: Rows of a digest, as others ask for, too.
LENGTH = 40_000
#: A difference is believed when it is seen once more after each of these pauses.
CONFIRM_SECONDS = (1.0, 3.0)
#: Two nodes that compare with each other may dial, or close, at the same time: who loses a connection
#: tries again after each of these pauses.
RECONNECT_SECONDS = (0.1, 1.0)
#: In :class:`~neo.storage.links.Links`.
USER = "check"

_Answers = dict[int, Message]


class CheckFailed(Exception):
    """The comparison cannot go on; the message says why."""


class Checker:
    """What the master asked this node to compare. Bound: one request per partition."""

    def __init__(self, core: StorageCore) -> None:
        self._core = core
        self._queue: dict[int, CheckPartition] = {}
        self._working = False

    def clear(self) -> None:
        """The operation stops; the job is cancelled."""
        self._queue.clear()
        self._working = False

    def add(self, m: CheckPartition) -> None:
        """CheckPartition."""
        self._queue[m.partition] = m
        if not self._working:
            self._working = True
            self._core.run_job(self._work())

    async def _work(self) -> None:
        core = self._core
        while self._queue:
            m = self._queue.pop(next(iter(self._queue)))
            problem = ""
            try:
                comparison = Comparison(core, m)
                await comparison.run()
                problem = "; ".join(comparison.problems)
            except CheckFailed as e:
                problem = str(e)
            if problem:
                logger.warning("partition %s is not completely checked: %s", m.partition, problem)
            else:
                logger.info("partition %s is checked", m.partition)
            if core.master is not None and FEATURE_MAINTENANCE in core.master_features:
                core.master.send(NotifyPartitionChecked(m.partition, problem))
        self._working = False
        core.links.release(USER)


class Comparison:
    """Of one partition. ``problems``: nodes that could not be compared."""

    def __init__(self, core: StorageCore, m: CheckPartition) -> None:
        """Raises CheckFailed."""
        self._core = core
        self._m = m
        self.problems: list[str] = []
        if not 0 <= m.partition < len(core.partitions):
            raise CheckFailed(f"there is no partition {m.partition}")
        running = (
            nid
            for nid in core.partitions.readable(m.partition)
            if (node := core.nodes.get(nid)) is not None and node.state is NodeState.RUNNING
        )
        #: Those that are right as far as is known.
        self._nodes = sorted(running)
        self._reference: int | None = None
        upstream, address = m.source
        if upstream:
            raise CheckFailed("cells are not compared with those of another cluster")
        if address is not None:
            node = core.nodes.by_address(NodeType.STORAGE, address)
            if node is None or node.nid not in self._nodes:
                raise CheckFailed("the reference cannot be read any more")
            self._reference = node.nid

    async def run(self) -> None:
        """Raises CheckFailed, Cancelled."""
        if len(self._nodes) < 2:
            raise CheckFailed("no other node can be compared any more")
        m, first = self._m, self._m.min_tid
        while first <= m.max_tid:
            answer = await self._agreed(AskCheckTIDRange(m.partition, LENGTH, first, m.max_tid))
            if answer is None or answer.count < LENGTH:
                break
            first = add64(answer.max_tid, 1)
        start = m.min_tid, ZERO_OID
        while start[0] <= m.max_tid:
            answer = await self._agreed(
                AskCheckSerialRange(m.partition, LENGTH, start[0], m.max_tid, start[1])
            )
            if answer is None or answer.count < LENGTH:
                break
            start = answer.max_tid, add64(answer.max_oid, 1)

    async def _agreed(self, request: AskCheckTIDRange | AskCheckSerialRange) -> Any:
        """The digest of those that are right; None if there is nobody left to compare."""
        pauses = list(CONFIRM_SECONDS)
        while len(self._nodes) > 1:
            answers = await self._ask_all(request)
            if self._reference is not None and self._reference not in answers:
                raise CheckFailed(f"the reference does not answer: {self.problems[-1]}")
            if len(set(answers.values())) <= 1:
                return next(iter(answers.values()), None)
            if pauses:
                await self._core.sleep(pauses.pop(0))
                continue
            right = self._report(answers)
            return right if len(self._nodes) > 1 else None
        return None

    def _report(self, answers: _Answers) -> Message | None:
        """Tell the master who is wrong, and go on without them; returns the digest to believe."""
        core = self._core
        right = self._right(answers)
        wrong = [nid for nid, answer in answers.items() if answer != right]
        logger.error(
            "partition %s: %s differ%s",
            self._m.partition,
            ", ".join(map(format_nid, wrong)),
            " from the others" if right is not None else "",
        )
        if core.master is not None:
            core.master.send(NotifyPartitionCorrupted(self._m.partition, wrong))
        self._nodes = [nid for nid in self._nodes if nid not in wrong]
        return right

    def _right(self, answers: _Answers) -> Message | None:
        """The digest to believe, None if there is none."""
        if self._reference is not None:
            return answers[self._reference]
        votes: dict[Message, int] = {}
        for answer in answers.values():
            votes[answer] = votes.get(answer, 0) + 1
        most = max(votes.values())
        best = [answer for answer, count in votes.items() if count == most]
        return best[0] if len(best) == 1 else None

    # -- questions ---------------------------------------------------------------------------------

    async def _ask_all(self, request: AskCheckTIDRange | AskCheckSerialRange) -> _Answers:
        """By node; those that do not answer are left out from now on."""
        core = self._core
        began = core.shell.monotonic()
        # All at once: the slowest one determines the time.
        asked = {nid: Task(self._ask(nid, request)) for nid in self._nodes}
        answers: _Answers = {}
        try:
            for nid, task in asked.items():
                try:
                    answers[nid] = await task
                except (ConnectionLost, ErrorAnswer, RecordDamaged) as e:
                    self.problems.append(f"{format_nid(nid)}: {e}")
                    self._nodes.remove(nid)
        finally:
            for task in asked.values():
                task.cancel()
        await core.pace.give_way(began)
        return answers

    async def _ask_other(self, nid: int, request: AskCheckTIDRange | AskCheckSerialRange) -> Message:
        peer = await self._core.links.connect(nid, USER)
        return await peer.ask(request)

    async def _ask(self, nid: int, request: AskCheckTIDRange | AskCheckSerialRange) -> Message:
        if nid != self._core.nid:
            for pause in RECONNECT_SECONDS:
                try:
                    return await self._ask_other(nid, request)
                except ConnectionLost as e:
                    node = self._core.nodes.get(nid)
                    if node is None or node.state is not NodeState.RUNNING:
                        raise
                    logger.info("%s is asked again: %s", format_nid(nid), e)
                    await self._core.sleep(pause)
            return await self._ask_other(nid, request)
        unlocked: Future[None] = Future()
        self._core.locks.when_unlocked(lambda: unlocked.resolve(None))
        await unlocked
        return await digest(self._core, request)


def digest(
    core: StorageCore, request: AskCheckTIDRange | AskCheckSerialRange
) -> Coroutine[Any, Any, Message]:
    """What this node answers. Raises ErrorAnswer."""
    if isinstance(request, AskCheckTIDRange):
        return tid_digest(core, request)
    return serial_digest(core, request)
