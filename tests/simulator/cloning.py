"""Fault: clones of storage nodes join (docs/maintenance.md, *Clone a node*), while applications write.

A copy is taken of a node that is dead, or that is killed for it, and is started a while later. It may
lack what was committed since, and have what was packed or truncated since. It runs with ``--new-nid``
until that succeeds, however often it is killed; then it is a storage node like the others. At the end
ids that were given in vain are dropped (:meth:`tests.simulator.operator.Operator.settle`).
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from neo.protocol.enums import CellState
from neo.storage.node import StorageNode
from tests.simulator.cluster import Cluster
from tests.simulator.disk import SimDisk
from tests.simulator.disk_check import Rows
from tests.simulator.process import Process, SimNodeHost

#: Most clones of one run, because each has all data of another node.
CLONES_MAX = 2
#: Mean time that the original stays away, and mean age of a copy when it is started.
AWAY_SECONDS = 0.5
OLD_SECONDS = 2.0
#: Probability that a clone is killed while it gets its id, how soon, and for how long.
KILL_CHANCE = 0.4
KILL_SECONDS = 0.03


class Clone(Process):
    """A process that runs with ``--new-nid`` until it has an id, and without afterwards."""

    def __init__(self, cluster: Cluster, number: int, original: SimDisk) -> None:
        name, address = cluster.storage_place(number)
        self._cluster = cluster
        self._disk = disk = original.copy(name)
        self.joined = self.given_up = False

        def make(host: SimNodeHost) -> StorageNode:
            return cluster.storage_core(host, address, disk, is_clone=not self.joined)

        super().__init__(cluster.world, cluster.network, name, address, make, disk, cluster.faults)
        # A clone ends with an error when it loses the master before it has the partition table.
        self.may_fail = lambda: not self.joined
        if cluster.clocks is not None:
            cluster.clocks.give(self)
        cluster.joining.append(self)

    def of(self, cluster: Cluster) -> bool:
        return self._cluster is cluster

    def ended(self, host: SimNodeHost, code: int) -> None:
        if host is self._host and code == 0 and not self.joined:
            self.joined = True
            self._cluster.joining.remove(self)
            self._cluster.storages.append(self)
            self._cluster.disks[self.name] = self._disk
        elif host is self._host and code and not self.joined and self._is_old():
            self.world.log(self.name, "is given up: the number of partitions was changed")
            self.given_up = self.held = True
            self._cluster.joining.remove(self)
        super().ended(host, code)

    def _is_old(self) -> bool:
        """Return whether the copy was made when there was another number of partitions."""
        master = self._cluster.master_core
        numbers = {partition for partition, _, _ in self._disk.tables()["pt"]}
        return master is not None and max(numbers) + 1 != len(master.partitions)


class Cloning:
    def __init__(self, clusters: Sequence[Cluster], random: Random) -> None:
        self._clusters = clusters
        self._random = random
        self._clones: list[Clone] = []
        self._stopped = False

    def stop(self) -> None:
        """Stop injecting faults into clones, also into those that are not started yet."""
        self._stopped = True

    def act(self) -> None:
        """Copy the disk of a node, which is dead at that moment, and start the copy later."""
        random = self._random
        cluster = random.choice(self._clusters)
        original = random.choice(cluster.storages)
        if len(self._clones) == CLONES_MAX:
            return
        world = cluster.world
        if original.alive:
            original.kill()
            world.call_later(AWAY_SECONDS, original.revive, f"start {original.name}")
        disk = cluster.disks[original.name]
        if not _has_cells(disk.tables()):
            return
        given_up = [clone for clone in self._clones if clone.given_up and clone.of(cluster)]
        number = len(cluster.storages) + len(cluster.joining) + len(given_up) + 1
        clone = Clone(cluster, number, disk)
        self._clones.append(clone)
        world.log(clone.name, f"is copied from {original.name}")
        age = random.expovariate(1 / OLD_SECONDS)
        world.call_later(age, clone.revive, f"start {clone.name}")
        if random.random() < KILL_CHANCE:
            moment = age + random.random() * KILL_SECONDS
            world.call_later(moment, lambda: self._interrupt(clone), f"kill {clone.name}")

    def _interrupt(self, clone: Clone) -> None:
        if clone.alive and not self._stopped:
            clone.kill()
            clone.world.call_later(AWAY_SECONDS, clone.revive, f"start {clone.name}")


def _has_cells(rows: Rows) -> bool:
    """Return whether the database has cells. Without any it is not a copy of a storage node."""
    config: dict[str, str] = dict(rows["config"])
    nid = int(config.get("nid") or 0)
    return any(owner == nid and tid != -CellState.CORRUPTED.value for _, owner, tid in rows["pt"])
