"""The masters of a simulated cluster: one alone, or several that elect their primary."""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random
from typing import TYPE_CHECKING

from neo.master.cluster import Cluster as MasterCluster
from neo.master.election.leadership import Tenure
from neo.master.election.node import MasterNode
from neo.master.maintenance.scrub import DAY_SECONDS
from neo.master.primary import PrimaryMaster
from neo.master.settings import MasterSettings
from neo.net.sockets import format_address
from neo.node.host import Host
from neo.protocol.packets import Address, CellChange
from tests.simulator.clock import Clock
from tests.simulator.leadership import Reigns
from tests.simulator.log_disk import LogPlatter, SimLogDisk
from tests.simulator.log_watch import LogWatch
from tests.simulator.process import Process, SimNodeHost
from tests.simulator.replicas import check_changes

if TYPE_CHECKING:
    from tests.simulator.cluster import Cluster

MASTER_PORT = 10001


class WatchedCluster(MasterCluster):
    """A primary master whose changes of the partition table are checked."""

    damaged: set[int]

    def change_partitions(self, changes: list[CellChange], replicas: int | None = None) -> None:
        check_changes(self.partitions, changes, self.damaged)
        super().change_partitions(changes, replicas)


class WatchedPrimary(PrimaryMaster):
    cluster_type = WatchedCluster

    def watch(self, damaged: set[int]) -> None:
        """``damaged``: partitions whose replicas differ."""
        assert isinstance(self.cluster, WatchedCluster)
        self.cluster.damaged = damaged


class Masters:
    def __init__(self, cluster: Cluster, count: int) -> None:
        self._cluster = cluster
        world, site = cluster.world, cluster.site
        #: Addresses of all masters, for nodes and clients.
        self.addresses: list[Address] = [site.address(MASTER_PORT + i) for i in range(count)]
        #: A master that is not configured and may become a member.
        self.spare: Process | None = None
        #: Number of primary masters so far.
        self.primaries = 0
        self.log = LogWatch(world)
        self.platters: dict[str, LogPlatter] = {}
        if count == 1:
            self.processes = [self._process(f"{site.prefix}master", self.addresses[0], self._alone)]
        else:
            self.processes = [
                self._one_of_several(f"{site.prefix}master{i + 1}", address)
                for i, address in enumerate(self.addresses)
            ]
            # Sorted before the others, so that indices in the log differ from those in its settings.
            name, address = f"{site.prefix}master{count + 1}", site.address(MASTER_PORT - 1)
            self.spare = self._one_of_several(name, address)
        self.reigns = Reigns(world, self.all, self.log)

    # -- processes -----------------------------------------------------------------------------------

    def _process(
        self,
        name: str,
        address: Address,
        make: Callable[[SimNodeHost], PrimaryMaster | MasterNode],
        platter: LogPlatter | None = None,
    ) -> Process:
        cluster = self._cluster
        return Process(cluster.world, cluster.network, name, address, make, platter, cluster.faults)

    def _one_of_several(self, name: str, address: Address) -> Process:
        world = self._cluster.world
        # A separate generator, so that seeds with one master do not change.
        random = Random(f"{name} {world.seed}")
        platter = LogPlatter(random, lambda tid, spec: self.log.saw(name, tid, spec))
        self.platters[name] = platter
        clock = Clock(world, random)

        def make(host: SimNodeHost) -> MasterNode:
            settings = self._settings(list(dict.fromkeys([*self.addresses, address])))
            disk = SimLogDisk(platter, host.call_later)

            def make_primary(host: Host, tenure: Tenure) -> PrimaryMaster:
                primary = WatchedPrimary(host, settings, address, tenure)
                self._new(process, primary)
                return primary

            return MasterNode(
                host, settings.cluster, settings.masters, address, disk, make_primary
            )

        process = self._process(name, address, make, platter)
        process.clock = clock
        process.may_fail = lambda: platter.full
        process.writes = lambda peer: self.reigns.writes(process, peer)
        return process

    def _alone(self, host: SimNodeHost) -> PrimaryMaster:
        primary = WatchedPrimary(host, self._settings(self.addresses), self.addresses[0])
        self._equip(primary)
        return primary

    def _new(self, process: Process, primary: WatchedPrimary) -> None:
        self._equip(primary)
        self.reigns.begins(process, primary)

    def _equip(self, primary: WatchedPrimary) -> None:
        primary.watch(self._cluster.damaged)
        self.primaries += 1
        for equipment in self._cluster.equipment:
            equipment.equip_master(primary)

    def _settings(self, masters: list[Address]) -> MasterSettings:
        cluster = self._cluster
        upstream = cluster.upstream
        return MasterSettings(
            cluster=cluster.site.cluster,
            masters=masters,
            partitions=cluster.shape.partitions,
            replicas=cluster.shape.replicas,
            autostart=cluster.shape.storages,
            scrub_days=cluster.scrub_seconds / DAY_SECONDS,
            upstream_cluster=upstream.site.cluster if upstream else None,
            upstream_masters=list(upstream.masters.addresses) if upstream else None,
            sync_backups=tuple(cluster.sync_backups),
            sync_policy=cluster.sync_policy,
            sync=cluster.sync and upstream is not None,
        )

    def restart(self) -> None:
        """Kill all masters that run, and start them again."""
        running = [process for process in self.all if process.alive]
        for process in running:
            process.kill()
        for process in running:
            process.start()

    # -- state ---------------------------------------------------------------------------------------

    @property
    def several(self) -> bool:
        return len(self.processes) > 1

    @property
    def all(self) -> list[Process]:
        """Return all masters: those that were configured at first, and the spare one."""
        return self.processes if self.spare is None else [*self.processes, self.spare]

    def members(self) -> list[Process]:
        """Return the members, as the log says."""
        names = self.log.members
        if names is None:
            return self.processes
        return [process for process in self.all if format_address(process.address) in names]

    def forgetful(self) -> list[Process]:
        """Return the members that have not learned yet what they may have promised."""
        return [p for p in self.members() if self.platters[p.name].forgetful]

    def expendable(self) -> int:
        """Return how many more members may be away or lose their log."""
        members = self.members()
        return max(0, (len(members) - 1) // 2 - len(self.forgetful()))

    def can_go_on(self, members: Collection[Process]) -> bool:
        """Return whether a majority of these members would vote. A new one does not at once."""
        remember = [p for p in members if not self.platters[p.name].forgetful]
        return 2 * len(remember) > len(members)

    def serving(self) -> tuple[Process, PrimaryMaster] | None:
        """Return the process and the core of the primary of the newest epoch, or None."""
        serving: tuple[Process, PrimaryMaster] | None = None
        newest = -1
        for process in self.all:
            core = process.core
            if isinstance(core, PrimaryMaster):
                return process, core
            candidate = core.candidate if isinstance(core, MasterNode) else None
            if candidate is not None and candidate.tenure:
                primary = candidate.primary
                if isinstance(primary, PrimaryMaster) and candidate.tenure.epoch > newest:
                    newest, serving = candidate.tenure.epoch, (process, primary)
        return serving

    def equal(self) -> bool:
        """Return whether all members have the same log and vote."""
        logs = [self.platters[process.name].entries for process in self.members()]
        return all(log == logs[0] for log in logs) and not self.forgetful()
