"""Choose ports that no other process takes between the choice and the use."""

from __future__ import annotations

import os
import random

from neo.simple import conf
from neo.simple.conf import is_free

#: Clusters choose ports from conf.FIRST_PORT on, without regard to ports that a test keeps for later.
FIRST_PORT, LAST_PORT = 10_000, conf.FIRST_PORT
TRIES = 1000
#: The number of this process of a test run, and the number of processes, so that no two choose a port.
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))


def free_range(count: int) -> int:
    """Return the first of ``count`` free ports in a row, below those of outgoing connections. Not with
    the global generator, which each process of a test run seeds with the same number."""
    choices = random.SystemRandom()
    share = (LAST_PORT - FIRST_PORT) // WORKERS
    own = FIRST_PORT + WORKER * share
    for _ in range(TRIES):
        first = choices.randrange(own, own + share - count)
        if all(map(is_free, range(first, first + count))):
            return first
    raise AssertionError(f"no {count} ports in a row are free")
