"""``kill -9`` of any process while blobs are uploaded: no acknowledged content is lost or altered, no
file is left over, and the others go on.

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

from tests.faults.blob_writer import Pause, check, prepare
from tests.faults.contents import check_folder
from tests.faults.load import WRITERS, Load
from tests.faults.states import complete
from tests.support.cluster import Cluster
from tests.support.patience import PATIENCE_SECONDS
from tests.support.seeds import seed

ROUNDS = int(os.environ.get("NEO_BLOB_ROUNDS", "4"))
STORAGES = ("storage1", "storage2")
#: A transaction of a writer takes less than this, on a quiet machine.
UPLOAD_SECONDS = 0.2

Victim = str | int


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(storages=2, partitions=2, replicas=1) as running:
        yield running


def check_fresh(cluster: Cluster, load: Load) -> None:
    """Check all contents with a new client, whose cache is empty."""
    with closing(DB(cluster.storage(wait_timeout=PATIENCE_SECONDS))) as db:
        check(db, load.ledgers)


def confirm(cluster: Cluster) -> None:
    """Have the partition table on both disks: else no node may serve alone (specification 4.16). What is
    written after it is not durable before it."""
    with closing(DB(cluster.storage())) as db, db.transaction() as connection:
        root = connection.root()
        root["confirmed"] = root.get("confirmed", 0) + 1


def check_each_replica(cluster: Cluster, load: Load) -> None:
    """Check what each storage node serves without the other one."""
    for name in STORAGES:
        confirm(cluster)
        cluster.simple.kill(name)
        check_fresh(cluster, load)
        cluster.simple.restart(name)
        load.wait(lambda: complete(cluster, 2), f"{name} does not catch up")


def strike(cluster: Cluster, load: Load, victim: Victim) -> None:
    """Kill a process. The others go on, those of the cluster without it if they can."""
    if isinstance(victim, int):
        load.kill(victim)
        return
    cluster.simple.kill(victim)
    if victim in STORAGES:
        load.wait_commits(1)
        check_fresh(cluster, load)
    cluster.simple.restart(victim)


def victims(choices: random.Random) -> Iterator[Victim]:
    """Yield processes of all kinds, in a random order."""
    while True:
        some: list[Victim] = [*STORAGES, "master1", choices.randrange(WRITERS)]
        choices.shuffle(some)
        yield from some


@pytest.mark.timeout(3600)
def test_kill_any_process_during_uploads(cluster: Cluster, tmp_path: Path) -> None:
    choices = random.Random(seed("BLOB"))
    with closing(DB(cluster.storage())) as db:
        prepare(db, WRITERS)
    load, pause = Load(cluster, tmp_path, "tests.faults.blob_writer"), Pause(tmp_path)
    load.start()
    try:
        load.wait_commits(1)
        for _, victim in zip(range(ROUNDS), victims(choices), strict=False):
            load.wait_commits(choices.randrange(2))
            time.sleep(choices.random() * UPLOAD_SECONDS)  # at any moment of an upload
            strike(cluster, load, victim)
            load.wait_commits(1)
            load.wait(lambda: complete(cluster, 2), "the node does not catch up")
            with pause.all(load):
                check_fresh(cluster, load)
                for name in STORAGES:
                    assert check_folder(cluster, name)
        with pause.all(load):
            check_each_replica(cluster, load)
        load.wait_commits(1)
    finally:
        load.stop()
