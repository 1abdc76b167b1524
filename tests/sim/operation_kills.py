"""Operations of each kind in a simulated cluster, and a process that is killed at a moment of a step.

A kill comes before a step, while it is executed, or after it is known to be done; or so of the undo of a
step, after the operation was aborted in it. At the end there must be all of the effects of the operation
or none, as the operator was told; no lock is held, nothing is in a journal, and clients commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from neo.archive.folder import ArchiveFolder
from neo.archive.manifest import Manifest
from neo.archive.verify import verify_partition
from neo.operations.engine import Engine
from neo.operations.initiator import Refused
from neo.operations.model import INITIATOR, State, Step
from neo.operations.namespace import Pending
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import MAX_TID, ZERO_OID, ZERO_TID
from neo.protocol.packets import AskBeginOperation, Message
from neo.storage.node import StorageNode
from tests.sim.advice import Stage
from tests.sim.writing import Counter
from tests.simulator.alarm import alarmed
from tests.simulator.cluster import HEAL_SECONDS
from tests.simulator.console import Command
from tests.simulator.process import Process
from tests.simulator.world import Violation
from tests.simulator.zodb_world import simulated_zodb

BEFORE, IN, AFTER = MOMENTS = ("before", "in", "after")
MASTER, EXECUTOR, OTHER = VICTIMS = ("the master", "the node of the step", "another node")
ALL, NOTHING = "all", "nothing"

_MOVE = ("take into service", "get ready", "give cells", "copy the cells", "hand over")
#: The steps of each kind.
STEPS = {
    "backup": ("look at the folder", "copy", "write the manifest"),
    "restore": ("look into the archive", "load"),
    "replace": _MOVE,
    "add": _MOVE,
    "remove": _MOVE[1:],
    "upgrade": ("begin anew", "wait until it is up to date") * 2,
    "partitions": ("regroup the rows", "switch"),
}
MOVES = ("replace", "add", "remove")
#: Virtual time after which a killed process is started again.
AWAY_SECONDS = 1.0
#: Transactions of a page; the databases have fewer.
ROWS_MAX = 10_000

#: The transactions and the revisions of a partition.
Rows = tuple[list[bytes], list[tuple[bytes, bytes]]]


class Case(NamedTuple):
    """``step``: its number. ``undo``: the operation is aborted in the step, and the moment is one of the
    undo."""

    kind: str
    masters: int
    step: int
    undo: bool
    moment: str
    victim: str

    def __str__(self) -> str:
        what = f"the undo of {self.name}" if self.undo else self.name
        return f"{self.kind}, {self.masters} masters: {self.victim} {self.moment} {what}"

    @property
    def name(self) -> str:
        return f"{self.step} {STEPS[self.kind][self.step]}"


def cases() -> Iterator[Case]:
    """Yield all of them."""
    for kind, steps in STEPS.items():
        for masters in (1, 3):
            for step in range(len(steps)):
                for undo in (False, True):
                    for moment in MOMENTS:
                        for victim in VICTIMS:
                            yield Case(kind, masters, step, undo, moment, victim)


class Archive(NamedTuple):
    """``rows``: of the database that was copied, by partition."""

    path: str
    rows: list[Rows]


class Trial:
    """A cluster in which an operation is executed. ``archive``: what is restored; where a backup goes,
    there is no copy yet."""

    def __init__(self, kind: str, masters: int, path: str, archive: Archive | None) -> None:
        self.kind = kind
        self.path = path
        self._archive = archive
        stage = self.stage = Stage(3 if kind in (*MOVES, "partitions") else 2, 4, 1, masters)
        self.cluster, self.world = stage.cluster, stage.world
        #: The outcomes that operators could hear of, by operation.
        self._told: dict[int, State] = {}
        self.id: int | None = None
        if kind in ("replace", "add"):
            stage.begin(2)
            stage.spare.pop().start()
            self.world.run(2.0)
        else:
            self.cluster.start()
        self._lives = [process.lives for process in self.cluster.storages]

    def order(self) -> Message:
        arguments: dict[str, dict[str, Any]] = {
            "backup": {"path": self.path},
            "restore": {"path": self._archive.path if self._archive else "", "tid": ""},
            "replace": {"old": 1, "new": 3},
            "add": {"nodes": [3]},
            "remove": {"nodes": [3]},
            "upgrade": {"nodes": [1, 2]},
            "partitions": {"partitions": 8},
        }
        return AskBeginOperation(self.kind, arguments[self.kind], False)

    # -- what is known -------------------------------------------------------------------------------

    @property
    def pending(self) -> Pending | None:
        """Return the operation as the master knows it, which may have forgotten it."""
        master = self.cluster.master_core
        known = master.operations.all() if master else []
        own = [each for each in known if each.operation and each.operation.kind == self.kind]
        if own:
            self.id = own[-1].id
        return own[-1] if own else None

    def engines(self) -> dict[int, Engine]:
        """Return what the storage nodes that run know of operations."""
        cores = [process.core for process in self.cluster.storages]
        return {
            core.cluster.nid: core.operations._engine
            for core in cores
            if isinstance(core, StorageNode)
            and core.cluster.nid is not None
            and core.operations._engine is not None
        }

    def process_of(self, nid: int) -> Process | None:
        for process in self.cluster.storages:
            if isinstance(process.core, StorageNode) and process.core.cluster.nid == nid:
                return process
        return None

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Run until this is true; no outcome that was told may change meanwhile."""

        def holds() -> bool:
            self._hear()
            return condition()

        self.world.run_until(holds, HEAL_SECONDS, what)

    def _hear(self) -> None:
        master = self.cluster.master_core
        for pending in master.operations.all() if master else ():
            state = master.operations._initiator.outcome(pending) if master else pending.state
            if state.ended and self._told.setdefault(pending.id, state) is not state:
                raise Violation(f"operation {pending.id}: {self._told[pending.id]}, then {state}")

    # -- moments -------------------------------------------------------------------------------------

    def begin(self) -> None:
        self.id, before = None, self.id
        Command(self.cluster, self.order(), lambda answer: None)
        self.until(lambda: self.pending is not None and self.id != before, "the operation begins")
        pending = self.pending
        assert pending is not None and pending.operation is not None
        assert tuple(step.name for step in pending.operation.steps) == STEPS[self.kind]

    def wait(self, case: Case) -> int:
        """Run until the moment of a step, or until it is past. Return the storage node of the step."""
        pending = self.pending
        assert pending is not None and pending.operation is not None
        step = pending.operation.steps[case.step]
        moment = IN if case.undo else case.moment
        self.until(partial(self._is_at, step, case.step, moment), f"{moment} step {case.name}")
        if case.undo:
            self.abort()
            self.until(partial(self._is_undone, step, case.step, case.moment), f"{case}")
        return next((nid for nid in step.peers if nid != INITIATOR), pending.operation.others[0])

    def _is_at(self, step: Step, number: int, moment: str) -> bool:
        pending = self.pending
        if pending is None or pending.state is not State.RUNNING:
            return True
        executor = step.peers[0]
        if pending.done[executor] > number:
            return True
        if moment == BEFORE:
            # The master begins a step of its own as soon as it hears that the one before is done.
            return pending.complete >= number - (executor == INITIATOR)
        if moment == IN:
            if executor == INITIATOR:
                return pending.complete >= number
            return self._executes(executor, number)
        return False

    def _is_undone(self, step: Step, number: int, moment: str) -> bool:
        pending = self.pending
        if pending is None or pending.state.ended:
            return True
        executor = step.peers[0]
        if moment == BEFORE:
            return pending.state is State.ROLLING_BACK
        if moment == IN and executor != INITIATOR:
            return self._executes(executor, number) or executor in pending.settled
        return executor in pending.settled if moment == AFTER else bool(pending.settled)

    def _executes(self, nid: int, number: int) -> bool:
        engine, id = self.engines().get(nid), self.id
        part = engine._parts.get(id) if engine and id is not None else None
        return part is not None and part.running == number

    def abort(self) -> None:
        """Abort the operation, if it has not ended."""
        master, pending = self.cluster.master_core, self.pending
        assert master is not None

        def abort() -> None:
            try:
                master.operations.abort(pending.id if pending else 0)
            except (ErrorAnswer, Refused):
                pass  # it has ended

        self.cluster.master.do(abort)

    def loaded(self, core: StorageNode) -> bool:
        """Return whether a node has some rows, while its part in the operation goes on."""
        return any(tids for tids, _ in node_rows(core).rows.values())

    def undone(self, nid: int) -> bool:
        pending = self.pending
        return pending is not None and nid in pending.settled

    def kill(self, victim: str, nid: int) -> None:
        process = self._victim(victim, nid)
        process.kill()
        self.world.run(AWAY_SECONDS)
        process.revive()

    def _victim(self, victim: str, nid: int) -> Process:
        if victim == MASTER:
            return self.cluster.master
        executor = self.process_of(nid)
        others = [process for process in self.cluster.storages if process is not executor]
        if victim == EXECUTOR and executor is not None:
            return executor
        pending = self.pending
        parts = pending.operation.others if pending and pending.operation else []
        part = (self.process_of(each) for each in parts if each != nid)
        return next((process for process in part if process is not None), others[0])

    # -- the end -------------------------------------------------------------------------------------

    def wait_over(self) -> None:
        self.until(lambda: self._over, "the operation is over everywhere")
        self.until(lambda: self.cluster.running and self.stage.whole(), "the cluster is whole")
        self.until(lambda: self._over, "and stays so")

    @property
    def _over(self) -> bool:
        master = self.cluster.master_core
        if master is None or not self.cluster.running:
            return False
        all_ended = all(each.state.ended for each in master.operations.all())
        return all_ended and not any(engine.busy for engine in self.engines().values())

    def judge(self) -> None:
        """Raise Violation unless there is all or nothing, as was told."""
        master = self.cluster.master_core
        assert master is not None
        if holders := master.operations._log.namespace.holders:
            raise Violation(f"locks are held: {holders}")
        effect, told = self._effect(), None if self.id is None else self._told.get(self.id)
        wanted = {State.SUCCEEDED: ALL, State.FAILED: NOTHING}.get(told) if told else None
        if effect not in (ALL, NOTHING) or (wanted is not None and effect != wanted):
            raise Violation(f"the operation is {told}, and has done: {effect}")

    def _effect(self) -> str:
        """Return whether all was done, or nothing; else what there is."""
        master = self.cluster.master_core
        assert master is not None
        if self.kind == "backup":
            return self._copied()
        if self.kind == "restore":
            return self._restored()
        if self.kind == "partitions":
            count = len(master.partitions)
            left = [disk.regrouped for disk in self._backends() if disk.regrouped is not None]
            return {4: NOTHING, 8: ALL}.get(count, str(count)) if not left else f"other rows: {left}"
        if self.kind == "upgrade":  # nothing is undone (27.83)
            lives = [process.lives for process in self.cluster.storages]
            done = all(now > before for now, before in zip(lives, self._lives, strict=True))
            failed = self.id is None or self._told.get(self.id) is not State.SUCCEEDED
            return ALL if done and not failed else NOTHING
        rows = master.partitions.rows
        nids = {nid for row in rows for nid in row}
        copies = {len(row) for row in rows}
        before, after = {
            "replace": ({1, 2}, {2, 3}),
            "add": ({1, 2}, {1, 2, 3}),
            "remove": ({1, 2, 3}, {1, 2}),
        }[self.kind]
        if copies == {2} and nids in (before, after):
            return ALL if nids == after else NOTHING
        return f"cells {rows}"

    def _copied(self) -> str:
        folder = ArchiveFolder(self.path)
        complete = folder.complete()
        if folder.tids() != list(complete):
            return "an incomplete copy"
        for copy in complete.values():
            assert isinstance(copy, Manifest)
            for file in copy.files:
                if damage := [*verify_partition(folder, [copy], file, lambda size: None)]:
                    return str(damage)
        return ALL if complete else NOTHING

    def _restored(self) -> str:
        assert self._archive is not None
        found = [rows for node in self._backends() for rows in node.rows.items()]
        if not any(tids or keys for _, (tids, keys) in found):
            return NOTHING
        if all(rows == self._archive.rows[partition] for partition, rows in found):
            return ALL
        return f"some rows: {[(p, len(tids), len(keys)) for p, (tids, keys) in found]}"

    def _backends(self) -> list[NodeRows]:
        return [
            node_rows(process.core)
            for process in self.cluster.storages
            if isinstance(process.core, StorageNode)
        ]


class NodeRows(NamedTuple):
    """What a storage node has. ``regrouped``: for which other number of partitions it has tables."""

    rows: dict[int, Rows]
    regrouped: int | None


def node_rows(core: StorageNode) -> NodeRows:
    backend = core.database.backend
    rows = {
        partition: (
            list(backend.reads.tids_ascending(ZERO_TID, MAX_TID, ROWS_MAX, partition)),
            list(backend.replication.objects_ascending(partition, ZERO_TID, ZERO_OID, MAX_TID, ROWS_MAX)),
        )
        for partition in core.cells.assigned()
    }
    return NodeRows(rows, backend.regrouping.regrouped())


@contextmanager
def trial(kind: str, masters: int, path: str, archive: Archive | None = None) -> Iterator[Trial]:
    """Yield a cluster, which is closed at the end. Nothing may log an error with a traceback."""
    made = Trial(kind, masters, path, archive)
    try:
        with alarmed(made.world), simulated_zodb(made.cluster.threads):
            yield made
    finally:
        made.stage.close()


def make_archive(path: str) -> Archive:
    """Back up a small database."""
    with trial("backup", 1, path) as made:
        writer = Counter(made.cluster)
        writer.wait_commits(8)
        writer.end()
        writer.kill()
        made.begin()
        made.wait_over()
        made.judge()
        rows: dict[int, Rows] = {}
        for node in made._backends():
            rows.update(node.rows)
        return Archive(path, [rows[partition] for partition in sorted(rows)])


def play(case: Case, path: str, archive: Archive) -> None:
    """Execute an operation, with the kill. Raise Violation."""
    with trial(case.kind, case.masters, path, archive) as made:
        writer = None
        if case.kind != "restore":  # which wants no client
            writer = Counter(made.cluster)
            writer.wait_commits(4)
        made.begin()
        made.kill(case.victim, made.wait(case))
        made.wait_over()
        made.judge()
        if writer is None:
            writer = Counter(made.cluster)
        writer.wait_commits(3)
        writer.end()
        writer.kill()
