"""``neoctl check`` and ``repair`` of a cell that lost rows, and a node cloned from a copied disk.

On both databases. Clients write while a cell is checked and repaired.
"""

from __future__ import annotations

import configparser
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from ZODB.DB import DB

from neo.protocol.packets import TAIL_LENGTH
from tests.faults.damage import LOSSES
from tests.faults.load import WRITERS, Load, check
from tests.faults.operator import findings, neoctl
from tests.faults.rows import check_equal
from tests.faults.states import complete, stop
from tests.faults.writer import prepare
from tests.support.cluster import Cluster
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.ports import free_range
from tests.support.whole import few

PARTITIONS, OBJECTS = 4, 40


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Yield a cluster with a copy of everything on each storage node, and rows in each partition."""
    storages, backend = request.param
    with Cluster(storages, backend, PARTITIONS, replicas=storages - 1) as running:
        write(running)
        yield running


def write(cluster: Cluster) -> None:
    """Commit a transaction for each object, and then so many objects that the first are before the
    tails. Tails are compared when a node comes back."""
    with closing(DB(cluster.storage())) as db:
        for number in range(OBJECTS):
            with db.transaction() as connection:
                connection.root()[number] = type(connection.root())()
        with db.transaction() as connection:
            root = connection.root()
            root["many"] = [type(root)() for _ in range(2 * PARTITIONS * TAIL_LENGTH)]


def settings(cluster: Cluster) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(cluster.simple.conf.path)
    return parser


@contextmanager
def _away(cluster: Cluster, name: str, copies: int) -> Iterator[None]:
    """Stop the node, and start it again after the block."""
    assert cluster.simple.terminate(name) == 0
    yield
    cluster.simple.restart(name)
    wait_until(lambda: complete(cluster, copies), f"{name} does not come back")


@pytest.mark.parametrize(
    "cluster", few((3, "mariadb"), whole=[(3, "mariadb"), (3, "sqlite")]), indirect=True
)
def test_a_cell_that_lost_rows_is_found_and_repaired_while_clients_write(
    cluster: Cluster, tmp_path: Path
) -> None:
    admin = cluster.simple.admin_address
    prepare(cluster.storage(), WRITERS)
    load = Load(cluster, tmp_path)
    load.start()
    try:
        load.wait_commits(1)
        assert findings(admin) == {"equal": PARTITIONS}
        with _away(cluster, "storage2", 3):
            cluster.query("storage2", *LOSSES)
        assert findings(admin) == {"corrupted": 1, "equal": PARTITIONS - 1}
        load.wait_commits(1)
        neoctl(admin, "repair")
        wait_until(lambda: complete(cluster, 3), "the cell is not repaired")
        assert findings(admin) == {"equal": PARTITIONS}
        load.wait_commits(1)
        check(cluster, load)
    finally:
        load.stop()
    stop(cluster)
    check_equal(cluster.simple.conf.path, PARTITIONS, 3)


@pytest.mark.parametrize(
    "cluster", few((2, "sqlite"), whole=[(2, "mariadb"), (2, "sqlite")]), indirect=True
)
def test_a_copied_disk_becomes_a_node_that_gets_what_it_lacks(
    cluster: Cluster, tmp_path: Path
) -> None:
    parser = settings(cluster)
    with _away(cluster, "storage1", 2):
        copy = cluster.copy("storage1", tmp_path)
    write(cluster)  # the copy lacks this
    parser["storage3"] = {
        **dict(parser.items("storage1")),
        "bind": f"127.0.0.1:{free_range(1)}",
        "database": copy,
        "logfile": str(tmp_path / "storage3.log"),
    }
    if parser.has_option("storage3", "mark"):  # only with MariaDB
        parser["storage3"]["mark"] = str(tmp_path / "storage3.acknowledged")
        parser["storage3"]["blob_dir"] = str(tmp_path / "storage3.blobs")
    conf = tmp_path / "neo.conf"
    with open(conf, "w") as file:
        parser.write(file)
    command = [sys.executable, "-m", "neo.storage", "-f", str(conf), "-s", "storage3"]
    log = tmp_path / "storage3.log"
    cloned = subprocess.run([*command, "--new-nid"], cwd=cluster.simple.folder)
    assert cloned.returncode == 0, log.read_text()
    assert "start it without --new-nid" in log.read_text()
    with subprocess.Popen(command, cwd=cluster.simple.folder) as node:
        try:
            wait_until(lambda: complete(cluster, 3), "the clone does not get what it lacks")
            assert findings(cluster.simple.admin_address) == {"equal": PARTITIONS}
            stop(cluster)
            assert node.wait(PATIENCE_SECONDS) == 0
        finally:
            node.kill()
    for section in parser.sections():
        if section in ("storage1", "storage2"):
            parser[section]["database"] = cluster.database(section)
    with open(conf, "w") as file:
        parser.write(file)
    check_equal(conf, PARTITIONS, 3)
