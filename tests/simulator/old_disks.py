"""Fault: a disk goes back in time: a node finds an earlier state of its own database when it starts.

* ``old-disk``: the database is replaced by a copy that is some seconds old.
* ``lost-tail``: what was synced last is lost.
* ``gap``: transactions before the last ones are missing, as if a node had served with an old copy.

Either all storage nodes and the master are killed and start together, or only this node. Each of its
cells has another readable copy on a sound disk. So nothing may be lost, and no client may read old
data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from neo.master.phases import comparison
from neo.protocol import packets
from neo.protocol.enums import ClusterState
from neo.storage.node import StorageNode
from neo.storage.replication import replicator
from tests.simulator.cluster import Cluster, Mount
from tests.simulator.operator import Operator
from tests.simulator.planting import plant
from tests.simulator.process import Process
from tests.simulator.world import Violation, World

#: Mean age of a copy, and mean time whose commits are lost.
OLD_SECONDS = 2.0
TAIL_SECONDS = 0.2
#: Mean time that a machine needs to start.
BOOT_SECONDS = 0.1
ALONE_CHANCE = 0.3
#: Lengths of a tail, in rows. Most cells of a run are shorter than a usual tail: with that length
#: alone, replication would never begin at the end of a cell.
TAIL_LENGTHS = (20, packets.TAIL_LENGTH, packets.TAIL_LENGTH)
#: Index of the tid in a row, by table.
TIDS = {"trans": 1, "obj": 2}


class OldDisks:
    """Replace one disk at a time, until all cells are complete again."""

    def __init__(self, cluster: Cluster, operator: Operator, random: Random) -> None:
        self._cluster = cluster
        self._operator = operator
        self._random = random
        self._waiting = False
        #: Whether any disk ever went back in time.
        self.begun = False

    def old_disk(self) -> None:
        self._later_back(OLD_SECONDS)

    def lost_tail(self) -> None:
        self._later_back(TAIL_SECONDS)

    def gap(self) -> None:
        mount = self._choose()
        if mount is not None:
            self._strike(mount, lambda: self._cut(mount), alone=False)

    def _choose(self) -> Mount | None:
        """Return a node all of whose cells have another copy, or None if there is none now."""
        mounts = [mount for mount in self._cluster.mounts if self._replaceable(mount)]
        return self._random.choice(mounts) if mounts else None

    def _replaceable(self, mount: Mount) -> bool:
        master, core = self._cluster.master_core, mount.process.core
        if master is None or not self._operator.settled:
            return False
        # The next master could start with an earlier table, in which the only other copy is behind.
        if master.cluster.state is not ClusterState.RUNNING or not master.cluster.published.complete:
            return False
        if not isinstance(core, StorageNode) or mount.used is not mount.disk:
            return False
        others = master.cluster.ready - {core.cluster.nid or 0}
        return bool(others) and master.partitions.operational(others)

    def _later_back(self, seconds: float) -> None:
        mount = self._choose()
        if mount is None or self._waiting:
            return
        self._waiting = True
        restore = mount.disk.snapshot()

        def back() -> None:
            self._waiting = False
            if self._replaceable(mount):
                alone = self._random.random() < ALONE_CHANCE
                self._strike(mount, restore, alone)

        delay = self._random.expovariate(1 / seconds)
        self._cluster.world.call_later(delay, back, f"{mount.disk.name} goes back")

    def _cut(self, mount: Mount) -> None:
        """Remove rows within the tails of all cells, because earlier rows are not compared."""
        rows = mount.disk.tables()
        keys = {table: [(row[0], row[tid]) for row in rows[table]] for table, tid in TIDS.items()}
        begins = [_tail_begin(of) for of in keys.values()]
        tids = sorted({tid for _, tid in keys["trans"] if tid > max(begins)})
        if len(tids) > 2:
            first, last = sorted(self._random.sample(tids[:-1], 2))
            mount.disk.lose(first, last)

    def _strike(self, mount: Mount, change: Callable[[], None], alone: bool) -> None:
        cluster = self._cluster
        self.begun = True
        cluster.world.log(mount.disk.name, "goes back in time")
        struck = [mount.process] if alone else [*cluster.storages, *cluster.masters.processes]
        for process in struck:
            process.kill()
        change()
        for process in struck:
            self._boot(process)

    def _boot(self, process: Process) -> None:
        delay = self._random.expovariate(1 / BOOT_SECONDS)
        self._cluster.world.call_later(delay, process.revive, f"{process.name} boots")


def _tail_begin(rows: list[tuple[int, int]]) -> int:
    """Return the tid after which all rows (partition, tid) of a table are in the tails."""
    tids: dict[int, list[int]] = {}
    for partition, tid in rows:
        tids.setdefault(partition, []).append(tid)
    length = packets.TAIL_LENGTH
    return max((sorted(of)[-length] for of in tids.values() if len(of) >= length), default=0)


@contextmanager
def varied_tails(seed: int) -> Iterator[None]:
    """Inside the block, give tails a length that the seed chooses."""
    length = Random(f"tails {seed}").choice(TAIL_LENGTHS)
    with plant([(module, "TAIL_LENGTH", length) for module in (packets, comparison, replicator)]):
        yield


@contextmanager
def watched_comparisons(world: World, allowed: Callable[[], bool]) -> Iterator[None]:
    """Inside the block, fail the world when a master finds an incomplete copy without this fault. As
    long as no disk goes back in time, verification makes copies equal, whatever else happens."""

    def watch(name: str) -> tuple[Any, str, Any]:
        original = getattr(comparison, name)

        def watched(verdicts: Any, *others: Any) -> Any:
            if not allowed():
                world.fail(Violation(f"sound copies are found to differ: {verdicts}"))
            return original(verdicts, *others)

        return comparison, name, watched

    with plant([watch("_log_behind"), watch("_disagreement")]):
        yield
