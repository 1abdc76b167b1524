"""What operators ask through an admin node (FACTS 6)."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from neo.master.backup.switching import check_start, check_stop, start_backup, stop_backup
from neo.master.election.serve_masters import done
from neo.master.maintenance.truncation import check_all_there, check_tid
from neo.master.serving.client import start_storage
from neo.master.serving.denial import PRIMARY_STAYS, denied
from neo.master.serving.transactions import ServeTransactions
from neo.master.states import SERVING, Event
from neo.node.handler import on
from neo.node.peer import Peer
from neo.protocol.enums import ClusterState, NodeState, NodeType
from neo.protocol.ids import format_nid, nid_namespace
from neo.protocol.packets import (
    AddPendingNodes,
    AnswerClusterState,
    AnswerLastIDs,
    AnswerLastTransaction,
    AnswerRecovery,
    AnswerTweakPartitionTable,
    AnswerUpstream,
    AskCheckReport,
    AskClusterState,
    AskLastIDs,
    AskLastTransaction,
    AskObstacle,
    AskRecovery,
    AskScrub,
    AskUpstream,
    CheckReplicas,
    FlushLog,
    Message,
    NotifyNodeInformation,
    NotifyRepair,
    Repair,
    RepairCells,
    SetClusterState,
    SetNodeState,
    SetNumReplicas,
    Truncate,
    TweakPartitionTable,
)
from neo.topology.nodes import Node
from neo.topology.partitions import PartitionTable
from neo.topology.tweak import gently, tweak, without

logger = logging.getLogger("neo.master")


def _names(nodes: Iterable[Node]) -> str:
    return ", ".join(format_nid(node.nid) for node in nodes)


def is_master(nid: int) -> bool:
    return nid >> 24 == nid_namespace(NodeType.MASTER) >> 24


#: Clients that do not end their transactions are disconnected this long after a stop was asked.
STOP_SECONDS = 10.0
#: More copies than this are a slip of the finger.
MAX_REPLICAS = 99


class ServeAdmin(ServeTransactions):
    def lost(self, peer: Peer, reason: str) -> None:
        self.master.forget(peer)

    # -- questions -------------------------------------------------------------------------------

    @on(AskClusterState)
    def cluster_state(self, peer: Peer, message_id: int, m: AskClusterState) -> Message:
        return AnswerClusterState(self.master.state)

    @on(AskLastTransaction)
    def last_transaction(self, peer: Peer, message_id: int, m: AskLastTransaction) -> Message:
        """Of the upstream cluster, if this is a backup (FACTS 5.8): AskRecovery says how far we are."""
        master = self.master
        return AnswerLastTransaction(master.backup.cells.last if master.backup else master.last_tid)

    @on(AskLastIDs)
    def last_ids(self, peer: Peer, message_id: int, m: AskLastIDs) -> Message:
        """The last ids that were given (FACTS 5.8), in the database as it is."""
        return AnswerLastIDs(self.master.oids.last, self.master.tids.given)

    @on(AskRecovery)
    def recovery(self, peer: Peer, message_id: int, m: AskRecovery) -> Message:
        master = self.master
        backup_tid = master.backup.cells.tid if master.backup else None
        return AnswerRecovery(master.partitions.ptid, backup_tid, master.truncate_tid)

    @on(AskUpstream)
    def upstream(self, peer: Peer, message_id: int, m: AskUpstream) -> Message:
        backup = self.master.backup
        if backup is None:
            raise denied("this cluster is no backup")
        silence = backup.contact.silence()
        if silence is None:
            return AnswerUpstream(backup.cluster or "", None, True, "")
        return AnswerUpstream(backup.cluster or "", *silence)

    @on(AskObstacle)
    def obstacle(self, peer: Peer, message_id: int, m: AskObstacle) -> Message:
        if self.master.state is not ClusterState.RECOVERING:
            raise denied(f"the cluster is {self.master.state.name}: nothing keeps it from starting")
        return self.master.recovery.describe()

    # -- state of the cluster --------------------------------------------------------------------

    @on(SetClusterState)
    def set_cluster_state(self, peer: Peer, message_id: int, m: SetClusterState) -> None:
        master = self.master
        if m.state is ClusterState.STOPPING:
            peer.answer(message_id, done("Cluster state changed"))
            self._stop()
        elif m.state is ClusterState.VERIFYING and master.state is ClusterState.RECOVERING:
            # The answer comes before the change, as its consequences come on the same connection.
            obstacle = master.recovery.obstacle_to_force()
            if obstacle is not None:
                raise denied(f"the cluster cannot start: {obstacle}")
            peer.answer(message_id, done("Cluster state changed"))
            master.recovery.force()
        elif m.state is ClusterState.STARTING_BACKUP:
            check_start(master)
            peer.answer(message_id, done("Cluster state changed"))
            start_backup(master)
        elif m.state is ClusterState.STOPPING_BACKUP:
            check_stop(master)
            peer.answer(message_id, done("Cluster state changed"))
            stop_backup(master)
        elif m.state is ClusterState.VERIFYING:
            raise denied("Can not switch to this state")
        else:
            raise denied("Invalid state requested")

    def _stop(self) -> None:
        master = self.master
        if master.state is ClusterState.STOPPING:
            return
        master.stop_phase()
        master.change_state(Event.STOP)
        master.call_later(STOP_SECONDS, self._drop_clients)
        master.check_stopped()

    def _drop_clients(self) -> None:
        for client in self.master.of_type(NodeType.CLIENT):
            logger.warning("%r did not end its transactions", client)
            self.master.disconnect(client)
            self.master.coordinator.client_lost(client)

    # -- state of nodes --------------------------------------------------------------------------

    @on(AddPendingNodes)
    def add_pending_nodes(self, peer: Peer, message_id: int, m: AddPendingNodes) -> Message | None:
        master = self.master
        masters = [nid for nid in m.nid_list if is_master(nid)]
        if masters:
            if len(m.nid_list) > 1:
                raise denied("masters are added one at a time, each when the one before is there")
            self.add_master(peer, message_id, masters[0])
            return None
        self._operating("add nodes")
        nodes = [self._storage(nid) for nid in dict.fromkeys(m.nid_list)]
        for node in nodes:
            if not node.identified:
                raise denied(f"{format_nid(node.nid)} is down: start it")
        added = [node for node in nodes if node.state is NodeState.PENDING]
        if not added:
            return done("No node added")
        for node in added:
            assert node.nid is not None
            start_storage(master, master.connected[node.nid])
        master.set_node_states(added, NodeState.RUNNING)
        text = f"Nodes added: {_names(added)}"
        if others := [node for node in nodes if node not in added]:
            text += f"; in service already: {_names(others)}"
        return done(text)

    @on(SetNodeState)
    def set_node_state(self, peer: Peer, message_id: int, m: SetNodeState) -> None:
        if is_master(m.nid) and m.nid != self.master.node.nid and self.master.tenure is not None:
            if m.state is NodeState.DOWN:
                self.kill_master(peer, message_id, m.nid)
                return
            if m.state is NodeState.UNKNOWN:
                self.drop_master(peer, message_id, m.nid)
                return
        node = self._storage(m.nid)
        if m.state is NodeState.DOWN:
            self._kill(peer, message_id, node)
        elif m.state is NodeState.UNKNOWN:
            self._drop(peer, message_id, node)
        else:
            raise denied(f"a node cannot be made {m.state.name}")

    def _storage(self, nid: int) -> Node:
        node = self.master.nodes.get(nid)
        if node is None:
            raise denied("unknown node")
        if node is self.master.node:
            raise denied(PRIMARY_STAYS)
        if node.type is not NodeType.STORAGE:
            raise denied(f"{format_nid(nid)} is not a storage node")
        return node

    def _kill(self, peer: Peer, message_id: int, node: Node) -> None:
        """Disconnect a storage, if the others can serve without it."""
        master = self.master
        assert node.nid is not None
        if node.state is NodeState.DOWN:
            raise denied(f"{format_nid(node.nid)} is already down")
        others = master.running_storages() - {node.nid}
        serving = master.state is ClusterState.VERIFYING or master.state in SERVING
        if serving and node.nid in master.partitions.nodes(readable_only=True):
            if not master.partitions.operational(others):
                raise denied(
                    f"{format_nid(node.nid)} has the only readable copy of some partitions"
                )
        peer.answer(message_id, done("State changed"))
        storage = master.connected.get(node.nid)
        if storage is not None:
            row = (node.type, node.address, node.nid, NodeState.DOWN, node.id_timestamp)
            storage.send(NotifyNodeInformation(master.stamp(), [row]))
            master.disconnect(storage)

    def _drop(self, peer: Peer, message_id: int, node: Node) -> None:
        """Forget a storage for ever; if it is connected it erases its database."""
        master = self.master
        assert node.nid is not None
        if node.state is NodeState.RUNNING:
            raise denied("a running node must be stopped before removal")
        # Before the partition table is recovered, nobody knows what the node has.
        self._operating("drop a node")
        for partition in master.partitions.assigned(node.nid):
            if set(master.partitions.readable(partition)) <= {node.nid}:
                raise denied(
                    f"{format_nid(node.nid)} has the only readable copy of partition {partition}"
                )
        master.change_partitions(without(master.partitions, {node.nid}))
        peer.answer(message_id, done("node permanently removed"))
        storage = master.connected.get(node.nid)
        row = (node.type, node.address, node.nid, NodeState.UNKNOWN, None)
        if storage is not None:
            storage.send(NotifyNodeInformation(master.stamp(), [row]))
            master.disconnect(storage)
        if master.nodes.get(node.nid) is node:
            master.remove_node(node)

    def _operating(self, what: str) -> None:
        """What a backup can do as well."""
        if self.master.state not in SERVING:
            raise denied(
                f"the cluster must be RUNNING to {what}, or a backup; it is {self.master.state.name}"
            )

    def _serving(self, what: str) -> None:
        if self.master.state is not ClusterState.RUNNING:
            raise denied(f"the cluster must be RUNNING to {what}, it is {self.master.state.name}")

    # -- partition table -------------------------------------------------------------------------

    @on(SetNumReplicas)
    def set_num_replicas(self, peer: Peer, message_id: int, m: SetNumReplicas) -> Message:
        self._operating("change the number of replicas")
        if not 0 <= m.num_replicas <= MAX_REPLICAS:
            raise denied(f"invalid number of replicas: 0 to {MAX_REPLICAS} is possible")
        self.master.change_partitions([], m.num_replicas)
        return done()

    @on(TweakPartitionTable)
    def tweak_table(self, peer: Peer, message_id: int, m: TweakPartitionTable) -> Message:
        """Balance the table over the running nodes that are not listed; the listed ones are emptied.

        A node that is down must be listed: it may come back with its cells in an hour.
        """
        master = self.master
        self._operating("tweak")
        listed = {self._storage(nid).nid for nid in m.drop_nid_list}
        nodes: dict[int, tuple[str, ...]] = {}
        for node in master.nodes.of_type(NodeType.STORAGE):
            if node.nid is None or node.nid in listed or node.state is NodeState.PENDING:
                continue
            if node.state is not NodeState.RUNNING:
                name = format_nid(node.nid)
                raise denied(f"{name} is down: start it, or name it so that others take its cells")
            nodes[node.nid] = node.devpath
        if not nodes:
            raise denied("no node would be left to have cells")
        changes = tweak(master.partitions, nodes, master.partitions.replicas)
        if not m.dry_run:
            if not master.published.complete:
                changes = gently(master.partitions, changes)
            master.change_partitions(changes)
            return AnswerTweakPartitionTable(bool(changes), master.partitions.row_list())
        table, ptid = PartitionTable(), master.partitions.ptid
        assert ptid is not None
        table.load(ptid, master.partitions.replicas, master.partitions.row_list())
        table.change(ptid + 1, table.replicas, changes)
        return AnswerTweakPartitionTable(bool(changes), table.row_list())

    @on(CheckReplicas)
    def check_replicas(self, peer: Peer, message_id: int, m: CheckReplicas) -> Message:
        self._operating("check replicas")
        for nid in m.partition_dict.values():
            if nid is not None:
                self._storage(nid)
        self.master.checks.start(m.partition_dict, m.min_tid, m.max_tid)
        return done()

    @on(AskCheckReport)
    def check_report(self, peer: Peer, message_id: int, m: AskCheckReport) -> Message:
        return self.master.checks.report()

    @on(AskScrub)
    def scrub_report(self, peer: Peer, message_id: int, m: AskScrub) -> Message:
        return self.master.scrub.report()

    @on(RepairCells)
    def repair_cells(self, peer: Peer, message_id: int, m: RepairCells) -> Message:
        self._operating("repair cells")
        for _, nid in m.cell_list:
            self._storage(nid)
        count = self.master.checks.repair(m.cell_list)
        return done(f"{count} cells are copied anew" if count else "No cell to repair")

    # -- data ------------------------------------------------------------------------------------

    @on(Repair)
    def repair(self, peer: Peer, message_id: int, m: Repair) -> Message:
        # A storage node that does not operate would drop the job, and nobody would hear of it.
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
            self.master.connected[node.nid].send(NotifyRepair(m.dry_run))
        what = "is looked for" if m.dry_run else "is deleted"
        return done(f"what no object refers to {what} on {_names(nodes)}: see their logs")

    @on(Truncate)
    def truncate(self, peer: Peer, message_id: int, m: Truncate) -> None:
        self._serving("truncate")
        master = self.master
        check_tid(master, m.tid)
        check_all_there(master)
        master.truncate_tid = m.tid
        text = f"everything after {m.tid.hex()} is deleted on all nodes; then it is RUNNING again"
        peer.answer(message_id, done(text))
        master.back_to_recovery(f"everything after {m.tid.hex()} is deleted", asked=True)

    @on(FlushLog)
    def flush_log(self, peer: Peer, message_id: int, m: FlushLog) -> None:
        self.master.shell.reopen_logs()
        if self.master.tenure is not None:
            self.master.tenure.node.links.broadcast(m)
        for other in list(self.master.connected.values()):
            if other is not peer:
                other.send(FlushLog())
