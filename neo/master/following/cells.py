"""The progress of each cell of a backup cluster, and its next step, PURE.

Theory of operation
-------------------
A cell is *complete* up to a tid if it has durably all that the upstream cluster committed in its
partition until then. Upstream transactions are announced in the order of their tids; ``changed`` is the
last one that touched a partition. So a cell that is complete up to ``changed`` is complete up to the
last transaction, without fetching anything. Otherwise one cell of the partition, the leader, fetches
from upstream, and the others fetch from the leader.

``tid`` is the watermark that clients of the backup see: the tid up to which *every* cell is complete,
because clients may read from any of them, and that the upstream cluster has announced. It never goes
back. What a storage node reports is durable, so
that a restart does not take it back either.

A cell that was out of date *joins* when it is complete up to some tid: it gets orders like the others,
holds ``tid`` back until it has reached it, and can then be read. Until then nobody can fetch from it, so
that it is never the leader.

A synchronous backup gets the rows of a transaction before it is announced: cells that have *unlocked* it
have nothing to fetch.

This module does no IO; methods return the orders to send.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from neo.protocol.ids import ZERO_TID


class Where(Enum):
    UPSTREAM = auto()
    NOWHERE = auto()  # there is nothing to fetch


class Order(NamedTuple):
    """Fetch a partition up to ``tid``. ``source``: the node of this cluster to fetch from, or another
    place."""

    nid: int
    partition: int
    tid: bytes
    source: int | Where


@dataclass(eq=False, slots=True)
class Cell:
    """One cell. It is durably complete up to ``tid``, and will be complete up to ``told`` when its node
    has read the messages that were sent to it."""

    tid: bytes
    told: bytes = ZERO_TID
    #: The order that its node works on.
    order: Order | None = None
    #: The last transaction that its node unlocked with everything before it that changed the partition.
    unlocked: bytes = ZERO_TID
    #: Whether the cell cannot be read yet. ``told`` becomes durable with the change of the partition
    #: table.
    joining: bool = False

    @property
    def reached(self) -> bytes:
        return max(self.tid, self.told)

    def has(self, changed: bytes) -> bool:
        """Return whether nothing is to be fetched, if its partition changed last at ``changed``."""
        return max(self.tid, self.told, self.unlocked) >= changed


class BackupCells:
    """``rows``: nid → tid of each readable cell, by partition. ``last``: no transaction here is later."""

    def __init__(self, rows: Iterable[dict[int, bytes]], last: bytes) -> None:
        self.rows = [{nid: Cell(tid) for nid, tid in row.items()} for row in rows]
        #: The last upstream transaction that is known.
        self.last = last
        #: The last transaction that changed each partition, or may have changed it.
        self.changed = [last] * len(self.rows)
        #: The last transaction that the upstream cluster announced. A synchronous backup may know later
        #: ones.
        self.announced = last
        self.tid = ZERO_TID
        self.advance()

    # -- upstream ----------------------------------------------------------------------------------

    def heard(self, tid: bytes, partitions: Iterable[int]) -> None:
        """Note an upstream transaction. ``tid`` is greater than ``last``."""
        assert tid > self.last
        self._change(tid, partitions)
        self.announced = tid

    def _change(self, tid: bytes, partitions: Iterable[int]) -> None:
        self.last = tid
        for partition in partitions:
            self.changed[partition] = tid

    def unlocked(self, tid: bytes, partitions: Iterable[int], nids: Container[int]) -> None:
        """Note an upstream transaction that these nodes have locked and were told to unlock, before it
        was announced. ``tid`` is greater than ``last``."""
        assert tid > self.last
        partitions = list(partitions)
        for partition in partitions:
            for nid, cell in self.rows[partition].items():
                if nid in nids and not cell.joining and cell.has(self.changed[partition]):
                    cell.unlocked = tid
        self._change(tid, partitions)

    def jumped(self, tid: bytes) -> None:
        """Note that the last transaction is ``tid``, and that earlier ones may have changed any
        partition."""
        self.last = max(self.last, tid)
        self.announced = max(self.announced, tid)
        self.changed = [self.last] * len(self.rows)

    # -- cells -------------------------------------------------------------------------------------

    def get(self, partition: int, nid: int) -> Cell | None:
        return self.rows[partition].get(nid)

    def of_node(self, nid: int) -> dict[int, Cell]:
        """Return the cells of a node by partition."""
        return {p: row[nid] for p, row in enumerate(self.rows) if nid in row}

    def all(self) -> Iterator[Cell]:
        for row in self.rows:
            yield from row.values()

    def done(self, partition: int, nid: int, tid: bytes) -> None:
        """Note that a cell is complete up to ``tid``, as its node reports. An unknown cell joins."""
        cell = self.rows[partition].setdefault(nid, Cell(ZERO_TID, joining=True))
        cell.tid = max(cell.tid, tid)
        if cell.order is not None and cell.order.tid <= tid:
            cell.order = None

    @property
    def complete(self) -> bytes:
        """The tid up to which all cells that can be read are complete durably. Zero if a partition cannot
        be read."""
        return min(
            min((cell.tid for cell in row.values() if not cell.joining), default=ZERO_TID)
            for row in self.rows
        )

    def joining(self) -> dict[tuple[int, int], Cell]:
        """Return the cells that cannot be read yet, by (partition, nid)."""
        return {
            (partition, nid): cell
            for partition, row in enumerate(self.rows)
            for nid, cell in row.items()
            if cell.joining
        }

    def joined(
        self,
        least: bytes = ZERO_TID,
        admits: Callable[[int, int], bool] = lambda partition, nid: True,
    ) -> list[tuple[int, int]]:
        """Return (partition, nid) of the joining cells that become readable now: they have reached
        ``tid`` and ``least``, and ``admits`` does not hold them back."""
        found = []
        for place, cell in self.joining().items():
            if cell.tid >= max(self.tid, least) and admits(*place):
                cell.joining = False
                found.append(place)
        return found

    def remove(self, partition: int, nid: int) -> None:
        """Remove a cell that cannot be read any more; cells that fetch from it need another source."""
        if self.rows[partition].pop(nid, None) is not None:
            for cell in self.rows[partition].values():
                if cell.order is not None and cell.order.source == nid:
                    cell.order = None

    def advance(self) -> bool:
        """Raise ``tid`` as far as possible. Return whether it was raised."""
        if not all(self.rows):
            return False
        tid = min((cell.tid for cell in self.all()), default=ZERO_TID)
        tid = min(tid, self.announced)
        if tid <= self.tid:
            return False
        self.tid = tid
        return True

    # -- orders ------------------------------------------------------------------------------------

    def _leader(self, partition: int) -> int | None:
        """Return the node whose readable cell is complete up to the greatest tid. Among equal cells the
        choice is stable, and spread over the nodes by partition. Return None if no cell can be read."""
        row = {nid: cell for nid, cell in self.rows[partition].items() if not cell.joining}
        ahead = max((cell.reached for cell in row.values()), default=ZERO_TID)
        nids = sorted(nid for nid, cell in row.items() if cell.reached == ahead)
        return nids[partition % len(nids)] if nids else None

    def orders(self, partition: int, upstream: Callable[[int], object]) -> list[Order]:
        """Return new orders for the idle cells of a partition, and record them.

        ``upstream``: true if the partition can be fetched from the upstream cluster.
        """
        row, orders = self.rows[partition], []
        leader = self._leader(partition)
        for nid, cell in sorted(row.items()):
            if cell.order is not None or cell.reached >= self.last:
                continue
            if cell.has(self.changed[partition]):
                cell.told = self.last
                if cell.joining:
                    cell.tid = self.last
                orders.append(Order(nid, partition, self.last, Where.NOWHERE))
                continue
            if nid == leader:
                if not upstream(partition):
                    continue
                order = Order(nid, partition, self.last, Where.UPSTREAM)
            else:
                if leader is None or row[leader].tid <= cell.reached:
                    continue
                order = Order(nid, partition, row[leader].tid, leader)
            cell.order = order
            orders.append(order)
        return orders

    # -- the end -----------------------------------------------------------------------------------

    def switch_tid(self) -> bytes:
        """Return the last tid up to which some cell of each partition is complete. All transactions until
        then are complete, and clients have seen none after it."""
        return min(
            (max(cell.tid for cell in row.values() if not cell.joining) for row in self.rows),
            default=ZERO_TID,
        )

    def behind(self, tid: bytes) -> list[tuple[int, int]]:
        """Return (partition, nid) of the readable cells that are not complete up to a tid."""
        return [
            (partition, nid)
            for partition, row in enumerate(self.rows)
            for nid, cell in row.items()
            if cell.tid < tid and not cell.joining
        ]

    def validate(self) -> None:
        """Assert the invariants. Called by tests and the simulator."""
        for partition, row in enumerate(self.rows):
            assert self.changed[partition] <= self.last
            for nid, cell in row.items():
                order = cell.order
                assert order is None or (order.nid, order.partition) == (nid, partition)
