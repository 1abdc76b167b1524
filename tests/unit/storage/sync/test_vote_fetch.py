"""The master of a synchronous backup asks its nodes for rows (specification 25.10)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from neo.protocol.enums import CellState, ErrorCode
from neo.protocol.ids import p64
from neo.protocol.packets import (
    FEATURE_OURS,
    AbortTransaction,
    AddVotedObject,
    AnswerFetchVoted,
    AnswerPreparedTransactions,
    AnswerStoreVoted,
    AnswerVoted,
    AskFetchVoted,
    AskPreparedTransactions,
    Error,
    NotifyAborted,
    NotifyLeft,
    NotifyPartitionChanges,
    StopOperation,
    SyncMark,
)
from neo.storage.sync.vote_fetch import FETCHES_MAX
from tests.unit.storage.replicas import OTHER, answer, take_question
from tests.unit.storage.syncing import ask_voted, connected, kept, row, send, store_later
from tests.unit.storage.upstream import SOURCE, backup, upstream
from tests.unit.storage.world import DISCARDED, OUT, UP, End, World, check_refused, refused

BOTH = {0: SOURCE, 1: SOURCE}
MARK: SyncMark = (p64(10), b"order-7", 1000.0, b"jim: pays", [0, 1], [p64(2), p64(3)], [])


@pytest.fixture
def master(world: World) -> End:
    return backup(world)


@pytest.fixture
def source(world: World, master: End) -> End:
    return connected(world, master)


def fetch(source: End, ttid: int, *partitions: int) -> int:
    """The node fetches these partitions."""
    message_id, m = take_question(source, AskFetchVoted)
    assert m == AskFetchVoted(p64(ttid), [*partitions])
    return message_id


def serve(
    source: End, ttid: int, partitions: dict[int, list[AddVotedObject]], metadata: int = 0
) -> None:
    """Answer the fetch of these partitions with rows; ``metadata``: the partition that has it."""
    message_id = fetch(source, ttid, *partitions)
    for partition, rows in partitions.items():
        send(source, ttid, partition, *rows, metadata=partition == metadata)
    answer(source, message_id, AnswerFetchVoted(p64(ttid)))


def answered(asked: list[Any], world: World) -> Any:
    world.wait(lambda: bool(asked), "AskVoted is not answered")
    return asked[0]


def failed(asked: list[Any], world: World) -> str:
    code, text = refused(answered(asked, world))
    assert code == ErrorCode.INCOMPLETE_TRANSACTION.value
    return text


def fetch_both(master: End, source: End, mark: SyncMark | None = None) -> None:
    """The node fetches objects 2 and 3 of transaction 10 for its master."""
    asked = ask_voted(master, 10, 2, 3, sources=BOTH, mark=mark)
    serve(source, 10, {0: [row(10, 2, b"x")], 1: [row(10, 3, b"y")]})
    assert answered(asked, master.world) == AnswerVoted(p64(10))


# -- rows that are here, or come -------------------------------------------------------------------


def test_rows_that_are_here_are_not_fetched(world: World, master: End, source: End) -> None:
    send(source, 10, 0, row(10, 2, b"x"), metadata=True)
    send(source, 10, 1, row(10, 3, b"y"))
    store_later(source, 10, 0, 1)
    asked = ask_voted(master, 10, 2, 3, sources=BOTH)
    assert not asked, "the database has not called back"
    assert answered(asked, world) == AnswerVoted(p64(10))
    assert not [m for _, m in source.inbox if isinstance(m, AskFetchVoted)]


def test_rows_that_arrive_are_waited_for(world: World, master: End, source: End) -> None:
    source.send(row(10, 2, b"x"))
    send(source, 10, 0, row(10, 2, b"x"), metadata=True)
    asked = ask_voted(master, 10, 2, 4, sources={0: SOURCE})
    world.settle()
    assert not asked and not source.inbox
    source.send(row(10, 4, b"y"))
    store_later(source, 10, 0)
    assert answered(asked, world) == AnswerVoted(p64(10))
    assert kept(world, 10) == [p64(2), p64(4)]


def test_what_is_lacking_is_fetched(world: World, master: End) -> None:
    """Each partition from its node; partitions that are here are not asked for."""
    first, second = connected(world, master), connected(world, master, OTHER)
    send(first, 10, 0, row(10, 2, b"x"), metadata=True)
    store_later(first, 10, 0)
    asked = ask_voted(master, 10, 2, 3, sources={0: SOURCE, 1: OTHER})
    serve(second, 10, {1: [row(10, 3, b"y")]})
    assert answered(asked, world) == AnswerVoted(p64(10))
    assert kept(world, 10) == [p64(2), p64(3)]
    assert not [m for _, m in first.inbox if isinstance(m, AskFetchVoted)]


def test_partitions_of_one_node_are_fetched_together(world: World, master: End) -> None:
    asked = ask_voted(master, 10, 2, 3, sources=BOTH)
    source = upstream(world, FEATURE_OURS)
    serve(source, 10, {0: [row(10, 2, b"x")], 1: [row(10, 3, b"y")]})
    assert answered(asked, world) == AnswerVoted(p64(10))
    assert kept(world, 10) == [p64(2), p64(3)]


@pytest.mark.parametrize("lacking", ["object", "metadata"])
def test_complete_partitions_that_lack_something_are_fetched(
    world: World, master: End, source: End, lacking: str
) -> None:
    """The node of the upstream cluster did not have all of it when it sent its vote."""
    rows = [row(10, 2, b"x"), row(10, 4, b"y")]
    sent = rows[:1] if lacking == "object" else rows
    send(source, 10, 0, *sent, metadata=lacking == "object")
    store_later(source, 10, 0)
    world.settle()
    asked = ask_voted(master, 10, 2, 4, sources={0: SOURCE})
    source.inbox = [each for each in source.inbox if isinstance(each[1], AskFetchVoted)]
    serve(source, 10, {0: rows})
    assert answered(asked, world) == AnswerVoted(p64(10))
    assert kept(world, 10) == [p64(2), p64(4)]
    assert world.backend.commits.prepared_rows(p64(10)).metadata is not None


def test_the_metadata_is_needed_in_its_partition_only(
    world: World, master: End, source: End
) -> None:
    """Specification 25.10."""
    asked = ask_voted(master, 10, 3, sources={1: SOURCE})
    serve(source, 10, {1: [row(10, 3, b"y")]})
    assert answered(asked, world) == AnswerVoted(p64(10))
    assert world.backend.commits.prepared_rows(p64(10)).metadata is None


def test_objects_of_other_partitions_are_not_needed(world: World, master: End, source: End) -> None:
    asked = ask_voted(master, 10, 2, 3, sources={0: SOURCE})
    serve(source, 10, {0: [row(10, 2, b"x")]})
    assert answered(asked, world) == AnswerVoted(p64(10))


def test_two_transactions_are_fetched_at_once(world: World, master: End, source: End) -> None:
    """Their rows are mixed on the connection."""
    asked = [ask_voted(master, ttid, ttid, sources={0: SOURCE}) for ttid in (10, 14)]
    fetches = [fetch(source, 10, 0), fetch(source, 14, 0)]
    send(source, 10, 0, metadata=True)
    send(source, 14, 0, row(14, 14, b"y"), metadata=True)
    source.send(row(10, 10, b"x"))
    answer(source, fetches[1], AnswerFetchVoted(p64(14)))
    assert answered(asked[1], world) == AnswerVoted(p64(14))
    assert not asked[0]
    answer(source, fetches[0], AnswerFetchVoted(p64(10)))
    assert answered(asked[0], world) == AnswerVoted(p64(10))
    assert (kept(world, 10), kept(world, 14)) == ([p64(10)], [p64(14)])


def test_rows_of_the_vote_do_not_mix_with_those_of_a_fetch(world: World, master: End) -> None:
    """Another node of the upstream cluster begins to send its vote."""
    first, second = connected(world, master), connected(world, master, OTHER)
    asked = ask_voted(master, 10, 2, 4, sources={0: SOURCE})
    message_id = fetch(first, 10, 0)
    send(first, 10, 0, row(10, 2, b"x"), metadata=True)
    send(second, 10, 0, row(10, 2, b"x"), metadata=True)
    first.send(row(10, 4, b"y"))
    answer(first, message_id, AnswerFetchVoted(p64(10)))
    world.settle()
    assert not asked and kept(world, 10) == [p64(2)]
    second.send(row(10, 4, b"y"))
    store_later(second, 10, 0)
    assert answered(asked, world) == AnswerVoted(p64(10))
    assert kept(world, 10) == [p64(2), p64(4)]


def test_rows_of_another_node_are_kept_while_the_rest_is_fetched(world: World, master: End) -> None:
    """Specification 25.9: the master asked for them."""
    first, second = connected(world, master), connected(world, master, OTHER)
    send(first, 10, 0, row(10, 2, b"x"), metadata=True)
    store_later(first, 10, 0)
    asked = ask_voted(master, 10, 2, 3, sources={0: SOURCE, 1: OTHER})
    first.send(NotifyAborted(p64(10)))
    first.disconnect()
    serve(second, 10, {1: [row(10, 3, b"y")]})
    assert answered(asked, world) == AnswerVoted(p64(10))
    assert kept(world, 10) == [p64(2), p64(3)]


def test_rows_that_their_node_does_not_end_are_fetched(
    world: World, master: End, source: End
) -> None:
    """Specification 25.9: it stops among them when the transaction ends there."""
    send(source, 10, 0, row(10, 2, b"x"), metadata=True)
    asked = ask_voted(master, 10, 2, 4, sources={0: SOURCE})
    assert not source.inbox
    source.send(NotifyAborted(p64(10)))
    serve(source, 10, {0: [row(10, 2, b"x"), row(10, 4, b"y")]})
    assert answered(asked, world) == AnswerVoted(p64(10))
    assert kept(world, 10) == [p64(2), p64(4)]


# -- aborts ----------------------------------------------------------------------------------------


def test_what_the_master_aborts_is_not_kept(world: World, master: End, source: End) -> None:
    """Specification 25.18: it does not tell twice."""
    asked = ask_voted(master, 10, 2, 3, sources=BOTH, mark=MARK)
    message_id = fetch(source, 10, 0, 1)
    send(source, 10, 0, row(10, 2, b"x"), metadata=True)
    master.send(AbortTransaction(p64(10), []))
    send(source, 10, 1, row(10, 3, b"y"))
    answer(source, message_id, AnswerFetchVoted(p64(10)))
    assert "aborted meanwhile" in failed(asked, world)
    assert not source.inbox and world.backend.marks.prepared() == []
    source.disconnect()
    assert world.backend.commits.locked_transactions() == {}


def test_what_the_master_aborts_is_waited_for_no_more(
    world: World, master: End, source: End
) -> None:
    """Specification 25.18."""
    send(source, 10, 0, row(10, 2, b"x"), metadata=True)
    asked = ask_voted(master, 10, 2, sources={0: SOURCE})
    master.send(AbortTransaction(p64(10), []))
    assert "aborted meanwhile" in failed(asked, world)
    assert not source.inbox and world.backend.commits.locked_transactions() == {}


# -- the end of the membership ---------------------------------------------------------------------


def test_a_node_of_a_backup_that_leaves_ends_its_subscriptions(
    world: World, master: End, source: End
) -> None:
    """Specification 25.18: what is not confirmed is dropped, since nobody would tell of its end."""
    fetch_both(master, source)
    send(source, 20, 0, row(20, 2, b"z"), metadata=True)
    store_later(source, 20, 0)
    assert kept(world, 20) == [p64(2)]
    master.send(NotifyLeft())
    world.settle()
    assert source.closed
    assert kept(world, 20) == [], "not confirmed"
    assert kept(world, 10) == [p64(2), p64(3)], "confirmed"
    again = ask_voted(master, 30, 2, sources={0: SOURCE})
    serve(upstream(world, FEATURE_OURS), 30, {0: [row(30, 2, b"w")]})
    assert answered(again, world) == AnswerVoted(p64(30))


def test_what_is_being_fetched_arrives_before_the_subscription_ends(
    world: World, master: End, source: End
) -> None:
    """Specification 25.18: a large prepared transaction would never be had."""
    asked = ask_voted(master, 10, 2, 3, sources=BOTH, mark=MARK)
    message_id = fetch(source, 10, 0, 1)
    master.send(NotifyLeft())
    send(source, 10, 0, row(10, 2, b"x"), metadata=True)
    send(source, 10, 1, row(10, 3, b"y"))
    assert not source.closed
    answer(source, message_id, AnswerFetchVoted(p64(10)))
    assert answered(asked, world) == AnswerVoted(p64(10))
    assert source.closed and kept(world, 10) == [p64(2), p64(3)]


# -- marks -----------------------------------------------------------------------------------------


def test_the_mark_is_stored_with_the_rows(world: World, master: End, source: End) -> None:
    """Specification 25.26."""
    asked = ask_voted(master, 10, 2, 3, sources=BOTH, mark=MARK)
    message_id = fetch(source, 10, 0, 1)
    send(source, 10, 0, row(10, 2, b"x"), metadata=True)
    send(source, 10, 1, row(10, 3, b"y"))
    assert world.backend.marks.prepared() == []
    answer(source, message_id, AnswerFetchVoted(p64(10)))
    assert answered(asked, world) == AnswerVoted(p64(10))
    found = master.ask(AskPreparedTransactions())
    assert found == AnswerPreparedTransactions([MARK], [])


def test_a_mark_may_be_asked_for_again(world: World, master: End, source: End) -> None:
    """Specification 25.26: the backup joins again. The rows are here."""
    for _ in range(2):
        asked = ask_voted(master, 10, 2, 3, sources=BOTH, mark=MARK)
        if source.inbox:
            serve(source, 10, {0: [row(10, 2, b"x")], 1: [row(10, 3, b"y")]})
        assert answered(asked, world) == AnswerVoted(p64(10))
    assert not source.inbox and len(world.backend.marks.prepared()) == 1


@pytest.mark.parametrize("state", [DISCARDED, CellState.CORRUPTED])
def test_rows_of_a_cell_that_was_erased_are_fetched(
    world: World, master: End, source: End, state: CellState
) -> None:
    """The rows of a prepared transaction go with the cell (specification 24.35)."""
    fetch_both(master, source, MARK)
    master.send(NotifyPartitionChanges(2, 0, [(0, 1, state), (0, 2, UP)]))
    while world.backend.maintenance.drop_partition(0, 100):
        pass
    master.send(NotifyPartitionChanges(3, 0, [(0, 1, OUT)]))
    asked = ask_voted(master, 10, 2, 3, sources=BOTH, mark=MARK)
    source.inbox = [each for each in source.inbox if isinstance(each[1], AskFetchVoted)]
    serve(source, 10, {0: [row(10, 2, b"x")]})
    assert answered(asked, world) == AnswerVoted(p64(10))
    assert kept(world, 10) == [p64(2), p64(3)]


def test_an_undo_that_goes_back_to_what_is_not_here_is_fetched_once_more(
    world: World, master: End, source: End
) -> None:
    """A pack may have removed the revision before the undo came. Upstream it is known to which other one
    it refers then (specification 25.64)."""
    send(source, 10, 0, row(10, 2, b"x", 6), metadata=True)
    stored = store_later(source, 10, 0)
    world.settle()
    assert stored == [AnswerStoreVoted(p64(10))], "the client is not refused"
    asked = ask_voted(master, 10, 2, sources={0: SOURCE})
    serve(source, 10, {0: [row(10, 2, b"x", 8)]})
    assert answered(asked, world) == AnswerVoted(p64(10)), "what was fetched is believed"
    (change,) = world.backend.commits.prepared_rows(p64(10)).stored
    assert change.value_serial == p64(8) and not source.inbox


# -- what cannot be had ----------------------------------------------------------------------------


def test_a_node_that_cannot_be_reached_is_an_error(world: World, master: End) -> None:
    asked = ask_voted(master, 10, 2, sources={0: SOURCE})
    world.wait(lambda: bool(world.host.dialed), "upstream is not dialed")
    world.take_dial().disconnect()
    assert p64(10).hex() in failed(asked, world)


def test_a_node_that_does_not_know_the_feature_is_not_asked(world: World, master: End) -> None:
    """Specification 21.2: it would end the connection."""
    asked = ask_voted(master, 10, 2, sources={0: SOURCE})
    source = upstream(world, "unheard of")
    assert "127.0.0.1:7001 of the upstream cluster must be updated" in failed(asked, world)
    assert not source.inbox


def damaged(ttid: int) -> AddVotedObject:
    return replace(row(ttid, 2, b"x"), data=b"y")


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        pytest.param([damaged(10)], "does not match its checksum", id="damaged"),
        pytest.param([row(10, 2, b"x" * 11)], "11 bytes", id="refused by the database"),
    ],
)
def test_rows_that_cannot_be_kept_are_an_error(
    world: World, master: End, source: End, rows: list[AddVotedObject], problem: str
) -> None:
    world.backend.engine.value_max = 10
    asked = ask_voted(master, 10, 2, sources={0: SOURCE})
    serve(source, 10, {0: rows})
    assert problem in failed(asked, world)


def test_a_node_that_is_lost_or_refuses_is_an_error(world: World, master: End, source: End) -> None:
    refusal = Error(ErrorCode.NON_READABLE_CELL.value, "it cannot be read")
    asked = ask_voted(master, 10, 2, sources={0: SOURCE})
    answer(source, fetch(source, 10, 0), refusal)
    assert "it cannot be read" in failed(asked, world)
    asked = ask_voted(master, 10, 2, sources={0: SOURCE})
    fetch(source, 10, 0)
    send(source, 10, 0, row(10, 2, b"x"), metadata=True)
    source.disconnect()
    assert "cannot be had" in failed(asked, world)


def test_rows_that_arrived_damaged_are_fetched(world: World, master: End, source: End) -> None:
    """Specification 25.10: the question waits for them no more."""
    send(source, 10, 0)
    asked = ask_voted(master, 10, 2, sources={0: SOURCE})
    source.send(damaged(10))
    assert not source.inbox
    stored = store_later(source, 10, 0)
    assert "does not match its checksum" in refused(stored[0])[1]
    serve(source, 10, {0: [row(10, 2, b"x")]})
    assert answered(asked, world) == AnswerVoted(p64(10))


def test_rows_that_the_node_does_not_send_are_asked_for_a_few_times(
    world: World, master: End, source: End
) -> None:
    asked = ask_voted(master, 10, 2, 4, sources={0: SOURCE})
    for _ in range(FETCHES_MAX):
        assert not asked
        serve(source, 10, {0: [row(10, 2, b"x")]})
    assert "partition 0" in failed(asked, world)
    assert not source.inbox


def test_an_error_does_not_prevent_another_question(world: World, master: End, source: End) -> None:
    """Specification 25.18: the backup joins again."""
    asked = ask_voted(master, 10, 2, 3, sources=BOTH)
    message_id = fetch(source, 10, 0, 1)
    send(source, 10, 0, row(10, 2, b"x"), metadata=True)
    answer(source, message_id, Error(ErrorCode.NON_READABLE_CELL.value, "it cannot be read"))
    failed(asked, world)
    master.send(AbortTransaction(p64(10), []))
    assert kept(world, 10) == []
    fetch_both(master, source)


def test_a_node_that_is_not_one_of_a_backup_refuses(world: World) -> None:
    master = world.operate()
    asked = ask_voted(master, 10, 2, sources={0: SOURCE})
    check_refused(answered(asked, world), ErrorCode.NOT_READY)
    assert not world.host.dialed


def test_a_question_ends_with_the_operation(world: World, master: End, source: End) -> None:
    asked = ask_voted(master, 10, 2, sources={0: SOURCE})
    send(source, 14, 0, row(14, 4, b"x"))
    waiting = ask_voted(master, 14, 4, sources={0: SOURCE})
    master.send(StopOperation())
    world.settle()
    assert not asked and not waiting and world.host.restarts == 0
    assert not world.core.background.jobs
