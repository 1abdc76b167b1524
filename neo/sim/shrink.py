"""Make a failing run shorter: fewer workloads, faults, fault sites and knobs, less time, fewer nodes.

Most changes of the options change every later choice of a seed, so a smaller run is not a part of the
first one but another run that fails in the same way. A few seeds are tried for each simplification;
what still fails, with fewer events, is the next to be simplified.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from neo.net.fault_sites import FaultSite
from neo.sim.faults import KINDS
from neo.sim.knobs import KNOBS
from neo.sim.run import Options
from neo.sim.trial import Trial, attempt
from neo.sim.workloads import WORKLOADS

#: Seeds tried for each simplification, beginning with the one that failed.
SEEDS = 20
#: Simplifications that may be tried in all.
TRIALS_MAX = 100
#: Of more names than this, halves are left out first.
ALL_BUT_ONE_MAX = 8
NONE = ("none",)
SITES = tuple(site.name for site in FaultSite)
KNOB_NAMES = tuple(knob.name for knob in KNOBS)


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
    # Without a fault site or a knob a run is simpler, though not shorter.
    equal = (options.sites, options.knobs) != (best.options.sites, best.options.knobs)
    for seed in range(best.seed, best.seed + SEEDS):
        trial = attempt(seed, options, twice=False)
        if (
            trial.result is None
            and trial.error.startswith(kind)
            and trial.events < best.events + equal
        ):
            return trial
    return None


def _simpler(options: Options) -> Iterator[Options]:
    workloads = options.workloads or tuple(WORKLOADS)
    if len(workloads) > 1:
        for name in workloads:
            yield replace(options, workloads=(name,))
    faults = options.faults if options.faults is not None else tuple(KINDS)
    if faults and faults != NONE:
        yield replace(options, faults=NONE)
        for name in faults:
            if len(faults) > 1:
                yield replace(options, faults=(name,))
    for fewer in _fewer(options.sites, SITES):
        yield replace(options, sites=fewer)
    for fewer in _fewer(options.knobs, KNOB_NAMES):
        yield replace(options, knobs=fewer)
    if options.storages != 1:
        yield replace(options, storages=1)
        yield replace(options, storages=2)
    if options.seconds > 0.5:
        yield replace(options, seconds=options.seconds / 2)


def _fewer(names: tuple[str, ...] | None, every: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """None of them, each half, all but one. ``names`` is None for all."""
    if names == NONE:
        return
    yield NONE
    names = every if names is None else names
    if len(names) > 1:
        middle = len(names) // 2
        yield names[:middle]
        yield names[middle:]
        if len(names) <= ALL_BUT_ONE_MAX:
            for name in names:
                yield tuple(other for other in names if other != name)
