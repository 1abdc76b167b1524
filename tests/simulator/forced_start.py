"""Fault: a cluster is started without lost storage nodes (``neoctl start``), which come back later.

Some nodes stay behind while the others go on. Then all nodes but those behind are lost together. The
operator does not wait for the lost nodes: what was committed meanwhile is given up, as by a truncation
(:mod:`tests.simulator.history`), which :mod:`tests.simulator.admin_watch` records. When the lost nodes
come back with these transactions, they must delete them.

The lost nodes come back only while the others serve, as the documentation requires: their own partition
table says that they need no other node, and a single master that was restarted does not know that there
is a newer table.

Several masters know from their log that a newer partition table was in use, and refuse.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from random import Random

from neo.master.states import SERVING
from neo.protocol.enums import ClusterState, ErrorCode
from neo.protocol.packets import Error, Message, SetClusterState
from neo.storage.node import StorageNode
from tests.simulator.cluster import Cluster
from tests.simulator.operator import Operator
from tests.simulator.process import Process

#: Mean time for which the others go on alone, and the time for which they are away afterwards.
ALONE_SECONDS = 0.5
AWAY_SECONDS = 4.0
#: Interval at which the operator tries to start the cluster.
TRY_SECONDS = 0.3
#: Delay after which a node that came back is stopped when the others do not serve any more: less than a
#: master needs to come back.
LOOK_SECONDS = 0.005
#: After so many refusals the operator concludes that data is missing: the nodes that stayed behind had
#: not heard yet that they have all of it.
VAIN_MAX = 10


class Forsaking:
    """Force a start, once in a run. ``allowed``: the workloads tolerate the loss of commits."""

    def __init__(self, cluster: Cluster, operator: Operator, random: Random, allowed: bool) -> None:
        self._cluster = cluster
        self._operator = operator
        self._random = random
        self._left = 1 if allowed and cluster.shape.masters == 1 else 0
        self._away: list[Process] = []
        #: The lost nodes that are not back yet.
        self._out: set[Process] = set()
        #: Number of refusals for lack of data; minus infinity after another answer.
        self._vain = 0.0

    @property
    def begun(self) -> bool:
        return bool(self._away)

    def act(self) -> None:
        """Begin, if the cells of every node are complete: nothing older than that is given up."""
        if not self._left or not self._operator.settled or self._cluster.unmounted:
            return
        behind = self._half()
        if not behind:
            return
        self._left -= 1
        self._away = [process for process in self._cluster.storages if process not in behind]
        for process in behind:
            process.kill()
        alone = self._random.expovariate(1 / ALONE_SECONDS)
        self._later(alone, lambda: self._lose(behind), "those that went on are lost")

    def _half(self) -> list[Process]:
        """Return some nodes that can serve alone while the rest could, too; an empty list if there are
        none."""
        master = self._cluster.master_core
        assert master is not None
        storages = [p for p in self._cluster.storages if isinstance(p.core, StorageNode)]
        self._random.shuffle(storages)
        for count in range(1, len(storages)):
            halves = storages[:count], storages[count:]
            nids = [{_nid(process) for process in half} for half in halves]
            if all(master.partitions.operational(half) for half in nids):
                return halves[0]
        return []

    def _lose(self, behind: list[Process]) -> None:
        cluster = self._cluster
        for process in (*self._away, cluster.master):
            if process.alive:
                process.kill()
        for process in (*behind, cluster.master):
            process.revive()
        for process in self._away:
            process.held = True
            self._out.add(process)
            self._later(AWAY_SECONDS, partial(self._start, process), f"start {process.name}")
        self._try()

    def _try(self) -> None:
        """Try to start the cluster, until all lost nodes are back."""
        if self._out:
            self._operator.command(SetClusterState(ClusterState.VERIFYING), self._told)
            self._later(TRY_SECONDS, self._try, "operator looks")

    def _told(self, answer: Message | None) -> None:
        if answer is None or (isinstance(answer, Error) and answer.code == ErrorCode.ACK.value):
            self._vain = -inf
        elif self._lacks():
            self._vain += 1

    def _lacks(self) -> bool:
        """Return whether the connected nodes cannot serve without the lost ones."""
        master = self._cluster.master_core
        if master is None or master.partitions.ptid is None:
            return False
        return not master.partitions.operational(master.cluster.identified_storages())

    def _start(self, process: Process) -> None:
        """Start a lost node as soon as the others serve, or now if they can never serve without it."""
        if self._serves() or self._vain > VAIN_MAX:
            process.held = False
            process.revive()
            self._look(process)
        else:
            self._later(TRY_SECONDS, partial(self._start, process), f"start {process.name}")

    def _look(self, process: Process) -> None:
        """Let the node run when it has stored the others' table; stop it if they do not serve."""
        core = process.core
        knows = (
            isinstance(core, StorageNode)
            and core.cluster.operational
            and core.database.table_stored
        )
        if knows or self._vain > VAIN_MAX:
            self._out.discard(process)
        elif process.alive and self._serves():
            self._later(LOOK_SECONDS, partial(self._look, process), "operator looks")
        else:
            process.held = True
            process.kill()
            self._later(TRY_SECONDS, partial(self._start, process), f"start {process.name}")

    def _serves(self) -> bool:
        master = self._cluster.master_core
        return master is not None and master.cluster.state in SERVING

    def _later(self, seconds: float, action: Callable[[], None], what: str) -> None:
        self._cluster.world.call_later(seconds, action, what)


def _nid(process: Process) -> int:
    assert isinstance(process.core, StorageNode)
    return process.core.cluster.nid or 0
