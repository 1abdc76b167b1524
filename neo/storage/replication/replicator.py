"""Replication of own cells that are OUT_OF_DATE (specification 10).

Theory of operation
-------------------
A cell that is OUT_OF_DATE is *writable*: it gets all transactions that begin after the master was asked
for the unfinished ones. What was committed before, and what the unfinished transactions commit, is
fetched from a node whose cell is readable. The cell passes these phases::

    asked ──AnswerUnfinishedTransactions──> fetching rounds ──> complete ──> announced

* A round makes ``[first, last]`` equal to the source; ``last`` is the last committed tid in the master's
  latest message. The database keeps the tid up to which the cell is complete, where replication resumes
  after a restart. It is always less than the tid of an unfinished transaction, which may be preset and
  less than ``last``.
* A cell may have transactions that no other node has, if the cluster was started without this node
  (``neoctl start``) and gave them up. Those after ``last`` are deleted at once. The first round begins
  with the last TAIL_LENGTH rows of the cell, or earlier: if the source does not have all of these,
  everything is compared, also if that is interrupted and resumed.
* When the cell waits for no transaction, or only for prepared ones, the next round is the last one. The
  node then fetches the rows of the latter and takes part in them. The cell is then complete:
  stores are checked for conflicts and locked, together with those that were accepted lockless before
  (:meth:`Locks.replicated`).
* When no object has several holders any more, the master is told, and makes the cell UP_TO_DATE.

One job fetches one cell at a time. A round that fails is tried again after a pause, from another source
if there is one; the other cells go first. Everything ends with the operation.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from neo.node.host import Host
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import MAX_TID, ZERO_TID, add64, p64, time_from_tid, u64
from neo.protocol.packets import (
    FEATURE_OURS,
    TAIL_LENGTH,
    AskJoinPrepared,
    AskUnfinishedTransactions,
    NotifyReplicationDone,
)
from neo.storage.background import Background
from neo.storage.cells import Cells
from neo.storage.cluster import Cluster
from neo.storage.commit.locks import Locks
from neo.storage.database import Database
from neo.storage.events import CellsChanged, Part
from neo.storage.links import Links
from neo.storage.maintenance.pack import Packer
from neo.storage.prepared.fetch import PreparedFetch
from neo.storage.replication.failure import FetchFailed
from neo.storage.replication.fetch import LOOK_SECONDS, Fetch, Receiver

logger = logging.getLogger("neo.storage")

#: Pause of a cell after a failed round: the source may return, or the master may report another one.
RETRY_SECONDS = 1.0
#: In :class:`~neo.storage.links.Links`.
USER = "replication"


@dataclass(eq=False, slots=True)
class OutdatedCell:
    partition: int
    first: bytes
    #: The first tids of the tail, of transactions and of revisions. None after it was compared.
    tail: tuple[bytes, bytes] | None = None
    #: None until the master has answered.
    last: bytes | None = None
    waiting: set[bytes] = field(default_factory=set)
    #: Transactions that only wait for the data of their undos: this node takes part in them, and may not
    #: be told of their end as those are that asked for unfinished transactions.
    blind: set[bytes] = field(default_factory=set)
    #: ``last`` of the last round.
    fetched: bytes | None = None
    finishing: bool = False
    #: A round failed: the next one is made after RETRY_SECONDS.
    paused: bool = False
    #: Why the last round failed; empty if it did not. Rounds that failed one after the other.
    failure: str = ""
    failures: int = 0
    #: The tid at which the last source was packed.
    pack_tid: int = 0
    #: (tid, oid) of undos that go back to revisions which the source has packed away.
    lacking: frozenset[tuple[bytes, bytes]] = frozenset()

    def ready(self, prepared: set[bytes]) -> bool:
        """Return whether a round is to be made now. ``prepared``: transactions for whose end
        the cell need not wait."""
        if self.last is None or self.finishing or self.paused:
            return False
        return self.waiting <= prepared or self.fetched is None or self.fetched < self.last


#: Rounds that failed one after the other before operators are told: a source that restarts fails some.
STUCK_ROUNDS = 3


@dataclass(eq=False, repr=False)
class Replicator(Part):
    host: Host
    database: Database
    cluster: Cluster
    cells: Cells
    locks: Locks
    background: Background
    links: Links
    receiver: Receiver
    packer: Packer
    prepared_fetch: PreparedFetch

    def __post_init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._outdated: dict[int, OutdatedCell] = {}
        self._working = False
        #: Transactions for which cells wait and which are prepared, as the master says.
        self._prepared: set[bytes] = set()
        self._wake: Future[None] = Future()

    # -- events --------------------------------------------------------------------------------------

    def operation_started(self) -> None:
        self._start_outdated()

    def _start_outdated(self) -> None:
        """Start to replicate what is out of date and not replicated yet."""
        nid = self.cluster.nid
        assert nid is not None
        complete = {
            cell.partition: cell.tid for cell in self.database.backend.tables.cells() if cell.nid == nid
        }
        new = [
            OutdatedCell(partition, p64(tid), pack_tid=self.packer.packed(partition))
            for partition, tid in sorted(complete.items())
            if tid >= 0 and partition not in self._outdated
        ]
        if not new:
            return
        self._outdated.update((cell.partition, cell) for cell in new)
        self.cells.proof.begin(cell.partition for cell in new)
        self.background.run(self._ask(new))
        if not self._working:
            self._working = True
            self.background.run(self._work())

    def cells_changed(self, change: CellsChanged) -> None:
        for partition in self._outdated.keys() - self.cells.outdated():
            del self._outdated[partition]
        self._start_outdated()

    def operation_stopped(self) -> None:
        """Forget the cells; the jobs are cancelled."""
        self.cells.complete.clear()
        self.prepared_fetch.stopped()
        self._start()

    def _current(self, cell: OutdatedCell) -> bool:
        return self._outdated.get(cell.partition) is cell

    # -- transactions in progress --------------------------------------------------------------------

    async def _ask(self, cells: list[OutdatedCell]) -> None:
        master = self.cluster.master
        assert master is not None
        partitions = [cell.partition for cell in cells]
        try:
            answer = await master.peer.ask(AskUnfinishedTransactions(partitions))
        except (ConnectionLost, ErrorAnswer) as e:
            # The operation is about to stop; replication begins again with the next one.
            logger.warning("the master does not permit replication: %s", e)
            return
        for cell in cells:
            self._look_back(cell, answer.max_tid)
            cell.last = answer.max_tid
            cell.waiting = set(answer.ttid_list)
        self._notify()

    def _look_back(self, cell: OutdatedCell, last: bytes) -> None:
        """Begin with the tail of the cell; delete transactions after ``last``, which were given up. No
        later one is unlocked before the answer with ``last``."""
        backend = self.database.backend
        _, tid = backend.reads.last_ids([cell.partition])
        if tid is None or self.cells.backup.active:
            return
        if tid <= last:
            tail = backend.reads.tail(cell.partition, MAX_TID, TAIL_LENGTH)
            cell.tail = (
                _begin(tail.transactions),
                _begin([tid for tid, _ in tail.revisions]),
            )
            return
        logger.warning(
            "partition %s: transactions after %s, up to %s, are deleted: the cluster gave them up when it"
            " was started without this node",
            cell.partition,
            last.hex(),
            tid.hex(),
        )
        self._look_further(cell)
        backend.maintenance.truncate(last, [cell.partition])

    def _look_further(self, cell: OutdatedCell) -> None:
        """Compare the whole cell, also if this round or the node fails. Call before rows are deleted that
        were given up: earlier rows may differ from the source, too."""
        assert self.cluster.nid is not None
        self.database.backend.tables.forget_complete(self.cluster.nid)
        cell.first = ZERO_TID

    def prepared(self, ttids: Sequence[bytes]) -> None:
        """Handle NotifyPrepared: the end of these transactions may be far away (specification 24.24)."""
        self._prepared.update(
            ttid for ttid in ttids if any(ttid in c.waiting for c in self._outdated.values())
        )
        self._notify()

    def _ended(self, ttid: bytes) -> None:
        self._prepared.discard(ttid)
        self.prepared_fetch.ended(ttid)

    def finished(self, ttid: bytes, tid: bytes) -> None:
        """Handle NotifyTransactionFinished."""
        self._ended(ttid)
        for cell in self._outdated.values():
            if ttid in cell.waiting and cell.last is not None:
                cell.waiting.remove(ttid)
                cell.last = max(cell.last, tid)
                cell.first = min(cell.first, tid)
        self._notify()

    def aborted(self, ttid: bytes) -> None:
        """Handle AbortTransaction from the master."""
        self._ended(ttid)
        for cell in self._outdated.values():
            cell.waiting.discard(ttid)
        self._notify()

    def stuck(self) -> list[tuple[int, str]]:
        """Return the partitions that could not be copied several times, and why not the last time."""
        cells = sorted(self._outdated.items())
        return [(p, cell.failure) for p, cell in cells if cell.failures >= STUCK_ROUNDS]

    def lag(self) -> float:
        """Return by how many seconds the most outdated cell that has something is behind the master."""
        cells = self._outdated.values()
        lags = [
            time_from_tid(cell.last) - time_from_tid(cell.first)
            for cell in cells
            if cell.last is not None and ZERO_TID < cell.first < cell.last
        ]
        return max(lags, default=0.0)

    def _notify(self) -> None:
        wake, self._wake = self._wake, Future()
        wake.resolve(None)

    # -- work ----------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            outdated = self._outdated.values()
            cell = next((cell for cell in outdated if cell.ready(self._prepared)), None)
            if cell is None:
                if all(cell.finishing for cell in self._outdated.values()):
                    self.links.release(USER)
                await self._wake
                continue
            try:
                await self._round(cell)
                cell.failure, cell.failures = "", 0
            except (ConnectionLost, ErrorAnswer, FetchFailed) as e:
                if not self._current(cell):
                    continue
                logger.warning("partition %s is not replicated yet: %s", cell.partition, e)
                cell.paused = True
                cell.failure, cell.failures = str(e), cell.failures + 1
                self.background.run(self._pause(cell))

    async def _pause(self, cell: OutdatedCell) -> None:
        """Let the other cells go first after a failed round: this one may fail again, or take long to
        fail. Bound: one for each cell, because a cell that pauses makes no round."""
        self._outdated[cell.partition] = self._outdated.pop(cell.partition)
        await self.background.sleep(RETRY_SECONDS)
        cell.paused = False
        self._notify()

    async def _round(self, cell: OutdatedCell) -> None:
        stored, nid = self.database.stored, self.cluster.nid
        assert cell.last is not None and nid is not None
        last, pending = cell.last, tuple(cell.waiting)
        if cell.lacking:
            await self._fetch_lacking(cell)
        if cell.first <= last or cell.tail is not None:
            source = await self.links.connect(self._source(cell.partition), USER)
            await self._unlocked()
            await stored()  # all earlier writes are executed, also those for other cells
            if self.cells.is_marked(cell.partition):
                await self.receiver.erase(cell.partition, last)
            fetch = self._fetch(source, cell, cell.first, last)
            await fetch.run()
            await stored()
            if not self._current(cell):
                return
            cell.tail = None
            cell.pack_tid = fetch.pack_tid
            if fetch.everything:
                # Rows after ``last`` come from clients; the pack of the readable cell covers them.
                done = fetch.pack_tid <= u64(last)
                self.packer.set_packed(cell.partition, fetch.pack_tid if done else 0)
                self.packer.want(p64(fetch.pack_tid))
        if not self._current(cell):
            return
        cell.fetched = last
        # A transaction that finished meanwhile may have a preset tid before ``last``.
        cell.first = min([add64(last, 1), *pending])
        if cell.first > ZERO_TID:
            self.database.backend.tables.set_complete(cell.partition, nid, add64(cell.first, -1))
        if cell.last == last and cell.waiting.issuperset(pending) and cell.waiting <= self._prepared:
            await self._take_part(cell)
            if self._current(cell) and not cell.waiting and cell.last == last:
                cell.first = add64(last, 1)
                self.database.backend.tables.set_complete(cell.partition, nid, last)
                cell.finishing = True
                self.background.run(self._finish(cell))

    async def _take_part(self, cell: OutdatedCell) -> None:
        """Fetch the prepared transactions that the cell waits for, and the outcomes of earlier ones, and
        take part in the former. The cell still waits for those that a coordinator has decided: their end
        is about to be told (specification 24.25 to 24.27). Blind ones that were decided are locked here,
        or ended."""
        ttids = sorted(cell.waiting)
        source = await self.links.connect(self._source(cell.partition), USER)
        if source.node is None or FEATURE_OURS not in source.node.features:
            if ttids:
                raise FetchFailed(f"{source} does not send prepared transactions: update its program")
            return
        await self.prepared_fetch.run(source, cell.partition, ttids)
        master = self.cluster.master
        if not ttids or not self._current(cell) or master is None:
            return
        answer = await master.peer.ask(AskJoinPrepared(cell.partition, ttids))
        cell.waiting.difference_update(answer.ttid_list, cell.blind)
        self._prepared -= cell.waiting.intersection(ttids)

    def _fetch(
        self,
        source: Peer,
        cell: OutdatedCell,
        first: bytes,
        last: bytes,
        lacking: frozenset[tuple[bytes, bytes]] = frozenset(),
    ) -> Fetch:
        further = partial(self._look_further, cell)
        partition, pack_tid = cell.partition, cell.pack_tid
        tail = (first, first) if lacking or cell.tail is None else cell.tail
        transaction, revision = (min(first, tid) for tid in tail)
        return Fetch(
            receiver=self.receiver,
            source=source,
            partition=partition,
            first=revision,
            last=last,
            pack_tid=pack_tid,
            lacking=lacking,
            look_further=further,
            first_transaction=transaction,
        )

    async def _fetch_lacking(self, cell: OutdatedCell) -> None:
        """Fetch the data of undos. The source has it, or has packed the undos too, because they were
        locked there before they were unlocked here. Undos that go back to packed ones are listed when the
        cell is finished again: only the source knows their origin."""
        source = await self.links.connect(self._source(cell.partition), USER)
        for tid in sorted({tid for tid, _ in cell.lacking}):
            fetch = self._fetch(source, cell, tid, tid, cell.lacking)
            if not await fetch.data():
                cell.first = ZERO_TID
                return
        if self._current(cell):
            unlinked = self.database.backend.replication.link_undone(cell.partition)
            packed = cell.lacking.intersection(unlinked)
            cell.lacking = frozenset()
            await self.receiver.remove(cell.partition, sorted(packed))

    def _source(self, partition: int) -> int:
        """Return a node to fetch from. Raises ConnectionLost if there is none."""
        running = self.cluster.running(self.cells.partitions.readable(partition))
        if not running:
            raise ConnectionLost(f"no running node can read partition {partition}")
        return self.host.random.choice(running)

    def _unlocked(self) -> Future[None]:
        """Return a future: all transactions that are locked now are in the tables."""
        future: Future[None] = Future()
        self.locks.when_unlocked(lambda: future.resolve(None))
        return future

    async def _finish(self, cell: OutdatedCell) -> None:
        """Return to normal locking, then tell the master: all data is here, or comes from clients."""
        partition, locks = cell.partition, self.locks

        def here(oid: bytes) -> bool:
            return self.cells.partitions.partition(oid) == partition

        while locks.undoing(here, blindly=True):
            # The revision that an undo goes back to is searched when the undo is in the tables.
            await self.background.sleep(LOOK_SECONDS)
            if not self._current(cell):
                return
        if blind := locks.blind(here):
            # The source has the data.
            cell.blind = blind
            cell.waiting |= blind
            self._prepared |= blind
            cell.finishing = False
            self._notify()
            return
        cell.lacking = frozenset(self.database.backend.replication.link_undone(partition))
        if cell.lacking:
            cell.finishing = False
            self._notify()
            return
        self.cells.complete.add(partition)
        locks.replicated(here)
        assert cell.last is not None
        self.cells.backup.replicated(partition, cell.last)
        self.cells.proof.announce(partition)
        await self.database.stored()
        while self._current(cell) and any(map(here, locks.shared())):
            await self.background.sleep(LOOK_SECONDS)
        if self._current(cell) and self.cluster.master is not None:
            logger.info("partition %s is replicated up to %s", partition, cell.last.hex())
            self.cluster.tell_master(NotifyReplicationDone(partition, cell.last))


def _begin(tids: Sequence[bytes]) -> bytes:
    """Return the tid from which on the tail has all rows of the cell."""
    return tids[0] if len(tids) >= TAIL_LENGTH else ZERO_TID
