"""Operations of kinds of their own: steps that take their time, fail, and are undone (specification 27).

What a step changes survives a crash, as files do, and is known to all: :class:`Effects`. So it can be
checked at each moment that

* a step begins when all steps before it are done on this node, and, if it is synchronised, everywhere,
* steps are undone in the reverse of their order, with what was prepared for their undo,
* two operations that want the same lock never have effects at the same time,
* on a node, two steps that change the same data are never executed at the same time,
* an operation of which the operator was told that it succeeded has all effects, and keeps them,
* one of which he was told that it failed has none, and gets none,

and at the end that every operation has all its effects or none, and that nothing is left in journals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

from neo.master.cluster import Cluster as MasterCluster
from neo.master.operations.kinds import Kind, Steps
from neo.master.operations.moves import move_of
from neo.master.primary import PrimaryMaster
from neo.master.states import SERVING
from neo.operations.initiator import OwnSteps, Refused
from neo.operations.model import INITIATOR, Operation, State, Step
from neo.protocol.enums import NodeState, NodeType
from neo.protocol.packets import (
    AbortOperation,
    AnswerBeginOperation,
    AnswerOperations,
    AskBeginOperation,
    AskOperations,
    Message,
)
from neo.storage.backend.regrouped import REGROUPED, REGROUPING
from neo.storage.node import StorageNode
from neo.storage.operations.steps import Context, Report, StepFailed
from tests.simulator.cluster import HEAL_SECONDS, Cluster
from tests.simulator.console import Command
from tests.simulator.disk_check import Rows
from tests.simulator.last_operations import LastOperations
from tests.simulator.world import Violation, World

STEPS_MAX = 5
#: Range of the time of a step, and of its undo.
STEP_SECONDS = (0.001, 0.5)
#: Part of the steps that fail, and of the undos that fail at first.
FAIL_CHANCE = 0.03
#: Part of the operations in which the master has a step, and of its calls that are in vain.
OWN_CHANCE = 0.4
IN_VAIN_CHANCE = 0.3
UNDO_FAILS_CHANCE = 0.2
#: Part of the operations that move cells, and that change the number of partitions.
MOVE_CHANCE = 0.4
SWITCH_CHANCE = 0.15
#: The greatest number of partitions.
PARTITIONS_MAX = 12
#: Mean time between two commands of the operator.
BETWEEN_SECONDS = 0.2

#: Locks, and whether the next primary goes on with it, by the name of the kind. ``table`` is also
#: wanted by commands.
KINDS = {
    "one": (("one",), True),
    "two": (("two",), False),
    "both": (("one", "two"), True),
    "table": (("table",), False),
}
MOVES = ("replace", "add", "remove")
SWITCH = "partitions"
DONE, PARTIAL = "done", "partial"


class Effects:
    """The effects of steps on all nodes, by operation, step and node."""

    def __init__(self, world: World, random: Random, forgotten: Callable[[], set[int]]) -> None:
        """``forgotten``: returns nodes that are not waited for, as the master knows now."""
        self.world = world
        self._forgotten = forgotten
        self.random = random
        self.operations: dict[int, Operation] = {}
        self._effects: dict[tuple[int, int, int], str] = {}
        #: The outcomes that the operator knows, by operation.
        self._told: dict[int, State] = {}
        #: Operations of which the change of global data was made.
        self._finished: set[int] = set()
        #: Nodes that are not waited for, because they were dropped: their effects may stay.
        self.excused: set[int] = set()

    def begin(self, operation: Operation, number: int, nid: int) -> None:
        """A step begins on a node."""
        self.operations[operation.id] = operation
        what = f"step {number} of operation {operation.id} on S{nid}"
        if (told := self._told.get(operation.id)) is not None:
            self._fail(f"{what} begins, but the operator knows: {told.value}")
        synchronised = operation.steps[number].synchronised
        for step, node in self._expected(operation):
            if step < number and (synchronised or node == nid):
                if self._effects.get((operation.id, step, node)) != DONE:
                    self._fail(f"{what} begins before step {step} is done on S{node}")
        for other in self.operations.values():
            if other.id != operation.id and set(other.locks) & set(operation.locks):
                if len(states := self._states(other)) > 1:
                    self._fail(f"{what} begins amid operation {other.id}: {sorted(map(str, states))}")
        if operation.steps[number].undo:
            self._effects.setdefault((operation.id, number, nid), PARTIAL)

    def done(self, operation: Operation, number: int, nid: int) -> None:
        if operation.steps[number].undo:
            self._effects[operation.id, number, nid] = DONE

    def undo(self, operation: Operation, number: int, nid: int) -> None:
        """The undo of a step begins."""
        what = f"step {number} of operation {operation.id} on S{nid}"
        if self._told.get(operation.id) is State.SUCCEEDED:
            self._fail(f"{what} is undone, but the operator knows that it succeeded")
        later = [step for step, node in self._expected(operation) if node == nid and step > number]
        if any((operation.id, step, nid) in self._effects for step in later):
            self._fail(f"{what} is undone before a later one")
        if (operation.id, number, nid) in self._effects:
            self._effects[operation.id, number, nid] = PARTIAL

    def undone(self, operation: Operation, number: int, nid: int) -> None:
        self._effects.pop((operation.id, number, nid), None)

    def told(self, id: int, state: State) -> None:
        """The operator was told how an operation ended."""
        if self._told.setdefault(id, state) is not state:
            self._fail(f"operation {id} {self._told[id].value} and {state.value}")
        operation = self.operations.get(id)
        if operation is None:
            return  # no step has begun anywhere
        states = self._states(operation)
        if states - {DONE if state is State.SUCCEEDED else None}:
            self._fail(f"operation {id} {state.value}, but has {sorted(map(str, states))}")

    def finish(self, operation: Operation) -> None:
        """The change of global data is made."""
        self._finished.add(operation.id)
        if states := self._states(operation) - {DONE}:
            self._fail(f"operation {operation.id} is finished, but has {sorted(map(str, states))}")

    def judge(self) -> None:
        """Check that no operation has a part of its effects."""
        for operation in self.operations.values():
            states = self._states(operation)
            finished = operation.id in self._finished
            if len(states) > 1 or (finished and states - {DONE}):
                self._fail(f"operation {operation.id} has {sorted(map(str, states))} at the end")
            if self._told.get(operation.id) is State.SUCCEEDED and INITIATOR in operation.peers:
                if not finished:
                    self._fail(f"operation {operation.id} succeeded, but was not finished")

    def _expected(self, operation: Operation) -> Iterator[tuple[int, int]]:
        """Yield the steps and nodes that have an effect."""
        self.excused |= self._forgotten()
        for number, step in enumerate(operation.steps):
            for nid in step.peers:
                if step.undo and nid not in self.excused:
                    yield number, nid

    def _states(self, operation: Operation) -> set[str | None]:
        return {self._effects.get((operation.id, *place)) for place in self._expected(operation)}

    def _fail(self, text: str) -> None:
        self.world.fail(Violation(text))


class SimStep:
    """Implements StepFunction. ``number``: of the step. ``changing``: the operations that change data of
    this node now."""

    def __init__(
        self, core: StorageNode, effects: Effects, number: int, changing: dict[str, int]
    ) -> None:
        self._core = core
        self._effects = effects
        self._number = number
        self._changing = changing
        self.local = "even" if number % 2 == 0 else "odd"

    @property
    def _nid(self) -> int:
        nid = self._core.cluster.nid
        assert nid is not None
        return nid

    def prepare(self, operation: Operation, told: Mapping[int, bytes]) -> bytes:
        return self._token(operation)

    def _token(self, operation: Operation) -> bytes:
        return b"%d.%d.%d" % (operation.id, self._number, self._nid)

    async def run(self, operation: Operation, step: int, context: Context, report: Report) -> bytes:
        effects, nid = self._effects, self._nid
        effects.begin(operation, step, nid)
        with self._alone(operation):
            await self._pause()
            if effects.random.random() < FAIL_CHANCE:
                raise StepFailed("by chance")
            effects.done(operation, step, nid)
            await self._pause()
        return self._token(operation)

    async def undo(self, operation: Operation, undo: bytes) -> None:
        effects, nid = self._effects, self._nid
        if undo != self._token(operation):
            effects.world.fail(Violation(f"the undo is given {undo!r} on S{nid}"))
        effects.undo(operation, self._number, nid)
        with self._alone(operation):
            await self._pause()
            if effects.random.random() < UNDO_FAILS_CHANCE:
                raise StepFailed("by chance")
            effects.undone(operation, self._number, nid)
            await self._pause()

    @contextmanager
    def _alone(self, operation: Operation) -> Iterator[None]:
        """Check that nobody else changes the same data of this node inside the block."""
        if (other := self._changing.get(self.local)) is not None:
            text = f"operations {other} and {operation.id} change {self.local!r} of S{self._nid} at once"
            self._effects.world.fail(Violation(text))
        self._changing[self.local] = operation.id
        try:
            yield
        finally:
            del self._changing[self.local]

    async def _pause(self) -> None:
        low, high = STEP_SECONDS
        await self._core.sleep(low * (high / low) ** self._effects.random.random())


class SimOwnSteps:
    """Implements OwnSteps. Each call is in vain at times."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects

    def _in_vain(self) -> bool:
        return self._effects.random.random() < IN_VAIN_CHANCE

    def run(self, operation: Operation, step: int) -> bool:
        self._effects.begin(operation, step, INITIATOR)
        if self._effects.random.random() < FAIL_CHANCE:
            raise Refused("by chance")
        if self._in_vain():
            return False
        self._effects.done(operation, step, INITIATOR)
        return True

    def undo(self, operation: Operation, step: int) -> bool:
        self._effects.undo(operation, step, INITIATOR)
        if self._in_vain():
            return False
        self._effects.undone(operation, step, INITIATOR)
        return True

    def finish(self, operation: Operation) -> bool:
        self._effects.finish(operation)
        return not self._in_vain()

    def waits(self, operation: Operation, step: int) -> str:
        return "by chance"


class SimKind:
    """Implements Kind: random steps on random nodes."""

    def __init__(self, cluster: MasterCluster, name: str, own: OwnSteps) -> None:
        self._cluster = cluster
        self.own = own
        self.locks, self.resumable = KINDS[name]

    def plan(self, arguments: Mapping[str, Any]) -> Steps:
        random = Random(arguments["seed"])
        nids = sorted(
            node.nid
            for node in self._cluster.nodes.of_type(NodeType.STORAGE)
            if node.nid is not None and node.state is NodeState.RUNNING
        )
        if not nids:
            raise Refused("there is no node")
        steps = tuple(
            Step(
                f"step {number}",
                tuple(sorted(random.sample(nids, random.randint(1, len(nids))))),
                random.random() < 0.5,
                random.random() < 0.8,
            )
            for number in range(random.randint(1, STEPS_MAX))
        )
        if random.random() < OWN_CHANCE:
            steps += (Step(f"step {len(steps)}", (INITIATOR,), True, True),)
        return Steps(dict(arguments), steps, random.choice((3.0, 30.0, 300.0)))


class WatchedMoves:
    """Implements OwnSteps: checks the table when a move says that it is done, or undone."""

    def __init__(self, core: PrimaryMaster, own: OwnSteps, world: World) -> None:
        self._core = core
        self._own = own
        self._world = world

    def run(self, operation: Operation, step: int) -> bool:
        return self._own.run(operation, step)

    def undo(self, operation: Operation, step: int) -> bool:
        done = self._own.undo(operation, step)
        if done:
            self._check_gone(operation, move_of(operation).gains)
        return done

    def finish(self, operation: Operation) -> bool:
        move = move_of(operation)
        rows = self._core.partitions.rows
        if self._core.cluster.state not in SERVING:
            return self._own.finish(operation)
        if incomplete := [
            (p, nid) for p, nid in move.gains if nid in rows[p] and not rows[p][nid].readable
        ]:
            before = self._core.partitions.ptid
            self._own.finish(operation)
            if self._core.partitions.ptid != before:
                self._fail(operation, f"cells are taken away while {incomplete} are copied")
            return False
        done = self._own.finish(operation)
        if done:
            self._check_gone(operation, move.losses)
            if left := [nid for nid in move.leaving if self._core.nodes.get(nid) is not None]:
                self._fail(operation, f"{left} are not dropped")
        return done

    def waits(self, operation: Operation, step: int) -> str:
        return self._own.waits(operation, step)

    def _check_gone(self, operation: Operation, cells: Sequence[tuple[int, int]]) -> None:
        rows = self._core.partitions.rows
        if left := [(p, nid) for p, nid in cells if nid in rows[p]]:
            self._fail(operation, f"cells are left: {left}")

    def _fail(self, operation: Operation, text: str) -> None:
        self._world.fail(Violation(f"operation {operation.id} ({operation.kind}): {text}"))


class WatchedSwitch:
    """Implements OwnSteps: checks the number of partitions when the master says that it is switched, or
    switched back; on the nodes, when it is over."""

    def __init__(self, core: PrimaryMaster, own: OwnSteps, world: World) -> None:
        self._core = core
        self._own = own
        self._world = world

    def run(self, operation: Operation, step: int) -> bool:
        return self._checked(operation, self._own.run(operation, step), "partitions")

    def undo(self, operation: Operation, step: int) -> bool:
        return self._checked(operation, self._own.undo(operation, step), "before")

    def finish(self, operation: Operation) -> bool:
        return self._checked(operation, self._own.finish(operation), "partitions")

    def waits(self, operation: Operation, step: int) -> str:
        return self._own.waits(operation, step)

    def _checked(self, operation: Operation, done: bool, wanted: str) -> bool:
        count, wanted_count = len(self._core.partitions), operation.arguments[wanted]
        if done and count not in (0, wanted_count):
            text = f"there are {count} partitions, not {wanted_count}"
            self._world.fail(Violation(f"operation {operation.id} ({operation.kind}): {text}"))
        return done


Watched = Callable[[PrimaryMaster, OwnSteps, World], OwnSteps]


class WatchedKind:
    """Implements Kind."""

    def __init__(self, kind: Kind, own: OwnSteps) -> None:
        self.locks, self.resumable = kind.locks, kind.resumable
        self.plan = kind.plan
        self.own = own


class Maintenance:
    """The operator begins operations, aborts some, and asks how they are."""

    def __init__(self, cluster: Cluster, random: Random, switches: bool) -> None:
        """``switches``: the number of partitions may change, since no other cluster depends on it."""
        self._cluster = cluster
        self._random = random
        self._switches = switches
        self._active = False
        self.effects = Effects(cluster.world, Random(random.random()), self._forgotten)
        self._ids: list[int] = []
        self._last = LastOperations(cluster, self.effects.excused, self._type)

    def equip_master(self, core: PrimaryMaster) -> None:
        """Let a master know the kinds."""
        for name in KINDS:
            core.operations.register(name, SimKind(core.cluster, name, SimOwnSteps(self.effects)))
        for name in MOVES:
            self._watch(core, name, WatchedMoves)
        self._watch(core, SWITCH, WatchedSwitch)

    def _watch(self, core: PrimaryMaster, name: str, watched: Watched) -> None:
        kind = core.operations._kinds[name]
        assert kind.own is not None
        own = watched(core, kind.own, self._cluster.world)
        core.operations.register(name, WatchedKind(kind, own))

    def equip_storage(self, core: StorageNode) -> None:
        """Let a storage node know the steps."""
        changing: dict[str, int] = {}
        for number in range(STEPS_MAX):
            step = SimStep(core, self.effects, number, changing)
            core.operations.register(f"step {number}", step)

    def start(self) -> None:
        self._active = True
        self._plan()

    def stop(self) -> None:
        self._active = False

    def _plan(self) -> None:
        delay = self._random.expovariate(1 / BETWEEN_SECONDS)
        self._cluster.world.call_later(delay, self._act, "operator")

    def _act(self) -> None:
        if not self._active:
            return
        choice = self._random.random()
        if choice < 0.5:
            kind, arguments = self._wish()
            self._type(AskBeginOperation(kind, arguments, self._random.random() < 0.05))
        elif choice < 0.6 and self._ids:
            self._type(AbortOperation(self._random.choice(self._ids[-3:])))
        else:
            self._type(AskOperations(None))
        self._plan()

    def _wish(self) -> tuple[str, dict[str, Any]]:
        """Return a kind and its arguments."""
        random, master = self._random, self._cluster.master_core
        nodes = [] if master is None else master.nodes.of_type(NodeType.STORAGE)
        nids = [node.nid for node in nodes if node.nid is not None]
        if master is not None and nids and random.random() < MOVE_CHANCE:
            busy = sorted(master.partitions.nodes()) or nids
            fresh = [nid for nid in nids if nid not in busy] or nids
            kind = random.choice((*MOVES, "upgrade"))
            if kind == "upgrade":
                return kind, {"nodes": [random.choice(busy)]}
            if kind == "replace":
                return kind, {"old": random.choice(busy), "new": random.choice(fresh)}
            return kind, {"nodes": [random.choice(busy if kind == "remove" else fresh)]}
        switches = master is not None and self._switches and random.random() < SWITCH_CHANCE
        if master is not None and switches and self._complete(master):
            count = len(master.partitions)
            wishes = [n for n in (count // 2, 2 * count, 3 * count) if 0 < n <= PARTITIONS_MAX]
            return SWITCH, {"partitions": random.choice([*wishes, random.randint(1, PARTITIONS_MAX)])}
        return random.choice(list(KINDS)), {"seed": random.getrandbits(32)}

    def _complete(self, master: PrimaryMaster) -> bool:
        """Return whether all storage nodes are there, also those without cells: the database of one that
        is away while the number of partitions changes is of no use afterwards, as the manual says."""
        return len(master.cluster.identified_storages()) == len(self._cluster.storages)

    def _type(self, message: Message) -> None:
        Command(self._cluster, message, self._answered)

    def _answered(self, answer: Message | None) -> None:
        if isinstance(answer, AnswerBeginOperation) and answer.id is not None:
            self._ids.append(answer.id)
        elif isinstance(answer, AnswerOperations):
            for row in answer.row_list:
                state = State(row[3])
                if state.ended:
                    self.effects.told(row[0], state)

    def _forgotten(self) -> set[int]:
        """Return the nodes that the operator dropped, or had forgotten."""
        master = self._cluster.master_core
        known = [] if master is None else master.operations.all()
        return {nid for pending in known for nid in pending.forgotten}

    # -- the end -----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Demand that all operations end, and nothing is left of those that failed."""
        self._last.wait()
        world = self._cluster.world
        self.effects.judge()
        world.run_until(lambda: not self._regrouped(), HEAL_SECONDS, "other rows are deleted")
        master = self._cluster.master_core
        assert master is not None
        for pending in master.operations.all():
            self.effects.told(pending.id, pending.state)

    def _regrouped(self) -> bool:
        """Return whether a storage node has rows for another number of partitions, or only a transaction
        that is not durable has deleted them."""
        names = [each.name for each in self._cluster.storages if isinstance(each.core, StorageNode)]
        disks = [self._cluster.disks[name] for name in names]
        return any(_of_two_numbers(disk.tables()) for disk in disks) or any(
            _of_two_numbers(disk.durable_tables()) for disk in disks
        )


def _of_two_numbers(rows: Rows) -> bool:
    return any(name in (REGROUPING, REGROUPED) for name, _ in rows["config"])
