"""A storage node as source of replication (specification 10)."""

from __future__ import annotations

import pytest

from neo.protocol.enums import ErrorCode
from neo.protocol.ids import ZERO_OID, ZERO_TID, p64
from neo.protocol.packets import (
    AddObject,
    AddTransaction,
    AnswerFetchObjects,
    AnswerFetchTransactions,
    AskCheckTIDRange,
    AskFetchObjects,
    AskFetchPrepared,
    AskFetchTransactions,
    AskLockInformation,
    NotifyUnlockInformation,
)
from tests.unit.storage.replicas import MAX, full, storage
from tests.unit.storage.requests import data_of, voted
from tests.unit.storage.world import OUT, UP, End, World, check_refused


def test_sends_transactions_that_the_destination_has_not(world: World, master: End) -> None:
    """Specification 2.21, 10.2, 10.5, 10.7."""
    full(world, master)
    peer = storage(world, master, 2)
    found = peer.ask(AskFetchTransactions(0, 1000, ZERO_TID, MAX, [p64(14), p64(16)]))
    assert peer.take(AddTransaction) == AddTransaction(
        p64(12), b"user", b"note", b"ext", False, p64(10), [p64(0), p64(1), p64(2)]
    )
    assert not peer.inbox
    assert found == AnswerFetchTransactions(None, None, [p64(14)])


def test_sends_objects_by_tid_and_oid(world: World, master: End) -> None:
    """Specification 10.3, 10.5."""
    full(world, master)
    peer = storage(world, master, 2)
    known = {p64(12): [p64(2), p64(8)]}
    found = peer.ask(AskFetchObjects(0, 1000, ZERO_TID, MAX, ZERO_OID, known))
    sent = [(m.tid, m.oid, m.data) for _, m in peer.inbox]
    assert sent == [
        (p64(12), p64(0), data_of(10)),
        (p64(16), p64(2), data_of(14)),
        (p64(16), p64(4), data_of(14)),
    ]
    assert found == AnswerFetchObjects(None, None, None, {p64(12): [p64(8)]})


def test_chunks_end_at_their_length(world: World, master: End) -> None:
    """Specification 10.4, 10.5."""
    full(world, master)
    peer = storage(world, master, 2)
    found = peer.ask(AskFetchTransactions(0, 1, ZERO_TID, MAX, [p64(20)]))
    assert found == AnswerFetchTransactions(None, p64(16), [])  # 20 is for the next chunk
    peer.inbox.clear()
    found = peer.ask(AskFetchObjects(0, 2, ZERO_TID, MAX, ZERO_OID, {}))
    assert found == AnswerFetchObjects(None, p64(16), p64(2), {})
    peer.inbox.clear()
    found = peer.ask(AskFetchObjects(0, 2, p64(16), MAX, p64(2), {}))
    assert [m.oid for _, m in peer.inbox] == [p64(2), p64(4)]
    assert found == AnswerFetchObjects(None, None, None, {})


def test_chunks_end_when_they_are_big(
    world: World, master: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 10.6."""
    monkeypatch.setattr("neo.storage.serving.storage.BUFFER_BYTES", 1)
    monkeypatch.setattr("neo.storage.serving.storage.CHUNK_BYTES", 1)
    full(world, master)
    peer = storage(world, master, 2)
    found = peer.ask(AskFetchObjects(0, 1000, ZERO_TID, MAX, ZERO_OID, {}))
    assert len(peer.inbox) == 1
    assert found == AnswerFetchObjects(None, p64(12), p64(2), {})


@pytest.mark.parametrize("partition", [1, 7])
def test_what_cannot_be_read_is_not_sent_and_not_compared(world: World, partition: int) -> None:
    """Specification 10.10, 11.6."""
    master = world.operate([[(1, UP)], [(1, OUT), (3, UP)]])
    peer = storage(world, master, 2)
    for question, code in (
        (AskFetchTransactions(partition, 1000, ZERO_TID, MAX, []), ErrorCode.REPLICATION_ERROR),
        (AskFetchPrepared(partition, []), ErrorCode.REPLICATION_ERROR),
        (AskCheckTIDRange(partition, 9, ZERO_TID, MAX), ErrorCode.CHECKING_ERROR),
    ):
        check_refused(peer.ask(question), code)


def test_a_source_waits_for_transactions_that_are_locked(world: World, master: End) -> None:
    """Specification 10.11."""
    client = world.client(master)
    voted(client, 10, 0)
    master.ask(AskLockInformation(p64(10), p64(12)))
    peer = storage(world, master, 2)
    answers = peer.ask_later(AskFetchObjects(0, 1000, ZERO_TID, p64(12), ZERO_OID, {}))
    world.settle()
    assert not answers and not peer.inbox
    master.send(NotifyUnlockInformation(p64(10)))
    world.wait(lambda: bool(answers), "the source does not go on")
    assert peer.take(AddObject).tid == p64(12)
