"""What an operator does with a cluster while it serves: adds, balances, empties and drops nodes."""

from __future__ import annotations

from random import Random

from neo.master.administration import ServeAdmin
from neo.master.core import MasterCore
from neo.master.states import SERVING
from neo.protocol.enums import CellState, NodeState, NodeType
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import (
    AddPendingNodes,
    Message,
    SetNodeState,
    SetNumReplicas,
    TweakPartitionTable,
)
from neo.sim.cluster import Cluster

#: How often somebody looks whether the cluster needs something, at the end of a run.
LOOK_SECONDS = 1.0
MOST_REPLICAS = 2


class _Console:
    """In place of the admin node: refusals are as good as anything."""

    def answer(self, message_id: int, message: Message) -> None: ...


class Operator:
    """Commands reach the master at once, as if the admin node were beside it."""

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        #: Whether this one does anything before the end.
        self.busy = random.random() < 0.6

    def act(self) -> None:
        """Something, at any moment."""
        master = self._master()
        if master is not None:
            self._random.choice((self._balance, self._replicas, self._leave, self._add))(master)

    def _master(self) -> MasterCore | None:
        master = self._cluster.master_core
        if master is None or self._cluster.master.paused:
            return None
        return master if master.state in SERVING else None

    def command(self, message: Message) -> str:
        """How the master answers, if it is there."""
        master = self._cluster.master_core
        if master is None or self._cluster.master.paused:
            return "no master"
        return self._do(master, message)

    def _do(self, master: MasterCore, message: Message) -> str:
        method = ServeAdmin(master).method(type(message))
        assert method is not None
        try:
            method(_Console(), 0, message)
            result = "done"
        except ErrorAnswer as e:
            result = str(e)
        self._cluster.world.log(f"{self._cluster.site.prefix}operator", f"{message}: {result}")
        master.flush()
        return result

    def _nodes(self, master: MasterCore, *states: NodeState) -> list[int]:
        return [
            node.nid
            for node in master.nodes.of_type(NodeType.STORAGE)
            if node.nid is not None and node.state in states
        ]

    def _balance(self, master: MasterCore) -> None:
        listed = self._nodes(master, NodeState.DOWN) if self._random.random() < 0.5 else []
        running = self._nodes(master, NodeState.RUNNING)
        if running and self._random.random() < 0.5:
            listed.append(self._random.choice(running))
        self._do(master, TweakPartitionTable(False, listed))

    def _replicas(self, master: MasterCore) -> None:
        self._do(master, SetNumReplicas(self._random.randrange(MOST_REPLICAS + 1)))
        self._do(master, TweakPartitionTable(False, []))

    def _leave(self, master: MasterCore) -> None:
        nodes = self._nodes(master, NodeState.DOWN, NodeState.RUNNING)
        if nodes:
            state = self._random.choice((NodeState.DOWN, NodeState.UNKNOWN))
            self._do(master, SetNodeState(self._random.choice(nodes), state))

    def _add(self, master: MasterCore) -> None:
        self._do(master, AddPendingNodes(self._nodes(master, NodeState.PENDING)))

    # -- the end -----------------------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        """Every node has its share, and every cell is complete."""
        master = self._master()
        return (
            master is not None
            and not self._nodes(master, NodeState.DOWN, NodeState.PENDING)
            and all(
                state is CellState.UP_TO_DATE
                for row in master.partitions.rows
                for state in row.values()
            )
        )

    def settle(self) -> None:
        """Bring all nodes into service and all data to where it belongs, however long it takes."""
        master = self._master()
        if master is not None and not self.settled:
            if self._nodes(master, NodeState.PENDING):
                self._add(master)
            self._do(master, TweakPartitionTable(False, []))
        self._cluster.world.call_later(LOOK_SECONDS, self.settle, "operator looks")
