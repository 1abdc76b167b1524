"""The end of all operations of a cluster: they must end, also those that wait for a node that is gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Set

from neo.operations.model import INITIATOR, State
from neo.protocol.enums import NodeType
from neo.protocol.packets import AbortOperation, AskOperations, ForgetOperation, Message
from neo.storage.node import StorageNode
from tests.simulator.cluster import HEAL_SECONDS, Cluster

#: Interval at which the operator looks at the end, and how often he looks for a node.
LOOK_SECONDS = 1.0
LOOKS_MAX = 60


class LastOperations:
    """``excused``: nodes that are not waited for. ``command``: executes a command of the operator."""

    def __init__(
        self, cluster: Cluster, excused: Set[int], command: Callable[[Message], None]
    ) -> None:
        self._cluster = cluster
        self._excused = excused
        self._command = command
        #: How often each node was not there.
        self._looks = Counter[int]()

    def wait(self) -> None:
        """Run until all operations have ended. Raise Violation if they do not."""
        self._look()
        self._cluster.world.run_until(lambda: self.over, HEAL_SECONDS, "all operations have ended")

    @property
    def over(self) -> bool:
        """Whether all operations have ended, and nothing is left in journals."""
        master = self._cluster.master_core
        cores = [process.core for process in self._cluster.storages]
        return (
            master is not None
            and all(pending.state.ended and not pending.holds for pending in master.operations.all())
            and not any(
                core.operations.busy and core.cluster.nid not in self._excused
                for core in cores
                if isinstance(core, StorageNode)
            )
        )

    def _look(self) -> None:
        """Have nodes forgotten that do not come back, because they have another id by now. What waits for
        them is aborted."""
        if self.over:
            return
        if (master := self._cluster.master_core) is not None:
            there = master.cluster.identified_storages()
            listed = {node.nid for node in master.nodes.of_type(NodeType.STORAGE)}
            for pending in master.operations.all():
                for nid in sorted(pending.done.keys() - there - pending.settled - {INITIATOR}):
                    self._looks[nid] += 1
                    if pending.state is State.RUNNING and self._looks[nid] > LOOKS_MAX:
                        self._command(AbortOperation(pending.id))
                    elif nid not in listed or self._looks[nid] > LOOKS_MAX:
                        self._command(ForgetOperation(pending.id, nid))
        self._command(AskOperations(None))
        self._cluster.world.call_later(LOOK_SECONDS, self._look, "operator looks")
