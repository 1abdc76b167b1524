"""Peers, an initiator and a log in memory, whose every event happens when a test says so.

What a step does to its peer, its *effect*, is on the disk at once, as early as it can be. What is written
into a journal is on the disk when its sync is over. A crash loses what is in memory, in the messages of
the peer, and in its journal without a sync. So what the order of writes does not protect is found. """

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from neo.operations.engine import OUTCOME, Engine, Journaled
from neo.operations.entries import Entry, decode, encode
from neo.operations.initiator import Initiator
from neo.operations.model import INITIATOR, Operation, State, Step, StepMark, of_brief
from neo.operations.namespace import Namespace, Pending

SECONDS = 1000.0
#: Effects: the step may have changed something; it has changed everything.
PARTIAL, WHOLE = "partial", "whole"


class Violation(AssertionError):
    """An oracle saw what must not happen."""


@dataclass
class FakeJournal:
    peer: FakePeer
    durable: dict[int, tuple[bytes, dict[int, Journaled]]] = field(default_factory=dict)
    now: dict[int, tuple[bytes, dict[int, Journaled]]] = field(default_factory=dict)
    syncs: deque[tuple[int, int]] = field(default_factory=deque)

    def load(self) -> dict[int, tuple[bytes, list[Journaled]]]:
        return {id: (body, [s[n] for n in sorted(s)]) for id, (body, s) in sorted(self.now.items())}

    def begin(self, id: int, body: bytes) -> None:
        self.now[id] = body, {}

    def write(self, id: int, step: Journaled) -> None:
        self.now[id][1][step.step] = step

    def forget(self, id: int) -> None:
        self.now.pop(id, None)

    def sync(self, id: int, step: int) -> None:
        self.syncs.append((id, step))

    def copy(self) -> dict[int, tuple[bytes, dict[int, Journaled]]]:
        return {id: (body, dict(steps)) for id, (body, steps) in self.now.items()}

    def synced(self) -> None:
        """End a sync: all that was written until now is durable."""
        self.durable = self.copy()
        id, step = self.syncs.popleft()
        self.peer.engine.durable(self.peer.world.now, id, step)

    def crash(self) -> None:
        self.syncs.clear()
        self.now = {id: (body, dict(steps)) for id, (body, steps) in self.durable.items()}


class FakePeer:
    """A peer: implements Steps and StepMarks for its engine."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.journal = FakeJournal(self)
        #: By operation and step; on the disk.
        self.effects: dict[tuple[int, int], str] = {}
        self.runs: list[tuple[int, int]] = []
        self.undos: list[tuple[int, int]] = []
        self.up = True
        self.joined = False
        self.inbox: deque[Callable[[], None]] = deque()
        #: Steps that fail, and how often the undo of a step fails first.
        self.failing: set[int] = set()
        self.bad_undos = 0
        self.history: list[str] = []
        self.engine = Engine(number, self.journal, self, self)

    # -- Steps -------------------------------------------------------------------------------------

    def prepare(self, operation: Operation, step: int, told: dict[int, bytes]) -> bytes:
        before = [number for number in range(step) if self.number in operation.steps[number].peers]
        assert told == {number: b"P%d step %d" % (self.number, number) for number in before}
        return b"undo %d" % step

    def run(
        self, operation: Operation, step: int, undo: bytes, context: dict[tuple[int, int], bytes]
    ) -> None:
        self.history.append(f"run {step}")
        assert undo == b"undo %d" % step
        pending = self.world.namespace.pending.get(operation.id)
        if pending is not None and pending.state is State.RUNNING:
            self.world.check_locks(operation)
            self.world.check_barrier(operation, step, context)
        self.effects[operation.id, step] = PARTIAL
        self.runs.append((operation.id, step))

    def undo(self, operation: Operation, step: int, undo: bytes) -> None:
        self.history.append(f"undo {step}")
        assert undo == b"undo %d" % step
        if later := [s for id, s in self.effects if id == operation.id and s > step]:
            raise Violation(f"P{self.number} undoes step {step} before {later}")
        if operation.id in self.world.reported:
            raise Violation(f"P{self.number} undoes operation {operation.id}, which succeeded")
        self.undos.append((operation.id, step))

    def cancel(self, operation: Operation, step: int) -> None:
        self.history.append(f"cancel {step}")
        found = self.runs if (operation.id, step) in self.runs else self.undos
        found.remove((operation.id, step))

    # -- StepMarks -------------------------------------------------------------------------------------

    def send(self, id: int, step: int, mark: StepMark, done: float, text: str, context: bytes) -> None:
        self.history.append(f"{mark.name} {step}")
        if self.joined:
            self.world.inbox.append((self.number, id, step, mark, done, text, context))

    # -- events ------------------------------------------------------------------------------------

    def noted(self, id: int) -> bool:
        """Return whether the success is on the disk."""
        return id in self.journal.durable and OUTCOME in self.journal.durable[id][1]

    def finish(self, fails: bool = False) -> None:
        """End the step that runs first."""
        id, step = self.runs.pop(0)
        if fails or step in self.failing:
            self.engine.failed(self.world.now, id, step, f"step {step} fails on P{self.number}")
            return
        self.effects[id, step] = WHOLE
        self.engine.finished(self.world.now, id, step, b"P%d step %d" % (self.number, step))

    def finish_undo(self) -> None:
        id, step = self.undos.pop(0)
        if self.bad_undos:
            self.bad_undos -= 1
            self.engine.failed(self.world.now, id, step, "not now")
            return
        self.effects.pop((id, step), None)
        self.engine.undone(self.world.now, id, step)

    def crash(self) -> None:
        self.disconnect()
        self.up = False
        self.journal.crash()
        self.runs.clear()
        self.undos.clear()

    def start(self) -> None:
        self.up = True
        self.engine = Engine(self.number, self.journal, self, self)

    def join(self) -> None:
        self.joined = True
        known = [(of_brief(row), succeeded) for row, succeeded in self.engine.known()]
        self.world.initiator.joined(self.number, known)

    def disconnect(self) -> None:
        if self.joined:
            self.joined = False
            self.inbox.clear()
            self.world.inbox = deque(m for m in self.world.inbox if m[0] != self.number)
            self.engine.disconnected()


class OwnSteps:
    """The part of the primary: what it changes survives it. ``bad``: how often a call is in vain."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.effects: dict[tuple[int, int], str] = {}
        self.finished: set[int] = set()
        self.bad = 0

    def _in_vain(self) -> bool:
        self.bad -= 1
        return self.bad >= 0

    def run(self, operation: Operation, step: int) -> bool:
        self.world.check_locks(operation)
        self.world.check_barrier(operation, step)
        self.effects[operation.id, step] = PARTIAL
        if self._in_vain():
            return False
        self.effects[operation.id, step] = WHOLE
        return True

    def undo(self, operation: Operation, step: int) -> bool:
        if operation.id in self.world.reported or operation.id in self.finished:
            raise Violation(f"the primary undoes operation {operation.id}, which succeeded")
        if self._in_vain():
            return False
        self.effects.pop((operation.id, step), None)
        return True

    def finish(self, operation: Operation) -> bool:
        unaware = [
            peer.number
            for peer in self.world.peers.values()
            if peer.number in operation.peers and not peer.noted(operation.id)
        ]
        if unaware and operation.id not in self.finished:
            raise Violation(f"operation {operation.id} is finished before {unaware} noted its success")
        self.finished.add(operation.id)
        return not self._in_vain()

    def waits(self, operation: Operation, step: int) -> str:
        return f"step {step} was in vain"


class World:
    """``persistent``: the log survives the primary, as that of several masters."""

    def __init__(self, peers: int = 3, persistent: bool = True) -> None:
        self.now = 1_000_000.0
        self.persistent = persistent
        self.log: list[bytes] = []
        self.posted: deque[bytes] = deque()
        self.inbox: deque[tuple[int, int, int, StepMark, float, str, bytes]] = deque()
        self.namespace = Namespace(persistent)
        self.term = 0
        #: Operations that were reported to have succeeded.
        self.reported: set[int] = set()
        self.answers: list[tuple[int, str]] = []
        self.peers = {number: FakePeer(self, number) for number in range(1, peers + 1)}
        self.operations: dict[int, Operation] = {}
        self.own = OwnSteps(self)
        self.elect()

    # -- the primary: Log and Peers ----------------------------------------------------------------

    def elect(self) -> None:
        """Begin with another primary."""
        self.term += 1
        self.now += 100.0  # ids are times
        self.posted.clear()
        for peer in self.peers.values():
            peer.disconnect()
        if not self.persistent:
            self.namespace = Namespace(durable=False)
        self.initiator = Initiator(
            self.term, self.namespace, self, self, self.persistent, self.own
        )

    def post(self, entry: Entry) -> None:
        self.posted.append(encode(entry))
        if not self.persistent and len(self.posted) == 1:
            while self.posted:
                self.apply()

    def apply(self) -> None:
        """Decide the next entry of the log."""
        data = self.posted[0]
        self.log.append(data)
        entry = decode(data)
        changed = self.namespace.apply(entry)
        self.initiator.applied(self.now, entry, changed)
        self.posted.popleft()
        known = [*self.namespace.pending.values(), *self.namespace.ended]
        for each in known:
            if self.initiator.outcome(each) is State.SUCCEEDED:
                self.reported.add(each.id)

    def absent(self, peers: Sequence[int]) -> str:
        # A primary without a log waits for all: one that is away may have a part in an operation.
        needed = peers if self.persistent else list(self.peers)
        away = [number for number in needed if not self.peers[number].joined]
        return f"P{away[0]} is away" if away else ""

    def connected(self) -> Sequence[int]:
        return [number for number, peer in self.peers.items() if peer.joined]

    def operation(self, peer: int, id: int, body: bytes) -> None:
        node = self.peers[peer]
        self.to(peer, lambda: node.engine.started(id, body))

    def state(self, peer: int, id: int, state: State, pending: Pending | None) -> None:
        complete = 0 if pending is None else pending.complete
        context = {} if pending is None else dict(pending.context)
        node = self.peers[peer]
        self.to(peer, lambda: node.engine.told(self.now, id, state, complete, context))

    def ended(self, peer: int, id: int) -> None:
        node = self.peers[peer]
        self.to(peer, lambda: node.engine.ended(id))

    def to(self, peer: int, call: Callable[[], None]) -> None:
        if self.peers[peer].joined:
            self.peers[peer].inbox.append(call)

    def deliver(self) -> None:
        """Give the oldest mark to the initiator."""
        self.initiator.marked(self.now, *self.inbox.popleft())

    # -- operations --------------------------------------------------------------------------------

    def begin(
        self,
        *steps: Step,
        locks: tuple[str, ...] = ("lock",),
        resumable: bool = False,
        seconds: float = SECONDS,
    ) -> None:
        def make(id: int) -> Operation:
            initiator, deadline = self.term, self.now + seconds
            fields = ({"a": 1}, initiator, steps, locks, self.now, deadline, resumable)
            operation = self.operations[id] = Operation(id, "test", *fields)
            return operation

        self.initiator.begin(self.now, locks, make, lambda id, why: self.answers.append((id, why)))

    def check_locks(self, operation: Operation) -> None:
        """Check that nothing is left to be undone of another operation with one of the same locks."""
        for id, other in self.operations.items():
            if id == operation.id or id in self.reported or not {*other.locks} & {*operation.locks}:
                continue
            for number, step in enumerate(other.steps):
                for peer in step.peers:
                    if step.undo and self.effect(peer, id, number) is not None:
                        raise Violation(f"operation {operation.id} runs before {id} is undone")

    def effect(self, peer: int, id: int, step: int) -> str | None:
        effects = self.own.effects if peer == INITIATOR else self.peers[peer].effects
        return effects.get((id, step))

    def check_barrier(
        self,
        operation: Operation,
        step: int,
        context: dict[tuple[int, int], bytes] | None = None,
    ) -> None:
        if not operation.steps[step].synchronised:
            return
        for number, before in enumerate(operation.steps[:step]):
            for peer in before.peers:
                if self.effect(peer, operation.id, number) != WHOLE:
                    raise Violation(f"step {step} begins before step {number} is done on P{peer}")
                if context is None or peer == INITIATOR:
                    continue
                if context.get((number, peer)) != b"P%d step %d" % (peer, number):
                    raise Violation(f"step {step} lacks what P{peer} told in step {number}")

    # -- all events --------------------------------------------------------------------------------

    def events(self, only: Collection[int] = ()) -> list[Callable[[], None]]:
        """Return what can happen next, without faults and timers. ``only``: at these peers, and at the
        primary."""
        found: list[Callable[[], None]] = []
        if self.posted:
            found.append(self.apply)
        if self.inbox:
            found.append(self.deliver)
        for peer in self.peers.values():
            if not peer.up or (only and peer.number not in only):
                continue
            if not peer.joined:
                found.append(peer.join)
            if peer.inbox:
                found.append(lambda peer=peer: peer.inbox.popleft()())
            if peer.journal.syncs:
                found.append(peer.journal.synced)
            if peer.runs:
                found.append(peer.finish)
            if peer.undos:
                found.append(peer.finish_undo)
        return found

    def tick(self) -> None:
        self.now += 1.0
        self.initiator.tick(self.now)
        for peer in self.peers.values():
            if peer.up:
                peer.engine.tick(self.now)

    def settle(self, ticks: int = 10) -> None:
        """Let everything happen that can, in a fixed order, and some time pass."""
        for _ in range(ticks):
            for _ in range(100_000):
                events = self.events()
                if not events:
                    break
                events[0]()
            else:
                raise Violation("it does not come to rest")
            self.tick()

    def heal(self) -> None:
        """End all faults, and let everything come to its end."""
        self.own.bad = 0
        for peer in self.peers.values():
            peer.bad_undos = 0
            if not peer.up:
                peer.start()
        self.settle(200)

    def check(self) -> None:
        """Check the oracles at the end."""
        if self.namespace.pending or self.namespace.holders:
            raise Violation(f"{list(self.namespace.pending)} are pending, {self.namespace.holders}")
        for peer in self.peers.values():
            if peer.journal.now or peer.engine.busy:
                raise Violation(f"the journal of P{peer.number} has {peer.journal.now}")
        outcomes = {each.id: each.state for each in self.namespace.ended}
        for id, operation in self.operations.items():
            self.check_outcome(id, operation, outcomes.get(id))
        if self.persistent:
            replayed = Namespace(durable=True)
            for data in self.log:
                replayed.apply(decode(data))
            assert replayed.snapshot() == self.namespace.snapshot()

    def check_outcome(self, id: int, operation: Operation, outcome: State | None) -> None:
        parts = [(p, n) for n, step in enumerate(operation.steps) for p in step.peers]
        effects = {(p, n): self.effect(p, id, n) for p, n in parts}
        whole = all(effect == WHOLE for effect in effects.values())
        undone = {part for part in parts if operation.steps[part[1]].undo}
        nothing = all(effects[part] is None for part in undone)
        finished = id in self.own.finished
        if outcome is State.SUCCEEDED or id in self.reported or finished:
            if not whole or finished != (INITIATOR in operation.peers):
                raise Violation(f"operation {id} succeeded, and has {effects}")
        elif outcome is State.FAILED:
            if not nothing:
                raise Violation(f"operation {id} failed, and has {effects}")
        elif not whole and not nothing:
            raise Violation(f"operation {id} is known to nobody, and has {effects}")


def step(name: str, peers: Iterable[int], synchronised: bool = False, undo: bool = True) -> Step:
    return Step(name, tuple(peers), synchronised, undo)


__all__ = ["FakePeer", "Violation", "World", "step"]
