"""Each oracle finds its violation in a history made by hand, and none in a correct history."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from neo.protocol.ids import p64
from tests.simulator.disk_check import Rows
from tests.simulator.history import Attempt, History, Listing, Outcome, Read, Snapshot
from tests.simulator.oracles import check_reads, judge
from tests.simulator.tables import Tables, join_tables
from tests.simulator.world import Violation, World

A, B, C = p64(1), p64(2), p64(3)
#: Tids.
T0, T1, T2, T3, T4 = (p64(n) for n in (0, 10, 20, 30, 40))


class Case:
    """Two transactions and reads of them: x wrote A and B at T1, y wrote A at T2, based on T1."""

    def __init__(self) -> None:
        self.history = History(World(0))
        self.x = self.attempt("x", T1, {A: T0, B: T0})
        self.y = self.attempt("y", T2, {A: T1}, after=T1)
        self.y.contents = {A: b"stored"}
        self.tables = Tables(
            {A: [T1, T2], B: [T1]},
            {T1: (self.x.mark, frozenset([A, B])), T2: (self.y.mark, frozenset([A]))},
        )
        self.read(A, T2, T1, T2)
        self.read(A, T3, T2)
        self.read(B, T3, T1)
        self.read(B, T1, None)
        self.history.listings.append(
            Listing("x", T1, T2, {T1: frozenset([A, B]), T2: frozenset([A])})
        )
        self.history.snapshots.append(Snapshot("x", T2, frozenset([A, B])))

    def attempt(
        self, client: str, tid: bytes | None, stored: dict[bytes, bytes | None], after: bytes = T0
    ) -> Attempt:
        attempt = self.history.begin(client)
        attempt.stored = stored
        attempt.tid = tid
        attempt.after = after
        attempt.outcome = Outcome.ABORTED if tid is None else Outcome.COMMITTED
        return attempt

    def read(
        self, oid: bytes, before: bytes, serial: bytes | None, next_serial: bytes | None = None
    ) -> None:
        self.history.reads.append(Read("x", oid, before, serial, next_serial))

    def judge(self) -> None:
        judge(self.history, self.tables)


def test_a_right_history_is_right() -> None:
    Case().judge()


def lost(case: Case) -> None:
    del case.tables.transactions[T2]
    case.tables.serials[A].remove(T2)


def half_lost(case: Case) -> None:
    del case.tables.serials[B]


def at_another_tid(case: Case) -> None:
    case.y.tid = T3


def aborted_and_visible(case: Case) -> None:
    case.y.outcome = Outcome.ABORTED


def begun_and_visible(case: Case) -> None:
    case.y.outcome = Outcome.BEGUN


def committed_twice(case: Case) -> None:
    case.tables.transactions[T3] = case.y.mark, frozenset([A])
    case.tables.serials[A].append(T3)


def made_by_nobody(case: Case) -> None:
    case.tables.transactions[T3] = "stranger:1", frozenset()


def lost_update(case: Case) -> None:
    z = case.attempt("z", T3, {A: T1}, after=T2)  # based on the revision that y replaced
    case.tables.transactions[T3] = z.mark, frozenset([A])
    case.tables.serials[A].append(T3)


def created_twice(case: Case) -> None:
    z = case.attempt("z", T3, {B: T0}, after=T2)  # a new object with an oid that is in use
    case.tables.transactions[T3] = z.mark, frozenset([B])
    case.tables.serials[B].append(T3)


def changed_after_read_current(case: Case) -> None:
    case.y.checked = {B: T0}


def other_objects(case: Case) -> None:
    case.y.stored = {A: T1, B: T1}


def order_of_real_time(case: Case) -> None:
    case.y.after = T3  # a client knew T3 before y began to finish


def stale_read(case: Case) -> None:
    case.read(A, T3, T1)


def read_of_the_future(case: Case) -> None:
    case.read(A, T2, T2)


def read_of_nothing(case: Case) -> None:
    case.read(A, T3, None)


def object_said_to_be_missing(case: Case) -> None:
    case.tables.contents[A, T2] = b"stored"
    case.history.reads.append(Read("x", A, T3, None, missing=True))


def wrong_next_serial(case: Case) -> None:
    case.read(A, T2, T1, T3)


def listing_without_one(case: Case) -> None:
    del case.history.listings[0].found[T1]


def listing_with_one_too_many(case: Case) -> None:
    case.history.listings.append(Listing("x", T1, T3, {T1: None, T2: None, T3: None}))


def listing_with_half_a_transaction(case: Case) -> None:
    case.history.listings[0].found[T1] = frozenset([A])


def listing_out_of_order(case: Case) -> None:
    found: dict[bytes, frozenset[bytes] | None] = {T2: None, T3: None, T1: None}
    case.tables.transactions[T3] = case.attempt("z", T3, {}).mark, frozenset()
    case.history.listings.append(Listing("x", T1, T3, found))


def snapshot_without_an_object(case: Case) -> None:
    case.history.snapshots.append(Snapshot("x", T1, frozenset([A])))


def other_data_than_stored(case: Case) -> None:
    case.tables.contents[A, T2] = b"other"


def other_data_than_read(case: Case) -> None:
    case.history.contents[B, T1] = b"read"
    case.tables.contents[B, T1] = b"kept"


def oid_given_twice_by_one_master(case: Case) -> None:
    for _ in range(2):
        case.history.given("x", C)


VIOLATIONS: list[tuple[Callable[[Case], None], str]] = [
    (lost, "acknowledged as .* and is lost"),
    (half_lost, "is half there"),
    (at_another_tid, "acknowledged as .* and is lost"),
    (aborted_and_visible, "is visible and was aborted"),
    (begun_and_visible, "is visible and was begun"),
    (committed_twice, "was committed twice"),
    (made_by_nobody, "no attempt made transaction"),
    (lost_update, "an update is lost"),
    (created_twice, "an update is lost"),
    (changed_after_read_current, "an update is lost"),
    (other_objects, "stored other objects"),
    (order_of_real_time, "was known to a client before its finish"),
    (stale_read, "the last revision there is"),
    (read_of_the_future, "the last revision there is"),
    (read_of_nothing, "got none"),
    (object_said_to_be_missing, "got none"),
    (wrong_next_serial, "until"),
    (listing_without_one, "are missing"),
    (listing_with_one_too_many, "do not exist"),
    (listing_with_half_a_transaction, "has objects"),
    (listing_out_of_order, "out of order"),
    (snapshot_without_an_object, "but not .* which is there since"),
    (other_data_than_stored, "has other data than y:2 stored"),
    (other_data_than_read, "has other data than was read there"),
    (oid_given_twice_by_one_master, "oids were given twice"),
]


@pytest.mark.parametrize(
    ("violate", "message"), VIOLATIONS, ids=[violate.__name__ for violate, _ in VIOLATIONS]
)
def test_a_violation_is_found(violate: Callable[[Case], None], message: str) -> None:
    """Specification 23.1 to 23.4."""
    case = Case()
    violate(case)
    with pytest.raises(Violation, match=message):
        case.judge()


def test_what_nobody_learned_may_be_there_or_not() -> None:
    there, gone = Case(), Case()
    for case in (there, gone):
        case.y.outcome = Outcome.FINISHING
        case.y.tid = None
    lost(gone)
    gone.history.reads.clear()
    gone.history.listings.clear()
    there.judge()
    gone.judge()


def test_a_deletion_that_one_node_has_packed_away_reads_as_nothing() -> None:
    """The node has a later revision, so that the object is not missing."""
    case = Case()
    case.history.reads.append(Read("x", A, T3, None))
    case.tables.contents[A, T2] = None
    with pytest.raises(Violation, match="got none"):
        check_reads(case.history, case.tables)
    case.history.reads[:] = case.history.reads[-1:]
    case.tables.packed = T2
    check_reads(case.history, case.tables)


def test_a_deleted_object_is_missing() -> None:
    case = Case()
    case.y.contents = {A: None}
    case.tables.contents[A, T2] = None
    case.history.reads.append(Read("x", A, T3, None, missing=True))
    case.judge()


def test_a_resolved_conflict_is_no_lost_update() -> None:
    case = Case()
    lost_update(case)
    case.history.attempts[-1].stored[A] = None
    case.judge()


def test_what_was_packed_away_is_not_missed() -> None:
    case = Case()
    case.tables.serials[A].remove(T1)
    with pytest.raises(Violation, match="half there"):
        case.judge()
    case.tables.packed = T2
    case.judge()


def test_a_commit_is_only_compared_with_what_it_says_it_is_based_on() -> None:
    case = Case()
    z = case.attempt("z", T4, {B: T1}, after=T2)
    z.checked = {A: T2}
    case.tables.transactions[T4] = z.mark, frozenset([B])
    case.tables.serials[B].append(T4)
    case.judge()


def test_another_master_may_give_oids_again_that_are_not_in_use() -> None:
    case = Case()
    oid_given_twice_by_one_master(case)
    case.tables.masters = 2
    case.judge()


# -- what is judged at once ------------------------------------------------------------------------


def commit(history: History, client: str, tid: bytes, oid: bytes, content: bytes) -> None:
    attempt = history.begin(client)
    attempt.stored, attempt.contents = {oid: T0}, {oid: content}
    history.committed(attempt, tid)


def test_two_transactions_with_one_tid_are_found_at_once() -> None:
    """Specification 23.3."""
    history = History(World(0))
    commit(history, "x", T1, A, b"1")
    with pytest.raises(Violation, match="which is that of x:1"):
        commit(history, "y", T1, B, b"2")


def test_a_tid_other_than_the_one_that_was_imposed_is_found_at_once() -> None:
    history = History(World(0))
    attempt = history.begin("x")
    attempt.imposed = T1
    with pytest.raises(Violation, match="as it wanted"):
        history.committed(attempt, T2)


def test_a_revision_with_two_contents_is_found_at_once() -> None:
    history = History(World(0))
    commit(history, "x", T1, A, b"1")
    history.seen("y", A, T1, b"1")
    with pytest.raises(Violation, match="other data of"):
        history.seen("y", A, T1, None)


def test_an_oid_in_use_that_is_given_is_found_at_once() -> None:
    """Specification 23.7."""
    history = History(World(0))
    commit(history, "x", T1, A, b"1")
    with pytest.raises(Violation, match="which is in use"):
        history.given("y", A)


def test_storages_with_different_data_of_a_revision_are_found() -> None:
    """Specification 23.6."""
    def rows(value: bytes) -> Rows:
        return {
            "data": [(1, b"", 0, value)],
            "obj": [(0, 1, 10, 1, None)],
            "trans": [],
            "config": [],
        }

    assert join_tables([rows(b"x"), rows(b"x")]).serials == {A: [T1]}
    with pytest.raises(Violation, match="different data"):
        join_tables([rows(b"x"), rows(b"y")])


# -- truncation ------------------------------------------------------------------------------------


def truncated(after: bytes = T1) -> Case:
    """y was deleted by a truncation after T1, which was commanded at the end."""
    case = Case()
    case.history.truncated(after, T3)
    lost(case)
    return case


def test_what_a_truncation_takes_away_is_not_missed() -> None:
    truncated().judge()


def test_what_a_truncation_must_leave_is_missed() -> None:
    case = truncated(after=T2)
    with pytest.raises(Violation, match="is lost"):
        case.judge()


def test_a_truncation_that_was_forgotten_with_the_master_takes_nothing_away() -> None:
    case = Case()
    case.history.truncated(T1, T2)
    case.judge()


def test_a_truncation_that_leaves_a_part_is_found() -> None:
    case = Case()
    z = case.attempt("z", T3, {B: T1}, after=T2)
    case.history.truncated(T1, T3)
    del z, case.tables.transactions[T2]
    case.tables.serials[A].remove(T2)
    case.tables.transactions[T3] = case.history.attempts[-1].mark, frozenset([B])
    case.tables.serials[B].append(T3)
    with pytest.raises(Violation, match="is lost"):
        case.judge()


def test_what_is_acknowledged_after_a_truncation_must_be_there() -> None:
    case = truncated()
    z = case.attempt("z", T2, {B: T1}, after=T1)
    z.era = 1
    with pytest.raises(Violation, match="is lost"):
        case.judge()


def test_a_forced_start_gives_up_what_only_others_than_its_client_were_told_of() -> None:
    case = Case()
    case.history.told(T3)
    case.history.given_up(T2, T3)
    assert not case.history.void(T2)
    assert case.history.void(T3)
    case.judge()


def test_a_forced_start_gives_up_what_nobody_heard_of_yet() -> None:
    case = Case()
    case.history.given_up(T2, T4)
    case.attempt("z", T4, {C: T0}, after=T2)
    assert case.history.void(T4)
    case.judge()


def test_a_start_with_all_that_was_given_gives_nothing_up() -> None:
    case = Case()
    case.history.given_up(T2, T2)
    assert not case.history.voids
