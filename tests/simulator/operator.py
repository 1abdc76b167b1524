"""What an operator does with a cluster while it serves: adds, balances, empties and drops nodes, stops
and starts, repairs, truncates, looks; and mistypes.

Commands go through the admin node, as those of ``neoctl`` do, and may be lost with it or the master.
What they are about is taken from the master at once, as if the operator knew.
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
from neo.storage.core import StorageCore
from tests.simulator.cluster import Cluster
from tests.simulator.console import Command
from tests.simulator.damage import corrupted
from tests.simulator.history import History
from tests.simulator.world import Violation

#: How often somebody looks whether the cluster needs something, at the end of a run.
LOOK_SECONDS = 1.0
MOST_REPLICAS = 2
#: Parts of what is typed: with consequences for all, and mistyped. The rest is routine.
DRASTIC_CHANCE = 0.1
WRONG_CHANCE = 0.15
#: Transactions that a truncation deletes at most.
TRUNCATED_MAX = 50


class Operator:
    """``rewindable``: the workloads stand a truncation."""

    def __init__(
        self, cluster: Cluster, random: Random, history: History, rewindable: bool
    ) -> None:
        self._cluster = cluster
        self._random = random
        self._history = history
        self._rewindable = rewindable
        #: What was committed before the first command is not truncated: workloads need it.
        self._floor: bytes | None = None
        #: Whether this one does anything before the end.
        self.busy = random.random() < 0.6
        #: Whether somebody else is at work at the end.
        self.rests = False

    def act(self) -> None:
        """Something, at any moment."""
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
        """What somebody else decided."""
        Command(self._cluster, message, told)

    def _type(self, message: Message) -> None:
        """Run ``neoctl``."""
        if self._cluster.unmounted and isinstance(message, AddPendingNodes):
            return  # an empty node that nobody expects: he looks at the machine first
        told_tid, truncations = self._history.told_tid, len(self._history.voids)
        world = self._cluster.world

        def told(answer: Message | None) -> None:
            world.log(f"{self._cluster.site.prefix}operator", f"{message}: {answer or 'no answer'}")
            if (
                isinstance(answer, AnswerLastTransaction)
                and self._cluster.upstream is None  # else it may lag
                and ZERO_TID != answer.tid < told_tid
                and len(self._history.voids) == truncations
            ):
                world.fail(
                    Violation(
                        f"the operator is told that {answer.tid.hex()} is the last transaction,"
                        f" but {told_tid.hex()} was told to somebody before"
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
        """What changes nothing that clients could see."""
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
        """A cluster that stops is started again by the supervisors of its processes."""
        messages: list[Message] = [SetClusterState(ClusterState.STOPPING)]
        if len(self._cluster.storages) == 1:
            # With more, some may be away that have what was committed last.
            messages.append(SetClusterState(ClusterState.VERIFYING))
        if self._rewindable and self._floor is not None:
            tids = [a.tid for a in self._history.attempts if a.tid and a.tid >= self._floor]
            if tids:
                messages += [Truncate(self._random.choice(tids[-TRUNCATED_MAX:]))] * 2
        return self._random.choice(messages)

    # -- wrong -------------------------------------------------------------------------------------

    def _wrong(self) -> Message:
        """What must be refused, whatever the cluster does; or must do no harm."""
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
        """Nodes of every type, and one that does not exist; not masters that may be stopped or dropped:
        who does that must know when (:mod:`tests.simulator.master_faults`)."""
        master = self._cluster.master_core
        nodes = []
        if master is not None:
            others = [n for n in master.nodes.of_type(NodeType.MASTER) if n is not master.cluster.node]
            nodes = [n.nid for n in master.nodes if n.nid is not None and n not in others]
        return [*nodes, 99]

    # -- the end -----------------------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        """Every node has its share, and every cell is complete."""
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
        """Bring all nodes into service and all data to where it belongs, however long it takes."""
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
        """When everybody is there, a node that is away has an id that a clone was given in vain."""
        cluster = self._cluster
        cores = [process.core for process in cluster.storages]
        there = {core.nid if isinstance(core, StorageCore) else None for core in cores}
        # The master may not have noticed yet who is gone.
        if not cluster.joining and master.cluster.identified_storages() == there:
            for nid in self._nodes(master, NodeState.DOWN):
                self._type(SetNodeState(nid, NodeState.UNKNOWN))
