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


class Stage(Enum):
    PREPARING = auto()
    LOCKING = auto()


@dataclass(slots=True, eq=False)
class BackupTransaction:
    """``oids``: the objects that it stores. ``partitions``: theirs, and that of the metadata."""

    ttid: bytes
    tid: bytes
    oids: list[bytes]
    partitions: frozenset[int]
    stage: Stage = Stage.PREPARING
    #: (partition, nid) of the cells whose nodes were asked for the rows.
    cells: set[tuple[int, int]] = field(default_factory=set)
    #: Nodes that were asked for rows, and have not answered.
    preparing: set[int] = field(default_factory=set)
    #: Nodes that were asked to lock; and those that have not answered.
    nodes: set[int] = field(default_factory=set)
    locking: set[int] = field(default_factory=set)


class Pipeline:
    """Bound: the open transactions of the upstream cluster, which asks once for each."""

    def __init__(self, readable: Callable[[int], Iterable[int]]) -> None:
        """``readable``: return the nodes with a readable cell of a partition."""
        self._readable = readable
        #: In the order of tids: first those that are LOCKING.
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
        return any(t.stage is Stage.LOCKING for t in self._first())

    def _first(self) -> Iterable[BackupTransaction]:
        return list(self._queue.values())[:1]

    def preparing(self) -> list[BackupTransaction]:
        """Return the transactions that no node was asked to lock, the earliest first."""
        return [t for t in self._queue.values() if t.stage is Stage.PREPARING]

    def add(self, transaction: BackupTransaction) -> None:
        """Append a transaction. Raise ValueError if it is not later than all others."""
        if transaction.ttid in self._queue or transaction.tid <= self.last:
            raise ValueError(f"transaction {transaction.tid.hex()} is not later than the last one")
        self._queue[transaction.ttid] = transaction

    # -- rows --------------------------------------------------------------------------------------

    def lacking(self, transaction: BackupTransaction) -> dict[int, list[int]]:
        """Return node → partitions of the readable cells whose rows are to be asked for now, and record
        that they are asked."""
        lacking: dict[int, list[int]] = {}
        for partition in sorted(transaction.partitions):
            for nid in self._readable(partition):
                if (partition, nid) not in transaction.cells and nid not in transaction.preparing:
                    lacking.setdefault(nid, []).append(partition)
        for nid, partitions in lacking.items():
            transaction.cells.update((partition, nid) for partition in partitions)
            transaction.preparing.add(nid)
        return lacking

    def prepared(self, transaction: BackupTransaction, nid: int) -> None:
        """Note that a node has durably what it was asked for."""
        transaction.preparing.discard(nid)

    # -- locks -------------------------------------------------------------------------------------

    def next(self) -> BackupTransaction | None:
        """Return the transaction whose lock may begin; None if there is none. All nodes of the earlier
        ones have locked."""
        for transaction in self._queue.values():
            if transaction.stage is Stage.PREPARING:
                return transaction if self._prepared(transaction) else None
            if transaction.locking:
                return None
        return None

    def _prepared(self, transaction: BackupTransaction) -> bool:
        """Return whether all nodes with readable cells have the rows."""
        return not transaction.preparing and all(
            (partition, nid) in transaction.cells
            for partition in transaction.partitions
            for nid in self._readable(partition)
        )

    def lock(self, transaction: BackupTransaction) -> list[int]:
        """Begin the lock of :meth:`next`. Return the nodes to ask: all of them have the rows."""
        nodes = {nid for partition in transaction.partitions for nid in self._readable(partition)}
        transaction.nodes, transaction.locking = nodes, set(nodes)
        transaction.stage = Stage.LOCKING
        return sorted(nodes)

    def locked(self, transaction: BackupTransaction, nid: int) -> None:
        """Note that a node has locked a transaction durably."""
        transaction.locking.discard(nid)

    def pop_locked(self) -> BackupTransaction | None:
        """Remove and return the first transaction if all its nodes have locked it."""
        for transaction in self._first():
            if transaction.stage is Stage.LOCKING and not transaction.locking:
                return self._queue.pop(transaction.ttid)
        return None

    # -- losses ------------------------------------------------------------------------------------

    def storage_lost(self, nid: int) -> None:
        """Take a node out of all transactions. If it comes back it is asked again."""
        for transaction in self._queue.values():
            transaction.cells = {cell for cell in transaction.cells if cell[1] != nid}
            for nodes in (transaction.preparing, transaction.nodes, transaction.locking):
                nodes.discard(nid)

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
            assert t.preparing <= {nid for _, nid in t.cells}
            assert t.locking <= t.nodes <= {nid for _, nid in t.cells}
            assert not t.preparing or t.stage is Stage.PREPARING
