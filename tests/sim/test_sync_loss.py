"""A cluster with prepared transactions is lost for ever, at any moment. Its synchronous backup takes
over, and the resolver commits there what the coordinator had decided (specification 25.27)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from ZODB.Connection import TransactionMetaData
from ZODB.POSException import ConflictError, POSKeyError
from ZODB.utils import z64

from neo.client.xa.branches import xid_prefix
from neo.client.xa.resolving import resolve
from neo.protocol.enums import ClusterState
from neo.protocol.packets import Message, SetClusterState
from tests.simulator.alarm import alarmed
from tests.simulator.clients import ClientProcess
from tests.simulator.cluster import Cluster, Shape, Site
from tests.simulator.console import Command
from tests.simulator.memory_disk import MemoryDisk
from tests.simulator.process import Process
from tests.simulator.workloads.base import EXPECTED
from tests.simulator.world import World
from tests.simulator.zodb_world import simulated_zodb

SEEDS = 20
#: Virtual seconds within which each step must be over.
SECONDS = 120.0
LOSS_SECONDS = 1.0
#: Part of the transfers that the coordinator commits, and of those that the application finishes.
DECIDED_CHANCE = 0.7
FINISHED_CHANCE = 0.3
#: Part of those that check another object.
CHECKED_CHANCE = 0.5
DATA = b"transfer"


class Scene:
    """The database of the coordinator, a participant, and the synchronous backup of that one."""

    def __init__(self, seed: int) -> None:
        self.world = world = World(seed)
        self.random = Random(seed)
        shape = Shape(self.random.randint(1, 2), 2, 0)

        def make(cluster_shape: Shape, site: Site, beside: Cluster | None = None) -> Cluster:
            return Cluster(
                world, cluster_shape, lambda name: MemoryDisk(world, name), site=site, beside=beside
            )

        self.upstream = make(shape, Site())
        self.backup = make(Shape(2, 2, 1), Site("backup", "b-", 100), self.upstream)
        self.coordinator = make(Shape(1, 1), Site("coordinator", "c-", 200), self.upstream)
        self.backup.upstream, self.backup.sync = self.upstream, True
        self.upstream.sync_backups.append(self.backup.site.cluster)
        #: What the participant has promised: oids by xid; and what the coordinator has committed.
        self.promised: dict[bytes, bytes] = {}
        self.decided: set[bytes] = set()
        #: What prepared transactions of the participant check: (oid, serial) by xid.
        self.checked: dict[bytes, tuple[bytes, bytes]] = {}

    @property
    def clusters(self) -> list[Cluster]:
        return [self.upstream, self.backup, self.coordinator]

    def close(self) -> None:
        for cluster in self.clusters:
            for process in cluster.clients:
                process.kill()
            for disk in cluster.disks.values():
                disk.close()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        self.world.run_until(condition, SECONDS, what)

    def command(self, message: Message, done: Callable[[], bool]) -> None:
        """Give the backup a command until it is done: processes may be away."""
        told: list[Message | None] = [None]
        while not done():
            if told:
                told.clear()
                Command(self.backup, message, told.append)
            self.world.run(0.5)
            assert self.world.now < 10 * SECONDS, f"{message} is not done"

    # -- the steps ---------------------------------------------------------------------------------

    def start(self) -> None:
        for cluster in self.clusters:
            cluster.start()
        self.command(SetClusterState(ClusterState.STARTING_BACKUP), self._follows)
        self.until(lambda: self.in_sync, "the backup is in sync")

    def _follows(self) -> bool:
        return self.backup.is_at(ClusterState.BACKINGUP)

    @property
    def in_sync(self) -> bool:
        master = self.backup.master_core
        synchronous = None if master is None else master.backup.synchronous
        return synchronous is not None and synchronous.in_sync

    def transfer(self, process: ClientProcess) -> None:
        """Prepare transactions in both databases again and again, as an application does that may die."""
        here = self.coordinator.storage(process)
        there = self.upstream.storage(process)
        random = Random(self.random.random())
        number = 0
        while True:
            number += 1
            xid = xid_prefix(here.getName()) + b"%032x" % number
            oid = there.new_oid()
            try:
                if random.random() < CHECKED_CHANCE:
                    self.checked[xid] = commit(there)
                prepare(there, xid, oid, self.checked.get(xid))
                self.promised[xid] = oid
                prepare(here, xid, here.new_oid())
                if random.random() < DECIDED_CHANCE:
                    here.commit_prepared(xid)
                    self.decided.add(xid)
                    if random.random() < FINISHED_CHANCE:
                        there.commit_prepared(xid)
            except EXPECTED:
                return  # the participant is lost

    def lose(self) -> None:
        """Kill all processes of the participant and the application."""
        process = self.coordinator.client()
        process.spawn(lambda: self.transfer(process), "application")
        self.until(lambda: len(self.decided) > 2, "transfers are decided")
        self.world.run(self.random.random() * LOSS_SECONDS)
        self.until(lambda: self.in_sync, "the backup is in sync")
        for server in dict.fromkeys([*self.upstream.masters.all, *self.upstream.servers]):
            server.held = True
            server.kill()
        process.kill()

    def disturb(self) -> None:
        """Kill some processes of the backup, which start again."""
        servers: list[Process] = self.backup.servers
        for server in self.random.sample(servers, self.random.randint(1, len(servers))):
            server.kill()
            self.world.call_later(self.random.random(), server.revive, f"{server.name} revival")

    def take_over(self) -> None:
        states = ClusterState.BACKINGUP, ClusterState.STARTING_BACKUP
        self.until(lambda: any(map(self.backup.is_at, states)), "all nodes of the backup run")
        self.command(
            SetClusterState(ClusterState.STOPPING_BACKUP),
            lambda: self.backup.is_at(ClusterState.RUNNING),
        )

    def resolve(self) -> list[str]:
        """Run the resolver, and compare what can be read then with what the coordinator has decided.
        Return what was done."""
        process = self.coordinator.client()
        words: list[str] = []
        ended: list[bool] = []

        def run() -> None:
            here, there = self.coordinator.storage(process), self.backup.storage(process)
            for prepared in there.recover():
                if (checked := self.checked.get(prepared.xid)) is not None:
                    assert is_held(there, *checked), prepared
            for settled in resolve(here, [there], older_than=0.0):
                assert not settled.failed, settled
                words.append(settled.words)
            assert there.recover() == []
            committed = {outcome.xid for outcome in here.outcomes(1000) if outcome.tid is not None}
            assert self.decided <= committed
            for xid, oid in self.promised.items():
                assert load(there, oid) == (DATA if xid in committed else None), xid
            ended.append(True)

        process.spawn(run, "resolver")
        self.until(lambda: bool(ended), "the resolver ends")
        return words


def commit(storage: Any) -> tuple[bytes, bytes]:
    """Commit a new object. Return its oid and serial."""
    oid, transaction = storage.new_oid(), TransactionMetaData()
    storage.tpc_begin(transaction)
    storage.store(oid, z64, DATA, "", transaction)
    storage.tpc_vote(transaction)
    return oid, storage.tpc_finish(transaction)


def is_held(storage: Any, oid: bytes, serial: bytes) -> bool:
    """Return whether another transaction holds an object."""
    transaction = TransactionMetaData()
    storage.tpc_begin(transaction)
    try:
        storage.store(oid, serial, DATA, "", transaction)
        storage.tpc_vote(transaction)
    except ConflictError:
        return True
    finally:
        storage.tpc_abort(transaction)
    return False


def prepare(
    storage: Any, xid: bytes, oid: bytes, checked: tuple[bytes, bytes] | None = None
) -> None:
    """Prepare a transaction that stores one object, and checks another one (oid, serial)."""
    transaction = TransactionMetaData()
    storage.tpc_begin(transaction)
    storage.store(oid, z64, DATA, "", transaction)
    if checked is not None:
        storage.checkCurrentSerialInTransaction(*checked, transaction)
    storage.tpc_vote(transaction)
    storage.tpc_prepare(transaction, xid)


def load(storage: Any, oid: bytes) -> bytes | None:
    try:
        data: bytes = storage.load(oid)[0]
    except POSKeyError:
        return None
    return data


def test_the_resolver_commits_in_the_backup_what_the_coordinator_decided() -> None:
    """Specification 25.5, 25.27, 25.58: each transfer has one outcome, whatever is lost."""
    resolved = sum("committed in backup, as in coordinator" in lose(seed) for seed in range(SEEDS))
    assert resolved > SEEDS / 2


def lose(seed: int) -> list[str]:
    """Lose the participant, and, with an odd seed, some processes of its backup. Return what the resolver
    did. The resolver's thread fails the world if a transfer has two outcomes."""
    scene = Scene(seed)
    with alarmed(scene.world), simulated_zodb(scene.upstream.threads):
        try:
            scene.start()
            scene.lose()
            if seed % 2:
                scene.disturb()
            scene.take_over()
            return scene.resolve()
        finally:
            scene.close()
