"""What a storage node of a synchronous backup keeps of transactions that are prepared upstream."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1
from typing import Any

from neo.protocol.enums import ErrorCode, NodeType
from neo.protocol.ids import p64
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    AbortTransaction,
    AcceptIdentification,
    AddVoted,
    AddVotedObject,
    AnswerFetchVoted,
    AnswerInformationLocked,
    AnswerPrepareInformation,
    AnswerVoted,
    AskCheckCurrentSerial,
    AskFetchVoted,
    AskLockInformation,
    AskPreparedTransactions,
    AskPrepareInformation,
    AskVoted,
    AskVoteTransaction,
    Error,
    NotifyFeatures,
    NotifyUnlockInformation,
    RequestIdentification,
    SyncMark,
)
from tests.unit.storage.prepared.fetching import restart
from tests.unit.storage.replicas import answer, reply, take_question
from tests.unit.storage.requests import voted
from tests.unit.storage.upstream import SOURCE, backup, upstream
from tests.unit.storage.world import C1, End, MakeWorld, World, check_refused, refused

XID = b"order-7"
#: Transaction 10, whose metadata is in partition 0 as object 2. It stores 2 and 3, and checks 5.
MARK: SyncMark = (p64(10), XID, 5.0, b"", [0, 1], [p64(2), p64(3)], [p64(5)])
DATA = b"upstream"


def ask(master: End, *partitions: int) -> list[Any]:
    """Let the own master ask for these partitions. Return a list that will have the answer."""
    sources = dict.fromkeys(partitions, SOURCE)
    oids = [p64(oid) for oid in (2, 3) if oid % 2 in partitions]
    return master.ask_later(AskVoted(p64(10), "up", sources, oids, MARK))


def send(source: End, *oids: int) -> None:
    for oid in oids:
        meta = (b"user", b"", b"", [p64(2), p64(3)]) if oid == 2 else None
        source.send(AddVoted(p64(10), oid % 2, meta))
        source.send(AddVotedObject(p64(10), p64(oid), 0, sha1(DATA).digest(), DATA, None))


def serve(source: End, *oids: int) -> None:
    """Answer the next AskFetchVoted with these objects."""
    message_id, request = take_question(source, AskFetchVoted)
    assert request == AskFetchVoted(p64(10), [oid % 2 for oid in oids])
    send(source, *oids)
    answer(source, message_id, AnswerFetchVoted(p64(10)))


def got(world: World, answers: list[Any]) -> Any:
    world.wait(lambda: bool(answers), "no answer")
    return answers[0]


def half_kept(world: World) -> tuple[End, End]:
    """The node has the rows of partition 0. Return its master, and the node that sent them."""
    master = backup(world)
    first = ask(master, 0)
    source = upstream(world, FEATURE_OURS)
    serve(source, 2)
    assert got(world, first) == AnswerVoted(p64(10))
    return master, source


def kept(master: End, checked: bool = False) -> list[bytes]:
    """Return the oids that the node stores with a mark, or those that it checks."""
    marks = master.ask(AskPreparedTransactions()).mark_list
    assert [row[0] for row in marks] in ([], [p64(10)])
    return [oid for row in marks for oid in row[6 if checked else 5]]


def commit(master: End) -> None:
    locked = master.ask(AskLockInformation(p64(10), p64(12)))
    assert locked == AnswerInformationLocked(p64(10))
    master.send(NotifyUnlockInformation(p64(10)))
    master.world.settle()


def values(world: World, oids: Sequence[int] = (2, 3)) -> list[bytes | None]:
    found = [world.backend.reads.load(p64(oid), None, None) for oid in oids]
    return [None if each is None else each.data for each in found]


def test_a_kept_transaction_gets_the_rows_of_a_further_partition(world: World) -> None:
    """Specification 25.53: another cell of the node is about to become readable."""
    master, source = half_kept(world)
    second = ask(master, 1)
    serve(source, 3)
    assert got(world, second) == AnswerVoted(p64(10))
    assert kept(master) == [p64(2), p64(3)]
    commit(master)
    assert values(world) == [DATA, DATA]


def test_what_it_checks_is_kept_in_the_partitions_of_the_node(world: World) -> None:
    """Specification 25.60: others must not change it after a take-over."""
    master, source = half_kept(world)
    assert kept(master, checked=True) == []
    second = ask(master, 1)
    serve(source, 3)
    got(world, second)
    assert kept(master, checked=True) == [p64(5)]
    master.send(AbortTransaction(p64(10), []))
    assert kept(master, checked=True) == []


def test_a_source_that_is_lost_takes_nothing_that_is_kept(world: World) -> None:
    """Specification 25.9, 25.53: rows of a further partition were arriving."""
    master, source = half_kept(world)
    second = ask(master, 1)
    take_question(source, AskFetchVoted)
    send(source, 3)
    source.disconnect()
    check_refused(got(world, second), ErrorCode.INCOMPLETE_TRANSACTION)
    third = ask(master, 1)
    serve(upstream(world, FEATURE_OURS), 3)
    assert got(world, third) == AnswerVoted(p64(10))
    commit(master)
    assert values(world) == [DATA, DATA]


def test_what_stays_prepared_at_a_restart_is_not_fetched_again(
    world: World, make_world: MakeWorld
) -> None:
    """Specification 25.54: the upstream cluster may be lost."""
    master = backup(world)
    answers = ask(master, 0, 1)
    serve(upstream(world, FEATURE_OURS), 2, 3)
    got(world, answers)
    world, master = restart(make_world, 10, backup=True)
    assert got(world, ask(master, 0, 1)) == AnswerVoted(p64(10))
    assert not world.host.dialed
    commit(master)
    assert values(world) == [DATA, DATA]
    assert kept(master) == []


def test_rows_that_a_restart_found_incomplete_are_fetched(
    world: World, make_world: MakeWorld
) -> None:
    """Specification 25.54: they were arriving."""
    half_kept(world)
    world, master = restart(make_world, 10, backup=True)
    answers = ask(master, 0, 1)
    source = upstream(world, FEATURE_OURS)
    serve(source, 3)
    assert got(world, answers) == AnswerVoted(p64(10))
    master.send(AbortTransaction(p64(10), []))
    assert kept(master) == [] and values(world) == [None, None]


def test_the_master_is_told_that_a_transaction_has_ended_upstream(world: World) -> None:
    """Specification 25.55."""
    master = backup(world)
    answers = ask(master, 0)
    source = upstream(world, FEATURE_OURS)
    reply(source, AskFetchVoted, Error(ErrorCode.TID_NOT_FOUND.value, "it is not in progress"))
    code, text = refused(got(world, answers))
    assert code == ErrorCode.TID_NOT_FOUND.value and text.endswith("it is not in progress")
    assert kept(master) == []


def test_a_node_that_only_checks_for_a_prepared_transaction_has_it(world: World) -> None:
    """Specification 25.11: the backup needs its mark in each partition of the transaction."""
    master = world.operate()
    master.send(NotifyFeatures([FEATURE_OURS]))
    client = world.client(master, C1)
    voted(client, 2, 3)
    assert master.ask(AskLockInformation(p64(2), p64(4))).ttid == p64(2)
    master.send(NotifyUnlockInformation(p64(2)))
    world.settle()
    assert client.ask(AskCheckCurrentSerial(p64(10), p64(3), p64(4))).locked is None
    client.ask(AskVoteTransaction(p64(10)))
    mark = AskPrepareInformation(p64(10), XID, 5.0, b"", [0, 1])
    assert master.ask(mark) == AnswerPrepareInformation(p64(10))
    peer = world.stranger()
    request = RequestIdentification(
        *(NodeType.STORAGE, None, ("127.0.0.1", 4000), "test", 1.0),
        {FEATURES: [FEATURE_OURS]},
    )
    assert peer.ask(request) == AcceptIdentification(NodeType.STORAGE, None, None)
    assert peer.ask(AskFetchVoted(p64(10), [1])) == AnswerFetchVoted(p64(10))
