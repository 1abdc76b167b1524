"""``kill -9`` of any process at any moment: nothing acknowledged is lost, nothing is half visible.

``NEO_KILL_ROUNDS`` and ``NEO_KILL_SEED`` choose a longer run or repeat one.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.load import WRITERS, Load, check
from tests.faults.writer import prepare
from tests.support.cluster import Cluster

ROUNDS = int(os.environ.get("NEO_KILL_ROUNDS", "200"))
SEED = os.environ.get("NEO_KILL_SEED")
#: The process in which the databases of all storage nodes are.
SERVER = "MariaDB"


@pytest.fixture(params=["sqlite", "mariadb"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(storages=2, backend=request.param, partitions=6) as running:
        yield running


@pytest.mark.timeout(3600)
def test_kill_any_process_at_any_moment(cluster: Cluster, tmp_path: Path) -> None:
    rounds = ROUNDS if cluster.server is None else max(ROUNDS // 10, 5)
    seed = int(SEED) if SEED else random.SystemRandom().randrange(2**32)
    print(f"NEO_KILL_SEED={seed} NEO_KILL_ROUNDS={rounds}")
    choices = random.Random(seed)
    storage = cluster.storage()
    prepare(storage, WRITERS)
    load = Load(cluster, tmp_path)
    load.start()
    try:
        load.wait_commits(1)
        victims = [*cluster.simple.processes, *range(WRITERS)]
        if cluster.server is not None:
            victims.append(SERVER)
        for _ in range(rounds):
            victim = choices.choice(victims)
            load.wait_commits(choices.randrange(4))
            # Anywhere within a commit, which takes some milliseconds.
            time.sleep(choices.random() * 0.01)
            if isinstance(victim, int):
                load.kill(victim)
            elif victim is SERVER:
                cluster.server.kill()
                cluster.server.start()
            else:
                cluster.simple.kill(victim)
                cluster.simple.restart(victim)
            load.wait_commits(1)
            check(cluster, load)
    finally:
        load.stop()
