"""A storage node starts before its disk is mounted, and creates an empty database."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from ZODB.DB import DB

from neo.simple.cluster import ClusterError
from tests.faults.states import complete, nid_of, pending, reason, status
from tests.faults.value import commit, read
from tests.support.cluster import Cluster
from tests.support.patience import PATIENCE_SECONDS, wait_until


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(storages=2, partitions=2, replicas=request.param) as running:
        yield running


@pytest.mark.parametrize("cluster", [1], indirect=True)
def test_who_has_copies_elsewhere_gets_what_was_committed_without_its_disk(
    cluster: Cluster,
) -> None:
    """No cells are filled in the folder under the mount point, and believed later."""
    simple = cluster.simple
    with closing(DB(cluster.storage(wait_timeout=PATIENCE_SECONDS))) as db:
        commit(db, 0)
        database = Path(cluster.database("storage1"))
        elsewhere = database.with_name("unmounted")
        assert simple.terminate("storage1") == 0
        os.rename(database, elsewhere)
        simple.restart("storage1")
        wait_until(lambda: "S3" in pending(cluster), "the empty one is not shown as another node")
        commit(db, 1)
        assert simple.terminate("storage1") == 0
        os.rename(elsewhere, database)
        simple.restart("storage1")
        wait_until(lambda: complete(cluster, 2), "it does not catch up")
        simple.kill("storage2")
        assert read(db) == 1


@pytest.mark.parametrize("cluster", [0], indirect=True)
@pytest.mark.parametrize("restarted", ["storage1", "all"])
def test_an_empty_database_is_not_served_in_the_place_of_one_with_data(
    cluster: Cluster, restarted: str
) -> None:
    """The other node goes on, or comes later than the node without its disk."""
    simple = cluster.simple
    nid = nid_of(cluster, "storage1")
    with closing(DB(cluster.storage(wait_timeout=PATIENCE_SECONDS))) as db:
        for value in range(4):
            commit(db, value)
    database = Path(cluster.database("storage1"))
    names = list(simple.processes) if restarted == "all" else ["storage1"]
    for name in names:
        assert simple.terminate(name) == 0
    elsewhere = database.with_name("unmounted")
    os.rename(database, elsewhere)
    for name in ("master1", "admin", "storage1", "storage2"):
        if name in names:
            simple.restart(name)
    wait_until(lambda: "S3" in pending(cluster), "the empty one is not shown as another node")
    assert "is empty, so that it is not S" in simple.log("master1").read_text()
    assert status(cluster)["state"] == "RECOVERING" and nid in reason(cluster)
    assert simple.terminate("storage1") == 0
    os.rename(elsewhere, database)
    simple.restart("storage1")
    simple.wait_running()
    with closing(DB(cluster.storage())) as db:
        assert read(db) == 3
        commit(db, 4)


@pytest.mark.parametrize("cluster", [1], indirect=True)
def test_who_has_data_does_not_join_an_empty_database_that_was_created_without_it(
    cluster: Cluster,
) -> None:
    """No disk was mounted when all machines started, with 'autostart' still set."""
    simple = cluster.simple
    databases = {name: Path(cluster.database(name)) for name in ("storage1", "storage2")}
    owners = {nid_of(cluster, name): name for name in databases}
    with closing(DB(cluster.storage(wait_timeout=PATIENCE_SECONDS))) as db:
        simple.kill("storage1")
        commit(db, 0)
        simple.restart("storage1")
        wait_until(lambda: complete(cluster, 2), "it does not catch up")
    names = ("master1", "admin", *databases)
    for name in names:
        assert simple.terminate(name) == 0
    mounted = {name: path.rename(f"{path}.mounted") for name, path in databases.items()}
    for name in names:
        simple.restart(name)
    simple.wait_running()
    # With the id that it has in the new database. With another id it is refused at once.
    owner = owners[nid_of(cluster, "storage2")]
    assert simple.terminate("storage2") == 0
    mounted[owner].replace(databases["storage2"])
    with suppress(ClusterError):  # the node may have ended before the test sees it listen
        simple.restart("storage2")
    process = simple.processes["storage2"]
    wait_until(lambda: process.poll() == 1, "it joins")
    assert "which serves another database" in simple.log("storage2").read_text()
    simple.kill("storage2")
    for name in names[:-1]:
        assert simple.terminate(name) == 0
    databases["storage2"].rename(mounted[owner])
    for name, path in mounted.items():
        path.rename(databases[name])
    for name in names:
        simple.restart(name)
    simple.wait_running()
    with closing(DB(cluster.storage())) as db:
        assert read(db) == 0
