"""Undos to what a source packed away equal the source (neo.storage.replication.replica_delete)."""

from __future__ import annotations

from hashlib import sha1

from neo.protocol.enums import CellState
from neo.protocol.ids import ZERO_HASH, ZERO_TID, p64
from neo.protocol.packets import (
    AddObject,
    AnswerFetchObjects,
    AnswerFetchTransactions,
    AskFetchObjects,
    AskFetchTransactions,
    AskStoreObject,
    NotifyPartitionChanges,
    NotifyReplicationDone,
)
from tests.unit.storage.packing import full, returned, rows, state
from tests.unit.storage.replicas import Destination, answer, reply, take_question
from tests.unit.storage.requests import data_of, finish, store, vote
from tests.unit.storage.world import UP, End, World


def undo(world: World, master: End) -> None:
    """Vote a transaction 28 that goes back to 12, which is here with its data."""
    client = world.client(master)
    request = AskStoreObject(p64(0), p64(16), 0, ZERO_HASH, b"", p64(12), p64(28))
    assert client.ask(request).locked == ZERO_TID
    vote(client, 28, 0)


def add(source: End, message_id: int, tid: int, data_serial: int | None) -> None:
    data = data_of(10)
    serial = None if data_serial is None else p64(data_serial)
    row = AddObject(p64(0), p64(tid), 0, sha1(data).digest(), data, serial)
    source.connection.send(row, message_id)


def packed_round(source: End, tid: int = 20) -> None:
    """20 went back to 12 as well, and has become the first one with this data: 12 is packed away."""
    state(source, tid)
    reply(source, AskFetchTransactions, AnswerFetchTransactions(None, None, []))
    message_id, m = take_question(source, AskFetchObjects)
    assert m.min_tid == ZERO_TID
    if p64(20) not in m.object_dict:
        add(source, message_id, 20, None)
    deleted = {p64(12): [p64(0)]} if p64(12) in m.object_dict else {}
    answer(source, message_id, AnswerFetchObjects(None, None, None, deleted))


def undo_fetched(source: End, tid: int = 20) -> None:
    state(source, tid)
    message_id, m = take_question(source, AskFetchObjects)
    assert (m.min_tid, m.max_tid, m.object_dict) == (p64(30), p64(30), {})
    add(source, message_id, 30, 20)
    answer(source, message_id, AnswerFetchObjects(None, None, None, {}))
    state(source, tid)


def assert_replicated(world: World, node: Destination) -> None:
    assert node.master.take(NotifyReplicationDone).max_tid == p64(24)
    record = world.backend.reads.load(p64(0), p64(30), None)
    assert record is not None
    assert (record.data, record.data_serial) == (data_of(10), p64(20))


def test_an_undo_goes_back_to_the_revision_that_a_pack_of_the_source_chose(world: World) -> None:
    node, source = returned(world)
    undo(world, node.master)
    finish(node.master, 28, 30)
    packed_round(source)
    state(source, 20)
    undo_fetched(source)
    assert_replicated(world, node)


def test_a_revision_that_is_being_undone_to_goes_when_the_undo_has_ended(world: World) -> None:
    node, source = returned(world)
    undo(world, node.master)
    packed_round(source)
    world.settle()
    world.host.advance(1)
    assert rows(world, 0) == [(12, 0), (16, 0), (20, 0)]
    finish(node.master, 28, 30)
    world.host.advance(1)
    state(source, 20)
    undo_fetched(source)
    assert_replicated(world, node)


def test_when_the_source_is_packed_again_before_an_undo_is_fetched_all_is_compared(
    world: World,
) -> None:
    node, source = returned(world)
    undo(world, node.master)
    finish(node.master, 28, 30)
    packed_round(source)
    state(source, 20)
    state(source, 21)
    packed_round(source, 21)
    state(source, 21)
    undo_fetched(source, 21)
    assert_replicated(world, node)
    assert world.core.packer.packed(0) == 21


def test_an_undo_that_had_its_data_from_a_corrupted_cell_gets_it_from_the_source(
    world: World, master: End
) -> None:
    full(world, master, 0)
    master.send(NotifyPartitionChanges(2, 0, [(0, 2, UP), (0, 1, CellState.CORRUPTED)]))
    world.settle()
    world.host.advance(5)
    master.disconnect()
    node = Destination(world, ptid=3)
    node.unfinished(24)
    undo(world, node.master)
    finish(node.master, 28, 30)
    node.serve(node.source(), 0, 24, {(12, 0): b"right", (16, 0): b"b"})
    assert node.master.take(NotifyReplicationDone).max_tid == p64(24)
    record = world.backend.reads.load(p64(0), p64(30), None)
    assert record is not None
    assert record.data == b"right"


def test_what_is_packed_with_an_undo_at_the_source_stays_until_it_is_packed_here(
    world: World,
) -> None:
    """30 undoes in one object, and deletes another one, of which 26 would come back without that."""
    node, source = returned(world)
    client = world.client(node.master)
    for oid in (2, 4):
        assert store(client, 25, oid) == ZERO_TID
    vote(client, 25, 2, 4)
    finish(node.master, 25, 26)
    for oid, serial, data_serial in ((0, 16, p64(12)), (2, 26, None)):
        request = AskStoreObject(p64(oid), p64(serial), 0, ZERO_HASH, b"", data_serial, p64(28))
        assert client.ask(request).locked == ZERO_TID
    vote(client, 28, 0, 2)
    finish(node.master, 28, 30)
    state(source, 32)
    reply(source, AskFetchTransactions, AnswerFetchTransactions(None, None, []))
    message_id, m = take_question(source, AskFetchObjects)
    assert m.object_dict == {p64(12): [p64(0)], p64(16): [p64(0)]}
    answer(source, message_id, AnswerFetchObjects(None, None, None, m.object_dict))
    state(source, 32)
    state(source, 32)
    message_id, m = take_question(source, AskFetchObjects)
    assert (m.min_tid, m.max_tid, m.object_dict) == (p64(30), p64(30), {p64(30): [p64(2)]})
    add(source, message_id, 30, None)
    answer(source, message_id, AnswerFetchObjects(None, None, None, m.object_dict))
    state(source, 32)
    assert node.master.take(NotifyReplicationDone).max_tid == p64(24)
    assert rows(world, 0) == [(26, 2), (26, 4), (30, 0), (30, 2)]
    node.master.send(NotifyPartitionChanges(3, 0, [(0, 1, UP)]))
    world.wait(lambda: world.core.packer.packed(0) == 32, "the cell is packed")
    assert rows(world, 0) == [(26, 4), (30, 0)]
