"""Make a failing run shorter: fewer workloads, fewer kinds of faults, less time, fewer nodes.

A change of the options changes every later choice of a seed, so a smaller run is not a part of the
first one but another run that fails in the same way. A few seeds are tried for each simplification;
what still fails, with fewer events, is the next to be simplified.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from neo.sim.faults import KINDS
from neo.sim.run import Options
from neo.sim.trial import Trial, attempt
from neo.sim.workloads import WORKLOADS

#: Seeds tried for each simplification, beginning with the one that failed.
SEEDS = 20
#: Simplifications that may be tried in all.
TRIALS_MAX = 60


def shrink(trial: Trial, options: Options) -> Trial:
    """The shortest failure found. Failures are alike when their errors are of one class."""
    best = trial
    tried = 0
    progress = True
    while progress and tried < TRIALS_MAX:
        progress = False
        for simpler in _simpler(best.options):
            tried += 1
            found = _fails(simpler, best)
            if found is not None:
                best, progress = found, True
                break
    return best


def _fails(options: Options, best: Trial) -> Trial | None:
    kind = best.error.partition(":")[0]
    for seed in range(best.seed, best.seed + SEEDS):
        trial = attempt(seed, options, twice=False)
        if trial.result is None and trial.error.startswith(kind) and trial.events < best.events:
            return trial
    return None


def _simpler(options: Options) -> Iterator[Options]:
    workloads = options.workloads or tuple(WORKLOADS)
    if len(workloads) > 1:
        for name in workloads:
            yield replace(options, workloads=(name,))
    faults = options.faults if options.faults is not None else tuple(KINDS)
    if faults and faults != ("none",):
        yield replace(options, faults=("none",))
        for name in faults:
            if len(faults) > 1:
                yield replace(options, faults=(name,))
    if options.storages != 1:
        yield replace(options, storages=1)
        yield replace(options, storages=2)
    if options.seconds > 0.5:
        yield replace(options, seconds=options.seconds / 2)
