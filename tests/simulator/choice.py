"""Choose a few seeds that together reach most: the suite runs them each time.

A seed reaches pairs of lines that ran one after the other, in the cores and in the simulator itself,
where each kind of fault, workload and knob has lines of its own.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import coverage

from tests.simulator.run import Options
from tests.simulator.trial import attempt

ROOT = Path(__file__).parents[2]
INCLUDED = ("neo/*", "tests/simulator/*")

Reached = frozenset[tuple[str, int, int]]


@dataclass(frozen=True)
class Candidate:
    """A seed that passed, the seconds of a processor that it took, and what it reached."""

    seed: int
    seconds: float
    reached: Reached


def choose(seeds: Sequence[int], options: Options, jobs: int, count: int) -> int:
    """Run the seeds and print ``count`` of them. Return exit code 0 if no seed failed."""
    with ProcessPoolExecutor(jobs, max_tasks_per_child=1) as pool:
        found = list(pool.map(partial(_candidate, options=options), seeds))
    candidates = {candidate.seed: candidate for candidate in found if candidate is not None}
    failed = sorted(set(seeds) - set(candidates))
    if failed:
        print(f"these seeds failed: {failed}")
    chosen = cheapest_cover(candidates, count)
    for name, names in (("all", [*candidates]), ("chosen", chosen)):
        print(
            f"{name}: {len(names)} seeds, {sum(candidates[seed].seconds for seed in names):.0f} s, "
            f"{len(_union(candidates, names))} pairs of lines"
        )
    print(", ".join(map(str, sorted(chosen))))
    return int(bool(failed))


def cheapest_cover(candidates: Mapping[int, Candidate], count: int) -> list[int]:
    """Return at most ``count`` seeds: always the one that reaches most in a second that those before
    did not reach. Fewer, if the others reach nothing more."""
    chosen: list[int] = []
    reached: Reached = frozenset()
    while len(chosen) < count:
        best = max(
            candidates.values(),
            key=lambda candidate: (
                len(candidate.reached - reached) / candidate.seconds,
                -candidate.seed,
            ),
            default=None,
        )
        if best is None or best.reached <= reached:
            break
        chosen.append(best.seed)
        reached |= best.reached
    return chosen


def _union(candidates: Mapping[int, Candidate], seeds: list[int]) -> Reached:
    return frozenset().union(*(candidates[seed].reached for seed in seeds))


def _candidate(seed: int, options: Options) -> Candidate | None:
    """Run a seed. Return None if it failed."""
    with tempfile.TemporaryDirectory(prefix="neo-sim-") as folder:
        kinds = ["greenlet", "thread"] if "greenlet" in sys.modules else ["thread"]
        measured = coverage.Coverage(
            f"{folder}/data",
            branch=True,
            config_file=False,
            include=[str(ROOT / pattern) for pattern in INCLUDED],
            concurrency=kinds,
        )
        started = time.process_time()
        with measured.collect():
            trial = attempt(seed, options, twice=False)
        seconds = time.process_time() - started
        if trial.result is None:
            print(f"seed {seed} failed after {trial.describe()}", flush=True)
            return None
        data = measured.get_data()
        reached = frozenset(
            (str(Path(file).relative_to(ROOT)), *arc)
            for file in data.measured_files()
            for arc in data.arcs(file) or ()
        )
        return Candidate(seed, seconds, reached)
