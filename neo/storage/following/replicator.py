"""How the cells of a backup cluster follow their upstream (specification 13).

Theory of operation
-------------------
The master orders (Replicate) to make cells complete up to a tid, and names a source for each: a storage
node of the upstream cluster, another one of this cluster, or none because nothing has changed. Cells are
fetched one at a time, by the protocol of replication. A cell that fails is tried again after the others,
until it is done or the master sends another order for it.

* :mod:`neo.storage.following.progress` keeps the tid up to which each own cell has everything.
* NotifyReplicationDone is sent when data and ``backup_tid`` are durable.

Clients read a cell while it is written: they ask for revisions before a tid from the master, and nothing
earlier changes.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.enums import NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import ZERO_TID, add64
from neo.protocol.packets import Address, NotifyReplicationDone
from neo.storage.background import Background
from neo.storage.cells import Cells
from neo.storage.cluster import Cluster
from neo.storage.database import Database
from neo.storage.events import CellsChanged, Part
from neo.storage.following.fetch import BackupFetch
from neo.storage.following.links import UpstreamLinks
from neo.storage.links import Links
from neo.storage.maintenance.pack import Packer
from neo.storage.replication.failure import FetchFailed
from neo.storage.replication.fetch import Receiver

logger = logging.getLogger("neo.storage")

#: Pause before a cell is fetched again after a failure.
RETRY_SECONDS = 1.0
#: In :class:`~neo.storage.links.Links`.
USER = "backup"


@dataclass(eq=False, slots=True)
class _Order:
    tid: bytes
    upstream: str
    source: Address
    #: Earliest time of the next try.
    after: float = 0.0
    failure: str = ""


@dataclass(eq=False, repr=False)
class BackupReplicator(Part):
    database: Database
    cluster: Cluster
    cells: Cells
    background: Background
    links: Links
    upstream: UpstreamLinks
    receiver: Receiver
    packer: Packer

    def __post_init__(self) -> None:
        self._start()

    def _start(self) -> None:
        #: Number of times that each own cell was lost: data that was fetched before does not count.
        self._losses: Counter[int] = Counter()
        #: At most one for each own cell.
        self._orders: dict[int, _Order] = {}
        self._working = False
        self._wake: Future[None] = Future()

    def cells_changed(self, change: CellsChanged) -> None:
        for partition in change.unreadable:
            self._orders.pop(partition, None)
            self._losses[partition] += 1

    def operation_stopped(self) -> None:
        """Forget the orders; the job is cancelled."""
        self.cells.backup.stop()
        self._start()

    # -- orders ------------------------------------------------------------------------------------

    def order(self, tid: bytes, upstream: str, sources: Mapping[int, Address | None]) -> None:
        """Handle Replicate."""
        progress = self.cells.backup
        if not progress.active:
            return
        for partition, source in sources.items():
            known = self._orders.get(partition)
            exists = 0 <= partition < len(self.cells.partitions)
            if not exists or progress.tid(partition) is None:
                logger.info(
                    "order for partition %s is ignored: this node has no complete cell of it",
                    partition,
                )
            elif source is not None:
                later = tid if known is None else max(tid, known.tid)
                self._orders[partition] = _Order(later, upstream, source)
            elif known is not None:
                known.tid = max(known.tid, tid)
            else:
                progress.advance(partition, tid)
        progress.remember()
        self.packer.begin()
        self._notify()
        if self._orders and not self._working:
            self._working = True
            self.background.run(self._work())

    def _notify(self) -> None:
        wake, self._wake = self._wake, Future()
        wake.resolve(None)

    async def _work(self) -> None:
        while True:
            now = self.background.monotonic()
            ready = [p for p, order in self._orders.items() if order.after <= now]
            if not ready:
                if self._orders:
                    later = min(order.after for order in self._orders.values())
                    self.database.call_later(later - now, self._notify)
                else:
                    self.links.release(USER)
                await self._wake
                continue
            # The cell that has waited longest.
            partition = ready[0]
            order = self._orders.pop(partition)
            self._orders[partition] = order
            try:
                await self._fetch(partition, order)
            except (ConnectionLost, ErrorAnswer, FetchFailed) as e:
                if partition not in self._orders:
                    continue
                if str(e) != order.failure:  # log once, not every second
                    order.failure = str(e)
                    logger.warning("partition %s does not follow: %s", partition, e)
                order.after = self.background.monotonic() + RETRY_SECONDS

    async def _fetch(self, partition: int, order: _Order) -> None:
        progress, stored, last = self.cells.backup, self.database.stored, order.tid
        complete, losses = progress.tid(partition), self._losses[partition]
        assert complete is not None
        first = ZERO_TID if complete == ZERO_TID else add64(complete, 1)
        if first <= last:
            source = await self._connect(order)
            await BackupFetch(self.receiver, source, partition, first, last).run()
            await stored()
        if self._losses[partition] != losses:
            return
        progress.advance(partition, last)
        progress.remember()
        self.packer.begin()
        current = self._orders.get(partition)
        if current is not None and current.tid <= last:
            del self._orders[partition]
        await stored()
        self.cluster.tell_master(NotifyReplicationDone(partition, last))

    async def _connect(self, order: _Order) -> Peer:
        if order.upstream:
            return await self.upstream.connect(order.upstream, order.source)
        node = self.cluster.nodes.by_address(NodeType.STORAGE, order.source)
        if node is None or node.nid is None:
            raise ConnectionLost(f"no storage node is known at {order.source}")
        return await self.links.connect(node.nid, USER)
