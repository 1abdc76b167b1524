"""Shrink a failing run: fewer workloads, faults, fault sites, knobs, nodes and replicas, less time, no
backup.

Most changes of the options change every later choice of a seed. So a smaller run is not a part of the
first one, but another run that fails in the same way. A few seeds are tried for each simplification;
the run that still fails is simplified next.

Fewer nodes or less time must make a run shorter. Fewer workloads, faults, sites and knobs may make it a
little longer, because unrelated names cost the reader more than some additional events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from neo.net.fault_sites import FaultSite
from tests.simulator.faults import KINDS
from tests.simulator.knobs import KNOBS, LATER_KNOBS
from tests.simulator.master_faults import MASTER_KINDS
from tests.simulator.run import Options
from tests.simulator.site_faults import SITE_KINDS
from tests.simulator.trial import Trial, attempt
from tests.simulator.workloads import WORKLOADS

#: Number of seeds that are tried for each simplification, beginning with the one that failed.
SEEDS = 20
#: Greatest number of simplifications that are tried.
TRIALS_MAX = 100
#: Factor by which a run with fewer names may be longer, but never longer than the first one.
LONGER = 1.5
#: With more names than this, halves of them are left out first.
ALL_BUT_ONE_MAX = 8
NONE = ("none",)
#: Parts of a message that differ between two failures of one kind: ids and numbers.
_VARYING = re.compile(r"\b[0-9a-f]{16}\b|\d+")
SITES = tuple(site.name for site in FaultSite)
FAULTS = (*KINDS, *MASTER_KINDS, *SITE_KINDS)
KNOB_NAMES = tuple(knob.name for knob in (*KNOBS, *LATER_KNOBS))


def shrink(trial: Trial, options: Options) -> Trial:
    """Return the shortest failure found.

    Two failures are alike if their errors are equal except for ids and numbers. With a planted bug,
    every failure that an oracle finds counts as a failure of this bug.
    """
    best = trial
    tried = 0
    progress = True
    while progress and tried < TRIALS_MAX:
        progress = False
        for simpler in _simpler(best.options):
            tried += 1
            longest = best.events
            if _names(simpler) < _names(best.options):
                longest = min(trial.events, int(LONGER * longest))
            found = _fails(simpler, best, longest)
            if found is not None:
                best, progress = found, True
                break
    return best


def _names(options: Options) -> int:
    """Return the number of names that a reader of the failure has to consider."""
    named = ((options.faults, FAULTS), (options.sites, SITES), (options.knobs, KNOB_NAMES))
    return len(options.workloads or WORKLOADS) + sum(len(_all(*names)) for names in named)


def _fails(options: Options, best: Trial, longest: int) -> Trial | None:
    for seed in range(best.seed, best.seed + SEEDS):
        trial = attempt(seed, options, twice=False)
        # Without a fault or a replica a run is simpler, even if it is not shorter.
        if trial.result is None and alike(trial, best) and trial.events <= longest:
            return trial
    return None


def alike(first: Trial, second: Trial) -> bool:
    if first.options.canary is not None:
        return first.error.partition(":")[0] == second.error.partition(":")[0]
    return _VARYING.sub("", first.error) == _VARYING.sub("", second.error)


def _simpler(options: Options) -> Iterator[Options]:
    """Yield simpler options. An option that the seed chooses counts as all its values. With a canary
    the seed chooses neither masters nor replicas nor a backup: there are none."""
    by_seed = options.canary is None
    workloads = options.workloads or tuple(WORKLOADS)
    if len(workloads) > 1:
        for name in workloads:
            yield replace(options, workloads=(name,))
    if options.backup or (options.backup is None and by_seed):
        yield replace(options, backup=False)
    if options.blobs or (options.blobs is None and by_seed):
        yield replace(options, blobs=False)
    if options.operations or (options.operations is None and by_seed):
        yield replace(options, operations=False)
    if options.archives or (options.archives is None and by_seed):
        yield replace(options, archives=False)
    for masters in (1, 3):
        if options.masters is None and by_seed or masters < (options.masters or 1):
            yield replace(options, masters=masters)
    for fewer in _fewer(options.faults, FAULTS):
        yield replace(options, faults=fewer)
    for fewer in _fewer(options.sites, SITES):
        yield replace(options, sites=fewer)
    for fewer in _fewer(options.knobs, KNOB_NAMES):
        yield replace(options, knobs=fewer)
    for replicas in (0, 1):
        if options.replicas is None and by_seed or replicas < (options.replicas or 0):
            yield replace(options, replicas=replicas)
    for storages in (1, 2, 3):
        if options.storages is None or storages < options.storages:
            yield replace(options, storages=storages)
    if options.seconds > 0.5:
        yield replace(options, seconds=options.seconds / 2)


def _fewer(names: tuple[str, ...] | None, every: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield subsets of names: none, each half, all but one. ``names`` is None for all."""
    names = _all(names, every)
    if names:
        yield NONE
    if len(names) > 1:
        middle = len(names) // 2
        yield names[:middle]
        yield names[middle:]
        if len(names) <= ALL_BUT_ONE_MAX:
            for name in names:
                yield tuple(other for other in names if other != name)


def _all(names: tuple[str, ...] | None, every: tuple[str, ...]) -> tuple[str, ...]:
    if names == NONE:
        return ()
    return every if names is None else names
