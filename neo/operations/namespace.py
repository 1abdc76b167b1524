"""The operations in progress, as the entries of the log make them (specification 27.8 to 27.14).

Theory of operation
-------------------
A pure state machine: all who apply the same entries in the same order have the same state. There is one
outcome, the first entry that decides: after End, Fail changes nothing, and the other way round. Locks
belong to an operation from Lock until nothing is left to do: until End, or Clean after Fail. So what an
operation must still undo stays locked. Without a log that survives, the success is not sure at End, and
if the primary itself has a part, the global change is made after it: then locks are kept until Clean.

A failed operation is kept until all peers have undone their parts, a succeeded one until all have noted
the outcome: so a peer that was away is told the right one, whenever it comes back.

A primary without a log may be started anew. It finds operations in the journals of peers. One has
succeeded if any peer has noted that. If none of the peers has, none was told that it is over, so that it
may be undone. Until one of the two is known, it is adopted: its locks are held, and nothing is done.
"""

from __future__ import annotations

from collections import deque

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
from neo.operations.model import CONTEXT_MAX, INITIATOR, Operation, State, StepMark

#: Operations that have ended, of which operators are told.
ENDED_MAX = 16
#: The states in which peers are waited for, by the mark that a peer sends then.
_SETTLED = {StepMark.ROLLED_BACK: State.ROLLING_BACK, StepMark.SUCCEEDED: State.SUCCEEDED}


class Pending:
    """An operation. ``holds``: it has its locks. ``done``: how many steps each peer is past. ``settled``:
    peers that have undone their part or noted the success, as the outcome is, and forgotten ones.
    ``heard``: peers of which it is known what they have in their journals, if it is adopted. ``context``:
    by step and peer."""

    def __init__(self, id: int, initiator: int, locks: tuple[str, ...]) -> None:
        self.id = id
        self.initiator = initiator
        self.locks = locks
        self.holds = True
        self.state = State.LOCKING
        self.operation: Operation | None = None
        self.done: dict[int, int] = {}
        self.failed: dict[int, PeerMark] = {}
        self.settled: set[int] = set()
        self.heard: set[int] = set()
        self.forgotten: set[int] = set()
        self.context: dict[tuple[int, int], bytes] = {}
        self.why = ""

    @property
    def peers(self) -> list[int]:
        return [] if self.operation is None else self.operation.peers

    @property
    def awaited(self) -> list[int]:
        """The peers but the primary itself of which it is not known that they have settled."""
        others = [] if self.operation is None else self.operation.others
        return [peer for peer in others if peer not in self.settled]

    @property
    def complete(self) -> int:
        """How many steps all peers are past."""
        if self.operation is None:
            return 0
        return min(self.done.values(), default=len(self.operation.steps))

    @property
    def clean(self) -> bool:
        """Whether all peers know the outcome, and nothing is left to be undone."""
        return self.state in _SETTLED.values() and self.settled.issuperset(self.done)

    def expects(self, peer: int, mark: StepMark) -> bool:
        """Return whether this mark of a peer, which is not of a step that is done, changes anything."""
        if mark is StepMark.FAILED:
            return self.state is State.RUNNING and peer not in self.failed
        return self.state is _SETTLED.get(mark) and peer not in self.settled

    def snapshot(self) -> object:
        """Return the state as plain values, for comparisons."""
        return (
            self.id,
            self.initiator,
            self.locks,
            self.state.value,
            self.operation,
            self.done,
            self.failed,
            sorted(self.settled),
            sorted(self.heard),
            sorted(self.forgotten),
            self.context,
            self.why,
        )


class Namespace:
    """``pending``: operations by id, ascending. ``ended``: the last ones that are over. ``holders``: the
    operation that holds each lock."""

    def __init__(self, durable: bool) -> None:
        """``durable``: the entries survive the primary."""
        self._durable = durable
        self.pending: dict[int, Pending] = {}
        self.ended: deque[Pending] = deque(maxlen=ENDED_MAX)
        self.holders: dict[str, int] = {}
        #: The greatest id so far.
        self.last_id = 0

    def find(self, id: int) -> Pending | None:
        """Return an operation, also if it ended."""
        found = self.pending.get(id)
        if found is not None:
            return found
        return next((each for each in self.ended if each.id == id), None)

    def snapshot(self) -> object:
        """Return the state as plain values, for comparisons."""
        pending = [each.snapshot() for each in self.pending.values()]
        return pending, [each.snapshot() for each in self.ended], self.holders, self.last_id

    def apply(self, entry: Entry) -> bool:
        """Apply an entry; return whether it changed the state."""
        if isinstance(entry, Lock):
            return self._lock(entry)
        if isinstance(entry, Begin):
            return self._begin(entry.operation)
        if isinstance(entry, Adopt):
            return self._adopt(entry.operation)
        pending = self.pending.get(entry.id)
        if pending is None:
            return False
        if isinstance(entry, StepMarks):
            changed = [self._mark(pending, mark) for mark in entry.marks]
            return any(changed)
        if isinstance(entry, Fail):
            return self._fail(pending, entry.why)
        if isinstance(entry, End):
            return self._end(pending)
        if isinstance(entry, Forget):
            return self._forget(pending, entry.peer)
        if isinstance(entry, Heard):
            return self._hear(pending, entry.peer, entry.mark)
        assert isinstance(entry, Clean)
        return self._clean(pending)

    def _lock(self, entry: Lock) -> bool:
        if entry.id <= self.last_id or any(name in self.holders for name in entry.names):
            return False
        self.last_id = entry.id
        self.pending[entry.id] = Pending(entry.id, entry.initiator, entry.names)
        self.holders.update(dict.fromkeys(entry.names, entry.id))
        return True

    def _begin(self, operation: Operation) -> bool:
        pending = self.pending.get(operation.id)
        if pending is None or pending.state is not State.LOCKING:
            return False
        if operation.locks != pending.locks or operation.initiator != pending.initiator:
            return False
        pending.state = State.RUNNING
        pending.operation = operation
        pending.done = dict.fromkeys(operation.peers, 0)
        return True

    def _mark(self, pending: Pending, mark: PeerMark) -> bool:
        peer = mark.peer
        if pending.operation is None or peer not in pending.done:
            return False
        if mark.step >= len(pending.operation.steps):
            return False
        if mark.mark is not StepMark.DONE:
            if not pending.expects(peer, mark.mark):
                return False
            if mark.mark is StepMark.FAILED:
                pending.failed[peer] = mark
            else:
                pending.settled.add(peer)
            return True
        # A peer marks its steps in their order: what came twice, or after a gap, is no news.
        if pending.state is not State.RUNNING or pending.done[peer] != mark.step:
            return False
        used = sum(map(len, pending.context.values()))
        if used + len(mark.context) > CONTEXT_MAX:
            pending.failed[peer] = mark
            return self._fail(
                pending,
                f"what its steps tell each other takes more than {CONTEXT_MAX} bytes: there are too many"
                " parts",
            )
        pending.done[peer] = mark.step + 1
        if mark.context:
            pending.context[mark.step, peer] = mark.context
        return True

    def _fail(self, pending: Pending, why: str) -> bool:
        if pending.state is State.LOCKING:
            pending.why = why
            self._over(pending, State.FAILED)
            return True
        if pending.state is not State.RUNNING:
            return False
        pending.state = State.ROLLING_BACK
        pending.why = why
        return True

    def _end(self, pending: Pending) -> bool:
        operation = pending.operation
        if pending.state is not State.RUNNING or operation is None:
            return False
        if pending.complete < len(operation.steps) or pending.failed:
            return False
        self._succeed(pending)
        return True

    def _succeed(self, pending: Pending) -> None:
        pending.state = State.SUCCEEDED
        if self._durable and INITIATOR not in pending.done:
            self._unlock(pending)

    def _forget(self, pending: Pending, peer: int) -> bool:
        if peer not in pending.done or peer in pending.settled:
            return False
        if pending.state is State.ADOPTED:
            pending.forgotten.add(peer)
            return self._hear(pending, peer, StepMark.ROLLED_BACK)
        if pending.state not in _SETTLED.values():
            return False
        pending.forgotten.add(peer)
        pending.settled.add(peer)
        return True

    def _adopt(self, operation: Operation) -> bool:
        if self.find(operation.id) is not None:
            return False
        self.last_id = max(self.last_id, operation.id)
        pending = Pending(operation.id, operation.initiator, operation.locks)
        pending.state = State.ADOPTED
        pending.operation = operation
        pending.done = dict.fromkeys(operation.peers, 0)
        pending.heard = {INITIATOR}.intersection(pending.done)
        self.pending[operation.id] = pending
        for name in operation.locks:
            self.holders.setdefault(name, operation.id)
        return True

    def _hear(self, pending: Pending, peer: int, mark: StepMark) -> bool:
        if pending.state is not State.ADOPTED or peer not in pending.done or peer in pending.heard:
            return False
        pending.heard.add(peer)
        if mark is StepMark.ROLLED_BACK:
            pending.settled.add(peer)
        if mark is StepMark.SUCCEEDED:
            self._succeed(pending)
        elif pending.heard.issuperset(pending.done):
            pending.state = State.ROLLING_BACK
            pending.why = "the primary was started anew"
        return True

    def _clean(self, pending: Pending) -> bool:
        if not pending.clean:
            return False
        failed = pending.state is State.ROLLING_BACK
        self._over(pending, State.FAILED if failed else State.SUCCEEDED)
        return True

    def _over(self, pending: Pending, state: State) -> None:
        pending.state = state
        del self.pending[pending.id]
        self.ended.append(pending)
        self._unlock(pending)

    def _unlock(self, pending: Pending) -> None:
        """Release locks. One of adopted operations may pass to another that was adopted, too."""
        pending.holds = False
        for name in pending.locks:
            if self.holders.get(name) == pending.id:
                del self.holders[name]
        for other in self.pending.values():
            if other.holds:
                for name in other.locks:
                    self.holders.setdefault(name, other.id)
