"""The full mix of workloads and faults. A failure names the seed and the one command that replays it.

``NEO_SIM_SEEDS``: how many; ``NEO_SIM_FIRST``: the first one, or ``fresh`` for seeds that nobody tried
before. They are the same each time as long as a few in a thousand find what is not mended yet
(docs/simulation-bugs.md, *Open*): who changes something must know that it is his change that fails.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.sim.command import SECONDS_MAX, simulate, told

#: One to two minutes on two idle cores.
SEEDS = 250
#: How many of them are run a second time, to see the same events.
TWICE = 50
FIRST = 30_000


def first_and_count() -> tuple[int, int]:
    wanted = os.environ.get("NEO_SIM_FIRST") or str(FIRST)
    # pytest-randomly seeds the global generator with the same number in each process.
    first = random.SystemRandom().randrange(10**9) if wanted == "fresh" else int(wanted)
    return first, int(os.environ.get("NEO_SIM_SEEDS") or SEEDS)


@pytest.mark.timeout(SECONDS_MAX + 60)
def test_seeds_of_the_full_mix_violate_nothing() -> None:
    first, count = first_and_count()
    run = simulate("--seeds", f"{first}:{first + count}", "--once")
    assert run.returncode == 0, told(run)
    assert f"{count} seeds, 0 failed" in run.stdout, told(run)


@pytest.mark.timeout(SECONDS_MAX + 60)
def test_a_seed_that_is_run_twice_has_the_same_events() -> None:
    first, count = first_and_count()
    run = simulate("--seeds", f"{first}:{first + min(count, TWICE)}")
    assert run.returncode == 0, told(run)
