"""Deduplication is switched on and off between two starts (specification 14.5)."""

from __future__ import annotations

from typing import Any

import pytest

from neo.storage.backend.api import BackendFailure
from tests.unit.backend.harness import Harness


def _values(node: Harness) -> int:
    backend: Any = node.opened[-1]
    backend.engine.drain()
    return len(node.select(backend, "id", "data"))


def test_switched_on_equal_values_are_kept_once_from_then_on(node: Harness) -> None:
    node.commit(node.ready(), 20, {4: b"x", 5: b"y"})
    backend = node.restart(node.opened[-1], dedup=True)
    node.commit(backend, 30, {6: b"x", 7: b"x"})
    assert _values(node) == 2


def test_switched_off_each_value_has_a_row_again(node: Harness) -> None:
    """The index that finds equal values would refuse the second one, and end the node at each store."""
    node.commit(node.ready(dedup=True), 20, {4: b"x"})
    backend = node.restart(node.opened[-1])
    node.commit(backend, 30, {5: b"x"})
    node.wait(backend.engine.stored)
    assert _values(node) == 2


def test_equal_values_do_not_let_it_be_switched_on(node: Harness) -> None:
    node.commit(node.ready(), 20, {4: b"x", 5: b"x"})
    with pytest.raises(BackendFailure, match="'dedup' cannot be switched on") as raised:
        node.restart(node.opened[-1], dedup=True)
    assert "Start the node without 'dedup'" in str(raised.value)
    assert "--reset" in str(raised.value)
    # What is advised works.
    backend = node.open()
    node.commit(backend, 30, {6: b"x"})
    node.wait(backend.engine.stored)
    assert _values(node) == 3
    node.close()
    node.commit(node.ready(dedup=True), 20, {4: b"x", 5: b"x"})
    assert _values(node) == 1
