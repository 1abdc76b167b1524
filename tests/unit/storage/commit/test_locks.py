"""Object locks, example by example (specification 7): waits, conflicts, votes, aborts."""

from __future__ import annotations

import pytest

from neo.protocol.ids import MAX_TID, ZERO_TID
from neo.storage.backend.api import Stored
from neo.storage.commit.transactions import Change, Client, TransactionRefused
from tests.unit.storage.lock_node import LockNode, oid, tid


def test_disjoint_objects_are_locked_at_once(node: LockNode) -> None:
    """Specification 8.1."""
    assert node.do("A1", "B2", "c1", "d2") == {"A1": None, "B2": None, "c1": None, "d2": None}
    assert node.finish(2, 20) == {}
    assert node.finish(1, 21) == {}


def test_a_store_based_on_an_old_serial_is_a_conflict(node: LockNode) -> None:
    """Specification 8.7, 8.9."""
    node.serials[oid("A")] = tid(9)
    assert node.do("A10") == {"A10": tid(9)}
    assert node.discarded == [1]
    assert node.do("A10", serial=tid(9)) == {"A10": None}


def test_a_check_of_an_old_serial_is_a_conflict_and_holds_nothing(node: LockNode) -> None:
    """Specification 8.8."""
    node.serials[oid("A")] = tid(9)
    assert node.do("a10") == {"a10": tid(9)}
    assert node.do("A11", serial=tid(9)) == {"A11": None}


def test_who_has_to_resolve_a_conflict_is_not_overtaken(node: LockNode) -> None:
    """Specification 8.8."""
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
    """Specification 8.4, 8.7."""
    assert node.do("A1", "A2") == {"A1": None}
    assert node.finish(1, 20) == {"A2": tid(20)}
    assert node.do("A2", serial=tid(20)) == {"A2": None}


def test_a_younger_transaction_gets_the_lock_when_the_holder_aborts(node: LockNode) -> None:
    """Specification 8.4."""
    assert node.do("A1", "A2") == {"A1": None}
    assert node.abort(1) == {"A2": None}
    assert node.discarded == [1]


def test_delayed_requests_are_executed_by_locking_tid_not_by_arrival(node: LockNode) -> None:
    """Specification 8.5."""
    assert node.do("A1", "A4", "A2", "A3") == {"A1": None}
    assert node.abort(1) == {"A2": None}
    assert node.abort(2) == {"A3": None}
    assert node.abort(3) == {"A4": None}


def test_checks_conflict_with_stores_and_with_checks(node: LockNode) -> None:
    assert node.do("a1", "a2", "A3") == {"a1": None}
    assert node.abort(1) == {"a2": None}
    assert node.finish(2, 20) == {"A3": None}  # a check changes nothing


@pytest.mark.parametrize("action", ["a1", "A1"], ids=["check", "store"])
def test_what_was_deleted_and_packed_away_or_truncated_is_a_conflict(
    node: LockNode, action: str
) -> None:
    """Else garbage that is collected could come back into use, or what was truncated
    (specification 8.7)."""
    assert node.do(action, serial=tid(5)) == {action: MAX_TID}
    assert node.do("b1", "B1") == {"b1": None, "B1": None}  # new, as far as the client knows


def test_storing_again_replaces_the_data(node: LockNode) -> None:
    """Specification 8.6."""
    assert node.do("A1") == {"A1": None}
    assert node.do("A1") == {"A1": None}
    assert node.discarded == [1]
    assert node.locks.vote(tid(1), node.client(1), metadata=False) == [Stored(oid("A"), 2, None)]


def test_a_check_does_not_hide_a_store_of_the_same_transaction(node: LockNode) -> None:
    """Specification 8.6."""
    node.do("A1", "a1")
    assert node.locks.vote(tid(1), node.client(1), metadata=False) == [Stored(oid("A"), 1, None)]


def test_the_first_of_two_stores_of_an_object_conflicts_the_second_is_locked(
    node: LockNode,
) -> None:
    """The client resolved the conflict that another replica reported first (specification 7.17)."""
    node.do("A1", "A2")
    node.do("A2", serial=tid(20))
    node.locks.vote(tid(1), node.client(1), metadata=False)
    node.locks.lock(tid(1), tid(20))
    node.serials[oid("A")] = tid(20)
    node.locks.unlock(tid(1))
    assert node.answers == [("A2", tid(20)), ("A2", None)]
    assert node.discarded == [2]


# -- votes, aborts -------------------------------------------------------------------------------


def test_vote_is_refused_while_an_object_is_to_be_rebased(node: LockNode) -> None:
    """Specification 7.21."""
    node.do("A1", "B2", "A3", "B1")
    assert node.rebase(1, 10) == "A"
    node.abort(2)
    with pytest.raises(TransactionRefused, match="1 objects must be rebased"):
        node.locks.vote(tid(1), node.client(1), metadata=True)


def test_vote_of_an_unknown_transaction_needs_metadata(node: LockNode) -> None:
    """Specification 7.21."""
    with pytest.raises(TransactionRefused, match="unknown here"):
        node.locks.vote(tid(1), node.client(1), metadata=False)
    assert node.locks.vote(tid(1), node.client(1), metadata=True) == []
    with pytest.raises(TransactionRefused, match="already voted"):
        node.locks.vote(tid(1), node.client(1), metadata=True)


def test_a_transaction_cannot_change_connection(node: LockNode) -> None:
    """Specification 7.9."""
    node.do("A1")
    with pytest.raises(TransactionRefused, match="another connection"):
        node.locks.vote(tid(1), Client(1, 2), metadata=True)


def test_abort_answers_what_waits_and_ignores_what_is_unknown(node: LockNode) -> None:
    """Specification 7.43."""
    assert not node.locks.abort(tid(1), node.client(1))
    node.do("A1", "A2", "B2")
    assert node.abort(2) == {"A2": ZERO_TID}
    assert sorted(node.discarded, key=str) == [2, 3]


def test_abort_releases_a_pending_rebase_of_an_object(node: LockNode) -> None:
    node.do("A1", "B2", "A3", "B1")
    assert node.rebase(1, 10) == "A"
    node.rebase_object(1, "A")
    assert node.abort(1) == {"B1": ZERO_TID, "rA1": None}


def test_stores_that_come_after_the_masters_abort_are_lockless(node: LockNode) -> None:
    """Specification 7.44."""
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


def test_a_vote_that_comes_after_the_masters_abort_is_refused(node: LockNode) -> None:
    """Specification 7.44: it was on its way on a connection that the client had lost already. Nobody
    would end it as long as the client lives."""
    assert not node.locks.abort(tid(1), None)
    with pytest.raises(TransactionRefused, match="aborted"):
        node.locks.vote(tid(1), node.client(1), metadata=True)
    assert node.do("B1") == {"B1": ZERO_TID}
    node.locks.forget_aborted()
    assert node.do("B1") == {"B1": None}, "the same ttid may begin again (restore)"


def test_only_a_tid_that_was_imposed_may_begin_again(node: LockNode) -> None:
    """Specification 7.71: a vote of another transaction may still come, and nobody would end that."""
    for ttid in tid(1), tid(2):
        assert not node.locks.abort(ttid, None)
    node.locks.may_begin_again(tid(2))
    node.locks.may_begin_again(tid(3))
    assert node.do("B2") == {"B2": None}
    assert node.do("C1") == {"C1": ZERO_TID}
    with pytest.raises(TransactionRefused, match="aborted"):
        node.locks.vote(tid(1), node.client(1), metadata=True)


def test_a_locked_transaction_cannot_be_aborted(node: LockNode) -> None:
    """Specification 7.43."""
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
    """Specification 4.31."""
    node.do("A1", "A2", "B3")
    node.locks.vote(tid(3), node.client(3), metadata=True)
    node.locks.clear()
    assert node.take_answers() == {}
    assert sorted(node.discarded, key=str) == [1, 2]
    assert node.do("A4") == {"A4": None}


# -- reads during tpc_finish ---------------------------------------------------------------------


def test_reads_wait_from_lock_to_unlock_for_stored_objects_only(node: LockNode) -> None:
    """Specification 6.6, 7.30, 7.35."""
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


def test_reads_that_waited_are_answered_in_the_order_of_the_stores(node: LockNode) -> None:
    """Not in that of the hashes of oids, which differs from process to process."""
    reads: list[str] = []
    names = "QWERTYUIOPASDFGHJKLZXCVBNM"
    node.do(*(f"{name}1" for name in names))
    node.locks.vote(tid(1), node.client(1), metadata=True)
    node.locks.lock(tid(1), tid(20))
    for name in sorted(names):
        node.locks.when_readable(oid(name), lambda name=name: reads.append(name))
    node.locks.unlock(tid(1))
    assert "".join(reads) == names


def test_scans_wait_for_the_transactions_locked_at_their_arrival(node: LockNode) -> None:
    """Specification 6.7."""
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


def test_a_scan_up_to_a_transaction_does_not_wait_for_later_ones(node: LockNode) -> None:
    """Specification 6.7, 25.16: a later one may wait for the synchronous backup that asks."""
    reads: list[str] = []
    node.do("A1", "B2")
    for number in 1, 2:
        node.locks.vote(tid(number), node.client(number), metadata=True)
    node.locks.lock(tid(1), tid(20))
    node.locks.lock(tid(2), tid(21))
    node.locks.when_unlocked(lambda: reads.append("before"), tid(19))
    assert reads == ["before"]
    node.locks.when_unlocked(lambda: reads.append("first"), tid(20))
    node.locks.validate()
    node.locks.unlock(tid(1))
    assert reads == ["before", "first"]


def test_to_restore_a_prepared_transaction_takes_a_step_per_object(node: LockNode) -> None:
    """Specification 24.20: the node serves nobody meanwhile."""
    compared = 0

    class Oid(bytes):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return bytes.__eq__(self, other)

        __hash__ = bytes.__hash__

    assert node.locks.restore(tid(1), b"xid", metadata=True)
    for number in range(200):
        node.locks.restore_change(tid(1), Oid(tid(number)), Change(ZERO_TID, None))
    assert compared < 1000
    node.locks.validate()
    assert len(node.locks.checks(tid(1))) == 200
