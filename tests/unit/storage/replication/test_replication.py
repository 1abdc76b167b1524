"""A storage node as destination of replication (specification 10)."""

from __future__ import annotations

from hashlib import sha1

import pytest

from neo.protocol.enums import ErrorCode
from neo.protocol.ids import ZERO_HASH, ZERO_OID, ZERO_TID, p64
from neo.protocol.packets import (
    AbortTransaction,
    AddObject,
    AddTransaction,
    AnswerFetchObjects,
    AnswerFetchTransactions,
    AskFetchObjects,
    AskFetchTransactions,
    AskStoreObject,
    CloseClient,
    Error,
    NotifyPartitionChanges,
    NotifyReplicationDone,
    NotifyTransactionFinished,
)
from neo.storage.backend.api import BackendFailure, Record, Transaction
from tests.unit.storage.replicas import MAX, Destination, answer, fetching, reply, take_question
from tests.unit.storage.requests import commit, data_of, finish, load, store, vote
from tests.unit.storage.world import C2, DISCARDED, OUT, UP, End, MakeWorld, World, check_refused


def test_a_cell_is_fetched_then_announced_then_read(world: World) -> None:
    """Specification 10.1, 10.26."""
    node, source = fetching(world)
    node.serve(source, 0, 12, {(12, 0): b"a", (12, 2): None})
    assert node.master.take(NotifyReplicationDone) == NotifyReplicationDone(0, p64(12))
    assert source.take(CloseClient) == CloseClient()
    client = world.client(node.master)
    check_refused(load(client, 0), ErrorCode.NON_READABLE_CELL)
    node.master.send(NotifyPartitionChanges(2, 0, [(0, 1, UP)]))
    assert load(client, 0).data == b"a"
    assert load(client, 2).compression is None
    assert store(client, 14, 0, 9) == p64(12)  # a conflict: locking is back to normal


def test_the_last_round_follows_the_last_unfinished_transaction(world: World) -> None:
    """Specification 10.17."""
    node = Destination(world)
    node.unfinished(12, 14, 15)
    source = node.source()
    node.serve(source, 0, 12, {(12, 0): b"a"})
    node.master.send(AbortTransaction(p64(15), []))
    world.settle()
    assert not node.master.inbox and not source.inbox
    node.master.send(NotifyTransactionFinished(p64(14), p64(16)))
    node.serve(source, 13, 16, {(16, 2): b"b"})
    assert node.master.take(NotifyReplicationDone) == NotifyReplicationDone(0, p64(16))


def test_a_transaction_with_an_imposed_tid_is_not_passed(world: World) -> None:
    """It may be less than that of the last one that is committed (specification 10.19)."""
    node = Destination(world)
    node.unfinished(12, 9)
    source = node.source()
    node.serve(source, 0, 12, {(12, 0): b"a"})
    node.master.send(NotifyTransactionFinished(p64(9), p64(9)))
    node.serve(source, 9, 12, {(9, 2): b"b"})
    assert node.master.take(NotifyReplicationDone) == NotifyReplicationDone(0, p64(12))


def test_stores_are_accepted_blindly_and_held_together_when_the_cell_is_complete(
    world: World,
) -> None:
    """Specification 8.12, 8.13, 10.25, 10.26."""
    node = Destination(world)
    one, two = world.client(node.master), world.client(node.master, C2)
    assert store(one, 20, 0, 5) == ZERO_TID
    assert store(two, 21, 0, 5) == ZERO_TID
    node.unfinished(12)
    node.serve(node.source(), 0, 12, {(12, 0): b"a"})
    world.wait(lambda: bool(world.core.locks.shared()), "the cell is not complete")
    assert not node.master.inbox  # both hold it
    one.send(AbortTransaction(p64(20), []))
    world.host.advance(1)
    assert node.master.take(NotifyReplicationDone) == NotifyReplicationDone(0, p64(12))


@pytest.mark.parametrize("packed", [False, True])
def test_a_blind_undo_of_what_the_source_has_packed_away_is_fetched_with_its_data(
    world: World, packed: bool
) -> None:
    """``packed``: the source has packed the undo itself, too (specification 7.13, 10.24)."""
    node = Destination(world)
    node.unfinished(12)
    client = world.client(node.master)
    undo = AskStoreObject(p64(0), p64(12), 0, ZERO_HASH, b"", p64(10), p64(20))
    assert client.ask(undo).locked == ZERO_TID
    vote(client, 20, 0)
    finish(node.master, 20, 22)
    source = node.source()
    node.serve(source, 0, 12, {(12, 0): b"later"})
    message_id, m = take_question(source, AskFetchObjects)
    assert (m.min_tid, m.max_tid, m.object_dict) == (p64(22), p64(22), {})
    if not packed:
        row = AddObject(p64(0), p64(22), 0, sha1(b"undone").digest(), b"undone", p64(10))
        source.connection.send(row, message_id)
    answer(source, message_id, AnswerFetchObjects(None, None, None, {}))
    assert node.master.take(NotifyReplicationDone) == NotifyReplicationDone(0, p64(12))
    node.master.send(NotifyPartitionChanges(2, 0, [(0, 1, UP)]))
    assert load(client, 0).data == (b"later" if packed else b"undone")


def test_an_undo_that_goes_back_to_one_that_the_source_has_packed_is_fetched_anew(
    world: World,
) -> None:
    """It has data here, from the one that is gone; at the source it was made the origin
    (specification 10.24)."""
    node = Destination(world)
    node.unfinished(12)
    client = world.client(node.master)
    world.backend.replication.add_object(p64(0), Record(p64(8), None, 0, sha1(b"a").digest(), b"a", None))
    for ttid, base, data_serial in ((20, 12, 8), (24, 22, 22)):
        undo = AskStoreObject(p64(0), p64(base), 0, ZERO_HASH, b"", p64(data_serial), p64(ttid))
        assert client.ask(undo).locked == ZERO_TID
        vote(client, ttid, 0)
        finish(node.master, ttid, ttid + 2)
    source = node.source()
    reply(source, AskFetchTransactions, AnswerFetchTransactions(None, None, []))
    o = reply(source, AskFetchObjects, AnswerFetchObjects(None, None, None, {p64(8): [ZERO_OID]}))
    assert o.object_dict == {p64(8): [ZERO_OID]}
    o = reply(source, AskFetchObjects, AnswerFetchObjects(None, None, None, {}))
    assert (o.min_tid, o.max_tid) == (p64(22), p64(22))
    message_id, o = take_question(source, AskFetchObjects)
    assert (o.min_tid, o.max_tid, o.object_dict) == (p64(26), p64(26), {})
    row = AddObject(p64(0), p64(26), 0, sha1(b"a").digest(), b"a", None)
    source.connection.send(row, message_id)
    answer(source, message_id, AnswerFetchObjects(None, None, None, {}))
    assert node.master.take(NotifyReplicationDone) == NotifyReplicationDone(0, p64(12))
    found = world.backend.replication.objects_ascending(0, ZERO_TID, ZERO_OID, MAX, 10)
    assert found == [(p64(26), ZERO_OID)]
    node.master.send(NotifyPartitionChanges(2, 0, [(0, 1, UP)]))
    assert (load(client, 0).data, load(client, 0).data_serial) == (b"a", None)


def test_what_was_voted_without_being_ready_is_dropped_at_the_end(world: World) -> None:
    """The master does not ask to lock it; replication brings it (specification 10.16)."""
    node = Destination(world)
    client = world.client(node.master)
    assert store(client, 10, 0) == ZERO_TID
    vote(client, 10, 0)
    node.unfinished(8, 10)
    source = node.source()
    node.serve(source, 0, 8, {})
    node.master.send(NotifyTransactionFinished(p64(10), p64(12)))
    node.serve(source, 9, 12, {(12, 0): data_of(10)})
    assert node.master.take(NotifyReplicationDone).max_tid == p64(12)
    assert world.backend.commits.locked_transactions() == {}


def restarted(world: World, make_world: MakeWorld, ptid: int, last: int) -> Destination:
    """The same database in another process."""
    world.settle()
    world.close()
    node = Destination(make_world(), ptid)
    node.unfinished(last)
    return node


def test_goes_on_where_it_was_after_a_restart(make_world: MakeWorld, world: World) -> None:
    """Specification 10.19."""
    node = Destination(world)
    node.unfinished(12, 14)
    node.serve(node.source(), 0, 12, {(12, 0): b"a"})
    world.settle()
    world.wait(lambda: world.backend.tables.cells()[0].tid == 12, "progress is not remembered")
    node = restarted(world, make_world, ptid=2, last=16)
    world = node.world
    source = node.source()
    node.serve(source, 12, 16, {(16, 0): b"b"})
    assert node.master.take(NotifyReplicationDone).max_tid == p64(16)
    node.master.send(NotifyPartitionChanges(3, 0, [(0, 1, UP)]))
    client = world.client(node.master)
    assert [load(client, 0, at).data for at in (12, 16)] == [b"a", b"b"]


def test_a_node_that_was_complete_fetches_only_what_it_missed(world: World, master: End) -> None:
    commit(master, world.client(master), 10, 12, 0)
    world.host.advance(5)
    master.disconnect()
    node = Destination(world, ptid=2)
    node.unfinished(16)
    source = node.source()
    node.serve(source, 12, 16, {(16, 0): b"b"})
    assert node.master.take(NotifyReplicationDone).max_tid == p64(16)


def given_up(world: World, last: int) -> Destination:
    """The node alone has 12, 16 and 20, of partition 0; the cluster began without it, with ``last``."""
    master = world.operate()
    client = world.client(master)
    for ttid, tid in ((10, 12), (14, 16), (18, 20)):
        commit(master, client, ttid, tid, 0, tid - 4 if ttid > 10 else 0)
    world.host.advance(5)
    master.disconnect()
    node = Destination(world, ptid=2)
    node.unfinished(last)
    return node


def test_what_the_cluster_gave_up_is_deleted_though_it_is_later_than_all(world: World) -> None:
    """Specification 10.21."""
    node = given_up(world, last=12)
    node.serve(node.source(), 0, 12, {(12, 0): data_of(10)})
    assert node.master.take(NotifyReplicationDone).max_tid == p64(12)
    world.settle()
    assert [p64(12)] == world.backend.reads.tids_ascending(ZERO_TID, MAX, 10, 0)
    rows = world.backend.replication.objects_ascending(0, ZERO_TID, ZERO_OID, MAX, 10)
    assert rows == [(p64(12), ZERO_OID)]


def test_what_the_cluster_gave_up_is_found_when_it_went_on_without_it(world: World) -> None:
    """All is compared, since the source has not what is last here (specification 10.22)."""
    node = given_up(world, last=24)
    source = node.source()
    m = reply(source, AskFetchTransactions, AnswerFetchTransactions(None, None, [p64(20)]))
    assert (m.min_tid, m.tid_list) == (p64(20), [p64(20)])
    gone = {p64(20): [ZERO_OID]}
    o = reply(source, AskFetchObjects, AnswerFetchObjects(None, None, None, gone))
    assert o.object_dict == {p64(20): [ZERO_OID]}
    m = reply(source, AskFetchTransactions, AnswerFetchTransactions(None, None, [p64(16)]))
    assert (m.min_tid, m.tid_list) == (ZERO_TID, [p64(12), p64(16)])
    o = reply(source, AskFetchObjects, AnswerFetchObjects(None, None, None, {p64(16): [ZERO_OID]}))
    assert o.object_dict == {p64(12): [ZERO_OID], p64(16): [ZERO_OID]}
    assert node.master.take(NotifyReplicationDone).max_tid == p64(24)
    assert [p64(12)] == world.backend.reads.tids_ascending(ZERO_TID, MAX, 10, 0)
    rows = world.backend.replication.objects_ascending(0, ZERO_TID, ZERO_OID, MAX, 10)
    assert rows == [(p64(12), ZERO_OID)]


def compares_everything(source: End) -> None:
    """The source is asked from the beginning."""
    _, m = take_question(source, AskFetchTransactions)
    assert (m.min_tid, m.tid_list) == (ZERO_TID, [p64(12), p64(16)])


def refuse_what_is_last(source: End) -> None:
    """The source has neither the transaction 20 nor its object. Then it is lost."""
    m = reply(source, AskFetchTransactions, AnswerFetchTransactions(None, None, [p64(20)]))
    assert m.tid_list == [p64(20)]
    gone = {p64(20): [ZERO_OID]}
    reply(source, AskFetchObjects, AnswerFetchObjects(None, None, None, gone))
    compares_everything(source)
    source.disconnect()


def test_what_the_cluster_gave_up_is_found_though_the_source_was_lost_meanwhile(
    world: World,
) -> None:
    """What was last here is deleted by then, and tells nothing any more."""
    node = given_up(world, last=24)
    refuse_what_is_last(node.source())
    world.host.advance(1)
    compares_everything(node.source())


def test_what_the_cluster_gave_up_is_found_after_a_restart_in_the_middle(
    make_world: MakeWorld, world: World
) -> None:
    """Specification 10.22."""
    refuse_what_is_last(given_up(world, last=24).source())
    compares_everything(restarted(world, make_world, ptid=3, last=24).source())


def test_what_is_cut_off_and_what_is_before_it_is_compared_after_a_restart(
    make_world: MakeWorld, world: World
) -> None:
    """16 is not later than what the cluster went on with, but it gave that up, too."""
    compares_everything(given_up(world, last=16).source())
    compares_everything(restarted(world, make_world, ptid=3, last=24).source())


def test_a_cell_that_is_complete_beyond_its_last_transaction_begins_with_that(
    make_world: MakeWorld, world: World
) -> None:
    """Only there the source can show whether the cluster gave up what is here."""
    node = Destination(world)
    node.unfinished(12, 14)
    node.serve(node.source(), 0, 12, {(8, 0): b"a"})
    world.wait(lambda: world.backend.tables.cells()[0].tid == 12, "progress is not remembered")
    node = restarted(world, make_world, ptid=2, last=16)
    _, m = take_question(node.source(), AskFetchTransactions)
    assert (m.min_tid, m.tid_list) == (p64(8), [p64(8)])


def test_damaged_data_is_not_kept_and_fetched_again(world: World) -> None:
    """Specification 10.9."""
    node, source = fetching(world)
    reply(source, AskFetchTransactions, AnswerFetchTransactions(None, None, []))
    message_id, _ = take_question(source, AskFetchObjects)
    source.connection.send(AddObject(p64(0), p64(12), 0, b"?" * 20, b"a", None), message_id)
    answer(source, message_id, AnswerFetchObjects(None, None, None, {}))
    world.settle()
    assert not world.backend.reads.object_exists(p64(0))
    assert not node.master.inbox
    world.host.advance(1)
    node.serve(source, 0, 12, {(12, 0): b"a"})
    assert node.master.take(NotifyReplicationDone).max_tid == p64(12)


def test_a_source_that_cannot_serve_is_asked_again(world: World) -> None:
    """Specification 10.18."""
    node, source = fetching(world)
    reply(source, AskFetchTransactions, Error(ErrorCode.REPLICATION_ERROR.value, "not here"))
    source.disconnect()
    world.host.advance(1)
    node.serve(node.source(), 0, 12, {})
    assert node.master.take(NotifyReplicationDone).max_tid == p64(12)


def test_a_cell_that_cannot_be_fetched_does_not_keep_others_waiting(world: World) -> None:
    """Time stands still until the second cell is there (specification 10.18, 10.30)."""
    node = Destination(world, rows=[[(1, OUT), (2, UP)], [(1, OUT), (2, UP)]])
    node.unfinished(12, partitions=[0, 1])
    source = node.source()
    refusal = Error(ErrorCode.REPLICATION_ERROR.value, "not here")
    m = reply(source, AskFetchTransactions, refusal)
    assert m.partition == 0
    node.serve(source, 0, 12, {(12, 1): b"b"}, partition=1)
    assert node.master.take(NotifyReplicationDone) == NotifyReplicationDone(1, p64(12))
    assert not source.inbox, "the first cell is tried again without a pause"
    world.host.advance(1)
    node.serve(source, 0, 12, {(12, 0): b"a"})
    assert node.master.take(NotifyReplicationDone) == NotifyReplicationDone(0, p64(12))


def test_a_cell_that_fails_again_is_tried_after_the_others(world: World) -> None:
    """Specification 10.30."""
    node = Destination(world, rows=[[(1, OUT), (2, UP)], [(1, OUT), (2, UP)]])
    node.unfinished(12, partitions=[0, 1])
    source = node.source()
    for partition in (0, 1, 0, 1):
        message_id, m = take_question(source, AskFetchTransactions)
        assert m.partition == partition
        world.host.advance(1)  # the source takes long to refuse
        answer(source, message_id, Error(ErrorCode.REPLICATION_ERROR.value, "not here"))
    world.settle()
    assert [m.partition for _, m in source.inbox] == [0]


def test_a_cell_that_is_taken_away_is_not_announced(world: World) -> None:
    """Specification 10.28."""
    node, source = fetching(world)
    message_id, _ = take_question(source, AskFetchTransactions)
    node.master.send(NotifyPartitionChanges(2, 0, [(0, 1, DISCARDED)]))
    answer(source, message_id, AnswerFetchTransactions(None, None, []))
    reply(source, AskFetchObjects, AnswerFetchObjects(None, None, None, {}))
    world.settle()
    world.host.advance(5)
    world.settle()
    assert not any(isinstance(m, NotifyReplicationDone) for _, m in node.master.inbox)


def test_what_comes_for_a_cell_that_was_taken_away_is_dropped(world: World) -> None:
    """The eraser may have been there already."""
    node, source = fetching(world)
    reply(source, AskFetchTransactions, AnswerFetchTransactions(None, None, []))
    message_id, _ = take_question(source, AskFetchObjects)
    node.master.send(NotifyPartitionChanges(2, 0, [(0, 1, DISCARDED)]))
    world.wait(lambda: not world.core.eraser.working, "the partition is not erased")
    row = AddObject(p64(0), p64(12), 0, sha1(b"a").digest(), b"a", None)
    source.connection.send(row, message_id)
    answer(source, message_id, AnswerFetchObjects(None, None, None, {}))
    world.settle()
    assert not world.backend.reads.object_exists(p64(0))


def test_a_database_that_fails_while_it_is_written_starts_the_node_again(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node, source = fetching(world)
    message_id, _ = take_question(source, AskFetchTransactions)

    def fail(row: Transaction) -> None:
        raise BackendFailure("the disk is gone")

    monkeypatch.setattr(world.backend.replication, "add_transaction", fail)
    row = AddTransaction(p64(12), b"u", b"d", b"", False, p64(12), [])
    source.send(row, message_id)
    assert world.host.restarts == 1
    assert "failure while serving" not in caplog.text
