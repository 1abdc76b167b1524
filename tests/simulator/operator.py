"""The operator of a cluster while it serves.

It adds, balances, empties and drops nodes, stops and starts them, repairs, truncates, asks questions
and mistypes. Commands go through the admin node, like those of ``neoctl``, and may be lost with that
node or the master. Their arguments are read from the master directly, as if the operator knew them.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from neo.master.primary import PrimaryMaster
from neo.master.states import SERVING
from neo.protocol.enums import CellState, ClusterState, NodeState, NodeType
from neo.protocol.ids import MAX_TID, ZERO_TID
from neo.protocol.packets import (
    AddPendingNodes,
    AnswerLastTransaction,
    AskCheckReport,
    AskClusterState,
    AskLastIDs,
    AskLastTransaction,
    AskMonitorInformation,
    AskNodeList,
    AskPartitionList,
    AskPrimary,
    AskRecovery,
    CheckReplicas,
    FlushLog,
    Message,
    Repair,
    RepairCells,
    SetClusterState,
    SetNodeState,
    SetNumReplicas,
    Truncate,
    TweakPartitionTable,
)
from neo.storage.node import StorageNode
from tests.simulator.cluster import Cluster
from tests.simulator.console import Command
from tests.simulator.damage import corrupted
from tests.simulator.history import History
from tests.simulator.world import Violation

#: Interval at which the operator checks what the cluster needs, at the end of a run.
LOOK_SECONDS = 1.0
MOST_REPLICAS = 2
#: Parts of the commands that affect the whole cluster, and that are wrong. The rest is routine.
DRASTIC_CHANCE = 0.1
WRONG_CHANCE = 0.15
#: Greatest number of transactions that a truncation deletes.
TRUNCATED_MAX = 50


class Operator:
    """``rewindable``: the workloads tolerate a truncation."""

    def __init__(
        self, cluster: Cluster, random: Random, history: History, rewindable: bool
    ) -> None:
        self._cluster = cluster
        self._random = random
        self._history = history
        self._rewindable = rewindable
        #: The last tid at the first command. Truncations keep earlier data for the workloads.
        self._floor: bytes | None = None
        #: Whether this operator does anything before the end.
        self.busy = random.random() < 0.6
        #: Whether the operator rests, because a drill is at work at the end.
        self.rests = False

    def act(self) -> None:
        """Execute a random command, at any moment."""
        if self._floor is None:
            self._floor = self._history.told_tid
        master = self._cluster.master_core
        choice = self._random.random()
        if choice < DRASTIC_CHANCE:
            self._type(self._drastic())
        elif choice < DRASTIC_CHANCE + WRONG_CHANCE:
            self._type(self._wrong())
        elif master is not None and not self._cluster.master.paused:
            routine = (self._balance, self._replicas, self._leave, self._add, self._look)
            self._random.choice(routine)(master)

    def _master(self) -> PrimaryMaster | None:
        master = self._cluster.master_core
        if master is None or self._cluster.master.paused:
            return None
        return master if master.cluster.state in SERVING else None

    def command(self, message: Message, told: Callable[[Message | None], None]) -> None:
        """Execute a command for another part of the simulator."""
        Command(self._cluster, message, told)

    def _type(self, message: Message) -> None:
        """Run ``neoctl``."""
        if self._cluster.unmounted and isinstance(message, AddPendingNodes):
            return  # an unexpected empty node: the operator looks at the machine first
        told_tid, truncations = self._history.told_tid, len(self._history.voids)
        world = self._cluster.world

        def told(answer: Message | None) -> None:
            world.log(f"{self._cluster.site.prefix}operator", f"{message}: {answer or 'no answer'}")
            if (
                isinstance(answer, AnswerLastTransaction)
                and self._cluster.upstream is None  # else the cluster may lag
                and ZERO_TID != answer.tid < told_tid
                and len(self._history.voids) == truncations
            ):
                world.fail(
                    Violation(
                        f"the operator is told that {answer.tid.hex()} is the last transaction,"
                        f" but {told_tid.hex()} was known to a client before"
                    )
                )

        Command(self._cluster, message, told)

    def _nodes(self, master: PrimaryMaster, *states: NodeState) -> list[int]:
        return [
            node.nid
            for node in master.nodes.of_type(NodeType.STORAGE)
            if node.nid is not None and node.state in states
        ]

    # -- routine -----------------------------------------------------------------------------------

    def _balance(self, master: PrimaryMaster) -> None:
        listed = self._nodes(master, NodeState.DOWN) if self._random.random() < 0.5 else []
        running = self._nodes(master, NodeState.RUNNING)
        if running and self._random.random() < 0.5:
            listed.append(self._random.choice(running))
        self._type(TweakPartitionTable(self._random.random() < 0.2, listed))

    def _replicas(self, master: PrimaryMaster) -> None:
        self._type(SetNumReplicas(self._random.randrange(MOST_REPLICAS + 1)))
        self._type(TweakPartitionTable(False, []))

    def _leave(self, master: PrimaryMaster) -> None:
        nodes = self._nodes(master, NodeState.DOWN, NodeState.RUNNING)
        if nodes:
            state = self._random.choice((NodeState.DOWN, NodeState.UNKNOWN))
            self._type(SetNodeState(self._random.choice(nodes), state))

    def _add(self, master: PrimaryMaster) -> None:
        self._type(AddPendingNodes(self._nodes(master, NodeState.PENDING)))

    def _look(self, master: PrimaryMaster) -> None:
        """Execute a command that changes nothing that clients can see."""
        random = self._random
        running = self._nodes(master, NodeState.RUNNING)
        partition = random.randrange(self._cluster.shape.partitions)
        self._type(
            random.choice(
                (
                    AskClusterState(),
                    AskPrimary(),
                    AskNodeList(random.choice((None, *NodeType))),
                    AskPartitionList(partition, 0, None),
                    AskMonitorInformation(),
                    AskLastIDs(),
                    AskLastTransaction(),
                    AskRecovery(),
                    FlushLog(),
                    CheckReplicas({partition: None}, ZERO_TID, None),
                    AskCheckReport(),
                    Repair(running, random.random() < 0.5),
                )
            )
        )

    # -- drastic -----------------------------------------------------------------------------------

    def _drastic(self) -> Message:
        """Return a command that affects the whole cluster. Supervisors restart a stopped one."""
        messages: list[Message] = [SetClusterState(ClusterState.STOPPING)]
        if len(self._cluster.storages) == 1:
            # With more nodes, some that have the last commits may be away.
            messages.append(SetClusterState(ClusterState.VERIFYING))
        if self._rewindable and self._floor is not None:
            tids = [a.tid for a in self._history.attempts if a.tid and a.tid >= self._floor]
            if tids:
                messages += [Truncate(self._random.choice(tids[-TRUNCATED_MAX:]))] * 2
        return self._random.choice(messages)

    # -- wrong -------------------------------------------------------------------------------------

    def _wrong(self) -> Message:
        """Return a command that must be refused in any state of the cluster, or must do no harm."""
        random, count = self._random, self._cluster.shape.partitions
        nid = random.choice(self._all_nids())
        return random.choice(
            (
                SetClusterState(
                    random.choice(
                        (
                            *(ClusterState.RECOVERING, ClusterState.RUNNING),
                            *(ClusterState.STARTING_BACKUP, ClusterState.STOPPING_BACKUP),
                        )
                    )
                ),
                SetNodeState(nid, random.choice((NodeState.RUNNING, NodeState.PENDING))),
                SetNodeState(nid, NodeState.UNKNOWN),
                AddPendingNodes([nid]),
                TweakPartitionTable(False, self._all_nids()),
                TweakPartitionTable(False, [nid]),
                SetNumReplicas(100 + count),
                Repair([nid], True),
                Truncate(MAX_TID),
                AskPartitionList(count + 1, 0, None),
                AskPartitionList(0, count + 1, None),
                CheckReplicas({count: None}, ZERO_TID, None),
                RepairCells([(random.randrange(count), nid)]),
            )
        )

    def _all_nids(self) -> list[int]:
        """Return ids of nodes of every type, and one that does not exist.

        Masters that can be stopped or dropped are left out, because that must be coordinated
        (:mod:`tests.simulator.master_faults`).
        """
        master = self._cluster.master_core
        nodes = []
        if master is not None:
            others = [n for n in master.nodes.of_type(NodeType.MASTER) if n is not master.cluster.node]
            nodes = [n.nid for n in master.nodes if n.nid is not None and n not in others]
        return [*nodes, 99]

    # -- the end -----------------------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        """Return whether every node has its share of the cells, and every cell is complete."""
        master = self._master()
        return (
            master is not None
            and not self._cluster.joining
            and not self._nodes(master, NodeState.DOWN, NodeState.PENDING)
            and all(
                state is CellState.UP_TO_DATE
                for row in master.partitions.rows
                for state in row.values()
            )
        )

    def settle(self) -> None:
        """Bring all nodes into service and all cells to their nodes, however long it takes."""
        master = self._master()
        if master is not None and not self.settled and not self.rests:
            if self._nodes(master, NodeState.PENDING):
                self._add(master)
            self._drop_nobody(master)
            for cell in corrupted(self._cluster):
                self._type(RepairCells([cell]))
            self._type(TweakPartitionTable(False, []))
        self._cluster.world.call_later(LOOK_SECONDS, self.settle, "operator looks")

    def _drop_nobody(self, master: PrimaryMaster) -> None:
        """Drop ids that clones got in vain: when all nodes are connected, an absent id is one."""
        cluster = self._cluster
        cores = [process.core for process in cluster.storages]
        there = {core.cluster.nid if isinstance(core, StorageNode) else None for core in cores}
        # The master may not have noticed yet who is gone.
        if not cluster.joining and master.cluster.identified_storages() == there:
            for nid in self._nodes(master, NodeState.DOWN):
                self._type(SetNodeState(nid, NodeState.UNKNOWN))
