"""``neoctl replace``, ``add`` and ``remove``: cells move from nodes to others (specification 27.70 to
27.78).

Theory of operation
-------------------
Cells are added first, and copied, while all present cells stay as they are: each partition has more
copies than it needs. When all new cells are complete, the operation succeeds, and only then cells are
taken away, and nodes. So until the success everything is undone by taking the new cells away, which
copies nothing; and after it, nothing but cells without a use is left to be taken away.

Cells are never taken away at once: they become FEEDING, and :mod:`neo.topology.tweak` knows when a
FEEDING cell is not needed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from neo.master.cluster import Cluster
from neo.master.maintenance.membership import Membership
from neo.master.operations.kinds import MONTH_SECONDS, Steps
from neo.master.operations.storage_nodes import StorageNodes, listed, named
from neo.master.operations.waiting import TABLE_NOT_DURABLE
from neo.master.states import SERVING
from neo.operations.initiator import Refused
from neo.operations.model import ARGUMENT_MAX, INITIATOR, Operation, Step
from neo.protocol.enums import CellState, NodeState, NodeType
from neo.protocol.ids import format_nid, format_nids, parse_nid
from neo.protocol.packets import CellChange
from neo.topology.cell_texts import Cell, decode_cells, encode_cells
from neo.topology.tweak import tweak

logger = logging.getLogger("neo.master")

ADMIT, READY, GIVE = "take into service", "get ready", "give cells"
COPY, HAND_OVER = "copy the cells", "hand over"


class Move(NamedTuple):
    """``incoming``: nodes that may not be in service yet; ``leaving``: nodes that are dropped; cells to
    be added, and to be taken away."""

    incoming: list[int]
    leaving: list[int]
    gains: list[Cell]
    losses: list[Cell]

    def planned(self, witness: int) -> Steps:
        """Return the steps. The nodes that get cells, or else ``witness``, have the operation in their
        journals before the table is changed. Raise Refused if there are too many cells to write down."""
        order = _Order(
            format_nids(self.leaving),
            format_nids(self.incoming),
            encode_cells(self.gains),
            encode_cells(self.losses),
        )
        if max(len(order.gains), len(order.losses)) > ARGUMENT_MAX:
            raise Refused("too many single cells would move at once: move some with 'neoctl tweak'")
        nids = tuple(sorted({nid for _, nid in self.gains})) or (witness,)
        admit = [Step(ADMIT, (INITIATOR,), False, False)] if self.incoming else []
        copy = [Step(GIVE, (INITIATOR,), True, True), Step(COPY, nids, True, False)]
        hand_over = Step(HAND_OVER, (INITIATOR,), True, False)
        steps = *admit, Step(READY, nids, True, False), *(copy if self.gains else []), hand_over
        arguments = msgspec.structs.asdict(order)
        return Steps(arguments, steps, MONTH_SECONDS, frozenset(self.leaving))


class _Order(msgspec.Struct, frozen=True):
    """The arguments of an operation that moves cells (specification 27.72)."""

    leaving: str
    incoming: str
    gains: str
    losses: str


def cells_gained(steps: Steps) -> list[Cell]:
    """Return the cells that nodes get by planned steps."""
    return decode_cells(steps.arguments["gains"])


def move_of(operation: Operation) -> Move:
    """Return what an operation moves. Raise ValueError."""
    order = msgspec.convert(operation.arguments, _Order)
    return Move(
        _nids(order.incoming),
        _nids(order.leaving),
        decode_cells(order.gains),
        decode_cells(order.losses),
    )


def _nids(text: str) -> list[int]:
    return [parse_nid(name) for name in text.split(", ") if name]


class OpenTransactions(Protocol):
    """The transactions of the cluster."""

    def ttids(self) -> Collection[bytes]:
        """Return those that are open."""


class MovesCells:
    """Implements OwnSteps. Methods raise ValueError if the arguments cannot be read."""

    def __init__(
        self, cluster: Cluster, membership: Membership, transactions: OpenTransactions
    ) -> None:
        self._cluster = cluster
        self._membership = membership
        self._transactions = transactions
        #: The transactions that were open when the cells of a node that leaves were gone, by operation.
        self._open: dict[int, set[bytes]] = {}

    def run(self, operation: Operation, step: int) -> bool:
        if self._cluster.state not in SERVING:
            return False
        move, name = self._move(operation), operation.steps[step].name
        if name == ADMIT:
            return self._admit(move.incoming)
        if name == HAND_OVER:
            return self._complete(move)
        # A primary that took over may know a table without their cells, and so not have them in service.
        if not self._admit(move.incoming):
            return False
        rows = self._cluster.partitions.rows
        missing = [(p, nid, CellState.OUT_OF_DATE) for p, nid in move.gains if nid not in rows[p]]
        return self._changed(missing)

    def _move(self, operation: Operation) -> Move:
        """Raise ValueError."""
        move, count = move_of(operation), len(self._cluster.partitions)
        if any(partition >= count for partition, _ in (*move.gains, *move.losses)):
            raise ValueError(f"there are {count} partitions")
        return move

    def _admit(self, nids: Iterable[int]) -> bool:
        nodes = [self._cluster.nodes.get(nid) for nid in nids]
        there = [node for node in nodes if node is not None and node.identified]
        self._membership.admit([node for node in there if node.state is NodeState.PENDING])
        return len(there) == len(nodes)

    def undo(self, operation: Operation, step: int) -> bool:
        return self._cluster.state in SERVING and self._taken_away(self._move(operation).gains)

    def finish(self, operation: Operation) -> bool:
        if self._cluster.state not in SERVING:
            return False
        move = self._move(operation)
        return (
            self._complete(move)
            and self._taken_away(move.losses)
            and self._dropped(operation.id, move.leaving)
        )

    def waits(self, operation: Operation, step: int) -> str:
        move, cluster = move_of(operation), self._cluster
        if cluster.state not in SERVING:
            return f"the cluster must serve, it is {cluster.state.name}"
        nodes = [(nid, cluster.nodes.get(nid)) for nid in move.incoming]
        if away := [nid for nid, node in nodes if node is None or not node.identified]:
            return f"{format_nids(away)} must be connected: neoctl status"
        rows = cluster.partitions.rows if operation.steps[step].name == HAND_OVER else []
        for partition, nid in move.gains if rows else ():
            state = rows[partition].get(nid)
            if state is not None and not state.readable:
                return f"partition {partition} is {state.name} on {format_nid(nid)}: neoctl print pt"
        return "" if cluster.published.complete else TABLE_NOT_DURABLE

    def _complete(self, move: Move) -> bool:
        """Return whether the new cells can be read. Those of a node that the operator dropped meanwhile
        are not waited for: tweak keeps the last copy."""
        rows = self._cluster.partitions.rows
        return all(rows[p].get(nid, CellState.UP_TO_DATE).readable for p, nid in move.gains)

    def _taken_away(self, cells: Collection[Cell]) -> bool:
        """Take cells away as soon as nobody needs them; return whether none is left."""
        changes: list[CellChange] = []
        there = False
        for partition, nid in cells:
            state = self._cluster.partitions.rows[partition].get(nid)
            if state is None:
                continue
            there = True
            if not state.readable:
                changes.append((partition, nid, CellState.DISCARDED))
            elif state is CellState.UP_TO_DATE:
                changes.append((partition, nid, CellState.FEEDING))
        return self._changed(changes) and not there

    def _changed(self, changes: list[CellChange]) -> bool:
        """Change the table; return whether there was nothing to change, and no master can come to an
        earlier table any more."""
        self._cluster.change_partitions(changes)
        return not changes and self._cluster.published.complete

    def _dropped(self, id: int, nids: Collection[int]) -> bool:
        """Drop nodes without cells, when no transaction may use them any more."""
        nodes = [node for nid in nids if (node := self._cluster.nodes.get(nid)) is not None]
        if not nodes:
            self._open.pop(id, None)
            return True
        ttids = set(self._transactions.ttids())
        if not self._open.setdefault(id, ttids).isdisjoint(ttids):
            return False
        for node in nodes:
            self._membership.dismiss(node)
            logger.warning("%s is dropped: its cells are on others", format_nid(node.nid))
        return self._changed([])


class Moves:
    """Plans moves of cells. The plans raise Refused."""

    def __init__(self, cluster: Cluster, nodes: StorageNodes) -> None:
        self._cluster = cluster
        self._nodes = nodes

    def replace(self, arguments: Mapping[str, Any]) -> Steps:
        """One node gets the cells of another, which is dropped; it may be lost already."""
        old, new = named(arguments, "old"), named(arguments, "new")
        self._nodes.check_complete([old])
        self._nodes.check_known(old)
        self._nodes.check_fresh(new)
        cells = self._cluster.partitions.assigned(old)
        if not cells:
            raise Refused(f"{format_nid(old)} has no cells: drop it, and add {format_nid(new)}")
        return Move([new], [old], [(p, new) for p in cells], [(p, old) for p in cells]).planned(new)

    def add(self, arguments: Mapping[str, Any]) -> Steps:
        """Nodes come, and get their share of the cells."""
        nids = listed(arguments)
        self._nodes.check_complete([])
        for nid in nids:
            self._nodes.check_fresh(nid)
        return self._balanced(nids, []).planned(nids[0])

    def remove(self, arguments: Mapping[str, Any]) -> Steps:
        """Nodes leave for good; the others get their cells. A node may be lost already."""
        nids, table = listed(arguments), self._cluster.partitions
        self._nodes.check_complete(nids)
        for nid in nids:
            self._nodes.check_known(nid)
            if not table.assigned(nid):
                raise Refused(f"{format_nid(nid)} has no cells: neoctl drop {format_nid(nid)}")
        # Without gains, the other nodes have all cells already.
        return self._balanced([], nids).planned(min(table.nodes() - {*nids}, default=INITIATOR))

    def _balanced(self, incoming: Collection[int], leaving: Collection[int]) -> Move:
        """Return the move to a balanced table."""
        cluster, paths = self._cluster, dict[int, tuple[str, ...]]()
        for node in cluster.nodes.of_type(NodeType.STORAGE):
            if node.nid is None or node.nid in leaving:
                continue
            if node.state is NodeState.RUNNING or node.nid in incoming:
                paths[node.nid] = node.devpath
            elif cluster.partitions.assigned(node.nid):
                raise Refused(f"{format_nid(node.nid)} is down: start it, or replace it first")
        replicas = cluster.partitions.replicas
        if leaving and len(paths) <= replicas:
            raise Refused(
                f"{replicas + 1} copies need as many nodes, and {len(paths)} would be left: add a node,"
                " or keep fewer copies (neoctl set replicas)"
            )
        rows = cluster.partitions.rows
        changes = tweak(cluster.partitions, paths, replicas)
        gains = [(p, nid) for p, nid, _ in changes if nid not in rows[p]]
        gone = (CellState.FEEDING, CellState.DISCARDED)
        losses = [(p, nid) for p, nid, state in changes if state in gone]
        return Move(sorted(incoming), sorted(leaving), gains, losses)
