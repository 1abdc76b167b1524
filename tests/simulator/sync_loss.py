"""The whole upstream cluster of a synchronous backup is lost for ever (specification 25.5, 25.14, 25.27).

Clients write and prepare transactions meanwhile. The link may be cut or slow before; the moment may be a
message of a commit; processes of the backup may fail, too. Then the backup takes over: nothing is missing
that was acknowledged, or prepared, until it was in sync by its own words, and each transaction is there
as a whole or not at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from random import Random
from typing import Any

from ZODB.Connection import TransactionMetaData

from neo.protocol.ids import ZERO_TID
from neo.protocol.packets import (
    AnswerLockBackup,
    AskLockBackup,
    AskLockInformation,
    AskPrepareBackup,
    AskVoted,
    Message,
    NotifyUnlockInformation,
    Replicate,
)
from tests.simulator.ambush import Ambush
from tests.simulator.clients import ClientProcess
from tests.simulator.cluster import HEAL_SECONDS, Cluster
from tests.simulator.process import Process
from tests.simulator.sync_watch import SyncWatch
from tests.simulator.workloads.base import EXPECTED
from tests.simulator.world import Violation, World

#: Part of the losses at which processes of the backup are killed, too; all of them in a part of these.
BOTH_CHANCE = 0.5
ALL_CHANCE = 0.3
#: Part of the losses before which the backup's master is killed: the backup joins again.
AGAIN_CHANCE = 0.3
#: Part of those at a message of a commit, and the longest time after it.
AMBUSH_CHANCE = 0.5
AMBUSH_SECONDS = 0.004
MOMENTS: tuple[type[Message], ...] = (
    *(AskVoted, AskLockBackup, AskLockInformation, NotifyUnlockInformation, Replicate),
    *(AnswerLockBackup, AskPrepareBackup),
)
#: Parts of those before which the link between the sites is cut, or slow, and the longest time so.
CUT_CHANCE, SLOW_CHANCE = 0.25, 0.25
LINK_SECONDS = 4.0
DISTANCE_SECONDS = 0.5
#: Longest time until the loss, and until a process that was killed starts again.
LOSS_SECONDS = 2.0
RESTART_SECONDS = 3.0
#: Clients that write until the loss, the objects in each of their transactions, and the longest pause
#: between two of them, while the backup is in sync and while it is not: it must be able to catch up.
WRITERS = 3
OBJECTS = 4
PAUSE_SECONDS = 0.05
CATCH_UP_SECONDS = 3.0
#: Part of the transactions that are prepared, of these which are decided, and the others at most.
PREPARED_CHANCE = 0.3
DECIDED_CHANCE = 0.6
UNDECIDED_MAX = 5
#: A clock of a server is wrong by less than this part, and what it shows is rounded.
CLOCK_RATIO = 1.05
ROUNDING_SECONDS = 0.01


@dataclass
class Written:
    """``acknowledged``: when, and the oids, by tid. ``unknown``: oids of the transactions whose outcome
    no client was told. ``prepared``: when each xid was prepared that nobody has decided about."""

    acknowledged: dict[bytes, tuple[float, list[bytes]]] = field(default_factory=dict)
    unknown: list[list[bytes]] = field(default_factory=list)
    prepared: dict[bytes, float] = field(default_factory=dict)


class Loss:
    def __init__(
        self, backup: Cluster, upstream: Cluster, watch: SyncWatch, random: Random
    ) -> None:
        self._backup = backup
        self._upstream = upstream
        self._watch = watch
        self._random = random
        self._written = Written()
        #: Until when the backup was in sync.
        self._moment = 0.0

    # -- before ------------------------------------------------------------------------------------

    def happen(self, world: World) -> None:
        """Kill the whole upstream cluster, for ever, while clients write."""
        process = self._upstream.client()
        for number in range(WRITERS):
            process.spawn(lambda number=number: self._write(process, number), "writer")
        acknowledged = self._written.acknowledged
        world.run_until(lambda: len(acknowledged) > 1, HEAL_SECONDS, "clients write")
        if self._random.random() < AGAIN_CHANCE:
            self._backup.master.kill()
            world.run(self._random.random())
            for master in self._backup.masters.members():
                master.revive()
        world.run(self._random.random() * LOSS_SECONDS)
        self._watch.wait(world)
        self._disturb_link(world)
        if self._random.random() < AMBUSH_CHANCE:
            self._wait_for_message(world)
        synchronous = self._watch.synchronous
        seconds = None if synchronous is None else synchronous.row()[4]
        world.log("world", "the upstream cluster is lost")
        for server in _servers(self._upstream):
            server.held = True
            server.kill()
        process.kill()
        self._moment = -1.0 if seconds is None else world.now - seconds * CLOCK_RATIO
        if seconds:
            self._moment -= ROUNDING_SECONDS
        if self._random.random() < BOTH_CHANCE:
            self._fail(world)
        self._backup.network.heal()

    def _disturb_link(self, world: World) -> None:
        chance, network = self._random.random(), self._backup.network
        hosts = [
            [server.host for server in _servers(cluster)]
            for cluster in (self._upstream, self._backup)
        ]
        if chance < CUT_CHANCE + SLOW_CHANCE:
            for one, other in product(*hosts):
                if chance < CUT_CHANCE:
                    network.cut(one, other)
                    network.cut(other, one)
                else:
                    network.slow(one, other, DISTANCE_SECONDS)
                    network.slow(other, one, DISTANCE_SECONDS)
            world.run(self._random.random() * LINK_SECONDS)

    def _wait_for_message(self, world: World) -> None:
        """Run until a message of a commit is sent, if one is soon, and a little longer."""
        ambush, sent = Ambush(), list[bool]()
        ambush.lay(self._random.choice(MOMENTS), lambda: sent.append(True))
        end = world.now + LOSS_SECONDS
        with ambush.laid():
            world.run_until(lambda: bool(sent) or world.now > end, HEAL_SECONDS, "a message")
        world.run(self._random.random() * AMBUSH_SECONDS)

    def _write(self, process: ClientProcess, number: int) -> None:
        storage, current = self._upstream.storage(process), self._upstream.threads.current
        assert current is not None
        while True:
            number += WRITERS
            xid = b"before the loss %d" % number if self._prepares() else None
            transaction = TransactionMetaData(description="before the loss")
            oids: list[bytes] = []
            try:
                storage.tpc_begin(transaction)
                oids += [storage.new_oid() for _ in range(OBJECTS)]
                for oid in oids:
                    storage.store(oid, ZERO_TID, b"before the loss", "", transaction)
                storage.tpc_vote(transaction)
                self._written.unknown.append(oids)
                tid = self._end(process, storage, transaction, xid)
            except EXPECTED:
                storage.tpc_abort(transaction)
                continue
            if tid is not None:
                self._written.unknown.remove(oids)
                self._written.acknowledged[tid] = process.world.now, oids
            longest = PAUSE_SECONDS if self._watch.in_sync else CATCH_UP_SECONDS
            current.sleep(self._random.random() * longest * process.world.slowness)

    def _prepares(self) -> bool:
        few = len(self._written.prepared) < UNDECIDED_MAX
        return few and self._random.random() < PREPARED_CHANCE

    def _end(
        self, process: ClientProcess, storage: Any, transaction: Any, xid: bytes | None
    ) -> bytes | None:
        """Finish a transaction, or prepare it under an xid and decide about it or not. Return its tid if
        it is committed."""
        tid: bytes
        if xid is None:
            tid = storage.tpc_finish(transaction)
            return tid
        storage.tpc_prepare(transaction, xid)
        self._written.prepared[xid] = process.world.now
        if self._random.random() < DECIDED_CHANCE:
            del self._written.prepared[xid]
            if self._random.random() < DECIDED_CHANCE:
                tid = storage.commit_prepared(xid)
                return tid
            storage.rollback_prepared(xid)
        return None

    def _fail(self, world: World) -> None:
        """Kill some processes of the backup, which start again."""
        servers = self._backup.servers
        count = len(servers)
        if self._random.random() >= ALL_CHANCE:
            count = self._random.randint(1, count)
        for server in self._random.sample(servers, count):
            server.kill()
            world.call_later(
                self._random.random() * RESTART_SECONDS, server.revive, f"{server.name} revival"
            )

    # -- after -------------------------------------------------------------------------------------

    def judge(self, objects: dict[bytes, set[bytes]]) -> None:
        """Raise Violation if something is missing, or a transaction is there in part. ``objects``: the
        oids in the tables of the backup, by tid."""
        written = self._written
        for tid, (when, oids) in written.acknowledged.items():
            missing = set(oids) - objects.get(tid, set())
            if missing and when <= self._moment:
                raise Violation(
                    f"the backup lacks {len(missing)} objects of transaction {tid.hex()}, which was"
                    f" acknowledged at {when:.3f}: it was in sync until {self._moment:.3f}"
                )
        every = set().union(*objects.values())
        for oids in [*written.unknown, *(oids for _, oids in written.acknowledged.values())]:
            if (found := every.intersection(oids)) and len(found) < len(oids):
                raise Violation(
                    f"the backup has {len(found)} of {len(oids)} objects of a transaction"
                )
        master = self._backup.master_core
        assert master is not None
        rows = master.coordinator.prepared.describe(0, None)
        listed = {xid for xid, *_, state in rows if state == "prepared"}
        for xid, when in written.prepared.items():
            if xid not in listed and when <= self._moment:
                raise Violation(
                    f"{xid!r}, which was prepared at {when:.3f}, is not prepared in the backup: it was"
                    f" in sync until {self._moment:.3f}"
                )


def _servers(cluster: Cluster) -> list[Process]:
    return list(dict.fromkeys([*cluster.masters.all, *cluster.servers]))
