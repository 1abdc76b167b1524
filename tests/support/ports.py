"""Ports that nobody takes by chance between the choice and the use."""

from __future__ import annotations

import os
import random

from neo.simple import conf
from neo.simple.conf import is_free

#: Clusters choose from conf.FIRST_PORT on, and know nothing of what a test keeps for later.
FIRST_PORT, LAST_PORT = 10_000, conf.FIRST_PORT
TRIES = 1000
#: This process of a test run, and how many there are: none chooses what another one has just chosen.
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))


def free_range(count: int) -> int:
    """The first of so many ports in a row that are free, below those of outgoing connections. Not by the
    global generator: each process of a test run has it seeded with the same number."""
    choices = random.SystemRandom()
    share = (LAST_PORT - FIRST_PORT) // WORKERS
    own = FIRST_PORT + WORKER * share
    for _ in range(TRIES):
        first = choices.randrange(own, own + share - count)
        if all(map(is_free, range(first, first + count))):
            return first
    raise AssertionError(f"no {count} ports in a row are free")
