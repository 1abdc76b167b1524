"""The part that this node takes in two-phase commits: locks in memory, rows in the database."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from neo.node.host import Host
from neo.protocol.packets import NotifyDeadlock
from neo.storage.backend.api import Stored
from neo.storage.cells import Cells
from neo.storage.cluster import Cluster
from neo.storage.commit import dropped_ttids as dropped
from neo.storage.commit.locks import Locks
from neo.storage.commit.transactions import CellMode
from neo.storage.database import Database
from neo.storage.events import CellsChanged, Part
from neo.storage.prepared.waits import PreparedWaits


class Subscribers(Protocol):
    """The nodes of synchronous backups, which are sent votes."""

    @property
    def subscribers(self) -> Collection[object]: ...

    def ended(self, ttid: bytes) -> None:
        """Tell them that a transaction ended here."""


class Participant(Part):
    """Implements :class:`~neo.storage.commit.transactions.LockKeeper`."""

    def __init__(
        self,
        host: Host,
        database: Database,
        cluster: Cluster,
        cells: Cells,
        sync: Subscribers,
    ) -> None:
        self._database = database
        self._commits = database.backend.commits
        self._engine = database.backend.engine
        self._backend = database.backend
        self._cluster = cluster
        self._cells = cells
        self._sync = sync
        self._waits = PreparedWaits(host, database)
        self._kept: set[bytes] = set()
        # Called at each attempt to lock: not wrapped.
        self.cell_mode = cells.mode
        self.last_serial = database.backend.reads.last_serial
        self.clock = host.monotonic
        self.locks = Locks(self)
        #: Increases before rows of committed data change.
        self.changes = 0

    @property
    def any_locked(self) -> bool:
        """Return whether a transaction is locked and not unlocked yet."""
        return self.locks.any_locked

    # -- what the locks ask and tell --------------------------------------------------------------

    def deadlock(self, ttid: bytes, locking_tid: bytes) -> None:
        self._cluster.tell_master(NotifyDeadlock(ttid, locking_tid))

    def discard(self, stored: Stored) -> None:
        if stored.data_id is not None:
            self._backend.values.release_data((stored.data_id,))

    def watch(self) -> None:
        """Bound the waits for prepared transactions: there is one, and maybe a request is delayed."""
        self._waits.watch(self.locks)

    # -- orders of the master --------------------------------------------------------------------

    def unlock(self, ttid: bytes) -> bool:
        """Handle NotifyUnlockInformation; return False if the transaction is not locked here."""
        tid = self.locks.final_tid(ttid)
        if tid is None:
            return False
        self.changes += 1
        self._commits.unlock(ttid, tid)
        if self._sync.subscribers:
            self._sync.ended(ttid)
        self._engine.executed(self._database.guard(lambda: self._unlocked(ttid)))
        self._database.commit_soon()
        return True

    def _unlocked(self, ttid: bytes) -> None:
        # The operation may have stopped meanwhile.
        if self.locks.final_tid(ttid) is not None:
            self.locks.unlock(ttid)

    def abort(self, ttid: bytes) -> None:
        """Handle AbortTransaction from the master."""
        if self.locks.abort(ttid, None):
            dropped.remember(self._backend.tables, [ttid])
            self._commits.abort(ttid)
            self._sync.ended(ttid)

    def finished(self, ttid: bytes) -> None:
        """Handle NotifyTransactionFinished: drop a vote of this node if the transaction began before the
        node was ready. The master did not ask it to lock, and replication brings the data."""
        if self.locks.abort(ttid, None):
            self._commits.abort(ttid)
            self._sync.ended(ttid)

    def keep(self, ttids: Iterable[bytes]) -> None:
        """Handle NotifyPrepared in VERIFYING: keep these marked votes when the operation starts."""
        self._kept.update(ttids)

    # -- events ----------------------------------------------------------------------------------

    def operation_started(self) -> None:
        """Drop the votes that verification left uncommitted, except for prepared ones that stay
        (specification 24.20)."""
        self.changes += 1  # verification wrote rows
        kept = self._kept.intersection(mark.ttid for mark in self._backend.marks.prepared())
        dropped.remember(self._backend.tables, self._commits.locked_transactions().keys() - kept)
        self._commits.drop_unfinished(kept)

    def cells_changed(self, change: CellsChanged) -> None:
        """Adapt the locks to the new states of the own cells."""
        self.changes += 1  # replication may have written rows
        mode = self._cells.mode
        self.locks.replicated(lambda oid: mode(oid) is CellMode.NORMAL)
        self.locks.lose(lambda oid: mode(oid) is CellMode.ABSENT)

    def client_lost(self, nid: int) -> None:
        """Drop the client's transactions that are not locked."""
        ttids = self.locks.client_down(nid)
        dropped.remember(self._backend.tables, ttids)
        for ttid in ttids:
            self._commits.abort(ttid)
            self._sync.ended(ttid)

    def operation_stopped(self) -> None:
        """Discard what has not voted, and leave the rest to verification."""
        self.locks.clear()
        self._kept.clear()
