"""Backups into archives (specification 27.50 to 27.55, 28), while everything fails.

All nodes share the folders of archives, on a disk that fails too. When all files of a copy are written,
and before the operation ends, so that nothing can change the database, it is checked that

* the copy is durable, with the copies that it follows, and can be read,
* it has exactly the transactions and revisions of the database up to its tid, but for what a pack has
  removed since an earlier copy was made, and the contents of blobs, unless their files were damaged,
* it shows all that clients know of the database at that time: the oracles of the history judge it.

At the end only such copies are left: what a backup that failed has written is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, NamedTuple

from neo.archive.chain import select
from neo.archive.folder import ArchiveFolder
from neo.archive.format import ArchiveError
from neo.archive.manifest import Manifest
from neo.master.operations.kinds import Kind, Steps
from neo.master.primary import PrimaryMaster
from neo.operations.model import INITIATOR, Operation, State, Step
from neo.protocol.enums import ClusterState
from neo.protocol.ids import p64, u64
from neo.protocol.packets import (
    AbortOperation,
    AnswerBeginOperation,
    AnswerOperations,
    AskBeginOperation,
    AskOperations,
    Message,
)
from neo.storage.node import StorageNode
from tests.simulator.archive_disk import ArchiveDisk
from tests.simulator.cluster import HEAL_SECONDS, Cluster
from tests.simulator.console import Command
from tests.simulator.copies import Copied, of_nodes, read, up_to
from tests.simulator.history import History
from tests.simulator.last_operations import LastOperations
from tests.simulator.oracles import judge
from tests.simulator.replicas import node_rows
from tests.simulator.tables import join_tables
from tests.simulator.world import Violation

#: The folders of archives.
PATHS = ("/archives/1", "/archives/2")
BACKUP, CHECK = "backup", "look at the copy"
#: Mean time between two commands of the operator, and between two faults of the disk.
BETWEEN_SECONDS = 0.15
FAULT_SECONDS = 2.0
#: Longest time that a fault of the disk lasts, and most that a call takes longer on a slow one.
FAULTY_SECONDS = 1.0
SLOW_SECONDS = 0.3
#: Part of the commands that abort a backup, and of the copies that follow none.
ABORT_CHANCE = 0.02
FULL_CHANCE = 0.15
#: Interval at which the operator tries again, at the end.
AGAIN_SECONDS = 1.0


class Kept(NamedTuple):
    """A complete copy. ``id``: of the operation that made it. ``database``: as it was up to its tid.
    ``pack``: the last one then. ``lost``: contents that were damaged when they were to be copied."""

    id: int
    database: Copied
    pack: int
    lost: set[str]


class WatchedBackup:
    """Implements Kind and OwnSteps: looks at the copy when it is written."""

    def __init__(self, kind: Kind, core: PrimaryMaster, archives: Archives) -> None:
        self.locks, self.resumable = kind.locks, kind.resumable
        self.own = self
        self._kind = kind
        self._core = core
        self._archives = archives

    def plan(self, arguments: Mapping[str, Any]) -> Steps:
        made = self._kind.plan(arguments)
        return made._replace(steps=(*made.steps, Step(CHECK, (INITIATOR,), True, True)))

    def run(self, operation: Operation, step: int) -> bool:
        return self._archives.check(self._core, operation)

    def undo(self, operation: Operation, step: int) -> bool:
        return True

    def finish(self, operation: Operation) -> bool:
        return True

    def waits(self, operation: Operation, step: int) -> str:
        return "the simulator looks at the copy when all nodes are there"


class Archives:
    """The operator backs a cluster up."""

    def __init__(self, cluster: Cluster, random: Random, history: History, calm: bool) -> None:
        """``calm``: the disk of the archives does not fail."""
        self._cluster = cluster
        self._random = random
        self._history = history
        self._calm = calm
        self._active = False
        self._ids: list[int] = []
        self.disk = ArchiveDisk(cluster.world, Random(random.random()))
        #: Complete copies, by path and tid.
        self.kept: dict[tuple[str, bytes], Kept] = {}
        #: Copies of which it is known that they are complete, by the operations that succeeded, and those
        #: that a node that does not come back may have left.
        self._told: set[tuple[str, bytes]] = set()
        self._succeeded: set[int] = set()
        self._left: set[tuple[str, bytes]] = set()
        #: Nodes that are not waited for.
        self._forgotten: set[int] = set()
        self._last = LastOperations(cluster, self._forgotten, self._type)

    def equip_master(self, core: PrimaryMaster) -> None:
        kind = core.operations._kinds[BACKUP]
        core.operations.register(BACKUP, WatchedBackup(kind, core, self))

    def equip_storage(self, core: StorageNode) -> None:
        """Do nothing: the disk is all that a node needs."""

    def start(self) -> None:
        self._active = True
        self._plan()
        if not self._calm:
            self._plan_fault()

    def stop(self) -> None:
        self._active = False
        self.disk.heal()

    # -- the operator ------------------------------------------------------------------------------

    def _plan(self) -> None:
        delay = self._random.expovariate(1 / BETWEEN_SECONDS)
        self._cluster.world.call_later(delay, self._act, "operator")

    def _act(self) -> None:
        if not self._active:
            return
        choice = self._random.random()
        if choice < ABORT_CHANCE and self._ids:
            self._type(AbortOperation(self._ids[-1]))
        elif choice < 0.7:
            self._begin(self._random.random() < FULL_CHANCE)
        else:
            self._type(AskOperations(None))
        self._plan()

    def _begin(self, full: bool) -> None:
        arguments = {"path": self._random.choice(PATHS), "full": full}
        self._type(AskBeginOperation(BACKUP, arguments, False))

    def _type(self, message: Message) -> None:
        Command(self._cluster, message, self._answered)

    def _answered(self, answer: Message | None) -> None:
        if isinstance(answer, AnswerBeginOperation) and answer.id is not None:
            self._ids.append(answer.id)
        elif isinstance(answer, AnswerOperations):
            for row in answer.row_list:
                if row[1] == BACKUP:
                    self._ended(row[0], _place(row[2]), State(row[3]))

    def _plan_fault(self) -> None:
        delay = self._random.expovariate(1 / FAULT_SECONDS)
        self._cluster.world.call_later(delay, self._fault, "archives")

    def _fault(self) -> None:
        if not self._active:
            return
        disk, random = self.disk, self._random
        what = random.choice(("full", "failing", "unreadable", "slow", "power"))
        self._cluster.world.log("archives", what)
        if what == "power":
            disk.lose_power()
        elif what == "slow":
            disk.slow = random.random() * SLOW_SECONDS
        else:
            setattr(disk, what, True)
        seconds = random.random() * FAULTY_SECONDS
        self._cluster.world.call_later(seconds, disk.heal, "archives heal")
        self._plan_fault()

    # -- oracles -----------------------------------------------------------------------------------

    def check(self, core: PrimaryMaster, operation: Operation) -> bool:
        """Check the copy that an operation has written. Return False if the nodes are not ready."""
        self._look(core)
        path, tid = _place(operation.arguments)
        found = self._database(core, u64(tid))
        if found is None:
            return False
        database, packed = found
        what = f"the copy {path}/{tid.hex()}"
        folder = ArchiveFolder(path, self.disk.copy(durable=True))
        chain = self._chain(folder, tid)
        archive = read(folder, chain)
        pack = max(packed, u64(chain[-1].pack or p64(0)))
        archive.copied.packed(pack).compare(what, database.packed(pack))
        archive.rows["config"].append(("_pack_tid", str(pack)))
        judge(up_to(self._history, tid), join_tables([archive.rows], self._cluster.masters.primaries))
        faulty = {name for disk in self._cluster.disks.values() for name in disk.contents.faulty}
        lost = {content.checksum.hex() for content in archive.lost}
        if lost - faulty:
            raise Violation(f"{what} lacks contents: {sorted(lost - faulty)[:3]}")
        self.kept.setdefault((path, tid), Kept(operation.id, database, pack, lost))
        self._cluster.world.log("archives", f"{what} is complete: {len(chain)} copies")
        return True

    def _chain(self, folder: ArchiveFolder, tid: bytes) -> list[Manifest]:
        try:
            return select(folder.complete(), tid).copies
        except (ArchiveError, OSError) as e:
            raise Violation(f"a copy is complete, but not on the disk: {e}") from None

    def _database(self, core: PrimaryMaster, tid: int) -> tuple[Copied, int] | None:
        """Return what the readable cells have up to a tid, and the last pack; None if some may lack rows
        now."""
        if core.cluster.state is not ClusterState.RUNNING:
            return None
        disks = [(name, disk.tables()) for name, disk in self._cluster.disks.items()]
        nodes, packed = node_rows(disks)
        for _, rows in disks:
            config: dict[str, str] = dict(rows["config"])
            packed = max(packed, int(config.get("_pack_wanted") or 0))
        readable: dict[int, list[int]] = {}
        for partition in range(len(core.partitions)):
            for nid in core.partitions.readable(partition):
                readable.setdefault(nid, []).append(partition)
        if not readable or not readable.keys() <= core.cluster.ready:
            return None
        for nid in readable:
            if nid not in nodes or any((row[1] or tid + 1) <= tid for row in nodes[nid][1]["ttrans"]):
                return None
        found = of_nodes((nodes[nid][1], mine) for nid, mine in sorted(readable.items()))
        return found.until(tid), packed

    def _look(self, core: PrimaryMaster) -> None:
        """Take note of the backups that have ended."""
        for pending in core.operations.all():
            self._forgotten |= pending.forgotten
            if pending.operation is not None and pending.operation.kind == BACKUP:
                place = _place(pending.operation.arguments)
                if pending.forgotten:
                    self._left.add(place)
                self._ended(pending.id, place, pending.state)

    def _ended(self, id: int, place: tuple[str, bytes], state: State) -> None:
        if state is State.SUCCEEDED:
            self._told.add(place)
            self._succeeded.add(id)
        elif state is State.FAILED and place in self.kept and self.kept[place].id == id:
            if place in self._told:
                raise Violation(f"backup {id} of {place[0]} failed, and another one has the same copy")
            del self.kept[place]

    # -- the end -----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Demand that all operations end, that another backup succeeds, and that exactly the complete
        copies are left."""
        self._last.wait()
        before, world = set(self._succeeded), self._cluster.world

        def again() -> None:
            if self._succeeded == before:
                # What an earlier copy has may be truncated since.
                self._begin(full=self._random.random() < 0.5)
                self._type(AskOperations(None))
                world.call_later(AGAIN_SECONDS, again, "operator")

        again()
        world.run_until(lambda: self._succeeded > before, HEAL_SECONDS, "a backup succeeds")
        self._last.wait()
        master = self._cluster.master_core
        assert master is not None
        self._look(master)
        for durable in (True, False):
            for path in PATHS:
                self._check_left(ArchiveFolder(path, self.disk.copy(durable)))

    def _check_left(self, folder: ArchiveFolder) -> None:
        path = str(folder.path)
        left = set(folder.tids())
        for tid in sorted(left):
            if (path, tid) in self._left:
                continue
            if (path, tid) not in self.kept:
                raise Violation(f"an incomplete copy is left: {folder.copy(tid)}")
            if not isinstance(folder.manifest(tid), Manifest):
                raise Violation(f"a copy lost its manifest: {folder.copy(tid)}")
        if lost := {tid for place, tid in self._told if place == path} - left:
            raise Violation(f"a copy is lost that was complete: {folder.copy(min(lost))}")

    def complete(self) -> list[tuple[str, bytes]]:
        """Return the copies that can be restored, ascending."""
        known = {path: ArchiveFolder(path, self.disk.copy(True)).complete() for path in PATHS}
        return sorted(place for place in self.kept if place[1] in known[place[0]])


def _place(arguments: Mapping[str, Any]) -> tuple[str, bytes]:
    return str(arguments["path"]), bytes.fromhex(str(arguments["tid"]))
