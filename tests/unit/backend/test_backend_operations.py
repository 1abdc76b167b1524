"""The journal of operations that every backend keeps (specification 14.43)."""

from __future__ import annotations

from typing import Any

import pytest

from neo.storage.backend.api import JournalStep
from tests.unit.backend.harness import Harness

BEGUN, DONE = 0, 1


def test_a_journal_survives_a_restart(node: Harness, backend: Any) -> None:
    backend.operations.begin_operation(7, b"seven")
    backend.operations.write_step(7, JournalStep(1, BEGUN, b"old\0value", b""))
    backend.operations.write_step(7, JournalStep(0, DONE, b"", b"told"))
    backend.operations.begin_operation(3, b"three")
    expected = {
        3: (b"three", []),
        7: (
            b"seven",
            [JournalStep(0, DONE, b"", b"told"), JournalStep(1, BEGUN, b"old\0value", b"")],
        ),
    }
    assert backend.operations.journal() == expected
    assert list(backend.operations.journal()) == [3, 7]
    assert node.restart(backend).operations.journal() == expected


def test_a_step_that_is_written_again_replaces_the_first(node: Harness, backend: Any) -> None:
    backend.operations.begin_operation(1, b"body")
    backend.operations.write_step(1, JournalStep(0, BEGUN, b"undo", b""))
    backend.operations.write_step(1, JournalStep(0, DONE, b"undo", b"told"))
    backend.operations.begin_operation(1, b"other")
    expected = {1: (b"other", [JournalStep(0, DONE, b"undo", b"told")])}
    assert backend.operations.journal() == expected
    assert node.restart(backend).operations.journal() == expected


def test_an_operation_that_is_forgotten_leaves_the_others(node: Harness, backend: Any) -> None:
    for id in (1, 2):
        backend.operations.begin_operation(id, b"body")
        backend.operations.write_step(id, JournalStep(0, DONE, b"", b"told"))
    backend.operations.forget_operation(1)
    backend.operations.forget_operation(1)
    assert list(backend.operations.journal()) == [2]
    backend = node.restart(backend)
    assert backend.operations.journal() == {2: (b"body", [JournalStep(0, DONE, b"", b"told")])}
    backend.operations.begin_operation(1, b"again")
    assert backend.operations.journal()[1] == (b"again", [])


@pytest.mark.parametrize("length", [0, 1, 300_000])
def test_a_body_and_an_undo_may_be_empty_or_long(node: Harness, backend: Any, length: int) -> None:
    id = (1 << 63) - 1
    backend.operations.begin_operation(id, b"b" * length)
    backend.operations.write_step(id, JournalStep(4095, BEGUN, b"u" * length, b"c" * length))
    expected = {id: (b"b" * length, [JournalStep(4095, BEGUN, b"u" * length, b"c" * length)])}
    assert node.restart(backend).operations.journal() == expected
