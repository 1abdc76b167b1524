"""Object locks, example by example (specification, *Commit* to *Deadlock avoidance*)."""

from __future__ import annotations

import pytest

from neo.protocol.ids import MAX_TID, ZERO_TID
from neo.storage.backend.api import Stored
from neo.storage.transactions import (
    CellMode,
    Client,
    RebaseConflict,
    TransactionRefused,
    Unverifiable,
)
from tests.unit.storage.lock_node import LockNode, oid, tid


@pytest.fixture
def node() -> LockNode:
    return LockNode()


def test_disjoint_objects_are_locked_at_once(node: LockNode) -> None:
    assert node.do("A1", "B2", "c1", "d2") == {"A1": None, "B2": None, "c1": None, "d2": None}
    assert node.finish(2, 20) == {}
    assert node.finish(1, 21) == {}


def test_a_store_based_on_an_old_serial_is_a_conflict(node: LockNode) -> None:
    node.serials[oid("A")] = tid(9)
    assert node.do("A10") == {"A10": tid(9)}
    assert node.discarded == [1]
    assert node.do("A10", serial=tid(9)) == {"A10": None}


def test_a_check_of_an_old_serial_is_a_conflict_and_holds_nothing(node: LockNode) -> None:
    node.serials[oid("A")] = tid(9)
    assert node.do("a10") == {"a10": tid(9)}
    assert node.do("A11", serial=tid(9)) == {"A11": None}


def test_who_has_to_resolve_a_conflict_is_not_overtaken(node: LockNode) -> None:
    assert node.do("A1", "A2", "A3") == {"A1": None}
    assert node.finish(1, 20) == {"A2": tid(20)}
    assert node.do("A4", "a5", serial=tid(20)) == {}
    assert node.do("A2", serial=tid(20)) == {"A2": None}
    assert node.finish(2, 21) == {"A3": tid(21)}
    assert node.take_deadlocks() == []


def test_who_cannot_resolve_a_conflict_lets_the_next_one_try(node: LockNode) -> None:
    node.do("A1", "A2", "A3")
    assert node.finish(1, 20) == {"A2": tid(20)}
    assert node.abort(2) == {"A3": tid(20)}
    assert node.locks.vote(tid(5), node.client(5), metadata=True) == []
    assert node.abort(3) == {}


def test_a_rebase_gives_up_the_right_to_be_the_next(node: LockNode) -> None:
    """An older transaction wants the object and would have to wait for the younger one."""
    node.do("A2", "A3")
    assert node.finish(2, 20) == {"A3": tid(20)}
    assert node.do("A1", serial=tid(20)) == {}
    assert node.take_deadlocks() == [(tid(1), tid(1))]
    assert node.rebase(1, 30) == ""
    assert node.rebase(3, 40) == ""  # it has stored nothing
    assert node.take_answers() == {"A1": None}
    assert node.do("A3", serial=tid(20)) == {}
    assert node.finish(1, 50) == {"A3": tid(50)}
    assert node.do("A3", serial=tid(50)) == {"A3": None}


def test_a_younger_transaction_waits_then_sees_the_conflict(node: LockNode) -> None:
    assert node.do("A1", "A2") == {"A1": None}
    assert node.finish(1, 20) == {"A2": tid(20)}
    assert node.do("A2", serial=tid(20)) == {"A2": None}


def test_a_younger_transaction_gets_the_lock_when_the_holder_aborts(node: LockNode) -> None:
    assert node.do("A1", "A2") == {"A1": None}
    assert node.abort(1) == {"A2": None}
    assert node.discarded == [1]


def test_delayed_requests_are_executed_by_locking_tid_not_by_arrival(node: LockNode) -> None:
    assert node.do("A1", "A4", "A2", "A3") == {"A1": None}
    assert node.abort(1) == {"A2": None}
    assert node.abort(2) == {"A3": None}
    assert node.abort(3) == {"A4": None}


def test_checks_conflict_with_stores_and_with_checks(node: LockNode) -> None:
    assert node.do("a1", "a2", "A3") == {"a1": None}
    assert node.abort(1) == {"a2": None}
    assert node.finish(2, 20) == {"A3": None}  # a check changes nothing


def test_a_check_of_what_was_deleted_and_packed_away_is_a_conflict(node: LockNode) -> None:
    """Else garbage that is collected could come back into use."""
    assert node.do("a1", serial=tid(5)) == {"a1": MAX_TID}
    assert node.do("b1") == {"b1": None}  # it never existed, as far as the client knows


def test_storing_again_replaces_the_data(node: LockNode) -> None:
    assert node.do("A1") == {"A1": None}
    assert node.do("A1") == {"A1": None}
    assert node.discarded == [1]
    assert node.locks.vote(tid(1), node.client(1), metadata=False) == [Stored(oid("A"), 2, None)]


def test_a_check_does_not_hide_a_store_of_the_same_transaction(node: LockNode) -> None:
    node.do("A1", "a1")
    assert node.locks.vote(tid(1), node.client(1), metadata=False) == [Stored(oid("A"), 1, None)]


def test_the_first_of_two_stores_of_an_object_conflicts_the_second_is_locked(
    node: LockNode,
) -> None:
    """The client resolved the conflict that another replica reported first."""
    node.do("A1", "A2")
    node.do("A2", serial=tid(20))
    node.locks.vote(tid(1), node.client(1), metadata=False)
    node.locks.lock(tid(1), tid(20))
    node.serials[oid("A")] = tid(20)
    node.locks.unlock(tid(1))
    assert node.answers == [("A2", tid(20)), ("A2", None)]
    assert node.discarded == [2]


# -- deadlocks ------------------------------------------------------------------------------------


def test_deadlock_on_two_objects_of_one_node(node: LockNode) -> None:
    """First diagram: oid1 by T1, oid2 by T2, oid1 by T2 waits, oid2 by T1 is the deadlock."""
    assert node.do("A1", "B2", "A2") == {"A1": None, "B2": None}
    assert node.do("B1") == {"A2": None}
    assert node.take_deadlocks() == [(tid(1), tid(1))]
    assert node.rebase(1, 10) == "A"
    node.rebase_object(1, "A")
    assert node.take_answers() == {}
    assert node.finish(2, 20) == {
        "B1": tid(20),
        "rA1": RebaseConflict(ZERO_TID, tid(20), Stored(oid("A"), 1, None)),
    }
    assert 1 in node.discarded
    assert node.do("A1", "B1", serial=tid(20)) == {"A1": None, "B1": None}
    assert node.finish(1, 21) == {}


def test_deadlock_between_two_nodes() -> None:
    """Second diagram: each transaction holds the replica of oid1 that the other wants."""
    s1, s2 = LockNode(), LockNode()
    assert s1.do("A1") == {"A1": None}
    assert s2.do("A2") == {"A2": None}
    assert s1.do("A2") == {}  # waits
    assert s2.do("A1") == {}  # deadlock
    assert s1.take_deadlocks() == []
    assert s2.take_deadlocks() == [(tid(1), tid(1))]
    assert s2.rebase(1, 10) == ""  # its store waits under its own message id
    assert s1.rebase(1, 10) == "A"
    assert s1.take_answers() == {"A2": None}
    s1.rebase_object(1, "A")
    for node in s1, s2:
        assert node.take_deadlocks() == []
        node.finish(2, 20)
    assert s1.do("A1", serial=tid(20)) == {"A1": None}
    assert s2.do("A1", serial=tid(20)) == {"A1": None}


def test_a_voted_transaction_never_causes_a_deadlock(node: LockNode) -> None:
    node.do("A2")
    node.locks.vote(tid(2), node.client(2), metadata=True)
    assert node.do("A1") == {}
    assert node.take_deadlocks() == []
    assert node.locks.abort(tid(2), None)
    assert node.take_answers() == {"A1": None}


def test_a_rebased_transaction_takes_again_what_is_free(node: LockNode) -> None:
    node.do("A1", "B1", "C2")
    assert node.do("C1") == {}
    node.do("B3")
    assert node.rebase(1, 10) == "B"
    assert node.do("A4") == {}  # held by 1 again, whose locking tid is now 10
    assert node.take_deadlocks() == [(tid(1), tid(1)), (tid(4), tid(4))]


def test_a_rebased_transaction_in_deadlock_again_waits_for_an_answer(node: LockNode) -> None:
    """Its store is answered; without a question its client would vote before it hears of this."""
    node.do("B2", "A1", "B1", "A4")
    node.abort(2)
    assert node.rebase(1, 3) == "A"
    assert node.take_answers() == {"B1": None}
    assert node.take_deadlocks() == [(tid(1), tid(1)), (tid(1), tid(3))]
    node.rebase_object(1, "A")
    assert node.rebase(1, 10) == "A"
    node.rebase_object(1, "A")
    assert node.take_answers() == {}
    assert node.abort(4) == {"rA1": None}
    assert node.finish(1, 20) == {}


def test_one_deadlock_is_notified_once_however_many_stores_follow(node: LockNode) -> None:
    node.do("A2", "B2", "A1", "B1", "C1")
    assert node.take_deadlocks() == [(tid(1), tid(1))]
    assert node.abort(2) == {}  # all wait for the rebase
    node.rebase(1, 10)
    assert node.take_answers() == {"A1": None, "B1": None, "C1": None}


def test_rebase_before_the_first_store_sets_the_locking_tid(node: LockNode) -> None:
    assert node.rebase(1, 10) == ""
    node.do("A2")
    assert node.do("A1") == {}
    assert node.take_deadlocks() == []


def test_a_conflict_found_by_a_rebase_is_reported_by_the_next_rebase_object(
    node: LockNode,
) -> None:
    node.do("a1", "B2", "B1")  # deadlock of 1: a is free
    node.do("A3")
    node.finish(3, 20)
    assert node.rebase(1, 10) == "A"
    node.rebase_object(1, "A")
    assert node.take_answers() == {"rA1": RebaseConflict(ZERO_TID, tid(20), None)}


def test_rebasing_an_object_that_conflicted_meanwhile_is_nothing_to_do(node: LockNode) -> None:
    """The case in which the specification says *nothing to do*: two rebases of one object."""
    node.do("A1", "B2", "A3")
    node.do("B1")
    assert node.take_deadlocks() == [(tid(1), tid(1))]
    assert node.rebase(1, 10) == "A"
    node.rebase_object(1, "A")
    assert node.rebase(1, 11) == "A"
    node.rebase_object(1, "A")
    ttid = tid(3)
    node.locks.vote(ttid, node.client(3), metadata=False)
    node.locks.lock(ttid, tid(20))
    node.serials[oid("A")] = tid(20)
    node.locks.unlock(ttid)
    conflict = RebaseConflict(ZERO_TID, tid(20), Stored(oid("A"), 1, None))
    assert node.answers == [("rA1", conflict), ("rA1", None)]


def test_cascaded_deadlocks(node: LockNode) -> None:
    """The listing of the specification, steps 1 to 9."""
    # locking tids: t1 < t2 < t3
    assert node.do("A2") == {"A2": None}
    assert node.do("B1", "c2") == {"B1": None, "c2": None}
    assert node.do("A3", "B3", "D3") == {"D3": None}
    assert node.do("C1") == {"B3": None}
    assert node.take_deadlocks() == [(tid(1), tid(1))]
    assert node.do("d2") == {"A3": None}
    assert node.take_deadlocks() == [(tid(2), tid(2))]
    # t3 commits; t2 rebases, hence t3 < t1 < t2 where t1 has its new tid but is not rebased here
    assert node.finish(3, 20) == {}
    assert node.rebase(2, 12) == "A"
    assert node.take_answers() == {"d2": tid(20)}
    node.rebase_object(2, "A")
    conflict = RebaseConflict(ZERO_TID, tid(20), Stored(oid("A"), 1, None))
    assert node.take_answers() == {"rA2": conflict}
    assert node.rebase(1, 11) == ""  # new deadlock on C
    assert node.take_answers() == {}
    assert node.take_deadlocks() == [(tid(1), tid(11))]
    assert node.abort(2) == {}
    assert node.rebase(1, 13) == "B"
    assert node.take_answers() == {"C1": None}
    node.rebase_object(1, "B")
    conflict = RebaseConflict(ZERO_TID, tid(20), Stored(oid("B"), 2, None))
    assert node.take_answers() == {"rB1": conflict}
    assert node.do("B1", serial=tid(20)) == {"B1": None}
    node.finish(1, 21)


def test_the_order_of_delayed_stores_prevents_a_permutation_of_locks() -> None:
    """3 replicas of one object, as in the overview that ends the specification's chapter."""
    s1, s2, s3 = LockNode(), LockNode(), LockNode()
    s1.do("A1", "A3", "A2")
    s2.do("A1", "A3", "A2")
    s3.do("A2", "A3", "A1")
    assert s3.take_deadlocks() == [(tid(1), tid(1))]
    for node in s1, s2, s3:
        node.rebase(1, 10)
        assert node.take_deadlocks() == []
    assert s1.take_answers() == {"A2": None}
    assert s2.take_answers() == {"A2": None}
    for node in s1, s2, s3:
        node.finish(2, 20)


def test_a_rebased_transaction_is_served_before_those_with_a_greater_locking_tid(
    node: LockNode,
) -> None:
    node.do("A1")
    node.do("A3")
    node.rebase(3, 20)
    assert node.rebase(1, 10) == ""
    assert node.do("A15") == {}  # waits for 1 whose locking tid is 10
    assert node.take_deadlocks() == []


def test_a_rebased_transaction_has_its_place_before_its_client_asks_for_each_object(
    node: LockNode,
) -> None:
    """Else two transactions could take their objects from each other for ever."""
    node.do("A1", "B1", "C2")
    assert node.do("C1", "A2", "B2") == {"A2": None, "B2": None}
    assert node.take_deadlocks() == [(tid(1), tid(1))]
    assert node.rebase(1, 10) == "AB"
    assert node.rebase(2, 11) == "ABC"  # because of another node
    assert node.take_answers() == {"C1": None}
    node.rebase_object(1, "A")
    node.rebase_object(1, "B")
    assert node.take_answers() == {"rA1": None, "rB1": None}
    assert node.take_deadlocks() == []
    node.finish(1, 20)


def test_who_keeps_a_place_hears_of_a_conflict_when_its_client_asks(node: LockNode) -> None:
    node.do("A1", "B2", "B1", "A2")
    assert node.rebase(1, 10) == "A"
    node.take_answers()
    assert node.finish(2, 20) == {"B1": tid(20)}
    node.rebase_object(1, "A")
    conflict = RebaseConflict(ZERO_TID, tid(20), Stored(oid("A"), 1, None))
    assert node.take_answers() == {"rA1": conflict}


def test_a_rebase_cannot_go_back(node: LockNode) -> None:
    node.rebase(1, 10)
    with pytest.raises(TransactionRefused, match="cannot be rebased back"):
        node.locks.rebase(tid(1), node.client(1), tid(9))


# -- votes, aborts --------------------------------------------------------------------------------


def test_vote_is_refused_while_a_store_waits(node: LockNode) -> None:
    node.do("A1", "A2")
    with pytest.raises(TransactionRefused, match="1 requests wait"):
        node.locks.vote(tid(2), node.client(2), metadata=True)


def test_vote_is_refused_while_an_object_is_to_be_rebased(node: LockNode) -> None:
    node.do("A1", "B2", "A3", "B1")
    assert node.rebase(1, 10) == "A"
    node.abort(2)
    with pytest.raises(TransactionRefused, match="1 objects must be rebased"):
        node.locks.vote(tid(1), node.client(1), metadata=True)


def test_vote_of_an_unknown_transaction_needs_metadata(node: LockNode) -> None:
    with pytest.raises(TransactionRefused, match="unknown here"):
        node.locks.vote(tid(1), node.client(1), metadata=False)
    assert node.locks.vote(tid(1), node.client(1), metadata=True) == []
    with pytest.raises(TransactionRefused, match="already voted"):
        node.locks.vote(tid(1), node.client(1), metadata=True)


def test_a_transaction_cannot_change_connection(node: LockNode) -> None:
    node.do("A1")
    with pytest.raises(TransactionRefused, match="another connection"):
        node.locks.vote(tid(1), Client(1, 2), metadata=True)


def test_lock_needs_a_vote_and_ignores_strangers(node: LockNode) -> None:
    assert not node.locks.lock(tid(5), tid(20))
    node.do("A1")
    with pytest.raises(TransactionRefused, match="before it voted"):
        node.locks.lock(tid(1), tid(20))


def test_abort_answers_what_waits_and_ignores_what_is_unknown(node: LockNode) -> None:
    assert not node.locks.abort(tid(1), None)
    node.do("A1", "A2", "B2")
    assert node.abort(2) == {"A2": ZERO_TID}
    assert sorted(node.discarded, key=str) == [2, 3]


def test_abort_releases_a_pending_rebase_of_an_object(node: LockNode) -> None:
    node.do("A1", "B2", "A3", "B1")
    assert node.rebase(1, 10) == "A"
    node.rebase_object(1, "A")
    assert node.abort(1) == {"B1": ZERO_TID, "rA1": None}


def test_stores_that_come_after_the_masters_abort_are_lockless(node: LockNode) -> None:
    node.do("A1")
    assert not node.locks.abort(tid(1), None)
    assert node.do("B1") == {"B1": ZERO_TID}
    assert node.discarded == [1, 2]
    node.rebase_object(1, "A")
    assert node.take_answers() == {"rA1": None}
    assert node.rebase(1, 10) == ""
    with pytest.raises(TransactionRefused, match="aborted"):
        node.locks.vote(tid(1), node.client(1), metadata=True)
    node.abort(1)  # the client's own abort: the same ttid may begin again (restore)
    assert node.do("B1") == {"B1": None}


def test_a_locked_transaction_cannot_be_aborted(node: LockNode) -> None:
    node.do("A1", "A2")
    node.locks.vote(tid(1), node.client(1), metadata=True)
    node.locks.lock(tid(1), tid(20))
    assert not node.locks.abort(tid(1), None)
    node.locks.connection_lost(node.client(1))
    assert node.locks.client_down(1) == []
    assert node.take_answers() == {}
    assert node.locks.final_tid(tid(1)) == tid(20)


def test_a_client_cannot_abort_the_transaction_of_another(node: LockNode) -> None:
    node.do("A1", "A2")
    node.locks.abort(tid(1), Client(2, 2))
    assert node.take_answers() == {}


def test_a_lost_connection_drops_what_did_not_vote(node: LockNode) -> None:
    node.do("A1", "A2")
    node.locks.connection_lost(node.client(1))
    assert node.take_answers() == {"A2": None}
    node.do("A3")
    node.locks.vote(tid(2), node.client(2), metadata=True)
    node.locks.connection_lost(node.client(2))
    assert node.take_answers() == {}
    assert node.locks.client_down(2) == [tid(2)]
    assert node.take_answers() == {"A3": None}


def test_clear_forgets_everything_and_answers_nobody(node: LockNode) -> None:
    node.do("A1", "A2", "B3")
    node.locks.vote(tid(3), node.client(3), metadata=True)
    node.locks.clear()
    assert node.take_answers() == {}
    assert sorted(node.discarded, key=str) == [1, 2]
    assert node.do("A4") == {"A4": None}


# -- reads during tpc_finish ----------------------------------------------------------------------


def test_reads_wait_from_lock_to_unlock_for_stored_objects_only(node: LockNode) -> None:
    reads: list[str] = []

    def read(name: str) -> None:
        node.locks.when_readable(oid(name), lambda: reads.append(name))

    node.do("A1", "b1")
    node.locks.vote(tid(1), node.client(1), metadata=True)
    read("A")
    assert reads == ["A"]
    node.locks.lock(tid(1), tid(20))
    for name in "ABC":
        read(name)
    assert reads == ["A", "B", "C"]
    node.locks.unlock(tid(1))
    assert reads == ["A", "B", "C", "A"]


def test_scans_wait_for_the_transactions_locked_at_their_arrival(node: LockNode) -> None:
    reads: list[str] = []
    node.locks.when_unlocked(lambda: reads.append("before"))
    node.do("A1", "B2", "C3")
    for number in 1, 2, 3:
        node.locks.vote(tid(number), node.client(number), metadata=True)
    node.locks.lock(tid(1), tid(20))
    node.locks.lock(tid(2), tid(21))
    node.locks.when_unlocked(lambda: reads.append("during"))
    node.locks.lock(tid(3), tid(22))
    node.locks.unlock(tid(2))
    assert reads == ["before"]
    node.locks.validate()
    node.locks.unlock(tid(1))
    assert reads == ["before", "during"]


# -- cells that are out of date or absent ---------------------------------------------------------


def test_out_of_date_cells_accept_blindly(node: LockNode) -> None:
    node.modes[oid("A")] = CellMode.LOCKLESS
    node.serials[oid("A")] = tid(5)
    assert node.do("A10", "A11", "a12") == {"A10": ZERO_TID, "A11": ZERO_TID, "a12": ZERO_TID}
    assert node.finish(11, 20) == {}
    assert node.finish(12, 21) == {}
    assert node.abort(10) == {}


def test_absent_cells_ignore_stores(node: LockNode) -> None:
    node.modes[oid("A")] = CellMode.ABSENT
    assert node.do("A1", "a1") == {"A1": ZERO_TID, "a1": ZERO_TID}
    assert node.discarded == [1]
    assert node.locks.vote(tid(1), node.client(1), metadata=False) == []


def lost(node: LockNode, name: str) -> None:
    """The partition of an object is taken from the node."""
    node.modes[oid(name)] = CellMode.ABSENT
    node.locks.lose(lambda o: o == oid(name))
    node.locks.validate()


def overtaken(node: LockNode) -> None:
    """1 held A, got into deadlock over B and was rebased, and 2 committed A meanwhile."""
    node.do("A1", "B3", "A2", "B1")
    assert node.take_deadlocks() == [(tid(1), tid(1))]
    assert node.rebase(1, 9) == "A"
    node.finish(2, 20)


def test_a_rebase_of_what_was_taken_from_the_node_is_refused(node: LockNode) -> None:
    """The node that has the partition now could not check it, and relies on the check here."""
    overtaken(node)
    lost(node, "A")
    node.rebase_object(1, "A")
    (answer,) = node.take_answers().values()
    assert isinstance(answer, Unverifiable)
    with pytest.raises(Unverifiable):
        node.rebase(1, 30)
    node.finish(3, 25)
    with pytest.raises(Unverifiable):
        node.locks.vote(tid(1), node.client(1), metadata=False)
    assert node.abort(1) == {}


def test_a_refused_rebase_leaves_no_question_waiting(node: LockNode) -> None:
    """The client looks at the refusal when what it asked before is answered."""
    node.do("A1", "B3", "A2", "B1")
    node.take_answers()
    lost(node, "A")
    assert node.take_answers() == {}
    with pytest.raises(Unverifiable):
        node.rebase(1, 9)
    assert node.take_answers() == {"B1": ZERO_TID}
    with pytest.raises(Unverifiable):
        node.locks.vote(tid(1), node.client(1), metadata=False)
    node.locks.validate()


def test_a_rebase_that_waits_for_what_is_taken_from_the_node_is_refused(node: LockNode) -> None:
    node.do("A1", "B3", "A2", "B1")
    node.rebase(1, 9)
    node.rebase_object(1, "A")
    assert node.take_answers() == {}
    lost(node, "A")
    assert isinstance(node.take_answers()["rA1"], Unverifiable)


def test_a_deadlock_over_what_is_taken_from_the_node_is_not_voted(node: LockNode) -> None:
    """The question that waits is answered, and the client may vote before it hears of the deadlock."""
    node.do("A3", "A1")
    node.do("B2", "B1")
    assert node.take_deadlocks() == [(tid(1), tid(1))]
    lost(node, "A")
    lost(node, "B")
    with pytest.raises(Unverifiable):
        node.locks.vote(tid(1), node.client(1), metadata=False)


def test_what_a_transaction_holds_may_be_taken_from_the_node(node: LockNode) -> None:
    node.do("A1", "B1")
    lost(node, "A")
    assert node.finish(1, 20) == {}


def replicated(node: LockNode, name: str) -> None:
    node.modes[oid(name)] = CellMode.NORMAL
    node.locks.replicated(lambda o: o == oid(name))
    node.locks.validate()


def test_lockless_writes_become_a_shared_lock_then_a_normal_one(node: LockNode) -> None:
    node.modes[oid("A")] = CellMode.LOCKLESS
    node.do("A1", "A2", "A3")
    replicated(node, "A")
    assert node.locks.shared() == {oid("A")}
    assert node.do("A2", serial=tid(9)) == {"A2": ZERO_TID}  # storing again: lockless again
    assert node.do("A4") == {}
    assert node.take_deadlocks() == []
    assert node.abort(1) == {}
    assert node.finish(3, 20) == {}
    assert node.locks.shared() == frozenset()
    assert node.do("A2", serial=tid(20)) == {"A2": None}
    assert node.finish(2, 21) == {"A4": tid(21)}


def test_a_shared_lock_is_compared_by_its_greatest_locking_tid(node: LockNode) -> None:
    node.modes[oid("A")] = CellMode.LOCKLESS
    node.do("A1", "A3")
    replicated(node, "A")
    assert node.do("A2") == {}
    assert node.take_deadlocks() == [(tid(2), tid(2))]


def test_a_rebase_leaves_a_shared_lock(node: LockNode) -> None:
    node.modes[oid("A")] = CellMode.LOCKLESS
    node.do("A1", "A2")
    replicated(node, "A")
    assert node.rebase(1, 10) == "A"
    assert node.locks.shared() == frozenset()
    node.rebase_object(1, "A")
    assert node.take_answers() == {}
    node.finish(2, 20)
    assert node.do("A1", serial=tid(20)) == {"A1": None}


def test_a_rebase_keeps_lockless_writes(node: LockNode) -> None:
    node.modes[oid("A")] = CellMode.LOCKLESS
    node.do("A1", "B2", "B1")
    assert node.rebase(1, 10) == ""
    replicated(node, "A")
    assert node.abort(2) == {"B1": None}
    assert len(node.locks.vote(tid(1), node.client(1), metadata=False)) == 2


def test_losing_a_partition_releases_its_objects_and_answers_who_waits(node: LockNode) -> None:
    node.do("A1", "A2", "B1")
    node.modes[oid("A")] = CellMode.ABSENT
    node.locks.lose(lambda o: o == oid("A"))
    assert node.take_answers() == {"A2": ZERO_TID}
    assert sorted(node.discarded, key=str) == [1, 2]
    assert node.locks.vote(tid(1), node.client(1), metadata=False) == [Stored(oid("B"), 3, None)]
