"""The parts of a node are told of each event in one order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from neo.protocol.enums import NodeState
from neo.protocol.packets import NotifyPartitionChanges, StartOperation, StopOperation
from neo.storage.events import Part
from tests.unit.storage.world import C1, OUT, World

ORDER = [
    "Clients",
    "Participant",
    "PreparedTransactions",
    "Uploads",
    "Contents",
    "Sweep",
    "ContentFetch",
    "Mender",
    "Verifier",
    "Background",
    "Links",
    "ReceivedVotes",
    "SyncSource",
    "UpstreamLinks",
    "DownstreamLinks",
    "BackupReplicator",
    "Replicator",
    "Packer",
    "Eraser",
    "Orphans",
    "Checker",
    "Identification",
]
EVENTS = ("operation_started", "cells_changed", "client_lost", "operation_stopped")


@pytest.fixture
def told(world: World, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """(event, part), in the order in which parts are told."""
    calls: list[tuple[str, str]] = []

    def watch(part: Part, event: str) -> None:
        react: Callable[..., None] = getattr(part, event)

        def watched(*arguments: object) -> None:
            calls.append((event, type(part).__name__))
            react(*arguments)

        monkeypatch.setattr(part, event, watched)

    for part in world.core.parts:
        for event in EVENTS:
            watch(part, event)
    return calls


def test_all_parts_are_told_of_each_event_in_one_order(
    world: World, told: list[tuple[str, str]]
) -> None:
    master = world.operate()
    master.send(StartOperation(False))  # it is operational already
    master.send(NotifyPartitionChanges(2, 0, [(0, 2, OUT)]))
    world.notify(master, world.client_row(C1))
    world.notify(master, world.client_row(C1, NodeState.UNKNOWN))
    master.send(StopOperation())
    assert told == [(event, part) for event in EVENTS for part in ORDER]


def test_the_end_of_the_master_is_the_end_of_the_operation(
    world: World, told: list[tuple[str, str]]
) -> None:
    """Specification 4.31."""
    master = world.operate()
    told.clear()
    master.disconnect()
    assert told == [("operation_stopped", part) for part in ORDER]


def test_before_the_operation_no_part_works_on_changed_cells(
    world: World, told: list[tuple[str, str]]
) -> None:
    master = world.join()
    world.send_table(master)
    master.send(NotifyPartitionChanges(2, 0, [(0, 2, OUT)]))
    assert not told
