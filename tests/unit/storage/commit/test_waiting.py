"""Waits for locks: what clients and operators can ask about them, and that an abort ends them."""

from __future__ import annotations

from neo.protocol.ids import INVALID_OID, ZERO_TID, p64
from neo.protocol.packets import (
    AbortTransaction,
    AnswerLockHolders,
    AnswerLocks,
    AskLockHolders,
    AskLockInformation,
    AskLocks,
    AskObjectHistory,
    NotifyUnlockInformation,
)
from tests.unit.storage.lock_node import LockNode, oid, tid
from tests.unit.storage.requests import store, store_request, voted
from tests.unit.storage.world import C1, C2, End, World


def told(node: LockNode, number: int, name: str) -> tuple[float, list[bytes]] | None:
    blocked = node.locks.blocked(tid(number), oid(name))
    return None if blocked is None else (blocked.waited, [t.ttid for t in blocked.holders])


def waiting(node: LockNode) -> dict[bytes, dict[bytes, float]]:
    return {t.ttid: waiters for t, waiters in node.locks.waiting()}


def test_who_waits_is_told_since_when_and_for_whom(node: LockNode) -> None:
    node.do("A1")
    node.now = 10.0
    assert node.do("A2", "B2") == {"B2": None}
    node.now = 13.0
    assert told(node, 2, "A") == (3.0, [tid(1)])
    assert told(node, 2, "B") is None and told(node, 1, "A") is None and told(node, 7, "A") is None
    assert waiting(node) == {tid(1): {tid(2): 3.0}, tid(2): {}}


def test_phases_tell_who_is_to_blame(node: LockNode) -> None:
    """Specification 8.27."""
    node.do("A1", "A2", "B2", "B3")
    phases = {t.ttid: t.phase for t, _ in node.locks.waiting()}
    assert phases == {tid(1): "storing", tid(2): "waiting", tid(3): "waiting"}
    node.locks.vote(tid(1), node.client(1), metadata=False)
    assert node.locks.waiting()[0].transaction.phase == "voted"
    node.locks.lock(tid(1), tid(20))
    assert node.locks.waiting()[0].transaction.phase == "locked"


def test_the_wait_begins_again_when_nothing_was_delayed_meanwhile(node: LockNode) -> None:
    node.do("A1", "A2")
    node.now = 50.0
    assert node.abort(1) == {"A2": None}
    node.do("B1")
    node.now = 60.0
    node.do("B2")
    node.now = 61.0
    assert told(node, 2, "B") == (1.0, [tid(1)])


def test_the_wait_goes_on_through_deadlocks(node: LockNode) -> None:
    """Else a transaction that is rebased again and again would wait for ever (specification 8.26)."""
    node.do("A2")
    node.now = 5.0
    assert node.do("A1") == {}  # would wait for a greater locking tid
    assert node.take_deadlocks() == [(tid(1), tid(1))]
    node.now = 9.0
    assert told(node, 1, "A") == (4.0, [tid(2)])
    assert node.rebase(1, 30) == ""
    assert told(node, 1, "A") == (4.0, [tid(2)])
    assert waiting(node)[tid(2)] == {tid(1): 4.0}


def test_a_place_in_a_queue_makes_its_holder_a_blocker_but_is_no_request(node: LockNode) -> None:
    node.do("A1")
    node.do("A2", serial=ZERO_TID)
    node.do("B3", "B1")
    assert node.take_deadlocks() == [(tid(1), tid(1))]
    assert node.take_answers() == {}
    node.now = 4.0
    assert node.rebase(1, 30) == "A"  # 2 has it by now
    assert told(node, 1, "A") is None and told(node, 1, "B") == (4.0, [tid(3)])
    assert waiting(node)[tid(2)] == {tid(1): 4.0}


def test_an_abort_after_waiting_leaves_nothing_behind(node: LockNode) -> None:
    node.do("A1", "B2", "A2", "B3")
    assert node.abort(2) == {"A2": ZERO_TID, "B3": None}
    assert waiting(node) == {tid(1): {}, tid(3): {}}
    assert node.abort(1) == {} and node.abort(3) == {}
    assert len(node.locks) == 0


# -- as messages ---------------------------------------------------------------------------------


def test_a_client_is_told_who_holds_what_it_waits_for(
    world: World, client: End, other: End
) -> None:
    """Specification 8.26."""
    store(client, 10, 1)
    world.host.advance(50)
    answer = other.ask_later(store_request(12, 1))
    world.host.advance(31)
    holder = (p64(10), C1, ("127.0.0.1", 3000), 81.0, "storing")
    assert other.ask(AskLockHolders(p64(12), p64(1))) == AnswerLockHolders(31.0, [holder])
    assert client.ask(AskLockHolders(p64(10), p64(1))) == AnswerLockHolders(None, [])
    other.send(AbortTransaction(p64(12), []))
    assert answer[0].locked == ZERO_TID
    assert other.ask(AskLockHolders(p64(12), p64(1))) == AnswerLockHolders(None, [])


def test_a_client_is_told_what_delays_its_reads(
    world: World, master: End, client: End, other: End
) -> None:
    """Specification 6.29, 8.26."""
    voted(client, 10, 1)
    read = AskLockHolders(ZERO_TID, p64(1))
    scan = AskLockHolders(ZERO_TID, INVALID_OID)
    assert other.ask(read) == other.ask(scan) == AnswerLockHolders(None, []), "it is not locked"
    master.ask(AskLockInformation(p64(10), p64(12)))
    assert other.ask(scan) == AnswerLockHolders(None, []), "no read waits"
    history = other.ask_later(AskObjectHistory(p64(1), 0, 9))
    world.host.advance(3)
    delayed = AnswerLockHolders(0.0, [(p64(10), C1, ("127.0.0.1", 3000), 3.0, "locked")])
    assert other.ask(read) == other.ask(scan) == delayed
    assert other.ask(AskLockHolders(ZERO_TID, p64(3))) == AnswerLockHolders(None, [])
    master.send(NotifyUnlockInformation(p64(10)))
    world.wait(lambda: bool(history), "the history does not come")
    assert other.ask(read) == other.ask(scan) == AnswerLockHolders(None, [])


def test_the_address_of_a_holder_whose_connection_is_lost_is_not_known(
    world: World, client: End, other: End
) -> None:
    """Specification 8.26."""
    voted(client, 10, 1)
    client.disconnect()
    other.ask_later(store_request(12, 1))
    ((_, nid, address, _, phase),) = other.ask(AskLockHolders(p64(12), p64(1))).holder_list
    assert (nid, address, phase) == (C1, None, "voted")


def test_the_master_is_told_of_all_transactions(
    world: World, master: End, client: End, other: End
) -> None:
    """Specification 8.29."""
    assert master.ask(AskLocks()) == AnswerLocks([])
    voted(client, 10, 1)
    other.ask_later(store_request(12, 1))
    world.host.advance(7)
    other.ask_later(store_request(14, 1))
    rows = [
        (p64(10), C1, "voted", [p64(12), p64(14)], 7.0),
        (p64(12), C2, "waiting", [], 0.0),
        (p64(14), C2, "waiting", [], 0.0),
    ]
    assert master.ask(AskLocks()).row_list == rows


def test_a_wait_lasts_since_the_first_request_that_is_delayed(node: LockNode) -> None:
    """Specification 8.26: a client sends the next request before the last one is answered."""
    node.do("A1", "B1")
    node.now = 5.0
    node.do("A2")
    node.now = 7.0
    node.do("B2")
    node.now = 9.0
    for name in "AB":
        blocked = node.locks.blocked(tid(2), oid(name))
        assert blocked is not None and blocked.waited == 4.0
