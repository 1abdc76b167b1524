"""The tid up to which each own cell of a backup is complete.

* The row ``backup_tid`` of ``config`` is the least of these tids over the readable cells. While no cell
  is readable, it is the least over all cells, so that the node knows after a restart that it belongs to
  a backup. It is written in the database transaction of the data, so it is never greater than what is
  on disk; after a restart all cells continue from it. The first order creates it: a node without it has
  the data of a RUNNING cluster.
* Truncate ends backup mode and deletes ``backup_tid`` durably and at once, because no master may take the
  node for one of a backup again. Own cells are still complete only up to that tid, though some later
  data was fetched already. The row ``_left_backup_tid`` keeps it until that data is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from neo.protocol.ids import ZERO_TID
from neo.storage.backend.api import LEFT_BACKUP_TID
from neo.storage.database import Database

#: Row of ``config``: until when this backup was in sync (specification 25.68).
_SYNC_UNTIL = "_sync_until"

logger = logging.getLogger("neo.storage")


class BackupProgress:
    def __init__(self, database: Database, readable: Callable[[], Sequence[int]]) -> None:
        """``readable()`` returns the partitions whose own cell is readable."""
        self._database = database
        self._tables = database.backend.tables
        self._backend = database.backend
        self._readable = readable
        #: Whether this cluster is a backup and operational.
        self.active = False
        self._complete: dict[int, bytes] = {}

    def start(self, active: bool, nid: int) -> None:
        """Handle StartOperation. ``active``: this cluster is a backup."""
        if self.active and active:
            return
        self.active = active
        backend = self._backend
        remembered = backend.tables.get_config("backup_tid")
        if not active:
            if remembered is not None:
                # The mode ended while this node was away: its data may have been given up.
                logger.warning(
                    "the cluster is no standby any more: all data of own cells is compared"
                )
                backend.tables.forget_complete(nid)
                backend.tables.set_config("backup_tid", None)
                backend.tables.set_config(_SYNC_UNTIL, None)
                self._database.commit_soon()
            return
        for partition in self._readable():
            if remembered is not None:
                self._complete[partition] = bytes.fromhex(remembered)
            else:
                self._complete[partition] = backend.reads.last_ids([partition])[1] or ZERO_TID

    def stop(self) -> None:
        """Forget the tids: the operation stops."""
        self.active = False
        self._complete = {}

    def leave(self) -> None:
        """Handle Truncate: leave standby mode. Call :meth:`cut` when the data is truncated."""
        complete = self._tables.get_config("backup_tid")
        if complete is not None:
            self._tables.set_config(LEFT_BACKUP_TID, complete)
            self._tables.set_config("backup_tid", None)

    def cut(self) -> None:
        """Delete both rows: the data is truncated, and this cluster is no standby."""
        for row in ("backup_tid", LEFT_BACKUP_TID, _SYNC_UNTIL):
            self._tables.set_config(row, None)

    # -- in sync ---------------------------------------------------------------------------------

    def in_sync(self, until: float) -> None:
        """Remember until when this backup was in sync (NotifyInSync)."""
        if self.active:
            self._tables.set_config(_SYNC_UNTIL, repr(until))
            self._database.commit_soon()

    def in_sync_until(self) -> float | None:
        """Return what was remembered; None if nothing was, or the cluster has left backup mode."""
        if self._tables.get_config("backup_tid") is None:
            return None
        until = self._tables.get_config(_SYNC_UNTIL)
        return None if until is None else float(until)

    # -- questions -------------------------------------------------------------------------------

    def tid(self, partition: int) -> bytes | None:
        """Return the tid up to which an own cell is complete; None if that is not known."""
        return self._complete.get(partition)

    def has(self, partition: int, tid: bytes) -> bool:
        """Return whether the own readable cell can be a source up to ``tid``."""
        return not self.active or self._complete.get(partition, ZERO_TID) >= tid

    def has_readable(self, partition: int, tid: bytes) -> bool:
        """Return whether the own cell serves clients of a backup up to ``tid``."""
        readable = partition in self._readable()
        return self.active and readable and self.has(partition, tid)

    # -- progress --------------------------------------------------------------------------------

    def advance(self, partition: int, tid: bytes) -> None:
        """Note that an own cell is complete up to ``tid``. :meth:`remember` stores that."""
        self._complete[partition] = max(tid, self._complete.get(partition, ZERO_TID))

    def replicated(self, partition: int, tid: bytes) -> None:
        """Note that an own cell that was out of date is complete up to ``tid``, but not yet readable.

        The cluster may become a backup before it is. Call before the master is told."""
        self.advance(partition, tid)
        if self.active:
            self.remember()

    def synced(self, tid: bytes) -> None:
        """Handle NotifySynced in VERIFYING: raise ``backup_tid``, which is true of the transactions that
        were validated before (specification 25.24)."""
        remembered = self._tables.get_config("backup_tid")
        if remembered is not None and remembered < tid.hex():
            self._tables.set_config("backup_tid", tid.hex())

    def lower(self, tids: Iterable[bytes]) -> None:
        """Lower ``backup_tid`` to these tids: a new table makes cells readable that were OUT_OF_DATE
        here, and complete up to them. Call in the database transaction of the table."""
        least = min((tid.hex() for tid in tids), default=None)
        for row in ("backup_tid", LEFT_BACKUP_TID):
            remembered = self._tables.get_config(row)
            if remembered is not None and least is not None and least < remembered:
                self._tables.set_config(row, least)

    def lost(self, partitions: Iterable[int]) -> None:
        """Forget own cells that are not readable any more, in the database transaction of that change."""
        for partition in partitions:
            self._complete.pop(partition, None)
        if self.active:
            self.remember()

    def remember(self) -> None:
        """Write ``backup_tid``."""
        partitions = self._readable() or self._complete
        if partitions:
            tid = min(self._complete.get(partition, ZERO_TID) for partition in partitions).hex()
            if self._tables.get_config("backup_tid") != tid:
                self._tables.set_config("backup_tid", tid)
                self._database.commit_soon()
