"""A node's database is replaced by an old copy, on both kinds of databases."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from ZODB.DB import DB

from neo.protocol.enums import ClusterState
from tests.faults.operator import neoctl
from tests.faults.rows import check_equal
from tests.faults.states import complete, nid_of, reason, status, stop
from tests.faults.value import commit, read
from tests.support import mariadb
from tests.support.cluster import Cluster
from tests.support.patience import wait_until
from tests.support.whole import few

PARTITIONS = 4
#: Enough for each partition to have some transactions.
COMMITS = 8
#: The value that is written last.
LAST = 2 * COMMITS - 1
PREPARED = ("prepared", "prepared_check", "decided")
TABLES = ("config", "pt", "trans", "obj", "data", "bigdata", "ttrans", "tobj", *PREPARED)
Restore = Callable[[], None]


@pytest.fixture(params=few("mariadb", whole=["sqlite", "mariadb"]))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(2, request.param, PARTITIONS, replicas=1) as running:
        yield running


def write(cluster: Cluster, *values: int) -> None:
    with closing(DB(cluster.storage())) as db:
        for value in values:
            with db.transaction() as connection:
                root = connection.root()
                for number in range(PARTITIONS):
                    root.setdefault(number, type(root)())["value"] = value
            commit(db, value)


def last_value(cluster: Cluster) -> int:
    with closing(DB(cluster.storage())) as db:
        return read(db)


def copied(cluster: Cluster, name: str, folder: Path) -> Restore:
    """Copy the database of a node that has ended. Return a function that restores the copy."""
    copy = cluster.copy(name, folder)
    own = cluster.database(name)

    def restore() -> None:
        # Without its mark, as if the whole disk was an old copy: the node alone cannot notice that.
        if cluster.server is None:
            Path(f"{own}.acknowledged").unlink()
            Path(f"{own}-wal").unlink(missing_ok=True)
            shutil.copyfile(copy, own)
            return
        (cluster.simple.folder / f"{name}.acknowledged").unlink()
        source, target = mariadb.schema(copy), mariadb.schema(own)
        for table in TABLES:
            cluster.server.query(
                f"DELETE FROM `{target}`.`{table}`",
                f"INSERT INTO `{target}`.`{table}` SELECT * FROM `{source}`.`{table}`",
            )

    return restore


def away(cluster: Cluster, change: Callable[[], object], copies: int = 2) -> None:
    """Stop the second node, call ``change``, and start the node again."""
    cluster.simple.terminate("storage2")
    change()
    cluster.simple.restart("storage2")
    wait_until(lambda: complete(cluster, copies), "it does not catch up")


def test_an_old_copy_serves_nobody_until_it_has_caught_up(cluster: Cluster, tmp_path: Path) -> None:
    write(cluster, *range(COMMITS))
    restores: list[Restore] = []
    away(cluster, lambda: restores.append(copied(cluster, "storage2", tmp_path)))
    (restore,) = restores
    write(cluster, *range(COMMITS, LAST + 1))
    second = nid_of(cluster, "storage2")
    _comes_back_alone(cluster, restore)
    _starts_with_the_others(cluster, restore, second)
    _each_has_what_the_other_has_not(cluster, restore, second)
    stop(cluster)
    check_equal(cluster.simple.conf.path, PARTITIONS, 2)


def _comes_back_alone(cluster: Cluster, restore: Restore) -> None:
    """The node comes back alone, to a cluster that serves."""
    away(cluster, restore)
    cluster.simple.kill("storage1")
    assert last_value(cluster) == LAST
    cluster.simple.restart("storage1")
    wait_until(lambda: complete(cluster, 2), "the other one does not catch up")


def _starts_with_the_others(cluster: Cluster, restore: Restore, second: str) -> None:
    simple = cluster.simple
    stop(cluster)
    restore()
    simple.start()
    rows = neoctl(simple.admin_address, "print", "check")["partitions"]
    assert [row["finding"] for row in rows] == ["behind"] * PARTITIONS
    assert all(row["text"].startswith(f"{second} lacks at least ") for row in rows)
    warning = (
        f"{PARTITIONS} partitions had copies that lacked transactions when the cluster started"
    )
    assert warning in [problem["text"] for problem in status(cluster)["problems"]]
    assert f"{second} went back in time: in partitions 0, 1, 2, 3 it lacks transactions" in (
        simple.log("master1").read_text()
    )
    with closing(DB(cluster.storage())) as db:
        assert read(db) == LAST
        wait_until(lambda: complete(cluster, 2), "it does not catch up")
        simple.kill("storage1")
        assert read(db) == LAST
    simple.restart("storage1")
    wait_until(lambda: complete(cluster, 2), "the other one does not catch up")


def _each_has_what_the_other_has_not(cluster: Cluster, restore: Restore, second: str) -> None:
    """Each copy has what the other one lacks: the operator decides."""
    simple = cluster.simple
    stop(cluster)
    restore()
    # The first transaction, which the old copy has in any case.
    ((partition, tid),) = cluster.query(
        "storage1", "SELECT `partition`, tid FROM trans ORDER BY tid LIMIT 1"
    )
    cluster.query("storage1", *(f"DELETE FROM {t} WHERE tid={tid}" for t in ("obj", "trans")))
    for name in ("master1", "admin", "storage1", "storage2"):
        simple.restart(name)
    problem = "and none has all that the others have (neoctl print check): stop the node that"
    wait_until(lambda: problem in reason(cluster), "the operator is not asked")
    found = status(cluster)
    assert found["state"] == ClusterState.RECOVERING.name
    differ = f"the copies of partition {partition} differ"
    assert differ in [each["text"] for each in found["problems"]]
    with pytest.raises(AssertionError, match="the cluster cannot start: the copies of partitions"):
        neoctl(simple.admin_address, "start")
    simple.terminate("storage2")
    wait_until(lambda: f"{second} may also come back" in reason(cluster), "it is not missed")
    assert neoctl(simple.admin_address, "start") == {"message": "Cluster state changed"}
    simple.wait_running()
    assert last_value(cluster) == LAST
    simple.restart("storage2")
    wait_until(lambda: complete(cluster, 2), "it does not become a copy of the other one")
