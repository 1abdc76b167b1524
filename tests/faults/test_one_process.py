"""``kill -9`` of the one process that runs all nodes: nothing acknowledged is lost, nothing is visible in
part. The same files are then served by separate processes, and back.

``NEO_KILL_ROUNDS`` and ``NEO_KILL_SEED`` choose a longer run, or repeat one.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.faults.load import WRITERS, Load, check
from tests.faults.writer import prepare
from tests.support.cluster import Cluster
from tests.support.seeds import seed

ROUNDS = int(os.environ.get("NEO_KILL_ROUNDS") or 8)
#: Time in which a second kill hits the start, recovery or verification.
START_SECONDS = 1.0


def start_again(cluster: Cluster, separate: bool, choices: random.Random) -> None:
    """Kill all nodes at one moment and start them in one process or in several, at times after another
    kill of a start that is under way."""
    simple = cluster.simple
    for name in list(simple.processes):
        simple.kill(name)
    simple.separate = separate
    if not separate and choices.random() < 0.3:
        simple._launch_server()
        time.sleep(choices.random() * START_SECONDS)
        simple.kill("server")
    simple.start()


@pytest.mark.timeout(3600)
def test_kill_the_process_of_all_nodes_at_any_moment(tmp_path: Path) -> None:
    choices = random.Random(seed("KILL"))
    with Cluster(storages=2, partitions=6, processes=False) as cluster:
        prepare(cluster.storage(), WRITERS)
        load = Load(cluster, tmp_path)
        load.start()
        counts = set()
        try:
            for number in range(ROUNDS):
                load.wait_commits(1 + choices.randrange(4))
                # At any moment of a commit, which takes some milliseconds.
                time.sleep(choices.random() * 0.01)
                counts.add(len(cluster.simple.processes))
                start_again(cluster, number % 3 == 1, choices)
                load.wait_commits(1)
                check(cluster, load)
        finally:
            load.stop()
        assert counts == {1, 4}, "both ways to serve the files were killed"
