"""A cluster is started without a storage node that is lost (``neoctl start``), and that comes back later.

Some nodes stay behind while the others go on, and all but these are lost together. The operator does not
wait for them: what was committed meanwhile is given up, as by a truncation
(:mod:`tests.simulator.history`), which :mod:`tests.simulator.admin_watch` notices. Then the others come
back with it, and must lose it.

They come back only while those that went on serve, as the documentation wants: their own partition table
needs nobody else, and one master that is started again does not know that there is a newer one.

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
from neo.storage.core import StorageCore
from tests.simulator.cluster import Cluster
from tests.simulator.operator import Operator
from tests.simulator.process import Process

#: How long the others go on alone, on average, and how long they are away.
ALONE_SECONDS = 0.5
AWAY_SECONDS = 4.0
#: How often the operator tries meanwhile.
TRY_SECONDS = 0.3
#: How soon a node that came back is stopped when the others do not serve any more: before a master, and
#: connections to it, are back.
LOOK_SECONDS = 0.005
#: After so many refusals for want of data the operator believes that it is missing: those that stayed
#: behind had not heard yet that they have it all.
VAIN_MAX = 10


class Forsaking:
    """Once in a run. ``allowed``: the workloads stand that their last transactions are given up."""

    def __init__(
        self, cluster: Cluster, operator: Operator, random: Random, allowed: bool
    ) -> None:
        self._cluster = cluster
        self._operator = operator
        self._random = random
        self._left = 1 if allowed and cluster.shape.masters == 1 else 0
        self._away: list[Process] = []
        #: Of them, who is not back.
        self._out: set[Process] = set()
        #: How often the operator was told that the others have not enough, if never anything better.
        self._vain = 0.0

    @property
    def begun(self) -> bool:
        return bool(self._away)

    def act(self) -> None:
        """If every node has all that is in its cells: older than that, nothing is given up."""
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
        """Nodes that can serve alone, as can the others; none if there are none."""
        master = self._cluster.master_core
        assert master is not None
        storages = [p for p in self._cluster.storages if isinstance(p.core, StorageCore)]
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
        """Until all of them are back."""
        if self._out:
            self._operator.command(SetClusterState(ClusterState.VERIFYING), self._told)
            self._later(TRY_SECONDS, self._try, "operator looks")

    def _told(self, answer: Message | None) -> None:
        if answer is None or (isinstance(answer, Error) and answer.code == ErrorCode.ACK.value):
            self._vain = -inf
        elif self._lacks():
            self._vain += 1

    def _lacks(self) -> bool:
        """The others, as far as they are there, have not enough."""
        master = self._cluster.master_core
        if master is None or master.partitions.ptid is None:
            return False
        return not master.partitions.operational(master.cluster.identified_storages())

    def _start(self, process: Process) -> None:
        """Now, or when those that went on without it serve; if these never can, it is needed."""
        if self._serves() or self._vain > VAIN_MAX:
            process.held = False
            process.revive()
            self._look(process)
        else:
            self._later(TRY_SECONDS, partial(self._start, process), f"start {process.name}")

    def _look(self, process: Process) -> None:
        """It stays if it hears of their partition table."""
        core = process.core
        knows = isinstance(core, StorageCore) and core.operational and core.table_stored
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
    assert isinstance(process.core, StorageCore)
    return process.core.nid or 0
