"""For how long a transaction has waited, when several of its requests are delayed."""

from __future__ import annotations

from tests.unit.storage.lock_node import LockNode, oid, tid


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
