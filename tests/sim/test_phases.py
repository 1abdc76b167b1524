"""A node is lost before or after the delivery of each message of a commit, and comes back (specification
7): what was acknowledged stays, what was not is there as a whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from persistent.mapping import PersistentMapping
from ZODB.Connection import TransactionMetaData
from ZODB.DB import DB

from neo.net.connection import HANDSHAKE
from neo.net.fault_sites import FaultSite
from neo.protocol.codec import Decoder
from neo.protocol.ids import ZERO_TID
from neo.protocol.packets import (
    AbortTransaction,
    AnswerBeginTransaction,
    AnswerFinalTID,
    AnswerInformationLocked,
    AnswerStoreObject,
    AnswerTransactionFinished,
    AnswerVoteTransaction,
    AskBeginTransaction,
    AskCheckCurrentSerial,
    AskFinalTID,
    AskFinishTransaction,
    AskLockInformation,
    AskStoreObject,
    AskStoreTransaction,
    AskVoteTransaction,
    FailedVote,
    InvalidateObjects,
    Message,
    NotifyUnlockInformation,
)
from tests.sim.writing import Writing
from tests.simulator.alarm import alarmed
from tests.simulator.cluster import Cluster, Shape
from tests.simulator.history import History
from tests.simulator.memory_disk import MemoryDisk
from tests.simulator.network import End
from tests.simulator.oracles import judge
from tests.simulator.planting import plant
from tests.simulator.process import Process
from tests.simulator.recorded import Recorded
from tests.simulator.replicas import check_replicas
from tests.simulator.table_watch import check_tables, watched_tables
from tests.simulator.world import Violation, World
from tests.simulator.zodb_world import simulated_zodb

LIMIT_BYTES = 1 << 20
#: The messages of a commit, in the order in which they are sent.
PHASES = (
    AskBeginTransaction,
    AnswerBeginTransaction,
    AskStoreObject,
    AnswerStoreObject,
    AskCheckCurrentSerial,
    AskStoreTransaction,
    AskVoteTransaction,
    AnswerVoteTransaction,
    FailedVote,
    AbortTransaction,
    AskFinishTransaction,
    AskLockInformation,
    AnswerInformationLocked,
    AnswerTransactionFinished,
    AskFinalTID,
    AnswerFinalTID,
    NotifyUnlockInformation,
    InvalidateObjects,
)
#: Messages that are sent only with so many replicas. With a copy of everything on both nodes, all keep
#: the metadata, and no node only votes. Without replicas, a transaction fails when a node is lost.
ONLY = {AskVoteTransaction: 0, AnswerVoteTransaction: 0, FailedVote: 1}
#: Fault sites that make a client send, once, a message that it would not send otherwise.
SITES = {
    FailedVote: FaultSite.STORAGE_LOST_BEFORE_VOTE,
    AskFinalTID: FaultSite.MASTER_LOST_IN_FINISH,
    AnswerFinalTID: FaultSite.MASTER_LOST_IN_FINISH,
}
CASES = [
    (phase, replicas) for phase in PHASES for replicas in (0, 1) if ONLY.get(phase) != 1 - replicas
]
OBJECTS = 4
#: Number of commits before a loss, and after it.
COMMITS = 2
AWAY_SECONDS = 1.0


class Writer(Writing):
    """Changes objects in all partitions in one transaction, and does what the phase needs besides."""

    def __init__(self, cluster: Cluster, history: History, phase: type) -> None:
        self._history = history
        self._phase = phase
        super().__init__(cluster)

    def open(self) -> DB:
        storage = self.cluster.storage(self.process, wait_timeout=5.0)
        return DB(Recorded(storage, self._history, lambda: self.process.name))

    def step(self, db: DB) -> None:
        with db.transaction() as connection:
            root = connection.root()
            for number in range(OBJECTS):
                root.setdefault(number, PersistentMapping(value=0))
            value = self._value(root) + 1
            for number in range(OBJECTS):
                root[number]["value"] = value
        if self._phase is AskCheckCurrentSerial:
            with db.transaction() as connection:
                root = connection.root()
                connection.readCurrent(root[0])
                root[1]["checked"] = value
        if self._phase is AbortTransaction:
            self._change_mind(db.storage)

    def _change_mind(self, storage: Any) -> None:
        transaction = TransactionMetaData()
        storage.tpc_begin(transaction)
        try:
            storage.store(storage.new_oid(), ZERO_TID, b"unwanted", "", transaction)
            storage.tpc_vote(transaction)
        finally:
            storage.tpc_abort(transaction)

    def check(self, db: DB) -> None:
        with db.transaction() as connection:
            self._value(connection.root())

    def _value(self, root: Any) -> int:
        values = {root[number]["value"] for number in range(OBJECTS)}
        if len(values) != 1:
            self.cluster.world.fail(Violation(f"half a transaction is there: {sorted(values)}"))
        value: int = min(values)
        return value


class Reader(Writer):
    """Checks the writer's changes."""

    def step(self, db: DB) -> None:
        db.storage.sync()
        with db.transaction() as connection:
            if OBJECTS - 1 in connection.root():
                self._value(connection.root())


class Loss:
    """``armed``: the next message of this type triggers the loss. ``victim``: the killed node."""

    def __init__(self, cluster: Cluster, phase: type, before: bool, kind: str) -> None:
        self._cluster = cluster
        self._phase = phase
        self._before = before
        self._kind = kind
        self._decoders: WeakKeyDictionary[End, Decoder] = WeakKeyDictionary()
        self.armed = False
        self.victim: Process | None = None

    def _has_come(self, end: End, data: bytes) -> bool:
        """Return whether these bytes end a message of the type."""
        decoder = self._decoders.get(end)
        if decoder is None:
            decoder = self._decoders[end] = Decoder(LIMIT_BYTES)
            data = data.removeprefix(HANDSHAKE)
        decoder.feed(data)
        return self._phase in [type(packet.message) for packet in iter(decoder.take, None)]

    def _strike(self, end: End) -> None:
        self.armed = False
        cluster, hosts = self._cluster, (end.host, end.other.host)
        # The storage node that sends or gets the message, or any other.
        storages = [p for p in cluster.storages if p.host in hosts] or cluster.storages
        victim = self.victim = cluster.master if self._kind == "master" else storages[0]
        victim.kill()
        cluster.world.call_later(AWAY_SECONDS, victim.start, f"start {victim.name}")

    @contextmanager
    def watched(self) -> Iterator[None]:
        arrive = End.arrive

        def watched_arrive(end: End, data: bytes) -> None:
            strikes = self._has_come(end, data) and self.armed
            if strikes and self._before:
                self._strike(end)
            arrive(end, data)
            if strikes and not self._before:
                self._strike(end)

        with plant([(End, "arrive", watched_arrive)]):
            yield


@pytest.mark.parametrize("kind", ["storage", "master"])
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(
    ("phase", "replicas"), CASES, ids=[f"{p.__name__}-{replicas}" for p, replicas in CASES]
)
def test_a_loss_in_this_phase_loses_and_halves_nothing(
    phase: type[Message], replicas: int, before: bool, kind: str
) -> None:
    """Specification 23.1, 23.2."""
    world = World(0)
    lost: list[str] = []

    def fault(who: str, site: FaultSite) -> bool:
        if SITES.get(phase) is site and loss.armed and not lost:
            lost.append(who)
            return True
        return False

    cluster = Cluster(world, Shape(2, 4, replicas), lambda name: MemoryDisk(world, name), fault)
    # Messages are not split, so that it is clear what is before and after one.
    cluster.network.split_probability = 0.0
    loss, history = Loss(cluster, phase, before, kind), History(world)
    with (
        alarmed(world), watched_tables(world), loss.watched(), simulated_zodb(cluster.threads)
    ):  # fmt: skip
        cluster.start()
        writer = Writer(cluster, history, phase)
        clients = [writer]
        try:
            writer.wait_commits(COMMITS)
            if phase is InvalidateObjects:
                clients.append(Reader(cluster, history, phase))
            loss.armed = True
            world.run_until(lambda: loss.victim is not None, 10.0, f"{phase.__name__} is delivered")
            writer.wait_commits(COMMITS)
            cluster.wait_running()
            for client in clients:
                client.end()
            world.run_until(lambda: _complete(cluster), 60.0, "all cells are complete")
            world.run(5.0)
            _judge(cluster, history)
        finally:
            for client in clients:
                client.kill()
            for disk in cluster.disks.values():
                disk.close()


def _complete(cluster: Cluster) -> bool:
    master = cluster.master_core
    return master is not None and all(
        state.readable for row in master.partitions.rows for state in row.values()
    )


def _judge(cluster: Cluster, history: History) -> None:
    assert cluster.master_core is not None
    cluster.validate()
    check_tables(cluster)
    for disk in cluster.disks.values():
        disk.check(quiet=True)
    judge(history, cluster.tables())
    check_replicas(cluster.master_core, [(n, disk.tables()) for n, disk in cluster.disks.items()])
