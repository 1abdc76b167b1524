"""One simulated run: a seed chooses cluster, workloads, faults and constants; oracles judge the end.

A run has two phases, as in FoundationDB and TigerBeetle. The first is *safety*: things fail. Then
everything is healed and *progress* is demanded: within a bounded virtual time the cluster is RUNNING
again, every thread of every workload completes a step, and every client commits. At the end the history
is compared with the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from random import Random
from typing import Any

from neo.master.settings import SyncPolicy
from neo.storage.node import StorageNode
from tests.simulator.admin_watch import watched_administration
from tests.simulator.applications import Application
from tests.simulator.archives import Archives
from tests.simulator.backup_site import BackupSite
from tests.simulator.blob_dirs import BlobDirs
from tests.simulator.broken_promises import BrokenPromises
from tests.simulator.cache_dirs import CacheDirs
from tests.simulator.checks import Drills
from tests.simulator.clients import ClientProcess
from tests.simulator.clock import Clocks
from tests.simulator.cloning import Cloning
from tests.simulator.cluster import HEAL_SECONDS, Cluster, Shape
from tests.simulator.damage import Damage
from tests.simulator.disk import SimDisk, disk_kind
from tests.simulator.faults import Faults, Sites
from tests.simulator.forced_start import Forsaking
from tests.simulator.history import History
from tests.simulator.interrupts import Interrupts
from tests.simulator.knobs import turned
from tests.simulator.log_watch import watched_logs
from tests.simulator.master_faults import MasterFaults
from tests.simulator.missing_disk import Unmounted
from tests.simulator.monitoring import Monitoring
from tests.simulator.old_disks import OldDisks, varied_tails, watched_comparisons
from tests.simulator.one_process import BUSY_TURN_SECONDS, TURN_SECONDS, OneProcess
from tests.simulator.operations import Maintenance
from tests.simulator.operator import MOST_REPLICAS, Operator
from tests.simulator.oracles import judge
from tests.simulator.process import Process
from tests.simulator.replicas import check_packed, check_replicas
from tests.simulator.restoring import Restoring
from tests.simulator.site_faults import SiteFaults
from tests.simulator.standing import Standing
from tests.simulator.table_watch import check_tables, watched_tables
from tests.simulator.workloads import LATER, WITH_BLOBS, WORKLOADS
from tests.simulator.workloads.base import Workload
from tests.simulator.world import World
from tests.simulator.zodb_world import simulated_zodb

#: Virtual time within which all threads and clients make progress, when nothing fails any more.
PROGRESS_SECONDS = 300.0
SETUP_SECONDS = 120.0
#: Greatest number of workloads of a seed: with more, each of them does less.
WORKLOADS_MAX = 4
LATER_CHANCE = 0.15
#: Pause of threads that must make progress, so that they leave time to each other.
PROGRESS_THINK_SECONDS = 0.2
#: The safety phase ends after so many events: another seed finds more in the same time.
EVENTS = 8000
#: Part of the seeds that have a backup cluster.
BACKUP_CHANCE = 0.2
#: Part of these backups that are synchronous.
SYNC_CHANCE = 0.5
#: Number of masters of a cluster, and the number of seeds out of ten that have so many.
MASTERS = ((1, 6), (3, 3), (5, 1))
#: Part of the seeds that have a scrub, and the range of its period.
SCRUB_CHANCE = 0.2
SCRUB_SECONDS = (4.0, 12.0, 40.0)
#: Part of the seeds that have operations.
OPERATIONS_CHANCE = 0.25
#: Part of the seeds that have backups into archives.
ARCHIVES_CHANCE = 0.2
#: So many events a restore may take.
RESTORE_EVENTS = 300_000
#: Part of the seeds in which some nodes share a process.
MACHINES_CHANCE = 0.3
#: Part of these seeds in which clients read the nodes of that process directly.
DIRECT_CHANCE = 0.5
#: Unlocked transactions become durable within a second.
QUIET_SECONDS = 5.0


_YES_NO: dict[bool | None, str | None] = {None: None, True: "yes", False: "no"}


@dataclass(frozen=True)
class Options:
    """Options of a run. The seed chooses every option that is None or empty, except ``seconds``.

    * ``seconds``: virtual time with faults
    * ``faults``: kinds of faults; "none" for none
    * ``sites``: fault sites that may fire, ``knobs``: knobs that may be turned; "none" likewise
    * ``workloads``, and ``disk`` (memory or sqlite)
    * ``storages``, ``replicas``, ``backup`` (a second cluster), ``sync`` (a synchronous backup), and
      ``masters`` of each cluster. With a canary the seed chooses no replicas, backup or several masters.
    * ``scrub``: period in seconds, 0 for never, which is the default with a canary
    * ``blobs``: with the workload of blobs, and folders of contents, or without
    * ``operations``: of kinds of the simulator; without, by default, with a canary
    * ``archives``: backups into them; without, by default, with a canary
    * ``machines``: some nodes share a process; without, by default, with a canary. Only a cluster with
      one master and without a backup has them.
    * ``kept``: clients keep their caches in a folder; without, by default, with a canary
    * ``monitored``: somebody asks for figures and traces; without, by default, with a canary
    * ``canary``: a planted bug
    """

    seconds: float = 10.0
    faults: tuple[str, ...] | None = None
    sites: tuple[str, ...] | None = None
    knobs: tuple[str, ...] | None = None
    workloads: tuple[str, ...] = ()
    disk: str | None = None
    storages: int | None = None
    replicas: int | None = None
    backup: bool | None = None
    sync: bool | None = None
    masters: int | None = None
    scrub: float | None = None
    blobs: bool | None = None
    operations: bool | None = None
    archives: bool | None = None
    machines: bool | None = None
    kept: bool | None = None
    monitored: bool | None = None
    canary: str | None = None

    def arguments(self) -> str:
        """Return the arguments of the command line that give these options again. Defaults that the
        canary gives are left out."""
        given = {
            "seconds": None if self.seconds == 10.0 else self.seconds,
            "faults": None if self.faults is None else ",".join(self.faults),
            "sites": None if self.sites is None else ",".join(self.sites),
            "knobs": None if self.knobs is None else ",".join(self.knobs),
            "workloads": ",".join(self.workloads) or None,
            "disk": self.disk,
            "storages": self.storages,
            "replicas": self.replicas,
            "backup": _YES_NO[self.backup],
            "sync": _YES_NO[self.sync],
            "masters": self.masters,
            "scrub": self.scrub,
            "blobs": _YES_NO[self.blobs],
            "operations": _YES_NO[self.operations],
            "archives": _YES_NO[self.archives],
            "machines": _YES_NO[self.machines],
            "kept": _YES_NO[self.kept],
            "monitored": _YES_NO[self.monitored],
            "canary": self.canary and f"{self.canary} --full-mix",
        }
        return " ".join(f"--{name} {value}" for name, value in given.items() if value is not None)


@dataclass
class Result:
    seed: int
    digest: str
    events: int
    virtual_seconds: float
    commits: int
    attempts: int
    reads: int
    faults: dict[str, int]


class Run:
    def __init__(self, seed: int, options: Options) -> None:
        self.options = options
        self.world = world = World(seed)
        random = world.random
        self._make_disk = make_disk = disk_kind(world, options.disk)
        storages = options.storages or random.randrange(1, 5)
        # A separate generator, so that older seeds find again what they found without replicas.
        replicated = Random(f"replicas {seed}")
        replicas = _replicas(options, storages, replicated)
        shape = Shape(storages, random.randrange(1, 8), replicas, _masters(options, seed))
        world.events_max *= shape.masters
        self.sites = Sites(world, options.sites)
        self.cluster = Cluster(world, shape, lambda name: make_disk(world, name), self.sites)
        self.cluster.scrub_seconds = _scrub(options, seed)
        self.cluster.threads.preemption = random.choice([0.0, 0.01, 0.1])
        self.history = History(world)
        self.workloads = self._choose_workloads()
        #: Whether storage nodes have folders of contents.
        self.with_blobs = any(workload.name in WITH_BLOBS for workload in self.workloads)
        self.blob_dirs = BlobDirs(seed)
        self.cache_dirs = CacheDirs(seed, False if options.canary and not options.kept else options.kept)
        #: Options of the clients' storages.
        self.settings: dict[str, Any] = {
            "cache_size": random.choice([0, 2000, 20_000_000]),
            "compress": random.choice([False, True]),
            "wait_timeout": random.choice([5.0, 30.0]),
        }
        self.think_seconds = random.choice([0.001, 0.05, 0.3])
        self.ending = False
        self.applications: list[Application] = []
        self.backup = _backup(self, options, make_disk)
        world.events_max *= len(self.clusters)
        if options.canary is None:
            clocks = Clocks(world)
            for cluster in self.clusters:
                cluster.skew(clocks)
        self.one_process = _one_process(self, options, seed)
        # A backup that has what its upstream cluster loses stops until the operator decides.
        rewindable = self.backup is None and all(workload.rewindable for workload in self.workloads)
        self.operator = Operator(self.cluster, replicated, self.history, rewindable)
        self.drills = Drills(self.cluster, self.operator, Random(f"drills {seed}"))
        self.cloning = Cloning(self.clusters, Random(f"clones {seed}"))
        self.forsaking = Forsaking(
            self.cluster, self.operator, Random(f"forsaking {seed}"), rewindable
        )
        self.damage = Damage(self.clusters, Random(f"damage {seed}"))
        self.unmounted = Unmounted(self.clusters, Random(f"unmounted {seed}"))
        self.old_disks = OldDisks(self.cluster, self.operator, Random(f"old disks {seed}"))
        self.standing = Standing(self, Random(f"standing {seed}"))
        self.interrupts = Interrupts(self, Random(f"interrupts {seed}"))
        self.broken_promises = BrokenPromises(self.clusters, Random(f"promises {seed}"))
        self.faults = Faults(self, options.faults)
        self.maintenance = self._maintained(options)
        self.archives = self._archived(options)
        self.master_faults = MasterFaults(self, options.faults)
        self.site_faults = SiteFaults(self, options.faults)
        self.monitoring = Monitoring(self, options.monitored, options.canary)

    def _maintained(self, options: Options) -> Maintenance | None:
        seed = self.world.seed
        if not _operations(options, self.faults, seed):
            return None
        switches = self.backup is None
        maintenance = Maintenance(self.cluster, Random(f"operations {seed}"), switches)
        self.cluster.equipment.append(maintenance)
        return maintenance

    def _archived(self, options: Options) -> Archives | None:
        seed = self.world.seed
        if not _archives(options, self.faults, seed):
            return None
        random = Random(f"archives {seed}")
        archives = Archives(self.cluster, random, self.history, self.faults.calm)
        self.cluster.archives = archives.disk
        self.cluster.equipment.append(archives)
        return archives

    def _choose_workloads(self) -> list[Workload]:
        random = self.world.random
        names = list(self.options.workloads)
        if not names:
            old = [name for name in WORKLOADS if name not in LATER]
            names = random.sample(old, random.randint(1, WORKLOADS_MAX))
            # A separate generator, so that the other choices of the seed stay the same.
            later = Random(f"later workloads {self.world.seed}")
            names += [name for name in LATER if later.random() < LATER_CHANCE]
        if self.options.blobs is not None:
            names = [name for name in names if name not in WITH_BLOBS]
            names += WITH_BLOBS if self.options.blobs else ()
        return [WORKLOADS[name](Random(random.getrandbits(64))) for name in names]

    # -- phases ----------------------------------------------------------------------------------

    def execute(self) -> Result:
        """Execute the run. Raise Violation, or any error of the code under test."""
        try:
            with (
                turned(self.world, self.options.knobs),
                varied_tails(self.world.seed),
                watched_tables(self.world, self._storage_cores),
                watched_logs(self.world),
                watched_administration(self.history),
                watched_comparisons(self.world, lambda: self.old_disks.begun),
                simulated_zodb(self.cluster.threads),
                self.site_faults.watching(),
                nullcontext() if self.backup is None else self.backup.watching(),
                self.blob_dirs.world(self.with_blobs),
                self.cache_dirs.world(self._running_client),
                self.monitoring.world(),
            ):
                self._execute()
        finally:
            self._clean_up()
        return Result(
            self.world.seed,
            self.world.digest,
            self.world.events,
            self.world.now,
            self.history.acknowledged,
            len(self.history.attempts),
            len(self.history.reads),
            self.faults.injected
            | self.master_faults.injected
            | self.site_faults.injected
            | self.sites.fired,
        )

    def _execute(self) -> None:
        world = self.world
        self.cluster.start()
        stops = self.cluster.sync_policy is SyncPolicy.STOP
        if self.backup is not None and stops:
            self.backup.start()
        self._start_applications()
        world.run_until(
            lambda: all(application.ready for application in self.applications),
            SETUP_SECONDS,
            "the workloads are set up",
        )
        if self.backup is not None and not stops:
            with self._thinking(PROGRESS_THINK_SECONDS):
                self.backup.start()
        if self.calm:
            self.standing.watch()
        self.faults.start()
        self.master_faults.start()
        self.site_faults.start()
        self.sites.start()
        self.monitoring.start()
        if self.maintenance is not None:
            self.maintenance.start()
        if self.archives is not None:
            self.archives.start()
        world.run(self.options.seconds, EVENTS * len(self.clusters) * len(self.masters))
        self.faults.stop()
        self.standing.stop()
        self.interrupts.stop()
        self.cloning.stop()
        self.master_faults.stop()
        self.site_faults.stop()
        self.sites.stop()
        self.monitoring.stop()
        if self.maintenance is not None:
            self.maintenance.stop()
        if self.archives is not None:
            self.archives.stop()
        if self.backup is not None:
            self.backup.stop()
        self._demand_progress()
        self._finish()
        self._judge()
        if self.backup is None:
            for drill in (self.drills.pack, self.drills.truncate, self.drills.prune):
                drill()
                self._judge_tables()
            if self.archives is not None:
                self._restore(self.archives)
        if self.backup is not None:
            random = Random(f"drills {self.world.seed}")
            Drills(self.backup.cluster, self.backup.operator, random).compare_with_upstream()
            self.world.run(QUIET_SECONDS)
            self.backup.judge()
            self.backup.take_over()

    def _restore(self, archives: Archives) -> None:
        random = Random(f"restore {self.world.seed}")
        self.world.events_max += RESTORE_EVENTS
        Restoring(self.cluster, archives, random, self._make_disk, not self.faults.calm).run()

    @property
    def calm(self) -> bool:
        """Return whether no node or link fails: what is slow is slow only because clients stand still."""
        return self.faults.calm and not self.site_faults.kinds

    @property
    def clusters(self) -> list[Cluster]:
        return [self.cluster] if self.backup is None else [self.cluster, self.backup.cluster]

    @property
    def servers(self) -> list[Process]:
        return [process for cluster in self.clusters for process in cluster.servers]

    @property
    def masters(self) -> list[Process]:
        """Return the masters of the run's own cluster."""
        return self.cluster.masters.processes

    @property
    def disks(self) -> dict[str, SimDisk]:
        return {name: disk for cluster in self.clusters for name, disk in cluster.disks.items()}

    def _storage_cores(self, cluster: str) -> list[StorageNode]:
        """Return the cores of the storage nodes that run, of the cluster of this name."""
        processes = [p for c in self.clusters if c.site.cluster == cluster for p in c.storages]
        return [p.core for p in processes if isinstance(p.core, StorageNode)]

    def _start_applications(self) -> None:
        random = self.world.random
        jobs = [(w, number) for w in self.workloads for number in range(w.threads)]
        count = random.randrange(1, min(3, len(jobs)) + 1)
        shares: list[list[tuple[Workload, int]]] = [[] for _ in range(count)]
        for index, job in enumerate(jobs):
            shares[index % count].append(job)
        self.applications = [Application(self, share, place) for place, share in enumerate(shares)]

    def replace_client(self, index: int) -> None:
        """Kill a client process and start another one, which continues its work."""
        application = self.applications[index]
        application.process.kill()
        self.applications[index] = Application(self, application.jobs, index)

    @contextmanager
    def _thinking(self, seconds: float) -> Iterator[None]:
        """Inside the block, make threads pause, so that they leave time to each other. With very fast
        links, a few virtual seconds would otherwise be a million events."""
        usual = self.think_seconds
        self.think_seconds = max(usual, seconds)
        yield
        self.think_seconds = usual

    def _demand_progress(self) -> None:
        # From now on virtual time is limited, not the number of events.
        think = PROGRESS_THINK_SECONDS * self.world.slowness * self.world.slow_readers
        self.think_seconds = max(self.think_seconds, think)
        for cluster in self.clusters:
            cluster.heal()
        self.master_faults.demand_progress()
        self.cluster.wait_running(HEAL_SECONDS)
        self.operator.settle()
        if self.backup is not None:
            self.backup.operator.settle()
        for application in self.applications:
            application.demand_progress()
        self.world.run_until(
            self._progressed,
            PROGRESS_SECONDS,
            "every thread works again, and every workload and client commits",
        )

    def _progressed(self) -> bool:
        if not all(application.works for application in self.applications):
            return False
        commits: dict[str, bool] = {}
        for application in self.applications:
            for workload, writes in application.writing().items():
                commits[workload] = writes or commits.get(workload, False)
        return all(commits.values())

    def _finish(self) -> None:
        self.ending = True
        self._wait_finished()
        self.interrupts.wait_heard()
        self.applications[0].check()
        self._wait_finished()
        self.world.run_until(
            lambda: self.standing.released, HEAL_SECONDS, "no lock is left on any storage node"
        )
        for application in self.applications:
            application.process.kill()
        if self.maintenance is not None:
            self.maintenance.finish()
        if self.archives is not None:
            self.archives.finish()
        self.world.run_until(lambda: self.operator.settled, HEAL_SECONDS, "all cells are complete")
        self.world.run_until(lambda: self.cluster.packed, HEAL_SECONDS, "all cells are packed")
        self.world.run_until(
            lambda: all(cluster.swept for cluster in self.clusters),
            HEAL_SECONDS,
            "folders of contents are compared, and data is swept",
        )
        if self.backup is None:
            self.world.run(QUIET_SECONDS)
            for disk in self.cluster.disks.values():
                disk.check_promised()
            if self.cluster.scrub_seconds:
                self.drills.scrub_and_repair()
            else:
                self.drills.check_and_repair()
            self.drills.mend_contents()
        backup = self.backup
        if backup is not None:
            backup.catch_up()
        self.world.run(QUIET_SECONDS)

    def _wait_finished(self) -> None:
        self.world.run_until(
            lambda: all(
                thread.finished or thread.name.endswith(("watcher", "neo-client-cache"))
                for application in self.applications
                for thread in application.process.members
            ),
            PROGRESS_SECONDS,
            "the threads of the workloads end",
        )

    def _judge(self) -> None:
        self.cluster.validate()
        check_tables(self.cluster)
        for disk in self.cluster.disks.values():
            disk.check(quiet=True)
        judge(self.history, self.cluster.tables())
        self._judge_tables()

    def _judge_tables(self) -> None:
        """Check that nodes have the rows that they must have, and that replicas are equal."""
        assert self.cluster.master_core is not None
        disks = [(name, disk.tables()) for name, disk in self.cluster.disks.items()]
        check_replicas(self.cluster.master_core, disks)
        check_packed(self.cluster.master_core, disks)
        if self.backup is not None:
            self.backup.judge()

    def _running_client(self) -> ClientProcess:
        """Return the process whose thread runs now."""
        thread = self.cluster.threads.current
        clients = (process for cluster in self.clusters for process in cluster.clients)
        return next(process for process in clients if thread in process.members)

    def _clean_up(self) -> None:
        """End all real threads of the run."""
        for cluster in self.clusters:
            for process in cluster.clients:
                process.dead = True
                for thread in process.members:
                    thread.resume()
            for mount in cluster.mounts:
                mount.remount()
        for disk in self.disks.values():
            disk.close()
        self.blob_dirs.close()
        self.cache_dirs.close()


def _replicas(options: Options, storages: int, random: Random) -> int:
    if options.replicas is not None:
        return options.replicas
    return 0 if options.canary else random.randrange(min(storages, MOST_REPLICAS + 1))


def _scrub(options: Options, seed: int) -> float:
    if options.scrub is not None:
        return options.scrub
    # A separate generator, as for replicas.
    random = Random(f"scrub {seed}")
    wanted = options.canary is None and random.random() < SCRUB_CHANCE
    return random.choice(SCRUB_SECONDS) if wanted else 0.0


def _operations(options: Options, faults: Faults, seed: int) -> bool:
    """Journals must not go back in time."""
    if not faults.keeps_disks:
        return False
    if options.operations is not None:
        return options.operations
    # A separate generator, as for replicas.
    return options.canary is None and Random(f"operations {seed}").random() < OPERATIONS_CHANCE


def _archives(options: Options, faults: Faults, seed: int) -> bool:
    """As for operations, and a disk that goes back in time has not what a copy has."""
    if not faults.keeps_disks:
        return False
    if options.archives is not None:
        return options.archives
    # A separate generator, as for replicas.
    return options.canary is None and Random(f"archives or not {seed}").random() < ARCHIVES_CHANCE


def _one_process(run: Run, options: Options, seed: int) -> OneProcess | None:
    # A separate generator, as for replicas.
    random = Random(f"machines {seed}")
    by_chance = options.canary is None and random.random() < MACHINES_CHANCE
    wanted = by_chance if options.machines is None else options.machines
    if not wanted or run.backup is not None or run.cluster.masters.several:
        return None
    servers = run.cluster.servers
    members = random.sample(servers, random.randint(2, len(servers)))
    # Another one, so that these seeds are what they were before there were direct reads.
    random = Random(f"direct {seed}")
    if random.random() >= DIRECT_CHANCE:
        return OneProcess(run.world, members)
    always = run.cluster.master, run.cluster.storages[0]
    group = OneProcess(
        run.world,
        list(dict.fromkeys((*always, *members))),
        random.choice((TURN_SECONDS, BUSY_TURN_SECONDS)),
    )
    run.cluster.embedding = group
    return group


def _masters(options: Options, seed: int) -> int:
    if options.masters is not None:
        return options.masters
    # A separate generator, as for replicas.
    counts, weights = zip(*MASTERS, strict=True)
    return 1 if options.canary else Random(f"masters {seed}").choices(counts, weights)[0]


def _backup(
    run: Run, options: Options, make_disk: Callable[[World, str], SimDisk]
) -> BackupSite | None:
    # A separate generator, as for replicas.
    random = Random(f"backup {run.world.seed}")
    by_chance = options.canary is None and random.random() < BACKUP_CHANCE
    wanted = by_chance if options.backup is None else options.backup
    return BackupSite(run, random, make_disk, _sync(options, run.world.seed)) if wanted else None


def _sync(options: Options, seed: int) -> bool:
    if options.sync is not None:
        return options.sync
    # A separate generator, as for replicas.
    return options.canary is None and Random(f"sync {seed}").random() < SYNC_CHANCE


__all__ = ["Options", "Result", "Run"]
