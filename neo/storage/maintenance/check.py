"""CheckPartition: compare the readable cells of a partition (specification 11).

Theory of operation
-------------------
One node, chosen by the master, asks all nodes with a readable cell, itself included, for digests of the
same range. It continues behind that range while all digests are equal. If they differ:

* With a reference cell, the cells that differ from it are wrong.
* Else the largest group of equal cells is right, if it is larger than any other.
* Else no cell is known to be right: all are reported, and the master leaves the decision to the operator.

The digest of a node that loses its cell meanwhile still counts. A node that gets a cell meanwhile is not
asked: it may have copied a wrong one. If there is such a node, or one that did not answer, and no cell is
known to be right, then none is reported, because all would be copied anew from cells that were not
compared.

Wrong nodes are reported and left out, and the comparison continues with the others. Only ids are
compared. Cells differ for a moment while a pack has ended on one node and is unknown to another, so a
difference must be seen again before it is reported.

In a backup the reference is a cell of the upstream cluster, unless the operator named another: it is
asked like the others, and never reported. The cells of a backup and of its upstream cluster are packed
at different times and differ until all are packed. So cells are compared only if all are packed at one
tid, before and after.

One partition is compared at a time, with the pauses of replication.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from msgspec.structs import replace

from neo.net.sockets import format_address
from neo.node.task import Cancelled, Future, Task
from neo.protocol.enums import NodeState, NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import ZERO_OID, add64, format_nid, format_nids
from neo.protocol.packets import (
    FEATURE_OURS,
    A,
    AnswerCheckSerialRange,
    AnswerCheckTIDRange,
    AnswerPackState,
    AskCheckSerialRange,
    AskCheckTIDRange,
    AskPackState,
    CheckPartition,
    MendCell,
    NotifyCellsBehind,
    NotifyPartitionChecked,
    NotifyPartitionCorrupted,
    Request,
)
from neo.storage.backend.api import BackendFailure, RecordDamaged
from neo.storage.background import Background
from neo.storage.cells import Cells
from neo.storage.cluster import Cluster
from neo.storage.commit.locks import Locks
from neo.storage.events import Part
from neo.storage.following.fetch import mend
from neo.storage.following.links import UpstreamLinks
from neo.storage.links import Links
from neo.storage.maintenance.digests import Digests
from neo.storage.maintenance.pack import Packer
from neo.storage.replication.failure import FetchFailed
from neo.storage.replication.fetch import Receiver

logger = logging.getLogger("neo.storage")

#: Rows of a digest.
LENGTH = 40_000
#: A difference is reported if it is seen again after each of these pauses.
CONFIRM_SECONDS = (1.0, 3.0)
#: Pauses before a node is asked again: its connection may break, and it may not know yet that its cell is
#: readable.
AGAIN_SECONDS = (0.1, 1.0)
#: In :class:`~neo.storage.links.Links`.
USER = "check"
#: The id of the upstream cluster's cell among the nodes to compare. No storage node has this id.
UPSTREAM = 0

_D = TypeVar("_D", AnswerCheckTIDRange, AnswerCheckSerialRange)


class CheckFailed(Exception):
    """The comparison cannot go on; the message says why."""


@dataclass(eq=False, repr=False)
class Checker(Part):
    """Executes the checks and repairs that the master requests. Bound: one request per partition."""

    cluster: Cluster
    cells: Cells
    locks: Locks
    background: Background
    links: Links
    upstream: UpstreamLinks
    digests: Digests
    receiver: Receiver
    packer: Packer
    _queue: dict[int, CheckPartition | MendCell] = field(default_factory=dict, init=False)
    _working: bool = field(default=False, init=False)

    def operation_stopped(self) -> None:
        """Forget the requests; the job is cancelled."""
        self._queue.clear()
        self._working = False

    def add(self, m: CheckPartition | MendCell) -> None:
        """Queue a check, or the repair of a cell of a backup."""
        self._queue[m.partition] = m
        if not self._working:
            self._working = True
            self.background.run(self._work())

    async def _work(self) -> None:
        while self._queue:
            m = self._queue.pop(next(iter(self._queue)))
            problem = await self._problem(m)
            if not problem:
                logger.info("partition %s is checked", m.partition)
            elif isinstance(m, MendCell):
                logger.warning("partition %s is not completely mended: %s", m.partition, problem)
            else:
                logger.warning("partition %s is not completely checked: %s", m.partition, problem)
            master = self.cluster.master
            if master is not None and FEATURE_OURS in master.features:
                master.peer.send(NotifyPartitionChecked(m.partition, problem))
        self._working = False
        self.links.release(USER)

    async def _problem(self, m: CheckPartition | MendCell) -> str:
        try:
            if isinstance(m, MendCell):
                await mend(m, self.receiver, self.upstream, self.packer)
                return ""
            comparison = Comparison(self, m)
            await comparison.run()
            return "; ".join(comparison.problems)
        except (CheckFailed, FetchFailed, ConnectionLost, ErrorAnswer) as e:
            return str(e)
        except (BackendFailure, Cancelled):
            raise
        except Exception:
            # An error in a check must not end the node.
            logger.exception("failure while checking partition %s", m.partition)
            return "internal failure: see the log of the node that checked it"


class Comparison:
    """The comparison of one partition. ``problems``: nodes that could not be compared."""

    def __init__(self, checker: Checker, m: CheckPartition) -> None:
        """Raises CheckFailed."""
        self._checker = checker
        self._cluster = checker.cluster
        self._cells = checker.cells
        self._background = checker.background
        self._m = m
        self.problems: list[str] = []
        partitions = self._cells.partitions
        if not 0 <= m.partition < len(partitions):
            raise CheckFailed(f"there is no partition {m.partition}")
        #: Nodes that have not differed so far.
        self._nodes = sorted(self._cluster.running(partitions.readable(m.partition)))
        #: Nodes that were reported.
        self._wrong: set[int] = set()
        self._reference: int | None = None
        #: The pack that all nodes had done when the comparison began; None if packs do not matter.
        self._packed: AnswerPackState | None = None
        self._upstream, self._address = m.source
        if self._upstream:
            if self._address is None or not self._cells.backup.active:
                raise CheckFailed(
                    "only cells of a standby can be compared with those of another cluster"
                )
            self._nodes.append(UPSTREAM)
            self._reference = UPSTREAM
        elif self._address is not None:
            node = self._cluster.nodes.by_address(NodeType.STORAGE, self._address)
            if node is None or node.nid not in self._nodes:
                raise CheckFailed("the reference cell is not readable any more")
            self._reference = node.nid

    async def run(self) -> None:
        """Raises CheckFailed, Cancelled."""
        if len(self._nodes) < 2:
            raise CheckFailed("no other node can be compared any more")
        if self._cells.backup.active:
            self._packed = await self._pack_state()
        m, first = self._m, self._m.min_tid
        while first <= m.max_tid:
            answer = await self._agreed(AskCheckTIDRange(m.partition, LENGTH, first, m.max_tid))
            if answer is None or answer.count < LENGTH:
                break
            first = add64(answer.max_tid, 1)
        start = m.min_tid, ZERO_OID
        while start[0] <= m.max_tid:
            objects = await self._agreed(
                AskCheckSerialRange(m.partition, LENGTH, start[0], m.max_tid, start[1])
            )
            if objects is None or objects.count < LENGTH:
                break
            start = objects.max_tid, add64(objects.max_oid, 1)

    async def _pack_state(self) -> AnswerPackState | None:
        """Return the common pack state. Raises CheckFailed if cells have different ones."""
        answers = await self._ask_all(AskPackState(self._m.partition))
        self._check_reference(answers)
        if len(set(answers.values())) > 1:
            raise CheckFailed(
                "the cells are not packed alike yet: check again when the standby has caught up"
            )
        return next(iter(answers.values()), None)

    def _check_reference(self, answers: Collection[int]) -> None:
        if self._reference is not None and self._reference not in answers:
            raise CheckFailed(f"the reference does not answer: {self.problems[-1]}")

    async def _agreed(self, request: Request[_D]) -> _D | None:
        """Return the digest of the right cells; None if fewer than two cells are left."""
        pauses = list(CONFIRM_SECONDS)
        last: dict[int, _D] = {}
        while len(self._nodes) > 1:
            answers = await self._ask_all(request)
            last.update(answers)
            self._check_reference(answers)
            if len(set(answers.values())) <= 1:
                return next(iter(answers.values()), None)
            if pauses:
                await self._background.sleep(pauses.pop(0))
                continue
            if self._packed is not None and await self._pack_state() != self._packed:
                raise CheckFailed("the cells were packed meanwhile: check again")
            await self._tell_behind(request, answers)
            right = self._report(answers, last)
            return right if len(self._nodes) > 1 else None
        return None

    def _report(self, answers: dict[int, _D], last: dict[int, _D]) -> _D | None:
        """Report the wrong nodes, and leave them out from now on. Return the right digest; None if it is
        unknown. ``last``: the answers, also of nodes that were lost since. Raises CheckFailed."""
        right = self._right(answers, last)
        wrong = [nid for nid, answer in answers.items() if answer != right]
        readable = self._cells.partitions.readable(self._m.partition)
        others = set(readable) - answers.keys() - self._wrong
        if right is None and others:
            raise CheckFailed(
                f"{format_nids(wrong)} differ, and none is known to be right: {format_nids(others)} could"
                " not be compared; check again"
            )
        logger.error(
            "partition %s: %s differ%s",
            self._m.partition,
            format_nids(wrong),
            " from the others" if right is not None else "",
        )
        self._cluster.tell_master(NotifyPartitionCorrupted(self._m.partition, wrong))
        self._wrong.update(wrong)
        self._nodes = [nid for nid in self._nodes if nid not in wrong]
        return right

    async def _tell_behind(self, request: Request[_D], answers: Mapping[int, _D]) -> None:
        """Tell the master which cells have only the first rows of the largest cell. For each, its node is
        asked for a digest of as many rows. Do not report cells that differ in another way."""
        master = self._cluster.master
        if master is None or FEATURE_OURS not in master.features:
            return
        most = self._reference
        if most is None:
            most = max(answers, key=lambda nid: (answers[nid].count, nid))
        behind: dict[int, tuple[bytes, int]] = {}
        for nid, found in answers.items():
            if found.count < answers[most].count:
                try:
                    since = await self._since(most, request, found)
                except (ConnectionLost, ErrorAnswer, RecordDamaged) as e:
                    logger.info("cannot determine how far %s is behind: %s", self._name(nid), e)
                    return
                if since is not None:
                    behind[nid] = since, answers[most].count - found.count
        if behind and UPSTREAM not in (most, *behind):
            revisions = isinstance(request, AskCheckSerialRange)
            self._cluster.tell_master(NotifyCellsBehind(self._m.partition, most, revisions, behind))

    async def _since(self, nid: int, request: Request[_D], found: _D) -> bytes | None:
        """Return the tid of the first row of a node after those that the digest ``found`` of another
        covers; None if its own first rows have another digest."""
        following = replace(request, length=1)
        if found.count:
            if await self._ask(nid, replace(request, length=found.count)) != found:
                return None
            if isinstance(found, AnswerCheckSerialRange):
                oid = add64(found.max_oid, 1)
                following = replace(request, length=1, min_tid=found.max_tid, min_oid=oid)
            else:
                following = replace(request, length=1, min_tid=add64(found.max_tid, 1))
        return (await self._ask(nid, following)).max_tid

    def _right(self, answers: dict[int, _D], last: dict[int, _D]) -> _D | None:
        """Return the right digest; None if none is known to be right."""
        if self._reference is not None:
            return answers[self._reference]
        votes: dict[_D, int] = {}
        for answer in last.values():
            votes[answer] = votes.get(answer, 0) + 1
        most = max(votes.values())
        best = [answer for answer, count in votes.items() if count == most]
        return best[0] if len(best) == 1 and best[0] in answers.values() else None

    # -- questions ---------------------------------------------------------------------------------

    async def _ask_all(self, request: Request[A]) -> dict[int, A]:
        """Return the answers by node; leave out nodes that do not answer from now on."""
        began = self._background.monotonic()
        # In parallel: the slowest node determines the time.
        asked = {nid: Task(self._ask(nid, request)) for nid in self._nodes}
        answers: dict[int, A] = {}
        try:
            for nid, task in asked.items():
                try:
                    answers[nid] = await task
                except (ConnectionLost, ErrorAnswer, RecordDamaged) as e:
                    self.problems.append(f"{self._name(nid)}: {e}")
                    self._nodes.remove(nid)
        finally:
            for task in asked.values():
                task.cancel()
        await self._background.give_way(began)
        return answers

    def _name(self, nid: int) -> str:
        if nid != UPSTREAM or self._address is None:
            return format_nid(nid)
        return f"{format_address(self._address)} of the upstream cluster"

    async def _ask_other(self, nid: int, request: Request[A]) -> A:
        if nid == UPSTREAM:
            assert self._address is not None
            peer = await self._checker.upstream.connect(self._upstream, self._address)
        else:
            peer = await self._checker.links.connect(nid, USER)
        features = frozenset() if peer.node is None else peer.node.features
        unknown = isinstance(request, AskPackState) and FEATURE_OURS not in features
        if unknown:
            return await self._checker.digests.answer(request)
        return await peer.ask(request)

    async def _ask(self, nid: int, request: Request[A]) -> A:
        if nid != self._cluster.nid:
            for pause in AGAIN_SECONDS:
                try:
                    return await self._ask_other(nid, request)
                except (ConnectionLost, ErrorAnswer) as e:
                    node = self._cluster.nodes.get(nid)
                    if nid != UPSTREAM and (node is None or node.state is not NodeState.RUNNING):
                        raise
                    logger.info("%s is asked again: %s", self._name(nid), e)
                    await self._background.sleep(pause)
            return await self._ask_other(nid, request)
        if isinstance(request, AskCheckTIDRange | AskCheckSerialRange):
            # Later ones may be locked for long: they may wait for a synchronous backup (rule 11.6).
            unlocked: Future[None] = Future()
            self._checker.locks.when_unlocked(lambda: unlocked.resolve(None), request.max_tid)
            await unlocked
        return await self._checker.digests.answer(request)
