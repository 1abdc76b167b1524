"""A synchronous backup joins the commits of its upstream cluster (specification 25).

Theory of operation
-------------------
::

    outside ── near the end: AskJoinSync ──> joining ── all cells complete: AskSyncLease ──> in sync
       ▲                                        │                                               │
       └────── refused, too late, lost, a transaction cannot be prepared, the lease is over ────┘

Outside, the backup follows by orders, as any backup does. When it is near the end of the upstream
cluster, and all its nodes answer, it joins: from then on the upstream master asks it to lock every
transaction, and counts on it as long as it holds a lease. :mod:`neo.master.sync.locking` has the
transactions.

Rules:

* the backup gives up its lease before it refuses or drops anything (specification 25.40);
* nothing is fetched from upstream while a transaction is between its lock and its unlock: its rows are
  here already;
* a cell becomes readable only when it has all that was locked, and no transaction is between its lock and
  its unlock (specification 25.21, 25.44).
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from neo.master.cluster import Cluster
from neo.master.commit.sync_backups import JOIN_SECONDS, LEASE_SECONDS
from neo.master.flapping import Losses
from neo.master.sync.copy import Copy
from neo.master.sync.locking import Locking
from neo.master.sync.marks import Committed, Marks
from neo.master.sync.memory import SyncMemory
from neo.master.sync.pipeline import BackupTransaction
from neo.master.sync.roll_call import RollCall
from neo.master.sync.rows import RowRequests
from neo.node.core import Core
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.enums import ClusterState, ErrorCode
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import ZERO_TID, format_nids
from neo.protocol.packets import (
    FEATURE_OURS,
    AnswerJoinSync,
    AnswerSyncLease,
    AskJoinSync,
    AskLockBackup,
    AskPrepareBackup,
    AskSyncLease,
    NotifyLeft,
    NotifySynced,
    Ping,
    PreparedRow,
    SyncRow,
)

logger = logging.getLogger("neo.master")

#: Interval of the check whether the backup can join, or a cell can.
TICK_SECONDS = 0.25
#: Interval of AskSyncLease (specification 25.14).
LEASE_INTERVAL = 0.5
#: Transactions of this time need not be complete to join: they are complete soon when the upstream
#: cluster waits. Under load a backup that follows by orders is never nearer (specification 25.61).
NEAR_SECONDS = 2.0
#: Pause before the backup joins again (specification 25.18). It doubles when the backup joined in vain,
#: or was not in sync for STEADY_SECONDS, because commits waited for it.
RETRY_SECONDS = 1.0
RETRY_SECONDS_MAX = 8.0
STEADY_SECONDS = 10.0
#: Locks are held back for so long while a cell becomes readable (specification 25.41). Then they go on
#: for twice the time, even if the cell never comes to its end.
HOLD_SECONDS = 1.0

_NOT_NEAR = "it is not near the end of the upstream cluster yet"
_ASYNC, _JOINING, _SYNC, _LOST = "async", "joining", "sync", "lost"


class Source(Protocol):
    """The upstream cluster, as far as a synchronous backup needs it."""

    @property
    def synchronous(self) -> bool:
        """Whether its master announced ``sync``."""


@dataclass(slots=True, eq=False)
class _Membership:
    """From AskJoinSync until the backup leaves. ``limit``: it leaves then, by the monotonic clock."""

    peer: Peer
    limit: float = math.inf
    #: The last transaction of the upstream cluster when it began to wait for this backup; None before.
    tid: bytes | None = None
    #: When a lease was asked last; None before all cells were complete.
    asked: float | None = None
    #: A lease was granted: the backup is in sync until ``limit``. The first one was granted at ``begun``.
    leased: bool = False
    begun: float = 0.0
    #: Cells that locks are held back for, until when, and when they may be held back again.
    held: list[tuple[int, int]] = field(default_factory=list)
    held_until: float = 0.0
    hold_again: float = 0.0


class Synchronous:
    """The synchronous backup of one stay in backup mode. Bounds: those of the pipeline."""

    def __init__(
        self, cluster: Cluster, core: Core, copy: Copy, committed: Committed, memory: SyncMemory
    ) -> None:
        """``committed``: told of transactions that were kept. ``memory``: until when the backup was in
        sync before."""
        self._cluster = cluster
        self._core = core
        self.cells = copy.cells
        self._positions = copy.positions
        self._readers = copy.readers
        self._orders = copy.orders
        self._name = copy.sources.name
        self._source: Source | None = None
        self._member: _Membership | None = None
        requests = RowRequests(cluster, copy.sources)
        self._marks = Marks(
            cluster=cluster, copy=copy, requests=requests, membership=self, remember=committed
        )
        self._locking = Locking(
            cluster=cluster, copy=copy, requests=requests, marks=self._marks, membership=self
        )
        self._roll = RollCall(cluster, core)
        #: The nodes that do not answer.
        self._late: Collection[int] = ()
        self._losses = Losses()
        #: The last transaction that was unlocked here: every readable cell has it, and all earlier ones.
        self._last = ZERO_TID
        #: The last such transaction of those that were not announced before: cells need not fetch these.
        self._taken = ZERO_TID
        #: The last transaction that had been heard of at each of the last ticks, the oldest first.
        self._heard: deque[bytes] = deque([ZERO_TID], int(NEAR_SECONDS / TICK_SECONDS))
        self._join_again, self._retry = 0.0, RETRY_SECONDS
        #: Until when the backup was in sync; None if it never was.
        self._until: float | None = None
        #: Since when it is in sync, or is not (specification 25.47); and why it is not.
        self._since = core.host.time()
        self._memory = memory
        if memory.until is not None:
            self._since = min(self._since, memory.until)
            self._until = self._now() - (core.host.time() - self._since)
        self._reason = "the upstream cluster was not reached yet"
        #: Called when nothing is being locked: backup mode is to end.
        self._ending: Callable[[], None] | None = None
        self._stopped = False

    # -- for people --------------------------------------------------------------------------------

    @property
    def in_sync(self) -> bool:
        """Whether the backup holds a lease (specification 25.14)."""
        member = self._member
        return member is not None and member.leased and self._now() < member.limit

    def row(self) -> SyncRow:
        """Return the state of this backup, with the name of the upstream cluster (specification 25.28,
        25.45)."""
        state, member = _ASYNC, self._member
        until = member.limit if member is not None and member.leased else self._until
        seconds = None if until is None else max(self._now() - until, 0.0)
        if self.in_sync:
            state = _SYNC
        elif member is not None and member.tid is not None and not member.leased:
            state = _JOINING
        elif (member is not None and member.leased) or (seconds is not None and seconds < LEASE_SECONDS):
            state = _LOST
        since, reason = self._since, "" if state == _SYNC else self._reason
        if (ago := self._losses.since(self._now())) is not None:
            reason = f"{reason}; {self._losses.text(self._now())}".removeprefix("; ")
            if state != _SYNC:
                since = min(since, self._core.host.time() - ago)
        return (self._name, state, since, self.cells.complete, seconds, reason)

    def _now(self) -> float:
        return self._core.host.monotonic()

    # -- the upstream cluster ------------------------------------------------------------------------

    async def greet(self, peer: Peer, source: Source) -> None:
        """Tell the upstream master what is complete, if it knows synchronous backups (specification
        25.22). Raise ConnectionLost."""
        await peer.ask(Ping())  # its features come before the answer
        while not self._quiet():
            await self._core.sleep(TICK_SECONDS)
        if source.synchronous:
            # If the upstream cluster waits for it, it was not announced: all cells here have locked it.
            peer.send(NotifySynced(self.cells.last))

    def followed(self, peer: Peer, source: Source) -> None:
        """Join when the backup is near the end of the upstream cluster, which is followed from now on."""
        self._source = source
        self._heard.clear()
        self._heard.append(self.cells.last)
        self._explain(_NOT_NEAR)
        if source.synchronous:
            self._tick(peer, source)
        else:
            self._explain("the upstream cluster does not know synchronous standbys: update it")

    def lost(self, reason: str) -> None:
        """React to the end of the connection with the upstream cluster."""
        self._source = None
        self._roll.forget()
        self.leave(f"the upstream cluster is lost: {reason}")
        self._explain(f"the upstream cluster is lost: {reason}")

    def _explain(self, reason: str) -> None:
        """Note why the backup is not in sync."""
        if reason != self._reason:
            self._reason = reason
            logger.info("this standby is not in sync: %s", reason)

    def _tick(self, peer: Peer, source: Source) -> None:
        """Join, ask for leases, let cells become readable. Call once for each connection; it reschedules
        itself."""
        if source is not self._source or self._stopped:
            return
        now = self._now()
        if self._member is None:
            if now >= self._join_again:
                self._call_roll(peer, source)
        elif now >= self._member.limit:
            self.leave(
                "the upstream cluster did not renew the lease in time"
                if self._member.leased
                else "its cells were not complete in time to join"
            )
        else:
            self._renew(self._member, now)
            self._hold(self._member, now)
        if self.cells.joining():
            self._marks.ask()
        self._heard.append(self.cells.last)
        self._core.call_later(TICK_SECONDS, partial(self._tick, peer, source))

    # -- join and leave ------------------------------------------------------------------------------

    def _may_join(self) -> bool:
        cluster = self._cluster
        if cluster.state is not ClusterState.BACKINGUP or self._ending or self._locking.busy:
            return False
        if unable := self._unable():
            self._explain(f"{format_nids(unable)} must be updated to take part")
            return False
        return self.cells.complete >= self._heard[0]

    def _unable(self) -> list[int]:
        """Return the nodes with readable cells that do not know synchronous backups."""
        nodes = self._cluster.nodes
        return [
            nid
            for nid in sorted(self._cluster.partitions.nodes(readable_only=True))
            if (node := nodes.get(nid)) is None or FEATURE_OURS not in node.features
        ]

    def _call_roll(self, peer: Peer, source: Source) -> None:
        """Join when all nodes answer, or tell which do not. Call at each tick."""
        if self._may_join() or self._roll.old:
            nids = self._cluster.partitions.nodes(readable_only=True)
            self._roll.call(nids, partial(self._all_answer, peer, source))
        late, before = self._roll.late, self._late
        self._late = late
        if late:
            self._explain(f"{format_nids(late)} of this standby owes its master an answer")
        elif before:
            self._explain(_NOT_NEAR)

    def _all_answer(self, peer: Peer, source: Source) -> None:
        current = source is self._source and not self._stopped
        if current and self._member is None and self._may_join():
            self._join(peer)

    def _join(self, peer: Peer) -> None:
        member = self._member = _Membership(peer)
        self._explain("it asked to join, and the upstream cluster has not answered yet")
        peer.ask(AskJoinSync()).then(partial(self._join_answered, member))

    def _join_answered(self, member: _Membership, future: Future[AnswerJoinSync]) -> None:
        if member is not self._member:
            return
        try:
            answer = future.result()
        except ConnectionLost:
            return  # lost() is called
        except ErrorAnswer as e:
            self.leave(e.message)
            return
        member.tid = max(answer.tid, self.cells.last)
        member.limit = self._now() + JOIN_SECONDS
        self._explain("it has just joined")
        self._marks.join(member.tid, answer.prepared_list)
        self.evaluate()

    def leave(self, reason: str) -> None:
        """Give up the lease, then refuse and abort what is not being locked (specification 25.18, 25.40).
        Idempotent."""
        member, self._member = self._member, None
        if member is None:
            return
        now = self._now()
        if steady := member.leased and now - member.begun >= STEADY_SECONDS:
            self._retry = RETRY_SECONDS
        # Commits did not wait for a backup that was refused.
        self._join_again = now + (RETRY_SECONDS if member.tid is None else self._retry)
        if member.tid is not None:
            self._losses.add(now, reason)
            if not steady:
                self._retry = min(2 * self._retry, RETRY_SECONDS_MAX)
        if member.leased:
            self._until = min(now, member.limit)
            self._memory.note(now - self._until, ended=True)
            self._since, self._reason = self._core.host.time(), reason
            logger.warning("this standby is not in sync any more: %s", reason)
        else:
            self._explain(reason)
        self._marks.left(reason)
        self._locking.drop(reason)
        if member.tid is not None:
            self._end_subscriptions()
        self._orders.give()

    def _end_subscriptions(self) -> None:
        for peer in self._cluster.storages():
            if peer.node is not None and FEATURE_OURS in peer.node.features:
                peer.send(NotifyLeft())

    # -- lease ---------------------------------------------------------------------------------------

    def _renew(self, member: _Membership, now: float) -> None:
        """Ask for another lease if it is time to, as precisely as ticks are."""
        if member.asked is not None and now - member.asked > LEASE_INTERVAL - TICK_SECONDS:
            self._ask_lease(member)

    def _ask_lease(self, member: _Membership) -> None:
        now = member.asked = self._now()
        member.peer.ask(AskSyncLease()).then(partial(self._leased, member, now))

    def _leased(
        self, member: _Membership, asked: float, future: Future[AnswerSyncLease]
    ) -> None:
        if member is not self._member:
            return
        try:
            future.result()
        except ConnectionLost:
            return
        except ErrorAnswer as e:
            self.leave(e.message)
            return
        if not member.leased:
            member.leased, self._since = True, self._core.host.time()
            member.begun = self._now()
            logger.info("this standby is in sync with its upstream cluster")
        member.limit = asked + LEASE_SECONDS
        if self.in_sync:
            self._memory.note(0.0)

    # -- transactions ----------------------------------------------------------------------------------

    def lock(self, peer: Peer, message_id: int, m: AskLockBackup) -> None:
        """Lock a transaction when it is its turn, then answer (AskLockBackup). Raise ErrorAnswer while
        the backup is no member."""
        if m.tid <= max(self._last, self.cells.complete):  # it was locked here before
            self._locking.answer_later(peer, message_id, m)
            self._locking.evaluate()
            return
        self._check_member()
        try:
            if m.tid <= self.cells.last:
                raise ValueError(f"transaction {m.tid.hex()} is not later than what was announced")
            self._locking.add(peer, message_id, m)
        except ValueError as e:
            self.leave(str(e))
            raise ErrorAnswer(ErrorCode.INCOMPLETE_TRANSACTION, str(e)) from None
        self._locking.evaluate()

    def _check_member(self) -> None:
        """Raise ErrorAnswer unless the upstream cluster waits for this backup."""
        if self._member is None or self._member.tid is None:
            raise ErrorAnswer(ErrorCode.INCOMPLETE_TRANSACTION, self._reason)

    def prepare(self, peer: Peer, message_id: int, m: AskPrepareBackup) -> None:
        """Keep a transaction that is prepared, then answer (AskPrepareBackup). Raise ErrorAnswer while
        the backup is no member."""
        self._check_member()
        self._marks.prepare(peer, message_id, m.mark)

    def aborted(self, ttid: bytes) -> None:
        """Drop a transaction that was rolled back upstream (NotifyAborted)."""
        self._marks.aborted(ttid)

    def prepared(self) -> list[PreparedRow]:
        """Return what is prepared upstream and kept here."""
        return self._marks.rows()

    def keeps(self, ttid: bytes) -> bool:
        """Return whether a transaction is prepared here."""
        return ttid in self._marks

    def heard(self, tid: bytes, oids: list[bytes]) -> bool:
        """Return whether a transaction that was committed upstream is here already (specification 25.23).
        Leave if the upstream cluster did not wait for this backup."""
        if tid <= self._last:
            return True
        if self._member is not None and self._member.tid is not None:
            self.leave("the upstream cluster went on without this standby")
        self._marks.heard(tid, oids)
        return False

    @property
    def may_lock(self) -> bool:
        """Whether all that was committed before the backup joined is complete, and no cell is about to
        become readable (specification 25.13, 25.21)."""
        member = self._member
        return member is not None and member.asked is not None and not self._holds(member)

    @property
    def may_keep(self) -> bool:
        """Whether all that was committed before the backup joined is complete: later transactions are
        committed when they are complete here (specification 25.50)."""
        member = self._member
        if member is None or member.tid is None:
            return False
        return member.asked is not None or (
            self._positions.table_kept and self.cells.complete >= member.tid
        )

    def unlocked(self, transaction: BackupTransaction) -> None:
        """Note a transaction that its nodes were told to unlock: they have nothing to fetch."""
        tid, cluster = transaction.tid, self._cluster
        self._last = tid
        self._marks.committed(transaction)
        cluster.tids.seen(tid)
        assert cluster.partitions.ptid is not None
        cluster.served(cluster.partitions.ptid)
        if tid > self.cells.last:  # else it was announced before, and cells fetch what they may lack
            self._taken = tid
            self.cells.unlocked(tid, transaction.rows.partitions, transaction.nodes)
            self._readers.heard(tid, transaction.oids)
        self._orders.give()

    # -- cells -----------------------------------------------------------------------------------------

    def evaluate(self) -> None:
        """Go on with what waited for cells to be complete, or for a partition table."""
        self._marks.evaluate()
        member = self._member
        if member is not None and member.asked is None and self.may_keep and self._marks.ready:
            member.limit = self._now() + LEASE_SECONDS
            self._ask_lease(member)
        self._locking.evaluate()
        if self._ending is not None and self._quiet():
            ending, self._ending = self._ending, None
            self._core.call_later(0.0, ending)

    def joined(self) -> list[tuple[int, int]]:
        """Return (partition, nid) of the cells that can be read from now on."""
        if self._locking.busy:
            return []
        # The upstream cluster may have acknowledged what was unlocked here.
        least = self._last if self._member is None else self.cells.last
        return self.cells.joined(least, self._marks.has)

    def _hold(self, member: _Membership, now: float) -> None:
        """Hold back locks for cells that are near the end."""
        if member.asked is None or now < member.hold_again:
            return
        near = [place for place, cell in self.cells.joining().items() if cell.tid >= self._heard[-1]]
        if near:
            member.held, member.held_until = near, now + HOLD_SECONDS
            member.hold_again = now + 3 * HOLD_SECONDS
            self._core.call_later(HOLD_SECONDS, self.evaluate)

    def _holds(self, member: _Membership) -> bool:
        """Whether locks are held back now."""
        if not member.held or self._now() >= member.held_until:
            return False
        joining = self.cells.joining()
        return any(place in joining for place in member.held)

    def storage_lost(self, nid: int) -> None:
        """Take a storage node out of all transactions. They go on when its cells are out of date."""
        self._locking.storage_lost(nid)
        self._marks.storage_lost(nid)
        self._core.call_later(0.0, self.evaluate)

    def cells_changed(self) -> None:
        if self._member is not None and (unable := self._unable()):
            self.leave(f"{format_nids(unable)} must be updated to take part")
        self._marks.ask()
        self._locking.cells_changed()

    # -- the end ---------------------------------------------------------------------------------------

    def end(self, ending: Callable[[], None]) -> None:
        """Leave, and call back when what was being locked is unlocked and durable: at once if it is
        (specification 25.25)."""
        self.leave("standby mode ends")
        if self._quiet():
            ending()
        else:
            self._ending = ending

    def _quiet(self) -> bool:
        """Return whether nothing is being locked, and what was is complete durably."""
        return not self._locking.busy and self.cells.complete >= self._taken

    def stop(self) -> None:
        """Forget everything: the stay in backup mode is over."""
        self._stopped = True
        self._member = self._source = self._ending = None
        self._locking.clear()
        self._marks.stop()

    def validate(self) -> None:
        """Assert the invariants. Called by tests and the simulator."""
        self._locking.pipeline.validate()
        member = self._member
        assert member is None or member.asked is None or member.tid is not None
        assert member is None or not member.leased or member.asked is not None
