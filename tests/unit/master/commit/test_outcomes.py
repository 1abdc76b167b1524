"""Outcomes that are remembered within bounds (specification 24.15, 24.16)."""

from __future__ import annotations

import pytest

from neo.master.commit import outcomes
from neo.master.commit.outcomes import OUTCOME_SECONDS, PURGED_MAX, Outcome, Outcomes
from tests.unit.master.cluster import tid


def remembered(count: int, step: float = 1.0) -> Outcomes:
    """Return outcomes 0, 1, 2…, each ``step`` seconds after the one before."""
    found = Outcomes()
    for number in range(count):
        found.add(b"%d" % number, Outcome(tid(number), None, number * step))
    return found


def test_outcomes_of_the_last_thirty_days_are_kept() -> None:
    found = remembered(3)
    assert found.stale(OUTCOME_SECONDS) == []
    assert found.stale(OUTCOME_SECONDS + 1.5) == [b"0", b"1"]


def test_the_oldest_above_the_bound_are_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "OUTCOMES_MAX", 2)
    found = remembered(4)
    assert found.stale(0.0) == [b"0", b"1"]
    found.forget(b"0")
    assert found.stale(0.0) == [b"1"]
    assert [xid for xid, _ in found.newest(2)] == [b"3", b"2"]


def test_few_are_purged_at_once() -> None:
    found = remembered(PURGED_MAX + 5)
    assert len(found.stale(2 * OUTCOME_SECONDS)) == PURGED_MAX


def test_a_transaction_is_known_by_its_ttid_until_it_is_forgotten() -> None:
    found = remembered(2)
    assert found.known(tid(1)) and not found.known(tid(2))
    found.forget(b"1")
    assert not found.known(tid(1))


def test_an_outcome_is_told_in_words() -> None:
    assert str(Outcome(tid(1), None, 0.0)) == "rolled back"
    assert str(Outcome(tid(1), tid(2), 0.0)) == "committed as 0x0000000000000002"
