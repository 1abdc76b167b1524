"""Backup mode: how it is entered and left, and the stay in it if there is one (specification 17.13,
13)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from neo.master.cluster import Cluster
from neo.master.commit.coordinator import Coordinator
from neo.master.commit.prepared import Survivor
from neo.master.denial import denied
from neo.master.following.backup import Backup
from neo.master.following.positions import Known
from neo.master.maintenance.pack import Packs
from neo.master.maintenance.replication import Replication
from neo.master.maintenance.truncation import check_all_there
from neo.master.parts import Operation
from neo.master.phases.memory import Memory
from neo.master.phases.survivors import Settled
from neo.master.settings import MasterSettings
from neo.master.states import Event
from neo.master.sync.memory import SyncMemory
from neo.master.sync.synchronous import Synchronous
from neo.node.core import Core
from neo.node.peer import Peer
from neo.protocol.enums import ClusterState, ErrorCode, NodeType
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import ZERO_TID, format_nid, format_nids, format_xid
from neo.protocol.packets import Address, CellChange, NotifyPrepared, SyncMark, SyncRow
from neo.topology.nodes import Node

logger = logging.getLogger("neo.master")

#: Takes the outcome of a command: None, or why it had no effect.
Outcome = Callable[[ErrorAnswer | None], None]


@dataclass(eq=False, repr=False)
class BackupMode:
    cluster: Cluster
    core: Core
    settings: MasterSettings
    coordinator: Coordinator
    replication: Replication
    packs: Packs
    operation: Operation
    #: None unless the cluster is STARTING_BACKUP, BACKINGUP, or STOPPING after these.
    current: Backup | None = field(default=None, init=False)

    #: Until when this cluster was in sync. It outlives the stays in backup mode.
    memory: SyncMemory = field(init=False)

    #: Called with the outcome of commands to enter backup mode, which wait until storage nodes remember
    #: it, and to leave it, which wait until what is being locked is unlocked. Bound: one for each command
    #: of an operator.
    _entering: list[Outcome] = field(default_factory=list, init=False)
    _leaving: list[Outcome] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.memory = SyncMemory(self.cluster, self.core)

    @property
    def active(self) -> bool:
        return self.current is not None

    @property
    def synchronous(self) -> Synchronous | None:
        """This cluster as a synchronous backup; None if it is none, and outside backup mode."""
        return None if self.current is None else self.current.synchronous

    def sync_row(self) -> SyncRow | None:
        """Return the state of this cluster as a synchronous backup, None if it is none."""
        name, current = self.settings.upstream_cluster, self.current
        if current is not None:
            return None if current.synchronous is None else current.synchronous.row()
        starting = self.cluster.state in (ClusterState.RECOVERING, ClusterState.VERIFYING)
        if starting and self.settings.sync and name and self.cluster.truncate_tid is None:
            return self.memory.row(name)
        return None

    # -- enter -------------------------------------------------------------------------------------

    def check_start(self) -> None:
        """Raise ErrorAnswer unless the cluster can become a backup now."""
        cluster = self.cluster
        if not (self.settings.upstream_cluster and self.settings.upstream_masters):
            raise denied(
                "this cluster is not configured to be a standby: set 'upstream_cluster' and"
                " 'upstream_masters' of its master"
            )
        if cluster.state is not ClusterState.RUNNING:
            raise denied(f"the cluster must be RUNNING to become a standby, it is {cluster.state.name}")
        clients = [
            format_nid(peer.node.nid)
            for peer in cluster.of_type(NodeType.CLIENT)
            if peer.node is not None and not peer.node.backups  # the master of a backup only reads
        ]
        if clients:
            raise denied(f"clients are connected, stop them first: {', '.join(sorted(clients))}")
        if (obstacle := self.coordinator.prepared.obstacle()) is not None:
            raise denied(obstacle)
        if self.coordinator.transactions:
            raise denied("a transaction is being finished: try again")
        if cluster.starting:
            raise denied("a storage node is starting: try again")
        if self.packs.running:
            raise denied("a pack is at work: wait until it is done")

    def start(self, outcome: Outcome) -> None:
        """Go from RUNNING to STARTING_BACKUP. ``outcome``: called when every next master would go on with
        that (specification 13.33), or with the reason why it may not."""
        self._entering.append(outcome)
        self.cluster.stop_clients()
        self.cluster.change_state(Event.START_BACKUP)
        self.begin(None)
        self._check_entered()

    def _check_entered(self) -> None:
        """Tell the operator, if all storage nodes remember durably that this cluster follows another one,
        and lost ones are out of date for every next master."""
        current = self.current
        if current is not None and not current.positions.forgetful and current.positions.table_kept:
            self._entering = _tell(self._entering, None)

    def begin(self, memory: Memory | None, settled: Settled | None = None) -> None:
        """Begin service in STARTING_BACKUP. ``memory``: what storage nodes remember; None if the cluster
        was RUNNING until now, so that all readable cells have everything. ``settled``: what is prepared,
        which a synchronous backup keeps (specification 25.27)."""
        known = self._known(memory)
        if settled is not None and not self.settings.sync:
            for survivor in settled.survivors:
                name = format_xid(survivor.mark.xid)
                logger.warning("prepared transaction %s is dropped: 'sync' is not set", name)
        elif settled is not None:
            known = known._replace(marks=[_sync_mark(s) for s in settled.survivors])
            kept = NotifyPrepared([survivor.ttid for survivor in settled.survivors])
            for nid in sorted(settled.nids):
                if (storage := self.cluster.connected.get(nid)) is not None:
                    storage.send(kept)
        self.current = Backup(
            cluster=self.cluster,
            core=self.core,
            settings=self.settings,
            replication=self.replication,
            packs=self.packs,
            committed=self.coordinator.prepared.committed,
            known=known,
            memory=self.memory,
        )
        for peer in self.cluster.running():
            self.cluster.start_storage(peer, backup=True)
        self.replication.discard_fed()
        self.current.start()

    def _known(self, memory: Memory | None) -> Known:
        """Return what is known of the cells.

        If some node knows that its cells are readable, and does not remember to be a backup, the
        beginning was interrupted before anything was fetched: it counts as if it began now. What a node
        remembers is not about a cell of which the node does not know that it is readable. If no other
        cell can replace that one, the node is asked again, since it has been told of it now.
        """
        table, last = self.cluster.partitions, self.cluster.last_tid
        running = self.cluster.running_storages()
        known, unaware = memory or ({}, frozenset())
        cells = [
            (partition, nid)
            for partition in range(len(table))
            for nid in table.readable(partition)
            if nid in running
        ]
        new = any(
            known.get(nid) is None for partition, nid in cells if (partition, nid) not in unaware
        )
        rows: list[dict[int, bytes]] = [{} for _ in range(len(table))]
        for partition, nid in cells:
            tid = ZERO_TID if (partition, nid) in unaware else known.get(nid) or ZERO_TID
            rows[partition][nid] = last if new else tid
        return Known(rows, last, new, unaware.intersection(cells))

    # -- leave -------------------------------------------------------------------------------------

    def check_stop(self) -> None:
        """Raise ErrorAnswer unless backup mode can be left now."""
        state = self.cluster.state
        if state is ClusterState.RUNNING:
            raise denied("this cluster is RUNNING, not a standby")
        # Whether it is one is known when it serves.
        if self.current is None or state is ClusterState.STOPPING:
            raise denied(
                "the cluster must be STARTING_BACKUP or BACKINGUP to leave standby mode,"
                f" it is {state.name}"
            )
        check_all_there(self.cluster)
        if nids := self.current.positions.unknown:
            raise denied(
                f"{format_nids(nids)} did not say yet up to what all is there:"
                " try again in a moment"
            )

    def stop(self, outcome: Outcome) -> None:
        """Leave standby mode when what is being locked is unlocked durably, which counts as complete
        (specification 25.25). ``outcome``: called when the cluster is RECOVERING without backup mode, or
        with the reason why that goes on."""
        assert self.current is not None
        self._leaving.append(outcome)
        self.current.end(self._leave)

    def _leave(self) -> None:
        try:
            self.check_stop()  # a node may have been lost meanwhile
        except ErrorAnswer as e:
            self._leaving = _tell(self._leaving, e)
            return
        leaving, self._leaving = self._leaving, []
        self._stop()
        _tell(leaving, None)

    def _stop(self) -> None:
        """Go through STOPPING_BACKUP and RECOVERING, where everything is deleted that is not complete, to
        RUNNING. The truncation makes storage nodes forget that they were a backup: until all of them
        remember it durably, the backup can go on (specification 4.21)."""
        assert self.current is not None
        self.cluster.change_state(Event.STOP_BACKUP)
        tid = self.cluster.truncate_tid = self.current.leave()
        self.current = None
        self.memory.forget()
        reason = f"standby mode ends at transaction {tid.hex()}"
        self.operation.back_to_recovery(reason, asked=True)

    # -- the stay ----------------------------------------------------------------------------------

    def source(self, partition: int) -> tuple[str, Address] | None:
        """Return the upstream cluster and a node of it where the partition can be read now."""
        return None if self.current is None else self.current.sources.any(partition)

    def done(self, nid: int, partition: int, tid: bytes) -> None:
        """Note that a storage node completed a cell up to ``tid``."""
        assert self.current is not None
        self.current.done(nid, partition, tid)

    def introduce(self, peer: Peer, node: Node) -> None:
        """Tell a node that joined what it must know of the upstream cluster."""
        if node.type is NodeType.STORAGE and self.cluster.truncate_tid is None:
            self.memory.heard(node.sync_until)
        if self.current is not None:
            self.current.introduce(peer, node.type)

    # -- events ------------------------------------------------------------------------------------

    def storage_lost(self, nid: int) -> None:
        if self.current is not None:
            self.current.storage_lost(nid)

    def cells_changed(self, ptid: int, changes: list[CellChange]) -> None:
        if self.current is not None:
            self.current.cells_changed(changes)

    def table_confirmed(self) -> None:
        if self.current is not None:
            self.current.advance()
        self._check_entered()

    def advanced(self) -> None:
        """Go on with what waited for a storage node, or for a prepared transaction."""
        if self.current is not None:
            self.current.advanced()
        self._check_entered()

    def operation_stopped(self) -> None:
        if self.current is not None:
            self.current.stop()
            self.current = None
        error = ErrorAnswer(ErrorCode.NOT_READY, "the operation stops: try again")
        self._entering, self._leaving = _tell(self._entering, error), _tell(self._leaving, error)


def _sync_mark(survivor: Survivor) -> SyncMark:
    ttid, mark, _, stored, checked = survivor
    return (ttid, mark.xid, mark.since, mark.text, sorted(mark.partitions), stored, checked)


def _tell(outcomes: list[Outcome], error: ErrorAnswer | None) -> list[Outcome]:
    """Call what waits for the outcome of a command. Return what waits now: nothing."""
    for outcome in outcomes:
        outcome(error)
    return []
