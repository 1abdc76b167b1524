"""Cells become readable while transactions are prepared (specification 24.24 to 24.28)."""

from __future__ import annotations

from hashlib import sha1

import pytest

from neo.protocol.ids import ZERO_HASH, ZERO_TID, p64
from neo.protocol.packets import (
    FEATURE_OURS,
    AbortTransaction,
    AddObject,
    AddPrepared,
    AddPreparedObject,
    AnswerFetchObjects,
    AnswerFetchPrepared,
    AnswerJoinPrepared,
    AnswerPackState,
    AnswerPrepareInformation,
    AskCheckCurrentSerial,
    AskFetchObjects,
    AskFetchPrepared,
    AskJoinPrepared,
    AskLockInformation,
    AskPackState,
    AskPreparedTransactions,
    AskPrepareInformation,
    AskStoreObject,
    CloseClient,
    DecidedRow,
    NotifyPrepared,
    NotifyReplicationDone,
    NotifyTransactionFinished,
    NotifyUnlockInformation,
    Ping,
    Pong,
)
from neo.storage.replication.fetch import LOOK_SECONDS
from tests.unit.storage.prepared.fetching import DECIDED, META, SINCE, TEXT, XID, Prepared
from tests.unit.storage.replicas import Destination, answer, fetching, reply, storage, take_question
from tests.unit.storage.requests import commit, data_of, finish, store, store_request, vote, voted
from tests.unit.storage.world import C2, End, MakeWorld, World


def test_a_cell_fetches_what_is_prepared_and_takes_part(world: World) -> None:
    """24.25, 24.26"""
    node = Prepared(world)
    node.mark(10, (4, 3))
    node.row(10, 2, b"prepared")
    node.end_rows()
    world.wait(lambda: bool(node.master.inbox), "the node does not join")
    # It joins when the rows are durable.
    assert world.backend.commits.prepared_rows(p64(10)).checks == [(p64(4), p64(3))]
    node.join(10)
    node.done(12)
    world.core.locks.validate()
    assert node.phases() == {p64(10): "prepared"}
    client = world.client(node.master)
    assert not client.ask_later(store_request(12, 2))
    assert not client.ask_later(AskCheckCurrentSerial(p64(14), p64(4), ZERO_TID))
    finish(node.master, 10, 20)
    assert world.backend.reads.load(p64(2), None, None).data == b"prepared"
    assert world.backend.reads.transaction(p64(20)).oids == META[3]
    outcomes = node.master.ask(AskPreparedTransactions()).decided_list
    assert [row[:3] for row in outcomes] == [DECIDED[:3], (XID, p64(10), p64(20))]


def test_fetched_rows_replace_what_the_node_voted(world: World) -> None:
    """24.25: the client lost the node before it had all of the transaction."""
    node = Destination(world)
    client = world.client(node.master)
    assert store(client, 10, 0) == ZERO_TID
    vote(client, 10, 0)
    fetching = Prepared.__new__(Prepared)
    fetching.world, fetching.master = world, node.master
    node.unfinished(12, 10)
    node.master.send(NotifyPrepared([p64(10)]))
    fetching.end = node.source(FEATURE_OURS)
    node.serve(fetching.end, 0, 12, {(12, 0): b"committed"})
    fetching.begin()
    fetching.send_one(2)
    fetching.join(10)
    fetching.done(12)
    assert [s.oid for s in world.backend.commits.prepared_rows(p64(10)).stored] == [p64(2)]
    world.core.locks.validate()
    other = world.client(node.master, C2)
    assert store(other, 14, 0, 12) is None  # free: the transaction does not store it


def test_the_outcomes_are_fetched_if_nothing_is_prepared(world: World) -> None:
    """24.36"""
    node, source = fetching(world, FEATURE_OURS)
    node.serve(source, 0, 12, {(12, 0): b"committed"})
    message_id, m = take_question(source, AskFetchPrepared)
    assert m.ttid_list == []
    elsewhere: DecidedRow = (b"of another partition", p64(5), None, 990.0)
    answer(source, message_id, AnswerFetchPrepared([], [DECIDED, elsewhere]))
    node.master.take(NotifyReplicationDone)
    assert node.master.ask(AskPreparedTransactions()).decided_list == [DECIDED]


def test_an_older_outcome_of_the_source_does_not_replace_that_of_the_node(world: World) -> None:
    """24.39: the source was away when the older one was forgotten."""
    newer: DecidedRow = (DECIDED[0], p64(8), p64(10), 995.0)
    world.backend.marks.decide([newer])
    node, source = fetching(world, FEATURE_OURS)
    node.serve(source, 0, 12, {(12, 0): b"committed"})
    message_id, _ = take_question(source, AskFetchPrepared)
    later: DecidedRow = (b"order 8", p64(8), None, 990.0)
    answer(source, message_id, AnswerFetchPrepared([], [DECIDED, later]))
    node.master.take(NotifyReplicationDone)
    assert node.master.ask(AskPreparedTransactions()).decided_list == [newer, later]


def test_a_transaction_that_becomes_prepared_later_is_fetched_then(world: World) -> None:
    """24.24"""
    node = Destination(world)
    node.unfinished(12, 10)
    source = node.source(FEATURE_OURS)
    node.serve(source, 0, 12, {(12, 0): b"committed"})
    reply(source, AskPackState, AnswerPackState(ZERO_TID))
    world.settle()
    assert not source.inbox
    node.master.send(NotifyPrepared([p64(10), p64(77)]))
    node.serve(source, 10, 12, {})
    assert take_question(source, AskFetchPrepared)[1].ttid_list == [p64(10)]


def test_a_source_without_the_feature_is_waited_for(world: World) -> None:
    """24.28"""
    node = Destination(world)
    node.unfinished(12, 10)
    node.master.send(NotifyPrepared([p64(10)]))
    source = node.source()
    node.serve(source, 0, 12, {(12, 0): b"committed"})
    for _ in range(3):
        world.settle()
        assert not source.inbox and not node.master.inbox
        world.host.advance(1.0)
        node.serve(source, 10, 12, {})
    node.master.send(AbortTransaction(p64(10), []))
    world.host.advance(1.0)
    node.serve(source, 10, 12, {})
    assert node.master.take(NotifyReplicationDone) == NotifyReplicationDone(0, p64(12))


def test_a_damaged_row_fails_the_fetch_and_everything_is_fetched_again(world: World) -> None:
    node = Prepared(world)
    node.mark()
    damaged = AddPreparedObject(p64(10), p64(2), 0, sha1(b"x").digest(), b"y", None)
    node.end.connection.send(damaged, node.message_id)
    node.row(10, 4, b"ignored")
    node.end_rows()
    world.settle()
    assert not node.master.inbox
    world.host.advance(1.0)
    node.serve(node.end, 10, 12, {})
    node.begin()
    node.mark()
    node.row(10, 2, b"x")
    node.end_rows()
    node.join(10)
    node.done(12)
    assert [s.oid for s in world.backend.commits.prepared_rows(p64(10)).stored] == [p64(2)]


def test_an_undo_is_fetched_with_the_value_that_it_goes_back_to(world: World) -> None:
    node = Prepared(world)
    node.mark()
    node.row(10, 0, b"old", 5)
    node.end_rows()
    node.join(10)
    node.done(12)
    finish(node.master, 10, 20)
    record = world.backend.reads.load(p64(0), None, None)
    assert (record.data, record.data_serial) == (b"old", p64(5))


# -- races with the decision (24.27) -------------------------------------------------------------


@pytest.mark.parametrize("when", ["before the rows", "among the rows", "before the answer"])
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_what_was_decided_is_dropped_and_later_rows_are_ignored(
    world: World, when: str, end: str
) -> None:
    node = Prepared(world)

    def decide() -> None:
        if end == "abort":
            node.master.send(AbortTransaction(p64(10), []))
        else:
            node.master.send(NotifyTransactionFinished(p64(10), p64(20)))

    if when == "before the rows":
        decide()
    node.mark()
    node.row(10, 0, b"prepared")
    if when == "among the rows":
        decide()
    node.row(10, 2, b"prepared")
    node.end_rows()
    if when == "before the answer":
        message_id, _ = take_question(node.master, AskJoinPrepared)
        decide()
        answer(node.master, message_id, AnswerJoinPrepared([]))
    else:
        world.wait(lambda: bool(node.master.inbox), "the node does not ask")
        node.join()
    if end == "commit":
        node.serve(node.end, 10, 20, {(20, 0): b"prepared", (20, 2): b"prepared"})
        node.begin_without_any()
    assert node.phases() == {}
    assert world.backend.marks.prepared() == []
    assert world.backend.commits.locked_transactions() == {}
    node.done(20 if end == "commit" else 12)
    assert world.backend.maintenance.prune_orphans(True, 0, 100)[0] == 0


def test_a_node_that_may_not_join_waits_for_the_end(world: World) -> None:
    """24.27: the decision came first, and its news is under way."""
    node = Prepared(world)
    node.send_one(0)
    node.join()
    world.settle()
    world.host.advance(5.0)
    assert not node.end.inbox and not node.master.inbox
    node.master.send(NotifyTransactionFinished(p64(10), p64(20)))
    assert world.backend.commits.locked_transactions() == {}
    node.serve(node.end, 10, 20, {(20, 0): b"prepared"})
    node.begin_without_any()
    node.done(20)


def test_a_decision_after_the_join_is_that_of_a_participant(world: World) -> None:
    node = Prepared(world)
    node.send_one(0)
    reply(node.master, AskJoinPrepared, AnswerJoinPrepared([p64(10)]))
    locked = node.master.ask_later(AskLockInformation(p64(10), p64(20)))
    world.wait(lambda: bool(locked), "it does not lock")
    node.master.send(NotifyUnlockInformation(p64(10)))
    world.settle()
    assert world.backend.reads.load(p64(0), None, None).data == b"prepared"
    node.done(12)


def test_a_blind_undo_that_is_prepared_here_gets_its_value_from_the_source(world: World) -> None:
    """24.36: the cell does not wait for the end of this transaction, which began later."""
    node = blind_undo(world)
    node.serve(node.end, 0, 12, {(12, 0): b"committed"})
    node.begin_without_any()
    node.begin(20)
    node.mark(20, meta=False)
    node.row(20, 0, b"old", 5)
    node.end_rows(20)
    node.join(20, asked=20)
    node.done(12)
    finish(node.master, 20, 22)
    assert world.backend.reads.load(p64(0), None, None).data == b"old"


def blind_undo(world: World) -> Prepared:
    """S1 has prepared transaction 20, which undoes object 0 to a revision that is not replicated yet. The
    cell does not wait for the end of 20, which began after the node had asked. What is committed is being
    fetched."""
    node = Prepared.__new__(Prepared)
    Destination.__init__(node, world)
    client = world.client(node.master)
    undo = AskStoreObject(p64(0), p64(12), 0, ZERO_HASH, b"", p64(5), p64(20))
    assert client.ask(undo).locked == ZERO_TID
    vote(client, 20, 0)
    ask = AskPrepareInformation(p64(20), XID, SINCE, TEXT, [0])
    node.unfinished(12)
    node.end = node.source(FEATURE_OURS)
    prepared = node.master.ask_later(ask)
    world.wait(lambda: bool(prepared), "it is not prepared")
    assert prepared == [AnswerPrepareInformation(p64(20))]
    return node


def serve_value(node: Prepared) -> None:
    """The node lacks the value of the undo that was committed as 22."""
    message_id, m = take_question(node.end, AskFetchObjects)
    assert (m.partition, m.min_tid, m.max_tid) == (0, p64(22), p64(22))
    row = AddObject(p64(0), p64(22), 0, sha1(b"old").digest(), b"old", p64(5))
    node.end.connection.send(row, message_id)
    answer(node.end, message_id, AnswerFetchObjects(None, None, None, {}))


def test_a_blind_undo_that_is_being_committed_is_waited_for(world: World) -> None:
    """24.36: it is neither in the table of revisions yet, nor prepared any more."""
    node = blind_undo(world)
    locked = node.master.ask_later(AskLockInformation(p64(20), p64(22)))
    world.wait(lambda: bool(locked), "it is not locked")
    node.serve(node.end, 0, 12, {(12, 0): b"committed"})
    node.begin_without_any()
    world.wait(lambda: bool(node.end.inbox), "the last round does not end")
    assert node.end.take(CloseClient) == CloseClient()
    world.settle()
    assert not node.master.inbox
    node.master.send(NotifyUnlockInformation(p64(20)))
    world.settle()
    world.host.advance(LOOK_SECONDS)
    reply(node.end, Ping, Pong())
    serve_value(node)
    node.begin_without_any()
    node.done(12)
    assert world.backend.reads.load(p64(0), None, None).data == b"old"


def test_a_blind_undo_that_was_committed_before_the_join_is_not_waited_for(world: World) -> None:
    """24.36: the master tells its end like that of any transaction in which the node takes part."""
    node = blind_undo(world)
    node.serve(node.end, 0, 12, {(12, 0): b"committed"})
    node.begin_without_any()
    node.begin(20)
    finish(node.master, 20, 22)
    node.end_rows(20)
    node.join(asked=20)
    serve_value(node)
    node.begin_without_any()
    node.done(12)
    assert world.backend.reads.load(p64(0), None, None).data == b"old"


# -- source --------------------------------------------------------------------------------------


def prepared_source(world: World) -> tuple[End, End]:
    """Transaction 10 is prepared: it undoes 0, stores 2 and 1, checks 4 and 3."""
    master = world.operate()
    client = world.client(master)
    commit(master, client, 5, 6, 0)
    commit(master, client, 7, 8, 0, 6)
    undo = AskStoreObject(p64(0), p64(8), 0, ZERO_HASH, b"", p64(6), p64(10))
    assert client.ask(undo).locked is None
    for oid in (1, 2):
        assert store(client, 10, oid) is None
    for oid in (3, 4):
        assert client.ask(AskCheckCurrentSerial(p64(10), p64(oid), ZERO_TID)).locked is None
    vote(client, 10, 0, 1, 2)
    master.ask(AskPrepareInformation(p64(10), XID, SINCE, TEXT, [0, 1]))
    return master, client


def test_a_source_sends_the_rows_of_one_partition(world: World) -> None:
    master, _ = prepared_source(world)
    world.backend.marks.decide([(b"a", p64(13), None, 5.0), DECIDED])
    peer = storage(world, master, 2)
    found = peer.ask(AskFetchPrepared(0, [p64(10), p64(14)]))
    oids = [p64(0), p64(1), p64(2)]
    meta = (b"user", b"note", b"ext", oids)
    sent = [m for _, m in peer.inbox]
    old, new = data_of(5), data_of(10)
    assert sent == [
        AddPrepared(p64(10), XID, SINCE, TEXT, [0, 1], meta, [(p64(4), ZERO_TID)]),
        AddPreparedObject(p64(10), p64(0), 0, sha1(old).digest(), old, p64(6)),
        AddPreparedObject(p64(10), p64(2), 0, sha1(new).digest(), new, None),
    ]
    assert found == AnswerFetchPrepared([p64(10)], [DECIDED])
    peer.inbox.clear()
    assert peer.ask(AskFetchPrepared(1, [p64(10)])).ttid_list == [p64(10)]
    marks = [m for _, m in peer.inbox if isinstance(m, AddPrepared)]
    assert [(m.metadata, m.checked_list) for m in marks] == [(None, [(p64(3), ZERO_TID)])]
    assert len(peer.inbox) == 2


def test_a_transaction_of_other_partitions_is_not_sent(world: World) -> None:
    master = world.operate()
    client = world.client(master)
    voted(client, 11, 1)
    master.ask(AskPrepareInformation(p64(11), XID, SINCE, TEXT, [1]))
    peer = storage(world, master, 2)
    assert peer.ask(AskFetchPrepared(0, [p64(11)])) == AnswerFetchPrepared([], [])
    assert not peer.inbox


def test_a_mark_for_other_partitions_is_ignored(world: World) -> None:
    node = Prepared(world)
    row = AddPrepared(p64(10), XID, SINCE, TEXT, [1], None, [])
    node.end.connection.send(row, node.message_id)
    node.end_rows()
    node.join(10)
    node.done(12)
    assert world.backend.marks.prepared() == [] and node.phases() == {}


def test_a_source_waits_for_transactions_that_are_locked(world: World) -> None:
    """They are sent neither as prepared nor as committed otherwise."""
    master, _ = prepared_source(world)
    master.ask(AskLockInformation(p64(10), p64(12)))
    peer = storage(world, master, 2)
    answers = peer.ask_later(AskFetchPrepared(0, [p64(10)]))
    world.settle()
    assert not answers and not peer.inbox
    master.send(NotifyUnlockInformation(p64(10)))
    world.wait(lambda: bool(answers), "the source does not go on")
    assert not peer.inbox
    assert answers[0].ttid_list == []
    assert [row[:3] for row in answers[0].decided_list] == [(XID, p64(10), p64(12))]


def test_a_transaction_that_ends_among_its_rows_is_not_listed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neo.storage.serving.storage.BUFFER_BYTES", 1)
    master, _ = prepared_source(world)
    peer = storage(world, master, 2)
    answers = peer.ask_later(AskFetchPrepared(0, [p64(10)]))
    assert len(peer.inbox) == 2 and not answers
    master.send(AbortTransaction(p64(10), []))
    world.wait(lambda: bool(answers), "the source does not go on")
    assert answers[0].ttid_list == []
    assert len(peer.inbox) == 2


def test_rows_without_a_fetch_are_ignored(world: World, master: End) -> None:
    peer = storage(world, master, 2)
    peer.send(AddPrepared(p64(10), XID, SINCE, TEXT, [0], None, []), 1)
    assert world.backend.marks.prepared() == [] and not peer.closed


def test_fetched_rows_survive_a_restart_in_a_cell_that_is_out_of_date(
    make_world: MakeWorld, world: World
) -> None:
    node = Prepared(world)
    node.send_one(0)
    take_question(node.master, AskJoinPrepared)
    world = make_world()
    assert [mark.xid for mark in world.backend.marks.prepared()] == [XID]
