"""``neoctl truncate``, ``prune_orphan`` and ``flush_log`` of a cluster that serves. Real processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import transaction
from ZODB.DB import DB

from tests.faults.operator import neoctl
from tests.faults.rows import check_equal
from tests.faults.states import complete, stop
from tests.support.cluster import Cluster
from tests.support.patience import wait_until

PARTITIONS, TRANSACTIONS = 4, 20
ORPHAN = "INSERT INTO data VALUES (1234567, '01234567890123456789', 0, 'nobody wants me')"


@pytest.fixture(params=["sqlite", "mariadb"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(2, request.param, PARTITIONS, replicas=1) as running:
        yield running


def write(db: DB, first: int = 0) -> None:
    for number in range(first, first + TRANSACTIONS):
        with db.transaction() as connection:
            connection.root()[number] = type(connection.root())()


def test_what_comes_after_a_tid_is_gone_for_open_connections_too(cluster: Cluster) -> None:
    admin = cluster.simple.admin_address
    with closing(DB(cluster.storage())) as db:
        write(db)
        manager = transaction.TransactionManager()
        connection = db.open(manager)
        root = connection.root()
        child = root["child"] = type(root)({"value": "before"})
        manager.commit()
        kept = db.storage.lastTransaction()
        child["value"] = root["new"] = "after"
        manager.commit()
        write(db, TRANSACTIONS)
        manager.begin()
        assert child["value"] == "after" and len(root) == 2 * TRANSACTIONS + 2

        neoctl(admin, "truncate", f"0x{kept.hex()}")
        cluster.simple.wait_running()
        manager.begin()
        assert child["value"] == "before"
        assert set(root) == {"child", *range(TRANSACTIONS)}
        root["new"] = "again"
        manager.commit()
        write(db, TRANSACTIONS)
        manager.begin()
        # Drop deleted objects from the cache: after the new commits their tids look like earlier ones.
        connection.cacheMinimize()
        assert child["value"] == "before" and root["new"] == "again"
        assert set(root) == {"child", "new", *range(2 * TRANSACTIONS)}
        connection.close()
    stop(cluster)
    check_equal(cluster.simple.conf.path, PARTITIONS, 2)


def test_orphans_are_counted_then_deleted_and_moved_logs_are_opened_anew(
    cluster: Cluster, tmp_path: Path
) -> None:
    simple = cluster.simple
    with closing(DB(cluster.storage())) as db:
        write(db)
    assert simple.terminate("storage1") == 0
    cluster.query("storage1", ORPHAN)
    simple.restart("storage1")
    wait_until(lambda: complete(cluster, 2), "storage1 does not come back")

    def orphans() -> int:
        return len(cluster.query("storage1", "SELECT 1 FROM data WHERE id=1234567"))

    def says(name: str, text: str) -> None:
        log = simple.log(name)
        wait_until(lambda: log.exists() and text in log.read_text(), f"{name} does not say {text!r}")

    others = cluster.query("storage1", "SELECT COUNT(*) FROM data")[0][0] - 1
    neoctl(simple.admin_address, "prune_orphan", "1", "all")
    says("storage1", "repair: 1 orphan record (15 bytes) would be deleted")
    says("storage2", "repair: 0 orphan records (0 bytes) would be deleted")
    assert orphans() == 1

    for name in simple.processes:
        simple.log(name).rename(tmp_path / name)
    neoctl(simple.admin_address, "flush_log")
    for name in simple.processes:
        wait_until(simple.log(name).exists, f"{name} does not open its log")

    neoctl(simple.admin_address, "prune_orphan", "0", "all")
    says("storage1", "repair: 1 orphan record (15 bytes) deleted")
    says("storage2", "repair: 0 orphan records (0 bytes) deleted")
    assert orphans() == 0
    assert cluster.query("storage1", "SELECT COUNT(*) FROM data")[0][0] == others
    stop(cluster)
    check_equal(simple.conf.path, PARTITIONS, 2)
