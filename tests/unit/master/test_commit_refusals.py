"""Messages about transactions that the coordinator refuses or ignores."""

from __future__ import annotations

import pytest

from neo.protocol.enums import ErrorCode
from neo.protocol.packets import (
    AbortTransaction,
    AskBeginTransaction,
    AskFinishTransaction,
    NotifyDeadlock,
)
from tests.support.remote import error_of
from tests.unit.master.cluster import MasterWorld, tid
from tests.unit.master.committing import begin, lock


def test_a_tid_is_not_imposed_twice_at_the_same_time(world: MasterWorld) -> None:
    """Specification 7.5."""
    world.running(1)
    client, other = world.client(), world.client()
    imposed = begin(client, tid(12345))
    error = error_of(other.ask(AskBeginTransaction(imposed)))
    assert error.code is ErrorCode.PROTOCOL_ERROR and "already running" in error.message
    assert not client.closed and not other.closed
    assert world.master.coordinator.transactions.ttids() == [imposed]


@pytest.mark.parametrize(
    "again", [AbortTransaction(tid(12345), []), AskFinishTransaction(tid(12345), [], [])]
)
def test_what_is_being_finished_is_no_business_of_the_client_any_more(
    world: MasterWorld, again: AbortTransaction | AskFinishTransaction
) -> None:
    """Specification 7.42, 7.45."""
    (storage,) = world.running(1)
    client = world.client()
    client.ask(AskFinishTransaction(begin(client, tid(12345)), [], []))
    client.send(again)
    assert client.closed and "finish" in client.complaint
    assert not storage.has(AbortTransaction)
    assert lock(storage).tid == tid(12345)
    assert world.master.cluster.last_tid == tid(12345)


def test_a_deadlock_of_a_transaction_that_waits_for_nothing_any_more_is_ignored(
    world: MasterWorld,
) -> None:
    """Specification 8.15."""
    (storage,) = world.running(1)
    client = world.client()
    ttid = begin(client)
    storage.send(NotifyDeadlock(tid(7), tid(7)))  # unknown: aborted meanwhile
    client.ask(AskFinishTransaction(ttid, [], []))
    storage.send(NotifyDeadlock(ttid, ttid))
    assert not client.has(NotifyDeadlock)
    assert not storage.closed and not client.closed
