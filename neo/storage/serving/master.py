"""Requests and orders of the primary master (specification 4, 7)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from neo.node.handler import on
from neo.node.host import Host
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode, NodeState, NodeType
from neo.protocol.errors import ErrorAnswer, PeerError
from neo.protocol.ids import MAX_TID, p64
from neo.protocol.packets import (
    AbortTransaction,
    Address,
    AnswerConditions,
    AnswerFinalTID,
    AnswerInformationLocked,
    AnswerLastIDs,
    AnswerLockedTransactions,
    AnswerLocks,
    AnswerPartitionTable,
    AnswerPrepareInformation,
    AnswerRecovery,
    AnswerRollbackPrepared,
    AnswerTails,
    AskConditions,
    AskContentState,
    AskFinalTID,
    AskLastIDs,
    AskLockedTransactions,
    AskLockInformation,
    AskLocks,
    AskLostContents,
    AskPack,
    AskPartitionTable,
    AskPreparedTransactions,
    AskPrepareInformation,
    AskRecovery,
    AskRollbackPrepared,
    AskTails,
    AskVoted,
    CheckPartition,
    Error,
    FlushLog,
    ForgetPrepared,
    MendCell,
    Message,
    NotifyClusterInformation,
    NotifyFeatures,
    NotifyInSync,
    NotifyLeft,
    NotifyNodeInformation,
    NotifyOperation,
    NotifyOperationEnded,
    NotifyOperationState,
    NotifyPartitionChanges,
    NotifyPrepared,
    NotifyReady,
    NotifyRepair,
    NotifySynced,
    NotifyTransactionFinished,
    NotifyUnlockInformation,
    Replicate,
    SendPartitionTable,
    StartOperation,
    StopOperation,
    Truncate,
    ValidateTransaction,
    VerifyContents,
)
from neo.storage.blobs.state import ContentStates
from neo.storage.blobs.verify import Verifier
from neo.storage.cells import Cells
from neo.storage.cluster import Cluster
from neo.storage.commit import dropped_ttids as dropped
from neo.storage.commit.participant import Participant
from neo.storage.conditions import Conditions
from neo.storage.events import CellsChanged
from neo.storage.following.replicator import BackupReplicator
from neo.storage.links import Links
from neo.storage.maintenance.check import Checker
from neo.storage.maintenance.cleanup import Eraser, Orphans
from neo.storage.maintenance.pack import Packer
from neo.storage.operations.part import Operations
from neo.storage.prepared.transactions import PreparedTransactions
from neo.storage.replication.replicator import Replicator
from neo.storage.serving.handler import StorageHandler
from neo.storage.serving.identification import Identification
from neo.storage.sync.received_votes import ReceivedVotes
from neo.storage.sync.vote_fetch import VoteFetch
from neo.topology.masters import MasterCandidates
from neo.topology.mirror import check_changes, check_table
from neo.topology.nodes import Node
from neo.topology.partitions import PartitionTable

logger = logging.getLogger("neo.storage")

#: Rows of a tail at most: ten times as many as this master asks for.
TAIL_MAX = 1000


class NodeControl(Protocol):
    """The node as a whole, as far as the primary master decides about it."""

    @property
    def stopped(self) -> bool: ...

    def start_operation(self, backup: bool) -> None: ...

    def cells_changed(self, change: CellsChanged) -> None: ...

    def client_lost(self, nid: int) -> None: ...

    def stop_operation(self) -> None: ...

    def master_lost(self, reason: str) -> None: ...

    def stop(self, code: int) -> None: ...

    def erase(self) -> None: ...

    def fail(self, error: Exception) -> None: ...


@dataclass(eq=False, repr=False)
class ServeMaster(StorageHandler):
    """The handler of the primary master after it has accepted this node."""

    may_refuse = False

    node: NodeControl
    host: Host
    masters: MasterCandidates
    #: Stores the addresses of known masters.
    remember: Callable[[list[Address]], None]
    cluster: Cluster
    cells: Cells
    participant: Participant
    prepared: PreparedTransactions
    links: Links
    identification: Identification
    replicator: Replicator
    backup: BackupReplicator
    votes: ReceivedVotes
    vote_fetch: VoteFetch
    packer: Packer
    eraser: Eraser
    orphans: Orphans
    checker: Checker
    verifier: Verifier
    contents: ContentStates
    conditions: Conditions
    operations: Operations

    def lost(self, peer: Peer, reason: str) -> None:
        self.node.master_lost(reason)

    # -- tables ------------------------------------------------------------------------------------

    @on(NotifyNodeInformation)
    def nodes_changed(self, peer: Peer, message_id: int, m: NotifyNodeInformation) -> None:
        known = self.cluster.nodes
        for node in known.update(m.timestamp, m.node_list):
            if node.nid == self.cluster.nid and node.type is NodeType.STORAGE:
                self._own_state(node)
            elif node.state in (NodeState.DOWN, NodeState.UNKNOWN):
                if node.type is NodeType.CLIENT and node.nid is not None:
                    self.node.client_lost(node.nid)
                elif node.type is NodeType.STORAGE:
                    self.links.node_changed(node)
            if self.node.stopped:
                return
        if self.cluster.remember_nids():
            self.database.stored()  # soon, else the next master may allocate it again
        if self.masters.add(known.addresses(NodeType.MASTER)):
            self.remember(self.masters.addresses)
        self.identification.recheck()

    def _own_state(self, node: Node) -> None:
        if node.state is NodeState.DOWN:
            logger.info("the master tells this node to stop")
            self.node.stop(0)
        elif node.state is NodeState.UNKNOWN:
            self.node.erase()

    @on(SendPartitionTable)
    def partitions_replaced(self, peer: Peer, message_id: int, m: SendPartitionTable) -> None:
        check_table(m)
        table = PartitionTable()
        table.load(m.ptid, m.num_replicas, m.row_list)
        if table.ptid is None:
            return
        try:
            changed = self.cells.replace(table)
        except ValueError as e:
            self.node.fail(e)
        else:
            self.node.cells_changed(changed)

    @on(NotifyPartitionChanges)
    def partitions_changed(self, peer: Peer, message_id: int, m: NotifyPartitionChanges) -> None:
        check_changes(self.cells.partitions, m)
        changed = self.cells.change(m.ptid, m.num_replicas, m.cell_list)
        self.node.cells_changed(changed)

    @on(NotifyClusterInformation)
    def cluster_state(self, peer: Peer, message_id: int, m: NotifyClusterInformation) -> None:
        logger.info("cluster state: %s", m.state.name)

    @on(NotifyFeatures)
    def features(self, peer: Peer, message_id: int, m: NotifyFeatures) -> None:
        if self.cluster.master is not None:
            self.cluster.master.features = frozenset(m.features)

    @on(FlushLog)
    def flush_log(self, peer: Peer, message_id: int, m: FlushLog) -> None:
        self.host.reopen_logs()

    # -- operations ----------------------------------------------------------------------------------

    @on(NotifyOperation)
    def operation(self, peer: Peer, message_id: int, m: NotifyOperation) -> None:
        self.operations.started(m)

    @on(NotifyOperationState)
    def operation_state(self, peer: Peer, message_id: int, m: NotifyOperationState) -> None:
        self.operations.told(m)

    @on(NotifyOperationEnded)
    def operation_ended(self, peer: Peer, message_id: int, m: NotifyOperationEnded) -> None:
        self.operations.ended(m)
        self.eraser.maintenance_ended()

    # -- RECOVERING ----------------------------------------------------------------------------------

    @on(AskRecovery)
    def recovery(self, peer: Peer, message_id: int, m: AskRecovery) -> None:
        """Answer when all is durable: the master relies on that of ``truncate_tid``."""
        self.participant.locks.forget_aborted()
        backend = self.database.backend
        self.database.answer_stored(
            peer,
            message_id,
            AnswerRecovery(
                self.cells.partitions.ptid,
                _tid(backend.get_config("backup_tid")),
                _tid(backend.get_config("truncate_tid")),
            ),
        )

    @on(AskPartitionTable)
    def partition_table(self, peer: Peer, message_id: int, m: AskPartitionTable) -> Message:
        table = self.cells.partitions
        return AnswerPartitionTable(table.ptid, table.replicas, table.row_list())

    @on(Truncate)
    def truncate(self, peer: Peer, message_id: int, m: Truncate) -> None:
        """Store the tid of a truncation, and leave backup mode; do not answer. All nodes delete the later
        data in VERIFYING."""
        self.database.backend.set_config("truncate_tid", m.tid.hex())
        self.cells.backup.leave()

    # -- VERIFYING -----------------------------------------------------------------------------------

    @on(AskLockedTransactions)
    def locked_transactions(self, peer: Peer, message_id: int, m: AskLockedTransactions) -> Message:
        return AnswerLockedTransactions(dropped.voted(self.database.backend))

    @on(AskFinalTID)
    def final_tid(self, peer: Peer, message_id: int, m: AskFinalTID) -> Message:
        return AnswerFinalTID(self.database.backend.final_tid(m.ttid))

    @on(ValidateTransaction)
    def validate(self, peer: Peer, message_id: int, m: ValidateTransaction) -> None:
        self.database.backend.validate(m.ttid, m.tid)

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
        truncate_tid = _tid(backend.get_config("truncate_tid"))
        if truncate_tid is not None and self.cluster.nid is not None:
            logger.warning("everything later than %s is deleted", truncate_tid.hex())
            # Include partitions that are not assigned here any more: their data may not be erased yet.
            backend.truncate(truncate_tid, range(len(cells.partitions)))
            self._truncated()
        readable = cells.readable()
        loid, ltid = backend.last_ids(readable)
        if backend.get_config("backup_tid") is not None:
            # The master searches this tid upstream. A deletion may have the tid of a pack, which is not
            # that of a transaction (see BackupFetch).
            ltid = next(iter(backend.tids_descending(0, 1, readable)), None)
        self.database.answer_stored(peer, message_id, AnswerLastIDs(loid, ltid))

    @on(AskTails)
    def tails(self, peer: Peer, message_id: int, m: AskTails) -> Message:
        """Return the last committed rows, without those of transactions in progress."""
        backend = self.database.backend
        unproven, length = self.cells.proof.unproven(), max(1, min(m.length, TAIL_MAX))
        rows = []
        for partition in m.partition_list:
            tail = backend.tail(partition, m.max_tid or MAX_TID, length)
            rows.append((partition, partition not in unproven, *tail))
        packed = p64(int(backend.get_config("_pack_tid") or 0))
        return AnswerTails(packed, rows)

    # -- RUNNING -------------------------------------------------------------------------------------

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
        truncate_tid = _tid(backend.get_config("truncate_tid"))
        if truncate_tid is not None:
            logger.warning("a truncation after %s is over", truncate_tid.hex())
            kept = cells.readable()
            others = [p for p in range(len(cells.partitions)) if p not in kept]
            backend.truncate(truncate_tid, others)
            self._truncated()

    def _truncated(self) -> None:
        self.database.backend.set_config("truncate_tid", None)
        self.cells.backup.cut()

    @on(StopOperation)
    def stop_operation(self, peer: Peer, message_id: int, m: StopOperation) -> None:
        self.node.stop_operation()

    @on(AskLockInformation)
    def lock(self, peer: Peer, message_id: int, m: AskLockInformation) -> Message | None:
        """Lock, and answer when the vote and the partition table are durable. A node that got its cells
        after the client's stores has nothing to lock; replication of these cells waits for the end of
        the transaction."""
        if m.ttid in self.votes.known:
            self.votes.lock(m.ttid, m.tid)
            self.database.answer_stored(peer, message_id, AnswerInformationLocked(m.ttid))
            return None
        if self.participant.locks.lock(m.ttid, m.tid):
            self.database.backend.lock(m.ttid, m.tid)
        answer = AnswerInformationLocked(m.ttid)
        if self.database.table_stored and self.participant.locks.locks_at_once(m.ttid):
            return answer
        self.database.answer_stored(peer, message_id, answer)
        return None

    @on(NotifyUnlockInformation)
    def unlock(self, peer: Peer, message_id: int, m: NotifyUnlockInformation) -> None:
        votes = self.votes
        known = m.ttid in votes.known
        if not (votes.unlock(m.ttid) if known else self.participant.unlock(m.ttid)):
            logger.info("nothing to unlock for transaction %s", m.ttid.hex())

    @on(AbortTransaction)
    def abort(self, peer: Peer, message_id: int, m: AbortTransaction) -> None:
        self.replicator.aborted(m.ttid)
        if m.ttid in self.votes.known:
            self.votes.abort(m.ttid)
        else:
            self.participant.abort(m.ttid)

    @on(AskPrepareInformation)
    def prepare(self, peer: Peer, message_id: int, m: AskPrepareInformation) -> None:
        """Mark a voted transaction; answer when the mark and the vote are durable."""
        self.prepared.prepare(m)
        self.database.answer_stored(peer, message_id, AnswerPrepareInformation(m.ttid))

    @on(AskRollbackPrepared)
    def roll_back(self, peer: Peer, message_id: int, m: AskRollbackPrepared) -> None:
        self.prepared.roll_back(m)
        self.database.answer_stored(peer, message_id, AnswerRollbackPrepared(m.ttid))

    @on(ForgetPrepared)
    def forget_outcome(self, peer: Peer, message_id: int, m: ForgetPrepared) -> None:
        self.prepared.forget(m.xid)
        self.database.answer_stored(peer, message_id, Error(ErrorCode.ACK.value, ""))

    @on(AskLocks)
    def locks(self, peer: Peer, message_id: int, m: AskLocks) -> Message:
        return AnswerLocks(
            [
                (t.ttid, t.client.nid, t.phase, list(waiters), max(waiters.values(), default=0.0))
                for t, waiters in self.participant.locks.waiting()
            ]
        )

    @on(NotifyTransactionFinished)
    def finished(self, peer: Peer, message_id: int, m: NotifyTransactionFinished) -> None:
        self.participant.finished(m.ttid)
        self.replicator.finished(m.ttid, m.max_tid)

    # -- backup --------------------------------------------------------------------------------------

    @on(Replicate)
    def replicate(self, peer: Peer, message_id: int, m: Replicate) -> None:
        """Fetch the cells; ignore orders that come after the end of the operation."""
        if self.cluster.operational:
            self.backup.order(m.tid, m.upstream_name, m.source_dict)

    @on(NotifySynced)
    def synced(self, peer: Peer, message_id: int, m: NotifySynced) -> None:
        self.cells.backup.synced(m.tid)

    @on(NotifyInSync)
    def in_sync(self, peer: Peer, message_id: int, m: NotifyInSync) -> None:
        self.cells.backup.in_sync(m.until)

    @on(AskVoted)
    def voted(self, peer: Peer, message_id: int, m: AskVoted) -> None:
        self.vote_fetch.ask(peer, message_id, m)

    @on(NotifyLeft)
    def backup_left(self, peer: Peer, message_id: int, m: NotifyLeft) -> None:
        self.vote_fetch.left()

    # -- maintenance ---------------------------------------------------------------------------------

    @on(AskPack)
    def pack(self, peer: Peer, message_id: int, m: AskPack) -> None:
        self._check_operational()
        self.packer.ask(peer, message_id, m.tid)

    @on(CheckPartition, MendCell)
    def check_partition(self, peer: Peer, message_id: int, m: CheckPartition | MendCell) -> None:
        if self.cluster.operational:
            self.checker.add(m)

    @on(VerifyContents)
    def verify_contents(self, peer: Peer, message_id: int, m: VerifyContents) -> None:
        if self.cluster.operational:
            self.verifier.verify(m.partition)

    @on(AskContentState)
    def content_state(self, peer: Peer, message_id: int, m: AskContentState) -> Message:
        return self.contents.describe()

    @on(AskConditions)
    def ask_conditions(self, peer: Peer, message_id: int, m: AskConditions) -> Message:
        return AnswerConditions(self.conditions.describe())

    @on(AskLostContents)
    def lost_contents(self, peer: Peer, message_id: int, m: AskLostContents) -> Message:
        assert self.cluster.nid is not None
        return self.contents.lost(self.cluster.nid, m.length)

    def _check_operational(self) -> None:
        if not self.cluster.operational:
            raise ErrorAnswer(ErrorCode.NOT_READY, "this node does not serve now")

    @on(NotifyRepair)
    def repair(self, peer: Peer, message_id: int, m: NotifyRepair) -> None:
        self.orphans.prune(m.dry_run)


def _tid(text: str | None) -> bytes | None:
    """Decode a tid from ``config``: 16 hexadecimal digits."""
    return None if text is None else bytes.fromhex(text)
