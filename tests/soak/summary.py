"""What a soak found: failures with the commands that repeat them, and what each search did (pure)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.soak.search import Search

#: Lines of a failure in the summary, and characters of each.
LINES_MAX, LENGTH_MAX = 8, 300

#: What says most about a failure comes first. Only the lines of the first kind that is found are shown.
_KINDS = (
    # pytest's summary; the simulator's report; its table of planted bugs
    re.compile(r"^(?:FAILED|ERROR) \S+::.*|^seed \d+ failed after .*|^\S+ +NO SEED .*", re.M),
    re.compile(r"^a process ended in the middle of a seed.*", re.M),
    # the end of a traceback, also of one that pytest shows
    re.compile(
        r"^(?:E +)?(?:\w+\.)*\w*(?:Error|Violation|Exception|Lost|Failed)\b(?:: .*)?$", re.M
    ),
    re.compile(r"^\S*: \*\*\* .*|^ERROR: .*|^.*: error: .*", re.M),
)


def meaningful(output: str) -> list[str]:
    """Return the lines of an output that say what failed, or its last lines."""
    for kind in _KINDS:
        found = list(dict.fromkeys(match[0].strip() for match in kind.finditer(output)))
        if found:
            break
    else:
        found = [line for line in output.splitlines() if line.strip()][-3:]
    more = [f"… and {len(found) - LINES_MAX} more"] if len(found) > LINES_MAX else []
    return [line[:LENGTH_MAX] for line in found[:LINES_MAX]] + more


@dataclass(frozen=True)
class Failure:
    """A failed round. ``what``: the lines that say what failed. ``commands``: that repeat it. ``exact``:
    a repeated round does the same, event by event."""

    round: str
    seconds: float
    hangs: bool
    what: tuple[str, ...]
    commands: tuple[str, ...]
    exact: bool
    log: str
    folder: str


@dataclass
class Tally:
    """What a search did. ``cut_off``: rounds that were ended with the soak, and say nothing."""

    purpose: str
    rounds: int = 0
    seconds: float = 0.0
    failures: int = 0
    cut_off: int = 0
    given_up: bool = False


@dataclass
class Summary:
    """``state``: running, complete or interrupted. ``repeat``: the command of the whole soak."""

    seed: int
    commit: str
    repeat: str
    searches: dict[str, Tally] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0
    state: str = "running"

    def tally(self, search: Search) -> Tally:
        return self.searches.setdefault(search.name, Tally(search.purpose))

    def json(self) -> str:
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    def markdown(self) -> str:
        rounds = sum(tally.rounds for tally in self.searches.values())
        lines = [
            "# Soak",
            "",
            f"Found {_count(len(self.failures), 'failure')} in {_count(rounds, 'round')}, "
            f"{self.seconds / 60:.1f} minutes, commit {self.commit}, seed {self.seed}; {self.state}.",
            "",
            f"The same draws again: `{self.repeat}`",
            "",
        ]
        for number, failure in enumerate(self.failures, 1):
            lines += _section(number, failure)
        lines += ["## Searches", "", *_table(self.searches)]
        return "\n".join(lines) + "\n"


def _count(number: int, what: str) -> str:
    return {0: f"no {what}", 1: f"1 {what}"}.get(number, f"{number} {what}s")


def _section(number: int, failure: Failure) -> list[str]:
    hangs = ", hangs: it was killed at its limit" if failure.hangs else ""
    what = ["```", *failure.what, "```"] if failure.what else []
    some = "" if failure.exact else " (the same choices, other moments: it may need several tries)"
    return [
        f"## Failure {number}: {failure.round}",
        "",
        f"After {failure.seconds:.0f} s{hangs}.",
        "",
        *what,
        "",
        f"Repeat, in the root of the tree{some}:",
        "",
        *(f"    {command}" for command in failure.commands),
        "",
        f"Output: `{failure.log}`; files: `{failure.folder}`",
        "",
    ]


def _table(searches: dict[str, Tally]) -> Sequence[str]:
    rows: list[tuple[Any, ...]] = [
        ("search", "what it does", "rounds", "seconds", "failures", "cut off"),
        ("---", "---", "---:", "---:", "---:", "---:"),
    ]
    for name, tally in searches.items():
        failures = f"{tally.failures}, given up" if tally.given_up else tally.failures
        row = (name, tally.purpose, tally.rounds, f"{tally.seconds:.0f}", failures)
        rows.append((*row, tally.cut_off))
    return ["| " + " | ".join(map(str, row)) + " |" for row in rows]
