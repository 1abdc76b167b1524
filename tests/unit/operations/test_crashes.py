"""Whatever crashes, and whenever: an operation happens as a whole or not at all (specification 27.10)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.operations.crashes import (
    PEERS,
    PRIMARY,
    all_crash_after_any_event,
    all_crash_while_the_disk_is_slow,
    one_crashes_after_any_event,
    play,
)

LOGS = pytest.mark.parametrize("persistent", [True, False], ids=["log", "memory"])


@LOGS
@pytest.mark.parametrize("fails", [None, 0, 2, 3], ids=["all succeed", "0 fails", "2 fails", "3 fails"])
@pytest.mark.parametrize("who", [PRIMARY, *PEERS])
def test_a_crash_after_any_event(persistent: bool, fails: int | None, who: int) -> None:
    """Decision 1.2-5 of the design: also in the middle of a step, and of its undo. Specification 27.17 to
    27.21."""
    one_crashes_after_any_event(persistent, fails, who)


@LOGS
def test_all_processes_crash_at_once_after_any_event(persistent: bool) -> None:
    """Specification 27.31."""
    all_crash_after_any_event(persistent)


@LOGS
def test_all_crash_at_once_while_the_disk_is_slow(persistent: bool) -> None:
    """Specification 27.17, 27.21."""
    all_crash_while_the_disk_is_slow(persistent)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1 << 32), st.booleans())
def test_operations_and_faults_in_any_order(seed: int, persistent: bool) -> None:
    """Oracles (a) to (h) of the design; requirements 5, 7 to 9, 12, 13, 22."""
    play(seed, persistent)
