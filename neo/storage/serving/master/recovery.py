"""RECOVERING and VERIFYING, and the start of the operation after these (specification 4, 7)."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol

from neo.node.handler import on
from neo.node.peer import Peer
from neo.protocol.errors import PeerError
from neo.protocol.ids import MAX_TID, p64
from neo.protocol.packets import (
    FEATURE_CHAINS,
    AnswerFinalTID,
    AnswerLastIDs,
    AnswerLockedTransactions,
    AnswerPartitionTable,
    AnswerRecovery,
    AnswerTails,
    AskFinalTID,
    AskLastIDs,
    AskLockedTransactions,
    AskPartitionTable,
    AskPreparedTransactions,
    AskRecovery,
    AskTails,
    Message,
    NotifyPrepared,
    NotifyReady,
    StartOperation,
    StopOperation,
    Truncate,
    ValidateTransaction,
)
from neo.storage.cells import Cells
from neo.storage.cluster import Cluster
from neo.storage.commit import dropped_ttids as dropped
from neo.storage.commit.participant import Participant
from neo.storage.database import Database
from neo.storage.prepared.transactions import PreparedTransactions
from neo.storage.replication.replicator import Replicator

logger = logging.getLogger("neo.storage")

#: Rows of a tail at most: ten times as many as this master asks for.
TAIL_MAX = 1000


class NodeControl(Protocol):
    """This node as a whole."""

    def start_operation(self, backup: bool) -> None: ...

    def stop_operation(self) -> None: ...


@dataclass(frozen=True, eq=False, repr=False)
class Recovery:
    """Answers what a starting cluster asks, and begins and ends the operation."""

    node: NodeControl
    database: Database
    cluster: Cluster
    cells: Cells
    participant: Participant
    prepared: PreparedTransactions
    replicator: Replicator

    @on(AskRecovery)
    def recovery(self, peer: Peer, message_id: int, m: AskRecovery) -> None:
        """Answer when all is durable: the master relies on that of ``truncate_tid``."""
        master = self.cluster.master
        if master is None or FEATURE_CHAINS not in master.features:
            self.participant.locks.forget_aborted()
        backend = self.database.backend
        self.database.answer_stored(
            peer,
            message_id,
            AnswerRecovery(
                self.cells.partitions.ptid,
                _tid(backend.tables.get_config("backup_tid")),
                _tid(backend.tables.get_config("truncate_tid")),
            ),
        )

    @on(AskPartitionTable)
    def partition_table(self, peer: Peer, message_id: int, m: AskPartitionTable) -> Message:
        table = self.cells.partitions
        return AnswerPartitionTable(table.ptid, table.replicas, table.row_list())

    @on(Truncate)
    def truncate(self, peer: Peer, message_id: int, m: Truncate) -> None:
        """Store the tid of a truncation, and leave standby mode; do not answer. All nodes delete the
        later data in VERIFYING."""
        self.database.backend.tables.set_config("truncate_tid", m.tid.hex())
        self.cells.backup.leave()

    @on(AskLockedTransactions)
    def locked_transactions(self, peer: Peer, message_id: int, m: AskLockedTransactions) -> Message:
        return AnswerLockedTransactions(dropped.voted(self.database.backend))

    @on(AskFinalTID)
    def final_tid(self, peer: Peer, message_id: int, m: AskFinalTID) -> Message:
        return AnswerFinalTID(self.database.backend.commits.final_tid(m.ttid))

    @on(ValidateTransaction)
    def validate(self, peer: Peer, message_id: int, m: ValidateTransaction) -> None:
        self.database.backend.commits.validate(m.ttid, m.tid)

    @on(AskPreparedTransactions)
    def prepared_transactions(
        self, peer: Peer, message_id: int, m: AskPreparedTransactions
    ) -> Message:
        return self.prepared.answer()

    @on(NotifyPrepared)
    def stay_prepared(self, peer: Peer, message_id: int, m: NotifyPrepared) -> None:
        if self.cluster.operational:
            self.replicator.prepared(m.ttid_list)
        else:
            self.participant.keep(m.ttid_list)

    @on(AskLastIDs)
    def last_ids(self, peer: Peer, message_id: int, m: AskLastIDs) -> None:
        """Truncate if that was ordered; answer when all earlier orders are durable: verification ends."""
        backend, cells = self.database.backend, self.cells
        truncate_tid = _tid(backend.tables.get_config("truncate_tid"))
        if truncate_tid is not None and self.cluster.nid is not None:
            logger.warning("everything later than %s is deleted", truncate_tid.hex())
            # Include partitions that are not assigned here any more: their data may not be erased yet.
            backend.maintenance.truncate(truncate_tid, range(len(cells.partitions)))
            self._truncated()
        readable = cells.readable()
        loid, ltid = backend.reads.last_ids(readable)
        if backend.tables.get_config("backup_tid") is not None:
            # The master searches this tid upstream. A deletion may have the tid of a pack, which is not
            # that of a transaction (see BackupFetch).
            ltid = next(iter(backend.reads.tids_descending(0, 1, readable)), None)
        self.database.answer_stored(peer, message_id, AnswerLastIDs(loid, ltid))

    @on(AskTails)
    def tails(self, peer: Peer, message_id: int, m: AskTails) -> Message:
        """Return the last committed rows, without those of transactions in progress."""
        backend = self.database.backend
        unproven, length = self.cells.proof.unproven(), max(1, min(m.length, TAIL_MAX))
        rows = []
        for partition in m.partition_list:
            tail = backend.reads.tail(partition, m.max_tid or MAX_TID, length)
            rows.append((partition, partition not in unproven, *tail))
        packed = p64(int(backend.tables.get_config("_pack_tid") or 0))
        return AnswerTails(packed, rows)

    @on(StartOperation)
    def start_operation(self, peer: Peer, message_id: int, m: StartOperation) -> None:
        if self.cells.partitions.ptid is None:
            raise PeerError("StartOperation before any partition table")
        if not self.cluster.operational:
            if (complaint := self.prepared.complaint()) is not None:
                logger.error("%s", complaint)
                raise PeerError(complaint)
            self._forget_truncation()
            self.cells.proof.accept(self.cells.readable())
            peer.send(NotifyReady())
        self.node.start_operation(m.backup)

    def _forget_truncation(self) -> None:
        """Truncate the cells that are not readable: this node was absent from a truncation. Commits may
        have followed it, which replication brings."""
        backend, cells = self.database.backend, self.cells
        truncate_tid = _tid(backend.tables.get_config("truncate_tid"))
        if truncate_tid is not None:
            logger.warning("a truncation after %s is over", truncate_tid.hex())
            kept = cells.readable()
            others = [p for p in range(len(cells.partitions)) if p not in kept]
            backend.maintenance.truncate(truncate_tid, others)
            self._truncated()

    def _truncated(self) -> None:
        self.database.backend.tables.set_config("truncate_tid", None)
        self.cells.backup.cut()

    @on(StopOperation)
    def stop_operation(self, peer: Peer, message_id: int, m: StopOperation) -> None:
        self.node.stop_operation()


def _tid(text: str | None) -> bytes | None:
    """Decode a tid from ``config``: 16 hexadecimal digits."""
    return None if text is None else bytes.fromhex(text)
