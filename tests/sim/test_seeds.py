"""The full mix of workloads and faults.

``NEO_SIM_SEEDS``: how many; ``NEO_SIM_FIRST``: the first one, or ``fresh`` for seeds that nobody tried
before. About one fresh seed in a thousand still ends with a thread that does not work again in time
(docs/simulation-bugs.md, *Open*): until that is explained, the suite tries the same seeds each time.
"""

from __future__ import annotations

import os
import random

from tests.sim.command import simulate, told

#: Two minutes on two busy cores, half a minute on idle ones.
SEEDS = 60


def test_seeds_of_the_full_mix_violate_nothing() -> None:
    count = int(os.environ.get("NEO_SIM_SEEDS") or SEEDS)
    wanted = os.environ.get("NEO_SIM_FIRST") or "30000"
    # pytest-randomly seeds the global generator with the same number in each process.
    first = random.SystemRandom().randrange(10**9) if wanted == "fresh" else int(wanted)
    run = simulate("--seeds", f"{first}:{first + count}")
    assert run.returncode == 0, told(run)
    assert f"{count} seeds, 0 failed" in run.stdout, told(run)
