"""What the primary master asks of a storage node (specification, *Start & Stop*, *Commit*)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from neo.net.fault_sites import FaultSite
from neo.node.handler import on
from neo.node.host import Host
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode, NodeState, NodeType
from neo.protocol.errors import ErrorAnswer, PeerError
from neo.protocol.ids import MAX_TID, p64
from neo.protocol.packets import (
    AbortTransaction,
    Address,
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
from neo.storage.backend.api import BackendFailure
from neo.storage.cells import Cells
from neo.storage.cluster import Cluster
from neo.storage.commit import dropped_ttids as dropped
from neo.storage.commit.participant import Participant
from neo.storage.database import Database
from neo.storage.events import CellsChanged
from neo.storage.links import Links
from neo.storage.maintenance.check import Checker
from neo.storage.maintenance.cleanup import Eraser
from neo.storage.maintenance.pack import Packer
from neo.storage.replication.backup import BackupReplicator
from neo.storage.replication.replicator import Replicator
from neo.storage.serving.handler import StorageHandler
from neo.storage.serving.identification import Identification
from neo.topology.masters import MasterCandidates
from neo.topology.nodes import Node
from neo.topology.partitions import PartitionTable

logger = logging.getLogger("neo.storage")

#: Rows of a tail: ten times as many as our master asks for.
TAIL_MAX = 1000


class NodeControl(Protocol):
    """What the primary master decides about the node as a whole."""

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


class ServeMaster(StorageHandler):
    """The handler of the primary master, from its acceptance on."""

    def __init__(
        self,
        node: NodeControl,
        shell: Host,
        masters: MasterCandidates,
        remember: Callable[[list[Address]], None],
        database: Database,
        cluster: Cluster,
        cells: Cells,
        participant: Participant,
        links: Links,
        identification: Identification,
        replicator: Replicator,
        backup: BackupReplicator,
        packer: Packer,
        eraser: Eraser,
        checker: Checker,
    ) -> None:
        super().__init__(database)
        self._node = node
        self._shell = shell
        self._masters = masters
        self._remember = remember
        self._backend = database.backend
        self._cluster = cluster
        self._cells = cells
        self._participant = participant
        self._locks = participant.locks
        self._links = links
        self._identification = identification
        self._replicator = replicator
        self._backup = backup
        self._packer = packer
        self._eraser = eraser
        self._checker = checker

    def lost(self, peer: Peer, reason: str) -> None:
        self._node.master_lost(reason)

    # -- tables ------------------------------------------------------------------------------------

    @on(NotifyNodeInformation)
    def nodes_changed(self, peer: Peer, message_id: int, m: NotifyNodeInformation) -> None:
        known = self._cluster.nodes
        for node in known.update(m.timestamp, m.node_list):
            if node.nid == self._cluster.nid and node.type is NodeType.STORAGE:
                self._own_state(node)
            elif node.state in (NodeState.DOWN, NodeState.UNKNOWN):
                if node.type is NodeType.CLIENT and node.nid is not None:
                    self._node.client_lost(node.nid)
                elif node.type is NodeType.STORAGE:
                    self._links.node_changed(node)
            if self._node.stopped:
                return
        if self._cluster.remember_nids():
            self.database.stored()  # soon: the next master may give it again
        masters = [node.address for node in known.of_type(NodeType.MASTER) if node.address]
        if self._masters.add(masters):
            self._remember(self._masters.addresses)
        self._identification.recheck()

    def _own_state(self, node: Node) -> None:
        if node.state is NodeState.DOWN:
            logger.info("the master tells this node to stop")
            self._node.stop(0)
        elif node.state is NodeState.UNKNOWN:
            self._node.erase()

    @on(SendPartitionTable)
    def partitions_replaced(self, peer: Peer, message_id: int, m: SendPartitionTable) -> None:
        table = PartitionTable()
        table.load(m.ptid, m.num_replicas, m.row_list)
        if table.ptid is None:
            return
        try:
            changed = self._cells.replace(table)
        except ValueError as e:
            self._node.fail(e)
        else:
            self._node.cells_changed(changed)

    @on(NotifyPartitionChanges)
    def partitions_changed(self, peer: Peer, message_id: int, m: NotifyPartitionChanges) -> None:
        partitions = self._cells.partitions
        if partitions.ptid is None or m.ptid != partitions.ptid + 1:
            raise PeerError(f"wrong partition table id: {m.ptid} does not follow {partitions.ptid}")
        for partition, _, _ in m.cell_list:
            if not 0 <= partition < len(partitions):
                raise PeerError(f"the partition table has {len(partitions)} rows, not {partition}")
        changed = self._cells.change(m.ptid, m.num_replicas, m.cell_list)
        self._node.cells_changed(changed)

    @on(NotifyClusterInformation)
    def cluster_state(self, peer: Peer, message_id: int, m: NotifyClusterInformation) -> None:
        logger.info("cluster state: %s", m.state.name)

    @on(NotifyFeatures)
    def features(self, peer: Peer, message_id: int, m: NotifyFeatures) -> None:
        if self._cluster.master is not None:
            self._cluster.master.features = frozenset(m.features)

    @on(FlushLog)
    def flush_log(self, peer: Peer, message_id: int, m: FlushLog) -> None:
        self._shell.reopen_logs()

    # -- RECOVERING ----------------------------------------------------------------------------------

    @on(AskRecovery)
    def recovery(self, peer: Peer, message_id: int, m: AskRecovery) -> None:
        """What is answered is durable: the master relies on ``truncate_tid`` being so."""
        backend = self._backend
        self.database.answer_stored(
            peer,
            message_id,
            AnswerRecovery(
                self._cells.partitions.ptid,
                _tid(backend.get_config("backup_tid")),
                _tid(backend.get_config("truncate_tid")),
            ),
        )

    @on(AskPartitionTable)
    def partition_table(self, peer: Peer, message_id: int, m: AskPartitionTable) -> Message:
        table = self._cells.partitions
        return AnswerPartitionTable(table.ptid, table.replicas, table.row_list())

    @on(Truncate)
    def truncate(self, peer: Peer, message_id: int, m: Truncate) -> None:
        """Remember where to cut, and leave backup mode. The data is cut when all nodes do it, in
        VERIFYING. Not answered."""
        self._backend.set_config("truncate_tid", m.tid.hex())
        self._cells.backup.leave()

    # -- VERIFYING -----------------------------------------------------------------------------------

    @on(AskLockedTransactions)
    def locked_transactions(self, peer: Peer, message_id: int, m: AskLockedTransactions) -> Message:
        return AnswerLockedTransactions(dropped.voted(self._backend))

    @on(AskFinalTID)
    def final_tid(self, peer: Peer, message_id: int, m: AskFinalTID) -> Message:
        return AnswerFinalTID(self._backend.final_tid(m.ttid))

    @on(ValidateTransaction)
    def validate(self, peer: Peer, message_id: int, m: ValidateTransaction) -> None:
        self._backend.validate(m.ttid, m.tid)

    @on(AskLastIDs)
    def last_ids(self, peer: Peer, message_id: int, m: AskLastIDs) -> None:
        """The end of verification: what was asked before, truncation included, becomes durable."""
        backend, cells = self._backend, self._cells
        truncate_tid = _tid(backend.get_config("truncate_tid"))
        if truncate_tid is not None and self._cluster.nid is not None:
            logger.warning("everything later than %s is deleted", truncate_tid.hex())
            # Data of partitions that are not here any more, but not erased yet, might come back.
            backend.truncate(truncate_tid, range(len(cells.partitions)))
            self._truncated()
        readable = cells.readable()
        loid, ltid = backend.last_ids(readable)
        if backend.get_config("backup_tid") is not None:
            # It is looked for upstream. A deletion of which a pack left no other trace there is at the
            # tid of the pack here, which is no transaction's (see BackupFetch).
            ltid = next(iter(backend.tids_descending(0, 1, readable)), None)
        self.database.answer_stored(peer, message_id, AnswerLastIDs(loid, ltid))

    @on(AskTails)
    def tails(self, peer: Peer, message_id: int, m: AskTails) -> Message:
        """What is committed here; transactions in progress are not part of it."""
        backend = self._backend
        unproven, length = self._cells.proof.unproven(), max(1, min(m.length, TAIL_MAX))
        rows = []
        for partition in m.partition_list:
            tail = backend.tail(partition, m.max_tid or MAX_TID, length)
            rows.append((partition, partition not in unproven, *tail))
        packed = p64(int(backend.get_config("_pack_tid") or 0))
        return AnswerTails(packed, rows)

    # -- RUNNING -------------------------------------------------------------------------------------

    @on(StartOperation)
    def start_operation(self, peer: Peer, message_id: int, m: StartOperation) -> None:
        if self._cells.partitions.ptid is None:
            raise PeerError("StartOperation before any partition table")
        if not self._cluster.operational:
            self._forget_truncation()
            self._cells.proof.accept(self._cells.readable())
            peer.send(NotifyReady())
        self._node.start_operation(m.backup)

    def _forget_truncation(self) -> None:
        """A truncation from which this node was absent is over, and commits may have followed it: what
        is not read here becomes as it was then, and is replicated."""
        backend, cells = self._backend, self._cells
        truncate_tid = _tid(backend.get_config("truncate_tid"))
        if truncate_tid is not None:
            logger.warning("a truncation after %s is over", truncate_tid.hex())
            kept = cells.readable()
            others = [p for p in range(len(cells.partitions)) if p not in kept]
            backend.truncate(truncate_tid, others)
            self._truncated()

    def _truncated(self) -> None:
        self._backend.set_config("truncate_tid", None)
        self._cells.backup.cut()

    @on(StopOperation)
    def stop_operation(self, peer: Peer, message_id: int, m: StopOperation) -> None:
        self._node.stop_operation()

    @on(AskLockInformation)
    def lock(self, peer: Peer, message_id: int, m: AskLockInformation) -> Message | None:
        """A node that got its cells after the client's stores has nothing to lock; replication of
        these cells waits for the end of the transaction. The answer also says that the partition
        table is durable."""
        if self._shell.fault(FaultSite.DATABASE_FAILS_AT_LOCK):
            raise BackendFailure("fails on purpose")
        if self._locks.lock(m.ttid, m.tid):
            self._backend.lock(m.ttid, m.tid)
        answer = AnswerInformationLocked(m.ttid)
        if self.database.table_stored and self._locks.locks_at_once(m.ttid):
            return answer
        self.database.answer_stored(peer, message_id, answer)
        return None

    @on(NotifyUnlockInformation)
    def unlock(self, peer: Peer, message_id: int, m: NotifyUnlockInformation) -> None:
        if not self._participant.unlock(m.ttid):
            logger.info("nothing to unlock for transaction %s", m.ttid.hex())

    @on(AbortTransaction)
    def abort(self, peer: Peer, message_id: int, m: AbortTransaction) -> None:
        self._replicator.aborted(m.ttid)
        self._participant.abort(m.ttid)

    @on(AskLocks)
    def locks(self, peer: Peer, message_id: int, m: AskLocks) -> Message:
        return AnswerLocks(
            [
                (t.ttid, t.client.nid, t.phase, list(waiters), max(waiters.values(), default=0.0))
                for t, waiters in self._locks.waiting()
            ]
        )

    @on(NotifyTransactionFinished)
    def finished(self, peer: Peer, message_id: int, m: NotifyTransactionFinished) -> None:
        self._participant.finished(m.ttid)
        self._replicator.finished(m.ttid, m.max_tid)

    # -- backup --------------------------------------------------------------------------------------

    @on(Replicate)
    def replicate(self, peer: Peer, message_id: int, m: Replicate) -> None:
        """Those that come after the end of the operation are of no use any more."""
        if self._cluster.operational:
            self._backup.order(m.tid, m.upstream_name, m.source_dict)

    # -- maintenance ---------------------------------------------------------------------------------

    @on(AskPack)
    def pack(self, peer: Peer, message_id: int, m: AskPack) -> None:
        self._check_operational()
        self._packer.ask(peer, message_id, m.tid)

    @on(CheckPartition, MendCell)
    def check_partition(self, peer: Peer, message_id: int, m: CheckPartition | MendCell) -> None:
        if self._cluster.operational:
            self._checker.add(m)

    def _check_operational(self) -> None:
        if not self._cluster.operational:
            raise ErrorAnswer(ErrorCode.NOT_READY, "this node does not serve now")

    @on(NotifyRepair)
    def repair(self, peer: Peer, message_id: int, m: NotifyRepair) -> None:
        self._eraser.prune(m.dry_run)


def _tid(text: str | None) -> bytes | None:
    """``config`` has tids as 16 hexadecimal digits."""
    return None if text is None else bytes.fromhex(text)
