"""Prepared transactions in the line for monitoring (specification 17.20)."""

from __future__ import annotations

from neo.admin.monitor import count_prepared
from neo.protocol.packets import PreparedRow

NOW = 1795608000.0


def row(xid: bytes, age: float, state: str = "prepared") -> PreparedRow:
    return xid, bytes(8), None, NOW - age, 2, b"", state


def test_nothing_is_said_of_none() -> None:
    assert count_prepared([], NOW) == "" == count_prepared([row(b"a", 5.0, "committing")], NOW)


def test_says_how_many_there_are_and_how_old_the_oldest_is() -> None:
    """A synchronous standby keeps those that are prepared in its upstream cluster."""
    rows = [row(b"a", 5.4), row(b"b", 90.0, "kept"), row(b"c", 99.0, "rolled back")]
    assert count_prepared(rows, NOW) == "prepared=2; oldest prepared 90 s ago"
