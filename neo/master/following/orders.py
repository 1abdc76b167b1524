"""Orders of a backup: what its storage nodes are told to fetch, until they have it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from neo.master.cluster import Cluster
from neo.master.following.cells import BackupCells, Order, Where
from neo.master.following.positions import Positions
from neo.master.following.sources import Sources
from neo.master.sync.pipeline import Pipeline
from neo.node.core import Core
from neo.protocol.packets import Address, Replicate

#: An order that is not done after this time is sent again, with another source if there is one. A node
#: that works on it goes on.
ORDER_SECONDS = 30.0


@dataclass(eq=False, repr=False)
class Orders:
    """Bound: one order for each cell. ``pipeline``: what is being locked here; nothing is fetched from
    upstream meanwhile."""

    cluster: Cluster
    core: Core
    cells: BackupCells
    positions: Positions
    sources: Sources
    pipeline: Pipeline
    #: Sources of the current orders, and when these were sent.
    _given: dict[Order, tuple[Address | None, float]] = field(default_factory=dict, init=False)
    _stopped: bool = field(default=False, init=False)

    def tick(self) -> None:
        """Send orders that take long again. Call once; it reschedules itself."""
        if self._stopped:
            return
        limit = self.core.host.monotonic() - ORDER_SECONDS
        self._withdraw(lambda order: self._given[order][1] <= limit)
        self.give()
        self.core.call_later(ORDER_SECONDS / 3, self.tick)

    def stop(self) -> None:
        self._stopped = True

    # -- given -------------------------------------------------------------------------------------

    def give(self, *partitions: int) -> None:
        """Send orders for the idle cells of these partitions, or of all, that are not complete: one
        message for each node, tid and kind of source."""
        if self._stopped:
            return
        orders = [
            order
            for partition in partitions or range(len(self.cells.rows))
            for order in self.cells.orders(partition, self._can_fetch)
        ]
        messages: dict[tuple[int, bytes, str], dict[int, Address | None]] = {}
        for order in orders:
            name, address = "", None
            if order.source is not Where.NOWHERE:
                name, address = self._source(order)
                self._given[order] = address, self.core.host.monotonic()
                if address is None:
                    continue  # None in a message means that there is nothing to fetch; tick() tries again
            messages.setdefault((order.nid, order.tid, name), {})[order.partition] = address
        for (nid, tid, name), sources in messages.items():
            if (peer := self.cluster.connected.get(nid)) is not None:
                peer.send(Replicate(tid, name, sources))
        for nid in sorted({order.nid for order in orders if order.source is Where.NOWHERE}):
            self.positions.ask(nid)

    def _can_fetch(self, partition: int) -> bool:
        return not self.pipeline.locking and bool(self.sources.of(partition))

    def _source(self, order: Order) -> tuple[str, Address | None]:
        if order.source is Where.UPSTREAM:
            return self.sources.any(order.partition) or ("", None)
        assert isinstance(order.source, int)
        node = self.cluster.nodes.get(order.source)
        return "", None if node is None else node.address

    # -- not waited for any more -------------------------------------------------------------------

    def forget_upstream(self, gone_only: bool = False) -> None:
        """Withdraw orders whose source is upstream; with ``gone_only``, only if that node is gone."""
        self._withdraw(
            lambda order: (
                order.source is Where.UPSTREAM
                and not (gone_only and self._given[order][0] in self.sources.of(order.partition))
            )
        )

    def forget_before(self, tid: bytes) -> None:
        """Withdraw orders that end before a pack, because nodes cannot stop there any more."""
        self._withdraw(lambda order: order.tid < tid)

    def _withdraw(self, which: Callable[[Order], bool]) -> None:
        """Withdraw orders, so that their cells get new ones."""
        for cell in self.cells.all():
            if cell.order is not None and which(cell.order):
                cell.order = None
        self.prune()

    def prune(self) -> None:
        """Forget the sources of orders that are done or withdrawn."""
        current = {cell.order for cell in self.cells.all()}
        self._given = {order: of for order, of in self._given.items() if order in current}
