"""What a storage node refuses, or accepts and forgets, of transactions that cannot commit here."""

from __future__ import annotations

import pytest

from neo.protocol.enums import CellState, ErrorCode
from neo.protocol.ids import ZERO_TID, p64
from neo.protocol.packets import (
    AskCheckCurrentSerial,
    AskRebaseTransaction,
    AskVoteTransaction,
    NotifyDeadlock,
    NotifyPartitionChanges,
)
from neo.storage.commit import locks
from tests.unit.storage.lock_node import LockNode, tid
from tests.unit.storage.requests import store, store_request
from tests.unit.storage.world import DISCARDED, UP, End, World, refused


def test_a_conflict_that_the_node_cannot_tell_any_more_fails_the_transaction(
    world: World, master: End, client: End, other: End
) -> None:
    """Specification 7.21, 8.24."""
    store(client, 10, 1)
    store(other, 12, 3)
    other.ask_later(store_request(12, 1))
    client.ask_later(store_request(10, 3))
    master.take(NotifyDeadlock)
    master.send(NotifyPartitionChanges(2, 0, [(1, 1, DISCARDED), (1, 2, UP)]))
    for message in AskRebaseTransaction(p64(10), p64(20)), AskVoteTransaction(p64(10)):
        code, _ = refused(client.ask(message))
        assert code == ErrorCode.INCOMPLETE_TRANSACTION.value
    assert not client.closed


def test_a_corrupted_cell_ignores_stores_and_checks(world: World) -> None:
    """Specification 8.11."""
    master = world.operate([[(1, CellState.CORRUPTED), (2, UP)], [(1, UP)]])
    client = world.client(master)
    assert store(client, 10, 0) == ZERO_TID
    assert client.ask(AskCheckCurrentSerial(p64(10), p64(2), p64(5))).locked == ZERO_TID
    assert world.backend.values.pending == {}


def test_transactions_that_the_master_aborted_are_remembered_within_a_bound(
    node: LockNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 7.44."""
    monkeypatch.setattr(locks, "ABORTED_MAX", 2)
    for number in 1, 2, 3:
        node.do(f"{'ABC'[number - 1]}{number}")
        node.locks.abort(tid(number), None)
    assert node.do("D1", "D2", "D3") == {"D1": None, "D2": ZERO_TID, "D3": ZERO_TID}


def test_transactions_that_the_master_aborted_are_forgotten_with_their_connection(
    node: LockNode,
) -> None:
    """Specification 7.44: no late store can come, and the same tid may be imposed again."""
    node.do("A1", "B2")
    for number in 1, 2:
        node.locks.abort(tid(number), None)
    node.locks.connection_lost(node.client(1))
    assert node.do("A1", "B2") == {"A1": None, "B2": ZERO_TID}
    node.locks.client_down(2)
    assert node.do("B2") == {"B2": None}
