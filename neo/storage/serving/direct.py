"""Reads that another thread of the process makes itself, on what the database has committed.

A node in the process of its client (:mod:`neo.embedded`) need not be asked: the thread that wants an
object reads the file, while the thread of the event loop does other work. It reads tables of the node in
memory, and changes nothing of the node, so that an exception from outside harms only the read.

Why a direct read is never too old (specification 6.30 to 6.32)
---------------------------------------------------------------
The rows of a transaction come into ``obj`` and ``trans`` when it is unlocked, inside the open transaction
of the engine. A client knows of a transaction only after it was locked here. So the thread first checks
that no transaction is locked, then that everything that was unlocked is committed; its snapshot begins
after that. A transaction of which the client knew is unlocked by the first check, and in the snapshot by
the second one. In the other order a transaction could be unlocked between the two.

If a check fails, the client asks with a message, as any client; the thread has the event loop commit
what is unlocked, so that the next reads are direct.
"""

from __future__ import annotations

from typing import Protocol, cast

from neo.protocol.packets import (
    A,
    AnswerObject,
    AnswerTransactionInformation,
    AskObject,
    AskTransactionInformation,
    Request,
)
from neo.storage.backend.api import BackendFailure, RecordDamaged, Records
from neo.storage.cells import Cells
from neo.storage.cluster import Cluster
from neo.storage.database import Database
from neo.storage.host import StorageHost


class Unlocks(Protocol):
    """What is known of transactions that change committed data: the node's participant."""

    @property
    def changes(self) -> int:
        """Increases before rows of committed data change."""

    @property
    def any_locked(self) -> bool:
        """Whether a transaction is locked and not unlocked yet."""


class DirectReads:
    """The direct reads of one node. Without effect if its database has none for other threads."""

    def __init__(
        self,
        *,
        host: StorageHost,
        database: Database,
        cluster: Cluster,
        cells: Cells,
        unlocks: Unlocks,
    ) -> None:
        self._reads = database.backend.committed
        self._engine = database.backend.engine
        self._cluster = cluster
        self._cells = cells
        self._unlocks = unlocks
        self._from_thread = host.from_thread
        self._commit = database.guard(self._commit_unlocked)
        #: All changes up to this one are committed.
        self._committed = -1
        #: The event loop was told to commit the changes up to this one.
        self._wanted = -1

    def answer(self, message: Request[A]) -> A | None:
        """Return the answer of the node to AskObject or AskTransactionInformation; None if the client
        must ask with the message. Raise nothing. Any thread may call it."""
        reads = self._reads
        if reads is None:
            return None
        try:
            if isinstance(message, AskObject):
                if self._may_read(message.oid):
                    return cast("A | None", _object(reads, message))
            elif isinstance(message, AskTransactionInformation) and self._may_read(message.tid):
                return cast("A | None", _transaction(reads, message))
        except (BackendFailure, RecordDamaged):
            pass  # the node meets the same, and tells the client and the operator
        return None

    def _may_read(self, id_: bytes) -> bool:
        if not (self._cluster.operational and self._cells.has_readable(id_)):
            return False
        # In this order: see above.
        if self._unlocks.any_locked:
            return False
        changes = self._unlocks.changes
        if self._committed == changes:
            return True
        if self._wanted != changes:
            # First the call: an exception between the two lines must not prevent it for ever.
            self._from_thread(self._commit)
            self._wanted = changes
        return False

    def _commit_unlocked(self) -> None:
        """Have what is unlocked committed, without a sync. Called on the thread of the event loop."""
        changes = self._unlocks.changes

        def committed() -> None:
            self._committed = changes

        self._engine.written(committed)


def _object(reads: Records, m: AskObject) -> AnswerObject | None:
    record = reads.load(m.oid, m.at, m.before)
    return None if record is None else AnswerObject(m.oid, *record)


def _transaction(reads: Records, m: AskTransactionInformation) -> AnswerTransactionInformation | None:
    found = reads.transaction(m.tid)
    if found is None:
        return None
    return AnswerTransactionInformation(
        found.tid, found.user, found.description, found.extension, found.packed, found.oids
    )
