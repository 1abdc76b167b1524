"""A backup cluster beside the run's own: it follows, is read, fails, takes over and switches back.

Its readers contribute to the oracles of the history. The backup has its own, too:

* No reader sees an older state than a reader before, in whatever order processes die. A reader that
  stays connected hears of everything in the end.
* When an operator is told that standby mode ends, the next master finds no backup, though this one is
  killed at once.
* Whenever the backup leaves backup mode, its tables are a prefix of those of the upstream cluster: all
  transactions up to one of them, byte by byte.
* A synchronous one keeps its promises (:mod:`tests.simulator.sync_watch`).
* At the end, when the standby has caught up, its tables are equal to the upstream's. Then both change
  roles, and the former upstream follows what is written to the former backup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any

from ZODB.Connection import TransactionMetaData
from ZODB.POSException import ReadOnlyError

from neo.master.settings import SyncPolicy
from neo.protocol.enums import ClusterState, ErrorCode
from neo.protocol.ids import MAX_TID, ZERO_TID, add64
from neo.protocol.packets import AskFinishPrepared, Error, Message, SetClusterState
from tests.simulator.clients import ClientProcess
from tests.simulator.cluster import HEAL_SECONDS, Cluster, Shape, Site
from tests.simulator.disk import SimDisk
from tests.simulator.operator import Operator
from tests.simulator.recorded import Recorded
from tests.simulator.replicas import cell_rows, check_replicas, node_rows
from tests.simulator.sync_loss import Loss
from tests.simulator.sync_watch import SyncWatch
from tests.simulator.workloads.base import EXPECTED
from tests.simulator.world import Violation, World

if TYPE_CHECKING:
    from tests.simulator.run import Run

#: Interval at which the end of a change of state is checked and the next step is taken.
LOOK_SECONDS = 0.2
#: Mean time between two changes of role, or two commands of the operator.
BETWEEN_SECONDS = 3.0
STORAGES_MAX = 3
READ_PAUSE_SECONDS = 0.3
#: Part of the synchronous backups whose upstream cluster is lost at the end, and of those without which
#: the upstream cluster does not commit.
LOSS_CHANCE = 0.6
STOP_CHANCE = 0.25
#: Part of the ends of backup mode after which the master is killed, when the operator is told.
KILL_CHANCE = 0.5
BACKUP_STATES = ClusterState.STARTING_BACKUP, ClusterState.BACKINGUP
#: Number of transactions that are written to the backup after it has taken over.
TRANSACTIONS = 5

#: Rows of a cell. The next name: the rows of all readable cells, by partition.
Cell = set[tuple[Any, ...]]
Partitions = list[list[Cell]]
#: The last tid of a backup when it left backup mode, and its rows.
Snapshot = tuple[bytes, Partitions]


class Shown(Recorded):
    """Record what a reader of the backup sees, which lags behind what was acknowledged."""

    site: BackupSite

    def sync(self, force: bool = True) -> None:
        self._storage.sync(force)

    def new_oid(self) -> bytes:
        """Return a new oid. While the cluster is no backup, it is unique in this cluster only."""
        oid: bytes = self._storage.new_oid()
        return oid

    def lastTransaction(self) -> bytes:
        shown = self.site.shown
        tid = super().lastTransaction()
        if tid < shown:
            raise self._history.violated(
                f"the backup shows {tid.hex()}, it has shown {shown.hex()} before"
            )
        return tid


class BackupSite:
    def __init__(
        self, run: Run, random: Random, make_disk: Callable[[World, str], SimDisk], sync: bool
    ) -> None:
        """``sync``: the backup is synchronous."""
        self._run = run
        self._random = random
        self._world = world = run.world
        storages = random.randrange(1, STORAGES_MAX + 1)
        main = run.cluster.shape
        shape = Shape(storages, main.partitions, random.randrange(min(storages, 2)), main.masters)
        self.cluster = Cluster(
            world,
            shape,
            lambda name: make_disk(world, name),
            run.sites,
            Site("backup", "b-", 100),
            beside=run.cluster,
        )
        self.cluster.upstream = run.cluster
        self.cluster.scrub_seconds = run.cluster.scrub_seconds
        run.cluster.backups.append(self.cluster.site.cluster)
        self._sync: SyncWatch | None = None
        self._loss: Loss | None = None
        if sync:
            choices = Random(f"synchronous {world.seed}")
            self._sync = SyncWatch(self.cluster, run.cluster, run.history)
            self.cluster.sync = True
            run.cluster.sync_backups.append(self.cluster.site.cluster)
            if choices.random() < STOP_CHANCE:
                run.cluster.sync_policy = SyncPolicy.STOP
            if choices.random() < LOSS_CHANCE:
                self._loss = Loss(self.cluster, run.cluster, self._sync, choices)
        self.operator = Operator(self.cluster, random, run.history, rewindable=False)
        self._ends = Random(f"ends of backup mode {world.seed}")
        #: The greatest tid that any reader saw.
        self.shown = ZERO_TID
        self._snapshots: list[Snapshot] = []
        self._reader: ClientProcess | None = None
        self._active = False
        self._leaving = self._entering = self._over = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside the block, check the promises of a synchronous backup at each commit."""
        if self._sync is None:
            yield
        else:
            with self._sync.watching():
                yield

    def start(self) -> None:
        """Make the new cluster a backup."""
        self.cluster.start()
        self._entering = True
        self._look()
        self._active = True
        self._plan()

    def stop(self) -> None:
        """Stop injecting faults."""
        self._active = False

    # -- roles -------------------------------------------------------------------------------------

    def _plan(self) -> None:
        delay = self._random.expovariate(1 / BETWEEN_SECONDS)
        self._world.call_later(delay, self._act, "backup's operator")

    def _act(self) -> None:
        if not self._active:
            return
        if self._random.random() < 0.5:
            self.leave()
        elif self.operator.busy:
            self.operator.act()
        self._plan()

    def leave(self) -> None:
        """Leave standby mode for the time that it takes to compare the tables."""
        if not self._entering and self._state() is ClusterState.BACKINGUP:
            self._stop_reader()
            self._leaving = True
            if self._sync is not None:
                self._sync.look()
            self.operator.command(SetClusterState(ClusterState.STOPPING_BACKUP), lambda told: None)

    def _state(self) -> ClusterState | None:
        master = self.cluster.master_core
        return None if master is None else master.cluster.state

    def _look(self) -> None:
        if self._over:
            return
        state = self._state()
        if self._sync is not None:
            self._sync.look()
        if state is ClusterState.RUNNING:
            self._stop_reader()
            if self._leaving:
                self._snapshots.append(self._snapshot())
                if self._sync is not None:
                    self._sync.judge(self._snapshots[-1][0])
            self._leaving, self._entering = False, True
            self._drop_prepared()
            self.operator.command(SetClusterState(ClusterState.STARTING_BACKUP), lambda told: None)
        elif state is ClusterState.BACKINGUP and self._reader is None:
            # The command to leave may be lost with the master.
            self._leaving = self._entering = False
            self._start_reader()
        self._world.call_later(LOOK_SECONDS, self._look, "backup's state")

    def _drop_prepared(self) -> None:
        """Roll back what a synchronous backup has kept prepared: it is to be a backup again."""
        master = self.cluster.master_core
        assert master is not None
        for xid, *_, state in master.coordinator.prepared.describe(0, None):
            if state == "prepared":
                self.operator.command(AskFinishPrepared(xid, False), lambda told: None)

    # -- readers -----------------------------------------------------------------------------------

    def _start_reader(self) -> None:
        process = self._reader = self.cluster.client()
        random = Random(self._world.random.getrandbits(64))
        process.spawn(lambda: self._read(process, random), "reader")

    def _stop_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.kill()

    def _read(self, process: ClientProcess, random: Random) -> None:
        current = self.cluster.threads.current
        assert current is not None
        storage = None
        while True:
            try:
                if storage is None:
                    opened = self.cluster.storage(process, wait_timeout=5.0)
                    storage = Shown(opened, self._run.history, lambda: process.name)
                    storage.site = self
                self._read_some(storage, random)
            except EXPECTED as e:
                self._world.log(process.name, f"{type(e).__name__}: {e}")
            current.sleep(random.random() * READ_PAUSE_SECONDS)

    def _read_some(self, storage: Shown, random: Random) -> None:
        storage.sync()
        tid = storage.lastTransaction()
        self.shown = max(self.shown, tid)
        attempts = self._run.history.attempts
        for attempt in random.sample(attempts, min(3, len(attempts))):
            for oid in list(attempt.stored)[:3]:
                try:
                    storage.loadBefore(oid, add64(tid, 1))
                except KeyError:
                    pass  # the object has not arrived yet, or was deleted
        if random.random() < 0.1:
            try:
                storage.new_oid()
            except ReadOnlyError:
                return
            if self._state() is ClusterState.BACKINGUP and not self._entering:
                raise self._run.history.violated("a backup gives oids")

    # -- the end -----------------------------------------------------------------------------------

    @property
    def caught_up(self) -> bool:
        """Return whether all cells have the upstream's last transaction and a reader saw it, and a
        synchronous backup is in sync: it knows what is prepared upstream, and keeps nothing else."""
        master = self.cluster.master_core
        return (
            follows(self.cluster, self._run.cluster)
            and self.operator.settled
            and master is not None
            and self.shown == master.cluster.last_tid
            and self._packed_alike
            and (self._sync is None or self._sync.in_sync)
        )

    def catch_up(self) -> None:
        """Run until the backup has caught up. Big transactions in small chunks take long: the time is
        limited only as long as no row arrives."""
        while not self.caught_up:
            rows = self._count()
            try:
                self._run.world.run_until(
                    lambda: self.caught_up, HEAL_SECONDS, "the backup catches up"
                )
            except Violation:
                if self._count() <= rows:
                    raise

    def _count(self) -> int:
        """Return how many rows the storage nodes have together."""
        return sum(
            len(rows) for disk in self.cluster.disks.values() for rows in disk.tables().values()
        )

    @property
    def _packed_alike(self) -> bool:
        """Return whether both clusters are packed at the same tid."""
        upstream = self._run.cluster.master_core
        return upstream is not None and self.cluster.packed_at(upstream.packs.tid)

    def judge(self) -> None:
        """Compare the tables of both clusters. Raise Violation if they differ."""
        self.cluster.validate()
        upstream = self._rows(self._run.cluster)
        # Both are packed at the same tid, so that older rows must be equal, too.
        self._compare("the backup", self._rows(self.cluster), upstream, None, 0)
        for tid, partitions in self._snapshots:
            self._compare(f"the backup left at {tid.hex()}", partitions, upstream, tid)
        for disk in self.cluster.disks.values():
            disk.check(quiet=True)

    def take_over(self) -> None:
        """Make the backup a cluster of its own, and the former upstream cluster its backup."""
        run, world = self._run, self._world
        self._stop_reader()
        self._over = True
        if self._sync is not None:
            self._sync.wait(world)
        if self._loss is not None:
            self._survive(self._loss)
            return
        self._world.log("world", "the backup takes over")
        self._order(self.operator, ClusterState.STOPPING_BACKUP, self.cluster)
        self._write()
        run.cluster.upstream = self.cluster
        run.cluster.masters.restart()
        run.cluster.wait_running()
        self._order(run.operator, ClusterState.STARTING_BACKUP, run.cluster)
        world.run_until(
            lambda: follows(run.cluster, self.cluster), HEAL_SECONDS, "the other way round"
        )
        world.run(LOOK_SECONDS)
        self._compare(
            "the former upstream", self._rows(run.cluster), self._rows(self.cluster), None
        )
        self._order(run.operator, ClusterState.STOPPING_BACKUP, run.cluster)
        self._compare("after all", self._rows(run.cluster), self._rows(self.cluster), None)

    def _survive(self, loss: Loss) -> None:
        """Lose the upstream cluster, and make the backup a cluster of its own."""
        loss.happen(self._world)
        self._order(self.operator, ClusterState.STOPPING_BACKUP, self.cluster)
        self._world.run(LOOK_SECONDS)
        objects: dict[bytes, set[bytes]] = {}
        for copies in self._rows(self.cluster):
            for row in copies[0]:
                if row[0] == "obj":
                    tid = row[1].to_bytes(8, "big")
                    objects.setdefault(tid, set()).add(bytes.fromhex(row[2]))
        loss.judge(objects)
        self._write()

    def _order(self, operator: Operator, state: ClusterState, cluster: Cluster) -> None:
        """Repeat the command until the cluster is in ``state``. What the operator is told is true though
        the master, or all nodes, are killed at this moment."""
        world, promised = self._world, False
        leaves = state is ClusterState.STOPPING_BACKUP
        reached = ClusterState.RUNNING if leaves else ClusterState.BACKINGUP

        def told(answer: Message | None) -> None:
            nonlocal promised
            obeyed = isinstance(answer, Error) and answer.code == ErrorCode.ACK.value
            if promised or not obeyed:
                return
            promised = True
            if self._ends.random() < KILL_CHANCE:
                for process in [cluster.master] if leaves else [*cluster.storages, cluster.master]:
                    process.kill()
                    world.call_later(LOOK_SECONDS, process.revive, f"{process.name} is back")

        def ask() -> None:
            if not cluster.is_at(reached):
                operator.command(SetClusterState(state), told)
                world.call_later(LOOK_SECONDS, ask, "operator asks again")

        def arrived() -> bool:
            master = cluster.master_core
            if promised and master is not None:
                if leaves and master.cluster.state in BACKUP_STATES:
                    raise Violation("a backup, though the operator was told that standby mode ends")
                if not leaves and master.cluster.state is ClusterState.RUNNING:
                    raise Violation("no backup, though the operator was told that backup mode begins")
            return cluster.is_at(reached)

        ask()
        world.run_until(arrived, HEAL_SECONDS, reached.name)

    def _write(self) -> None:
        """Write some transactions with a client of the former backup."""
        process = self.cluster.client()

        def write() -> None:
            storage = self.cluster.storage(process)
            for number in range(TRANSACTIONS):
                transaction = TransactionMetaData(description=f"takeover {number}")
                storage.tpc_begin(transaction)
                oid = storage.new_oid()
                storage.store(oid, ZERO_TID, b"after the change of roles", "", transaction)
                storage.tpc_vote(transaction)
                storage.tpc_finish(transaction)
            storage.close()

        thread = process.spawn(write, "writer")
        self._world.run_until(lambda: thread.finished, HEAL_SECONDS, "the backup takes over")
        process.kill()
        self._world.run(LOOK_SECONDS)

    # -- tables ------------------------------------------------------------------------------------

    def _packed(self) -> int:
        """Return the tid of the last pack of either cluster. Older rows are not compared."""
        return max(
            node_rows((name, disk.tables()) for name, disk in cluster.disks.items())[1]
            for cluster in self._run.clusters
        )

    def _rows(self, cluster: Cluster, packed: int = 0) -> Partitions:
        """Return the rows of the readable cells, by partition. ``packed``: as for check_replicas()."""
        master = cluster.master_core
        assert master is not None
        disks = [(name, disk.tables()) for name, disk in cluster.disks.items()]
        check_replicas(master, disks, packed)
        nodes, _ = node_rows(disks)
        return [
            [
                cell_rows(nodes[nid][1], partition, 0)
                for nid in master.partitions.readable(partition)
            ]
            for partition in range(len(master.partitions))
        ]

    def _snapshot(self) -> Snapshot:
        master = self.cluster.master_core
        assert master is not None
        # Backup mode can be left while a pack runs.
        return master.cluster.last_tid, self._rows(self.cluster, self._packed())

    def _compare(
        self,
        what: str,
        cells: Partitions,
        sources: Partitions,
        last: bytes | None,
        packed: int | None = None,
    ) -> None:
        """Compare rows. ``last``: the last transaction that may be there; None: nothing may be missing.
        ``packed``: older rows are not compared; None means the last pack of either cluster."""
        bound = MAX_TID if last is None else last
        if packed is None:
            packed = self._packed()
        for partition, (copies, source) in enumerate(zip(cells, sources, strict=True)):
            expected = _comparable(source[0], packed, bound)
            for copy in copies:
                found = _comparable(copy, packed, MAX_TID)
                if missing := expected - found:
                    raise Violation(f"{what}: partition {partition} misses {_show(missing)}")
                if extra := found - expected:
                    raise Violation(f"{what}: partition {partition} has too much: {_show(extra)}")


def _comparable(rows: Cell, packed: int, last: bytes) -> Cell:
    """Return the rows after a pack, up to a tid, without the data serials, which a pack changes."""
    bound = int.from_bytes(last, "big")
    return {
        (*row[:3], None, *row[4:]) if packed and row[0] == "obj" else row
        for row in rows
        if packed < row[1] <= bound
    }


def _show(rows: Cell) -> str:
    ordered = sorted(rows, key=lambda row: (row[1], row[0]))
    return ", ".join(f"{row[0]} {row[1]:016x} {row[2]}" for row in ordered[:3])


def follows(backup: Cluster, upstream: Cluster) -> bool:
    """Return whether the backup shows the last transaction of its upstream cluster."""
    master, other = backup.master_core, upstream.master_core
    if master is None or other is None or master.backup.current is None:
        return False
    if not backup.is_at(ClusterState.BACKINGUP) or not master.backup.current.following:
        return False
    return master.cluster.last_tid == other.cluster.last_tid
