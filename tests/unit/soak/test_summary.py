"""What a soak leaves: its failures, their commands, and a table of its searches."""

from __future__ import annotations

import json
import shlex
import sys

import pytest

from tests.soak.search import Command, draw, python
from tests.soak.summary import LINES_MAX, Summary, meaningful
from tests.unit.soak.virtual import a_search, soaked, takes

PYTEST = """
E   neo.client.errors.StorageError: lost
    raise ValueError
=== short test summary info ===
FAILED tests/faults/test_kill.py::test_kill[sqlite] - AssertionError: 3 are lost
FAILED tests/faults/test_kill.py::test_kill[mariadb] - AssertionError: 4 are lost
2 failed in 3 s
"""
SIMULATOR = """
   1.234 S1 -> M1 Ping
AssertionError: on the way
seed 77 failed after 1234 events: Violation: an acknowledged transaction is lost
  replay: python -m tests.simulator --seeds 77 --operations yes
2 seeds, 1 failed
"""
STORM = """
--seed 5
Traceback (most recent call last):
  File "x.py", line 3, in main
tests.faults.contents.Violation: sums differ
"""


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (
            PYTEST,
            [
                "FAILED tests/faults/test_kill.py::test_kill[sqlite] - AssertionError: 3 are lost",
                "FAILED tests/faults/test_kill.py::test_kill[mariadb] - AssertionError: 4 are lost",
            ],
        ),
        (
            SIMULATOR,
            ["seed 77 failed after 1234 events: Violation: an acknowledged transaction is lost"],
        ),
        ("vote-not-synced  NO SEED   40  9.0  \n", ["vote-not-synced  NO SEED   40  9.0"]),
        (STORM, ["tests.faults.contents.Violation: sums differ"]),
        ("one\n\ntwo\nthree\nfour\n", ["two", "three", "four"]),
        ("", []),
    ],
)
def test_the_lines_that_say_what_failed(output: str, expected: list[str]) -> None:
    assert meaningful(output) == expected


def test_a_thousand_failed_tests_are_a_few_lines() -> None:
    lines = meaningful("\n".join(f"FAILED tests/a.py::test_{n} - " + "x" * 999 for n in range(999)))
    assert len(lines) == LINES_MAX + 1 and lines[-1] == f"… and {999 - LINES_MAX} more"
    assert max(map(len, lines)) == 300


def test_a_failure_has_what_failed_and_the_command_that_repeats_it() -> None:
    failing = a_search("kill"), takes(10, code=1, output=PYTEST)
    over = soaked(dict([failing]), 100, rounds=1)
    (failure,) = over.summary.failures
    ((_, _, command),) = over.machine.started
    assert failure.round == "kill-0" and failure.seconds == 10 and not failure.hangs
    assert failure.commands == (str(command),)
    page = over.summary.markdown()
    assert "Found 1 failure in 1 round," in page and "## Failure 1: kill-0" in page
    assert "test_kill[sqlite] - AssertionError: 3 are lost" in page
    assert f"    {command}\n" in page and "may need several tries" in page
    assert "kill-0.log" in page and over.forgotten == []


def test_files_of_rounds_that_passed_are_deleted_and_each_round_has_a_line() -> None:
    over = soaked({a_search("well"): takes(10)}, 30)
    assert over.forgotten == ["well-0", "well-1", "well-2"]
    assert [line.split()[2:4] for line in over.said] == [
        [f"well-{number}", "passed"] for number in range(3)
    ]


def test_the_summary_is_stored_after_each_round() -> None:
    over = soaked({a_search("well"): takes(10)}, 30)
    assert over.saved == [("running", 1), ("running", 2), ("running", 3), ("complete", 3)]


def test_an_interrupted_soak_ends_its_rounds_and_leaves_a_summary() -> None:
    over = soaked({a_search("a"): takes(10), a_search("b"): takes(40)}, 1000, 2, stop_at=25)
    assert over.saved[-1][0] == "interrupted" and over.machine.time == 25
    assert sorted(over.machine.interrupted) == ["a-2", "b-0"]
    assert "; interrupted." in over.summary.markdown()


def test_the_json_has_what_the_page_has() -> None:
    over = soaked({a_search("kill"): takes(10, code=1, output=PYTEST)}, 100, rounds=1)
    data = json.loads(over.summary.json())
    assert data["searches"]["kill"]["failures"] == 1 and data["state"] == "complete"
    assert data["failures"][0]["commands"] == list(over.summary.failures[0].commands)


def test_a_command_can_be_pasted_into_a_shell() -> None:
    command = Command(("python", "-m", "pytest", "-k", "a or b"), {"NEO_X_SEED": "7 8"})
    words = shlex.split(str(command))
    assert words == ["NEO_X_SEED=7 8", "python", "-m", "pytest", "-k", "a or b"]
    assert python("x").arguments[1:] == ("-m", "x")
    assert python("x").arguments[0].endswith(sys.executable.rpartition("/")[2])


def test_a_seed_of_a_soak_gives_all_others_again() -> None:
    table = {a_search("a", 2): takes(10), a_search("b"): takes(15)}

    def commands(seed: int, jobs: int) -> set[str]:
        over = soaked(table, 200, jobs, rounds=5, seed=seed)
        return {str(command) for _, _, command in over.machine.started}

    assert commands(1, 1) == commands(1, 2)
    assert commands(1, 1).isdisjoint(commands(2, 1))


def test_slices_of_a_search_are_all_run() -> None:
    slices = [draw(7, "planted", number).slice(19) for number in range(19)]
    assert sorted(slices) == list(range(19))
    assert draw(7, "planted", 0).slice(19) == slices[0]


def test_an_empty_summary_says_that_there_was_no_failure() -> None:
    assert "Found no failure in no round," in Summary(1, "abc", "again").markdown()
