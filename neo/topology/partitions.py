"""Table of the cells: which node has which partition (specification 9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import gcd

from neo.protocol.enums import CellState, NodeState
from neo.protocol.packets import CellChange, CellRow
from neo.topology.balance import Path, balance
from neo.topology.nodes import NodeTable

#: ``pt.partition`` and data ids have 16 bits.
MAX_PARTITIONS = 32768

_NOWHERE: Mapping[int, Path] = {}


class PartitionTable:
    """Rows of cells, by partition. ``ptid`` is None before the table is known."""

    def __init__(self) -> None:
        self.ptid: int | None = None
        self.replicas = 0
        self.rows: list[dict[int, CellState]] = []

    def __len__(self) -> int:
        """NP, the number of partitions."""
        return len(self.rows)

    def clear(self) -> None:
        self.ptid, self.replicas, self.rows = None, 0, []

    # -- changes -------------------------------------------------------------------------------

    def load(self, ptid: int | None, replicas: int, rows: Iterable[Iterable[CellRow]]) -> None:
        """Replace the whole table (SendPartitionTable, AnswerPartitionTable)."""
        self.ptid = ptid
        self.replicas = replicas
        self.rows = [dict(row) for row in rows]

    def create(
        self, partitions: int, replicas: int, nids: list[int], paths: Mapping[int, Path] = _NOWHERE
    ) -> None:
        """Build the first table of a database: every node gets its share, all cells are UP_TO_DATE.

        ``paths``: topology path by node id, which keeps replicas far apart. A node without a path is
        equally far from all others.
        """
        nids = sorted(nids)
        copies = min(replicas + 1, len(nids))
        rows = [
            {nids[(p * copies + i) % len(nids)]: CellState.UP_TO_DATE for i in range(copies)}
            for p in range(partitions)
        ]
        # Among equal choices, cells stay where they are: without topology, the order is round robin.
        chosen = balance(rows, {nid: paths.get(nid, ()) for nid in nids}, copies)
        self.load(1, replicas, [[(n, CellState.UP_TO_DATE) for n in sorted(row)] for row in chosen])

    def change(self, ptid: int, replicas: int, changes: Iterable[CellChange]) -> None:
        """Apply NotifyPartitionChanges. DISCARDED removes a cell."""
        self.ptid = ptid
        self.replicas = replicas
        for partition, nid, state in changes:
            if state is CellState.DISCARDED:
                self.rows[partition].pop(nid, None)
            else:
                self.rows[partition][nid] = state

    def regroup(self, partitions: int) -> None:
        """Make the table of the same cells for another number of partitions (specification 27.90).

        A node has a cell of a new partition if it has one of each former partition whose ids may be in
        it. The new cell is as good as the worst of these.
        """
        before, rows = self.rows, []
        for sources in grouped(len(before), partitions):
            nids = set(before[sources[0]]).intersection(*(before[p] for p in sources[1:]))
            rows.append({nid: worst(before[p][nid] for p in sources) for nid in sorted(nids)})
        self.rows = rows

    # -- questions -----------------------------------------------------------------------------

    def state_of(self, id_: bytes, nid: int | None) -> CellState | None:
        """Return the state of a node's cell that has an oid or a tid; None if it has none."""
        row = self.rows[int.from_bytes(id_, "big") % len(self.rows)]
        return None if nid is None else row.get(nid)

    def partition(self, id_: bytes) -> int:
        return int.from_bytes(id_, "big") % len(self.rows)

    def state(self, partition: int, nid: int | None) -> CellState | None:
        return self.rows[partition].get(nid) if nid is not None else None

    def readable(self, partition: int) -> list[int]:
        return [nid for nid, state in self.rows[partition].items() if state.readable]

    def writable(self, partition: int) -> list[int]:
        return [nid for nid, state in self.rows[partition].items() if state.writable]

    def assigned(self, nid: int) -> list[int]:
        """Return the partitions of which a node has a cell, in any state."""
        return [partition for partition, row in enumerate(self.rows) if nid in row]

    def readable_by(self, nid: int) -> list[int]:
        """Return the partitions of which a node has a readable cell."""
        return [partition for partition in self.assigned(nid) if self.rows[partition][nid].readable]

    def whole(self) -> bool:
        """Return whether every cell is readable."""
        return all(state.readable for row in self.rows for state in row.values())

    def nodes(self, readable_only: bool = False) -> set[int]:
        """Return the ids of the nodes that have a cell, or a readable one."""
        return {
            nid
            for row in self.rows
            for nid, state in row.items()
            if state.readable or not readable_only
        }

    def operational(self, running: set[int]) -> bool:
        """Return whether every partition has a readable cell on one of these nodes."""
        return bool(self.rows) and all(
            any(state.readable and nid in running for nid, state in row.items())
            for row in self.rows
        )

    def missing(self, running: set[int]) -> set[int]:
        """Return the nodes with a cell of a partition that no running node can read. Each such
        partition needs at least one of its nodes."""
        return {
            nid
            for partition, row in enumerate(self.rows)
            if not running.intersection(self.readable(partition))
            for nid in row
        }

    def row_list(self, first: int = 0, last: int | None = None) -> list[list[CellRow]]:
        return [sorted(row.items()) for row in self.rows[first:last]]

    def changes(self) -> list[CellChange]:
        """Return the whole table as cell changes."""
        return [
            (partition, nid, state)
            for partition, row in enumerate(self.rows)
            for nid, state in row.items()
        ]


#: From the best to the worst.
_STATES = CellState.UP_TO_DATE, CellState.FEEDING, CellState.OUT_OF_DATE, CellState.CORRUPTED


def grouped(before: int, after: int) -> list[range]:
    """Return, for each of ``after`` partitions, the partitions of ``before`` whose ids may be in it: an
    id that is congruent to ``q`` modulo ``after`` is so modulo each common divisor, too."""
    divisor = gcd(before, after)
    return [range(partition % divisor, before, divisor) for partition in range(after)]


def worst(states: Iterable[CellState]) -> CellState:
    """Return the state of a cell whose data was in cells of these states."""
    return max(states, key=_STATES.index)


def running_storages(nodes: NodeTable) -> set[int]:
    """Return the ids of the RUNNING storage nodes."""
    return {
        node.nid
        for node in nodes
        if node.nid is not None and node.nid >= 0 and node.state is NodeState.RUNNING
    }
