"""The full mix of workloads and faults. A failure names the seed and the command that replays it.

The new seeds depend on the product's code: a change of the code brings other seeds, and the same code
gives the same seeds on every machine. ``NEO_SIM_SEEDS``: their number; ``NEO_SIM_FIRST``: the first
one.
"""

from __future__ import annotations

import os
from hashlib import sha1

import pytest

from tests.sim.command import ROOT, SECONDS_MAX, simulate, told

#: Number of new seeds, which take about a minute on two cores.
SEEDS = 25
#: Seeds that have been tried often. They run twice, to compare the events.
KNOWN = range(30_000, 30_006)


def fresh() -> range:
    code = sha1()
    for path in sorted((ROOT / "neo").rglob("*.py")):
        code.update(path.read_bytes())
    first = int(os.environ.get("NEO_SIM_FIRST") or int.from_bytes(code.digest()[:4], "big"))
    return range(first, first + int(os.environ.get("NEO_SIM_SEEDS") or SEEDS))


@pytest.mark.timeout(SECONDS_MAX + 60)
def test_seeds_of_the_full_mix_violate_nothing() -> None:
    """Specification 23.1 to 23.6, 23.8 to 23.13."""
    seeds = fresh()
    run = simulate("--seeds", f"{seeds.start}:{seeds.stop}", "--once")
    assert run.returncode == 0, told(run)
    assert f"{len(seeds)} seeds, 0 failed" in run.stdout, told(run)


@pytest.mark.timeout(SECONDS_MAX + 60)
def test_a_seed_that_is_run_twice_has_the_same_events() -> None:
    run = simulate("--seeds", f"{KNOWN.start}:{KNOWN.stop}")
    assert run.returncode == 0, told(run)
