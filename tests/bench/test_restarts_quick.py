"""The figures of restarts: nearly nothing is loaded again."""

from __future__ import annotations

from pathlib import Path

from tests.bench.restarts import measure

OBJECTS = 400


def test_a_kept_cache_saves_the_loads_of_the_first_page(tmp_path: Path) -> None:
    loads = [start.loads for start in measure(tmp_path, OBJECTS)]
    assert loads[:2] == [OBJECTS, OBJECTS]
    assert loads[2] <= 0.02 * OBJECTS
    assert loads[3] <= 0.03 * OBJECTS
