"""Search for planted bugs, each within its own number of seeds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

from tests.simulator.canaries import CANARIES, Canary
from tests.simulator.run import Options
from tests.simulator.trial import attempt
from tests.simulator.world import Violation


@dataclass
class Hunt:
    """``seed``: the first seed that found the bug, or None. ``error``: the error that it found.
    ``seconds``: of a processor."""

    name: str
    seed: int | None
    error: str
    seconds: float


def options_of(canary: Canary) -> Options:
    # The comparison run without the bug has the same shape.
    return Options(
        canary=canary.name,
        **{"replicas": 0, "masters": 1, "backup": False, "archives": False, **canary.options},
    )


def hunt(name: str) -> Hunt:
    """Try seeds from the first one until an oracle fails on one that passes without the bug. Any other
    error does not count: it may be raised by the code of the planted bug itself."""
    canary = CANARIES[name]
    options = options_of(canary)
    started = time.process_time()
    error = ""
    for seed in range(canary.first, canary.first + canary.seeds):
        trial = attempt(seed, options, twice=False)
        if trial.result is not None:
            continue
        if not trial.error.startswith(f"{Violation.__name__}:"):
            error = f"seed {seed} is no complaint of an oracle: {trial.error}"
            continue
        right = attempt(seed, replace(options, canary=None), twice=False)
        if right.result is not None:
            return Hunt(name, seed, trial.error, time.process_time() - started)
        error = f"seed {seed} fails without the bug as well: {right.error}"
    return Hunt(name, None, error, time.process_time() - started)


def hunt_all(names: Sequence[str], jobs: int) -> int:
    """Hunt for the named bugs. Print a table. Return exit code 0 if every bug was found."""
    print(f"{'planted bug':32} {'found by':>8} {'within':>7} {'s':>5}  as")
    with ProcessPoolExecutor(jobs) as pool:
        missed = _print_table(pool.map(hunt, names))
    print(f"{len(names) - missed} of {len(names)} were found")
    return int(missed > 0)


def _print_table(hunts: Iterable[Hunt]) -> int:
    missed = 0
    for found in hunts:
        missed += found.seed is None
        seed = "NO SEED" if found.seed is None else f"seed {found.seed}"
        print(
            f"{found.name:32} {seed:>8} {CANARIES[found.name].seeds:>7} {found.seconds:5.1f}  "
            f"{found.error.splitlines()[0][:100] if found.error else ''}",
            flush=True,
        )
    return missed
