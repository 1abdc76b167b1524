"""The full mix of workloads and faults on seeds that nobody tried before.

``NEO_SIM_SEEDS``: how many; ``NEO_SIM_FIRST``: the first one, to try the same again.
"""

from __future__ import annotations

import os
import random

from tests.sim.command import simulate, told

#: Two minutes on two busy cores, half a minute on idle ones.
SEEDS = 60


def test_fresh_seeds_of_the_full_mix_violate_nothing() -> None:
    count = int(os.environ.get("NEO_SIM_SEEDS") or SEEDS)
    # pytest-randomly seeds the global generator with the same number in each process.
    first = int(os.environ.get("NEO_SIM_FIRST") or random.SystemRandom().randrange(10**9))
    run = simulate("--seeds", f"{first}:{first + count}")
    assert run.returncode == 0, told(run)
    assert f"{count} seeds, 0 failed" in run.stdout, told(run)
