"""Fault: the disk of a storage node is not mounted when the node starts.

The node creates an empty database instead, runs with it until the operator notices, and comes back with
its disk. What was written meanwhile is then hidden for ever. No node is added while a disk is away: an
operator who sees an unexpected empty node looks at the machine first (docs/failures.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from tests.simulator.cluster import Cluster, Mount

#: Mean time until the operator notices, and mean time that a machine needs to start.
UNNOTICED_SECONDS = 2.0
BOOT_SECONDS = 0.3
#: Least number of storage nodes. If all nodes were empty, a new database would be created.
STORAGES_MIN = 2


class Unmounted:
    def __init__(self, clusters: Sequence[Cluster], random: Random) -> None:
        self._clusters = clusters
        self._random = random

    def act(self) -> None:
        """Restart the machine of a node without its disk, if no other node lacks its disk."""
        cluster = self._random.choice(self._clusters)
        mount = self._random.choice(cluster.mounts)
        if cluster.unmounted or cluster.shape.storages < STORAGES_MIN:
            return
        cluster.world.log(mount.disk.name, "starts without its disk")
        self._boot(mount, mount.unmount)
        self._later(mount, UNNOTICED_SECONDS, lambda: self._notice(mount))

    def _notice(self, mount: Mount) -> None:
        """Mount the disk again, unless the world was healed meanwhile."""
        if mount.used is not mount.disk:
            self._boot(mount, mount.remount)

    def _boot(self, mount: Mount, change: Callable[[], None]) -> None:
        mount.process.kill()
        change()
        self._later(mount, BOOT_SECONDS, mount.process.revive)

    def _later(self, mount: Mount, seconds: float, action: Callable[[], None]) -> None:
        delay = self._random.expovariate(1 / seconds)
        mount.process.world.call_later(delay, action, f"{mount.process.name} boots")
