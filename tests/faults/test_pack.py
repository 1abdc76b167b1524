"""A pack that ``kill -9`` interrupts goes on where it was, and no current revision is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from persistent.list import PersistentList
from persistent.mapping import PersistentMapping
from ZODB.DB import DB

from neo.client.errors import NEOStorageError
from tests.faults.load import WRITERS, Load, check
from tests.faults.rows import check_equal
from tests.faults.states import complete, stop
from tests.faults.writer import prepare
from tests.support.cluster import Cluster
from tests.support.patience import PATIENCE_SECONDS
from tests.support.whole import few

PARTITIONS = 2
STORAGES = ("storage1", "storage2")
#: A step of a pack, while clients are at work, is 32 objects.
OBJECTS = 400


@pytest.fixture(params=few("mariadb", whole=["sqlite", "mariadb"]))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Yield a cluster with two copies of many objects."""
    with Cluster(len(STORAGES), request.param, PARTITIONS, replicas=1) as running:
        prepare(running.storage(), WRITERS)
        with closing(DB(running.storage())) as db, db.transaction() as connection:
            many = (PersistentMapping(value=0) for _ in range(OBJECTS))
            connection.root()["many"] = PersistentList(many)
        yield running


def settings(cluster: Cluster, name: str) -> dict[str, str]:
    """Return the rows of ``config`` about packs."""
    query = "SELECT name, value FROM config WHERE name LIKE '%pack%' AND value IS NOT NULL"
    # MariaDB returns bytes.
    texts = (
        [str(v, "ascii") if isinstance(v, bytes) else v for v in r]
        for r in cluster.query(name, query)
    )
    return dict(texts)


def packed(cluster: Cluster, name: str) -> bool:
    """Return whether a node has finished all its packs."""
    rows = settings(cluster, name)
    done = [rows.get(f"_packed.{partition}") for partition in range(PARTITIONS)]
    return "_packing" not in rows and done == [rows.get("_pack_wanted")] * PARTITIONS


def strike(cluster: Cluster, load: Load, db: DB, victims: Sequence[str]) -> bool:
    """Write all objects, pack, and kill the victims during the pack; then wait for the end of the pack.
    Return False if the pack was over before they were killed."""
    with db.transaction() as connection:
        for item in connection.root()["many"]:
            item["value"] += 1
    with ThreadPoolExecutor(1) as caller:
        answer = caller.submit(db.storage.pack, time.time(), None)
        load.wait(lambda: "_packing" in settings(cluster, "storage1"), "no pack begins")
        for victim in victims:
            cluster.simple.kill(victim)
        if cluster.server is not None and len(victims) > 1:
            cluster.server.kill()
            cluster.server.start()
        cut = not packed(cluster, "storage1")
        for victim in reversed(victims):
            cluster.simple.restart(victim)
        assert isinstance(answer.exception(PATIENCE_SECONDS), NEOStorageError | None)
    load.wait(lambda: complete(cluster, 2), "a node does not catch up")
    for name in STORAGES:
        load.wait(lambda name=name: packed(cluster, name), f"the pack of {name} does not go on")
        (wanted,) = {settings(cluster, node)["_pack_wanted"] for node in STORAGES}
        old = f"SELECT oid FROM obj WHERE tid<={wanted} GROUP BY oid HAVING COUNT(*)>1"
        assert not cluster.query(name, old), f"{name} has revisions that were not current"
    load.wait_commits(1)
    check(cluster, load)
    return cut


def test_a_pack_that_is_killed_goes_on_and_loses_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """Kill one node of two; then all processes with the database server, as in a power cut."""
    load = Load(cluster, tmp_path)
    load.start()
    written = 0
    try:
        load.wait_commits(1)
        with closing(DB(cluster.storage(wait_timeout=PATIENCE_SECONDS))) as db:
            for victims in (["storage1"], [*STORAGES, "master1"]):
                cut = False
                while not cut:
                    cut = strike(cluster, load, db, victims)
                    written += 1
        with closing(DB(cluster.storage())) as db, db.transaction() as connection:
            assert {item["value"] for item in connection.root()["many"]} == {written}
    finally:
        load.stop()
    stop(cluster)
    check_equal(cluster.simple.conf.path, PARTITIONS, len(STORAGES))
