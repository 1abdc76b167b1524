"""The commands of the searches: each runs what it says, with fresh seeds."""

from __future__ import annotations

import re

import pytest

from tests.faults.pace import PAUSE_SECONDS
from tests.simulator.canaries import CANARIES
from tests.simulator.command_line import options_of, parser
from tests.soak.search import ROOT, Command, Search, draw
from tests.soak.table import searches

SEARCHES = {search.name: search for search in searches()}
SIMULATOR_OUTPUT = """
seed 77 failed after 1234 events: Violation: an acknowledged transaction is lost
  replay: python -m tests.simulator --seeds 77 --operations yes
"""


def first(search: Search) -> Command:
    return search.command(draw(3, search.name, 0))


def of_module(module: str) -> list[str]:
    return [name for name, search in SEARCHES.items() if module in first(search).arguments]


@pytest.mark.parametrize("name", SEARCHES)
def test_the_command_of_a_search_differs_from_round_to_round(name: str) -> None:
    search = SEARCHES[name]
    command, again, second = (search.command(draw(3, name, number)) for number in (0, 0, 1))
    assert 0 < search.seconds < search.limit and search.share > 0 and search.purpose
    assert str(again) == str(command) == search.repeat(command, "")[-1]
    once = ("plone", "stranger", "upgrade")  # nothing is drawn
    assert name in once or str(second) != str(command)


def test_names_of_searches_are_names_of_files_and_different() -> None:
    names = [search.name for search in searches()]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z-]+", name) for name in names)


@pytest.mark.parametrize("name", of_module("pytest"))
def test_the_tests_of_a_search_exist_and_read_its_variables(name: str) -> None:
    command = first(SEARCHES[name])
    paths = [ROOT / word for word in command.arguments if word.startswith("tests/")]
    assert paths and all(path.exists() for path in paths)
    files = [path for root in paths for path in (root, *root.rglob("*.py")) if path.is_file()]
    source = "\n".join(path.read_text() for path in files)
    assert command.environment["NEO_HYPOTHESIS"] == "search"
    assert command.environment.get("NEO_PAUSE_SECONDS", "0") == "0" and PAUSE_SECONDS > 0
    for variable in set(command.environment) - {"NEO_HYPOTHESIS", "NEO_PAUSE_SECONDS"}:
        # ``seed("KILL")`` of tests.support.seeds reads NEO_KILL_SEED.
        drawn = variable.removeprefix("NEO_").removesuffix("_SEED")
        seeded, whole = f'seed("{drawn}"' in source, "tests.support.whole import" in source
        assert variable in source or seeded or (variable == "NEO_WHOLE" and whole), variable


@pytest.mark.parametrize("name", of_module("tests.simulator"))
def test_the_options_of_a_search_are_those_of_the_simulator(name: str) -> None:
    arguments = parser(None).parse_args(first(SEARCHES[name]).arguments[3:])
    assert arguments.jobs == 1
    if name != "planted":
        assert len(arguments.seeds) > 1 and arguments.once and arguments.keep_going
        assert name == "simulator" or options_of(arguments).arguments()


def test_all_planted_bugs_have_a_round_in_a_long_soak() -> None:
    planted = SEARCHES["planted"]
    assert planted.rounds is not None
    hunted = [
        bug
        for number in range(planted.rounds)
        for bug in planted.command(draw(3, "planted", number)).arguments[4].split(",")
    ]
    assert sorted(hunted) == sorted(CANARIES)


def test_a_seed_of_the_simulator_is_repeated_alone() -> None:
    search = SEARCHES["simulator-operations"]
    alone, whole = search.repeat(first(search), SIMULATOR_OUTPUT)
    assert alone.endswith("-m tests.simulator --seeds 77 --operations yes")
    assert whole == str(first(search))


def test_a_planted_bug_is_repeated_alone() -> None:
    search = SEARCHES["planted"]
    output = "data-not-released   seed 3  10\nvote-not-synced  NO SEED   40  9.0  \n"
    alone, whole = search.repeat(first(search), output)
    assert alone.endswith("--canaries vote-not-synced --jobs 1") and whole == str(first(search))


def test_a_short_soak_has_no_search_that_needs_a_long_one() -> None:
    assert {name for name, search in SEARCHES.items() if search.least} == {
        *("schedules", "interrupts", "plone", "stranger", "upgrade")
    }
    assert all(search.least <= 40 * 60 for search in SEARCHES.values())
