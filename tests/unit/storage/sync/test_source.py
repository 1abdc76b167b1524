"""A storage node sends votes to the nodes of synchronous backups (specification 25.6 to 25.11)."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha1
from typing import Any

import pytest

from neo.node.backlog import JOB_BYTES, JOBS_BYTES, PEER_BYTES
from neo.protocol.enums import ErrorCode, NodeState
from neo.protocol.ids import ZERO_HASH, p64
from neo.protocol.packets import (
    FEATURE_OURS,
    AbortTransaction,
    AddVoted,
    AddVotedObject,
    AnswerFetchVoted,
    AnswerStoreTransaction,
    AnswerStoreVoted,
    AnswerVoteTransaction,
    AskFetchVoted,
    AskLockInformation,
    AskPack,
    AskStoreObject,
    AskStoreVoted,
    Error,
    NotifyAborted,
    NotifyPartitionChanges,
    NotifyTransactionFinished,
    NotifyUnlockInformation,
    StopOperation,
)
from neo.storage.maintenance.pack import LOOK_SECONDS
from neo.storage.sync.source import FULL_SECONDS, STEP_BYTES, STORE_SECONDS
from tests.support.patience import PATIENCE_SECONDS
from tests.unit.storage.replicas import answer, reply
from tests.unit.storage.requests import commit, data_of, finish, store, store_request, vote
from tests.unit.storage.syncing import guest, messages, meta, row, subscriber, vote_later
from tests.unit.storage.world import C1, OUT, UP, End, World, check_refused, refused


def stored(end: End, ttid: int, *partitions: int) -> None:
    """The subscriber takes the rows, and has them durably."""
    end.inbox = [each for each in end.inbox if not isinstance(each[1], AddVoted | AddVotedObject)]
    m = reply(end, AskStoreVoted, AnswerStoreVoted(p64(ttid)))
    assert m == AskStoreVoted(p64(ttid), [*partitions])


def voting(client: End, ttid: int, *oids: int) -> list[Any]:
    """Store objects and vote. Return a list that will have the answer."""
    for oid in oids:
        assert store(client, ttid, oid) is None
    return vote_later(client, ttid, *oids)


def store_large(client: End, *oids: int) -> None:
    """Store objects in transaction 10. After each one it is looked whether the subscriber reads."""
    for oid in oids:
        assert client.ask(store_request(10, oid, 0, bytes([oid]) * (STEP_BYTES + 1))).locked is None


def stop_reading(backup: End) -> None:
    """Let the subscriber read nothing, so that no more is sent to it."""
    backup.peer.slow()
    backup.unsent = PEER_BYTES + 1


def read_again(world: World, backup: End) -> None:
    """Let the subscriber read all, and the rest be sent."""
    backup.unsent = 0
    backup.peer.drained()
    for _ in range(5):
        world.host.advance(FULL_SECONDS)


# -- votes -----------------------------------------------------------------------------------------


def test_a_vote_is_answered_when_the_subscriber_has_its_rows(
    world: World, master: End, client: End
) -> None:
    """Specification 25.6, 25.8."""
    backup = subscriber(world, 0, 1)
    for oid in (1, 2):
        assert store(client, 10, oid) is None
    assert not backup.inbox, "it is sent at the vote"
    voted = vote_later(client, 10, 1, 2)
    world.settle()
    assert not voted
    *rows, (message_id, last) = backup.inbox
    assert [m for _, m in rows] == [
        AddVoted(p64(10), 0, meta(1, 2)),
        AddVoted(p64(10), 1, None),
        row(10, 1, data_of(10)),
        row(10, 2, data_of(10)),
    ]
    assert last == AskStoreVoted(p64(10), [0, 1])
    assert message_id is not None
    answer(backup, message_id, AnswerStoreVoted(p64(10)))
    assert voted == [AnswerStoreTransaction()]


def test_a_vote_is_not_answered_before_it_is_durable_here(
    world: World, master: End, client: End
) -> None:
    """Specification 25.8."""
    backup = subscriber(world, 0)
    voted = voting(client, 10, 2)
    stored(backup, 10, 0)
    assert not voted, "the database has not called back"
    world.settle()
    assert voted == [AnswerStoreTransaction()]


def test_a_vote_without_metadata_is_sent_without(world: World, master: End, client: End) -> None:
    backup = subscriber(world, 0)
    assert store(client, 10, 2) is None
    voted = vote_later(client, 10, metadata=False)
    assert backup.take(AddVoted) == AddVoted(p64(10), 0, None)
    assert backup.take(AddVotedObject) == row(10, 2, data_of(10))
    stored(backup, 10, 0)
    world.settle()
    assert voted == [AnswerVoteTransaction()]


def test_only_partitions_that_were_subscribed_are_sent(
    world: World, master: End, client: End
) -> None:
    """Specification 25.6, 25.11."""
    backup = subscriber(world, 1)
    voted = voting(client, 10, 1, 2)
    assert backup.take(AddVoted) == AddVoted(p64(10), 1, None), "it keeps no metadata"
    assert backup.take(AddVotedObject) == row(10, 1, data_of(10))
    stored(backup, 10, 1)
    world.settle()
    assert voted == [AnswerStoreTransaction()]
    assert store(client, 14, 4) is None
    vote(client, 14, 4)  # it does not wait for the backup
    assert not backup.inbox


def test_a_second_fetch_adds_partitions(world: World, master: End, client: End) -> None:
    """Specification 25.11."""
    backup = subscriber(world, 1)
    refused(backup.ask(AskFetchVoted(p64(1), [0])))
    voting(client, 10, 1, 2)
    assert [m.partition for m in messages(backup) if isinstance(m, AddVoted)] == [0, 1]


def test_a_cell_that_cannot_be_read_sends_nothing(world: World, master: End, client: End) -> None:
    """It may not have all that it stores."""
    backup = subscriber(world, 0, 1)
    master.send(NotifyPartitionChanges(2, 0, [(0, 1, OUT), (0, 2, UP)]))
    for oid in (1, 2):
        client.ask(store_request(10, oid))
    vote_later(client, 10, 1, 2)
    assert messages(backup) == [
        AddVoted(p64(10), 1, None),
        row(10, 1, data_of(10)),
        AskStoreVoted(p64(10), [1]),
    ]


def test_undos_and_deletions_are_sent_with_what_they_go_back_to(
    world: World, master: End, client: End
) -> None:
    backup = subscriber(world, 0)
    voting(client, 5, 0, 4)
    messages(backup)
    backup.disconnect()
    finish(master, 5, 6)
    commit(master, client, 7, 8, 0, 6)
    backup = subscriber(world, 0)
    undo = AskStoreObject(p64(0), p64(8), 0, ZERO_HASH, b"", p64(6), p64(10))
    deletion = AskStoreObject(p64(4), p64(6), 0, ZERO_HASH, b"", None, p64(10))
    for request in (undo, deletion):
        assert client.ask(request).locked is None
    vote_later(client, 10, 0, 4)
    rows = [m for m in messages(backup) if isinstance(m, AddVotedObject)]
    assert rows == [row(10, 0, data_of(5), 6), row(10, 4, None)]


@pytest.mark.parametrize(("later", "sent"), [(False, None), (True, 10)])
def test_an_undo_is_sent_as_it_is_after_the_pack_that_waits_for_it(
    world: World, master: End, client: End, later: bool, sent: int | None
) -> None:
    """The backup may be packed already. ``later``: another undo to the same revision comes first
    (specification 25.64)."""
    commit(master, client, 3, 4, 0)
    commit(master, client, 5, 6, 0, 4)

    def undo(ttid: int, serial: int) -> None:
        request = AskStoreObject(p64(0), p64(serial), 0, ZERO_HASH, b"", p64(4), p64(ttid))
        assert client.ask(request).locked is None

    if later:
        undo(9, 6)
        vote(client, 9, 0)
        finish(master, 9, 10)
    undo(14, 10 if later else 6)
    packing = master.ask_later(AskPack(p64(6)))
    backup = subscriber(world, 0)
    voted = vote_later(client, 14, 0)
    *_, pushed, _ = messages(backup)
    assert pushed == row(14, 0, data_of(3), sent)
    backup.disconnect()
    world.settle()
    assert voted == [AnswerStoreTransaction()]
    master.ask(AskLockInformation(p64(14), p64(16)))
    backup = guest(world, FEATURE_OURS)
    backup.ask(AskFetchVoted(p64(14), [0]))
    *_, fetched = messages(backup)
    assert fetched == pushed and not packing
    master.send(NotifyUnlockInformation(p64(14)))
    world.settle()
    world.host.advance(LOOK_SECONDS)
    world.wait(lambda: bool(packing), "the pack does not end")
    found = world.backend.reads.load(p64(0), None, None)
    assert (found.data, found.data_serial) == (data_of(3), None if sent is None else p64(sent))


def test_a_vote_that_the_subscriber_refuses_is_refused_with_its_reason(
    world: World, master: End, client: End
) -> None:
    """Specification 25.8."""
    backup = subscriber(world, 0)
    voted = voting(client, 10, 2)
    del backup.inbox[:2]
    reply(backup, AskStoreVoted, Error(ErrorCode.DENIED.value, "the record is too big"))
    world.settle()
    check_refused(voted[0], ErrorCode.INCOMPLETE_TRANSACTION, "the record is too big")
    client.send(AbortTransaction(p64(10), []))
    assert messages(backup) == [NotifyAborted(p64(10))]
    assert world.backend.commits.locked_transactions() == {}


def test_all_subscribers_are_waited_for(world: World, master: End, client: End) -> None:
    """Specification 25.8."""
    backups = [subscriber(world, 0), subscriber(world, 0, 1)]
    voted = voting(client, 10, 2)
    for backup in backups:
        world.settle()
        assert not voted
        stored(backup, 10, 0)
    assert voted == [AnswerStoreTransaction()]


def test_one_refusal_among_two_subscribers_is_enough(
    world: World, master: End, client: End
) -> None:
    """Specification 25.8."""
    first, second = subscriber(world, 0), subscriber(world, 0)
    voted = voting(client, 10, 2)
    del first.inbox[:2], second.inbox[:2]
    reply(first, AskStoreVoted, Error(ErrorCode.DENIED.value, "its disk is full"))
    world.settle()
    assert "its disk is full" in refused(voted[0])[1]
    stored(second, 10, 0)
    assert len(voted) == 1 and not second.closed


def test_a_subscriber_that_is_lost_is_not_waited_for(
    world: World, master: End, client: End
) -> None:
    """Specification 25.8."""
    lost, other = subscriber(world, 0), subscriber(world, 0)
    voted = voting(client, 10, 2)
    world.settle()
    lost.disconnect()
    assert not voted, "the other one has not answered"
    stored(other, 10, 0)
    assert voted == [AnswerStoreTransaction()]
    lost.inbox.clear()
    voted = voting(client, 14, 4)
    stored(other, 14, 0)
    world.settle()
    assert voted == [AnswerStoreTransaction()] and not lost.inbox


def test_a_subscriber_that_is_silent_is_disconnected(
    world: World, master: End, client: End
) -> None:
    """Specification 25.8."""
    backup = subscriber(world, 0)
    voted = voting(client, 10, 2)
    world.settle()
    world.host.advance(STORE_SECONDS - 0.1)
    assert not voted and not backup.closed
    world.host.advance(0.1)
    assert backup.closed and voted == [AnswerStoreTransaction()]


def test_a_look_that_is_early_by_rounding_is_repeated_later(
    world: World, master: End, client: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timer without a delay would be early again, for ever."""
    world.host.now = 2.9574963966907064
    backup = subscriber(world, 0)
    voting(client, 10, 2)
    world.settle()
    delays = list[float]()
    call_later = world.host.call_later

    def recorded(delay: float, callback: Callable[[], None]) -> object:
        delays.append(delay)
        return call_later(delay, callback)

    monkeypatch.setattr(world.host, "call_later", recorded)
    world.host.advance(STORE_SECONDS)
    assert not backup.closed and 0.0 not in delays
    world.host.advance(0.001)
    assert backup.closed


def test_each_vote_has_its_own_time(world: World, master: End, client: End) -> None:
    """Specification 25.8."""
    backup = subscriber(world, 0)
    first = voting(client, 10, 2)
    world.host.advance(STORE_SECONDS - 1)
    second = voting(client, 14, 4)
    stored(backup, 10, 0)
    world.settle()
    world.host.advance(1)
    world.host.advance(1)
    assert len(first) == 1 and not second and not backup.closed
    world.host.advance(STORE_SECONDS - 2)
    world.settle()
    assert backup.closed and second == [AnswerStoreTransaction()]


def test_a_subscriber_that_does_not_read_gets_no_more(
    world: World, master: End, client: End
) -> None:
    """What is sent and not read is bounded."""
    backup = subscriber(world, 0)
    store_large(client, 2, 4, 6)
    stop_reading(backup)
    voted = vote_later(client, 10, 2, 4, 6)
    for _ in range(5):
        world.host.advance(FULL_SECONDS)
    assert not backup.inbox
    read_again(world, backup)
    assert len(backup.inbox) == 5
    stored(backup, 10, 0)
    world.settle()
    assert voted == [AnswerStoreTransaction()]


def test_a_subscriber_that_reads_a_large_transaction_slowly_is_not_late(
    world: World, master: End, client: End
) -> None:
    """Specification 25.8: the time to store begins again when it has read what others waited for."""
    backup = subscriber(world, 0)
    store_large(client, 2, 4, 6)
    stop_reading(backup)
    voted = vote_later(client, 10, 2, 4, 6)
    world.host.advance(STORE_SECONDS - 0.2)
    read_again(world, backup)
    del backup.inbox[:4]
    world.host.advance(STORE_SECONDS - 0.2)
    assert not backup.closed and not voted
    stored(backup, 10, 0)
    world.settle()
    assert voted == [AnswerStoreTransaction()]


# -- ends ------------------------------------------------------------------------------------------


def voted_alone(world: World, client: End, backup: End, ttid: int = 10) -> None:
    """A transaction votes, and the subscriber has it."""
    voted = voting(client, ttid, 2)
    stored(backup, ttid, 0)
    world.wait(lambda: bool(voted), "the vote is not answered")


def test_subscribers_hear_of_a_commit(world: World, master: End, client: End) -> None:
    """Specification 25.9."""
    backup = subscriber(world, 0)
    voted_alone(world, client, backup)
    assert master.ask(AskLockInformation(p64(10), p64(12))).ttid == p64(10)
    assert not backup.inbox
    master.send(NotifyUnlockInformation(p64(10)))
    assert messages(backup) == [NotifyAborted(p64(10))]


def test_subscribers_hear_of_an_abort(world: World, master: End, client: End) -> None:
    """Specification 25.9: by the client, by the master, and because the client is lost."""
    backup = subscriber(world, 0)
    voted_alone(world, client, backup, 10)
    client.send(AbortTransaction(p64(10), []))
    assert messages(backup) == [NotifyAborted(p64(10))]
    voted_alone(world, client, backup, 14)
    master.send(AbortTransaction(p64(14), []))
    assert messages(backup) == [NotifyAborted(p64(14))]
    voted_alone(world, client, backup, 18)
    world.notify(master, world.client_row(C1, NodeState.DOWN))
    assert messages(backup) == [NotifyAborted(p64(18))]


def test_subscribers_hear_of_a_commit_in_which_the_node_took_no_part(
    world: World, master: End, client: End
) -> None:
    """Specification 25.9: the transaction began before the node was ready."""
    backup = subscriber(world, 0)
    voted_alone(world, client, backup)
    master.send(NotifyTransactionFinished(p64(10), p64(12)))
    assert messages(backup) == [NotifyAborted(p64(10))]


def test_subscribers_do_not_hear_of_what_has_not_voted(
    world: World, master: End, client: End
) -> None:
    backup = subscriber(world, 0)
    assert store(client, 10, 2) is None
    client.send(AbortTransaction(p64(10), []))
    master.send(AbortTransaction(p64(10), []))
    assert not backup.inbox


def test_an_abort_ends_the_rows_that_are_being_sent(world: World, master: End, client: End) -> None:
    """Specification 25.9."""
    backup = subscriber(world, 0)
    store_large(client, 2, 4, 6)
    voted = vote_later(client, 10, 2, 4, 6)
    assert len(messages(backup)) == 2
    master.send(AbortTransaction(p64(10), []))
    world.settle()
    world.host.advance(0)
    assert messages(backup) == [NotifyAborted(p64(10))]
    assert len(voted) == 1, "the client waits no more"
    world.host.advance(2 * STORE_SECONDS)
    assert not backup.closed and world.host.restarts == 0


def test_an_end_is_not_undone_by_another_vote_under_the_same_ttid(
    world: World, master: End, client: End
) -> None:
    """A copy imposes a tid again after an abort: rows of both votes must not mix (specification 25.7)."""
    backup = subscriber(world, 0)
    store_large(client, 2, 4, 6)
    vote_later(client, 10, 2, 4, 6)
    assert len(messages(backup)) == 2
    client.send(AbortTransaction(p64(10), []))
    voted = voting(client, 10, 4)
    world.host.advance(0)
    assert messages(backup) == [
        *(NotifyAborted(p64(10)), AddVoted(p64(10), 0, meta(4)), row(10, 4, data_of(10))),
        AskStoreVoted(p64(10), [0]),
    ]
    world.settle()
    assert not voted, "the backup has not stored it"


# -- fetches ---------------------------------------------------------------------------------------


def test_a_fetch_is_answered_by_the_rows_of_its_partitions(
    world: World, master: End, client: End
) -> None:
    """Specification 25.10, 25.11."""
    for oid in (1, 2):
        assert store(client, 10, oid) is None
    vote(client, 10, 1, 2)
    backup = guest(world, FEATURE_OURS)
    assert backup.ask(AskFetchVoted(p64(10), [0])) == AnswerFetchVoted(p64(10))
    assert messages(backup) == [AddVoted(p64(10), 0, meta(1, 2)), row(10, 2, data_of(10))]
    assert backup.ask(AskFetchVoted(p64(10), [1])) == AnswerFetchVoted(p64(10))
    assert messages(backup) == [AddVoted(p64(10), 1, None), row(10, 1, data_of(10))]


def test_a_transaction_that_is_locked_is_sent(world: World, master: End, client: End) -> None:
    """The backup asks for it when all nodes have locked it (specification 25.19)."""
    assert store(client, 10, 2) is None
    vote(client, 10, 2)
    master.ask(AskLockInformation(p64(10), p64(12)))
    backup = guest(world, FEATURE_OURS)
    assert backup.ask(AskFetchVoted(p64(10), [0])) == AnswerFetchVoted(p64(10))
    assert len(backup.inbox) == 2


def test_a_transaction_that_has_not_voted_or_has_ended_is_not_in_progress(
    world: World, master: End, client: End
) -> None:
    """Specification 25.11."""
    backup = guest(world, FEATURE_OURS)
    assert store(client, 10, 2) is None
    commit(master, client, 14, 16, 4)
    for ttid in (10, 14, 18):
        code, text = refused(backup.ask(AskFetchVoted(p64(ttid), [0])))
        assert code == ErrorCode.TID_NOT_FOUND.value and p64(ttid).hex() in text
    assert not backup.inbox


@pytest.mark.parametrize("partition", [0, 2, 2**32 - 1])
def test_a_cell_that_cannot_be_read_is_no_source(world: World, partition: int) -> None:
    """Specification 25.11."""
    master = world.operate([[(1, OUT), (3, UP)], [(1, UP)]])
    client = world.client(master)
    backup = guest(world, FEATURE_OURS)
    code, text = refused(backup.ask(AskFetchVoted(p64(10), [1, partition])))
    assert code == ErrorCode.NON_READABLE_CELL.value and str(partition) in text
    assert store(client, 11, 1) is None
    vote(client, 11, 1)
    assert not backup.inbox, "it subscribed to nothing"


def test_a_node_that_does_not_know_the_feature_cannot_subscribe(
    world: World, master: End, client: End
) -> None:
    old = guest(world, "unheard of")
    check_refused(old.ask(AskFetchVoted(p64(10), [0])), ErrorCode.PROTOCOL_ERROR)
    assert store(client, 10, 2) is None
    vote(client, 10, 2)
    assert not old.inbox


def test_a_fetch_waits_for_rows_that_are_being_stored(
    world: World, master: End, client: End
) -> None:
    """Else they would be mixed."""
    backup = subscriber(world, 0)
    voted = voting(client, 10, 2)
    fetched = backup.ask_later(AskFetchVoted(p64(10), [0]))
    world.host.advance(FULL_SECONDS)
    assert not fetched and len(backup.inbox) == 3
    stored(backup, 10, 0)
    world.host.advance(FULL_SECONDS)
    assert fetched == [AnswerFetchVoted(p64(10))]
    assert messages(backup) == [AddVoted(p64(10), 0, meta(2)), row(10, 2, data_of(10))]
    world.settle()
    assert voted == [AnswerStoreTransaction()]


def test_a_fetch_ends_with_its_connection(world: World, master: End, client: End) -> None:
    store_large(client, 2, 4)
    vote(client, 10, 2, 4)
    backup = guest(world, FEATURE_OURS)
    backup.ask_later(AskFetchVoted(p64(10), [0]))
    backup.disconnect()
    world.host.advance(0)
    assert len(backup.inbox) == 2 and world.host.restarts == 0


@pytest.mark.parametrize("end", ["rolled back", "committed"])
def test_a_fetch_of_what_ends_meanwhile_is_refused(
    world: World, master: End, client: End, end: str
) -> None:
    """Specification 25.11: what is prepared may be rolled back at any time, and its data is deleted."""
    store_large(client, 2, 4, 6)
    vote(client, 10, 2, 4, 6)
    backup = guest(world, FEATURE_OURS)
    fetched = backup.ask_later(AskFetchVoted(p64(10), [0]))
    assert len(messages(backup)) == 2, "the rest is to be sent"
    stop_reading(backup)
    if end == "committed":
        finish(master, 10, 12)
    else:
        master.send(AbortTransaction(p64(10), []))
    assert not fetched
    read_again(world, backup)
    world.wait(lambda: bool(fetched), "the fetch is not answered")
    check_refused(fetched[0], ErrorCode.TID_NOT_FOUND)
    assert NotifyAborted(p64(10)) in messages(backup)
    assert world.host.restarts == 0 and world.host.exit_code is None
    assert store(client, 14, 8) is None, "the node serves"


def test_a_vote_does_not_wait_for_what_its_subscriber_fetches(
    world: World, master: End, client: End
) -> None:
    """Specification 25.8: a peer has a few jobs at a time, and its next request must wait."""
    backup = subscriber(world, 0)
    assert client.ask(store_request(10, 2, 0, bytes(STEP_BYTES + 1))).locked is None
    assert store(client, 10, 4) is None
    vote_later(client, 10, 2, 4)
    world.host.advance(0)
    stored(backup, 10, 0)
    count = JOBS_BYTES // JOB_BYTES + 1
    fetched = [backup.ask_later(AskFetchVoted(p64(10), [0])) for _ in range(count)]
    voted = voting(client, 14, 6)
    del backup.inbox[:-1]
    stored(backup, 14, 0)
    while not voted:
        assert world.host.run_calls(timeout=PATIENCE_SECONDS), "the vote waits for the fetches"
        world.core.flush()
    assert voted == [AnswerStoreTransaction()] and not any(fetched)
    world.wait(lambda: all(fetched), "the fetches are not answered")


# -- damaged data ----------------------------------------------------------------------------------


def damage(world: World) -> None:
    """Damage the data of transaction 10 on the disk."""
    right = sha1(data_of(10)).digest()
    world.backend.engine.write("UPDATE data SET value=? WHERE hash=?", b"wrong", right)


def test_a_vote_whose_data_is_damaged_is_refused(world: World, master: End, client: End) -> None:
    """Specification 25.8: the node serves all other objects."""
    backup = subscriber(world, 0)
    assert store(client, 10, 2) is None
    damage(world)
    voted = vote_later(client, 10, 2)
    world.settle()
    assert "does not match its checksum" in refused(voted[0])[1]
    client.send(AbortTransaction(p64(10), []))
    assert messages(backup) == [AddVoted(p64(10), 0, meta(2)), NotifyAborted(p64(10))]
    assert not backup.closed and store(client, 14, 4) is None


def test_a_fetch_of_damaged_data_is_refused(world: World, master: End, client: End) -> None:
    assert store(client, 10, 2) is None
    vote(client, 10, 2)
    damage(world)
    backup = guest(world, FEATURE_OURS)
    check_refused(
        backup.ask(AskFetchVoted(p64(10), [0])),
        ErrorCode.CHECKING_ERROR,
        "does not match its checksum",
    )
    assert not backup.closed and store(client, 14, 4) is None


# -- the end of the operation ----------------------------------------------------------------------


def test_subscribers_are_disconnected_when_the_operation_stops(
    world: World, master: End, client: End, caplog: pytest.LogCaptureFixture
) -> None:
    backup = subscriber(world, 0)
    voting(client, 10, 2)
    master.send(StopOperation())
    assert backup.closed
    world.host.advance(STORE_SECONDS)
    assert "did not store" not in caplog.text
