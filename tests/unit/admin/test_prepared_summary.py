"""Prepared transactions in the summary for monitoring (specification 17.20, 17.21)."""

from __future__ import annotations

import pytest

from neo.admin.monitor import OLD_PREPARED_SECONDS, Health, examine_prepared
from neo.protocol.packets import PreparedRow

NOW = 1795608000.0


def row(xid: bytes, age: float, state: str = "prepared") -> PreparedRow:
    return xid, bytes(8), None, NOW - age, 2, b"", state


def test_nothing_is_said_of_none() -> None:
    assert examine_prepared([], NOW) == Health(False, False, "")
    assert examine_prepared([row(b"a", 5.0, "committing")], NOW) == Health(False, False, "")


def test_says_how_many_there_are_and_how_old_the_oldest_is() -> None:
    rows = [row(b"a", 5.4), row(b"b", 90.0), row(b"c", 9.0, "rolled back")]
    expected = Health(False, False, "prepared=2; oldest prepared 90 s ago")
    assert examine_prepared(rows, NOW) == expected


@pytest.mark.parametrize(("state", "warns"), [("prepared", True), ("kept", False)])
def test_an_old_one_is_a_warning_where_it_is_decided(state: str, warns: bool) -> None:
    """A synchronous backup cannot decide about it."""
    found = examine_prepared([row(b"a", OLD_PREPARED_SECONDS, state)], NOW)
    assert found == Health(False, warns, "prepared=1; oldest prepared 600 s ago")
