"""The mirror of the master's tables, and the messages that it refuses."""

from __future__ import annotations

import pytest

from neo.protocol.enums import CellState, NodeState, NodeType
from neo.protocol.errors import PeerError
from neo.protocol.packets import NotifyNodeInformation, NotifyPartitionChanges, SendPartitionTable
from neo.topology.mirror import Mirror, TableMessage, check_changes

UP, OUT, DISCARDED = CellState.UP_TO_DATE, CellState.OUT_OF_DATE, CellState.DISCARDED
MASTER = ("127.0.0.1", 2000)


@pytest.fixture
def mirror() -> Mirror:
    mirror = Mirror()
    mirror.apply(SendPartitionTable(4, 1, [[(1, UP)], [(1, UP), (2, OUT)]]))
    return mirror


def test_messages_are_applied_in_order(mirror: Mirror) -> None:
    """Specification 1.13, 1.14."""
    mirror.apply(NotifyPartitionChanges(5, 0, [(0, 2, OUT), (1, 2, DISCARDED)]))
    table = mirror.partitions
    assert (table.ptid, table.replicas, table.rows) == (5, 0, [{1: UP, 2: OUT}, {1: UP}])
    mirror.apply(NotifyNodeInformation(7.0, [(NodeType.MASTER, MASTER, None, NodeState.DOWN, None)]))
    assert mirror.nodes.addresses(NodeType.MASTER) == [MASTER]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (NotifyPartitionChanges(5, 1, [(0, 2, UP), (2, 1, UP)]), "2 rows, none of partition 2"),
        (NotifyPartitionChanges(5, 1, [(0, 2, UP), (-1, 1, UP)]), "2 rows, none of partition -1"),
        (NotifyPartitionChanges(3, 1, [(0, 2, UP)]), "3 does not follow 4"),
        (NotifyPartitionChanges(6, 1, [(0, 2, UP)]), "6 does not follow 4"),
        (SendPartitionTable(5, 1, [[(1, UP)], [(1, DISCARDED)]]), "has a DISCARDED cell"),
    ],
)
def test_impossible_messages_change_nothing(
    mirror: Mirror, message: TableMessage, reason: str
) -> None:
    """Specification 9.4."""
    before = mirror.partitions.ptid, mirror.partitions.changes()
    with pytest.raises(PeerError, match=reason):
        mirror.apply(message)
    assert (mirror.partitions.ptid, mirror.partitions.changes()) == before


def test_a_message_may_be_repeated(mirror: Mirror) -> None:
    for _ in range(2):
        mirror.apply(NotifyPartitionChanges(5, 1, [(0, 2, OUT), (1, 2, DISCARDED)]))
        assert mirror.partitions.rows == [{1: UP, 2: OUT}, {1: UP}]
    with pytest.raises(PeerError, match="5 does not follow 5"):
        check_changes(mirror.partitions, NotifyPartitionChanges(5, 1, []))


def test_changes_need_a_table() -> None:
    with pytest.raises(PeerError, match="1 does not follow None"):
        Mirror().apply(NotifyPartitionChanges(1, 0, []))
