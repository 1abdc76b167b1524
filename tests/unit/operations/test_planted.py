"""Planted bugs: slips that the oracles must see (design, section 1.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from neo.operations.engine import DONE, OUTCOME, Engine
from neo.operations.model import State, StepMark
from neo.operations.namespace import Namespace, Pending
from tests.unit.operations.crashes import (
    PRIMARY,
    all_crash_after_any_event,
    all_crash_while_the_disk_is_slow,
    one_crashes_after_any_event,
    play,
)
from tests.unit.operations.world import Violation

#: Enough for the rarest of them, found at seed 50; most are found by the first seeds.
SEEDS = 400

Plant = Callable[[pytest.MonkeyPatch], None]
PLANTED: dict[str, Plant] = {}


def planted(plant: Plant) -> Plant:
    PLANTED[plant.__name__.replace("_", " ")] = plant
    return plant


@planted
def a_peer_rolls_back_on_its_own(patch: pytest.MonkeyPatch) -> None:
    def disconnected(self: Any) -> None:
        for part in self._parts.values():
            if part.next == len(part.operation.steps) and OUTCOME not in part.journal:
                part.state = State.ROLLING_BACK
                self._roll_back(0.0, part)

    patch.setattr(Engine, "disconnected", disconnected)


@planted
def a_step_runs_before_it_is_begun_durably(patch: pytest.MonkeyPatch) -> None:
    original = Engine._write

    def write(self: Any, part: Any, journaled: Any) -> None:
        original(self, part, journaled)
        if journaled.state != DONE:
            self.durable(0.0, part.operation.id, journaled.step)

    patch.setattr(Engine, "_write", write)


@planted
def a_mark_is_sent_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    original = Engine._write

    def write(self: Any, part: Any, journaled: Any) -> None:
        original(self, part, journaled)
        if journaled.step == OUTCOME:
            self._send(part, 0, StepMark.SUCCEEDED, 1.0)

    patch.setattr(Engine, "_write", write)


@planted
def steps_are_undone_in_forward_order(patch: pytest.MonkeyPatch) -> None:
    original = Engine._roll_back

    def roll_back(self: Any, now: float, part: Any) -> None:
        if part.undoing is None and part.writing is None:
            if part.running is not None:
                self._steps.cancel(part.operation, part.running)
                part.running = None
            part.undoing = sorted(part.journal, reverse=True)
        original(self, now, part)

    patch.setattr(Engine, "_roll_back", roll_back)


@planted
def a_step_that_was_only_begun_is_not_undone(patch: pytest.MonkeyPatch) -> None:
    original = Engine._roll_back

    def roll_back(self: Any, now: float, part: Any) -> None:
        if part.undoing is None and part.writing is None:
            if part.running is not None:
                self._steps.cancel(part.operation, part.running)
                part.running = None
            part.undoing = sorted(n for n, each in part.journal.items() if each.state == DONE)
        original(self, now, part)

    patch.setattr(Engine, "_roll_back", roll_back)


@planted
def locks_are_released_at_the_failure(patch: pytest.MonkeyPatch) -> None:
    original = Namespace._fail

    def fail(self: Any, pending: Any, why: str) -> bool:
        changed = original(self, pending, why)
        if changed:
            self._unlock(pending)
        return changed

    patch.setattr(Namespace, "_fail", fail)


@planted
def a_barrier_ignores_peers_that_skip_a_step(patch: pytest.MonkeyPatch) -> None:
    def complete(self: Any) -> int:
        count: int = 0
        for number, step in enumerate(self.operation.steps if self.operation else ()):
            if all(self.done[peer] > number for peer in step.peers):
                count = number + 1
        return count

    patch.setattr(Pending, "complete", property(complete))


@planted
def an_operation_is_cleaned_up_before_all_are_rolled_back(patch: pytest.MonkeyPatch) -> None:
    def clean(self: Any) -> bool:
        return self.state in (State.ROLLING_BACK, State.SUCCEEDED) and bool(self.settled)

    patch.setattr(Pending, "clean", property(clean))


@planted
def what_a_peer_noted_of_the_success_is_ignored(patch: pytest.MonkeyPatch) -> None:
    original = Namespace._hear

    def hear(self: Any, pending: Any, peer: int, mark: StepMark) -> bool:
        return original(self, pending, peer, StepMark.BEGUN if mark is StepMark.SUCCEEDED else mark)

    patch.setattr(Namespace, "_hear", hear)


@planted
def a_failure_overrules_the_success(patch: pytest.MonkeyPatch) -> None:
    original = Namespace._fail

    def fail(self: Any, pending: Any, why: str) -> bool:
        if pending.state is State.SUCCEEDED:
            pending.state = State.ROLLING_BACK
            pending.settled.clear()
            return True
        return original(self, pending, why)

    patch.setattr(Namespace, "_fail", fail)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED[name](monkeypatch)
    with pytest.raises(Violation):
        crash_after_any_event()
        for seed in range(SEEDS):
            play(seed, persistent=bool(seed % 2))


def crash_after_any_event() -> None:
    for persistent in (True, False):
        one_crashes_after_any_event(persistent, None, PRIMARY)
        all_crash_after_any_event(persistent)
        all_crash_while_the_disk_is_slow(persistent)
