"""Incomplete messages that are so small that a node does not count them."""

from __future__ import annotations

from neo.node.backlog import INCOMPLETE_BYTES, SMALL_BYTES, Backlog


class Sender:
    unread = 0
    trusted = True

    def lost(self, reason: str) -> None: ...


def test_many_small_messages_cost_nobody_the_connection() -> None:
    """Specification 2.37: each of a thousand clients may have sent a part of a request."""
    counted, large = Backlog(), Sender()
    assert counted.incomplete(large, INCOMPLETE_BYTES)
    assert all(counted.incomplete(Sender(), SMALL_BYTES) for _ in range(1000))
    assert counted.incomplete(large, INCOMPLETE_BYTES)
    # What a peer has sent whole, or nearly, does not count any more.
    other = Sender()
    assert counted.incomplete(other, SMALL_BYTES + 1)
    assert not counted.incomplete(large, INCOMPLETE_BYTES)
    assert counted.incomplete(other, SMALL_BYTES)
    assert counted.incomplete(large, INCOMPLETE_BYTES)
