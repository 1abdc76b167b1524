"""Commands of operators, which an admin node relays (specification 17)."""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from neo.master.cluster import Cluster
from neo.master.commit.coordinator import Coordinator
from neo.master.denial import PRIMARY_STAYS, denied
from neo.master.election.commands import MasterCommands, done
from neo.master.following.mode import BackupMode
from neo.master.maintenance.check import Checks
from neo.master.maintenance.client_caches import ClientCaches
from neo.master.maintenance.membership import Membership
from neo.master.maintenance.pack import Packs
from neo.master.maintenance.reports import Reports
from neo.master.maintenance.scrub import Scrub
from neo.master.maintenance.truncation import check_all_there, check_tid
from neo.master.operations.part import Operations
from neo.master.parts import Operation
from neo.master.phases.recovery import Recovery
from neo.master.states import SERVING
from neo.node.core import Core
from neo.node.handler import Handler, on
from neo.node.peer import Peer
from neo.protocol.enums import ClusterState, NodeState, NodeType
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import format_nid, nid_namespace
from neo.protocol.packets import (
    AbortOperation,
    AddPendingNodes,
    AnswerClusterState,
    AnswerCommitCount,
    AnswerLastIDs,
    AnswerLastTransaction,
    AnswerPrepared,
    AnswerRecovery,
    AnswerSync,
    AnswerTweakPartitionTable,
    AnswerUpstream,
    AskBeginOperation,
    AskCheckReport,
    AskClientCaches,
    AskClusterState,
    AskCommitCount,
    AskContents,
    AskElection,
    AskFinishPrepared,
    AskLastIDs,
    AskLastTransaction,
    AskLostContents,
    AskNodeConditions,
    AskNodeDisks,
    AskObstacle,
    AskOperations,
    AskPrepared,
    AskRecovery,
    AskScrub,
    AskSync,
    AskTransactions,
    AskUpstream,
    CheckReplicas,
    EndTransaction,
    FlushLog,
    ForgetOperation,
    ForgetPrepared,
    ForgetTable,
    Message,
    NotifyNodeInformation,
    NotifyRepair,
    Repair,
    RepairCells,
    SetClusterState,
    SetNodeState,
    SetNumReplicas,
    SetPrimary,
    SetSync,
    Truncate,
    TweakPartitionTable,
)
from neo.protocol.words import counted
from neo.topology.nodes import Node
from neo.topology.partitions import PartitionTable
from neo.topology.tweak import gently, tweak

logger = logging.getLogger("neo.master")


def _names(nodes: Iterable[Node]) -> str:
    return ", ".join(format_nid(node.nid) for node in nodes)


def is_master(nid: int) -> bool:
    return nid >> 24 == nid_namespace(NodeType.MASTER) >> 24


#: A greater number of replicas is a typing error.
MAX_REPLICAS = 99


class Phases(Operation, Protocol):
    """The requests of operators about the phases of the cluster."""

    @property
    def recovery(self) -> Recovery:
        """The current stay in RECOVERING, or the last one."""

    def stop_cluster(self) -> None:
        """Stop the cluster when no transaction is left."""


@dataclass(frozen=True)
class Maintenance:
    """The parts that maintain the copies of the database: membership of storage nodes, pack, check,
    scrub, and reports of storage nodes and of clients."""

    membership: Membership
    packs: Packs
    checks: Checks
    scrub: Scrub
    reports: Reports
    caches: ClientCaches


class ServeAdmin(Handler):
    def __init__(
        self,
        cluster: Cluster,
        core: Core,
        phases: Phases,
        coordinator: Coordinator,
        backup: BackupMode,
        maintenance: Maintenance,
        operations: Operations,
        masters: MasterCommands,
    ) -> None:
        self._cluster = cluster
        self._core = core
        self._phases = phases
        self._coordinator = coordinator
        self._backup = backup
        self._maintenance = maintenance
        self._operations = operations
        self._masters = masters

    def lost(self, peer: Peer, reason: str) -> None:
        self._cluster.forget(peer)

    def _answer_later(
        self, peer: Peer, message_id: int, answer: Coroutine[Any, Any, Message]
    ) -> None:
        """Answer a request with what a workflow returns."""
        self._core.spawn(_answer(peer, message_id, answer))

    # -- questions -------------------------------------------------------------------------------

    @on(AskClusterState)
    def cluster_state(self, peer: Peer, message_id: int, m: AskClusterState) -> Message:
        return AnswerClusterState(self._cluster.state)

    @on(AskLastTransaction)
    def last_transaction(self, peer: Peer, message_id: int, m: AskLastTransaction) -> Message:
        """Return that of the upstream cluster if this is a backup (specification 17.16); AskRecovery
        returns the tid that the backup has reached."""
        backup = self._backup.current
        return AnswerLastTransaction(backup.cells.last if backup else self._cluster.last_tid)

    @on(AskLastIDs)
    def last_ids(self, peer: Peer, message_id: int, m: AskLastIDs) -> Message:
        """Return the last ids that were allocated in the database as it is (specification 17.15)."""
        return AnswerLastIDs(self._cluster.oids.last, self._cluster.tids.given)

    @on(AskRecovery)
    def recovery(self, peer: Peer, message_id: int, m: AskRecovery) -> Message:
        cluster, backup = self._cluster, self._backup.current
        backup_tid = backup.cells.tid if backup else None
        return AnswerRecovery(cluster.partitions.ptid, backup_tid, cluster.truncate_tid)

    @on(AskUpstream)
    def upstream(self, peer: Peer, message_id: int, m: AskUpstream) -> Message:
        backup = self._backup.current
        if backup is None:
            raise denied("this cluster is no standby")
        name, silence = backup.upstream_name or "", backup.contact.silence()
        if silence is None:
            return AnswerUpstream(name, None, True, "")
        return AnswerUpstream(name, silence.seconds, silence.ever, silence.reason)

    @on(AskObstacle)
    def obstacle(self, peer: Peer, message_id: int, m: AskObstacle) -> Message:
        if self._cluster.state is not ClusterState.RECOVERING:
            raise denied(
                f"the cluster is {self._cluster.state.name}: nothing keeps it from starting"
            )
        return self._phases.recovery.describe()

    # -- state of the cluster --------------------------------------------------------------------

    @on(SetClusterState)
    def set_cluster_state(self, peer: Peer, message_id: int, m: SetClusterState) -> None:
        recovering = self._cluster.state is ClusterState.RECOVERING
        if m.state is ClusterState.STOPPING:
            peer.answer(message_id, done("Cluster state changed"))
            self._phases.stop_cluster()
        elif m.state is ClusterState.VERIFYING and recovering:
            # The answer goes out first, because the changes are announced on the same connection.
            obstacle = self._phases.recovery.obstacle_to_force()
            if obstacle is not None:
                raise denied(f"the cluster cannot start: {obstacle}")
            peer.answer(message_id, done("Cluster state changed"))
            self._phases.recovery.force()
        elif m.state is ClusterState.STARTING_BACKUP:
            self._backup.check_start()
            self._operations.check("history", "table")
            self._backup.start(partial(_answer_change, peer, message_id))
        elif m.state is ClusterState.STOPPING_BACKUP:
            self._backup.check_stop()
            self._backup.stop(partial(self._answer_leaving, peer, message_id))
        elif m.state is ClusterState.VERIFYING:
            raise denied("Can not switch to this state")
        else:
            raise denied("Invalid state requested")

    def _answer_leaving(self, peer: Peer, message_id: int, error: ErrorAnswer | None) -> None:
        """Answer an order to leave standby mode. ``error``: why it goes on."""
        if error is not None:
            _answer_change(peer, message_id, error)
            return
        self._answer_remembered(peer, message_id, "Cluster state changed")

    def _answer_remembered(self, peer: Peer, message_id: int, text: str) -> None:
        """Answer when the nodes remember the truncation, at the end of RECOVERING: no other master will
        start without it (specification 12.20, 13.28)."""
        self._phases.recovery.ended.then(lambda _: peer.answer(message_id, done(text)))

    # -- state of nodes --------------------------------------------------------------------------

    @on(AddPendingNodes)
    def add_pending_nodes(self, peer: Peer, message_id: int, m: AddPendingNodes) -> Message | None:
        masters = [nid for nid in m.nid_list if is_master(nid)]
        if masters:
            if len(m.nid_list) > 1:
                raise denied("masters are added one at a time, each when the one before is there")
            self._masters.add_master(peer, message_id, masters[0])
            return None
        self._operating("add nodes")
        nodes = [self._storage(nid) for nid in dict.fromkeys(m.nid_list)]
        for node in nodes:
            if not node.identified:
                raise denied(f"{format_nid(node.nid)} is down: start it")
        added = [node for node in nodes if node.state is NodeState.PENDING]
        if not added:
            return done("No node added")
        self._maintenance.membership.admit(added)
        text = f"Nodes added: {_names(added)}"
        if others := [node for node in nodes if node not in added]:
            text += f"; in service already: {_names(others)}"
        return done(text)

    @on(SetNodeState)
    def set_node_state(self, peer: Peer, message_id: int, m: SetNodeState) -> None:
        if is_master(m.nid) and m.nid != self._cluster.node.nid and self._masters.several:
            if m.state is NodeState.DOWN:
                self._masters.kill_master(peer, message_id, m.nid)
                return
            if m.state is NodeState.UNKNOWN:
                self._masters.drop_master(peer, message_id, m.nid)
                return
        node = self._storage(m.nid)
        if m.state is NodeState.DOWN:
            self._kill(peer, message_id, node)
        elif m.state is NodeState.UNKNOWN:
            self._drop(peer, message_id, node)
        else:
            raise denied(f"a node cannot be made {m.state.name}")

    def _storage(self, nid: int) -> Node:
        node = self._cluster.nodes.get(nid)
        if node is None:
            raise denied("unknown node")
        if node is self._cluster.node:
            raise denied(PRIMARY_STAYS)
        if node.type is not NodeType.STORAGE:
            raise denied(f"{format_nid(nid)} is not a storage node")
        return node

    def _kill(self, peer: Peer, message_id: int, node: Node) -> None:
        """Disconnect a storage node, if the others can serve without it."""
        cluster = self._cluster
        assert node.nid is not None
        if node.state is NodeState.DOWN:
            raise denied(f"{format_nid(node.nid)} is already down")
        others = cluster.running_storages() - {node.nid}
        serving = cluster.state is ClusterState.VERIFYING or cluster.state in SERVING
        if serving and node.nid in cluster.partitions.nodes(readable_only=True):
            if not cluster.partitions.operational(others):
                raise denied(
                    f"{format_nid(node.nid)} has the only readable copy of some partitions"
                )
        peer.answer(message_id, done("State changed"))
        storage = cluster.connected.get(node.nid)
        if storage is not None:
            row = (node.type, node.address, node.nid, NodeState.DOWN, node.id_timestamp)
            storage.send(NotifyNodeInformation(cluster.stamp(), [row]))
            cluster.disconnect(storage)

    def _drop(self, peer: Peer, message_id: int, node: Node) -> None:
        """Remove a storage node for good. If it is connected, it erases its database."""
        cluster = self._cluster
        assert node.nid is not None
        if node.state is NodeState.RUNNING:
            raise denied("a running node must be stopped before removal")
        # Before the partition table is recovered, the cells of the node are not known.
        self._operating("drop a node")
        self._operations.check_drop(node.nid)
        for partition in cluster.partitions.assigned(node.nid):
            if set(cluster.partitions.readable(partition)) <= {node.nid}:
                raise denied(
                    f"{format_nid(node.nid)} has the only readable copy of partition {partition}"
                )
        self._maintenance.membership.take_cells(node)
        peer.answer(message_id, done("node permanently removed"))
        self._maintenance.membership.dismiss(node)

    def _operating(self, what: str) -> None:
        """Raise ErrorAnswer unless the cluster operates, as a backup or not."""
        if self._cluster.state not in SERVING:
            raise denied(
                f"the cluster must be RUNNING to {what}, or a standby; it is {self._cluster.state.name}"
            )

    def _serving(self, what: str) -> None:
        if self._cluster.state is not ClusterState.RUNNING:
            raise denied(f"the cluster must be RUNNING to {what}, it is {self._cluster.state.name}")

    # -- partition table -------------------------------------------------------------------------

    @on(SetNumReplicas)
    def set_num_replicas(self, peer: Peer, message_id: int, m: SetNumReplicas) -> Message:
        self._operating("change the number of replicas")
        self._operations.check("table")
        if not 0 <= m.num_replicas <= MAX_REPLICAS:
            raise denied(f"invalid number of replicas: 0 to {MAX_REPLICAS} is possible")
        self._cluster.change_partitions([], m.num_replicas)
        return done()

    @on(TweakPartitionTable)
    def tweak_table(self, peer: Peer, message_id: int, m: TweakPartitionTable) -> Message:
        """Balance the table over the running nodes that are not listed; the listed ones are emptied.

        A node that is down must be listed: it may come back with its cells in an hour.
        """
        cluster = self._cluster
        self._operating("tweak")
        if not m.dry_run:
            self._operations.check("table")
        listed = {self._storage(nid).nid for nid in m.drop_nid_list}
        nodes: dict[int, tuple[str, ...]] = {}
        for node in cluster.nodes.of_type(NodeType.STORAGE):
            if node.nid is None or node.nid in listed or node.state is NodeState.PENDING:
                continue
            if node.state is not NodeState.RUNNING:
                name = format_nid(node.nid)
                raise denied(f"{name} is down: start it, or name it so that others take its cells")
            nodes[node.nid] = node.devpath
        if not nodes:
            raise denied("no node would be left to have cells")
        changes = tweak(cluster.partitions, nodes, cluster.partitions.replicas)
        if not m.dry_run:
            if not cluster.published.complete:
                changes = gently(cluster.partitions, changes)
            cluster.change_partitions(changes)
            return AnswerTweakPartitionTable(bool(changes), cluster.partitions.row_list())
        table, ptid = PartitionTable(), cluster.partitions.ptid
        assert ptid is not None
        table.load(ptid, cluster.partitions.replicas, cluster.partitions.row_list())
        table.change(ptid + 1, table.replicas, changes)
        return AnswerTweakPartitionTable(bool(changes), table.row_list())

    @on(CheckReplicas)
    def check_replicas(self, peer: Peer, message_id: int, m: CheckReplicas) -> Message:
        self._operating("check replicas")
        for nid in m.partition_dict.values():
            if nid is not None:
                self._storage(nid)
        self._maintenance.checks.start(m.partition_dict, m.min_tid, m.max_tid)
        return done()

    @on(AskCheckReport)
    def check_report(self, peer: Peer, message_id: int, m: AskCheckReport) -> Message:
        return self._maintenance.checks.report()

    @on(AskScrub)
    def scrub_report(self, peer: Peer, message_id: int, m: AskScrub) -> Message:
        return self._maintenance.scrub.report()

    @on(AskContents)
    def contents_report(self, peer: Peer, message_id: int, m: AskContents) -> None:
        """Answer when the storage nodes have reported the state of their contents."""
        self._answer_later(peer, message_id, self._maintenance.reports.contents())

    @on(AskNodeConditions)
    def node_conditions(self, peer: Peer, message_id: int, m: AskNodeConditions) -> None:
        """Answer when the storage nodes have reported their conditions."""
        self._answer_later(peer, message_id, self._maintenance.reports.conditions())

    @on(AskNodeDisks)
    def node_disks(self, peer: Peer, message_id: int, m: AskNodeDisks) -> None:
        """Answer when the storage nodes have told their disks."""
        self._answer_later(peer, message_id, self._maintenance.reports.disks())

    @on(AskClientCaches)
    def client_caches(self, peer: Peer, message_id: int, m: AskClientCaches) -> None:
        """Answer when the clients have told their caches."""
        self._answer_later(peer, message_id, self._maintenance.caches.figures())

    @on(AskLostContents)
    def lost_contents(self, peer: Peer, message_id: int, m: AskLostContents) -> None:
        """Answer when the storage nodes have listed the contents that they lost."""
        self._answer_later(peer, message_id, self._maintenance.reports.lost(m.length))

    @on(RepairCells)
    def repair_cells(self, peer: Peer, message_id: int, m: RepairCells) -> Message:
        self._operating("repair cells")
        for _, nid in m.cell_list:
            self._storage(nid)
        count = self._maintenance.checks.repair(m.cell_list)
        text = counted(count, "cell is copied anew", "cells are copied anew")
        return done(text if count else "No cell to repair")

    # -- transactions ----------------------------------------------------------------------------

    @on(AskTransactions)
    def transactions(self, peer: Peer, message_id: int, m: AskTransactions) -> None:
        """Answer when the storage nodes have sent their locks."""
        self._answer_later(peer, message_id, self._coordinator.open.describe())

    @on(AskCommitCount)
    def commit_count(self, peer: Peer, message_id: int, m: AskCommitCount) -> Message:
        return AnswerCommitCount(self._coordinator.counted_since, self._coordinator.finished_count)

    @on(EndTransaction)
    def end(self, peer: Peer, message_id: int, m: EndTransaction) -> Message:
        self._coordinator.open.end(m.ttid)
        return done(f"transaction 0x{m.ttid.hex()} is ended: its locks are released")

    # -- prepared transactions -------------------------------------------------------------------

    @on(AskPrepared)
    def list_prepared(self, peer: Peer, message_id: int, m: AskPrepared) -> Message:
        self._operating("list prepared transactions")
        if (synchronous := self._backup.synchronous) is not None:
            rows = synchronous.prepared()
            return AnswerPrepared([row for row in rows if m.xid is None or row[0] == m.xid])
        return AnswerPrepared(self._coordinator.prepared.describe(m.length, m.xid))

    @on(AskFinishPrepared)
    def finish_prepared(self, peer: Peer, message_id: int, m: AskFinishPrepared) -> Message | None:
        self._serving("decide a prepared transaction")
        return self._coordinator.prepared.decide(m.xid, m.commit, peer, message_id)

    @on(ForgetPrepared)
    def forget_prepared(self, peer: Peer, message_id: int, m: ForgetPrepared) -> Message | None:
        self._serving("forget the outcome of a transaction")
        return self._coordinator.prepared.forget(m.xid, peer, message_id)

    # -- synchronous backups ---------------------------------------------------------------------

    @on(AskSync)
    def sync(self, peer: Peer, message_id: int, m: AskSync) -> Message:
        if self._backup.active:  # nothing is committed here: no backup is missed
            return AnswerSync([], self._backup.sync_row())
        return AnswerSync(self._coordinator.backups.rows(), self._backup.sync_row())

    @on(SetSync)
    def set_sync(self, peer: Peer, message_id: int, m: SetSync) -> Message:
        self._coordinator.backups.switch(m.name, m.on)
        return done(f"commits {'wait' if m.on else 'do not wait'} for standby {m.name}")

    # -- masters ---------------------------------------------------------------------------------

    @on(AskElection)
    def election(self, peer: Peer, message_id: int, m: AskElection) -> Message:
        return self._masters.membership().describe()

    @on(SetPrimary)
    def set_primary(self, peer: Peer, message_id: int, m: SetPrimary) -> None:
        self._masters.set_primary(peer, message_id, m)

    @on(ForgetTable)
    def forget_table(self, peer: Peer, message_id: int, m: ForgetTable) -> None:
        self._masters.forget_table(peer, message_id, m)

    # -- operations ------------------------------------------------------------------------------

    @on(AskBeginOperation)
    def begin_operation(self, peer: Peer, message_id: int, m: AskBeginOperation) -> None:
        self._operations.begin(peer, message_id, m)

    @on(AskOperations)
    def list_operations(self, peer: Peer, message_id: int, m: AskOperations) -> Message:
        return self._operations.describe(m.id)

    @on(AbortOperation)
    def abort_operation(self, peer: Peer, message_id: int, m: AbortOperation) -> Message:
        self._operations.abort(m.id)
        return done(f"operation {m.id} is undone; see: neoctl print operations {m.id}")

    @on(ForgetOperation)
    def forget_operation(self, peer: Peer, message_id: int, m: ForgetOperation) -> Message:
        self._operations.forget(m.id, m.nid)
        return done(f"operation {m.id} does not wait for {format_nid(m.nid)} any more")

    # -- data ------------------------------------------------------------------------------------

    @on(Repair)
    def repair(self, peer: Peer, message_id: int, m: Repair) -> Message:
        # A storage node that does not operate would drop the job silently.
        self._operating("look for orphans")
        if not m.nid_list:
            raise denied("no storage node is named")
        nodes = [self._storage(nid) for nid in dict.fromkeys(m.nid_list)]
        for node in nodes:
            if not node.identified:
                raise denied(f"{format_nid(node.nid)} is not connected")
            if node.state is not NodeState.RUNNING:
                raise denied(f"{format_nid(node.nid)} is {node.state.name}: add it first")
        for node in nodes:
            assert node.nid is not None
            self._cluster.connected[node.nid].send(NotifyRepair(m.dry_run))
        what = "is looked for" if m.dry_run else "is deleted"
        return done(f"what no object refers to {what} on {_names(nodes)}: see their logs")

    @on(Truncate)
    def truncate(self, peer: Peer, message_id: int, m: Truncate) -> None:
        self._serving("truncate")
        self._operations.check("history")
        cluster = self._cluster
        check_tid(cluster, self._maintenance.packs, m.tid)
        check_all_there(cluster)
        if (obstacle := self._coordinator.prepared.obstacle()) is not None:
            raise denied(obstacle)
        cluster.truncate_tid = m.tid
        text = f"everything after {m.tid.hex()} is deleted on all nodes; then it is RUNNING again"
        self._phases.back_to_recovery(f"everything after {m.tid.hex()} is deleted", asked=True)
        self._answer_remembered(peer, message_id, text)

    @on(FlushLog)
    def flush_log(self, peer: Peer, message_id: int, m: FlushLog) -> None:
        self._core.host.reopen_logs()
        self._masters.broadcast(m)
        for other in list(self._cluster.connected.values()):
            if other is not peer:
                other.send(FlushLog())


async def _answer(peer: Peer, message_id: int, answer: Coroutine[Any, Any, Message]) -> None:
    peer.answer(message_id, await answer)


def _answer_change(peer: Peer, message_id: int, error: ErrorAnswer | None) -> None:
    """Answer SetClusterState. ``error``: why the order may have had no effect."""
    if error is None:
        peer.answer(message_id, done("Cluster state changed"))
    else:
        peer.refuse(message_id, error.code, error.message)
