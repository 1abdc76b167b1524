"""What the primary master asks of a storage node (specification, *Start & Stop*, *Commit*)."""

from __future__ import annotations

import logging

from neo.net.fault_sites import FaultSite
from neo.node.handler import on
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode, NodeState, NodeType
from neo.protocol.errors import ErrorAnswer, PeerError
from neo.protocol.ids import MAX_TID, p64
from neo.protocol.packets import (
    AbortTransaction,
    AnswerFinalTID,
    AnswerInformationLocked,
    AnswerLastIDs,
    AnswerLockedTransactions,
    AnswerLocks,
    AnswerPartitionTable,
    AnswerRecovery,
    AnswerTails,
    AskFinalTID,
    AskLastIDs,
    AskLockedTransactions,
    AskLockInformation,
    AskLocks,
    AskPack,
    AskPartitionTable,
    AskRecovery,
    AskTails,
    CheckPartition,
    FlushLog,
    MendCell,
    Message,
    NotifyClusterInformation,
    NotifyFeatures,
    NotifyNodeInformation,
    NotifyPartitionChanges,
    NotifyReady,
    NotifyRepair,
    NotifyTransactionFinished,
    NotifyUnlockInformation,
    Replicate,
    SendPartitionTable,
    StartOperation,
    StopOperation,
    Truncate,
    ValidateTransaction,
)
from neo.storage import cells, proof
from neo.storage.backend.api import BackendFailure
from neo.storage.cluster import remember_nids
from neo.storage.commit import dropped_ttids as dropped
from neo.storage.maintenance import cleanup as maintenance
from neo.storage.serving.handler import StorageHandler
from neo.topology.nodes import Node
from neo.topology.partitions import PartitionTable

logger = logging.getLogger("neo.storage")

#: Rows of a tail: ten times as many as our master asks for.
TAIL_MAX = 1000


class ServeMaster(StorageHandler):
    """The handler of the primary master, from its acceptance on."""

    def lost(self, peer: Peer, reason: str) -> None:
        self.core.master_lost(reason)

    # -- tables ------------------------------------------------------------------------------------

    @on(NotifyNodeInformation)
    def nodes_changed(self, peer: Peer, message_id: int, m: NotifyNodeInformation) -> None:
        core = self.core
        for node in core.nodes.update(m.timestamp, m.node_list):
            if node.nid == core.nid and node.type is NodeType.STORAGE:
                self._own_state(node)
            elif node.state in (NodeState.DOWN, NodeState.UNKNOWN):
                if node.type is NodeType.CLIENT and node.nid is not None:
                    core.client_gone(node.nid)
                elif node.type is NodeType.STORAGE:
                    core.links.node_changed(node)
            if core.stopped:
                return
        storages = core.nodes.of_type(NodeType.STORAGE)
        if remember_nids(core.backend, (node.nid for node in storages if node.nid is not None)):
            core.stored()  # soon: the next master may give it again
        masters = [node.address for node in core.nodes.of_type(NodeType.MASTER) if node.address]
        if core.masters.add(masters):
            core.remember(core.masters.addresses)
        core.recheck_delayed()

    def _own_state(self, node: Node) -> None:
        if node.state is NodeState.DOWN:
            logger.info("the master tells this node to stop")
            self.core.stop(0)
        elif node.state is NodeState.UNKNOWN:
            self.core.erase()

    @on(SendPartitionTable)
    def partitions_replaced(self, peer: Peer, message_id: int, m: SendPartitionTable) -> None:
        table = PartitionTable()
        table.load(m.ptid, m.num_replicas, m.row_list)
        if table.ptid is None:
            return
        try:
            cells.replace(self.core, table)
        except ValueError as e:
            self.core.fail(e)

    @on(NotifyPartitionChanges)
    def partitions_changed(self, peer: Peer, message_id: int, m: NotifyPartitionChanges) -> None:
        partitions = self.core.partitions
        if partitions.ptid is None or m.ptid != partitions.ptid + 1:
            raise PeerError(f"wrong partition table id: {m.ptid} does not follow {partitions.ptid}")
        for partition, _, _ in m.cell_list:
            if not 0 <= partition < len(partitions):
                raise PeerError(f"the partition table has {len(partitions)} rows, not {partition}")
        cells.change(self.core, m.ptid, m.num_replicas, m.cell_list)

    @on(NotifyClusterInformation)
    def cluster_state(self, peer: Peer, message_id: int, m: NotifyClusterInformation) -> None:
        logger.info("cluster state: %s", m.state.name)

    @on(NotifyFeatures)
    def features(self, peer: Peer, message_id: int, m: NotifyFeatures) -> None:
        self.core.master_features = frozenset(m.features)

    @on(FlushLog)
    def flush_log(self, peer: Peer, message_id: int, m: FlushLog) -> None:
        self.core.shell.reopen_logs()

    # -- RECOVERING ----------------------------------------------------------------------------------

    @on(AskRecovery)
    def recovery(self, peer: Peer, message_id: int, m: AskRecovery) -> None:
        """What is answered is durable: the master relies on ``truncate_tid`` being so."""
        backend = self.core.backend
        self.core.answer_stored(
            peer,
            message_id,
            AnswerRecovery(
                self.core.partitions.ptid,
                _tid(backend.get_config("backup_tid")),
                _tid(backend.get_config("truncate_tid")),
            ),
        )

    @on(AskPartitionTable)
    def partition_table(self, peer: Peer, message_id: int, m: AskPartitionTable) -> Message:
        table = self.core.partitions
        return AnswerPartitionTable(table.ptid, table.replicas, table.row_list())

    @on(Truncate)
    def truncate(self, peer: Peer, message_id: int, m: Truncate) -> None:
        """Remember where to cut, and leave backup mode. The data is cut when all nodes do it, in
        VERIFYING. Not answered."""
        self.core.backend.set_config("truncate_tid", m.tid.hex())
        self.core.backup.leave()

    # -- VERIFYING -----------------------------------------------------------------------------------

    @on(AskLockedTransactions)
    def locked_transactions(self, peer: Peer, message_id: int, m: AskLockedTransactions) -> Message:
        return AnswerLockedTransactions(dropped.voted(self.core.backend))

    @on(AskFinalTID)
    def final_tid(self, peer: Peer, message_id: int, m: AskFinalTID) -> Message:
        return AnswerFinalTID(self.core.backend.final_tid(m.ttid))

    @on(ValidateTransaction)
    def validate(self, peer: Peer, message_id: int, m: ValidateTransaction) -> None:
        self.core.backend.validate(m.ttid, m.tid)

    @on(AskLastIDs)
    def last_ids(self, peer: Peer, message_id: int, m: AskLastIDs) -> None:
        """The end of verification: what was asked before, truncation included, becomes durable."""
        core = self.core
        truncate_tid = _tid(core.backend.get_config("truncate_tid"))
        if truncate_tid is not None and core.nid is not None:
            logger.warning("everything later than %s is deleted", truncate_tid.hex())
            # Data of partitions that are not here any more, but not erased yet, might come back.
            core.backend.truncate(truncate_tid, range(len(core.partitions)))
            self._truncated()
        readable = core.readable_partitions()
        loid, ltid = core.backend.last_ids(readable)
        if core.backend.get_config("backup_tid") is not None:
            # It is looked for upstream. A deletion of which a pack left no other trace there is at the
            # tid of the pack here, which is no transaction's (see BackupFetch).
            ltid = next(iter(core.backend.tids_descending(0, 1, readable)), None)
        core.answer_stored(peer, message_id, AnswerLastIDs(loid, ltid))

    @on(AskTails)
    def tails(self, peer: Peer, message_id: int, m: AskTails) -> Message:
        """What is committed here; transactions in progress are not part of it."""
        backend = self.core.backend
        unproven, length = proof.unproven(self.core), max(1, min(m.length, TAIL_MAX))
        rows = []
        for partition in m.partition_list:
            tail = backend.tail(partition, m.max_tid or MAX_TID, length)
            rows.append((partition, partition not in unproven, *tail))
        packed = p64(int(backend.get_config("_pack_tid") or 0))
        return AnswerTails(packed, rows)

    # -- RUNNING -------------------------------------------------------------------------------------

    @on(StartOperation)
    def start_operation(self, peer: Peer, message_id: int, m: StartOperation) -> None:
        was_operational = self.core.operational
        if self.core.partitions.ptid is None:
            raise PeerError("StartOperation before any partition table")
        if not was_operational:
            self._forget_truncation()
            proof.accept(self.core)
        self.core.start_operation(m.backup)
        if not was_operational:
            peer.send(NotifyReady())
            self.core.replicator.begin()

    def _forget_truncation(self) -> None:
        """A truncation from which this node was absent is over, and commits may have followed it: what
        is not read here becomes as it was then, and is replicated."""
        core = self.core
        truncate_tid = _tid(core.backend.get_config("truncate_tid"))
        if truncate_tid is not None:
            logger.warning("a truncation after %s is over", truncate_tid.hex())
            kept = core.readable_partitions()
            others = [p for p in range(len(core.partitions)) if p not in kept]
            core.backend.truncate(truncate_tid, others)
            self._truncated()

    def _truncated(self) -> None:
        self.core.backend.set_config("truncate_tid", None)
        self.core.backup.cut()

    @on(StopOperation)
    def stop_operation(self, peer: Peer, message_id: int, m: StopOperation) -> None:
        self.core.stop_operation()

    @on(AskLockInformation)
    def lock(self, peer: Peer, message_id: int, m: AskLockInformation) -> Message | None:
        """A node that got its cells after the client's stores has nothing to lock; replication of
        these cells waits for the end of the transaction. The answer also says that the partition
        table is durable."""
        if self.core.shell.fault(FaultSite.DATABASE_FAILS_AT_LOCK):
            raise BackendFailure("fails on purpose")
        if self.core.locks.lock(m.ttid, m.tid):
            self.core.backend.lock(m.ttid, m.tid)
        answer = AnswerInformationLocked(m.ttid)
        if self.core.table_stored and self.core.locks.locks_at_once(m.ttid):
            return answer
        self.core.answer_stored(peer, message_id, answer)
        return None

    @on(NotifyUnlockInformation)
    def unlock(self, peer: Peer, message_id: int, m: NotifyUnlockInformation) -> None:
        if not self.core.unlock(m.ttid):
            logger.info("nothing to unlock for transaction %s", m.ttid.hex())

    @on(AbortTransaction)
    def abort(self, peer: Peer, message_id: int, m: AbortTransaction) -> None:
        self.core.abort(m.ttid)

    @on(AskLocks)
    def locks(self, peer: Peer, message_id: int, m: AskLocks) -> Message:
        return AnswerLocks(
            [
                (t.ttid, t.client.nid, t.phase, list(waiters), max(waiters.values(), default=0.0))
                for t, waiters in self.core.locks.waiting()
            ]
        )

    @on(NotifyTransactionFinished)
    def finished(self, peer: Peer, message_id: int, m: NotifyTransactionFinished) -> None:
        """Drop what this node voted if it was not ready when the transaction began: the master did not
        ask it to lock, and replication brings the data."""
        if self.core.locks.abort(m.ttid, None):
            self.core.backend.abort(m.ttid)
        self.core.replicator.finished(m.ttid, m.max_tid)

    # -- backup --------------------------------------------------------------------------------------

    @on(Replicate)
    def replicate(self, peer: Peer, message_id: int, m: Replicate) -> None:
        """Those that come after the end of the operation are of no use any more."""
        if self.core.operational:
            self.core.backup.order(m.tid, m.upstream_name, m.source_dict)

    # -- maintenance ---------------------------------------------------------------------------------

    @on(AskPack)
    def pack(self, peer: Peer, message_id: int, m: AskPack) -> None:
        self._check_operational()
        self.core.packer.ask(peer, message_id, m.tid)

    @on(CheckPartition, MendCell)
    def check_partition(self, peer: Peer, message_id: int, m: CheckPartition | MendCell) -> None:
        if self.core.operational:
            self.core.checker.add(m)

    def _check_operational(self) -> None:
        if not self.core.operational:
            raise ErrorAnswer(ErrorCode.NOT_READY, "this node does not serve now")

    @on(NotifyRepair)
    def repair(self, peer: Peer, message_id: int, m: NotifyRepair) -> None:
        self.core.run_job(maintenance.prune_orphans(self.core, m.dry_run))


def _tid(text: str | None) -> bytes | None:
    """``config`` has tids as 16 hexadecimal digits."""
    return None if text is None else bytes.fromhex(text)
