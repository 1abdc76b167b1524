"""Synchronous standbys on the command line, and in ``status`` (specification 25.28, 25.45, 25.46)."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from neo.admin.monitor import tid_date
from neo.admin.problems import SYNC_SECONDS, Problem, find_sync_problems
from neo.protocol.enums import ClusterState, ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import p64, tid_from_time
from neo.protocol.packets import (
    AnswerLastTransaction,
    AnswerSync,
    AskLastTransaction,
    AskSync,
    SyncRow,
    Tid,
)
from neoctl import commands, status
from neoctl.status import EXIT_PROBLEM
from tests.unit.neoctl.conftest import Console, Make

#: 2026-11-25 12:00:00 UTC.
NOON = 1795608000.0
TITLE = "# name | state | since (UTC) | complete up to | lost if it takes over now | reason"


@pytest.fixture
def make(console: Make, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Return a console at NOON + 60 s, in a cluster whose last commit is of NOON + 50 s."""
    for module in (commands, status):
        monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: NOON + 60.0))

    def ask(backups: list[SyncRow], own: SyncRow | None = None) -> Console:
        last = AnswerLastTransaction(tid_from_time(NOON + 50.0))
        return console({AskSync: AnswerSync(backups, own), AskLastTransaction: last})

    return ask


def row(
    state: str, second: float | None = None, seconds: float | None = None, reason: str = ""
) -> SyncRow:
    """``second``: after NOON, of the tid up to which the backup is complete."""
    tid: Tid | None = None if second is None else tid_from_time(NOON + second)
    return "bak", state, NOON, tid, seconds, reason


def found(ctl: Console) -> list[Problem]:
    """Return the problems in ``status``."""
    ctl("status", "--json")
    return [Problem(**problem) for problem in json.loads(ctl.out)["problems"]]


def test_a_backup_in_sync_loses_nothing(make: Make) -> None:
    ctl = make([row("sync", 50.0, 0.0), row("async", None, 40.0, "no answer in 3 s")])
    tid = tid_from_time(NOON + 50.0)
    assert ctl.lines("print", "backups") == [
        TITLE,
        f"bak | in sync | 2026-11-25 12:00:00 | 0x{tid.hex()} ({tid_date(tid)} UTC) | nothing",
        "bak | not in sync | 2026-11-25 12:00:00 | unknown | about 40 seconds | no answer in 3 s",
    ]


@pytest.mark.parametrize(
    ("backup", "words", "lost", "seconds"),
    [
        (row("off", 20.0, 40.0), "switched off", "about 30 seconds", 30.0),
        (row("async", 8.0, 15.0), "not in sync", "about 15 seconds", 15.0),
        (row("async", 50.0, 40.0), "not in sync", "less than a second", 0.0),
        (row("async"), "not in sync", "unknown", None),
        (row("async", None, 40.0), "not in sync", "about 40 seconds", 40.0),
        (row("joining", 48.0), "joining", "about 2 seconds", 2.0),
        (row("of a later version", 48.0), "of a later version", "about 2 seconds", 2.0),
        (row("lost", 49.0, 3.0), "lost, commits wait for it", "about 1 second", 1.0),
    ],
)
def test_what_a_backup_lacks_is_the_least_that_is_certain(
    make: Make, backup: SyncRow, words: str, lost: str, seconds: float | None
) -> None:
    """It has what was acknowledged while it was in sync, and what it is complete up to."""
    ctl = make([backup])
    _, line = ctl.lines("print", "backups")
    cells = line.split(" | ")
    assert (cells[1], cells[4]) == (words, lost)
    (data,) = ctl.data("print", "backups")["backups"]
    assert data["state"] == backup[1]
    assert data["lost"] == (seconds if seconds is None else pytest.approx(seconds, abs=1e-3))


def test_a_cluster_without_synchronous_backups_says_so(make: Make) -> None:
    ctl = make([])
    assert ctl.lines("print", "backups") == ["This cluster has no synchronous standby, and is none."]
    assert not [line for line in ctl.lines("status") if "sync" in line]


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        (row("sync", 50.0, 0.0), "in sync with 'bak' since 2026-11-25 12:00:00 UTC: nothing is missing"),
        (
            row("lost", 50.0, 8.5, "no lease"),
            "in sync with 'bak' until 2026-11-25 12:00:51.500 UTC (no lease); if that cluster stopped"
            " before that, nothing is missing",
        ),
        (
            row("async", 50.0, None, "too far behind"),
            "not in sync with 'bak' since its master began to serve (too far behind)",
        ),
        (row("joining"), "not in sync with 'bak' since its master began to serve"),
    ],
)
def test_a_backup_says_until_when_it_has_everything(
    make: Make, own: SyncRow, sentence: str
) -> None:
    """The end of the time in sync is rounded down (specification 25.14)."""
    ctl = make([], own)
    first, second = ctl.lines("print", "backups")
    assert first == sentence
    assert second.startswith("complete up to unknown" if own[3] is None else "complete up to 0x")
    assert f"this standby is {sentence}" in ctl.lines("status")


def test_a_backup_with_backups_shows_both(make: Make) -> None:
    ctl = make([row("sync", 50.0, 0.0)], row("sync", 50.0, 0.0))
    assert [line.split(" ")[0] for line in ctl.lines("print", "backups")] == [
        *("in", "complete", "#", "bak")
    ]


def test_times_are_data(make: Make) -> None:
    ctl = make([], ("up", "lost", NOON, p64(0), 8.5, "no lease"))
    data = ctl.data("print", "backups")
    assert data == {
        "backups": [],
        "own": {
            "name": "up",
            "state": "lost",
            "since": NOON,
            "until": NOON + 51.5,
            "tid": "0x0000000000000000",
            "tid_date": "1900-01-01 00:00:00",
            "reason": "no lease",
        },
    }
    assert ctl.data("status")["sync"] == data


@pytest.mark.parametrize(
    ("backup", "sentence"),
    [
        (
            row("sync", 50.0, 0.0),
            "in sync since 2026-11-25 12:00:00 UTC; if it takes over now, lost is: nothing",
        ),
        (
            row("lost", 20.0, 40.0),
            "lost, commits wait for it since 2026-11-25 12:00:00 UTC; if it takes over now, lost is:"
            " about 30 seconds",
        ),
    ],
)
def test_status_has_a_line_for_each_backup(make: Make, backup: SyncRow, sentence: str) -> None:
    ctl = make([backup])
    assert ctl("status") == (EXIT_PROBLEM if backup[1] == "lost" else 0)
    assert f"synchronous standby bak: {sentence}" in ctl.out.splitlines()


SINCE = "since 2026-11-25 12:00:00 UTC"
START = (
    "start that standby, or mend the network between the two; its neoctl status says what else is wrong;"
)


@pytest.mark.parametrize(
    ("backup", "problem"),
    [
        (
            row("lost", reason="gone"),
            Problem(
                "problem",
                f"commits wait for synchronous standby bak, which is not in sync {SINCE}: gone",
                f"{START} if applications cannot wait: neoctl set sync bak off",
            ),
        ),
        (
            row("async", reason="gone"),
            Problem(
                "warning",
                f"synchronous standby bak is not in sync {SINCE}, and what is acknowledged is not in it:"
                " gone",
                f"{START} then wait until it is in sync",
            ),
        ),
        (
            row("off", reason="the operator switched it off"),
            Problem(
                "warning",
                f"synchronous standby bak is switched off {SINCE}: commits do not wait for it",
                "neoctl set sync bak on",
            ),
        ),
    ],
)
def test_a_backup_that_is_not_in_sync_is_a_problem(
    make: Make, backup: SyncRow, problem: Problem
) -> None:
    """Specification 25.48."""
    assert found(make([backup])) == [problem]


@pytest.mark.parametrize("state", ["async", "lost"])
def test_a_synchronous_backup_that_is_not_in_sync_warns(make: Make, state: str) -> None:
    """Specification 25.48."""
    (problem,) = found(make([], row(state, reason="S1 must be updated to take part")))
    assert problem == Problem(
        "warning",
        f"this standby is not in sync with 'bak' {SINCE}: S1 must be updated to take part",
        "mend what the reason names; if this standby is only behind: wait until it has caught up",
    )


@pytest.mark.parametrize("state", ["sync", "joining", "of a later version"])
def test_a_backup_that_joins_is_no_problem(make: Make, state: str) -> None:
    assert not found(make([row(state)], row(state)))


@pytest.mark.parametrize("state", ["async", "lost"])
@pytest.mark.parametrize(("ago", "told"), [(4.0, False), (SYNC_SECONDS, True), (-3600.0, True)])
def test_a_moment_is_no_problem(make: Make, state: str, ago: float, told: bool) -> None:
    """Specification 25.48. A clock of the master that is fast hides nothing."""
    moment: SyncRow = ("bak", state, NOON + 60.0 - ago, None, None, "")
    assert bool(found(make([moment]))) is bool(found(make([], moment))) is told


def test_a_backup_that_gets_nothing_has_one_problem() -> None:
    own = {"name": "up", "state": "async", "since": NOON, "reason": "lost"}
    sync, heard = {"backups": [], "own": own}, {"heard": True}
    state = ClusterState.BACKINGUP
    assert find_sync_problems(state, sync, heard, NOON + 60.0)
    assert not find_sync_problems(state, sync, {"heard": False}, NOON + 60.0)
    assert not find_sync_problems(state, None, heard, NOON + 60.0)
    assert not find_sync_problems(ClusterState.RECOVERING, sync, heard, NOON + 60.0)


def test_a_master_that_does_not_know_synchronous_backups_says_so(console: Make) -> None:
    refused = ErrorAnswer(ErrorCode.DENIED, "the primary master does not know this command")
    ctl = console({AskSync: refused})
    assert ctl("print", "backups") == 1
    assert ctl.out == "the primary master does not know this command\n"
