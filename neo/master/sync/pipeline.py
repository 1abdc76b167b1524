"""The transactions that a synchronous backup is asked to lock, in the order of their tids, PURE
(specification 25.1 to 25.3, 25.20).

Theory of operation
-------------------
::

    add ──> PREPARING ──all nodes have its rows, and it is its turn──> LOCKING ──all locked──> removed
                │
                └─ dropped: the backup leaves sync

Transactions are prepared at the same time, and locked one after the other: the lock of one begins when
the earlier ones are locked by all their nodes. So what is locked is a prefix of the commits of the
upstream cluster.

The nodes of a transaction are those with readable cells of its partitions when its lock begins. So a cell
that becomes readable meanwhile gets the rows of what is not locked yet. A node that is lost leaves all
transactions; the caller sees to it that its cells are out of date before it removes one (specification
25.20).

This module does no IO; methods return what is to be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

from neo.protocol.ids import ZERO_TID

#: Returns nodes with a cell of a partition.
Cells = Callable[[int], Iterable[int]]


@dataclass(slots=True, eq=False)
class Rows:
    """The nodes that have the rows of a transaction. ``partitions``: the partitions of its objects and of
    its metadata."""

    partitions: frozenset[int]
    #: (partition, nid) of the cells whose nodes were asked for the rows.
    cells: set[tuple[int, int]] = field(default_factory=set)
    #: The cells of these whose nodes have not answered.
    pending: set[tuple[int, int]] = field(default_factory=set)

    @property
    def waiting(self) -> set[int]:
        """The nodes that were asked for rows, and have not answered."""
        return {nid for _, nid in self.pending}

    def lacking(self, cells: Cells) -> dict[int, list[int]]:
        """Return node → partitions of the cells whose rows are to be asked for now."""
        lacking: dict[int, list[int]] = {}
        waiting = self.waiting
        for partition in sorted(self.partitions):
            for nid in cells(partition):
                if (partition, nid) not in self.cells and nid not in waiting:
                    lacking.setdefault(nid, []).append(partition)
        return lacking

    def ask(self, nid: int, partitions: Iterable[int]) -> None:
        """Note that a node was asked for the rows of these partitions."""
        cells = {(partition, nid) for partition in partitions}
        self.cells |= cells
        self.pending |= cells

    def answered(self, nid: int) -> None:
        """Note that a node does not work on the rows any more."""
        self.pending = {cell for cell in self.pending if cell[1] != nid}

    def failed(self, nid: int, partitions: Iterable[int]) -> None:
        """Note that a node does not have the rows of these partitions. It can be asked again."""
        self.cells.difference_update((partition, nid) for partition in partitions)

    def has(self, partition: int, nid: int) -> bool:
        """Return whether the node has the rows in this partition."""
        return (partition, nid) in self.cells and (partition, nid) not in self.pending

    def complete(self, cells: Cells) -> bool:
        """Return whether these cells have the rows."""
        return all(
            self.has(partition, nid)
            for partition in self.partitions
            for nid in cells(partition)
        )

    def nodes(self) -> list[int]:
        """Return the nodes that were asked."""
        return sorted({nid for _, nid in self.cells})

    def lost(self, nid: int) -> None:
        """Forget a node. If it comes back it is asked again."""
        self.cells = {cell for cell in self.cells if cell[1] != nid}
        self.answered(nid)


class Stage(Enum):
    PREPARING = auto()
    LOCKING = auto()


@dataclass(slots=True, eq=False)
class BackupTransaction:
    """``oids``: the objects that it stores."""

    ttid: bytes
    tid: bytes
    oids: list[bytes]
    rows: Rows
    stage: Stage = Stage.PREPARING
    #: Nodes that were asked to lock, and which of these have not answered.
    nodes: set[int] = field(default_factory=set)
    locking: set[int] = field(default_factory=set)


class Pipeline:
    """Bound: the open transactions of the upstream cluster, which asks once for each."""

    def __init__(self, readable: Cells) -> None:
        """``readable``: return the nodes with a readable cell of a partition."""
        self._readable = readable
        #: In the order of tids. Transactions in LOCKING come first.
        self._queue: dict[bytes, BackupTransaction] = {}

    def get(self, ttid: bytes) -> BackupTransaction | None:
        return self._queue.get(ttid)

    @property
    def last(self) -> bytes:
        """The greatest tid; zero if there is no transaction."""
        return next((t.tid for t in reversed(self._queue.values())), ZERO_TID)

    @property
    def locking(self) -> bool:
        """Whether a transaction is between its lock and its unlock."""
        first = self._first()
        return first is not None and first.stage is Stage.LOCKING

    def _first(self) -> BackupTransaction | None:
        return next(iter(self._queue.values()), None)

    def preparing(self) -> list[BackupTransaction]:
        """Return the transactions that no node was asked to lock, the earliest first."""
        return [t for t in self._queue.values() if t.stage is Stage.PREPARING]

    def add(self, transaction: BackupTransaction) -> None:
        """Append a transaction. Raise ValueError if it is not later than all others."""
        if transaction.ttid in self._queue or transaction.tid <= self.last:
            raise ValueError(f"transaction {transaction.tid.hex()} is not later than the last one")
        self._queue[transaction.ttid] = transaction

    # -- locks -------------------------------------------------------------------------------------

    def next(self) -> BackupTransaction | None:
        """Return the transaction whose lock may begin; None if there is none. All nodes of the earlier
        ones have locked."""
        for transaction in self._queue.values():
            if transaction.stage is Stage.PREPARING:
                rows = transaction.rows
                ready = not rows.waiting and rows.complete(self._readable)
                return transaction if ready else None
            if transaction.locking:
                return None
        return None

    def lock(self, transaction: BackupTransaction) -> list[int]:
        """Begin the lock of :meth:`next`. Return the nodes to ask: all of them have the rows."""
        nodes = {nid for partition in transaction.rows.partitions for nid in self._readable(partition)}
        transaction.nodes, transaction.locking = nodes, set(nodes)
        transaction.stage = Stage.LOCKING
        return sorted(nodes)

    def locked(self, transaction: BackupTransaction, nid: int) -> None:
        """Note that a node has locked a transaction durably."""
        transaction.locking.discard(nid)

    def pop_locked(self) -> BackupTransaction | None:
        """Remove and return the first transaction if all its nodes have locked it."""
        first = self._first()
        if first is None or first.stage is not Stage.LOCKING or first.locking:
            return None
        return self._queue.pop(first.ttid)

    # -- losses ------------------------------------------------------------------------------------

    def storage_lost(self, nid: int) -> None:
        """Take a node out of all transactions. If it comes back it is asked again."""
        for transaction in self._queue.values():
            transaction.rows.lost(nid)
            transaction.nodes.discard(nid)
            transaction.locking.discard(nid)

    def drop(self) -> list[BackupTransaction]:
        """Remove and return the transactions that no node was asked to lock."""
        dropped = self.preparing()
        for transaction in dropped:
            del self._queue[transaction.ttid]
        return dropped

    def clear(self) -> None:
        self._queue.clear()

    def validate(self) -> None:
        """Assert the invariants. Called by tests and the simulator."""
        queue = list(self._queue.values())
        tids = [t.tid for t in queue]
        assert tids == sorted(set(tids))
        begun = [t for t in queue if t.stage is Stage.LOCKING]
        assert begun == queue[: len(begun)], "locks begin in the order of tids"
        assert all(not t.locking for t in begun[:-1]), "one is locked when the earlier ones are"
        for t in queue:
            assert t.rows.waiting <= set(t.rows.nodes())
            assert t.locking <= t.nodes <= set(t.rows.nodes())
            assert not t.rows.waiting & t.nodes
