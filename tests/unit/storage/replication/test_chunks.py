"""Chunks of replication: their bounds, and what begins, delays and ends them on both sides."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha1
from typing import Any
from unittest.mock import Mock

import pytest

from neo.protocol.enums import ErrorCode
from neo.protocol.ids import ZERO_HASH, ZERO_OID, ZERO_TID, p64
from neo.protocol.packets import (
    AddObject,
    AddTransaction,
    AnswerFetchObjects,
    AnswerFetchTransactions,
    AnswerUnfinishedTransactions,
    AskFetchObjects,
    AskFetchTransactions,
    AskStoreObject,
    AskUnfinishedTransactions,
    NotifyPartitionChanges,
    NotifyReplicationDone,
    Replicate,
    StopOperation,
)
from neo.storage.backend.api import Record, Transaction
from neo.storage.replication.fetch import Receiver
from tests.unit.storage.replicas import (
    MAX,
    Destination,
    answer,
    fetching,
    full,
    reply,
    storage,
    take_question,
)
from tests.unit.storage.requests import data_of, finish, vote
from tests.unit.storage.upstream import SOURCE, backup, upstream
from tests.unit.storage.world import OUT, UP, End, World, check_refused

# -- destination -----------------------------------------------------------------------------------


def test_a_destination_that_has_more_than_a_chunk_asks_for_a_shorter_range(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list that it sends is complete for the range (specification 10.6)."""
    monkeypatch.setattr("neo.storage.replication.fetch.LENGTH", 2)
    for tid in (12, 16, 20):
        row = Transaction(p64(tid), b"", b"", b"", False, [ZERO_OID], p64(tid))
        world.backend.replication.add_transaction(row)
        data = data_of(tid)
        world.backend.replication.add_object(
            ZERO_OID, Record(p64(tid), None, 0, sha1(data).digest(), data, None)
        )
    node = Destination(world)
    node.unfinished(24)
    source = node.source()
    for range_ in ((0, 16, [12, 16]), (17, 24, [20])):
        m = reply(source, AskFetchTransactions, AnswerFetchTransactions(None, None, []))
        assert (m.min_tid, m.max_tid, m.tid_list) == (*map(p64, range_[:2]), [*map(p64, range_[2])])
    for first, last, here in ((0, 15, [12]), (16, 19, [16]), (20, 24, [20])):
        o = reply(source, AskFetchObjects, AnswerFetchObjects(None, None, None, {}))
        assert (o.min_tid, o.max_tid) == (p64(first), p64(last))
        assert o.object_dict == {p64(tid): [ZERO_OID] for tid in here}
    assert node.master.take(NotifyReplicationDone).max_tid == p64(24)


def test_the_next_chunk_is_asked_for_when_the_one_before_is_durable(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 10.13."""
    node, source = fetching(world)
    message_id, _ = take_question(source, AskFetchTransactions)
    held: list[Callable[[], None]] = []
    monkeypatch.setattr(world.backend.engine, "stored", held.append)
    answer(source, message_id, AnswerFetchTransactions(None, None, []))
    world.wait(lambda: bool(held), "nothing is made durable")
    world.host.advance(5)
    assert not source.inbox
    monkeypatch.undo()
    for callback in held:
        world.backend.engine.stored(callback)
    take_question(source, AskFetchObjects)


def test_a_packed_transaction_of_the_source_says_how_far_packs_went(world: World) -> None:
    """The row itself has no such mark (specification 10.7, 14.14)."""
    node, source = fetching(world)
    message_id, _ = take_question(source, AskFetchTransactions)
    row = AddTransaction(p64(12), b"user", b"note", b"ext", True, p64(10), [p64(0), p64(1)])
    source.connection.send(row, message_id)
    answer(source, message_id, AnswerFetchTransactions(None, None, []))
    take_question(source, AskFetchObjects)
    found = world.backend.reads.transaction(p64(12))
    assert found == Transaction(p64(12), b"user", b"note", b"ext", True, [p64(0), p64(1)], p64(10))
    assert world.backend.tables.get_config("_pack_tid") == "12"
    assert world.backend.engine.read("SELECT packed FROM trans") == [(0,)]


def test_a_cell_that_becomes_out_of_date_during_the_operation_is_replicated(master: End) -> None:
    """Specification 10.14."""
    master.send(NotifyPartitionChanges(2, 0, [(1, 1, OUT), (1, 2, UP)]))
    assert master.take(AskUnfinishedTransactions).offset_list == [1]


def test_replication_ends_with_the_operation(world: World) -> None:
    """Specification 10.28."""
    node, source = fetching(world)
    message_id, _ = take_question(source, AskFetchTransactions)
    node.master.send(StopOperation())
    answer(source, message_id, AnswerFetchTransactions(None, None, []))
    world.settle()
    world.host.advance(5)
    world.settle()
    assert not node.master.inbox and not world.host.dialed
    assert not any(isinstance(m, AskFetchObjects) for _, m in source.inbox)


def test_in_a_backup_the_tail_of_a_cell_is_not_compared(world: World) -> None:
    """Replication goes on after what the cell is complete up to (specification 10.20)."""
    master = backup(world)
    master.send(Replicate(ZERO_TID, "", {0: None, 1: None}))
    master.send(Replicate(p64(12), "up", {0: SOURCE}))
    Destination.serve(upstream(world), 0, 12, {(12, 2): data_of(12)})
    assert master.take(NotifyReplicationDone) == NotifyReplicationDone(0, p64(12))
    master.send(Replicate(p64(14), "", {0: None, 1: None}))
    master.send(NotifyPartitionChanges(2, 0, [(0, 1, OUT), (0, 2, UP)]))
    reply(master, AskUnfinishedTransactions, AnswerUnfinishedTransactions(p64(18), []))
    node = Destination.__new__(Destination)
    node.world = world
    _, m = take_question(node.source(), AskFetchTransactions)
    assert (m.min_tid, m.tid_list) == (p64(14), [])


# -- source ----------------------------------------------------------------------------------------


def test_a_source_sends_no_more_items_than_its_own_bound(
    world: World, master: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 10.6."""
    monkeypatch.setattr("neo.storage.serving.storage.LENGTH_MAX", 1)
    full(world, master)
    peer = storage(world, master, 2)
    found = peer.ask(AskFetchTransactions(0, 1000, ZERO_TID, MAX, []))
    assert found == AnswerFetchTransactions(None, p64(16), [])
    peer.inbox.clear()
    found = peer.ask(AskFetchObjects(0, 1000, ZERO_TID, MAX, ZERO_OID, {}))
    assert found == AnswerFetchObjects(None, p64(12), p64(2), {})


def test_a_deletion_is_sent_without_data(world: World, master: End) -> None:
    """Specification 10.8."""
    full(world, master)
    client = world.client(master)
    deletion = AskStoreObject(p64(4), p64(16), 0, ZERO_HASH, b"", None, p64(20))
    assert client.ask(deletion).locked is None
    vote(client, 20, 4)
    finish(master, 20, 22)
    peer = storage(world, master, 2)
    peer.ask(AskFetchObjects(0, 1000, p64(17), MAX, ZERO_OID, {}))
    assert peer.take(AddObject) == AddObject(p64(4), p64(22), 0, ZERO_HASH, b"", None)


def test_a_source_that_loses_the_cell_in_a_chunk_refuses_the_rest(
    world: World, master: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 10.12."""
    monkeypatch.setattr("neo.storage.serving.storage.STEP_LENGTH", 1)
    full(world, master)
    peer = storage(world, master, 2)
    answers = peer.ask_later(AskFetchObjects(0, 1000, ZERO_TID, MAX, ZERO_OID, {}))
    assert len(peer.inbox) == 1 and not answers
    master.send(NotifyPartitionChanges(2, 0, [(0, 1, OUT), (0, 2, UP)]))
    world.wait(lambda: bool(answers), "the chunk does not end")
    check_refused(answers[0], ErrorCode.REPLICATION_ERROR)
    assert len(peer.inbox) == 1


def test_a_fetch_that_ends_with_what_it_is_given_does_not_keep_it_from_others() -> None:
    given: list[str] = []

    class Fetch:
        def __init__(self, name: str, ends: bool) -> None:
            self.source, self.name, self.ends = source, name, ends

        def add(self, message: AddTransaction) -> None:
            given.append(self.name)
            if self.ends:
                del receiver.fetches[self]

    source: Any = object()
    receiver: Any = Receiver(*[Mock()] * 5)
    receiver.fetches |= dict.fromkeys([Fetch("failing", True), Fetch("other", False)])
    receiver.add(source, AddTransaction(p64(1), b"", b"", b"", False, p64(1), []))
    assert given == ["failing", "other"]
