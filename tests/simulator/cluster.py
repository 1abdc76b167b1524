"""A cluster of simulated processes: masters, storages, an admin, and clients that run the real code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from neo.admin.core import AdminCore, AdminSettings
from neo.master.primary import PrimaryMaster
from neo.master.settings import SyncPolicy
from neo.net.fault_sites import FaultSite
from neo.node.tracing import Tracer
from neo.protocol.enums import ClusterState, NodeType
from neo.protocol.ids import u64
from neo.protocol.packets import Address
from neo.storage.backend.api import BackendFailure
from neo.storage.node import NodeSettings, StorageNode
from neo.topology.masters import MasterCandidates
from tests.simulator.archive_disk import ArchiveDisk
from tests.simulator.clients import ClientProcess, SimHost
from tests.simulator.clock import Clocks
from tests.simulator.direct_reads import SimDirectReads
from tests.simulator.disk import SimDisk
from tests.simulator.masters import Masters
from tests.simulator.network import Network
from tests.simulator.one_process import OneProcess
from tests.simulator.process import Process, SimNodeHost
from tests.simulator.tables import Tables, join_tables
from tests.simulator.threads import Threads
from tests.simulator.world import World

CLUSTER_NAME = "sim"
ADMIN_PORT, STORAGE_PORT = 11000, 12000
#: Virtual time within which a cluster is created, or comes back when nothing fails any more.
START_SECONDS = 60.0
HEAL_SECONDS = 300.0


@dataclass(frozen=True)
class Site:
    """A cluster's place in a world: name, prefix of the processes' names, offset of the ports."""

    cluster: str = CLUSTER_NAME
    prefix: str = ""
    offset: int = 0

    def address(self, port: int) -> Address:
        return ("127.0.0.1", port + self.offset)


@dataclass(frozen=True)
class Shape:
    """The shape of a cluster, which the seed chooses."""

    storages: int = 2
    partitions: int = 4
    replicas: int = 0
    masters: int = 1


MAIN = Site()


class Mount:
    """The place where a storage node finds its database: its disk, or an empty folder."""

    process: Process

    def __init__(self, disk: SimDisk, make_disk: Callable[[str], SimDisk]) -> None:
        self.disk = self.used = disk
        self._make_disk = make_disk

    def unmount(self) -> None:
        """Replace the disk with an empty folder, while the process is dead."""
        self.used = self._make_disk(self.disk.name)

    def remount(self) -> None:
        """Mount the disk again, while the process is dead. Idempotent."""
        if self.used is not self.disk:
            self.used.close()
            self.used = self.disk

    def crash(self) -> None:
        self.used.crash()


class Equipment(Protocol):
    """Equips the nodes of a cluster before they run."""

    def equip_master(self, core: PrimaryMaster) -> None: ...

    def equip_storage(self, core: StorageNode) -> None: ...


class Cluster:
    """A cluster of simulated processes. ``make_disk(name)`` returns the disk of a storage node's
    machine. ``beside`` is another cluster of the same world. ``upstream`` is the upstream cluster in
    the configuration of the masters when they start."""

    def __init__(
        self,
        world: World,
        shape: Shape,
        make_disk: Callable[[str], SimDisk],
        faults: Callable[[str, FaultSite], bool] = lambda who, site: False,
        site: Site = MAIN,
        beside: Cluster | None = None,
    ) -> None:
        self.world = world
        self.shape = shape
        self.site = site
        self.upstream: Cluster | None = None
        #: Names of the backups that the admin node watches, and of the synchronous ones.
        self.backups: list[str] = []
        self.sync_backups: list[str] = []
        self.sync_policy = SyncPolicy.CONTINUE
        #: Whether this cluster is a synchronous backup.
        self.sync = False
        self.network: Network = Network(world) if beside is None else beside.network
        self.threads: Threads = Threads(world) if beside is None else beside.threads
        self.faults = faults
        self.disks: dict[str, SimDisk] = {}
        #: Mounts of the storage nodes with which the cluster began.
        self.mounts: list[Mount] = []
        self.clients: list[ClientProcess] = []
        #: The process whose nodes the clients read directly.
        self.embedding: OneProcess | None = None
        #: None if all clocks are right.
        self.clocks: Clocks | None = None
        #: Damaged partitions, in which a check must find a difference.
        self.damaged: set[int] = set()
        #: Period of the scrub; 0 for never.
        self.scrub_seconds = 0.0
        self.equipment: list[Equipment] = []
        #: Where storage nodes find archives; None if they use none.
        self.archives: ArchiveDisk | None = None
        self._make_disk = make_disk
        self.masters = Masters(self, shape.masters)
        name, address = f"{site.prefix}admin", site.address(ADMIN_PORT)
        self.admin = Process(world, self.network, name, address, self._admin, faults=faults)
        self.storages = [self._storage(number) for number in range(1, shape.storages + 1)]
        #: Clones that are not storage nodes yet.
        self.joining: list[Process] = []

    # -- processes -------------------------------------------------------------------------------

    @property
    def servers(self) -> list[Process]:
        return [*self.masters.processes, *self.storages, self.admin]

    def storage_place(self, number: int) -> tuple[str, Address]:
        """Return the name and the address of a storage node."""
        return f"{self.site.prefix}storage{number}", self.site.address(STORAGE_PORT + number)

    def _storage(self, number: int) -> Process:
        name, address = self.storage_place(number)
        disk = self.disks[name] = self._make_disk(name)
        mount = Mount(disk, self._make_disk)
        self.mounts.append(mount)

        def make(host: SimNodeHost) -> StorageNode:
            return self.storage_core(host, address, mount.used)

        mount.process = Process(self.world, self.network, name, address, make, mount, self.faults)
        return mount.process

    @property
    def unmounted(self) -> bool:
        """Return whether a node has an empty database instead of its own."""
        return any(mount.used is not mount.disk for mount in self.mounts)

    def storage_core(
        self, host: SimNodeHost, address: Address, disk: SimDisk, is_clone: bool = False
    ) -> StorageNode:
        core: StorageNode

        def failed(failure: BackendFailure) -> None:
            core.backend_failed(failure)

        backend, contents = disk.open(host, failed)
        settings = NodeSettings(self.site.cluster, address, is_clone=is_clone)
        candidates = MasterCandidates(self.masters.addresses)
        worker = None if self.archives is None else self.archives.worker(host, disk.contents)
        try:
            core = StorageNode(host, settings, candidates, backend, contents, worker=worker)
        except BackendFailure:
            if contents is not None:
                contents.close()
            backend.close()
            raise
        for equipment in self.equipment:
            equipment.equip_storage(core)
        return core

    def _admin(self, host: SimNodeHost) -> AdminCore:
        return AdminCore(
            host,
            AdminSettings(self.site.cluster, self.site.address(ADMIN_PORT), tuple(self.backups)),
            MasterCandidates(self.masters.addresses),
            remember=lambda masters: None,
        )

    def skew(self, clocks: Clocks) -> None:
        """Give the machines different clocks. Call before the start of the cluster."""
        self.clocks = clocks
        for process in dict.fromkeys([*self.masters.all, *self.servers]):
            clocks.give(process)

    def start(self) -> None:
        """Start all processes and wait until clients are served."""
        for process in self.servers:
            self.world.call_later(
                self.world.random.random() * 0.1, process.revive, f"start {process.name}"
            )
        self.wait_running(START_SECONDS)

    def client(self) -> ClientProcess:
        """Return a new process of an application."""
        name = f"{self.site.prefix}client{len(self.clients) + 1}"
        clock = None if self.clocks is None else self.clocks.make()
        process = ClientProcess(self.world, self.network, self.threads, name, self.faults, clock)
        self.clients.append(process)
        return process

    def trace(self, tracer: Tracer) -> None:
        """Have the nodes that take part in commits trace. Call before the start of the cluster."""
        for process in (*self.masters.all, *self.storages):
            process.tracer = tracer

    def storage(self, process: ClientProcess, **options: Any) -> Any:
        """Open the real client inside a thread of a process."""
        from neo.client import Storage

        masters = " ".join(f"{host}:{port}" for host, port in self.masters.addresses)
        host = SimHost(process)
        if self.embedding is not None:
            host.direct = SimDirectReads(self.embedding, host.point)
        return Storage(masters, self.site.cluster, host=host, **options)

    # -- state -----------------------------------------------------------------------------------

    @property
    def master(self) -> Process:
        """Return the process of the primary master, or of any master if there is no primary."""
        serving = self.masters.serving()
        return self.masters.processes[0] if serving is None else serving[0]

    @property
    def master_core(self) -> PrimaryMaster | None:
        """Return the core of the primary master, or None."""
        serving = self.masters.serving()
        return None if serving is None else serving[1]

    @property
    def running(self) -> bool:
        """Return whether clients are served and all nodes run (one without cells stays PENDING)."""
        return self.is_at(ClusterState.RUNNING)

    def is_at(self, state: ClusterState) -> bool:
        """Return whether the cluster is in this state and all nodes are connected and alive. Both are
        checked, because the master may not have heard yet that a process ended."""
        master = self.master_core
        if master is None or master.cluster.state is not state or master.cluster.starting:
            return False
        if not master.cluster.of_type(NodeType.ADMIN) or not all(p.alive for p in self.storages):
            return False
        return len(master.cluster.identified_storages()) == len(self.storages)

    @property
    def packed(self) -> bool:
        """Return whether no pack is left to be done."""
        master = self.master_core
        return master is not None and self.packed_at(master.packs.tid)

    @property
    def swept(self) -> bool:
        """Return whether all nodes that serve have compared their folders of contents, and deleted what
        crashes left of data and of fetches. Nothing of it is excused any more."""
        cores = {
            process.name: process.core
            for process in self.storages
            if isinstance(process.core, StorageNode) and process.core.cluster.operational
        }
        if not all(core.blobs.sweep.done and core.orphans.done for core in cores.values()):
            return False
        if any(self.disks[name].contents.parts.now for name in cores):
            return False  # of interrupted fetches, which are deleted when nothing is left to be fetched
        for name in cores:
            self.disks[name].excuse_no_orphans()
        return True

    def packed_at(self, tid: bytes) -> bool:
        """Return whether all readable cells are packed at ``tid`` or later, and no pack is left."""
        master = self.master_core
        cores = {
            process.core.cluster.nid: process.core
            for process in self.storages
            if isinstance(process.core, StorageNode) and process.core.cluster.operational
        }
        # A storage node may not have heard yet that its cells are readable.
        return master is not None and all(
            nid in cores
            and cores[nid].packer.packed(partition) >= max(u64(tid), cores[nid].packer.wanted())
            for partition in range(len(master.partitions))
            for nid in master.partitions.readable(partition)
        )

    def wait_running(self, seconds: float = HEAL_SECONDS) -> None:
        self.world.run_until(
            lambda: self.running, seconds, f"the cluster {self.site.cluster} is RUNNING"
        )

    def heal(self) -> None:
        """End all faults and start the processes that do not run."""
        self.world.log("world", "heals")
        for mount in self.mounts:
            if mount.used is not mount.disk:
                mount.process.kill()
                mount.remount()
        self.network.heal()
        for disk in self.disks.values():
            disk.heal()
        for platter in self.masters.platters.values():
            platter.heal()
        for client in self.clients:
            client.resume()
        for process in self.masters.all:
            process.resume()
        for process in dict.fromkeys([*self.masters.members(), *self.servers, *self.joining]):
            process.resume()
            process.revive()

    def tables(self) -> Tables:
        """Return the rows of all storage nodes together. The oracle of cells compares replicas."""
        return join_tables((disk.tables() for disk in self.disks.values()), self.masters.primaries)

    def validate(self) -> None:
        """Assert the invariants that hold between any two events."""
        master = self.master_core
        if master is not None:
            master.coordinator.transactions.validate()
            if master.backup.current is not None:
                master.backup.current.cells.validate()
        for process in self.storages:
            core = process.core
            if isinstance(core, StorageNode):
                core.locks.validate()
