"""Which round is next, on virtual time."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.soak.scheduler import FAILURES_MAX, Scheduler
from tests.unit.soak.virtual import a_search, soaked, takes


def test_time_is_shared_as_the_shares_say_whatever_a_round_takes() -> None:
    table = {
        a_search("much", share=6, seconds=5): takes(5),
        a_search("some", share=3, seconds=50): takes(50),
        a_search("little", share=1, seconds=2): takes(2),
    }
    over = soaked(table, 10_000, jobs=2)
    used = {name: tally.seconds for name, tally in over.summary.searches.items()}
    whole = sum(used.values())
    assert whole > 19_000
    for search in table:
        assert used[search.name] / whole == pytest.approx(search.share / 10, abs=0.02)


def test_a_search_that_waits_for_its_first_round_comes_before_the_second_of_another() -> None:
    table = {a_search(name): takes(10) for name in ("a", "b", "c")}
    over = soaked(table, 40)
    assert [begun.name for _, begun, _ in over.machine.started] == ["a-0", "b-0", "c-0", "a-1"]


def test_two_rounds_at_once_are_of_two_searches_if_their_shares_are_the_same() -> None:
    over = soaked({a_search("a"): takes(10), a_search("b"): takes(10)}, 100, jobs=2)
    started = [(at, begun.search.name) for at, begun, _ in over.machine.started]
    assert over.machine.at_once == 2
    assert {at for at, name in started if name == "a"} == {
        at for at, name in started if name == "b"
    }


def test_nothing_is_started_that_would_end_too_late() -> None:
    """A search is expected to take as long as its longest round, or as its estimate."""
    table = {
        a_search("slower", seconds=10): takes(45),
        a_search("faster", seconds=60): takes(20),
        a_search("endless", seconds=201): takes(1),
    }
    over = soaked(table, 200)
    assert not over.machine.interrupted
    for at, begun, _ in over.machine.started:
        assert at + (45 if begun.search.name == "slower" else 20) <= 200
    assert "endless" not in over.summary.searches


def test_a_round_that_takes_longer_than_expected_is_cut_off_at_the_end_and_no_failure() -> None:
    over = soaked({a_search("slow", seconds=10): takes(500)}, 100)
    assert over.machine.interrupted == ["slow-0"]
    tally = over.summary.searches["slow"]
    assert (tally.rounds, tally.failures, tally.cut_off) == (0, 0, 1)
    assert over.forgotten == ["slow-0"]


def test_a_round_over_its_limit_is_killed_and_fails_and_others_go_on() -> None:
    table = {a_search("stuck", limit=30.0): takes(10**9), a_search("well"): takes(10)}
    over = soaked(table, 300)
    assert over.machine.killed == [f"stuck-{number}" for number in range(FAILURES_MAX)]
    assert [failure.hangs for failure in over.summary.failures] == [True] * FAILURES_MAX
    assert all(failure.seconds > 30 for failure in over.summary.failures)
    assert over.summary.searches["well"].rounds > 10


def test_a_search_that_fails_each_time_is_given_up() -> None:
    table = {a_search("broken", seconds=1): takes(0, code=1), a_search("well"): takes(10)}
    over = soaked(table, 1000)
    tally = over.summary.searches["broken"]
    assert (tally.rounds, tally.given_up) == (FAILURES_MAX, True)
    assert not over.summary.searches["well"].given_up


def test_failures_with_successes_between_them_give_nothing_up() -> None:
    over = soaked({a_search("some"): lambda number: (10, int(number % 3 > 0), "")}, 1000)
    tally = over.summary.searches["some"]
    assert tally.rounds == 100 and tally.failures == 66 and not tally.given_up


def test_rounds_that_take_no_time_do_not_run_alone() -> None:
    over = soaked({a_search("empty", seconds=0): takes(0), a_search("well"): takes(10)}, 1000)
    assert over.summary.searches["well"].rounds > 40


@pytest.mark.parametrize(("own", "common", "expected"), [(3, None, 3), (None, 2, 2), (3, 1, 1)])
def test_a_search_has_at_most_its_rounds_and_then_the_soak_ends(
    own: int | None, common: int | None, expected: int
) -> None:
    over = soaked({a_search("few", rounds=own): takes(10)}, 1000, rounds=common)
    assert over.summary.searches["few"].rounds == expected
    assert over.machine.time < 1000


def test_a_search_begins_in_its_part_of_a_soak_that_is_long_enough() -> None:
    late = a_search("late", begin=0.6, least=100.0, rounds=1)
    over = soaked({late: takes(10)}, 100)
    assert [at for at, _, _ in over.machine.started] == [60]
    assert not soaked({late: takes(10)}, 99).machine.started


def test_no_slot_is_free_while_all_run() -> None:
    scheduler = Scheduler([a_search("a")], 100, jobs=2)
    first, second = scheduler.next(0), scheduler.next(0)
    assert first is not None and second is not None and scheduler.next(0) is None
    scheduler.ended(first, 10, failed=False)
    third = scheduler.next(10)
    assert third is not None and third.number == 2


def test_slots_are_not_empty_while_something_fits() -> None:
    over = soaked({a_search("a", seconds=7): takes(7), a_search("b"): takes(10)}, 500)
    times = [(at, 7 if begun.search.name == "a" else 10) for at, begun, _ in over.machine.started]
    assert all(at + seconds == later for (at, seconds), (later, _) in pairwise(times))
