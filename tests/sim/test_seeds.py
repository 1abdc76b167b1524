"""The full mix of workloads and faults, with seeds that are known to pass. A failure names the seed and
the command that replays it. ``make soak`` tries new ones."""

from __future__ import annotations

import pytest

from tests.sim.command import SECONDS_MAX, simulate, told

#: The seeds of 100 that together reach most (``python -m tests.simulator --choose 24 --seeds
#: 30000:30100``).
CHOSEN = range(30_000, 30_006)
#: Seeds that run twice, to compare the events.
TWICE = range(30_000, 30_002)


@pytest.mark.timeout(SECONDS_MAX + 60)
def test_seeds_of_the_full_mix_violate_nothing() -> None:
    """Specification 23.1 to 23.6, 23.8 to 23.13."""
    run = simulate("--seeds", ",".join(map(str, CHOSEN)), "--once")
    assert run.returncode == 0, told(run)
    assert f"{len(CHOSEN)} seeds, 0 failed" in run.stdout, told(run)


@pytest.mark.timeout(SECONDS_MAX + 60)
def test_a_seed_that_is_run_twice_has_the_same_events() -> None:
    run = simulate("--seeds", f"{TWICE.start}:{TWICE.stop}")
    assert run.returncode == 0, told(run)
