"""Writes to cells that are out of date, or taken from the node (specification 8.10 to 8.13)."""

from __future__ import annotations

import pytest

from neo.protocol.ids import ZERO_TID
from neo.storage.backend.api import Stored
from neo.storage.commit.transactions import CellMode, Unverifiable
from tests.unit.storage.lock_node import LockNode, oid, tid


def test_out_of_date_cells_accept_blindly(node: LockNode) -> None:
    """Specification 8.10."""
    node.modes[oid("A")] = CellMode.LOCKLESS
    node.serials[oid("A")] = tid(5)
    assert node.do("A10", "A11", "a12") == {"A10": ZERO_TID, "A11": ZERO_TID, "a12": ZERO_TID}
    assert node.finish(11, 20) == {}
    assert node.finish(12, 21) == {}
    assert node.abort(10) == {}


def test_absent_cells_ignore_stores(node: LockNode) -> None:
    """Specification 8.11."""
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
    """The node that has the partition now could not check it, and relies on the check here
    (specification 8.24)."""
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
    """The question that waits is answered, and the client may vote before it hears of the deadlock
    (specification 8.24)."""
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
    """Specification 8.12."""
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
