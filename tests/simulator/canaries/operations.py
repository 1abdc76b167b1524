"""Bugs of operations: maintenance in steps with undo."""

from __future__ import annotations

from collections import deque
from typing import Any

from neo.master.operations.moves import Move, MovesCells
from neo.operations.engine import DONE, Engine
from neo.operations.initiator import Initiator
from neo.operations.model import Operation, State
from neo.operations.namespace import Namespace, Pending
from neo.storage.operations import move
from neo.storage.operations.local_locks import LocalLocks
from neo.storage.operations.part import Operations
from tests.simulator.planting import Canary, Patch

_OPTIONS = {
    "workloads": ("counters",),
    "faults": ("kill-server", "reset"),
    "operations": True,
    "storages": 3,
    "seconds": 10.0,
}
_SEVERAL = _OPTIONS | {"masters": 3}


def _journal_not_told() -> list[Patch]:
    def known(self: Operations) -> list[object]:
        return []

    return [(Operations, "known", known)]


def _marked_before_durable() -> list[Patch]:
    def sync(self: Operations, id: int, step: int) -> None:
        engine = self._engine
        assert engine is not None
        self._core.call_later(0, lambda: engine.durable(self._core.host.monotonic(), id, step))

    return [(Operations, "sync", sync)]


def _undone_forward() -> list[Patch]:
    original = Engine._roll_back

    def roll_back(self: Engine, now: float, part: Any) -> None:
        fresh = part.undoing is None and part.writing is None
        original(self, now, part)
        if fresh and part.undoing and len(part.undoing) > 1:
            self._steps.cancel(part.operation, part.undoing[-1])
            part.undoing.reverse()
            part.running = None
            self._undo_next(now, part)

    return [(Engine, "_roll_back", roll_back)]


def _begun_not_undone() -> list[Patch]:
    original = Engine._roll_back

    def roll_back(self: Engine, now: float, part: Any) -> None:
        if part.undoing is None and part.writing is None:
            part.journal = {n: each for n, each in part.journal.items() if each.state == DONE}
        original(self, now, part)

    return [(Engine, "_roll_back", roll_back)]


def _unlocked_at_failure() -> list[Patch]:
    original = Namespace._fail

    def fail(self: Namespace, pending: Pending, why: str) -> bool:
        changed = original(self, pending, why)
        if changed:
            self._unlock(pending)
        return changed

    return [(Namespace, "_fail", fail)]


def _barrier_of_the_first() -> list[Patch]:
    def complete(self: Pending) -> int:
        if self.operation is None:
            return 0
        return next(iter(self.done.values()), len(self.operation.steps))

    return [(Pending, "complete", property(complete))]


def _undone_without_a_word() -> list[Patch]:
    def disconnected(self: Engine) -> None:
        for part in self._parts.values():
            self._roll_back(0.0, part)

    return [(Engine, "disconnected", disconnected)]


def _clean_too_early() -> list[Patch]:
    def clean(self: Pending) -> bool:
        return self.state is State.ROLLING_BACK and bool(self.settled)

    return [(Pending, "clean", property(clean))]


def _not_taken_over() -> list[Patch]:
    def tick(self: Initiator, now: float) -> None:
        self._flush(now)

    return [(Initiator, "tick", tick)]


def _no_local_locks() -> list[Patch]:
    async def take(self: LocalLocks, name: str) -> None:
        self._waiting[name] = deque()

    def give(self: LocalLocks, name: str) -> None:
        self._waiting.pop(name, None)

    return [(LocalLocks, "take", take), (LocalLocks, "give", give)]


def _cells_left_behind() -> list[Patch]:
    def undo(self: MovesCells, operation: Operation, step: int) -> bool:
        return True

    return [(MovesCells, "undo", undo)]


def _taken_before_given() -> list[Patch]:
    def complete(self: MovesCells, moved: Move) -> bool:
        return True

    def gains_of(operation: Operation) -> list[tuple[int, int]]:
        return []

    return [(MovesCells, "_complete", complete), (move, "gains_of", gains_of)]


CANARIES = (
    Canary(
        "operation-not-told",
        "a storage node does not tell a master of its journal when it joins",
        "operations: none is pending, but a journal is not empty at the end",
        _journal_not_told,
        20,
        _OPTIONS,
    ),
    Canary(
        "operation-marked-before-durable",
        "a step is told, and the next one begins, before the journal is durable",
        "operations: a step without a record in the journal is not undone",
        _marked_before_durable,
        60,
        _OPTIONS,
        first=12,
    ),
    Canary(
        "operation-undone-forward",
        "steps are undone in their order",
        "operations: a step is undone before a later one",
        _undone_forward,
        20,
        _OPTIONS,
        first=7,
    ),
    Canary(
        "operation-begun-not-undone",
        "a step that was begun and is not done is not undone",
        "operations: a failed operation has an effect",
        _begun_not_undone,
        20,
        _OPTIONS,
    ),
    Canary(
        "operation-unlocked-at-failure",
        "the locks are released when an operation fails, not when all is undone",
        "operations: a step begins amid another operation that wants the lock",
        _unlocked_at_failure,
        20,
        _OPTIONS,
        first=7,
    ),
    Canary(
        "operation-barrier-of-the-first",
        "a synchronised step waits for the first node only",
        "operations: a step begins before the steps before it are done everywhere",
        _barrier_of_the_first,
        20,
        _OPTIONS,
    ),
    Canary(
        "operation-undone-without-a-word",
        "a storage node undoes its part when it loses the master",
        "operations: a part of the effects is missing",
        _undone_without_a_word,
        20,
        _SEVERAL,
        15,
    ),
    Canary(
        "operation-clean-too-early",
        "a failed operation is over when the first node has undone its part",
        "operations: the operator is told of the failure, and effects are left",
        _clean_too_early,
        20,
        _OPTIONS,
    ),
    Canary(
        "operation-side-by-side",
        "steps of two operations that change the same data of a node do not wait for each other",
        "operations: two change the same data of a node at once",
        _no_local_locks,
        20,
        _OPTIONS,
    ),
    Canary(
        "operation-cells-left",
        "a move that fails does not take the new cells away",
        "operations: cells are left",
        _cells_left_behind,
        40,
        _OPTIONS,
        first=15,
    ),
    Canary(
        "operation-taken-before-given",
        "cells are taken away before the new ones are complete",
        "operations: cells are taken away while others are copied",
        _taken_before_given,
        60,
        _OPTIONS,
        22,
    ),
    Canary(
        "operation-not-taken-over",
        "the next primary does not look at operations that are stale",
        "operations: one does not end",
        _not_taken_over,
        20,
        _SEVERAL,
    ),
)
