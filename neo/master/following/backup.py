"""STARTING_BACKUP and BACKINGUP: this cluster follows another one (specification 13).

Theory of operation
-------------------
The master joins the upstream cluster as a client (:mod:`neo.master.following.upstream`) and compares
histories: the last transaction of this cluster must be in the other one. From then on it is told of
commits, and orders storage nodes to fetch their partitions up to these. :mod:`neo.master.following.cells`
decides which node fetches when, and from where. Clients of this cluster are readers. They see the tid
up to which every cell is complete; when it is raised, they get the invalidations of the transactions
between.

When the upstream cluster is away, BACKINGUP goes on: clients read what is there, and orders wait.
STARTING_BACKUP ends when the upstream cluster was reached and its history fits.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable

from neo.master.cluster import Cluster, left_behind
from neo.master.following.cells import BackupCells
from neo.master.following.contact import Contact
from neo.master.following.orders import Orders
from neo.master.following.pack import Packer
from neo.master.following.positions import Known, Positions
from neo.master.following.readers import Readers
from neo.master.following.sources import Sources
from neo.master.following.upstream import (
    SyncUpstream,
    Unfit,
    Upstream,
    check_history,
    join,
    last_transaction,
)
from neo.master.maintenance.pack import Packs
from neo.master.maintenance.replication import Replication
from neo.master.settings import MasterSettings
from neo.master.states import STARTING_BACKUP, Event
from neo.master.sync.copy import Copy
from neo.master.sync.marks import Committed
from neo.master.sync.memory import SyncMemory
from neo.master.sync.pipeline import Pipeline
from neo.master.sync.synchronous import Synchronous
from neo.node.core import Core
from neo.node.peer import Peer
from neo.node.task import Task
from neo.protocol.enums import CellState, NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import ZERO_TID, time_from_tid
from neo.protocol.packets import (
    Address,
    CellChange,
    NotifyUpstreamAdmin,
    Replicate,
)
from neo.topology.masters import RETRY_SECONDS, MasterCandidates

logger = logging.getLogger("neo.master")

#: Pause before a history that does not fit is compared again: the operator may have repaired it.
UNFIT_SECONDS = 10.0
#: A synchronous backup waits so often, and so long, until what it has locked is finished upstream.
FINISH_TRIES = 20
FINISH_SECONDS = 0.25


class Backup:
    """One stay in backup mode."""

    def __init__(
        self,
        cluster: Cluster,
        core: Core,
        settings: MasterSettings,
        replication: Replication,
        packs: Packs,
        committed: Committed,
        known: Known,
        memory: SyncMemory,
    ) -> None:
        self._cluster = cluster
        self._core = core
        self._replication = replication
        self.upstream_name = settings.upstream_cluster
        self.cells = BackupCells(known.rows, known.last)
        self.packer = Packer(core, packs)
        self.contact = Contact(core)
        self._following: Upstream | None = None
        self._cluster_nid: int | None = None
        #: The last transaction that was announced while the histories were compared.
        self._heard = ZERO_TID
        self._readers = Readers(cluster, known.last)
        self.sources = Sources(cluster, core.host, self.upstream_name or "")
        self.positions = Positions(cluster, self.cells, known)
        pipeline = Pipeline(cluster.partitions.readable)
        self.orders = Orders(
            cluster=cluster,
            core=core,
            cells=self.cells,
            positions=self.positions,
            sources=self.sources,
            pipeline=pipeline,
        )
        #: None if this backup is not configured to be synchronous.
        self.synchronous: Synchronous | None = None
        if settings.sync and self.upstream_name:
            copy = Copy(
                cells=self.cells,
                positions=self.positions,
                sources=self.sources,
                orders=self.orders,
                pipeline=pipeline,
                readers=self._readers,
                marks=known.marks,
            )
            self.synchronous = Synchronous(
                cluster=cluster, core=core, copy=copy, committed=committed, memory=memory
            )
        self._told_admin: Address | None = None
        self._task: Task[None] | None = None
        self._stopped = False
        if self.upstream_name and settings.upstream_masters:
            self.masters = MasterCandidates(settings.upstream_masters)

    @property
    def following(self) -> bool:
        """Whether the upstream cluster is connected and its history fits."""
        return self._following is not None

    @property
    def lag(self) -> float:
        """By how many seconds what is shown here is behind the last upstream transaction that is known.
        Infinite if nothing is shown yet."""
        shown, last = self.cells.tid, self.cells.last
        if shown >= last:
            return 0.0
        return time_from_tid(last) - time_from_tid(shown) if shown > ZERO_TID else math.inf

    def start(self) -> None:
        """Begin. Call when storage nodes were told to start."""
        self.positions.ask_readable()
        self._cluster.last_tid = self.cells.tid
        for nid in sorted(self.positions.forgetful):
            nothing: dict[int, Address | None] = dict.fromkeys(self.cells.of_node(nid))
            self._cluster.connected[nid].send(Replicate(self.cells.last, "", nothing))
            self.positions.ask(nid)
        if self.upstream_name:
            self._task = self._core.spawn(self._follow(self.upstream_name))
        else:
            self.contact.failed("'upstream_cluster' is not set")
            logger.error(
                "this database is a standby, but 'upstream_cluster' is not set: set it, or leave"
                " standby mode with: neoctl set cluster stopping_backup"
            )
        self.orders.tick()

    def stop(self) -> None:
        self._stopped = True
        self.positions.stop()
        self.orders.stop()
        if self.synchronous is not None:
            self.synchronous.stop()
        self.contact.stop()
        if self._task is not None:
            self._task.cancel()
        self.packer.stop()

    # -- upstream ----------------------------------------------------------------------------------

    async def _follow(self, cluster: str) -> None:
        reported, peer = "", None
        try:
            while True:
                sync = self.synchronous
                upstream = Upstream(self) if sync is None else SyncUpstream(self, sync)
                peer = await join(
                    core=self._core,
                    handler=upstream,
                    masters=self.masters,
                    own_name=self._cluster.name,
                    cluster=cluster,
                    nid=self._cluster_nid,
                    failed=self.contact.failed,
                )
                self._cluster_nid = upstream.nid
                pause = RETRY_SECONDS
                try:
                    if sync is not None:
                        await sync.greet(peer, upstream)
                    last = await self._last(peer, upstream)
                    await check_history(self._core, upstream, cluster, self.cells.last, last)
                    self._connected(upstream, last)
                    if sync is not None:
                        sync.followed(peer, upstream)
                    self.contact.begin(peer)
                    reported = await upstream.ended
                    if upstream.stopping:
                        reported = "it was stopped"
                        logger.info("the upstream cluster was stopped")
                    else:
                        logger.warning("the upstream cluster is lost: %s", reported)
                    self.contact.failed(reported)
                except (Unfit, ConnectionLost, ErrorAnswer) as e:
                    self.contact.failed(str(e))
                    if str(e) != reported:
                        reported = str(e)
                        logger.error("the upstream cluster cannot be followed: %s", e)
                    if isinstance(e, Unfit):
                        pause = UNFIT_SECONDS
                self._following = self.sources.following = None
                self._heard = ZERO_TID
                if sync is not None:
                    sync.lost(self.contact.reason)
                self._cluster.events.upstream_lost()
                peer.close()
                await self._core.sleep(pause)
        finally:
            if peer is not None:
                peer.close()

    async def _last(self, peer: Peer, upstream: Upstream) -> bytes:
        """Return the last transaction of the upstream cluster. What a synchronous backup has locked may
        not be finished there yet."""
        for _ in range(FINISH_TRIES):
            last = await last_transaction(peer, upstream, len(self.cells.rows))
            if last >= self.cells.last or not upstream.synchronous:
                break
            await self._core.sleep(FINISH_SECONDS)
        return last

    def _connected(self, upstream: Upstream, last: bytes) -> None:
        last = max(last, self._heard)
        self._following = self.sources.following = upstream
        if last > self.cells.last:
            self._readers.missed(last)
        # Earlier orders may name source nodes that are gone.
        self.orders.forget_upstream()
        self.cells.jumped(last)
        self._cluster.tids.seen(last)
        logger.info("following the upstream cluster from %s", last.hex())
        self._tell_admins()
        self._check_started()
        self.orders.give()
        self.advance()
        self._pack()

    def heard(self, tid: bytes, oids: list[bytes]) -> None:
        """Note a transaction that was committed upstream (InvalidateObjects)."""
        if not self.following:
            self._heard = max(self._heard, tid)
            return
        self._cluster.tids.seen(tid)
        if self.synchronous is not None and self.synchronous.heard(tid, oids):
            self.cells.announced = max(self.cells.announced, tid)
            self.advance()
            return
        if tid <= self.cells.last:
            logger.error(
                "transaction %s was imported into the upstream cluster before %s: this standby will"
                " not have it. When the import is over: neoctl check, then neoctl print check",
                tid.hex(),
                self.cells.last.hex(),
            )
            return
        self.cells.heard(tid, {self._cluster.partitions.partition(id_) for id_ in (tid, *oids)})
        self._readers.heard(tid, oids)
        self.orders.give()

    def tables_changed(self) -> None:
        """Choose sources again: upstream nodes may have come or gone."""
        if not self.following:
            return
        self.orders.forget_upstream(gone_only=True)
        self._tell_admins()
        self.orders.give()

    def _tell_admins(self) -> None:
        for address in [] if self._following is None else self._following.admins()[:1]:
            if address != self._told_admin:
                self._told_admin = address
                self._cluster.broadcast(NotifyUpstreamAdmin(address), NodeType.ADMIN)

    def introduce(self, peer: Peer, node_type: NodeType) -> None:
        """Tell an admin node that joined this cluster which upstream admin node watches over it."""
        if node_type is NodeType.ADMIN and self._told_admin is not None:
            peer.send(NotifyUpstreamAdmin(self._told_admin))

    # -- what storage nodes say --------------------------------------------------------------------

    def done(self, nid: int, partition: int, tid: bytes) -> None:
        """Note that an order was done, or that a cell caught up (NotifyReplicationDone)."""
        if not 0 <= partition < len(self.cells.rows):
            return
        state = self._cluster.partitions.state(partition, nid)
        joins = state is CellState.OUT_OF_DATE and self._replication.asked(partition, nid)
        if self.cells.get(partition, nid) is None and not joins:
            return
        self.positions.done(partition, nid, tid)
        self.orders.prune()
        self.orders.give(partition)
        self.positions.ask_if_behind(nid)
        self.advance()

    def cells_changed(self, changes: Iterable[CellChange]) -> None:
        """React to a change of the partition table of this cluster."""
        self._remove((p, nid) for p, nid, state in changes if not state.readable)
        self.positions.ask_readable()
        if self.synchronous is not None:
            self.synchronous.cells_changed()

    def storage_lost(self, nid: int) -> None:
        """Drop cells of a node that were about to join; they start again when it comes back."""
        self.positions.storage_lost(nid)
        joining = [p for p, cell in self.cells.of_node(nid).items() if cell.joining]
        self._remove((partition, nid) for partition in joining)
        if self.synchronous is not None:
            self.synchronous.storage_lost(nid)

    def _remove(self, cells: Iterable[tuple[int, int]]) -> None:
        nids = set()
        for partition, nid in cells:
            self.positions.remove(partition, nid)
            nids.add(nid)
        self.orders.prune()
        self.orders.give()
        for nid in sorted(nids):
            # Its watermark may have been held back by the cell that it lost.
            self.positions.ask_if_behind(nid)
        self.advance()

    # -- what clients see --------------------------------------------------------------------------

    def advanced(self) -> None:
        """Go on with what waited for a storage node, or for a prepared transaction."""
        self._check_started()
        self.orders.give()
        self.advance()

    def advance(self) -> None:
        """Show clients what is complete now, unless another master could start without it."""
        if self._stopped:
            return
        before = self.cells.tid
        if self.positions.table_kept and self.cells.advance():
            self._show(before)
        if self.synchronous is not None:
            self.synchronous.evaluate()
        joined = self.cells.joined() if self.synchronous is None else self.synchronous.joined()
        for partition, nid in joined:
            self._replication.done(nid, partition)

    def _show(self, before: bytes) -> None:
        cluster, tid = self._cluster, self.cells.tid
        cluster.last_tid = tid
        assert cluster.partitions.ptid is not None
        cluster.served(cluster.partitions.ptid)
        self._readers.show(before, tid)
        self._pack()

    def packed(self, tid: bytes) -> None:
        """Pack as the upstream cluster does (NotifyPack). A cell behind the pack cannot stop before
        it."""
        self.packer.wanted(tid)
        if self.following:
            self.orders.forget_before(tid)
            self.orders.give()
        self._pack()

    def _pack(self) -> None:
        """Pack if that is possible. Without the upstream cluster it is not known what is missing."""
        if self.following:
            self.packer.advanced(self.cells.tid, self.cells.last)

    def _check_started(self) -> None:
        """Enter BACKINGUP when all storage nodes remember durably that they are a backup."""
        if self._cluster.state is STARTING_BACKUP and self.following and not self.positions.forgetful:
            self._cluster.change_state(Event.FOLLOWING)

    # -- the end -----------------------------------------------------------------------------------

    def end(self, ending: Callable[[], None]) -> None:
        """Call back when nothing is being locked, and what was locked is complete durably: now, unless
        this backup is synchronous (specification 25.25)."""
        if self.synchronous is None:
            ending()
        else:
            self.synchronous.end(ending)

    def leave(self) -> bytes:
        """Stop, and return the tid after which everything is to be deleted. Cells that are not complete
        up to it become OUT_OF_DATE."""
        self.stop()
        tid, rows = self.cells.switch_tid(), self._cluster.partitions.rows
        behind = self.cells.behind(tid)
        self._cluster.change_partitions([(p, nid, left_behind(rows[p][nid])) for p, nid in behind])
        return tid
