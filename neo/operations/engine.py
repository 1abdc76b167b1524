"""One peer executes its steps of operations, and undoes them (specification 27.15 to 27.26).

Theory of operation
-------------------
The engine does what the initiator tells it: of each operation that it goes on or has failed, and how many
steps all peers are past. Until it is told, after a start or a lost connection, it begins nothing.

A step is *begun* in the journal, durably, before it runs, and *done*, durably, before its mark is sent.
So after a crash the journal has every step that may have changed something. A step that was begun runs
again; running it twice has the effect of running it once, and so has its undo.

A peer undoes nothing on its own: only after the word of the initiator that the operation has failed. When
it has succeeded, the peer notes that durably, and the journal is kept until all peers have. Steps are
undone in the reverse of their order, also those that were only begun. An undo that fails is made again
after a pause. """

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from msgspec import msgpack

from neo.operations.model import (
    KNOWN_MAX,
    STEPS_MAX,
    Operation,
    State,
    StepMark,
    brief,
    decode,
    shortened,
)

BEGUN, DONE = 0, 1
#: The number, in a journal, of the step that notes the success of an operation.
OUTCOME = STEPS_MAX
#: The first and the longest pause before an undo is made again.
PAUSE_SECONDS = (1.0, 60.0)
#: Progress is told this often, for people.
PROGRESS_SECONDS = 1.0


class Journaled(NamedTuple):
    """A step in the journal. ``undo``: what its undo needs. ``context``: what it tells the steps that
    follow, when it is done."""

    step: int
    state: int
    undo: bytes
    context: bytes


class Journal(Protocol):
    """Keeps the operations of this peer over a crash."""

    def load(self) -> dict[int, tuple[bytes, list[Journaled]]]:
        """Return the operations, and the steps that were written of each, ascending."""

    def begin(self, id: int, body: bytes) -> None: ...

    def write(self, id: int, step: Journaled) -> None: ...

    def forget(self, id: int) -> None: ...

    def sync(self, id: int, step: int) -> None:
        """Call :meth:`Engine.durable` later, when everything written until now is durable."""


class Steps(Protocol):
    """The functions of the steps. They return at once, and call the engine when they are done."""

    def prepare(self, operation: Operation, step: int, told: dict[int, bytes]) -> bytes:
        """Return what the undo of a step needs, such as an old value. It must change nothing, and not
        wait. ``told``: what the steps before have told on this peer. Raise ValueError if the step cannot
        begin."""

    def run(
        self, operation: Operation, step: int, undo: bytes, context: dict[tuple[int, int], bytes]
    ) -> None:
        """Execute a step; call :meth:`Engine.finished` or :meth:`Engine.failed`. ``context``: what the
        steps before have told, by step and peer."""

    def undo(self, operation: Operation, step: int, undo: bytes) -> None:
        """Undo a step that ran, or may have; call :meth:`Engine.undone` or :meth:`Engine.failed`."""

    def cancel(self, operation: Operation, step: int) -> None:
        """Stop a step that runs: it calls neither ``finished`` nor ``failed`` after this."""


class StepMarks(Protocol):
    """The way to the initiator. What is lost is sent again by :meth:`Engine.told`."""

    def send(
        self, id: int, step: int, mark: StepMark, done: float, text: str, context: bytes
    ) -> None: ...


class _Participation:
    """The part of this peer in an operation."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.journal: dict[int, Journaled] = {}
        #: The step that is next, or runs.
        self.next = 0
        #: RUNNING, ROLLING_BACK or SUCCEEDED, as the initiator said; None until it did.
        self.state: State | None = None
        self.complete = 0
        self.context: dict[tuple[int, int], bytes] = {}
        #: The step that is being executed or undone.
        self.running: int | None = None
        #: The record of a step that is being made durable.
        self.writing: Journaled | None = None
        #: A step failed: nothing is begun until the initiator decides.
        self.stuck = ""
        #: Steps to undo, the last one first; None: not begun to undo.
        self.undoing: list[int] | None = None
        self.pause = PAUSE_SECONDS[0]
        self.again: float | None = None
        self.reported = 0.0

    @property
    def rolled_back(self) -> bool:
        return self.undoing is not None and not self.undoing and self.running is None


class Engine:
    """``me``: this peer. All methods run on one thread, and are given seconds that never jump."""

    def __init__(self, me: int, journal: Journal, steps: Steps, marks: StepMarks) -> None:
        self.me = me
        self._journal = journal
        self._steps = steps
        self._marks = marks
        self._parts: dict[int, _Participation] = {}
        for id, (body, journaled) in journal.load().items():
            part = self._parts[id] = _Participation(decode(body))
            part.journal = {each.step: each for each in journaled}
            if OUTCOME in part.journal:
                part.next = len(part.operation.steps)
            elif journaled:
                # All steps before one that was begun were passed.
                last = journaled[-1]
                part.next = last.step + (last.state == DONE)

    @property
    def busy(self) -> bool:
        """Whether this peer has a part in an operation."""
        return bool(self._parts)

    def known(self) -> list[tuple[list[Any], bool]]:
        """Return what an initiator must be told when it is joined: each operation in which this peer has
        a part (see :func:`brief`), and whether its success is noted here, or will be in a moment.

        Those above KNOWN_MAX are told when the older ones are over. Locks let so many only pile up in a
        log that knows them, too."""
        rows: list[tuple[list[Any], bool]] = []
        size = 0
        for _, part in sorted(self._parts.items()):
            row = brief(part.operation)
            size += len(msgpack.encode(row))
            if size > KNOWN_MAX:
                break
            rows.append((row, OUTCOME in part.journal))
        return rows

    def disconnected(self) -> None:
        """The initiator is not reached any more: what runs goes on, and nothing is begun."""
        for part in self._parts.values():
            part.state = State.ROLLING_BACK if part.undoing is not None else None

    # -- the word of the initiator -----------------------------------------------------------------

    def started(self, id: int, body: bytes) -> None:
        """Take an operation; ignore one that is known. Raise ValueError if it is malformed."""
        if id in self._parts:
            return
        operation = decode(body)
        if operation.id != id:
            raise ValueError(f"operation {id} comes as {operation.id}")
        self._parts[id] = _Participation(operation)
        self._journal.begin(id, body)

    def told(
        self, now: float, id: int, state: State, complete: int, context: dict[tuple[int, int], bytes]
    ) -> None:
        """Take the state of an operation: RUNNING, ROLLING_BACK or SUCCEEDED; how many steps all peers
        are past; what the steps told. Send marks that the initiator lacks."""
        part = self._parts.get(id)
        if part is None:
            if state is not State.RUNNING:
                mark = StepMark.ROLLED_BACK if state is State.ROLLING_BACK else StepMark.SUCCEEDED
                self._marks.send(id, 0, mark, 1.0, "", b"")
            return
        if part.undoing is not None:
            state = State.ROLLING_BACK
        elif OUTCOME in part.journal:
            state = State.SUCCEEDED  # what was noted is final
        part.state = state
        part.complete = max(part.complete, complete)
        part.context = context
        if state is State.ROLLING_BACK:
            self._roll_back(now, part)
            return
        if state is State.SUCCEEDED:
            self._succeed(part)
            return
        for step in range(part.complete, part.next):
            self._done(part, step)
        if part.stuck:
            self._send(part, part.next, StepMark.FAILED, 0.0, part.stuck)
        self._advance(now, part)

    def _succeed(self, part: _Participation) -> None:
        """Note the success. No step of this peer can run or be written now: all were done."""
        if part.writing is not None:
            return
        if OUTCOME in part.journal:
            self._send(part, 0, StepMark.SUCCEEDED, 1.0)
        else:
            self._write(part, Journaled(OUTCOME, DONE, b"", b""))

    def ended(self, id: int) -> None:
        """Forget an operation: it succeeded, or all peers have undone their parts."""
        if (part := self._parts.pop(id, None)) is not None:
            if part.running is not None:
                self._steps.cancel(part.operation, part.running)
            self._journal.forget(id)

    # -- forward -----------------------------------------------------------------------------------

    def _advance(self, now: float, part: _Participation) -> None:
        """Pass steps of others, and begin the next own one if it may."""
        steps = part.operation.steps
        while part.state is State.RUNNING and not part.stuck and part.next < len(steps):
            if part.running is not None or part.writing is not None:
                return
            step = steps[part.next]
            if step.synchronised and part.complete < part.next:
                return
            if self.me in step.peers:
                self._begin(now, part)
                return
            part.next += 1
            self._done(part, part.next - 1)

    def _begin(self, now: float, part: _Participation) -> None:
        number = part.next
        journaled = part.journal.get(number)
        if journaled is None:
            told = {step: each.context for step, each in part.journal.items()}
            try:
                undo = self._steps.prepare(part.operation, number, told)
            except ValueError as e:
                self._stuck(part, str(e))
                return
            journaled = Journaled(number, BEGUN, undo, b"")
        self._write(part, journaled)

    def _write(self, part: _Participation, journaled: Journaled) -> None:
        part.journal[journaled.step] = journaled
        part.writing = journaled
        self._journal.write(part.operation.id, journaled)
        self._journal.sync(part.operation.id, journaled.step)

    def durable(self, now: float, id: int, step: int) -> None:
        """Go on: what was written of a step is durable."""
        part = self._parts.get(id)
        if part is None or part.writing is None or part.writing.step != step:
            return
        journaled, part.writing = part.writing, None
        if step == OUTCOME:
            self._send(part, 0, StepMark.SUCCEEDED, 1.0)
        elif part.state is State.ROLLING_BACK:
            self._roll_back(now, part)
        elif journaled.state == DONE:
            part.next = step + 1
            self._done(part, step)
            self._advance(now, part)
        elif part.state is State.RUNNING:  # else it waits for the word of the initiator
            part.running = step
            part.reported = now
            self._send(part, step, StepMark.BEGUN, 0.0)
            self._steps.run(part.operation, step, journaled.undo, part.context)

    def progress(self, now: float, id: int, step: int, done: float, text: str) -> None:
        """Tell how far a step is, from 0 to 1, and what it does."""
        part = self._parts.get(id)
        if part is not None and part.running == step and part.undoing is None:
            if now - part.reported >= PROGRESS_SECONDS:
                part.reported = now
                self._send(part, step, StepMark.BEGUN, min(max(done, 0.0), 1.0), text)

    def finished(self, now: float, id: int, step: int, context: bytes) -> None:
        """A step was executed. ``context``: what it tells the steps that follow."""
        part = self._parts.get(id)
        if part is None or part.running != step or part.undoing is not None:
            return
        part.running = None
        self._write(part, part.journal[step]._replace(state=DONE, context=context))

    def failed(self, now: float, id: int, step: int, why: str) -> None:
        """A step, or its undo, was not possible."""
        part = self._parts.get(id)
        if part is None or part.running != step:
            return
        part.running = None
        if part.undoing is None:
            self._stuck(part, why)
        else:
            part.again = now + part.pause
            part.pause = min(2 * part.pause, PAUSE_SECONDS[1])
            self._send(part, step, StepMark.FAILED, 0.0, f"it cannot be undone yet: {why}")

    def _stuck(self, part: _Participation, why: str) -> None:
        part.stuck = shortened(why) or "it failed"
        self._send(part, part.next, StepMark.FAILED, 0.0, part.stuck)

    # -- back --------------------------------------------------------------------------------------

    def _roll_back(self, now: float, part: _Participation) -> None:
        if part.writing is not None:
            return  # what is written must be undone, too
        if part.undoing is None:
            if part.running is not None:
                self._steps.cancel(part.operation, part.running)
                part.running = None
            part.undoing = sorted(part.journal)
        if part.rolled_back:
            self._send(part, 0, StepMark.ROLLED_BACK, 1.0)
        else:
            self._undo_next(now, part)

    def _undo_next(self, now: float, part: _Participation) -> None:
        steps = part.operation.steps
        assert part.undoing is not None
        while part.undoing and part.running is None:
            if part.again is not None and now < part.again:
                return
            part.again = None
            number = part.undoing[-1]
            if not steps[number].undo:
                part.undoing.pop()
                continue
            part.running = number
            self._steps.undo(part.operation, number, part.journal[number].undo)
        if part.rolled_back:
            self._send(part, 0, StepMark.ROLLED_BACK, 1.0)

    def undone(self, now: float, id: int, step: int) -> None:
        """A step was undone."""
        part = self._parts.get(id)
        if part is None or part.running != step or not part.undoing:
            return
        part.running = None
        part.undoing.pop()
        part.pause = PAUSE_SECONDS[0]
        self._undo_next(now, part)

    def tick(self, now: float) -> None:
        """Make again what could not be undone. Call about once a second."""
        for part in list(self._parts.values()):
            if part.undoing and part.running is None:
                self._undo_next(now, part)

    def _done(self, part: _Participation, step: int) -> None:
        journaled = part.journal.get(step)
        self._send(part, step, StepMark.DONE, 1.0, "", journaled.context if journaled else b"")

    def _send(
        self,
        part: _Participation,
        step: int,
        mark: StepMark,
        done: float,
        text: str = "",
        context: bytes = b"",
    ) -> None:
        self._marks.send(part.operation.id, step, mark, done, shortened(text), context)
