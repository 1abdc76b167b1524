"""Steps of operations on a storage node: twice, and after a restart (specification 27.3)."""

from __future__ import annotations

from typing import Any

import pytest

from neo.node.task import Task
from neo.operations.model import Operation, Step
from neo.storage.operations.move import gains_of
from neo.storage.operations.steps import StepFailed
from neo.storage.operations.upgrade import BeginAnew


def operation(arguments: dict[str, Any]) -> Operation:
    return Operation(7, "x", arguments, 1, (Step("x", (1,), True, False),), (), 0.0, 1.0, True)


def run(function: Any, about: Operation) -> Task[bytes]:
    return Task(function.run(about, 0, {}, lambda done, text: None))


def test_a_node_begins_anew_once_27_81() -> None:
    renewed: list[str] = []
    first, about = BeginAnew(lambda: renewed.append("first")), operation({})
    assert first.prepare(about, {}) == b""
    assert not run(first, about).done and renewed == ["first"]
    second = BeginAnew(lambda: renewed.append("second"))  # of the next process
    for _ in range(2):
        assert run(second, about).done
    assert renewed == ["first"]


@pytest.mark.parametrize("arguments", [{}, {"gains": 7}, {"gains": "S4"}])
def test_an_order_of_another_release_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(StepFailed, match="install the same release"):
        gains_of(operation(arguments))
