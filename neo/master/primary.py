"""The primary master: creates the parts and connects them, and leads the cluster from phase to phase.

:meth:`PrimaryMaster.live` recovers, verifies and serves, and starts again from the beginning whenever
the partition table stops being operational. Only the process and tests import this module.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from neo.master.clock import watch_clock
from neo.master.cluster import Cluster
from neo.master.commit.coordinator import Coordinator
from neo.master.commit.prepared import Survivor
from neo.master.commit.transactions import Transactions
from neo.master.election.commands import MasterCommands
from neo.master.election.leadership import OperationsInLog, Tenure
from neo.master.failure_detector import FailureDetector
from neo.master.figures import MasterFigures
from neo.master.following.mode import BackupMode
from neo.master.maintenance.check import Checks
from neo.master.maintenance.client_caches import ClientCaches
from neo.master.maintenance.membership import Membership
from neo.master.maintenance.pack import Packs
from neo.master.maintenance.replication import Replication
from neo.master.maintenance.reports import Reports
from neo.master.maintenance.scrub import DAY_SECONDS, Scrub
from neo.master.operations.backup import Backup
from neo.master.operations.kinds import Kind, TableKind
from neo.master.operations.moves import Moves, MovesCells
from neo.master.operations.part import Check, MemoryLog, OperationLog, Operations
from neo.master.operations.partitions import Partitions, SwitchesPartitions
from neo.master.operations.restore import Restore
from neo.master.operations.room import BackupRoom, MoveRoom
from neo.master.operations.storage_nodes import StorageNodes
from neo.master.operations.upgrade import Upgrade, Waits
from neo.master.parts import Part
from neo.master.phases.comparison import Comparison
from neo.master.phases.recovery import Recovery
from neo.master.phases.survivors import Settled, settle
from neo.master.phases.verification import verify
from neo.master.serving.admin import Maintenance, ServeAdmin
from neo.master.serving.backup_client import ServeReader
from neo.master.serving.client import ServeClient
from neo.master.serving.identification import Identification
from neo.master.serving.storage import ServeStorage
from neo.master.settings import MasterSettings
from neo.master.states import SERVING, TRANSITIONS, Event
from neo.node.core import Core, Readiness
from neo.node.figures import Sample, build
from neo.node.handler import Handler
from neo.node.host import Host
from neo.node.peer import Link, Peer, Portion
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
        #: This master has verified the database: its storage nodes are connected, or away.
        self._was_operational = False
        #: Output that waits until the log has the partition table.
        self._held: list[tuple[Link, Portion, bool]] = []
        self._phase: Task[None] | None = None

        # What all parts share.
        self.cluster = cluster = self._make_cluster(bind)
        transactions: Transactions[Peer] = Transactions()

        # Maintenance of the copies, below the parts that need it.
        self.packs = Packs(cluster=cluster, core=self)
        self.replication = Replication(cluster=cluster, transactions=transactions)
        membership = Membership(cluster=cluster)

        # Commits.
        self.coordinator = Coordinator(
            cluster=cluster,
            core=self,
            transactions=transactions,
            replication=self.replication,
            settings=settings,
        )

        # Operations in steps.
        nodes = StorageNodes(cluster=cluster)
        moves = Moves(cluster=cluster, nodes=nodes)
        moves_cells = MovesCells(
            cluster=cluster, membership=membership, transactions=transactions
        )
        switches = SwitchesPartitions(
            cluster=cluster, core=self, commits=self.coordinator, phases=self
        )
        kinds: dict[str, Kind] = {
            "backup": Backup(cluster=cluster, packs=self.packs),
            "restore": Restore(cluster=cluster),
            "replace": TableKind(plan=moves.replace, own=moves_cells),
            "add": TableKind(plan=moves.add, own=moves_cells),
            "remove": TableKind(plan=moves.remove, own=moves_cells),
            "partitions": Partitions(
                cluster=cluster,
                nodes=nodes,
                packs=self.packs,
                own=switches,
                backups=self.coordinator.backups,
            ),
            "upgrade": TableKind(
                plan=Upgrade(cluster=cluster, nodes=nodes).plan, own=Waits(cluster=cluster)
            ),
        }
        log: OperationLog = MemoryLog(int(host.time()))
        if tenure is not None:
            log = OperationsInLog(tenure)
        reports = Reports(cluster=cluster, core=self)
        moved = MoveRoom(cluster=cluster, reports=reports).check
        checks: dict[str, Check] = dict.fromkeys(("replace", "add", "remove"), moved)
        checks["backup"] = BackupRoom(cluster=cluster, core=self).check
        self.operations = Operations(
            cluster=cluster, core=self, log=log, kinds=kinds, checks=checks
        )

        # Another cluster that this one follows.
        self.backup = BackupMode(
            cluster=cluster,
            core=self,
            settings=settings,
            coordinator=self.coordinator,
            replication=self.replication,
            packs=self.packs,
            operation=self,
        )

        # Comparison of the copies.
        self.checks = Checks(cluster=cluster, packs=self.packs, upstream=self.backup)
        self.comparison = Comparison(cluster=cluster, checks=self.checks, operation=self)
        self.scrub = Scrub(
            cluster=cluster,
            checks=self.checks,
            packs=self.packs,
            host=host,
            period=settings.scrub_days * DAY_SECONDS,
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
        self.recovery = self._new_recovery(partitions=None)

        # What takes the messages of each kind of peer.
        self._identification = Identification(
            cluster=cluster,
            settings=settings,
            packs=self.packs,
            backup=self.backup,
            operations=self.operations,
            reception=self,
        )
        self._reader_handler = ServeReader(cluster=cluster)
        self._handlers: dict[NodeType, Handler] = {
            NodeType.STORAGE: ServeStorage(
                cluster=cluster,
                coordinator=self.coordinator,
                replication=self.replication,
                backup=self.backup,
                packs=self.packs,
                checks=self.checks,
                operations=self.operations,
            ),
            NodeType.CLIENT: ServeClient(
                cluster=cluster,
                coordinator=self.coordinator,
                packs=self.packs,
                operations=self.operations,
            ),
            NodeType.ADMIN: ServeAdmin(
                cluster=cluster,
                core=self,
                phases=self,
                coordinator=self.coordinator,
                backup=self.backup,
                maintenance=Maintenance(
                    membership=membership,
                    packs=self.packs,
                    checks=self.checks,
                    scrub=self.scrub,
                    reports=reports,
                    caches=ClientCaches(cluster=cluster, core=self),
                ),
                operations=self.operations,
                masters=MasterCommands(cluster=cluster, core=self, tenure=tenure),
            ),
        }
        self._figures = MasterFigures(
            cluster=cluster, transactions=transactions, backup=self.backup
        )

    def _make_cluster(self, bind: Address) -> Cluster:
        settings, tenure = self.settings, self.tenure
        nid = settings.nid if settings.nid is not None else nid_namespace(NodeType.MASTER) + 1
        if tenure is not None:
            nid = tenure.nid
        node = self.nodes.add(Node(NodeType.MASTER, nid, bind, NodeState.RUNNING, identified=True))
        cluster = self.cluster_type(
            name=settings.cluster,
            node=node,
            nodes=self.nodes,
            partitions=self.partitions,
            time=self.host.time,
            events=self,
            log=tenure,
        )
        if tenure is not None:
            # What earlier primaries published.
            cluster.published.ptid = tenure.greatest
            cluster.served_ptid = tenure.ptid
            cluster.served_nodes = set(tenure.nodes)
        return cluster

    def _new_recovery(self, partitions: int | None) -> Recovery:
        """Return another stay in RECOVERING. ``partitions``: the number that it makes; None: as it is."""
        return Recovery(
            cluster=self.cluster,
            core=self,
            settings=self.settings,
            comparison=self.comparison,
            was_operational=self._was_operational,
            partitions=partitions,
        )

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
        if not self.operations.held("clients"):  # nodes may be loading an archive (specification 27.103)
            await self.comparison.compare(None if memory is None else memory.least, recovery.forced)
        settled = settle(cluster, found)
        # What storage nodes answered last made the table durable, too.
        assert cluster.partitions.ptid is not None
        cluster.served(cluster.partitions.ptid)
        self._was_operational = True
        if memory is None:
            self.coordinator.backups.begin()
            self._restore(settled, settled.survivors)
            cluster.change_state(Event.VERIFIED)
            for peer in cluster.running():
                cluster.start_storage(peer, backup=False)
            self.replication.discard_fed()
        else:
            cluster.change_state(Event.VERIFIED_BACKUP)
            self._restore(settled, survivors=[])  # a synchronous backup keeps them otherwise
            self.backup.begin(memory, settled)
        await watch_clock(cluster, self)

    def _restore(self, settled: Settled, survivors: list[Survivor]) -> None:
        """Continue with what was prepared before this start."""
        self.coordinator.prepared.restore(
            survivors=survivors,
            outcomes=settled.outcomes,
            partial=settled.partial,
            nids=settled.nids,
        )

    def back_to_recovery(
        self, reason: str, asked: bool = False, partitions: int | None = None
    ) -> None:
        """Stop the operation and start it again from RECOVERING, unless that is under way. ``asked``: the
        operator gave a command that needs it. ``partitions``: their number from now on; None: as it
        is."""
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
        self.recovery = self._new_recovery(partitions)
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

    # -- for monitoring ----------------------------------------------------------------------------

    def readiness(self) -> Readiness:
        state = self.cluster.state
        return Readiness(state in SERVING, f"primary master; the cluster is {state.name}")

    def samples(self) -> Iterator[Sample]:
        yield build(self.cluster.name, "master")
        yield from super().samples()
        yield from self._figures.samples()

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

    def storage_dropped(self, nid: int) -> None:
        self.operations.dropped(nid)

    def commits_advanced(self) -> None:
        self.coordinator.finish()

    def transactions_ended(self) -> None:
        # A vote may wait for the end of another transaction.
        if self.coordinator.failed_votes.waiting:
            self.coordinator.failed_votes.evaluate()
        if self.cluster.state is ClusterState.STOPPING:
            self.check_stopped()

    def preset_tid_free(self) -> None:
        self.coordinator.begin_waiting()

    def backup_advanced(self) -> None:
        self.backup.advanced()

    def upstream_lost(self) -> None:
        self.checks.upstream_lost()

    def operation_over(self, kind: str) -> None:
        if kind == "restore":
            # Read the last ids anew, and let nodes replicate: the database was loaded, or emptied.
            self.back_to_recovery("a restore is over", asked=True)

    def storage_joined(self, peer: Peer) -> None:
        """Ask an identified storage node what it remembers, or start it if it is RUNNING."""
        assert peer.node is not None
        if self.cluster.state is ClusterState.RECOVERING:
            self.recovery.joined(peer)
        elif self.cluster.state in SERVING and peer.node.state is NodeState.RUNNING:
            self.cluster.start_storage(peer, self.backup.active)
        self.operations.storage_joined(peer)

    # -- one of several masters --------------------------------------------------------------------

    def output(self, link: Link, data: Portion, close: bool) -> None:
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
