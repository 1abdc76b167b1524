"""Which seeds of the simulator the suite runs."""

from __future__ import annotations

from tests.simulator.choice import Candidate, cheapest_cover


def candidate(seed: int, seconds: float, *lines: int) -> Candidate:
    return Candidate(seed, seconds, frozenset(("file.py", line, line + 1) for line in lines))


def test_seeds_that_reach_most_in_a_second_are_chosen_until_nothing_more_is_reached() -> None:
    candidates = [
        candidate(1, 10.0, 1, 2, 3, 4, 5, 6),
        candidate(2, 1.0, 1, 2),
        candidate(3, 1.0, 3, 4),
        candidate(4, 1.0, 1, 3),
        candidate(5, 2.0, 7),
    ]
    by_seed = {each.seed: each for each in candidates}
    assert cheapest_cover(by_seed, 9) == [2, 3, 5, 1]
    assert cheapest_cover(by_seed, 2) == [2, 3]
    assert cheapest_cover({}, 2) == []
