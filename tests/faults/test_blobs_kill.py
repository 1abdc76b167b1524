"""``kill -9`` of nodes and clients while blobs are uploaded, above all after a vote.

No acknowledged content is lost or altered, nothing that was aborted is there, nothing is left over, and
every node starts.

``NEO_BLOB_ROUNDS`` and ``NEO_BLOB_SEED`` choose a longer run, or repeat one.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from ZODB.DB import DB

from tests.faults.blob_checks import Oracle
from tests.faults.blob_writer import WRITERS, Pause, prepare
from tests.faults.contents import check_folder
from tests.faults.load import Load
from tests.faults.rows import check_equal
from tests.faults.states import complete, stop
from tests.support.cluster import Cluster
from tests.support.seeds import seed

ROUNDS = int(os.environ.get("NEO_BLOB_ROUNDS", "2"))
STORAGES = ("storage1", "storage2")
PARTITIONS = 2
#: Time from a vote, or a start, to a kill. Half of the kills come within the short one: a vote, an abort
#: or a commit is in progress.
SHORT_SECONDS, LONG_SECONDS = 0.03, 1.0

Victim = str | int


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(storages=2, partitions=PARTITIONS, replicas=1) as running:
        yield running


def confirm(cluster: Cluster) -> None:
    """Have the partition table on both disks: else no node may serve alone (specification 4.16). What is
    written after it is not durable before it."""
    with closing(DB(cluster.storage())) as db, db.transaction() as connection:
        root = connection.root()
        root["confirmed"] = root.get("confirmed", 0) + 1


def moment(choices: random.Random) -> float:
    return choices.random() * choices.choice((SHORT_SECONDS, LONG_SECONDS))


def kill(cluster: Cluster, load: Load, victim: Victim) -> None:
    if isinstance(victim, int):
        load.kill(victim)
    elif victim in cluster.simple.processes:
        cluster.simple.kill(victim)


def strike(cluster: Cluster, load: Load, choices: random.Random) -> None:
    """Kill one to three processes at once, and start them again; then one of the nodes again, maybe
    twice, while it comes back."""
    victims: list[Victim] = [*STORAGES, *STORAGES, "master1", *range(WRITERS)]
    chosen = dict.fromkeys(choices.choices(victims, k=choices.randint(1, 3)))
    print("kill", *chosen, flush=True)
    for victim in chosen:
        kill(cluster, load, victim)
    nodes = [victim for victim in chosen if isinstance(victim, str)]
    for name in nodes:
        cluster.simple.restart(name)
    for name in nodes[:1] * choices.choice((0, 0, 1, 2)):
        time.sleep(moment(choices))  # at any moment of its return
        print("kill again", name, flush=True)
        kill(cluster, load, name)
        cluster.simple.restart(name)


def check_alone(cluster: Cluster, load: Load, oracle: Oracle) -> None:
    """Check what each storage node serves without the other one."""
    for name in STORAGES:
        confirm(cluster)
        cluster.simple.kill(name)
        oracle.whole()
        cluster.simple.restart(name)
        load.wait(lambda: complete(cluster, 2), f"{name} does not catch up")


@pytest.mark.timeout(3600)
def test_kill_nodes_and_clients_during_uploads(cluster: Cluster, tmp_path: Path) -> None:
    """Specification 14.46, 14.50, 26.6, 26.9, 26.13."""
    choices = random.Random(seed("BLOB"))
    with closing(DB(cluster.storage())) as db:
        prepare(db)
    load, pause = Load(cluster, tmp_path, "tests.faults.blob_writer", WRITERS), Pause(tmp_path)
    oracle = Oracle(cluster, tmp_path)
    load.start()
    try:
        load.wait_commits(1)
        for _ in range(ROUNDS):
            load.wait_vote(choices.randrange(WRITERS))
            time.sleep(moment(choices))  # at any moment after a vote
            strike(cluster, load, choices)
            load.wait_commits(1)
            load.wait(lambda: complete(cluster, 2), "the node does not catch up")
            cluster.simple.check()
            with pause.all(load):
                oracle.check()
                for name in STORAGES:
                    assert oracle.check_tables(name)
        with pause.all(load):
            check_alone(cluster, load, oracle)
            for name in STORAGES:
                assert oracle.check_tables(name) == check_folder(cluster, name)
        load.wait_commits(1)
    finally:
        load.stop()
    for name in STORAGES:
        oracle.check_tables(name)
    print(oracle.whole(), "transactions")
    stop(cluster)
    check_equal(cluster.simple.conf.path, PARTITIONS, 2)
