"""The tid up to which each own cell of a backup is complete.

* ``backup_tid`` in the database: the least of them over the readable cells; over all of them while none
  can be read, so that a node remembers to be a backup's before the master makes its cells readable. It
  is written together with the data, so that it is never more than what is on disk; after a restart all
  cells begin there. It appears with the first order, not before: a node that has none has what a
  RUNNING cluster had.
* Truncate ends backup mode, so ``backup_tid`` goes with it, durably and at once: no master may take the
  node for one of a backup again. Own cells are still complete only up to that tid, though some of what is
  later was fetched already. The row ``_left_backup_tid`` keeps it until the data is cut.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from neo.protocol.ids import ZERO_TID
from neo.storage.backend.api import LEFT_BACKUP_TID
from neo.storage.database import Database

logger = logging.getLogger("neo.storage")


class BackupProgress:
    def __init__(self, database: Database, readable: Callable[[], Sequence[int]]) -> None:
        """``readable()``: the partitions whose own cell can be read."""
        self._database = database
        self._backend = database.backend
        self._readable = readable
        #: Whether this cluster is a backup, and operational.
        self.active = False
        self._complete: dict[int, bytes] = {}

    def start(self, active: bool, nid: int) -> None:
        """StartOperation. ``active``: this cluster is a backup."""
        if self.active and active:
            return
        self.active = active
        backend = self._backend
        remembered = backend.get_config("backup_tid")
        if not active:
            if remembered is not None:
                # The mode ended while this node was away: what it has may not have happened.
                logger.warning("the cluster is no backup any more: own cells are compared in whole")
                backend.forget_complete(nid)
                backend.set_config("backup_tid", None)
                self._database.commit_soon()
            return
        for partition in self._readable():
            if remembered is not None:
                self._complete[partition] = bytes.fromhex(remembered)
            else:
                self._complete[partition] = backend.last_ids([partition])[1] or ZERO_TID

    def stop(self) -> None:
        """The operation stops."""
        self.active = False
        self._complete = {}

    def leave(self) -> None:
        """Stop being a backup's node: Truncate. Call :meth:`cut` when the data is cut."""
        complete = self._backend.get_config("backup_tid")
        if complete is not None:
            self._backend.set_config(LEFT_BACKUP_TID, complete)
            self._backend.set_config("backup_tid", None)

    def cut(self) -> None:
        """What is left after a truncation is a database of its own."""
        for row in ("backup_tid", LEFT_BACKUP_TID):
            self._backend.set_config(row, None)

    # -- questions -------------------------------------------------------------------------------

    def tid(self, partition: int) -> bytes | None:
        """The tid up to which an own cell is complete; None if it is not known to be."""
        return self._complete.get(partition)

    def has(self, partition: int, tid: bytes) -> bool:
        """Whether the own readable cell can be a source up to ``tid``."""
        return not self.active or self._complete.get(partition, ZERO_TID) >= tid

    def has_readable(self, partition: int, tid: bytes) -> bool:
        """Whether there is a cell here that readers of a backup are shown up to ``tid``."""
        readable = partition in self._readable()
        return self.active and readable and self.has(partition, tid)

    # -- progress --------------------------------------------------------------------------------

    def advance(self, partition: int, tid: bytes) -> None:
        """An own cell is complete up to ``tid``. Call :meth:`remember` before the master is told."""
        self._complete[partition] = max(tid, self._complete.get(partition, ZERO_TID))

    def replicated(self, partition: int, tid: bytes) -> None:
        """An own cell that was out of date is complete; it cannot be read yet. The cluster may become a
        backup before it can. Call before what is stored is durable, and the master is told."""
        self.advance(partition, tid)
        if self.active:
            self.remember()

    def told_late(self, tids: Iterable[bytes]) -> None:
        """SendPartitionTable: own cells can be read that were out of date in this node's table, and
        complete up to these tids. Written in the same transaction as the table."""
        least = min((tid.hex() for tid in tids), default=None)
        for row in ("backup_tid", LEFT_BACKUP_TID):
            remembered = self._backend.get_config(row)
            if remembered is not None and least is not None and least < remembered:
                self._backend.set_config(row, least)

    def lost(self, partitions: Iterable[int]) -> None:
        """NotifyPartitionChanges: own cells cannot be read any more. Written in the same transaction."""
        for partition in partitions:
            self._complete.pop(partition, None)
        if self.active:
            self.remember()

    def remember(self) -> None:
        """Write ``backup_tid``."""
        partitions = self._readable() or self._complete
        if partitions:
            tid = min(self._complete.get(partition, ZERO_TID) for partition in partitions).hex()
            if self._backend.get_config("backup_tid") != tid:
                self._backend.set_config("backup_tid", tid)
                self._database.commit_soon()
