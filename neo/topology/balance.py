"""Choose the nodes of each partition: far apart, balanced, with the fewest new cells.

Pure functions over rows of cells. :mod:`neo.topology.tweak` derives the states of the cells.

Theory of operation
===================

A *choice* gives each partition the same number of nodes. The best choice is found by these criteria, in
this order:

1. *Far apart.* Each pair of nodes has a closeness: their topology paths are compared element by element,
   and everything that the two share adds up. One device path for both is worst, then a common first
   element, then a common second one, and so on. A partition costs the sum over the pairs of its nodes.
   Only choices of the least cost (``_least``) are considered.
2. *Balanced.* The sum of the squares of the numbers of cells per node is as low as (1) permits, so the
   numbers differ by at most 1 unless topology requires otherwise.
3. *Few new cells*, each of which is a copy of a whole partition.
4. *Few OUT_OF_DATE cells* among the existing ones, because such a copy is incomplete.

Prefixes of paths are sets of nodes that are either disjoint or nested. Counting pairs in such sets is a
convex function, so the choices of least cost are the bases of a matroid. A greedy algorithm is therefore
correct: adding k times the node that adds the least cost gives the least cost (``_complete``), and every
cheaper row can be reached by exchanging one node at a time.

First, each row keeps its cells as far as (1) allows, and the rest goes to the nodes with the fewest cells
(``_settle``). Then cells move directly from full nodes to empty ones (``_level``). The remaining gains
need several exchanges at once: partition p moves from node 1 to node 2 so that q can move to node 1, and
so on. These are the negative cycles of a graph (``_cycle``). Its vertices are the nodes and a pool. An
arc from a to b is an exchange of a for b in the partition where it costs least. Arcs from the pool and to
it decrease one node's share and increase another's. A negative cycle with the fewest arcs keeps every row
a base, even when it changes a row twice, and a choice without a negative cycle is optimal (theory of
submodular flows). Each cycle improves an integer that is not negative, so the search ends.

A choice is replaced only by a better one. So the result is stable: the same nodes are chosen again while
the copies are in progress and after them.

Alternatives
------------

* Fill the table from scratch and match it with the old one: simple, but it moves many more cells.
* Move single cells as long as it helps: it stops in choices that only a cycle improves. It is the second
  step here, because it does most of the work in a small part of the time.
* Minimum cost flow on a network with a vertex for each cell: as exact, but the search would visit tens of
  thousands of vertices instead of one per node. The heaps (``_swaps``) know the partition of each arc.
* Weigh distance, balance and moves against each other: the result would not explain why a replica is
  where it is, or which weight to change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from operator import add, sub

from neo.protocol.enums import CellState

Path = tuple[str, ...]
#: (cost, partition): an exchange of two given nodes. Its cost never changes.
Swap = tuple[int, int]

#: Order in which a partition keeps its cells.
_ORDER = {CellState.UP_TO_DATE: 0, CellState.OUT_OF_DATE: 1, CellState.FEEDING: 2}


def closeness(paths: Sequence[Path], copies: int) -> list[list[int]]:
    """Return, for each pair of nodes, the cost of having the same partition.

    A set of ``copies`` nodes that shares less at one level costs less, whatever it shares at the next
    levels. An empty path is unknown and shares nothing.
    """
    base = copies * copies + 1
    depth = max(map(len, paths), default=0)

    def pair(a: Path, b: Path) -> int:
        total = base**depth if a and a == b else 0
        for level, (x, y) in enumerate(zip(a, b, strict=False), 1):
            if x != y:
                break
            total += base ** (depth - level)
        return total

    return [[pair(a, b) if i != j else 0 for j, b in enumerate(paths)] for i, a in enumerate(paths)]


def balance(
    rows: Sequence[Mapping[int, CellState]], nodes: Mapping[int, Path], copies: int
) -> list[set[int]]:
    """Return the ids of the ``copies`` nodes that each partition should be on.

    ``rows``: the writable cells of the partitions on ``nodes`` (id -> topology path), and no other
    cells. ``copies`` is 1 to the number of nodes. Deterministic.
    """
    assert 1 <= copies <= len(nodes), (copies, len(nodes))
    nids = sorted(nodes)
    index = {nid: i for i, nid in enumerate(nids)}
    search = _Search(
        [{index[nid]: state for nid, state in row.items()} for row in rows],
        closeness([nodes[nid] for nid in nids], copies),
        copies,
    )
    search.run()
    return [{nids[i] for i in chosen} for chosen in search.chosen]


class _Search:
    """The search of the best choice. Nodes are numbered from 0."""

    def __init__(
        self, rows: Sequence[Mapping[int, CellState]], near: list[list[int]], copies: int
    ) -> None:
        self._rows = rows
        self._near = near
        self._copies = copies
        self._nodes = range(len(near))
        #: One new cell costs more than any number of incomplete ones, and one cell too many on a node
        #: costs more than any number of new ones.
        cells = len(rows) * copies + 1
        self._new = cells
        self._unbalanced = cells * cells
        self._load = [0] * len(near)
        #: Nodes by partition, and the closeness of each node to all nodes of the partition.
        self.chosen: list[set[int]] = []
        self._crowd: list[list[int]] = []
        self._least = self._closeness(self._complete([]))
        #: By pair of nodes, a heap of possible exchanges, including some that have become illegal.
        self._swaps: list[list[list[Swap]]] = [[[] for _ in near] for _ in near]

    def run(self) -> None:
        self._settle()
        for partition in range(len(self._rows)):
            for a, b in self._legal_swaps(partition):
                self._swaps[a][b].append(self._swap(partition, a, b))
        for heaps in self._swaps:
            for heap in heaps:
                heapify(heap)
        self._level()
        while cycle := self._cycle():
            self._turn(cycle)

    # -- one partition ---------------------------------------------------------------------------

    def _settle(self) -> None:
        """Choose the nodes of one partition after the other."""
        for row in self._rows:
            for node, state in row.items():
                self._load[node] += state is not CellState.FEEDING
        for row in self._rows:
            for node, state in row.items():
                self._load[node] -= state is not CellState.FEEDING
            chosen = self._complete(self._keep(row))
            for node in chosen:
                self._load[node] += 1
            self.chosen.append(set(chosen))
            self._crowd.append([sum(near[other] for other in chosen) for near in self._near])

    def _keep(self, row: Mapping[int, CellState]) -> list[int]:
        """Return the cells that stay, considering this partition only."""
        cells = sorted(row, key=lambda node: (_ORDER[row[node]], self._load[node], node))
        best = cells[: self._copies]
        if len(best) == self._copies and self._closeness(best) == self._least:
            return best
        kept: list[int] = []
        for node in cells:
            if len(kept) == self._copies:
                break
            if self._closeness(self._complete([*kept, node])) == self._least:
                kept.append(node)
        return kept

    def _complete(self, some: list[int]) -> list[int]:
        """Add the nodes that are farthest from these; among equals, those with the fewest cells."""
        chosen = list(some)
        crowd = [sum(near[other] for other in chosen) for near in self._near]
        load = self._load
        free = [node for node in self._nodes if node not in chosen]
        while len(chosen) < self._copies:
            node = min(free, key=lambda node: (crowd[node], load[node], node))
            free.remove(node)
            chosen.append(node)
            crowd = list(map(add, crowd, self._near[node]))
        return chosen

    def _closeness(self, chosen: Iterable[int]) -> int:
        """Return twice the sum over the pairs."""
        chosen = list(chosen)
        return sum(self._near[a][b] for a in chosen for b in chosen)

    # -- exchanges -------------------------------------------------------------------------------

    def _price(self, partition: int, node: int) -> int:
        state = self._rows[partition].get(node)
        if state is None:
            return self._new
        return int(state is CellState.OUT_OF_DATE)

    def _swap(self, partition: int, a: int, b: int) -> Swap:
        return self._price(partition, b) - self._price(partition, a), partition

    def _legal(self, partition: int, a: int, b: int) -> bool:
        """Return whether exchanging ``a`` for ``b`` keeps the partition equally far apart."""
        chosen, crowd = self.chosen[partition], self._crowd[partition]
        return a in chosen and b not in chosen and crowd[b] - self._near[a][b] == crowd[a]

    def _legal_swaps(self, partition: int) -> list[tuple[int, int]]:
        chosen, crowd = self.chosen[partition], self._crowd[partition]
        free = [node for node in self._nodes if node not in chosen]
        return [
            (a, b)
            for a in sorted(chosen)
            for b, near, total in ((b, self._near[a][b], crowd[b]) for b in free)
            if total - near == crowd[a]
        ]

    def _best_swap(self, a: int, b: int) -> Swap | None:
        """Return the cheapest exchange of two nodes in any partition."""
        heap = self._swaps[a][b]
        while heap and not self._legal(heap[0][1], a, b):
            heappop(heap)
        return heap[0] if heap else None

    def _exchange(self, partition: int, a: int, b: int) -> None:
        self.chosen[partition].remove(a)
        self.chosen[partition].add(b)
        crowd = map(add, self._crowd[partition], self._near[b])
        self._crowd[partition] = list(map(sub, crowd, self._near[a]))
        self._load[a] -= 1
        self._load[b] += 1

    def _offer(self, partition: int) -> None:
        """Add the exchanges that are legal in a partition that has changed."""
        for a, b in self._legal_swaps(partition):
            heappush(self._swaps[a][b], self._swap(partition, a, b))

    # -- the whole table -------------------------------------------------------------------------

    def _level(self) -> None:
        """Exchange cells between nodes whose loads differ by 2 or more, until no exchange is left."""
        while True:
            for a in sorted(self._nodes, key=lambda node: (-self._load[node], node)):
                found = [
                    (swap[0], self._load[b], b, swap[1])
                    for b in self._nodes
                    if self._load[b] + 2 <= self._load[a] and (swap := self._best_swap(a, b))
                ]
                if found:
                    _, _, b, partition = min(found)
                    self._exchange(partition, a, b)
                    self._offer(partition)
                    break
            else:
                return

    def _arcs(self) -> list[list[tuple[int, int]]]:
        """Return, by vertex, pairs of (next vertex, cost). The pool is the last vertex."""
        pool = len(self._nodes)
        arcs: list[list[tuple[int, int]]] = []
        for a in self._nodes:
            nexts = [
                (b, swap[0]) for b in self._nodes if a != b and (swap := self._best_swap(a, b))
            ]
            arcs.append([*nexts, (pool, self._unbalanced * self._load[a])])
        arcs.append([(a, -self._unbalanced * (self._load[a] - 1)) for a in self._nodes])
        return arcs

    def _cycle(self) -> list[int] | None:
        """Return the vertices of a negative cycle with the fewest arcs, or None.

        Walks from all vertices grow by one arc at a time. Any negative cycle has a vertex from which
        the cost is negative all along, so other walks are pruned. So is a walk that costs no less than
        a shorter one to the same vertex.
        """
        arcs = self._arcs()
        known: list[dict[int, int]] = [{} for _ in arcs]
        walks: dict[tuple[int, int], tuple[int, list[int]]] = {
            (start, start): (0, [start]) for start in range(len(arcs))
        }
        while walks:
            longer: dict[tuple[int, int], tuple[int, list[int]]] = {}
            for (start, end), (cost, path) in walks.items():
                best = known[start]
                for vertex, price in arcs[end]:
                    total = cost + price
                    if total < best.get(vertex, 0):
                        if vertex == start:
                            return path
                        best[vertex] = total
                        longer[start, vertex] = total, [*path, vertex]
            walks = longer
        return None

    def _turn(self, cycle: list[int]) -> None:
        """Make all exchanges of a cycle at once. Each is legal in the rows before the cycle."""
        exchanges = []
        for a, b in zip(cycle, cycle[1:] + cycle[:1], strict=True):
            if len(self._nodes) not in (a, b):
                swap = self._best_swap(a, b)
                assert swap is not None, (a, b)
                exchanges.append((swap[1], a, b))
        for partition, a, b in exchanges:
            self._exchange(partition, a, b)
        for partition in {partition: None for partition, _, _ in exchanges}:
            assert self._closeness(self.chosen[partition]) == self._least, (partition, cycle)
            self._offer(partition)
