"""What a synchronous backup promises, and the loss of its upstream cluster (specification 25).

* While the backup is in sync it has every transaction that a client was told to be committed, and
  keeps these whatever fails afterwards: when it leaves backup mode they are there.
* When nothing fails any more the backup joins, and stays in sync.
* At the end of some runs the whole upstream cluster loses power while clients write and the backup is
  in sync. Processes of the backup may fail, too. Then it takes over: nothing that was acknowledged is
  missing, and each transaction is there as a whole or not at all.
"""

from __future__ import annotations

from random import Random

from ZODB.Connection import TransactionMetaData

from neo.protocol.ids import ZERO_TID
from tests.simulator.clients import ClientProcess
from tests.simulator.cluster import HEAL_SECONDS, Cluster
from tests.simulator.history import History
from tests.simulator.workloads.base import EXPECTED
from tests.simulator.world import Violation, World

#: Part of the runs with a synchronous backup that end with the loss of the upstream cluster.
LOSS_CHANCE = 0.6
#: Part of these in which processes of the backup are killed, too.
BOTH_CHANCE = 0.5
#: Longest time until the loss, and until a process that was killed starts again.
LOSS_SECONDS = 2.0
RESTART_SECONDS = 3.0
#: Clients that write until the loss, and the objects in each of their transactions.
WRITERS = 3
OBJECTS = 4

#: Oids of the transactions that were acknowledged, by tid; and of those that were not.
Written = tuple[dict[bytes, list[bytes]], list[list[bytes]]]


class SyncWatch:
    """``backup`` is a synchronous backup of ``upstream``."""

    def __init__(
        self, backup: Cluster, upstream: Cluster, history: History, random: Random
    ) -> None:
        self._backup = backup
        self._upstream = upstream
        self._history = history
        self._random = random
        #: The greatest tid that the backup must have from now on.
        self.promised = ZERO_TID

    @property
    def in_sync(self) -> bool:
        """Return whether the backup says so."""
        master = self._backup.master_core
        synchronous = None if master is None else master.backup.synchronous
        return synchronous is not None and synchronous.in_sync

    def look(self) -> None:
        """Note what the backup promises now. Call at any time, the more often the better."""
        if self.in_sync:
            self.promised = max(self.promised, self._history.acknowledged_tid)

    def judge(self, tid: bytes) -> None:
        """Raise Violation if a backup that was left at ``tid`` lacks what it promised."""
        if tid < self.promised:
            raise Violation(
                f"the backup was left at {tid.hex()}, and was in sync when {self.promised.hex()} had"
                " been acknowledged"
            )

    def wait(self, world: World) -> None:
        """Run until the backup is in sync."""
        world.run_until(lambda: self.in_sync, HEAL_SECONDS, "the backup is in sync")

    # -- the loss of the upstream cluster ----------------------------------------------------------

    def lose_upstream(self, world: World) -> Written:
        """Kill the whole upstream cluster, for ever, at a moment in which clients write and the backup
        is in sync. Return what they wrote."""
        acknowledged: dict[bytes, list[bytes]] = {}
        unknown: list[list[bytes]] = []
        process = self._upstream.client()
        for _ in range(WRITERS):
            process.spawn(lambda: self._write(process, acknowledged, unknown), "writer")
        world.run_until(lambda: len(acknowledged) > 1, HEAL_SECONDS, "clients write")
        world.run(self._random.random() * LOSS_SECONDS)
        self.wait(world)
        told = dict(acknowledged)
        world.log("world", "the upstream cluster is lost")
        upstream = self._upstream
        for server in dict.fromkeys([*upstream.masters.all, *upstream.servers]):
            server.held = True
            server.kill()
        process.kill()
        if self._random.random() < BOTH_CHANCE:
            self._fail(world)
        return told, unknown

    def _write(
        self,
        process: ClientProcess,
        acknowledged: dict[bytes, list[bytes]],
        unknown: list[list[bytes]],
    ) -> None:
        storage = self._upstream.storage(process)
        while True:
            transaction = TransactionMetaData(description="before the loss")
            try:
                storage.tpc_begin(transaction)
                oids = [storage.new_oid() for _ in range(OBJECTS)]
                for oid in oids:
                    storage.store(oid, ZERO_TID, b"before the loss", "", transaction)
                storage.tpc_vote(transaction)
                unknown.append(oids)
                tid = storage.tpc_finish(transaction)
            except EXPECTED:
                storage.tpc_abort(transaction)
            else:
                unknown.remove(oids)
                acknowledged[tid] = oids

    def _fail(self, world: World) -> None:
        """Kill some processes of the backup, which start again."""
        servers = self._backup.servers
        for server in self._random.sample(servers, self._random.randint(1, len(servers))):
            server.kill()
            world.call_later(
                self._random.random() * RESTART_SECONDS, server.revive, f"{server.name} revival"
            )

    def judge_loss(self, written: Written, objects: dict[bytes, set[bytes]]) -> None:
        """Raise Violation if something acknowledged is missing, or a transaction is there in part.
        ``objects``: the oids in the tables of the backup, by tid."""
        acknowledged, unknown = written
        for tid, oids in acknowledged.items():
            if missing := set(oids) - objects.get(tid, set()):
                raise Violation(
                    f"the backup lacks {len(missing)} objects of transaction {tid.hex()}, which was"
                    " acknowledged before the upstream cluster was lost"
                )
        every = set().union(*objects.values())
        for oids in unknown:
            if (found := every.intersection(oids)) and len(found) < len(oids):
                raise Violation(
                    f"the backup has {len(found)} of {len(oids)} objects of a transaction"
                )
