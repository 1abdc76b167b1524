"""The full mix of workloads and faults, with seeds that nobody tried before.

``NEO_SIM_SEEDS``: how many; ``NEO_SIM_FIRST``: the first one, to try the same again. A failure names the
seed and the one command that replays it.
"""

from __future__ import annotations

import os
import random

from tests.sim.command import simulate, told

#: Each is run twice. One to two minutes on two idle cores.
SEEDS = 250


def test_fresh_seeds_of_the_full_mix_violate_nothing() -> None:
    count = int(os.environ.get("NEO_SIM_SEEDS") or SEEDS)
    wanted = os.environ.get("NEO_SIM_FIRST")
    # pytest-randomly seeds the global generator with the same number in each process.
    first = int(wanted) if wanted else random.SystemRandom().randrange(10**9)
    run = simulate("--seeds", f"{first}:{first + count}")
    assert run.returncode == 0, told(run)
    assert f"{count} seeds, 0 failed" in run.stdout, told(run)
