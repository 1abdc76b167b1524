"""Prepared transactions of a storage node (specification 24).

Theory of operation
-------------------
A prepared transaction is a voted one with a mark, which is in the database (the mark, the checks) and in
:class:`~neo.storage.commit.locks.Locks` (the xid). The mark counts from the receipt of
AskPrepareInformation on: from then on neither the client nor its loss ends the transaction. Only the
master does, by NotifyUnlockInformation, AbortTransaction or ValidateTransaction. The backend deletes the
mark in the database transaction that ends the transaction.

When the operation starts, :class:`~neo.storage.commit.participant.Participant` drops all votes but those
that the master wants to stay. This part then takes the locks of these again, from the tables.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_TID, format_xid
from neo.protocol.packets import (
    FEATURE_OURS,
    AnswerPreparedTransactions,
    AskPrepareInformation,
    AskRollbackPrepared,
    PreparedMark,
)
from neo.storage.backend.api import Decided, Prepared
from neo.storage.cells import Cells
from neo.storage.cluster import Cluster
from neo.storage.commit.participant import Participant
from neo.storage.commit.transactions import Change
from neo.storage.database import Database
from neo.storage.events import CellsChanged, Part

logger = logging.getLogger("neo.storage")


class PreparedTransactions(Part):
    def __init__(
        self, database: Database, cluster: Cluster, cells: Cells, participant: Participant
    ) -> None:
        self._marks = database.backend.marks
        self._commits = database.backend.commits
        self._cluster = cluster
        self._cells = cells
        self._participant = participant
        self._locks = participant.locks

    # -- requests of the master --------------------------------------------------------------------

    def prepare(self, m: AskPrepareInformation) -> None:
        """Mark a voted transaction. Raises TransactionRefused if it has not voted here, ErrorAnswer, and
        BackendRefused; the transaction is then as it was. Do nothing if clients store nothing here
        because all cells are corrupted or gone."""
        check_partitions(self._cells, m.partition_list)
        if self._locks.phase(m.ttid) is None and not any(map(self._is_writable, m.partition_list)):
            return
        checks = self._locks.checks(m.ttid)
        mark = Prepared(m.ttid, m.xid, m.since, m.text, m.partition_list)
        self._marks.mark_prepared(mark, checks)
        self._locks.prepare(m.ttid, m.xid)
        self._participant.watch()

    def _is_writable(self, partition: int) -> bool:
        state = self._cells.state(partition)
        return state is not None and state.writable

    def answer(self) -> AnswerPreparedTransactions:
        """Return the answer to AskPreparedTransactions."""
        marks: list[PreparedMark] = []
        for ttid, xid, since, text, partitions in self._marks.prepared():
            rows = self._commits.prepared_rows(ttid)
            stored = [change.oid for change in rows.stored]
            checked = [oid for oid, _ in rows.checks]
            marks.append((ttid, xid, since, text, list(partitions), stored, checked))
        return AnswerPreparedTransactions(marks, [*self._marks.decided()])

    def roll_back(self, m: AskRollbackPrepared) -> None:
        """Remember an outcome; AbortTransaction follows."""
        self._marks.decide([Decided(m.xid, m.ttid, None, m.time)])

    def forget(self, xid: bytes) -> None:
        """Forget an outcome."""
        self._marks.forget_decided(xid)

    def complaint(self) -> str | None:
        """Return why this node must not start the operation; None if it may (specification 24.22)."""
        master, marks = self._cluster.master, self._marks.prepared()
        if not marks or master is None or FEATURE_OURS in master.features:
            return None
        return (
            f"this node has {len(marks)} prepared transactions, such as {format_xid(marks[0].xid)}, and"
            " the program of the master does not know them: update the master"
        )

    # -- events ------------------------------------------------------------------------------------

    def operation_started(self) -> None:
        """Take the locks of prepared transactions again. The serials are not compared: the locks were
        never free in a readable cell (specification 24.20)."""
        for mark in self._marks.prepared():
            rows = self._commits.prepared_rows(mark.ttid)
            self._locks.restore(mark.ttid, mark.xid, rows.metadata is not None)
            for stored in rows.stored:
                self._locks.restore_change(mark.ttid, stored.oid, Change(ZERO_TID, stored))
            for oid, serial in rows.checks:
                self._locks.restore_change(mark.ttid, oid, Change(serial, None))
            logger.info("transaction %s is still prepared", format_xid(mark.xid))
        self._drop_absent()

    def cells_changed(self, change: CellsChanged) -> None:
        if change.dropped:
            self._drop_absent()

    def _drop_absent(self) -> None:
        """Drop prepared transactions of which this node has no cell: the master does not ask it to lock
        them (specification 24.35)."""
        assigned = set(self._cells.assigned())
        for mark in self._marks.prepared():
            if mark.ttid in self._locks.prepared and assigned.isdisjoint(mark.partitions):
                self._participant.abort(mark.ttid)


def check_partitions(cells: Cells, partitions: Iterable[int]) -> None:
    """Raise ErrorAnswer if the database does not have one of these partitions."""
    count = len(cells.partitions)
    for partition in partitions:
        if partition >= count:
            raise ErrorAnswer(
                ErrorCode.PROTOCOL_ERROR, f"there are {count} partitions, not {partition}"
            )
