"""One test for each condition of a synchronous standby that ``status`` and mails tell (specification
25.45, 25.48, 25.67)."""

from __future__ import annotations

import pytest

from neo.admin.facts import sync_data
from neo.admin.problems import SYNC_SECONDS, Problem, find_sync_problems
from neo.protocol.enums import ClusterState
from neo.protocol.ids import tid_from_time
from neo.protocol.packets import AnswerSync, SyncRow
from neoctl.render import own_sync_text, sync_text

#: 2026-11-25 12:00:00 UTC.
NOON = 1795608000.0
LAST = tid_from_time(NOON)
FLAPS = "it left 7 times in 45 seconds, the last time because: it did not lock a transaction in time"
NEVER = "it has not joined yet: its master is connected, and knows why"


def problems(row: SyncRow, own: bool = False, after: float = 60.0) -> list[Problem]:
    """Return what ``status`` says ``after`` NOON."""
    answer = AnswerSync([], row) if own else AnswerSync([row], None)
    state = ClusterState.BACKINGUP if own else ClusterState.RUNNING
    return find_sync_problems(state, sync_data(answer, LAST, NOON + after), None, NOON + after)


def row(state: str, reason: str, since: float = 0.0, seconds: float | None = 0.0) -> SyncRow:
    return "bak", state, NOON + since, LAST, seconds, reason


def test_a_backup_that_is_in_sync_is_no_problem() -> None:
    assert problems(row("sync", "")) == [] == problems(row("sync", ""), own=True)


@pytest.mark.parametrize("own", [False, True])
def test_a_backup_that_flaps_is_named_in_sync(own: bool) -> None:
    """Specification 25.67: between two losses it looks sound."""
    (problem,) = problems(row("sync", FLAPS), own)
    assert problem.severity == "warning" and FLAPS in problem.text and "bak" in problem.text
    assert ("mend what the reason names" if own else "its neoctl status says") in problem.advice


@pytest.mark.parametrize("own", [False, True])
def test_a_backup_that_flaps_is_named_at_once_out_of_sync(own: bool) -> None:
    """Specification 25.47: since the first of its losses, so that the 5 seconds are over."""
    (problem,) = problems(row("async", FLAPS, since=15.0), own)
    assert "not in sync" in problem.text and FLAPS in problem.text


@pytest.mark.parametrize("own", [False, True])
def test_a_backup_that_never_joins(own: bool) -> None:
    """Specification 25.48: it says why."""
    assert problems(row("async", NEVER, seconds=None), own, after=SYNC_SECONDS - 1) == []
    (problem,) = problems(row("async", NEVER, seconds=None), own, after=SYNC_SECONDS)
    assert problem.severity == "warning" and problem.text.endswith(NEVER)


def test_a_backup_for_which_commits_wait_is_a_problem() -> None:
    (problem,) = problems(row("lost", "the connection with its master was lost"))
    assert problem.severity == "problem" and problem.text.startswith("commits wait for")
    assert "neoctl set sync bak off" in problem.advice


def test_a_backup_that_is_switched_off_is_a_warning_at_once() -> None:
    (problem,) = problems(row("off", "the operator switched it off"), after=0.0)
    assert problem.severity == "warning" and problem.advice == "neoctl set sync bak on"


def test_print_backups_tells_of_a_backup_that_flaps() -> None:
    """Specification 25.67."""
    data = sync_data(AnswerSync([row("sync", FLAPS)], row("sync", FLAPS)), LAST, NOON)
    assert sync_text(data).splitlines()[-1].endswith(f"nothing | {FLAPS}")
    assert own_sync_text(data["own"]).endswith(f"nothing is missing; {FLAPS}")
