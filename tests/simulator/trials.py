"""Try many seeds, in several processes.

A seed that never ends, or that ends its process, gives no report. So a process ends when a seed takes
too long, with a traceback on stderr. When a process ended for any reason, the seeds in progress are
named.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from threading import Timer

from tests.simulator.run import Options
from tests.simulator.trial import Trial, attempt

#: Real time that one seed may take. The longest run, with five masters and a backup, takes two or three
#: minutes, three times as long with its story; and the machine may be busy.
SECONDS_MAX = 1800.0
STDERR = 2


class ProcessLost(Exception):
    """A process ended during a seed. ``__str__`` names the seeds that may be the cause."""


def trials(
    seeds: Sequence[int], options: Options, twice: bool, jobs: int, seconds_max: float = SECONDS_MAX
) -> Iterator[Trial]:
    """Yield trials in the order of the seeds, a few at a time. Raise ProcessLost. A single seed runs in
    this process without a time limit, so that it can be debugged."""
    if len(seeds) == 1:
        yield attempt(seeds[0], options, twice, story=True)
        return
    with ProcessPoolExecutor(jobs) as pool:

        def submit(seed: int) -> tuple[int, Future[Trial]]:
            return seed, pool.submit(_watched, seed, options, twice, seconds_max)

        rest = iter(seeds)
        # A window, so that the report of a failure does not wait for thousands of later seeds.
        window = [submit(seed) for seed in islice(rest, 4 * jobs)]
        try:
            while window:
                trial = window[0][1].result()
                del window[0]
                window += [submit(seed) for seed in islice(rest, 1)]
                yield trial
        except BrokenProcessPool:
            raise ProcessLost(_under_way(window, options, jobs, seconds_max)) from None
        finally:
            for _, future in window:
                future.cancel()


def _watched(seed: int, options: Options, twice: bool, seconds_max: float) -> Trial:
    # Not faulthandler's own timer: a process that is forked while that timer runs hangs.
    timer = Timer(seconds_max, _end_process)
    timer.daemon = True
    timer.start()
    try:
        return attempt(seed, options, twice, story=True)
    finally:
        timer.cancel()


def _end_process() -> None:
    faulthandler.dump_traceback(STDERR)
    os._exit(1)


def _under_way(
    window: list[tuple[int, Future[Trial]]], options: Options, jobs: int, seconds_max: float
) -> str:
    """Return a message that names the first seeds without a result: seeds are started in order."""
    without = [seed for seed, future in window if not future.done() or future.exception()]
    commands = [f"\n  replay: {Trial(seed, options).command()}" for seed in without[:jobs]]
    return (
        f"a process ended in the middle of a seed, or was ended after {seconds_max:g} s "
        f"(then its traceback is above); one of these:{''.join(commands)}"
    )
