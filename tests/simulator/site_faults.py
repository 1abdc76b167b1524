"""Faults of two clusters, one of which is the backup of the other: in the links between them, and in both
at a time.

They have a separate generator, so that a seed without a backup is not changed by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from random import Random
from typing import TYPE_CHECKING

from neo.protocol.packets import SetSync
from tests.simulator.ambush import WATCHED, Ambush
from tests.simulator.process import Process

if TYPE_CHECKING:
    from tests.simulator.cluster import Cluster
    from tests.simulator.run import Run

#: Range of the mean time between two faults, and range of a fault's duration: some are longer than a
#: lease and the time-out of a lock, most are shorter.
BETWEEN_SECONDS = (0.3, 4.0)
LASTING_SECONDS = (0.05, 8.0)
#: Range of the latency between two sites: a round trip may take longer than the time-out of a lock.
DISTANCE_SECONDS = (0.01, 2.5)
#: Range of the time for which a storage node of the backup stands still.
PAUSED_SECONDS = (2.0, 6.0)
#: Range of the time for which one stands still: transactions may not wait for it, however long. The
#: chance has a generator of its own, so that other choices of the seed stay the same.
STANDING_SECONDS = (6.0, 40.0)
STANDING_CHANCE = 0.3
#: Longest time between a message and the end of the processes for which it was watched.
AMBUSH_SECONDS = 0.004
#: Longest time until a master starts again of whose end the backup has not heard.
UNHEARD_SECONDS = 0.5
#: Interval at which the operator switches a backup on again, at the end.
LOOK_SECONDS = 1.0


class SiteFaults:
    """Inject faults from :meth:`start` to :meth:`stop`, if there is a backup."""

    def __init__(self, run: Run, names: Sequence[str] | None) -> None:
        """``names``: the kinds to use, None for a choice of the seed."""
        self._run = run
        self._world = run.world
        self._random = random = Random(f"site faults {run.world.seed}")
        chosen = [name for name in SITE_KINDS if name != STAND and random.random() < 0.5]
        if Random(f"standing backup {run.world.seed}").random() < STANDING_CHANCE:
            chosen.append(STAND)
        if names is not None:
            chosen = [name for name in names if name in SITE_KINDS]
        elif run.options.canary is not None:
            chosen = []
        if run.backup is None:
            chosen = []
        elif not run.cluster.sync_backups:
            chosen = [name for name in chosen if name not in SYNC_ONLY]
        self.kinds = chosen
        self._between = random.uniform(*BETWEEN_SECONDS)
        self._active = False
        self._ambush = Ambush()
        self.injected: dict[str, int] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside the block, notice the messages at which processes are to be killed."""
        if AMBUSH in self.kinds:
            with self._ambush.laid():
                yield
        else:
            yield

    def start(self) -> None:
        self._active = True
        self._plan()

    def stop(self) -> None:
        """Inject nothing any more. The operator sees to it that commits may wait for the backup."""
        self._active = False
        if SWITCH in self.kinds:
            self._settle()

    def _plan(self) -> None:
        if self.kinds:
            delay = self._random.expovariate(1 / self._between)
            self._world.call_later(delay, self._inject, "site fault")

    def _inject(self) -> None:
        if self._active:
            name = self._random.choice(self.kinds)
            self.injected[name] = self.injected.get(name, 0) + 1
            SITE_KINDS[name](self)
            self._plan()

    def _later(self, callback: Callable[[], None], name: str) -> None:
        low, high = LASTING_SECONDS
        ratio: float = (high / low) ** self._random.random()
        self._world.call_later(low * ratio, callback, name)

    # -- links -------------------------------------------------------------------------------------

    def _pairs(self) -> list[tuple[str, str]]:
        """Return all pairs of hosts, one of each site, the first site chosen at random."""
        clusters = self._run.clusters
        self._random.shuffle(clusters)
        one, other = ([process.host for process in _servers(cluster)] for cluster in clusters)
        return list(product(one, other))

    def _cut_sites(self) -> None:
        self._cut(both=self._random.random() < 0.6)

    def _cut(self, both: bool) -> None:
        network, pairs = self._run.cluster.network, self._pairs()
        self._world.log("network", f"the sites are cut off{'' if both else ', in one direction'}")
        for one, other in pairs:
            network.cut(one, other)
            if both:
                network.cut(other, one)
        self._later(network.heal, "heal network")

    def _slow(self) -> None:
        network, pairs = self._run.cluster.network, self._pairs()
        low, high = DISTANCE_SECONDS
        seconds = low * (high / low) ** self._random.random()
        self._world.log("network", f"the other site is {seconds:.2f} s away")
        for one, other in pairs:
            network.slow(one, other, seconds)
            network.slow(other, one, seconds)
        self._later(network.heal, "heal network")

    def _reset(self) -> None:
        """Reset connections between the sites, whose processes all live on."""
        pairs = {frozenset(pair) for pair in self._pairs()}
        chance = self._random.choice((0.3, 1.0))
        self._world.log("network", "connections between the sites are reset")
        for end in self._run.cluster.network.connections:
            if {end.host, end.other.host} in pairs and self._random.random() < chance:
                end.sever()

    # -- processes ---------------------------------------------------------------------------------

    def _kill(self, processes: Sequence[Process]) -> None:
        for process in processes:
            if process.alive:
                process.kill()
                self._later(process.revive, f"start {process.name}")

    def _kill_masters(self) -> None:
        """Kill the primary masters of both clusters, one after the other."""
        clusters = self._run.clusters
        self._random.shuffle(clusters)
        one, other = clusters
        self._kill([one.master])

        def kill_other() -> None:
            if self._active:
                self._kill([other.master])

        self._later(kill_other, "kill the other master")

    def _kill_unheard(self) -> None:
        """Kill the primary master upstream while the backup cannot hear of it, for a shorter time than a
        lease lasts."""
        master = self._run.cluster.master
        self._cut(both=True)
        if master.alive:
            master.kill()
            seconds = self._random.random() * UNHEARD_SECONDS
            self._world.call_later(seconds, master.revive, f"start {master.name}")

    def _pause_backup(self) -> None:
        """Stop a storage node of the backup, for about the time-out of a lock. Its master has a lease."""
        self._pause(PAUSED_SECONDS)

    def _stand_backup(self) -> None:
        """Let a storage node of the backup stand still, while its master lives."""
        self._pause(STANDING_SECONDS)

    def _pause(self, seconds: tuple[float, float]) -> None:
        process = self._random.choice(self._run.clusters[1].storages)
        process.pause()
        self._world.call_later(
            self._random.uniform(*seconds), process.resume, f"resume {process.name}"
        )

    def _lay_ambush(self) -> None:
        """Kill processes of one cluster soon after a message of a commit, a join or a lease."""
        cluster = self._random.choice(self._run.clusters)
        groups = [[p] for p in cluster.servers] + [cluster.storages, cluster.servers]
        group, message = self._random.choice(groups), self._random.choice(WATCHED)
        delay = self._random.random() * AMBUSH_SECONDS

        def strike() -> None:
            self._world.call_later(delay, kill, f"ambush at {message.__name__}")

        def kill() -> None:
            if self._active:
                self._world.log("world", f"processes are killed after {message.__name__}")
                self._kill(group)

        self._ambush.lay(message, strike)

    # -- the operator ------------------------------------------------------------------------------

    def _switch(self) -> None:
        """Switch the synchronous backup off, and on again later."""
        self._command(False)
        self._later(lambda: self._command(True), "switch the backup on")

    def _command(self, on: bool) -> None:
        (name,) = self._run.cluster.sync_backups
        self._world.log("operator", f"switches {name} {'on' if on else 'off'}")
        self._run.operator.command(SetSync(name, on), lambda told: None)

    def _settle(self) -> None:
        master = self._run.cluster.master_core
        if master is None or any(row[1] == "off" for row in master.coordinator.backups.rows()):
            self._command(True)
        self._world.call_later(LOOK_SECONDS, self._settle, "operator looks at the backup")


def _servers(cluster: Cluster) -> list[Process]:
    return list(dict.fromkeys([*cluster.masters.all, *cluster.servers]))


AMBUSH, SWITCH, STAND = "ambush", "switch-sync", "stand-backup"
#: Kinds that only a synchronous backup has.
SYNC_ONLY = (AMBUSH, SWITCH, STAND)

SITE_KINDS: dict[str, Callable[[SiteFaults], None]] = {
    "cut-sites": SiteFaults._cut_sites,
    "slow-sites": SiteFaults._slow,
    "reset-sites": SiteFaults._reset,
    "kill-masters": SiteFaults._kill_masters,
    "kill-unheard": SiteFaults._kill_unheard,
    "pause-backup": SiteFaults._pause_backup,
    AMBUSH: SiteFaults._lay_ambush,
    SWITCH: SiteFaults._switch,
    STAND: SiteFaults._stand_backup,
}
