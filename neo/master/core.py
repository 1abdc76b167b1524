"""The primary master: who is there, in what state the cluster is, and who is told what.

The life of the cluster is :meth:`MasterCore.live`: recover, verify, serve, and again from the
beginning whenever the partition table stops being operational. Each phase is a module of its own;
here is what they share: the tables, the connected peers and the broadcasts.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Container, Iterable

from neo.master.backup.following import Backup
from neo.master.commit.coordinator import Coordinator
from neo.master.election.leadership import Tenure
from neo.master.failure_detector import FailureDetector
from neo.master.ids import OidGenerator, TidGenerator
from neo.master.maintenance.check import Checks
from neo.master.maintenance.pack import Packs
from neo.master.maintenance.replication import Replication
from neo.master.maintenance.scrub import DAY_SECONDS, Scrub
from neo.master.phases.comparison import Disagreement
from neo.master.phases.recovery import Recovery
from neo.master.published_tables import PublishedTables
from neo.master.settings import MasterSettings
from neo.master.states import ADMITTED, TRANSITIONS, Event, hears_of
from neo.node.core import Core, Shell
from neo.node.handler import Handler
from neo.node.peer import Link, Peer
from neo.node.task import Future, Task
from neo.protocol.enums import CellState, ClusterState, NodeState, NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import format_nid, nid_namespace
from neo.protocol.packets import (
    FEATURE_PACK,
    Address,
    AskRecovery,
    CellChange,
    Message,
    NotifyClusterInformation,
    NotifyNodeInformation,
    NotifyPack,
    NotifyPartitionChanges,
    SendPartitionTable,
    StopOperation,
)
from neo.topology.nodes import Node
from neo.topology.partitions import running_storages

logger = logging.getLogger("neo.master")


class MasterCore(Core):
    """``bind``: the address that this master listens on and that others know it by."""

    def __init__(
        self,
        shell: Shell,
        settings: MasterSettings,
        bind: Address,
        tenure: Tenure | None = None,
    ) -> None:
        """``tenure``: of one among several masters."""
        super().__init__(shell)
        self.tenure = tenure
        self.settings = settings
        self.cluster = settings.cluster
        self.state = ClusterState.RECOVERING
        nid = settings.nid if settings.nid is not None else nid_namespace(NodeType.MASTER) + 1
        if tenure is not None:
            nid = tenure.nid
        self.node = self.nodes.add(
            Node(NodeType.MASTER, nid, bind, NodeState.RUNNING, identified=True)
        )
        #: Identified peers by node id.
        self.connected: dict[int, Peer] = {}
        self.tids = TidGenerator(shell.time)
        self.oids = OidGenerator()
        self.last_tid = bytes(8)
        self.coordinator = Coordinator(self)
        self.replication = Replication(self)
        self.checks = Checks(self)
        #: Storages told to start that are not ready yet, and those that are.
        self.starting: set[int] = set()
        self.ready: set[int] = set()
        #: The operator wants the database as it was at this tid.
        self.truncate_tid: bytes | None = None
        #: The greatest table that this master knows transactions to depend on: an older one may
        #: have missed commits. Nodes that voted with a table have it durably.
        self.served_ptid: int | None = None
        #: Those that could be read with the one served with.
        self.served_nodes: set[int] = set()
        self.published = PublishedTables()
        if tenure is not None:
            # What any primary before told of.
            self.published.ptid = tenure.greatest
            self.served_ptid = tenure.ptid
            self.served_nodes = set(tenure.nodes)
        #: This master has verified the database: its storages are connected, or away.
        self.was_operational = False
        self._held: list[tuple[Link, bytes, bool]] = []
        self.packs = Packs(self)
        period = settings.scrub_days * DAY_SECONDS
        self.scrub = Scrub(self, self.checks, self.packs, shell, period)
        #: The last pack of this master's time.
        self.packed_tid: bytes | None = None
        #: In STARTING_BACKUP and BACKINGUP.
        self.backup: Backup | None = None
        self.recovery = Recovery(self)
        #: What the operator must decide before the cluster may serve.
        self.disagreement: Disagreement | None = None
        self._timestamp = 0.0
        self._phase: Task[None] | None = None

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        super().start()
        if self.tenure is not None:
            FailureDetector(self).tick()
        self.scrub.start()
        self._phase = self.spawn(self.live())

    async def live(self) -> None:
        """Recover, verify, begin service. Given by ``primary.PrimaryMaster``."""
        raise AssertionError("a master without a life")

    def change_state(self, event: Event) -> None:
        """Follow the table of transitions, and tell everybody."""
        old, self.state = self.state, TRANSITIONS[self.state, event]
        logger.info("cluster state: %s -> %s", old.name, self.state.name)
        self.broadcast(NotifyClusterInformation(self.state))

    def stop_phase(self) -> None:
        """The workflow that leads to service is not wanted any more."""
        if self._phase is not None:
            self._phase.cancel()

    def back_to_recovery(self, reason: str, asked: bool = False) -> None:
        """Stop the operation and begin again; nothing if recovery is already on. ``asked``: the operator
        wants something that begins so."""
        if (self.state, Event.NOT_OPERATIONAL) not in TRANSITIONS:
            return
        if asked:
            logger.warning("the cluster begins again, as the operator asked: %s", reason)
        else:
            logger.error("the cluster is not operational any more: %s", reason)
        self.stop_phase()
        if self.backup is not None:
            self.backup.stop()
            self.backup = None
        self.coordinator.clear()
        self.checks.clear()
        self.starting.clear()
        self.ready.clear()
        self.stop_clients()
        storages = self.storages()
        for peer in storages:
            peer.send(StopOperation())
        self.set_node_states([p.node for p in storages if p.node], NodeState.PENDING)
        self.change_state(Event.NOT_OPERATIONAL)
        self._phase = self.spawn(self.live())

    def stop_clients(self) -> None:
        """Clients are not served in the state to come."""
        for peer in self.of_type(NodeType.CLIENT):
            peer.send(StopOperation())
            self.disconnect(peer)

    def check_stopped(self) -> None:
        """STOPPING ends when no transaction is left."""
        if self.state is ClusterState.STOPPING and not self.coordinator.transactions:
            self.shut_down()

    def shut_down(self) -> None:
        """Tell each storage to stop, and end this process (specification, *STOPPING*)."""
        for peer in self.storages():
            node = peer.node
            assert node is not None
            row = (node.type, node.address, node.nid, NodeState.DOWN, None)
            peer.send(NotifyNodeInformation(self.stamp(), [row]))
        self.stop(0)

    # -- peers -----------------------------------------------------------------------------------

    def service_handler(self, node_type: NodeType) -> Handler:
        """The handler of an identified peer. Given by ``primary.PrimaryMaster``."""
        raise AssertionError("a master without service")

    def of_type(self, *types: NodeType) -> list[Peer]:
        return [p for p in self.connected.values() if p.node is not None and p.node.type in types]

    def storages(self) -> list[Peer]:
        return self.of_type(NodeType.STORAGE)

    def identified_storages(self) -> set[int]:
        return {nid for nid, peer in self.connected.items() if nid >= 0}

    def running_storages(self) -> set[int]:
        return running_storages(self.nodes)

    def disconnect(self, peer: Peer) -> None:
        """Close the connection with an identified peer, as if it had been lost."""
        peer.close()
        self.forget(peer)

    def forget(self, peer: Peer) -> None:
        """The connection of an identified node is over: update the tables and tell the others."""
        node = peer.node
        if node is None or node.nid is None or self.connected.get(node.nid) is not peer:
            return
        del self.connected[node.nid]
        node.identified = False
        if node.type is NodeType.STORAGE:
            self._storage_lost(node)
        else:
            self.remove_node(node)

    def remove_node(self, node: Node) -> None:
        """It is forgotten, and the others are told so. It has no cell."""
        node.state = NodeState.UNKNOWN
        self.nodes.remove(node)
        self.notify_nodes([node])

    def _storage_lost(self, node: Node) -> None:
        assert node.nid is not None
        was_running = node.state is NodeState.RUNNING
        self.starting.discard(node.nid)
        self.ready.discard(node.nid)
        self.replication.storage_lost(node.nid)
        self.checks.storage_lost(node.nid)
        if self.backup is not None:
            self.backup.storage_lost(node.nid)
        assigned = self.partitions.assigned(node.nid)
        node.spare = was_running and not assigned
        # While no table is known, those that the cluster served with are missed.
        missed = self.partitions.ptid is None and node.nid in self.served_nodes
        if was_running or missed or assigned:
            self.set_node_states([node], NodeState.DOWN)
        else:
            self.remove_node(node)
        if self.state is ClusterState.RECOVERING:
            self.recovery.lost()
        elif was_running:
            self._check_operational(node.nid)

    def _check_operational(self, lost: int) -> None:
        truncating = self.state is ClusterState.VERIFYING and self.truncate_tid is not None
        running = self.running_storages()
        alone = self.published.missing(running)
        operational = self.partitions.operational(running) and alone is None
        if self.state is ClusterState.STOPPING and not operational:
            # What is being finished cannot be: the next start decides about it.
            self.shut_down()
        elif truncating or not operational:
            before = f" before it had what follows partition table {alone.ptid}" if alone else ""
            self.back_to_recovery(f"{format_nid(lost)} is lost{before}")
        else:
            self.change_partitions(self.lost_cells())
            self.coordinator.storage_lost(lost)

    # -- tables and broadcasts -------------------------------------------------------------------

    def admitted(self, node_type: NodeType) -> bool:
        return node_type in ADMITTED[self.state]

    def stamp(self) -> float:
        """A time that is greater than any given before, even when the clock jumps back."""
        self._timestamp = max(self.shell.time(), math.nextafter(self._timestamp, math.inf))
        return self._timestamp

    def broadcast(self, message: Message, *types: NodeType) -> None:
        """To all identified peers, or those of some types."""
        for peer in list(self.connected.values()):
            if peer.node is not None and (not types or peer.node.type in types):
                peer.send(message)

    def notify_nodes(self, nodes: Iterable[Node], but: Peer | None = None) -> None:
        """Tell everybody about changed nodes, as far as it concerns them."""
        nodes = list(nodes)
        timestamp = self.stamp()
        for peer in list(self.connected.values()):
            if peer is not but and peer.node is not None:
                listener = peer.node
                rows = [node.row() for node in nodes if hears_of(listener, node)]
                if rows:
                    peer.send(NotifyNodeInformation(timestamp, rows))

    def set_node_states(self, nodes: Iterable[Node], state: NodeState) -> None:
        changed = [node for node in nodes if node.state is not state]
        for node in changed:
            node.state = state
            if state is NodeState.RUNNING and node.nid in self.connected:
                self.connected[node.nid].trust()
        if changed:
            self.notify_nodes(changed)

    def table(self) -> SendPartitionTable:
        return SendPartitionTable(
            self.partitions.ptid, self.partitions.replicas, self.partitions.row_list()
        )

    def change_partitions(self, changes: list[CellChange], replicas: int | None = None) -> None:
        """The next version of the table, told to all but secondary masters. None without changes."""
        if not changes and replicas is None:
            return
        assert self.partitions.ptid is not None
        if replicas is None:
            replicas = self.partitions.replicas
        ptid = self.partitions.ptid + 1
        self.partitions.change(ptid, replicas, changes)
        self.publish_table()
        self.replication.cells_changed(ptid, changes)
        self.broadcast(
            NotifyPartitionChanges(ptid, replicas, changes),
            NodeType.ADMIN,
            NodeType.CLIENT,
            NodeType.STORAGE,
        )
        if self.backup is not None:
            self.backup.cells_changed(changes)
        self.ask_confirmations()

    def publish_table(self) -> None:
        """Somebody is about to be told of the partition table as it is."""
        ptid, readable = self.partitions.ptid, self.partitions.nodes(readable_only=True)
        assert ptid is not None
        self.published.publish(ptid, readable)
        if self.tenure is not None:
            self.tenure.log_table(ptid, readable)
            if not self.tenure.waits:
                self.published.logged(ptid)

    def ask_confirmations(self) -> None:
        """Storage nodes were told the table: when is it on their disks? With a log it is in there."""
        for nid in sorted(self.published.awaited()) if self.tenure is None else ():
            peer = self.connected.get(nid)
            if peer is not None:
                self._ask_confirmation(peer, nid, self.published.ptid)

    def _ask_confirmation(self, peer: Peer, nid: int, ptid: int) -> None:
        def heard(durable: bool) -> None:
            if durable:
                self.published.confirmed(nid, ptid)
                self.table_confirmed()

        self.when_heard(peer, heard)

    def table_confirmed(self) -> None:
        """What waited for the last partition table to be known for ever goes on."""
        self.coordinator.finish()
        if self.backup is not None:
            self.backup.advance()
        self.replication.discard_fed()

    def when_heard(self, peer: Peer, callback: Callable[[bool], None]) -> None:
        """Call back with True when a storage node has done all that it was told until now, and has it
        on its disk; with False when it is lost.

        What AskRecovery is answered is durable. Nodes of other implementations might not expect it now;
        they are believed.
        """

        def answered(future: Future[Message]) -> None:
            try:
                future.result()
            except ConnectionLost:
                callback(False)
            except ErrorAnswer as e:
                logger.error("%r does not confirm what it was told: %s", peer, e)
                self.disconnect(peer)
                callback(False)
            else:
                callback(True)

        if peer.node is not None and peer.node.features:
            peer.ask(AskRecovery()).then(answered)
        else:
            callback(True)

    def served(self, ptid: int) -> None:
        """What was acknowledged depends on this table."""
        if self.served_ptid is None or ptid > self.served_ptid:
            self.served_ptid = ptid
            self.served_nodes = self.partitions.nodes(readable_only=True)

    def packed(self, tid: bytes) -> None:
        """A pack is complete, or goes on by itself: backups of this cluster do it, too."""
        self.packed_tid = max(self.packed_tid or tid, tid)
        for peer in self.of_type(NodeType.CLIENT):
            if peer.node is not None and FEATURE_PACK in peer.node.features:
                peer.send(NotifyPack(tid))

    def lost_cells(self, unaware: Container[tuple[int, int]] = ()) -> list[CellChange]:
        """Readable cells of nodes that do not run, where another readable cell runs (FACTS 5.6).
        ``unaware``: (partition, nid) of cells of which the same holds, though their nodes run."""
        running = self.running_storages()
        changes: list[CellChange] = []
        for partition, row in enumerate(self.partitions.rows):
            readable = self.partitions.readable(partition)
            good = [n for n in readable if n in running and (partition, n) not in unaware]
            if good:
                changes += [
                    (
                        partition,
                        nid,
                        CellState.DISCARDED
                        if row[nid] is CellState.FEEDING
                        else CellState.OUT_OF_DATE,
                    )
                    for nid in readable
                    if nid not in good
                ]
        return changes
