"""Comparison of replicas by a storage node, and what it answers others (specification 11)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from neo.protocol.enums import CellState, ErrorCode, NodeState, NodeType
from neo.protocol.ids import ZERO_HASH, ZERO_OID, ZERO_TID, p64
from neo.protocol.packets import (
    AnswerCheckSerialRange,
    AnswerCheckTIDRange,
    AskCheckSerialRange,
    AskCheckTIDRange,
    AskLockInformation,
    AskPack,
    CloseClient,
    Error,
    Message,
    NotifyCellsBehind,
    NotifyPartitionChanges,
    NotifyPartitionChecked,
    NotifyPartitionCorrupted,
    NotifyUnlockInformation,
    Request,
)
from neo.storage.maintenance.check import AGAIN_SECONDS
from tests.unit.storage.comparing import (
    FINE,
    MAX,
    SERIALS,
    TIDS,
    Compared,
    address,
    comparing,
    digest,
    full,
)
from tests.unit.storage.replicas import Destination, reply, storage
from tests.unit.storage.requests import store, vote, voted
from tests.unit.storage.world import UP, End, MakeWorld, World, check_refused

# -- answers -------------------------------------------------------------------------------------


def test_digests_of_transactions(world: World, master: End) -> None:
    """Specification 11.5."""
    full(world, master)
    peer = storage(world, master, 2)
    ask = AskCheckTIDRange(0, 40000, ZERO_TID, MAX)
    assert peer.ask(ask) == AnswerCheckTIDRange(3, digest(12, 16, 20), p64(20))
    assert peer.ask(replace(ask, length=2)) == AnswerCheckTIDRange(2, digest(12, 16), p64(16))
    assert peer.ask(replace(ask, max_tid=p64(17), min_tid=p64(13))) == AnswerCheckTIDRange(
        1, digest(16), p64(16)
    )
    nothing = AnswerCheckTIDRange(0, ZERO_HASH, ZERO_TID)
    assert peer.ask(replace(ask, partition=1)) == nothing


def test_digests_of_revisions_by_tid_and_oid(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Specification 11.5."""
    monkeypatch.setattr("neo.storage.maintenance.digests.STEP_LENGTH", 1)
    master = world.operate()
    full(world, master)
    peer = storage(world, master, 2)
    ask = AskCheckSerialRange(0, 40000, ZERO_TID, MAX, ZERO_OID)
    assert peer.ask(ask) == AnswerCheckSerialRange(
        3, digest(12, 16, 20), p64(20), digest(0, 2, 0), p64(0)
    )
    later = replace(ask, min_tid=p64(16), min_oid=p64(3), length=1)
    assert peer.ask(later) == AnswerCheckSerialRange(1, digest(20), p64(20), digest(0), p64(0))


def test_what_is_being_packed_is_not_compared(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Specification 11.6."""
    monkeypatch.setattr("neo.storage.maintenance.pack.STEP_LENGTH", 1)
    master = world.operate()
    full(world, master)
    peer = storage(world, master, 2)
    master.ask_later(AskPack(p64(20)))
    check_refused(
        peer.ask(AskCheckTIDRange(0, 9, ZERO_TID, MAX)), ErrorCode.CHECKING_ERROR, "packed"
    )


# -- questions -----------------------------------------------------------------------------------


LESS = AnswerCheckTIDRange(2, digest(12, 20), p64(20))
OTHER_OID = AnswerCheckSerialRange(3, digest(12, 16, 20), p64(20), digest(0, 4, 0), p64(0))


def test_equal_replicas(world: World) -> None:
    """Specification 11.4, 11.13."""
    checked = comparing(world, 2)
    checked.find_equal()
    assert checked.others[2].take(CloseClient) == CloseClient()


def test_chunks_go_on_behind_the_last_row(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Specification 11.4."""
    monkeypatch.setattr("neo.storage.maintenance.check.LENGTH", 2)
    checked = comparing(world, 2)
    other = checked.others[2]
    for expected, row in (
        (AskCheckTIDRange(0, 2, ZERO_TID, p64(20)), (2, digest(12, 16), p64(16))),
        (AskCheckTIDRange(0, 2, p64(17), p64(20)), (1, digest(20), p64(20))),
    ):
        question = reply(other, AskCheckTIDRange, AnswerCheckTIDRange(*row))
        assert question == expected
    part = AnswerCheckSerialRange(2, digest(12, 16), p64(16), digest(0, 2), p64(2))
    first = reply(other, AskCheckSerialRange, part)
    assert first == AskCheckSerialRange(0, 2, ZERO_TID, p64(20), ZERO_OID)
    second = reply(
        other,
        AskCheckSerialRange,
        AnswerCheckSerialRange(1, digest(20), p64(20), digest(0), p64(0)),
    )
    assert second == AskCheckSerialRange(0, 2, p64(16), p64(20), p64(3))
    assert checked.result() == [FINE]


@pytest.mark.parametrize("serials", [False, True])
def test_of_two_that_differ_both_are_reported(world: World, serials: bool) -> None:
    """Specification 11.9."""
    checked = comparing(world, 2)
    if serials:
        checked.replies(2, TIDS)
    checked.insist({2: OTHER_OID if serials else LESS})
    assert checked.result() == [NotifyPartitionCorrupted(0, [1, 2]), FINE]


@pytest.mark.parametrize("serials", [False, True])
def test_a_copy_that_is_behind_is_told_with_where(world: World, serials: bool) -> None:
    """It has the first rows of this node, which a master with that feature is told
    (specification 11.11)."""
    checked = comparing(world, 2, tails=True)
    if serials:
        checked.replies(2, TIDS)
    first = AnswerCheckSerialRange(1, digest(12), p64(12), digest(0), p64(0))
    checked.insist({2: first if serials else AnswerCheckTIDRange(1, digest(12), p64(12))})
    assert checked.result() == [
        NotifyCellsBehind(0, 1, serials, {2: (p64(16), 2)}),
        NotifyPartitionCorrupted(0, [1, 2]),
        FINE,
    ]


def test_a_node_that_is_behind_itself_asks_the_other_one(world: World) -> None:
    checked = comparing(world, 2, tails=True)
    checked.insist({2: AnswerCheckTIDRange(4, digest(12, 16, 20, 22), p64(22))})
    m = reply(checked.others[2], AskCheckTIDRange, TIDS)
    assert m.length == 3
    m = reply(checked.others[2], AskCheckTIDRange, AnswerCheckTIDRange(1, digest(22), p64(22)))
    assert (m.length, m.min_tid) == (1, p64(21))
    assert checked.result()[0] == NotifyCellsBehind(0, 2, False, {1: (p64(22), 1)})


def test_a_copy_that_lacks_something_else_is_not_called_behind(world: World) -> None:
    """Specification 11.11."""
    checked = comparing(world, 2, tails=True)
    checked.insist({2: LESS})
    assert checked.result() == [NotifyPartitionCorrupted(0, [1, 2]), FINE]


@pytest.mark.parametrize(("reference", "wrong"), [(1, 2), (2, 1)])
def test_with_a_reference_the_other_one_is_wrong(world: World, reference: int, wrong: int) -> None:
    """Specification 11.8."""
    checked = Compared(world, 2)
    world.notify(checked.master, (NodeType.STORAGE, address(1), 1, NodeState.RUNNING, 1.5))
    checked.check(reference)
    checked.connect(2)
    checked.insist({2: LESS})
    assert checked.result() == [NotifyPartitionCorrupted(0, [wrong]), FINE]


def test_the_majority_is_right_and_is_compared_further(world: World) -> None:
    """Specification 11.8, 11.9."""
    checked = comparing(world, 2, 3)
    checked.insist({2: TIDS, 3: LESS})
    # S3 may be behind only: it is not, because the first two of S2 are others.
    checked.replies(2, AnswerCheckTIDRange(2, digest(12, 16), p64(16)), SERIALS)
    assert checked.result() == [NotifyPartitionCorrupted(0, [3]), FINE]
    assert not checked.others[3].inbox[1:]


def test_a_node_that_is_in_the_minority_itself_says_so(world: World) -> None:
    checked = comparing(world, 2, 3)
    checked.insist({2: LESS, 3: LESS})
    checked.replies(2, SERIALS)
    checked.replies(3, SERIALS)
    assert checked.result() == [NotifyPartitionCorrupted(0, [1]), FINE]


def test_a_difference_that_goes_away_is_none(world: World) -> None:
    """The other node did not know of a pack yet (specification 11.7)."""
    checked = comparing(world, 2)
    checked.replies(2, LESS)
    world.settle()
    world.host.advance(1)
    checked.find_equal()


def test_a_node_that_is_lost_is_told(world: World) -> None:
    checked = comparing(world, 2)
    checked.lose(2)
    (end,) = checked.result()
    assert isinstance(end, NotifyPartitionChecked)
    assert end.problem.startswith("S2: connection with ")


def test_a_connection_that_is_lost_is_made_again(world: World) -> None:
    """The other node had nothing more to ask, and closed it."""
    checked = comparing(world, 2)
    checked.others[2].disconnect()
    world.host.advance(AGAIN_SECONDS[0])
    checked.connect(2)
    checked.find_equal()


def test_a_cell_that_its_node_does_not_know_to_be_readable_yet_is_asked_again(world: World) -> None:
    """This node got the news of the master first."""
    checked = comparing(world, 2)
    refusal = Error(ErrorCode.CHECKING_ERROR.value, "partition 0 cannot be read here")
    reply(checked.others[2], AskCheckTIDRange, refusal)
    world.settle()
    world.host.advance(AGAIN_SECONDS[0])
    checked.find_equal()


def without_the_third(world: World, third_votes: bool) -> list[Message]:
    """S2 is wrong, and S3 is lost after it voted, or before: what the master hears at the end."""
    checked = comparing(world, 2, 3)
    for pause in (0, 1):
        world.settle()
        world.host.advance(pause)
        checked.replies(2, LESS)
        if third_votes:
            checked.replies(3, TIDS)
        elif not pause:
            checked.lose(3)
    world.settle()
    world.host.advance(3)
    checked.replies(2, LESS)
    if third_votes:
        checked.lose(3)
    return checked.result()


def test_who_is_lost_when_a_difference_is_looked_at_again_has_voted(world: World) -> None:
    """A partition moves away from it. Without its digest, no cell is known to be right."""
    corrupted, end = without_the_third(world, third_votes=True)
    assert corrupted == NotifyPartitionCorrupted(0, [2])
    assert isinstance(end, NotifyPartitionChecked) and end.problem.startswith("S3: ")


def test_nobody_is_called_wrong_while_who_could_say_it_cannot_be_asked(world: World) -> None:
    """Else all would be copied anew from that cell, which was not compared (specification 11.10)."""
    (end,) = without_the_third(world, third_votes=False)
    problem = "S1, S2 differ, and none is known to be right: S3 could not be compared; check again"
    assert end == NotifyPartitionChecked(0, problem)


def test_a_reference_that_is_lost_ends_the_check(world: World) -> None:
    checked = Compared(world, 2)
    checked.check(2)
    checked.connect(2)
    checked.lose(2)
    (end,) = checked.result()
    assert isinstance(end, NotifyPartitionChecked)
    assert "the reference does not answer" in end.problem


def test_nothing_to_compare_is_a_problem(world: World) -> None:
    """Specification 11.13."""
    checked = Compared(world)
    checked.check()
    assert checked.result() == [NotifyPartitionChecked(0, "no other node can be compared any more")]


# -- repair --------------------------------------------------------------------------------------


def test_a_corrupted_cell_is_erased_and_copied_anew(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its ids: what has the right ids may have the wrong bytes (specification 11.18)."""
    monkeypatch.setattr("neo.storage.replication.fetch.STEP_LENGTH", 1)
    world = make_world()
    master = world.operate()
    full(world, master)
    master.send(NotifyPartitionChanges(2, 0, [(0, 2, UP), (0, 1, CellState.CORRUPTED)]))
    world.settle()
    assert world.backend.reads.load(p64(0), p64(12), None) is not None
    world.host.advance(5)
    master.disconnect()
    node = Destination(world, ptid=3)
    node.unfinished(20)
    source = node.source()
    node.serve(source, 0, 20, {(12, 0): b"a", (16, 2): b"b", (20, 0): b"c"})
    world.wait(lambda: bool(node.master.inbox), "the cell is not complete")
    record = world.backend.reads.load(p64(0), p64(12), None)
    assert record is not None and record.data == b"a"
    assert world.backend.tables.get_config("_erase") is None


def test_a_repair_that_was_cut_short_begins_again(make_world: MakeWorld) -> None:
    """Specification 11.18."""
    world = make_world()
    master = world.operate()
    full(world, master)
    changes = [(0, 2, UP), (0, 1, CellState.CORRUPTED)]
    master.send(NotifyPartitionChanges(2, 0, changes))
    master.send(NotifyPartitionChanges(3, 0, [(0, 1, CellState.OUT_OF_DATE)]))
    world.settle()
    world = make_world()
    assert world.backend.tables.get_config("_erase") == "0"
    node = Destination(world, ptid=4)
    node.unfinished(20)
    node.serve(node.source(), 0, 20, {(12, 0): b"a", (16, 2): b"b", (20, 0): b"c"})
    world.wait(lambda: bool(node.master.inbox), "the cell is not complete")
    record = world.backend.reads.load(p64(2), None, None)
    assert record is not None and record.data == b"b"


# -- waits -----------------------------------------------------------------------------------------


def lock(world: World, master: End) -> None:
    """Lock a transaction with tid 12, which stores object 0."""
    client = world.client(master)
    voted(client, 10, 0)
    master.ask(AskLockInformation(p64(10), p64(12)))


DIGESTS = [
    AskCheckTIDRange(0, 9, ZERO_TID, p64(12)),
    AskCheckSerialRange(0, 9, ZERO_TID, p64(12), ZERO_OID),
]


@pytest.mark.parametrize("question", DIGESTS, ids=lambda question: type(question).__name__)
def test_a_digest_waits_for_what_is_locked_in_its_range_and_not_for_what_is_later(
    world: World, master: End, question: Request[Any]
) -> None:
    """Specification 11.6, 25.16: what is later may wait for the synchronous backup that compares."""
    lock(world, master)
    peer = storage(world, master, 2)
    assert peer.ask(replace(question, max_tid=p64(11))).count == 0
    answers = peer.ask_later(question)
    world.settle()
    assert not answers
    master.send(NotifyUnlockInformation(p64(10)))
    world.wait(lambda: bool(answers), "the digest does not come")
    assert answers[0].count == 1


def lock_beside(checked: Compared, number: int) -> None:
    """Lock a transaction with this tid, which changes object 2."""
    client = checked.world.client(checked.master)
    assert store(client, 14, 2, serial=16) is None
    vote(client, 14, 2)
    checked.master.ask(AskLockInformation(p64(14), p64(number)))


def test_the_own_digest_does_not_wait_for_what_is_later_than_the_range(world: World) -> None:
    """Specification 11.6, 25.16: that may wait for a synchronous backup, which is away."""
    checked = Compared(world, 2)
    lock_beside(checked, 24)
    checked.check()
    checked.connect(2)
    checked.find_equal()


def test_the_own_digest_waits_for_what_is_locked_in_the_range(world: World) -> None:
    """Specification 11.6."""
    checked = Compared(world, 2)
    lock_beside(checked, 18)
    checked.check()
    checked.connect(2)
    tids, oids = digest(12, 16, 18, 20), digest(0, 2, 2, 0)
    checked.replies(2, AnswerCheckTIDRange(4, tids, p64(20)))
    world.settle()
    assert not checked.others[2].inbox
    checked.master.send(NotifyUnlockInformation(p64(14)))
    checked.replies(2, AnswerCheckSerialRange(4, tids, p64(20), oids, p64(0)))
    assert checked.result() == [FINE]
