"""What a synchronous backup promises (specification 25).

* While the backup is in sync, the upstream cluster acknowledges nothing that the backup does not have
  durably; with the policy to stop it acknowledges nothing without the backup at all.
* What the backup had then it keeps, whatever fails afterwards: when it leaves backup mode it is there.
* The backup locks nothing before all nodes upstream have locked it.
* Readers of the backup see nothing before it can be seen upstream.
* While the backup is in sync it keeps what is prepared upstream.
* With the policy to continue, no transaction waits for the backup for longer than the time-out and a
  lease in all.
* When nothing fails any more the backup joins, and stays in sync.

The loss of the upstream cluster is a part of its own (:mod:`tests.simulator.sync_loss`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from neo.master.commit.coordinator import Coordinator
from neo.master.commit.sync_backups import LEASE_OVER_SECONDS
from neo.master.commit.transactions import State, Transaction
from neo.master.following.backup import Backup
from neo.master.settings import MasterSettings, SyncPolicy
from neo.master.sync.locking import Locking
from neo.master.sync.pipeline import BackupTransaction
from neo.master.sync.synchronous import Synchronous
from neo.node.peer import Peer
from neo.protocol.enums import ClusterState, NodeType
from neo.protocol.ids import ZERO_TID
from tests.simulator.cluster import HEAL_SECONDS, Cluster
from tests.simulator.history import History
from tests.simulator.planting import plant
from tests.simulator.world import Violation, World

#: Longest time for which a transaction waits for the backup, in a world whose clocks are wrong by 2.4 %;
#: the watch looks five times in a second.
LONGEST_SECONDS = (MasterSettings.sync_timeout + LEASE_OVER_SECONDS) * 1.025 + 0.5


class SyncWatch:
    """``backup`` is a synchronous backup of ``upstream``."""

    def __init__(self, backup: Cluster, upstream: Cluster, history: History) -> None:
        self._backup = backup
        self._upstream = upstream
        self._history = history
        #: The greatest tid that the backup must have from now on.
        self.promised = ZERO_TID
        #: Since when each transaction waits for the backup, with its master: a new one begins anew. What
        #: is prepared is another wait than its commit.
        self._waiting: dict[tuple[str, int, bytes, State], float] = {}

    @property
    def synchronous(self) -> Synchronous | None:
        """Return what the primary master of the backup knows about this, if it is in backup mode."""
        master = self._backup.master_core
        return None if master is None else master.backup.synchronous

    @property
    def in_sync(self) -> bool:
        """Return whether the backup says so."""
        synchronous = self.synchronous
        return synchronous is not None and synchronous.in_sync

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside the block, fail the world when the upstream cluster acknowledges a transaction too
        early, or the backup locks or shows it too early."""
        finish = Coordinator._finish

        def watched(coordinator: Coordinator, transaction: Transaction[Peer]) -> None:
            master = self._upstream.master_core
            if (
                master is not None
                and master.coordinator is coordinator
                and list(master.cluster.of_type(NodeType.CLIENT))  # else nobody is told
            ):
                assert transaction.tid is not None
                self._acknowledged(coordinator, transaction.tid)
            finish(coordinator, transaction)

        show = Backup._show

        def watched_show(backup: Backup, before: bytes) -> None:
            master = self._backup.master_core
            if master is not None and master.backup.current is backup:
                self._shown(backup.cells.tid)
            show(backup, before)

        lock = Locking._lock

        def watched_lock(locking: Locking, transaction: BackupTransaction) -> None:
            self._locks(transaction)
            lock(locking, transaction)

        patches = [(Backup, "_show", watched_show), (Locking, "_lock", watched_lock)]
        with plant([(Coordinator, "_finish", watched), *patches]):
            yield

    def _locks(self, transaction: BackupTransaction) -> None:
        upstream = self._upstream.master_core
        if upstream is not None:
            there = upstream.coordinator.transactions.get(transaction.ttid)
            if there is not None and there.waiting:
                self._backup.world.fail(
                    Violation(
                        f"the backup locks {transaction.tid.hex()} before all nodes upstream have"
                    )
                )

    def _acknowledged(self, coordinator: Coordinator, tid: bytes) -> None:
        synchronous, world = self.synchronous, self._backup.world
        if synchronous is None:
            return
        if synchronous.in_sync:
            if synchronous.cells.complete < tid:
                world.fail(
                    Violation(
                        f"{tid.hex()} is acknowledged, and the backup, which is in sync, is complete up"
                        f" to {synchronous.cells.complete.hex()}"
                    )
                )
        elif self._upstream.sync_policy is SyncPolicy.STOP and synchronous.cells.last < tid:
            # A backup that was switched off is not waited for when its last lease is over.
            if not any(row[1] in ("off", "async") for row in coordinator.backups.rows()):
                world.fail(Violation(f"{tid.hex()} is acknowledged without a backup"))

    def _shown(self, tid: bytes) -> None:
        upstream = self._upstream.master_core
        if upstream is None or upstream.cluster.state is not ClusterState.RUNNING:
            return
        if tid > upstream.cluster.last_tid:
            last = upstream.cluster.last_tid.hex()
            self._backup.world.fail(
                Violation(f"the backup shows {tid.hex()}, and the upstream cluster {last} only")
            )

    def look(self) -> None:
        """Check what the backup promises now, and note it. Call at any time, the more often the better.
        Raise Violation."""
        self._look_at_waits()
        synchronous = self.synchronous
        if synchronous is None:
            return
        synchronous.validate()
        if not synchronous.in_sync:
            return
        self.promised = max(self.promised, self._history.acknowledged_tid)
        if synchronous.cells.complete < self.promised:
            raise Violation(
                f"the backup is in sync, and complete up to {synchronous.cells.complete.hex()}, but"
                f" {self.promised.hex()} was acknowledged"
            )
        upstream = self._upstream.master_core
        if upstream is not None:
            for transaction in upstream.coordinator.transactions.all():
                ttid = transaction.ttid
                if transaction.state is State.PREPARED and not synchronous.keeps(ttid):
                    raise Violation(
                        f"the backup is in sync, and transaction {ttid.hex()}, which is prepared"
                        " upstream, is not prepared in it"
                    )

    def _look_at_waits(self) -> None:
        """Raise Violation if a transaction waits for the backup for too long."""
        master, process = self._upstream.master_core, self._upstream.master
        if master is None or process.paused or self._upstream.sync_policy is SyncPolicy.STOP:
            self._waiting = {}
            return
        now = self._upstream.world.now
        before, self._waiting = self._waiting, {}
        for transaction in master.coordinator.transactions.all():
            if not transaction.backups:
                continue
            key = (process.name, process.lives, transaction.ttid, transaction.state)
            since = self._waiting[key] = before.get(key, now)
            if now - since > LONGEST_SECONDS:
                raise Violation(
                    f"transaction {transaction.ttid.hex()} waits for the backup for"
                    f" {now - since:.1f} seconds, and the policy is to continue"
                )

    def judge(self, tid: bytes) -> None:
        """Raise Violation if a backup that was left at ``tid`` lacks what it promised."""
        if tid < self.promised:
            raise Violation(
                f"the backup was left at {tid.hex()}, and was in sync when {self.promised.hex()} had"
                " been acknowledged"
            )

    def wait(self, world: World) -> None:
        """Run until the backup is in sync."""
        world.run_until(lambda: self.in_sync, HEAL_SECONDS, "the backup is in sync")
