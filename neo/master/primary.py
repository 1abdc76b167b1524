"""The primary master: creates the parts and connects them, and leads the cluster from phase to phase.

:meth:`PrimaryMaster.live` recovers, verifies and serves, and starts again from the beginning whenever
the partition table stops being operational. Only the process and tests import this module.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from neo.master.backup.mode import BackupMode
from neo.master.clock import watch_clock
from neo.master.cluster import Cluster
from neo.master.commit.coordinator import Coordinator
from neo.master.commit.transactions import Transactions
from neo.master.election.commands import MasterCommands
from neo.master.election.leadership import OperationsInLog, Tenure
from neo.master.failure_detector import FailureDetector
from neo.master.maintenance.check import Checks
from neo.master.maintenance.membership import Membership
from neo.master.maintenance.pack import Packs
from neo.master.maintenance.replication import Replication
from neo.master.maintenance.reports import Reports
from neo.master.maintenance.scrub import DAY_SECONDS, Scrub
from neo.master.operations.backup import Backup
from neo.master.operations.kinds import Kind, TableKind
from neo.master.operations.moves import Moves, MovesCells
from neo.master.operations.part import MemoryLog, OperationLog, Operations
from neo.master.operations.partitions import Partitions, SwitchesPartitions
from neo.master.operations.restore import Restore
from neo.master.operations.storage_nodes import StorageNodes
from neo.master.operations.upgrade import Upgrade, Waits
from neo.master.parts import Part
from neo.master.phases.comparison import Comparison
from neo.master.phases.recovery import Recovery
from neo.master.phases.survivors import settle
from neo.master.phases.verification import verify
from neo.master.serving.admin import ServeAdmin
from neo.master.serving.backup_client import ServeReader
from neo.master.serving.client import ServeClient
from neo.master.serving.identification import Identification
from neo.master.serving.storage import ServeStorage
from neo.master.settings import MasterSettings
from neo.master.states import SERVING, TRANSITIONS, Event
from neo.node.core import Core
from neo.node.handler import Handler
from neo.node.host import Host
from neo.node.peer import Link, Peer
from neo.node.task import Task
from neo.protocol.enums import ClusterState, NodeState, NodeType
from neo.protocol.ids import format_nid, nid_namespace
from neo.protocol.packets import Address, CellChange, NodeRow, NotifyNodeInformation
from neo.topology.nodes import Node

logger = logging.getLogger("neo.master")

#: The cluster ends this long after a stop was asked, whatever clients and synchronous backups do.
STOP_SECONDS = 10.0


class PrimaryMaster(Core):
    """``bind``: the address that this master listens on and that others know it by."""

    #: The simulator has one that checks each change of the partition table.
    cluster_type: type[Cluster] = Cluster

    def __init__(
        self,
        host: Host,
        settings: MasterSettings,
        bind: Address,
        tenure: Tenure | None = None,
    ) -> None:
        """``tenure``: None if this master is alone."""
        super().__init__(host)
        self.settings = settings
        self.tenure = tenure
        self.cluster = cluster = self._make_cluster(bind)
        #: This master has verified the database: its storage nodes are connected, or away.
        self._was_operational = False
        #: The number of partitions that the next recovery makes; None: as it is.
        self._next_partitions: int | None = None
        #: Output that waits until the log has the partition table.
        self._held: list[tuple[Link, bytes, bool]] = []
        self._phase: Task[None] | None = None
        transactions: Transactions[Peer] = Transactions()
        self.packs = Packs(cluster, self, lambda: self.operations.check("history"))
        self._membership = Membership(
            cluster, lambda: self.backup.active, lambda nid: self.operations.dropped(nid)
        )
        self.replication = Replication(cluster, transactions)
        self.coordinator = Coordinator(
            cluster, self, transactions, self.replication, settings, self.check_stopped
        )
        self.operations = self._make_operations(transactions.ttids)
        self.backup = BackupMode(
            cluster,
            self,
            settings,
            self.coordinator,
            self.replication,
            self.packs,
            self,
            self._upstream_lost,
        )
        self.checks = Checks(cluster, self.packs, self.backup.source)
        self.comparison = Comparison(cluster, self.checks, self)
        self.scrub = Scrub(
            cluster, self.checks, self.packs, host, settings.scrub_days * DAY_SECONDS
        )
        #: Parts in the order in which they are told of events. The coordinator is before replication,
        #: which may change the table when it was confirmed: transactions would wait for that change.
        self.parts: Sequence[Part] = (
            self.coordinator,
            self.backup,
            self.replication,
            self.checks,
        )
        #: The current stay in RECOVERING, or the last one.
        self.recovery = self._new_recovery()
        self._identification = Identification(
            *(cluster, settings, self.packs, self.backup, self.operations, self)
        )
        self._reader_handler = ServeReader(cluster)
        self._handlers = self._make_handlers()

    def _make_cluster(self, bind: Address) -> Cluster:
        settings, tenure = self.settings, self.tenure
        nid = settings.nid if settings.nid is not None else nid_namespace(NodeType.MASTER) + 1
        if tenure is not None:
            nid = tenure.nid
        node = self.nodes.add(Node(NodeType.MASTER, nid, bind, NodeState.RUNNING, identified=True))
        cluster = self.cluster_type(
            settings.cluster, node, self.nodes, self.partitions, self.host.time, self, tenure
        )
        if tenure is not None:
            # What earlier primaries published.
            cluster.published.ptid = tenure.greatest
            cluster.served_ptid = tenure.ptid
            cluster.served_nodes = set(tenure.nodes)
        return cluster

    def _make_operations(self, ttids: Callable[[], Collection[bytes]]) -> Operations:
        log: OperationLog = MemoryLog(int(self.host.time()))
        if self.tenure is not None:
            log = OperationsInLog(self.tenure)
        nodes = StorageNodes(self.cluster)
        switches = SwitchesPartitions(
            self.cluster, self.coordinator, self.host.monotonic, self._switch_partitions
        )
        backups = self.coordinator.backups
        moves, moving = Moves(self.cluster, nodes), MovesCells(self.cluster, self._membership, ttids)
        kinds: dict[str, Kind] = {
            "backup": Backup(self.cluster, self.packs),
            "restore": Restore(self.cluster),
            "replace": TableKind(moves.replace, moving),
            "add": TableKind(moves.add, moving),
            "remove": TableKind(moves.remove, moving),
            "partitions": Partitions(
                self.cluster, nodes, self.packs, switches, lambda: backups.configured
            ),
            "upgrade": TableKind(Upgrade(self.cluster, nodes).plan, Waits(self.cluster)),
        }
        return Operations(self.cluster, self, log, kinds, self._operation_succeeded)

    def _switch_partitions(self, partitions: int) -> None:
        """Begin a recovery that makes the table for another number of partitions."""
        self._next_partitions = partitions
        self.back_to_recovery(f"there will be {partitions} partitions", asked=True)

    def _operation_succeeded(self, kind: str) -> None:
        """Read the last ids anew when the database was loaded."""
        if kind == "restore":
            self.back_to_recovery("the database was restored", asked=True)

    def _make_handlers(self) -> dict[NodeType, Handler]:
        cluster, core, coordinator = self.cluster, self, self.coordinator
        backup, packs, checks = self.backup, self.packs, self.checks
        masters = MasterCommands(cluster, core, self.tenure)
        reports = Reports(cluster, core)
        return {
            NodeType.STORAGE: ServeStorage(
                *(cluster, core, coordinator, self.replication),
                *(backup, packs, checks, self.operations),
            ),
            NodeType.CLIENT: ServeClient(cluster, coordinator, packs),
            NodeType.ADMIN: ServeAdmin(
                *(cluster, self._membership, core, self, coordinator, backup),
                *(packs, checks, self.scrub, reports, masters),
                self.operations,
            ),
        }

    def _new_recovery(self) -> Recovery:
        partitions, self._next_partitions = self._next_partitions, None
        before = self._was_operational, partitions
        return Recovery(self.cluster, self, self.settings, self.comparison, *before)

    # -- phases ------------------------------------------------------------------------------------

    def start(self) -> None:
        super().start()
        if self.tenure is not None:
            FailureDetector(self.cluster, self).tick()
        self.scrub.start()
        self.operations.start()
        self._phase = self.spawn(self.live())

    async def live(self) -> None:
        """Lead the cluster from RECOVERING to RUNNING or STARTING_BACKUP, then watch the clock.

        Cancelled when the cluster stops being operational.
        """
        cluster, recovery = self.cluster, self.recovery
        await recovery.run()
        cluster.change_state(Event.RECOVERED)
        for peer in cluster.storages():
            peer.send(cluster.table())
        self.operations.recovered()
        cluster.ask_confirmations()
        found = await verify(cluster, self, recovery.backup)
        memory = found.memory
        if memory is None and (left := self.coordinator.backups.lease_left) > 0:
            # What was finished now is acknowledged soon, and a backup that lacks it may be in sync.
            await self.sleep(left)
        await self.comparison.compare(None if memory is None else memory.least, recovery.forced)
        settled = settle(cluster, found)
        # What storage nodes answered last made the table durable, too.
        assert cluster.partitions.ptid is not None
        cluster.served(cluster.partitions.ptid)
        self._was_operational = True
        if memory is None:
            self.coordinator.backups.begin()
            self.coordinator.prepared.restore(*settled)
            cluster.change_state(Event.VERIFIED)
            for peer in cluster.running():
                cluster.start_storage(peer, backup=False)
            self.replication.discard_fed()
        else:
            cluster.change_state(Event.VERIFIED_BACKUP)
            self.coordinator.prepared.restore(*settled._replace(survivors=[]))
            self.backup.begin(memory, settled)
        await watch_clock(cluster, self)

    def back_to_recovery(self, reason: str, asked: bool = False) -> None:
        """Stop the operation and start it again from RECOVERING, unless that is under way. ``asked``: the
        operator gave a command that needs it."""
        cluster = self.cluster
        if (cluster.state, Event.NOT_OPERATIONAL) not in TRANSITIONS:
            return
        if asked:
            logger.warning("the cluster goes back to RECOVERING, as the operator asked: %s", reason)
        else:
            logger.error("the cluster is not operational any more: %s", reason)
        self._stop_phase()
        for part in self.parts:
            part.operation_stopped()
        cluster.stop_operation()
        cluster.change_state(Event.NOT_OPERATIONAL)
        self.recovery = self._new_recovery()
        self._phase = self.spawn(self.live())

    def _stop_phase(self) -> None:
        if self._phase is not None:
            self._phase.cancel()

    def stop_cluster(self) -> None:
        """Stop the cluster when no transaction is left but those that are prepared, as the operator
        asked."""
        if self.cluster.state is ClusterState.STOPPING:
            return
        self._stop_phase()
        self.cluster.change_state(Event.STOP)
        self.call_later(STOP_SECONDS, self._shut_down)
        self.check_stopped()

    def check_stopped(self) -> None:
        """End STOPPING if no transaction is left but those that are prepared."""
        if self.cluster.state is ClusterState.STOPPING and self.coordinator.idle():
            self._shut_down()

    def _shut_down(self) -> None:
        """Tell each storage node to stop, and end this process (specification 4.34)."""
        if not self.coordinator.idle():
            logger.warning("transactions did not end before the stop: the next start decides on them")
        if count := len(self.coordinator.prepared):
            logger.warning("%s prepared transactions remain for the next start", count)
        for peer in self.cluster.storages():
            node = peer.node
            assert node is not None
            row = (node.type, node.address, node.nid, NodeState.DOWN, None)
            peer.send(NotifyNodeInformation(self.cluster.stamp(), [row]))
        self.stop(0)

    # -- events ------------------------------------------------------------------------------------

    def storage_lost(self, node: Node, was_running: bool) -> None:
        assert node.nid is not None
        for part in self.parts:
            part.storage_lost(node.nid)
        if self.cluster.state is ClusterState.RECOVERING:
            self.recovery.lost()
        elif was_running:
            self._check_operational(node.nid)

    def _check_operational(self, lost: int) -> None:
        cluster = self.cluster
        truncating = cluster.state is ClusterState.VERIFYING and cluster.truncate_tid is not None
        running = cluster.running_storages()
        alone = cluster.published.missing(running)
        operational = cluster.partitions.operational(running) and alone is None
        if cluster.state is ClusterState.STOPPING and not operational:
            # What is being finished cannot be: the next start decides about it.
            self._shut_down()
        elif truncating or not operational:
            before = f" before it had what follows partition table {alone.ptid}" if alone else ""
            self.back_to_recovery(f"{format_nid(lost)} is lost{before}")
        else:
            cluster.change_partitions(cluster.lost_cells())
            self.coordinator.go_on_without(lost)

    def cells_changed(self, ptid: int, changes: list[CellChange]) -> None:
        for part in self.parts:
            part.cells_changed(ptid, changes)

    def table_confirmed(self) -> None:
        for part in self.parts:
            part.table_confirmed()

    def _upstream_lost(self) -> None:
        self.checks.upstream_lost()

    def storage_joined(self, peer: Peer) -> None:
        """Ask an identified storage node what it remembers, or start it if it is RUNNING."""
        assert peer.node is not None
        if self.cluster.state is ClusterState.RECOVERING:
            self.recovery.joined(peer)
        elif self.cluster.state in SERVING and peer.node.state is NodeState.RUNNING:
            self.cluster.start_storage(peer, self.backup.active)
        self.operations.storage_joined(peer)

    # -- one of several masters --------------------------------------------------------------------

    def output(self, link: Link, data: bytes, close: bool) -> None:
        """Write to a connection if this master holds the lease, and when the log has the partition table
        that the output may depend on."""
        tenure = self.tenure
        if tenure is None:
            super().output(link, data, close)
        elif not tenure.may_send():
            super().output(link, b"", close)
        elif tenure.waits:
            # Bounded by the lease, which is lost when the log does not go on.
            self._held.append((link, data, close))
        else:
            super().output(link, data, close)

    def release(self) -> None:
        """Write what was held back: the log has the last partition table."""
        self.cluster.published.logged(self.cluster.published.ptid)
        self.table_confirmed()
        held, self._held = self._held, []
        for link, data, close in held:
            self.output(link, data, close)

    def abandon(self) -> None:
        super().abandon()
        held, self._held = self._held, []
        for link, _, close in held:
            if close:
                link.close()

    def set_masters(self, rows: list[NodeRow]) -> None:
        """Update the node table with the other masters, as they are now."""
        addresses = {row[1] for row in rows}
        changed = []
        for node in self.nodes.of_type(NodeType.MASTER):
            if node is not self.cluster.node and node.address not in addresses:
                node.state = NodeState.UNKNOWN
                self.nodes.remove(node)
                changed.append(node)
        for node_type, address, nid, state, _ in rows:
            known = self.nodes.by_address(node_type, address)
            if known is not None and known.nid != nid:
                self.nodes.remove(known)
                known = None
            if known is None and self.nodes.get(nid) is None:
                known = self.nodes.add(Node(node_type, nid, address))
            if known is not None and known.state is not state:
                known.state = state
                changed.append(known)
        if changed:
            self.cluster.notify_nodes(changed)

    # -- handlers ----------------------------------------------------------------------------------

    def stranger_handler(self) -> Handler:
        return self._identification

    def service_handler(self, node_type: NodeType) -> Handler:
        """Return the handler of an identified peer."""
        if node_type is NodeType.CLIENT and self.backup.active:
            return self._reader_handler
        return self._handlers[node_type]
