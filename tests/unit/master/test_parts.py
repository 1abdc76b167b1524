"""The parts of the primary master are told of each event, in one order."""

from __future__ import annotations

import pytest

from neo.protocol.enums import CellState
from tests.unit.master.cluster import MasterWorld

EVENTS = ("storage_lost", "cells_changed", "table_confirmed", "operation_stopped")


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Return a list that gets (event, class of the part) of each event."""
    calls: list[tuple[str, str]] = []
    for part in MasterWorld().master.parts:
        cls = type(part)
        for event in EVENTS:
            _record(monkeypatch, calls, cls, event)
    return calls


def _record(
    monkeypatch: pytest.MonkeyPatch, calls: list[tuple[str, str]], cls: type, event: str
) -> None:
    original = getattr(cls, event)

    def told(self: object, *arguments: object) -> None:
        calls.append((event, cls.__name__))
        original(self, *arguments)

    monkeypatch.setattr(cls, event, told)


def test_parts_hear_of_events_in_the_order_of_the_tuple(heard: list[tuple[str, str]]) -> None:
    world = MasterWorld(replicas=1)
    first, second = world.running(2)
    heard.clear()
    second.lose()  # cells become out of date; the operation goes on
    world.master.cluster.change_partitions([(0, 2, CellState.DISCARDED)])
    world.master.table_confirmed()
    first.lose()
    order = ["Coordinator", "BackupMode", "Replication", "Checks"]
    for event in EVENTS:
        parts = [part for name, part in heard if name == event]
        assert parts[: len(order)] == order
        assert parts == order * (len(parts) // len(order))
