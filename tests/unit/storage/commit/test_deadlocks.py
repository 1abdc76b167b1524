"""Deadlocks and rebases, example by example (specification 8)."""

from __future__ import annotations

import pytest

from neo.protocol.ids import ZERO_TID
from neo.storage.backend.api import Stored
from neo.storage.commit.transactions import RebaseConflict, TransactionRefused
from tests.unit.storage.lock_node import LockNode, oid, tid


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
    """Second diagram: each transaction holds the replica of oid1 that the other wants
    (specification 8.1, 8.3)."""
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
    """Specification 8.3, 8.23."""
    node.do("A2")
    node.locks.vote(tid(2), node.client(2), metadata=True)
    assert node.do("A1") == {}
    assert node.take_deadlocks() == []
    assert node.locks.abort(tid(2), None)
    assert node.take_answers() == {"A1": None}


def test_a_rebased_transaction_takes_again_what_is_free(node: LockNode) -> None:
    """Specification 8.17."""
    node.do("A1", "B1", "C2")
    assert node.do("C1") == {}
    node.do("B3")
    assert node.rebase(1, 10) == "B"
    assert node.do("A4") == {}  # held by 1 again, whose locking tid is now 10
    assert node.take_deadlocks() == [(tid(1), tid(1)), (tid(4), tid(4))]


def test_a_rebased_transaction_in_deadlock_again_waits_for_an_answer(node: LockNode) -> None:
    """Its store is answered; without a question its client would vote before it hears of this
    (specification 8.19)."""
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
    """Specification 8.14."""
    node.do("A2", "B2", "A1", "B1", "C1")
    assert node.take_deadlocks() == [(tid(1), tid(1))]
    assert node.abort(2) == {}  # all wait for the rebase
    node.rebase(1, 10)
    assert node.take_answers() == {"A1": None, "B1": None, "C1": None}


def test_rebase_before_the_first_store_sets_the_locking_tid(node: LockNode) -> None:
    """Specification 8.2."""
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
    """Two rebases of one object: the second has nothing to do (specification 8.22)."""
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
    """The steps of specification 8.14 to 8.17."""
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
    """3 replicas of one object: no endless cascade (specification 8.5)."""
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
    """Else two transactions could take their objects from each other for ever (specification 8.18)."""
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
    """Specification 8.22."""
    node.do("A1", "B2", "B1", "A2")
    assert node.rebase(1, 10) == "A"
    node.take_answers()
    assert node.finish(2, 20) == {"B1": tid(20)}
    node.rebase_object(1, "A")
    conflict = RebaseConflict(ZERO_TID, tid(20), Stored(oid("A"), 1, None))
    assert node.take_answers() == {"rA1": conflict}


def test_a_rebase_cannot_go_back(node: LockNode) -> None:
    """Specification 8.20."""
    node.rebase(1, 10)
    with pytest.raises(TransactionRefused, match="cannot be rebased back"):
        node.locks.rebase(tid(1), node.client(1), tid(9))
