"""``kill -9`` of any process at any moment: nothing acknowledged is lost, nothing is visible in part.

``NEO_KILL_ROUNDS`` and ``NEO_KILL_SEED`` choose a longer run, on both databases, or repeat one.
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
from tests.support.seeds import seed

ROUNDS = os.environ.get("NEO_KILL_ROUNDS")
#: A round on MariaDB takes longer, above all when the server is killed.
DEFAULT_ROUNDS = {"sqlite": 12, "mariadb": 6}
#: Time within which a process that comes back has usually joined again.
JOIN_SECONDS = 0.5
#: The process that has the databases of all storage nodes.
SERVER = "MariaDB"


Victim = str | int


@pytest.fixture(params=list(DEFAULT_ROUNDS))
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def cluster(backend: str) -> Iterator[Cluster]:
    with Cluster(storages=2, backend=backend, partitions=6) as running:
        yield running


def kill(cluster: Cluster, load: Load, victim: Victim) -> None:
    if isinstance(victim, int):
        load.kill(victim)
    elif victim == SERVER:
        assert cluster.server is not None
        cluster.server.kill()
    else:
        cluster.simple.kill(victim)


def restart(cluster: Cluster, victim: Victim) -> None:
    """Restart a process. Return when it listens, before it has joined. A writer restarts at once."""
    if victim == SERVER:
        assert cluster.server is not None
        cluster.server.start()
    elif isinstance(victim, str):
        cluster.simple.restart(victim)


def strike(cluster: Cluster, load: Load, victims: list[Victim], choices: random.Random) -> None:
    """Kill one process, or two at the same time, or a second one while the first comes back. The second
    kill hits recovery, verification, or the moment of joining; it may hit the same process."""
    first, second = choices.choice(victims), choices.choice(victims)
    kind = choices.choice(["one"] * 4 + ["at once", "on its way back"])
    kill(cluster, load, first)
    if kind == "at once" and second != first:
        kill(cluster, load, second)
        # A storage node does not start without its server.
        for victim in sorted({first, second}, key=lambda victim: victim != SERVER):
            restart(cluster, victim)
        return
    restart(cluster, first)
    if kind == "on its way back":
        time.sleep(choices.random() * JOIN_SECONDS)
        kill(cluster, load, second)
        restart(cluster, second)


@pytest.mark.timeout(3600)
def test_kill_any_process_at_any_moment(cluster: Cluster, backend: str, tmp_path: Path) -> None:
    rounds = int(ROUNDS) if ROUNDS else DEFAULT_ROUNDS[backend]
    choices = random.Random(seed("KILL"))
    storage = cluster.storage()
    prepare(storage, WRITERS)
    load = Load(cluster, tmp_path)
    load.start()
    try:
        load.wait_commits(1)
        victims: list[Victim] = [*cluster.simple.processes, *range(WRITERS)]
        if cluster.server is not None:
            victims.append(SERVER)
        for _ in range(rounds):
            load.wait_commits(choices.randrange(4))
            # At any moment of a commit, which takes some milliseconds.
            time.sleep(choices.random() * 0.01)
            strike(cluster, load, victims, choices)
            load.wait_commits(1)
            check(cluster, load)
    finally:
        load.stop()
