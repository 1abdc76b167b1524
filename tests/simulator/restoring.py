"""Restore a copy into a second, empty cluster of another shape (specification 27.60 to 27.66).

At first a file may be damaged, processes are killed meanwhile, and the operator aborts. A restore that
does not succeed must leave an empty cluster, in which the next one succeeds. Then the cluster has exactly
what the first one had at the moment that is restored, packed as it was: transactions, revisions and the
files of contents, byte by byte.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from neo.archive.chain import Chain, select
from neo.archive.folder import ArchiveFolder
from neo.archive.format import ArchiveError
from neo.archive.verify import verify_partition
from neo.operations.model import State
from neo.protocol.ids import ZERO_TID, p64, u64
from neo.protocol.packets import AbortOperation, AnswerBeginOperation, AskBeginOperation, Message
from tests.simulator.archives import Archives, Kept
from tests.simulator.cluster import HEAL_SECONDS, Cluster, Shape, Site
from tests.simulator.console import Command
from tests.simulator.copies import of_nodes
from tests.simulator.disk import SimDisk
from tests.simulator.last_operations import LastOperations
from tests.simulator.replicas import check_replicas, node_rows
from tests.simulator.world import Violation, World

#: Most nodes, partitions and disturbed restores.
STORAGES_MAX, PARTITIONS_MAX, DISTURBED_MAX = 3, 9, 2
#: Part of the restores of a moment between two copies, and of those with a damaged file at first.
BETWEEN_CHANCE = 0.5
DAMAGED_CHANCE = 0.25
#: Longest time after which something happens in a restore, and until a process is started again.
MOMENT_SECONDS, AWAY_SECONDS = 1.0, 1.0
#: Interval at which the operator tries again.
AGAIN_SECONDS = 1.0
#: In which time rows without a part in any transaction are deleted.
QUIET_SECONDS = 5.0


class Restoring:
    """``upstream``: the cluster of the archives. ``fails``: restores are disturbed."""

    def __init__(
        self,
        upstream: Cluster,
        archives: Archives,
        random: Random,
        make_disk: Callable[[World, str], SimDisk],
        fails: bool,
    ) -> None:
        self._world = upstream.world
        self._upstream = upstream
        self._archives = archives
        self._random = random
        self._make_disk = make_disk
        self._fails = fails
        self._id: int | None = None

    def run(self) -> None:
        """Restore a copy. Raise Violation."""
        random = self._random
        path, tid = random.choice(self._archives.complete())
        kept = self._archives.kept[path, tid]
        chain = self._chain(path, tid, kept)
        cluster = self._cluster()
        try:
            cluster.start()
            if self._fails and random.random() < DAMAGED_CHANCE:
                self._refuse_damage(cluster, path, chain)
            for _ in range(random.randint(0, DISTURBED_MAX) if self._fails else 0):
                if self._try(cluster, path, chain, self._disturb):
                    break
            else:
                if not self._try(cluster, path, chain):
                    raise Violation("a restore without any fault does not succeed")
            self._judge(cluster, kept, chain)
        finally:
            for process in cluster.servers:
                process.kill()
            for disk in cluster.disks.values():
                disk.close()

    def _chain(self, path: str, tid: bytes, kept: Kept) -> Chain:
        """Return which copies are restored, until a moment that they have."""
        found = ArchiveFolder(path, self._archives.disk.copy(True)).complete()
        at = tid
        if self._random.random() < BETWEEN_CHANCE:
            at = p64(self._random.choice(sorted(kept.database.transactions)))
        try:
            chain = select(found, at)
        except ArchiveError:
            return select(found, tid)  # a pack had removed what this moment needs
        # Another copy has the moment as well, maybe after a truncation.
        return chain if chain.copies[-1].tid == tid else select(found, tid)

    def _cluster(self) -> Cluster:
        random = self._random
        storages = random.randint(1, STORAGES_MAX)
        replicas = random.randrange(min(storages, 2))
        shape = Shape(storages, random.randint(1, PARTITIONS_MAX), replicas, random.choice((1, 1, 3)))
        world = self._world
        cluster = Cluster(
            world,
            shape,
            lambda name: self._make_disk(world, name),
            site=Site("restored", "r-", 200),
            beside=self._upstream,
        )
        cluster.archives = self._archives.disk
        return cluster

    # -- one restore -------------------------------------------------------------------------------

    def _refuse_damage(self, cluster: Cluster, path: str, chain: Chain) -> None:
        """Demand that damage of a file is found when it is verified, and when it is restored."""
        copies = chain.copies[: self._random.randint(1, len(chain.copies))]
        file = self._random.choice(copies[-1].files)
        name = ArchiveFolder(path).partition(copies[-1].tid, file.partition)
        mend = self._archives.disk.damage(name)
        folder = ArchiveFolder(path, self._archives.disk.copy(durable=False))
        if not any(verify_partition(folder, copies, file, lambda size: None)):
            raise Violation(f"the verification does not find the damage of {name}")
        if self._try(cluster, path, chain):
            raise Violation(f"a restore does not find the damage of {name}")
        mend()

    def _try(
        self,
        cluster: Cluster,
        path: str,
        chain: Chain,
        disturb: Callable[[Cluster], None] = lambda cluster: None,
    ) -> bool:
        """Restore, and return whether that succeeded. If not, nothing is left."""
        self._begin(cluster, path, chain)
        disturb(cluster)
        self._world.run(self._random.random() * MOMENT_SECONDS)
        for process in cluster.servers:
            self._world.call_later(AWAY_SECONDS, process.revive, f"start {process.name}")
        self._world.run(AWAY_SECONDS)
        cluster.wait_running()
        LastOperations(cluster, set(), lambda message: self._type(cluster, message)).wait()
        cluster.wait_running()
        master = cluster.master_core
        assert master is not None
        states = {pending.id: pending.state for pending in master.operations.all()}
        state = states.get(self._id or 0)
        if state is State.SUCCEEDED:
            self._world.run_until(
                lambda: cluster.running and _last(cluster) != ZERO_TID, HEAL_SECONDS, "it is restored"
            )
        restored = _last(cluster) != ZERO_TID
        self._world.log("restoring", f"{state and state.name}, {_last(cluster).hex()}")
        if state is State.FAILED and restored:
            raise Violation(f"a restore failed, and the last tid is {_last(cluster).hex()}")
        if not restored:
            self._check_empty(cluster)
        return restored

    def _begin(self, cluster: Cluster, path: str, chain: Chain) -> None:
        """Begin a restore."""
        self._id = None
        until = "" if chain.until == self._newest(path) else chain.until.hex()

        def told(answer: Message | None) -> None:
            if isinstance(answer, AnswerBeginOperation):
                self._id = answer.id
            elif self._id is None:
                self._world.log("restoring", f"{answer or 'no answer'}")
                self._world.call_later(AGAIN_SECONDS, ask, "operator")

        def ask() -> None:
            message = AskBeginOperation("restore", {"path": path, "tid": until}, False)
            Command(cluster, message, told)

        ask()
        self._world.run_until(lambda: self._id is not None, HEAL_SECONDS, "a restore begins")

    def _newest(self, path: str) -> bytes:
        return max(ArchiveFolder(path, self._archives.disk.copy(True)).complete())

    def _type(self, cluster: Cluster, message: Message) -> None:
        Command(cluster, message, lambda answer: None)

    def _disturb(self, cluster: Cluster) -> None:
        """Kill processes, and abort, at some moments."""
        random, world = self._random, self._world
        for _ in range(random.randint(1, 3)):
            moment = random.random() * MOMENT_SECONDS
            if random.random() < 0.3 and self._id is not None:
                abort = partial(self._type, cluster, AbortOperation(self._id))
                world.call_later(moment, abort, "operator")
            else:
                process = random.choice([*cluster.storages, *cluster.storages, cluster.master])
                world.call_later(moment, process.kill, f"kill {process.name}")

    # -- oracles -----------------------------------------------------------------------------------

    def _check_empty(self, cluster: Cluster) -> None:
        """Check that an undone restore has left nothing."""
        self._world.run(QUIET_SECONDS)
        for name, disk in cluster.disks.items():
            rows = disk.tables()
            for table in ("trans", "obj", "data"):
                if rows[table]:
                    raise Violation(f"{name} has rows of {table} after a restore that was undone")

    def _judge(self, cluster: Cluster, kept: Kept, chain: Chain) -> None:
        """Compare the restored database with what it was, and the contents with their names."""
        master = cluster.master_core
        assert master is not None
        if (last := _last(cluster).hex()) != chain.until.hex():
            raise Violation(f"the last transaction is {last} after a restore of {chain.until.hex()}")
        wanted = chain.pack or ZERO_TID
        self._world.run_until(lambda: cluster.packed_at(wanted), HEAL_SECONDS, "the copy is packed")
        self._world.run_until(lambda: cluster.swept, HEAL_SECONDS, "contents are compared")
        self._world.run(QUIET_SECONDS)
        disks = [(name, disk.tables()) for name, disk in cluster.disks.items()]
        check_replicas(master, disks)
        nodes, _ = node_rows(disks)
        found = of_nodes(
            (rows, [p for p in range(len(master.partitions)) if nid in master.partitions.rows[p]])
            for nid, (_, rows) in nodes.items()
        )
        expected = kept.database.until(u64(chain.until)).packed(kept.pack)
        found.packed(kept.pack).compare("the restored database", expected)
        for disk in cluster.disks.values():
            disk.contents.faulty |= kept.lost
            disk.check(quiet=True)
        self._world.log("restoring", f"{len(found.transactions)} transactions are there again")


def _last(cluster: Cluster) -> bytes:
    """Return the last tid, as the master knows it."""
    master = cluster.master_core
    return ZERO_TID if master is None else master.cluster.last_tid
