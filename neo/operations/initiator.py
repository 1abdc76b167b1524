"""The primary begins operations, watches them, decides their outcome, and cleans up (specification 27.27
to 27.33).

Theory of operation
-------------------
The initiator changes nothing by itself: it posts entries, and acts when they are applied, which the log
of several primaries may do much later, or not at all. What the peers are told follows from the applied
state alone, so that the next primary tells them the same. In some operations the primary has steps of
its own, and a change of global data to make. What it does follows from the arguments alone, so that the
next primary goes on with it.

It cleans up, too: it is the only one that may, as long as it is primary. An operation of an earlier
primary fails, unless its kind is resumable: the locks are in the log, and survive their primary. """

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from neo.operations.entries import (
    Adopt,
    Begin,
    Clean,
    End,
    Entry,
    Fail,
    Forget,
    Heard,
    Lock,
    PeerMark,
    StepMarks,
)
from neo.operations.model import INITIATOR, Operation, State, StepMark, encode, shortened
from neo.operations.namespace import Namespace, Pending

#: Marks that come within this time are one entry of the log.
MARKS_SECONDS = 0.05


class Refused(Exception):
    """An operation cannot begin, or cannot be aborted; the message says why and what to do."""


class Log(Protocol):
    def post(self, entry: Entry) -> None:
        """Have an entry applied to the namespace, in the order of the calls, and then
        :meth:`Initiator.applied` called. May be lost with this primary."""


class Peers(Protocol):
    """The way to the peers. What is lost is sent again when a peer joins."""

    def absent(self, peers: Sequence[int]) -> str:
        """Return why some of the peers cannot take part now, '' if all can."""

    def connected(self) -> Sequence[int]:
        """Return the peers that have joined."""

    def operation(self, peer: int, id: int, body: bytes) -> None: ...

    def state(self, peer: int, id: int, state: State, pending: Pending | None) -> None:
        """Tell a peer that an operation is RUNNING, ROLLING_BACK or has SUCCEEDED. ``pending``: with what
        the steps told, and how many all peers are past; None if that is not needed."""

    def ended(self, peer: int, id: int) -> None: ...


#: Makes the operation when its locks are held. Raises Refused.
Make = Callable[[int], Operation]
#: Called with the id of an operation that has begun, or why it did not.
Answer = Callable[[int, str], None]


class OwnSteps(Protocol):
    """The part of the primary itself: the steps of the peer INITIATOR, and the change of global data that
    belongs to the success.

    A method does what it can at once, and returns whether all is done. The initiator, or the next
    primary, calls it again until it is; after that it changes nothing. All own steps are undone, also
    those that did not run."""

    def run(self, operation: Operation, step: int) -> bool:
        """Raise Refused if the operation must fail."""

    def undo(self, operation: Operation, step: int) -> bool: ...

    def finish(self, operation: Operation) -> bool:
        """Make the change of global data. All peers have noted the success."""

    def waits(self, operation: Operation, step: int) -> str:
        """Return what a step that is not done waits for, in words; '' if there is nothing to say."""


class _Request(NamedTuple):
    names: tuple[str, ...]
    make: Make
    answer: Answer


#: Why an operation fails that nobody goes on with.
GONE = "the primary that began it is gone"


class Progress(NamedTuple):
    """What a peer told last of a step, for people."""

    mark: StepMark
    done: float
    text: str


class Initiator:
    """``number``: of this primary, which no other one has. Methods run on one thread; ``now``: seconds
    since 1970. ``persistent``: the log survives this primary."""

    def __init__(
        self,
        number: int,
        namespace: Namespace,
        log: Log,
        peers: Peers,
        persistent: bool,
        own: OwnSteps,
    ) -> None:
        self._number = number
        self._namespace = namespace
        self._log = log
        self._peers = peers
        self._persistent = persistent
        self._own = own
        self._requests: dict[int, _Request] = {}
        self._last_id = 0
        self._marks: dict[int, list[PeerMark]] = {}
        self._flushed = 0.0
        #: What was posted of each peer: how many steps it is past, and its other marks.
        self._taken: dict[tuple[int, int], int] = {}
        self._others: set[tuple[int, int, StepMark]] = set()
        #: What peers were told last, by operation.
        self._told: dict[int, tuple[State, int]] = {}
        self._posted: set[tuple[int, str]] = set()
        self.progress: dict[int, dict[tuple[int, int], Progress]] = {}

    # -- requests ----------------------------------------------------------------------------------

    def holder(self, names: Sequence[str]) -> Pending | None:
        """Return an operation that holds one of these locks, or None."""
        holders = self._namespace.holders
        return next((self._namespace.pending[holders[n]] for n in names if n in holders), None)

    def begin(self, now: float, names: tuple[str, ...], make: Make, answer: Answer) -> None:
        """Begin an operation: take its locks, then make its steps. Call ``answer`` then. Raise Refused if
        a lock is held."""
        if (holder := self.holder(names)) is not None:
            raise Refused(held(holder, names))
        # Ids are times: a primary without a log, started anew, gives none that a journal may have.
        self._last_id = id = max(int(now), self._last_id + 1, self._namespace.last_id + 1)
        self._requests[id] = _Request(names, make, answer)
        self._log.post(Lock(id, self._number, names))

    def abort(self, id: int, why: str) -> None:
        """Fail an operation, as the operator wishes. Raise Refused if it has ended."""
        pending = self._named(id)
        if pending.state.ended:
            raise Refused(f"operation {id} has ended: {pending.state.value.lower()}")
        self._log.post(Fail(id, shortened(why)))

    def forget(self, id: int, peer: int) -> None:
        """Do not wait for a peer to undo its part, or to note the success. Raise Refused unless that is
        waited for."""
        pending = self._named(id)
        waits = (State.ROLLING_BACK, State.SUCCEEDED, State.ADOPTED)
        if pending.state not in waits or id not in self._namespace.pending:
            raise Refused(f"operation {id} does not wait for a node: it is {pending.state.value.lower()}")
        if peer == INITIATOR:
            raise Refused("the part of the master cannot be forgotten")
        if peer not in pending.done or peer in pending.settled:
            raise Refused(f"operation {id} does not wait for this node")
        self._log.post(Forget(id, peer))

    def _named(self, id: int) -> Pending:
        pending = self._namespace.find(id)
        if pending is None:
            raise Refused(f"there is no operation {id}, or it ended long ago")
        return pending

    # -- peers -------------------------------------------------------------------------------------

    def joined(self, peer: int, known: Sequence[tuple[Operation, bool]]) -> None:
        """Tell a peer that connects of its operations. ``known``: see :meth:`Engine.known`."""
        listed = {operation.id: (operation, succeeded) for operation, succeeded in known}
        # The peer tells all of its marks again.
        self._taken = {key: n for key, n in self._taken.items() if key[1] != peer}
        self._others = {each for each in self._others if each[1] != peer}
        for id, (operation, succeeded) in listed.items():
            if self._namespace.find(id) is None:
                self._unknown(peer, operation, succeeded)
            elif id not in self._namespace.pending:
                self._forgotten(peer, id)
        for id, pending in list(self._namespace.pending.items()):
            if peer not in pending.done:
                continue
            if pending.state is State.ADOPTED:
                mark = StepMark.ROLLED_BACK
                if id in listed:
                    mark = StepMark.SUCCEEDED if listed[id][1] else StepMark.BEGUN
                self._log.post(Heard(id, peer, mark))
            else:
                self._start(peer, pending)

    def _unknown(self, peer: int, operation: Operation, succeeded: bool) -> None:
        if not self._persistent:
            self._log.post(Adopt(operation))
            # It is not in the journals of those that did not tell of it.
            for other in self._peers.connected():
                if other != peer and other in operation.peers:
                    self._log.post(Heard(operation.id, other, StepMark.ROLLED_BACK))
        else:  # the operator had this peer forgotten, long ago
            state = State.SUCCEEDED if succeeded else State.ROLLING_BACK
            self._peers.state(peer, operation.id, state, None)

    def _forgotten(self, peer: int, id: int) -> None:
        """Tell a peer the outcome of an operation that is over."""
        ended = self._namespace.find(id)
        assert ended is not None
        state = State.SUCCEEDED if ended.state is State.SUCCEEDED else State.ROLLING_BACK
        self._peers.state(peer, id, state, None)

    def _start(self, peer: int, pending: Pending) -> None:
        if pending.operation is None:
            return
        if pending.state is State.RUNNING:
            self._peers.operation(peer, pending.id, encode(pending.operation))
        self._tell(peer, pending)

    def _tell(self, peer: int, pending: Pending) -> None:
        if pending.state in (State.RUNNING, State.ROLLING_BACK, State.SUCCEEDED):
            self._peers.state(peer, pending.id, pending.state, pending)

    def marked(
        self,
        now: float,
        peer: int,
        id: int,
        step: int,
        mark: StepMark,
        done: float,
        text: str,
        context: bytes,
    ) -> None:
        """Take a mark of a peer."""
        pending = self._namespace.pending.get(id)
        if pending is None:
            if mark in (StepMark.ROLLED_BACK, StepMark.SUCCEEDED):
                self._peers.ended(peer, id)
            return
        if peer not in pending.done or pending.operation is None:
            return
        if step >= len(pending.operation.steps):
            return
        if mark not in (StepMark.ROLLED_BACK, StepMark.SUCCEEDED):
            known = self.progress.setdefault(id, {})
            known[peer, step] = Progress(mark, done, shortened(text))
        if not self._is_news(pending, peer, step, mark):
            return
        waiting = self._marks.setdefault(id, [])
        waiting.append(PeerMark(peer, step, mark, shortened(text), context))
        if now - self._flushed >= MARKS_SECONDS or now < self._flushed:
            self._flush(now)

    def _is_news(self, pending: Pending, peer: int, step: int, mark: StepMark) -> bool:
        """Return whether a mark must be posted. A peer repeats marks until they are applied. So few are
        waiting to be posted: the steps of the operation, and two more of each peer."""
        if mark is StepMark.BEGUN:
            return False
        if mark is StepMark.DONE:
            taken = max(self._taken.get((pending.id, peer), 0), pending.done[peer])
            if step != taken:
                return False
            self._taken[pending.id, peer] = step + 1
            return True
        key = pending.id, peer, mark
        if key in self._others or not pending.expects(peer, mark):
            return False
        self._others.add(key)
        return True

    def _flush(self, now: float) -> None:
        self._flushed = now
        marks, self._marks = self._marks, {}
        for id, waiting in marks.items():
            self._log.post(StepMarks(id, tuple(waiting)))

    def outcome(self, pending: Pending) -> State:
        """Return the state for people: an operation has not succeeded before that is durable, here in the
        log, or else on all peers, and the change of global data is made."""
        sure = self._persistent and INITIATOR not in pending.done
        over = sure or pending.id not in self._namespace.pending
        return pending.state if over or pending.state is not State.SUCCEEDED else State.RUNNING

    # -- what was applied --------------------------------------------------------------------------

    def applied(self, now: float, entry: Entry, changed: bool) -> None:
        """Act upon an entry that the namespace has applied. ``changed``: it changed the state."""
        if isinstance(entry, Lock):
            self._locked(now, entry, changed)
        elif isinstance(entry, Begin):
            self._begun(entry.operation, changed)
        elif changed:
            self._changed(entry.operation.id if isinstance(entry, Adopt) else entry.id)

    def _locked(self, now: float, entry: Lock, changed: bool) -> None:
        request = self._requests.get(entry.id)
        if request is None or entry.initiator != self._number:
            return
        if not changed:
            self._answer(entry.id, self._busy(request.names))
            return
        try:
            operation = request.make(entry.id)
            encode(operation)
            why = self._peers.absent(operation.others)
        except (Refused, ValueError) as e:
            why = str(e) or "it cannot be made"
        if why:
            self._answer(entry.id, why)
            self._log.post(Fail(entry.id, shortened(why)))
        else:
            self._log.post(Begin(operation))

    def _busy(self, names: tuple[str, ...]) -> str:
        holder = self.holder(names)
        return "another operation was faster: try again" if holder is None else held(holder, names)

    def _answer(self, id: int, why: str) -> None:
        if (request := self._requests.pop(id, None)) is not None:
            request.answer(id, why)

    def _begun(self, operation: Operation, changed: bool) -> None:
        pending = self._namespace.pending.get(operation.id)
        if not changed or pending is None:
            self._answer(operation.id, "it was aborted before it began")
            return
        for peer in operation.others:
            self._start(peer, pending)
        self._answer(operation.id, "")
        self._decide(pending)

    def _changed(self, id: int) -> None:
        pending = self._namespace.pending.get(id)
        if pending is None:
            ended = self._namespace.find(id)
            if ended is not None:
                self._over(ended)
            return
        news = pending.state, pending.complete
        if self._told.get(id) != news:
            self._told[id] = news
            for peer in pending.awaited:
                self._tell(peer, pending)
        self._decide(pending)

    def _over(self, ended: Pending) -> None:
        self._answer(ended.id, ended.why)
        for peer in [] if ended.operation is None else ended.operation.others:
            if peer not in ended.forgotten:
                self._peers.ended(peer, ended.id)
        self._marks.pop(ended.id, None)
        self._told.pop(ended.id, None)
        self._taken = {key: n for key, n in self._taken.items() if key[0] != ended.id}
        self._others = {each for each in self._others if each[0] != ended.id}
        self._posted = {posted for posted in self._posted if posted[0] != ended.id}
        kept = {each.id for each in self._namespace.ended} | set(self._namespace.pending)
        self.progress = {id: known for id, known in self.progress.items() if id in kept}

    # -- decisions ---------------------------------------------------------------------------------

    def _decide(self, pending: Pending) -> None:
        """Post what follows from the state of an operation."""
        operation = pending.operation
        if pending.state is State.RUNNING and operation is not None:
            if pending.failed:
                peer, mark = next(iter(pending.failed.items()))
                self._once(Fail(pending.id, mark.text or f"peer {peer} failed"))
            elif pending.complete == len(operation.steps):
                self._once(End(pending.id))
            elif INITIATOR in pending.done:
                self._run_own(pending, operation)
        elif pending.clean:
            self._once(Clean(pending.id))
        elif operation is not None and INITIATOR in pending.done:
            self._settle_own(pending, operation)

    def _run_own(self, pending: Pending, operation: Operation) -> None:
        """Do the next step of the primary itself, or pass it."""
        number = pending.done[INITIATOR]
        if number == len(operation.steps) or self._taken.get((pending.id, INITIATOR), 0) > number:
            return
        step = operation.steps[number]
        if step.synchronised and pending.complete < number:
            return
        if INITIATOR in step.peers:
            known = self.progress.setdefault(pending.id, {})
            known[INITIATOR, number] = Progress(StepMark.BEGUN, 0.0, "")
            try:
                if not self._own.run(operation, number):
                    text = shortened(self._own.waits(operation, number))
                    known[INITIATOR, number] = Progress(StepMark.BEGUN, 0.0, text)
                    return
            except Refused as e:
                self._once(Fail(pending.id, shortened(str(e))))
                return
        self._taken[pending.id, INITIATOR] = number + 1
        self._log.post(StepMarks(pending.id, (PeerMark(INITIATOR, number, StepMark.DONE, "", b""),)))

    def _settle_own(self, pending: Pending, operation: Operation) -> None:
        """Undo the steps of the primary itself, or make the change of global data when all peers have
        noted the success: without a log, it could not be taken back."""
        mark = StepMark.ROLLED_BACK if pending.state is State.ROLLING_BACK else StepMark.SUCCEEDED
        if not pending.expects(INITIATOR, mark) or (pending.id, INITIATOR, mark) in self._others:
            return
        if mark is StepMark.ROLLED_BACK:
            own = [n for n, step in enumerate(operation.steps) if step.undo and INITIATOR in step.peers]
            if not all(self._own.undo(operation, number) for number in reversed(own)):
                return
        elif pending.awaited or not self._own.finish(operation):
            return
        self._others.add((pending.id, INITIATOR, mark))
        self._log.post(StepMarks(pending.id, (PeerMark(INITIATOR, 0, mark, "", b""),)))

    def _once(self, entry: Fail | End | Clean) -> None:
        """Post an entry, unless this primary has: each is applied at most once."""
        key = entry.id, type(entry).__name__
        if key not in self._posted:
            self._posted.add(key)
            self._log.post(entry)

    def tick(self, now: float) -> None:
        """Post marks that wait; fail operations that are stale. Call about once a second."""
        self._flush(now)
        for pending in list(self._namespace.pending.values()):
            operation, foreign = pending.operation, pending.initiator != self._number
            if pending.state is State.LOCKING:
                # This primary may have had the same number before: who asked for it is gone, too.
                if foreign or pending.id not in self._requests:
                    self._once(Fail(pending.id, GONE))
            elif foreign and not (operation and operation.resumable):
                if pending.state is State.RUNNING:
                    self._once(Fail(pending.id, GONE))
            elif operation is not None and now > operation.deadline:
                if pending.state is State.RUNNING:
                    self._once(Fail(pending.id, "it was not over in time"))
            self._decide(pending)


def held(holder: Pending, names: Sequence[str]) -> str:
    """Return why a lock cannot be had."""
    name = next(name for name in names if name in holder.locks)
    kind = "" if holder.operation is None else f" ({holder.operation.kind})"
    return f"operation {holder.id}{kind} holds {name!r}: neoctl print operations"
