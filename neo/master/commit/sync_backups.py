"""Synchronous backups of this cluster: which commits wait for which of them (specification 25).

Theory of operation
-------------------
::

    ASYNC ── AskJoinSync ──> JOINING ── first lease ──> SYNC ── lost ──> LOST ── lease over ──> ASYNC

A transaction that all storage nodes have locked is *offered*, in the order of tids: each backup that
joined is asked to lock it, and the transaction waits for each backup that is *required*. A backup is
required

* while it has joined,
* as long as it may hold a lease: until then it may take over and say that it lacks nothing,
* always, if the policy is to stop without it.

An earlier primary master may have granted leases, too, so that each backup is required for the length of
a lease after this one began. A backup that joins is asked to lock all that was offered and is not
finished.

Without the policy to stop, a transaction waits for a backup for the time-out and a lease in all: its time
goes on when the backup joins again, and a backup for which a transaction has waited too long joins when
that one is finished (specification 25.65).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from neo.master.cluster import Cluster
from neo.master.commit.transactions import State, Transaction, Transactions
from neo.master.denial import denied
from neo.master.election.lease import DRIFT
from neo.master.flapping import Losses
from neo.master.settings import MasterSettings, SyncPolicy
from neo.node.core import Core
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.enums import NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.packets import (
    Answer,
    AnswerJoinSync,
    AskLockBackup,
    AskPrepareBackup,
    NotifyAborted,
    Request,
    SyncMark,
    SyncRow,
)

logger = logging.getLogger("neo.master")

#: Length of a lease for the backup, and the longest time that it may hold one by the clock of this
#: master (specification 25.15).
LEASE_SECONDS = 2.0
LEASE_OVER_SECONDS = LEASE_SECONDS * (1 + DRIFT)
#: A backup that joined must have everything, and ask for its first lease, in this time.
JOIN_SECONDS = 1.0
#: Timers expire a little later than needed, because the clock of the loop is rounded.
ROUNDING_SECONDS = 0.001
#: Why a backup is not in sync, if this master has never heard of the backup.
NOT_JOINED = "it has not joined yet"


@dataclass(eq=False, slots=True)
class SyncBackup:
    """``over``: when its last lease is over, by this master's monotonic clock."""

    name: str
    over: float
    #: The connection of the backup's master, if the backup has joined; and whether the backup has asked
    #: for a lease on this connection.
    peer: Peer | None = None
    leased: bool = False
    #: How often the backup has joined: an answer to a request of an earlier membership does not count.
    joined: int = 0
    #: The transactions that were prepared when it joined: it has them when it asks for a lease.
    copied: set[bytes] = field(default_factory=set)
    #: Whether the operator lets commits wait for it.
    on: bool = True
    #: When it was asked to lock each transaction that it has not answered, by ttid.
    asked: dict[bytes, float] = field(default_factory=dict)
    #: Whether a timer is set for ``asked``, and another one for ``over``.
    watched: bool = False
    planned: bool = False
    #: Since when it is in sync, is not, or is switched off (specification 25.47): seconds since 1970;
    #: and why it is not in sync.
    since: float = 0.0
    reason: str = NOT_JOINED
    #: The greatest tid that it is known to have, and when it was in sync last.
    tid: bytes | None = None
    in_sync: float | None = None
    #: How often it was lost lately.
    losses: Losses = field(default_factory=Losses)


class SyncBackups:
    """Bounds: the names of the settings; for each the transactions that are being finished."""

    def __init__(
        self,
        cluster: Cluster,
        core: Core,
        transactions: Transactions[Peer],
        settings: MasterSettings,
    ) -> None:
        self._cluster = cluster
        self._core = core
        self._transactions = transactions
        self._stops = settings.sync_policy is SyncPolicy.STOP
        self._timeout = settings.sync_timeout
        over = core.host.monotonic() + LEASE_OVER_SECONDS
        self._backups = {name: SyncBackup(name, over) for name in settings.sync_backups}
        for backup in self._backups.values():
            backup.since = core.host.time()
        #: Whether there are any. Transactions are offered only then.
        self.configured = transactions.offers = bool(self._backups)

    def _required(self, backup: SyncBackup) -> bool:
        """Return whether nothing may be acknowledged without this standby."""
        if backup.peer is not None or self._core.host.monotonic() < backup.over:
            return True
        return backup.on and self._stops

    @property
    def lease_left(self) -> float:
        """The seconds until no lease of a backup that has not joined is left (specification 25.17)."""
        now = self._core.host.monotonic()
        return max((b.over - now for b in self._backups.values() if b.peer is None), default=0.0)

    # -- transactions ------------------------------------------------------------------------------

    def offer(self) -> None:
        """Offer the transactions that all storage nodes have locked, and all earlier ones. Call when the
        partition table is confirmed (specification 25.19)."""
        for transaction in self._transactions.to_offer():
            self._offer(transaction)

    def prepare(self, transaction: Transaction[Peer]) -> None:
        """Offer a transaction of which all storage nodes have the mark. It is prepared when it waits for
        no backup any more (specification 25.26)."""
        transaction.offered = True
        self._offer(transaction)

    def _offer(self, transaction: Transaction[Peer]) -> None:
        for backup in self._backups.values():
            if not self._required(backup):
                continue
            self._wait(backup, transaction)
            if backup.peer is not None:
                self._ask(backup, backup.peer, transaction)
            else:
                self._plan(backup)

    def _wait(self, backup: SyncBackup, transaction: Transaction[Peer]) -> None:
        """Let a transaction wait for a backup. Its wait counts from the first time that it waited for
        this backup."""
        transaction.backups.add(backup.name)
        transaction.waited.setdefault(backup.name, self._core.host.monotonic())

    def _overdue(self, backup: SyncBackup) -> float:
        """Return the seconds for which a transaction that is not finished has waited for this backup, if
        it may not wait for another join; else 0 (specification 25.65)."""
        now, name = self._core.host.monotonic(), backup.name
        waits = (
            now - t.waited[name]
            for t in self._transactions.all()
            if name in t.waited and t.state is not State.PREPARED
        )
        longest = max(waits, default=0.0)
        return 0.0 if self._stops or longest < self._timeout else longest

    def aborted(self, ttid: bytes) -> None:
        """Tell the backups that a transaction with a mark is rolled back (specification 25.27)."""
        for backup in self._backups.values():
            if backup.peer is not None:
                backup.peer.send(NotifyAborted(ttid))

    def _ask(self, backup: SyncBackup, peer: Peer, transaction: Transaction[Peer]) -> None:
        """Ask a backup to lock a transaction, or to keep it if it is being prepared."""
        ttid, tid = transaction.ttid, transaction.tid
        backup.asked[ttid] = transaction.waited[backup.name]
        request: Request[Answer]
        if tid is None:
            request = AskPrepareBackup(_mark(transaction))
        else:
            request = AskLockBackup(ttid, tid, transaction.stored)
        peer.ask(request).then(partial(self._answered, backup, backup.joined, transaction, tid))
        self._watch(backup)

    def _answered(
        self,
        backup: SyncBackup,
        joined: int,
        transaction: Transaction[Peer],
        tid: bytes | None,
        answer: Future[Answer],
    ) -> None:
        """``joined``: how often the backup had joined when it was asked. ``tid``: None if it was asked to
        keep the transaction prepared."""
        current = backup.peer is not None and backup.joined == joined
        if current:
            backup.asked.pop(transaction.ttid, None)
        try:
            answer.result()
        except ConnectionLost:
            return  # client_lost() follows
        except ErrorAnswer as e:
            if current:
                backup.over = self._core.host.monotonic()  # a backup that refuses holds no lease
                self._lose(backup, e.message or str(e))
            return
        if tid is not None:
            backup.tid = max(backup.tid or tid, tid)
        transaction.backups.discard(backup.name)
        self._cluster.events.commits_advanced()

    def _watch(self, backup: SyncBackup) -> None:
        """Declare the backup lost when an answer is late. With the policy to stop, wait without a limit:
        the backup may be fetching a large transaction."""
        if backup.watched or not backup.asked or self._stops:
            return
        oldest = min(backup.asked.values())
        backup.watched = True
        self._core.call_later(
            max(0.0, oldest + self._timeout - self._core.host.monotonic()) + ROUNDING_SECONDS,
            partial(self._check_asked, backup),
        )

    def _check_asked(self, backup: SyncBackup) -> None:
        backup.watched = False
        limit = self._core.host.monotonic() - self._timeout
        if any(asked <= limit for asked in backup.asked.values()):
            self._lose(backup, f"it did not lock a transaction within {self._timeout:g} seconds")
        self._watch(backup)

    def begin(self) -> None:
        """Count from now on since when backups are not in sync: before, they could not join."""
        for backup in self._backups.values():
            if backup.on:
                backup.since = self._core.host.time()

    # -- join and loss -----------------------------------------------------------------------------

    def join(self, peer: Peer, message_id: int) -> None:
        """Answer, and wait for this backup from now on. Raises ErrorAnswer (DENIED)."""
        backup = next(self._of(peer), None)
        if backup is None:
            names = ", ".join(sorted(peer.node.backups)) if peer.node is not None else ""
            raise denied(f"standby {names} is not in 'sync_backups' of the upstream cluster")
        if not backup.on:
            raise denied(f"the operator switched synchronous standby {backup.name} off")
        if seconds := self._overdue(backup):
            raise denied(
                f"a transaction has waited {seconds:.0f} seconds for synchronous standby {backup.name},"
                " and goes on without it first"
            )
        backup.joined += 1
        self._leave_sync(backup, "it has just joined", peer)
        logger.info("standby %s joins: commits wait for it", backup.name)
        prepared = [t for t in self._transactions.all() if _is_promised(t)]
        backup.copied = {transaction.ttid for transaction in prepared}
        peer.answer(
            message_id, AnswerJoinSync(self._cluster.last_tid, [_mark(t) for t in prepared])
        )
        for transaction in self._transactions.offered():
            self._wait(backup, transaction)
            self._ask(backup, peer, transaction)
        joined = backup.joined
        self._core.call_later(JOIN_SECONDS, partial(self._check_joined, backup, joined))

    def _check_joined(self, backup: SyncBackup, joined: int) -> None:
        if backup.peer is not None and backup.joined == joined and not backup.leased:
            self._lose(backup, "it joined, and was not in sync in time")

    def lease(self, peer: Peer) -> None:
        """Promise to acknowledge nothing without this standby for the length of a lease. Raises
        ErrorAnswer (DENIED) if it must join first."""
        backup = next((b for b in self._of(peer) if b.peer is peer), None)
        if backup is None:
            raise denied("the upstream cluster does not wait for this standby: it must join again")
        now = self._core.host.monotonic()
        if not backup.leased:
            backup.leased = True
            backup.since, backup.reason = self._core.host.time(), ""
            logger.info("standby %s is in sync", backup.name)
            for ttid in backup.copied:
                if (transaction := self._transactions.get(ttid)) is not None:
                    if transaction.state is State.PREPARING:
                        transaction.backups.discard(backup.name)
            self._cluster.events.commits_advanced()
        backup.over = now + LEASE_OVER_SECONDS
        backup.in_sync = now

    def synced(self, peer: Peer, tid: bytes) -> None:
        """Note that a backup which follows again has everything up to ``tid`` (specification 25.22)."""
        for backup in self._of(peer):
            backup.tid = max(backup.tid or tid, tid)
            for transaction in self._transactions.offered():
                assert transaction.tid is not None
                if transaction.tid <= tid:
                    transaction.backups.discard(backup.name)
        self._cluster.events.commits_advanced()

    def client_lost(self, client: Peer) -> None:
        for backup in self._backups.values():
            if backup.peer is client:
                self._lose(backup, "the connection with its master was lost")

    def _lose(self, backup: SyncBackup, reason: str) -> None:
        backup.losses.add(self._core.host.monotonic(), reason)
        self._leave_sync(backup, reason)
        logger.warning("synchronous standby %s is lost: %s", backup.name, reason)
        self._release(backup)

    def _release(self, backup: SyncBackup) -> None:
        """Go on without a backup, now or when its last lease is over, unless the policy is to stop."""
        if self._required(backup):
            self._plan(backup)
            return
        logger.warning("transactions are committed without synchronous standby %s", backup.name)
        for transaction in self._transactions.all():
            transaction.backups.discard(backup.name)
        self._cluster.events.commits_advanced()

    def _plan(self, backup: SyncBackup) -> None:
        """Look again when the last lease is over."""
        left = backup.over - self._core.host.monotonic()
        if left > 0 and not backup.planned and backup.peer is None:
            backup.planned = True
            self._core.call_later(left + ROUNDING_SECONDS, partial(self._lease_over, backup))

    def _lease_over(self, backup: SyncBackup) -> None:
        backup.planned = False
        if backup.peer is None:
            self._release(backup)

    def _of(self, peer: Peer) -> Iterator[SyncBackup]:
        """Yield the backups whose master this is: at most one in practice."""
        names = frozenset() if peer.node is None else peer.node.backups
        return (backup for name, backup in self._backups.items() if name in names)

    def _leave_sync(self, backup: SyncBackup, reason: str, peer: Peer | None = None) -> None:
        """Note why a backup is not in sync, and since when if it was. ``peer``: its master, if it has
        joined anew."""
        if backup.leased:
            backup.since = self._core.host.time()
        backup.peer, backup.leased, backup.reason = peer, False, reason
        backup.asked.clear()

    # -- operators ---------------------------------------------------------------------------------

    def rows(self) -> list[SyncRow]:
        """Return what AskSync tells (specification 25.28)."""
        now = self._core.host.monotonic()
        rows: list[SyncRow] = []
        for backup in self._backups.values():
            seconds = None if backup.in_sync is None else max(0.0, now - backup.in_sync)
            tid, since, reason = backup.tid, backup.since, self._reason(backup)
            if (ago := backup.losses.since(now)) is not None:
                reason = backup.losses.text(now)
                if not backup.leased:
                    since = min(since, self._core.host.time() - ago)
            late = now - min(backup.asked.values(), default=now)
            if late > self._timeout:
                state, since = "lost", self._core.host.time() - late
                reason = f"it has not locked a transaction for {late:.0f} seconds"
            elif backup.leased:
                state, tid, seconds = "sync", self._cluster.last_tid, 0.0
            elif backup.peer is not None:
                state = "joining"
            elif self._required(backup):
                state = "lost"
            else:
                state = "async" if backup.on else "off"
            rows.append((backup.name, state, since, tid, seconds, reason))
        return rows

    def _reason(self, backup: SyncBackup) -> str:
        """Return why a backup is not in sync. A backup that never joined may not exist at all."""
        if backup.reason != NOT_JOINED:
            return backup.reason
        if any(backup in self._of(peer) for peer in self._cluster.of_type(NodeType.CLIENT)):
            return "it has not joined yet: its master is connected, and knows why"
        return "it has not joined yet: its master is not connected"

    def switch(self, name: str, on: bool) -> None:
        """Let commits wait for a backup, or not, until this master ends. Raises ErrorAnswer (DENIED)."""
        backup = self._backups.get(name)
        if backup is None:
            raise denied(f"{name} is not in 'sync_backups'")
        if backup.on is on:
            return
        backup.on = on
        if on:
            backup.reason = NOT_JOINED
        else:
            self._lose(backup, "the operator switched it off")
        backup.losses.clear()
        backup.since = self._core.host.time()

    # -- the end -----------------------------------------------------------------------------------

    def clear(self) -> None:
        """Forget the backups that have joined: the operation stops, and clients are disconnected. Leases
        go on."""
        for backup in self._backups.values():
            if backup.peer is not None:
                self._leave_sync(backup, "the operation of this cluster was interrupted")


def _is_promised(transaction: Transaction[Peer]) -> bool:
    """Return whether a transaction is prepared, or waits for backups before it is; or is committed, and
    maybe locked nowhere yet (specification 25.51)."""
    if transaction.state is State.PREPARING:
        return transaction.offered
    return transaction.mark is not None


def _mark(transaction: Transaction[Peer]) -> SyncMark:
    mark, oids = transaction.mark, (transaction.stored, list(transaction.checked))
    assert mark is not None
    return transaction.ttid, mark.xid, mark.since, mark.text, sorted(mark.partitions), *oids
