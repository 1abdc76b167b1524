"""The full mix of workloads and faults, with seeds that are known to pass. A failure names the seed and
the command that replays it. ``make soak`` tries new ones."""

from __future__ import annotations

import pytest

from tests.sim.command import SECONDS_MAX, simulate, told

#: The seeds that together reach most of 60 in the least time: ``python -m tests.simulator --choose 12
#: --seeds 30000:30060``. They reach 94 % of what all 60 reach, in a tenth of the time.
CHOSEN = (
    *(30_010, 30_012, 30_016, 30_033, 30_035, 30_038),
    *(30_039, 30_040, 30_042, 30_049, 30_050, 30_054),
)
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
