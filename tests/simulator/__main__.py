"""Run seeds, replay one with its story, find planted bugs, shrink a failure.

python -m tests.simulator --seeds 0:1000            the full mix; stops at the first failure
python -m tests.simulator --seeds 123               one seed again, with its story if it fails
python -m tests.simulator --canary NAME             plant a bug and find it, with the options it needs
python -m tests.simulator --canaries                find all planted bugs, or named ones; print a table
python -m tests.simulator --coverage --seeds 0:100  lines of the cores that ran
python -m tests.simulator --choose 20 --seeds 0:200 seeds that together reach most
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tests.simulator.canaries import CANARIES
from tests.simulator.choice import choose
from tests.simulator.command_line import options_of, parser
from tests.simulator.hunt import hunt_all
from tests.simulator.lines import cover
from tests.simulator.run import Options
from tests.simulator.shrink import shrink
from tests.simulator.trial import Trial
from tests.simulator.trials import ProcessLost, trials

SEEDS = range(100)


def main() -> int:
    """Return exit code 0 if no seed failed (with --canary: if one did), 1 otherwise, 2 for wrong
    usage."""
    command_line = parser(__doc__)
    arguments = command_line.parse_args()
    if arguments.canaries:
        return hunt_all(arguments.canaries, arguments.jobs)
    if arguments.coverage:
        return cover(arguments.seeds or SEEDS, options_of(arguments), arguments.jobs)
    options = options_of(arguments)
    if arguments.choose:
        return choose(arguments.seeds or SEEDS, options, arguments.jobs, arguments.choose)
    seeds = arguments.seeds
    if seeds is None:
        seeds = range(CANARIES[options.canary].seeds) if options.canary else SEEDS
    if not seeds:
        command_line.error("--seeds: there are none")
    try:
        return _try(seeds, options, arguments)
    except ProcessLost as e:
        print(e)
        return 1


def _try(seeds: Sequence[int], options: Options, arguments: argparse.Namespace) -> int:
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
    seeds: Sequence[int], options: Options, arguments: argparse.Namespace
) -> tuple[list[Trial], Counter[str]]:
    failed: list[Trial] = []
    summary: Counter[str] = Counter()
    for trial in trials(seeds, options, not arguments.once, arguments.jobs):
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


if __name__ == "__main__":
    sys.exit(main())
