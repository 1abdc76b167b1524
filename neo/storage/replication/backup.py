"""How the cells of a backup cluster follow their upstream (specification, *Backup*).

Theory of operation
-------------------
The master orders (Replicate) to make cells complete up to a tid, and says from where: a storage node
of the upstream cluster, another one of this cluster, or nowhere because nothing has changed. One cell
is fetched at a time, by the protocol of replication; a cell that fails is tried again after the others,
until it is done or the master gives another order for it.

* ``complete``: the tid up to which each own cell has everything.
* ``backup_tid`` in the database: the least of them over the readable cells; over all of them while none
  can be read, so that a node remembers to be a backup's before the master makes its cells readable. It
  is written together with the data, so that it is never more than what is on disk; after a restart all
  cells begin there. It appears with the first order, not before: a node that has none has what a
  RUNNING cluster had.
* Truncate ends backup mode, so ``backup_tid`` goes with it, durably and at once: no master may take the
  node for one of a backup again. Own cells are still complete only up to that tid, though some of what is
  later was fetched already. The row ``_left_backup_tid`` keeps it until the data is cut.
* NotifyReplicationDone is sent when data and ``backup_tid`` are durable.

A readable cell is written to while clients read it: they ask for what is before a tid that the master
gave them, and nothing earlier is touched.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.enums import NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import ZERO_TID, add64
from neo.protocol.packets import (
    Address,
    CellChange,
    NotifyReplicationDone,
)
from neo.storage.backend.api import LEFT_BACKUP_TID
from neo.storage.replication.backup_fetch import BackupFetch
from neo.storage.replication.backup_links import UpstreamLinks
from neo.storage.replication.fetch import FetchFailed

if TYPE_CHECKING:
    from neo.storage.node import StorageNode

logger = logging.getLogger("neo.storage")

#: A cell that could not be fetched is tried again after this time.
RETRY_SECONDS = 1.0
#: In :class:`~neo.storage.links.Links`.
USER = "backup"


@dataclass(eq=False, slots=True)
class _Order:
    tid: bytes
    upstream: str
    source: Address
    #: Not before this time.
    after: float = 0.0
    failure: str = ""


class BackupReplicator:
    def __init__(self, core: StorageNode) -> None:
        self._core = core
        self.active = False
        self.links = UpstreamLinks(core)
        self._start()

    def _start(self) -> None:
        self._complete: dict[int, bytes] = {}
        #: How often each own cell was lost: what was fetched for it before counts no more.
        self._losses: Counter[int] = Counter()
        #: At most one for each own cell.
        self._orders: dict[int, _Order] = {}
        self._working = False
        self._wake: Future[None] = Future()
        #: Storage nodes of backups of this cluster that fetch here.
        self._served: dict[Peer, None] = {}

    def start(self, active: bool) -> None:
        """StartOperation. ``active``: this cluster is a backup."""
        core = self._core
        assert core.nid is not None
        if self.active and active:
            return
        self.active = active
        remembered = core.backend.get_config("backup_tid")
        if not active:
            if remembered is not None:
                # The mode ended while this node was away: what it has may not have happened.
                logger.warning("the cluster is no backup any more: own cells are compared in whole")
                core.backend.forget_complete(core.nid)
                core.backend.set_config("backup_tid", None)
                core.commit_soon()
            return
        for partition in core.readable_partitions():
            if remembered is not None:
                self._complete[partition] = bytes.fromhex(remembered)
            else:
                self._complete[partition] = core.backend.last_ids([partition])[1] or ZERO_TID

    def leave(self) -> None:
        """Stop being a backup's node: Truncate. Call :meth:`cut` when the data is cut."""
        backend = self._core.backend
        complete = backend.get_config("backup_tid")
        if complete is not None:
            backend.set_config(LEFT_BACKUP_TID, complete)
            backend.set_config("backup_tid", None)

    def cut(self) -> None:
        """What is left after a truncation is a database of its own."""
        for row in ("backup_tid", LEFT_BACKUP_TID):
            self._core.backend.set_config(row, None)

    def clear(self) -> None:
        """The operation stops; the job is cancelled."""
        self.active = False
        self.links.clear()
        served, self._served = self._served, {}
        for peer in served:
            peer.close()
        self._start()

    def serve(self, peer: Peer) -> None:
        """A storage node of a backup of this cluster connected."""
        self._served[peer] = None

    def unserve(self, peer: Peer) -> None:
        """The connection with it ended, if it is one of a backup."""
        self._served.pop(peer, None)

    @property
    def idle(self) -> bool:
        return not self._orders

    def has(self, partition: int, tid: bytes) -> bool:
        """Whether the own readable cell can be a source up to ``tid``."""
        return not self.active or self._complete.get(partition, ZERO_TID) >= tid

    def has_readable(self, partition: int, tid: bytes) -> bool:
        """Whether there is a cell here that readers of a backup are shown up to ``tid``."""
        readable = partition in self._core.readable_partitions()
        return self.active and readable and self.has(partition, tid)

    # -- the partition table -----------------------------------------------------------------------

    def replicated(self, partition: int, tid: bytes) -> None:
        """An own cell that was out of date is complete; it cannot be read yet. The cluster may become a
        backup before it can. Call before what is stored is durable, and the master is told."""
        self._complete[partition] = max(tid, self._complete.get(partition, ZERO_TID))
        if self.active:
            self._remember()

    def told_late(self, tids: Iterable[bytes]) -> None:
        """SendPartitionTable: own cells can be read that were out of date in this node's table, and
        complete up to these tids. Written in the same transaction as the table."""
        backend = self._core.backend
        least = min((tid.hex() for tid in tids), default=None)
        for row in ("backup_tid", LEFT_BACKUP_TID):
            remembered = backend.get_config(row)
            if remembered is not None and least is not None and least < remembered:
                backend.set_config(row, least)

    def cells_changed(self, changes: Iterable[CellChange]) -> None:
        """NotifyPartitionChanges. Written in the same transaction as the change."""
        for partition, nid, state in changes:
            if nid == self._core.nid and not state.readable:
                self._complete.pop(partition, None)
                self._orders.pop(partition, None)
                self._losses[partition] += 1
        if self.active:
            self._remember()

    def _remember(self) -> None:
        core = self._core
        partitions = core.readable_partitions() or self._complete
        if partitions:
            tid = min(self._complete.get(partition, ZERO_TID) for partition in partitions).hex()
            if core.backend.get_config("backup_tid") != tid:
                core.backend.set_config("backup_tid", tid)
                core.commit_soon()

    # -- orders ------------------------------------------------------------------------------------

    def order(self, tid: bytes, upstream: str, sources: Mapping[int, Address | None]) -> None:
        """Replicate."""
        if not self.active:
            return
        core = self._core
        for partition, source in sources.items():
            known = self._orders.get(partition)
            if not 0 <= partition < len(core.partitions) or partition not in self._complete:
                logger.info("no complete cell of partition %s to go on with", partition)
            elif source is not None:
                later = tid if known is None else max(tid, known.tid)
                self._orders[partition] = _Order(later, upstream, source)
            elif known is not None:
                known.tid = max(known.tid, tid)
            else:
                self._complete[partition] = max(self._complete[partition], tid)
        self._remember()
        core.packer.begin()
        self._look()
        if self._orders and not self._working:
            self._working = True
            core.run_job(self._work())

    def _look(self) -> None:
        wake, self._wake = self._wake, Future()
        wake.resolve(None)

    async def _work(self) -> None:
        core = self._core
        while True:
            now = core.shell.monotonic()
            ready = [p for p, order in self._orders.items() if order.after <= now]
            if not ready:
                if self._orders:
                    later = min(order.after for order in self._orders.values())
                    core.call_later(later - now, self._look)
                else:
                    core.links.release(USER)
                await self._wake
                continue
            # The one that has waited longest.
            partition = ready[0]
            order = self._orders.pop(partition)
            self._orders[partition] = order
            try:
                await self._fetch(partition, order)
            except (ConnectionLost, ErrorAnswer, FetchFailed) as e:
                if partition not in self._orders:
                    continue
                if str(e) != order.failure:  # once, not every second
                    order.failure = str(e)
                    logger.warning("partition %s does not follow: %s", partition, e)
                order.after = core.shell.monotonic() + RETRY_SECONDS

    async def _fetch(self, partition: int, order: _Order) -> None:
        core, last = self._core, order.tid
        complete, losses = self._complete[partition], self._losses[partition]
        first = ZERO_TID if complete == ZERO_TID else add64(complete, 1)
        if first <= last:
            source = await self._connect(order)
            await BackupFetch(core, source, partition, first, last).run()
            await core.stored()
        if self._losses[partition] != losses:
            return
        self._complete[partition] = max(self._complete[partition], last)
        self._remember()
        core.packer.begin()
        current = self._orders.get(partition)
        if current is not None and current.tid <= last:
            del self._orders[partition]
        await core.stored()
        if core.master is not None:
            core.master.send(NotifyReplicationDone(partition, last))

    async def _connect(self, order: _Order) -> Peer:
        core = self._core
        if order.upstream:
            return await self.links.connect(order.upstream, order.source)
        node = core.nodes.by_address(NodeType.STORAGE, order.source)
        if node is None or node.nid is None:
            raise ConnectionLost(f"no storage node is known at {order.source}")
        return await core.links.connect(node.nid, USER)
