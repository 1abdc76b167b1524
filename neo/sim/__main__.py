"""``python -m neo.sim``: run seeds, replay one with its story, find planted bugs, shrink a failure.

python -m neo.sim --seeds 0:1000            the full mix; stops at the first failure
python -m neo.sim --seeds 123               one seed again, with its story if it fails
python -m neo.sim --canary NAME             plant a bug and find it, with the options it needs
python -m neo.sim --canaries                all of them, as a table
python -m neo.sim --coverage --seeds 0:100  lines of the cores that ran
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import islice

from neo.sim.canaries import CANARIES
from neo.sim.disk import DISKS
from neo.sim.faults import KINDS
from neo.sim.hunt import hunt_all
from neo.sim.lines import cover
from neo.sim.master_faults import MASTER_KINDS
from neo.sim.run import Options
from neo.sim.shrink import KNOB_NAMES, SITES, shrink
from neo.sim.trial import Trial, attempt
from neo.sim.workloads import WORKLOADS

SEEDS = range(100)


def main() -> int:
    """Exit code 0 if no seed failed (with --canary: if one did), 1 otherwise, 2 for wrong usage."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of bytes are iterated in the order of their hashes: that must be the same each time.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "neo.sim", *sys.argv[1:]])
    parser = _parser()
    arguments = parser.parse_args()
    if arguments.canaries:
        return hunt_all(arguments.jobs)
    if arguments.coverage:
        return cover(arguments.seeds or SEEDS, arguments.seconds or 10.0, arguments.jobs)
    options = _options(arguments)
    seeds = arguments.seeds
    if seeds is None:
        seeds = range(CANARIES[options.canary].seeds) if options.canary else SEEDS
    if not seeds:
        parser.error("--seeds: there are none")
    return _try(seeds, options, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m neo.sim",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--seeds", type=_seeds, help="FIRST:END, or one seed; default 0:100, or the canary's own")
    add("--seconds", type=float, help="virtual time with faults, 10 by default")
    add("--workloads", type=_names(WORKLOADS), help=f"names, of {','.join(WORKLOADS)}")
    kinds = [*KINDS, *MASTER_KINDS]
    add("--faults", type=_names([*kinds, "none"]), help=f"kinds, of {','.join(kinds)}; or none")
    add("--sites", type=_names([*SITES, "none"]), help="fault sites that may fire; or none")
    add("--knobs", type=_names([*KNOB_NAMES, "none"]), help="knobs that may be turned; or none")
    add("--disk", choices=sorted(DISKS), help="default: chosen by the seed")
    add("--storages", type=_positive, help="default: chosen by the seed")
    add("--replicas", type=int, help="default: chosen by the seed")
    add("--backup", choices=("yes", "no"), help="a second cluster; default: chosen by the seed")
    add("--masters", type=_positive, help="of each cluster; default: chosen by the seed")
    add("--canary", choices=sorted(CANARIES), metavar="NAME", help="plant this bug")
    add("--full-mix", action="store_true", help="with --canary: not only the options it needs")
    add("--once", action="store_true", help="do not compare a second run")
    add("--jobs", type=_positive, default=os.cpu_count() or 1, help="processes")
    add("--story", type=int, default=60, help="lines to show of a failing run")
    add("--keep-going", action="store_true", help="do not stop at a failure")
    add("--shrink", action="store_true", help="look for a shorter failing run")
    add("--canaries", action="store_true", help="find each planted bug within its seeds")
    add("--coverage", action="store_true", help="run seeds once, and report lines of the cores")
    return parser


def _seeds(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end) if end else int(first) + 1)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1 is needed")
    return number


class _names:
    """The type of an option: known names, separated by commas."""

    def __init__(self, known: Iterable[str]) -> None:
        self._known = list(known)

    def __call__(self, text: str) -> tuple[str, ...]:
        names = tuple(text.split(","))
        for name in names:
            if name not in self._known:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {','.join(self._known)}")
        return names


def _options(arguments: argparse.Namespace) -> Options:
    """What is not given comes from the canary, if there is one."""
    options = Options(canary=arguments.canary)
    if arguments.canary and not arguments.full_mix:
        options = replace(options, **CANARIES[arguments.canary].options)
    given = {
        name: getattr(arguments, name)
        for name in Options.__dataclass_fields__
        if name != "canary"
    }
    given["backup"] = {None: None, "yes": True, "no": False}[arguments.backup]
    return replace(options, **{name: value for name, value in given.items() if value is not None})


def _try(seeds: range, options: Options, arguments: argparse.Namespace) -> int:
    started = time.monotonic()
    failed, summary = _run(seeds, options, arguments)
    minutes = (time.monotonic() - started) / 60
    print(
        f"{summary['seeds']} seeds, {len(failed)} failed, {summary['commits']} commits, "
        f"{summary['reads']} reads checked, {summary['events']} events, "
        f"{summary['virtual']} s of virtual time, {summary['seeds'] / minutes:.0f} seeds a minute"
    )
    if failed and arguments.shrink:
        smaller = shrink(failed[0], options)
        print(f"shortest failure found: {smaller.describe()}")
    return int(bool(failed) != bool(arguments.canary))


def _run(
    seeds: range, options: Options, arguments: argparse.Namespace
) -> tuple[list[Trial], Counter[str]]:
    failed: list[Trial] = []
    summary: Counter[str] = Counter()
    for trial in _trials(seeds, options, not arguments.once, arguments.jobs):
        summary["seeds"] += 1
        if trial.result is not None:
            summary["commits"] += trial.result.commits
            summary["reads"] += trial.result.reads
            summary["events"] += trial.result.events
            summary["virtual"] += int(trial.result.virtual_seconds)
        else:
            failed.append(trial)
            print(trial.report(arguments.story), flush=True)
            if not arguments.keep_going:
                break
    return failed, summary


def _trials(seeds: range, options: Options, twice: bool, jobs: int) -> Iterator[Trial]:
    """In the order of the seeds, a few at a time."""
    if jobs == 1 or len(seeds) == 1:
        for seed in seeds:
            yield attempt(seed, options, twice, story=True)
        return
    with ProcessPoolExecutor(jobs) as pool:
        rest = iter(seeds)
        # A window, so that a failure does not wait for thousands of seeds behind it.
        window = [
            pool.submit(attempt, seed, options, twice, True) for seed in islice(rest, 4 * jobs)
        ]
        while window:
            trial = window.pop(0).result()
            for seed in islice(rest, 1):
                window.append(pool.submit(attempt, seed, options, twice, True))
            try:
                yield trial
            except GeneratorExit:
                for future in window:
                    future.cancel()
                raise


if __name__ == "__main__":
    sys.exit(main())
