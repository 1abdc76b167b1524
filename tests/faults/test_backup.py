"""A backup cluster of real processes follows through losses on either side, takes over, is followed.

All connections use TLS, also between the clusters.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import transaction
from ZODB.POSException import ReadOnlyError

from neo.protocol.enums import ClusterState
from neo.protocol.packets import (
    AnswerMonitorInformation,
    AskBeginOperation,
    AskLastTransaction,
    AskMonitorInformation,
    AskOperations,
    Truncate,
)
from tests.faults.rows import cells
from tests.faults.sites import Site, follows, write
from tests.support.certificates import Authority
from tests.support.cluster import Cluster
from tests.support.whole import few

PARTITIONS = 6


@pytest.fixture
def backend() -> str:
    return "sqlite"


@pytest.fixture
def sites(tmp_path: Path, backend: str) -> Iterator[tuple[Site, Site]]:
    """Yield an upstream cluster, and a cluster that is configured to be its backup."""
    shape: dict[str, Any] = {"storages": 2, "backend": backend, "partitions": PARTITIONS}
    tls = Authority(tmp_path).node()._asdict()
    with ExitStack() as stack:
        up = Cluster(**shape, name="up", settings={"monitor_backup": "bak"}, **tls)
        stack.enter_context(up)
        shape |= {"replicas": 1, "server": up.server}
        settings = {"upstream_cluster": "up", "upstream_masters": up.simple.masters}
        bak = Cluster(**shape, name="bak", settings=settings, **tls)
        stack.enter_context(bak)
        yield Site(up, tls), Site(bak, tls)


@pytest.mark.parametrize("backend", few("mariadb", whole=["sqlite", "mariadb"]))
def test_follows_through_losses_and_changes_roles(sites: tuple[Site, Site]) -> None:
    up, bak = sites
    db = up.db()
    write(db)
    bak.set_state(ClusterState.STARTING_BACKUP, ClusterState.BACKINGUP)
    follows(bak, write(db))

    # A reader sees new transactions, and cannot write.
    reader = bak.db()
    manager = transaction.TransactionManager()
    connection = reader.open(manager)
    assert connection.root()["count"] == 10
    follows(bak, write(db))
    manager.begin()
    assert connection.root()["count"] == 15
    connection.root()["count"] = 0
    with pytest.raises(ReadOnlyError):
        manager.commit()
    manager.abort()

    # Losses on the side of the backup, then of the upstream cluster.
    for victim in ("storage1", "master1"):
        bak.cluster.simple.kill(victim)
        tid = write(db)
        bak.cluster.simple.restart(victim)
        follows(bak, tid)
    for victim in ("storage2", "master1"):
        up.cluster.simple.kill(victim)
        up.cluster.simple.restart(victim)
        up.cluster.simple.wait_running()
        follows(bak, write(db))
    bak.wait(lambda: manager.begin() is not None and connection.root()["count"] == 35, "a reader")

    def well() -> bool:
        answer = up.ask(AskMonitorInformation())
        assert isinstance(answer, AnswerMonitorInformation)
        return (
            not answer.problem_list and "\n\nbak\n    BACKINGUP; UP_TO_DATE=12; " in answer.summary
        )

    up.wait(well, "the upstream admin does not hear that the backup is well")
    connection.close()
    reader.close()
    db.close()

    # The backup takes over; the former upstream cluster follows it.
    bak.set_state(ClusterState.STOPPING_BACKUP, ClusterState.RUNNING)
    up.configure_upstream(bak.cluster)
    up.set_state(ClusterState.STARTING_BACKUP, ClusterState.BACKINGUP)
    db = bak.db()
    with db.transaction() as connection:
        assert connection.root()["count"] == 35
    tid = write(db)
    follows(up, tid)
    db.close()
    up.set_state(ClusterState.STOPPING_BACKUP, ClusterState.RUNNING)
    assert up.ask(AskLastTransaction()).tid == tid
    check_alike(up, bak)


def check_alike(up: Site, bak: Site, partitions: int = PARTITIONS) -> None:
    """Check that both clusters, which are stopped, have the same rows in all cells."""
    for site in (bak, up):
        site.stop()
    ours, theirs = (cells(site.cluster.simple.conf.path) for site in (up, bak))
    assert ours.keys() == theirs.keys() == set(range(partitions))
    for partition, copies in theirs.items():
        (own,) = ours[partition].values()
        assert list(copies.values()) == [own, own], partition


def test_follows_an_upstream_that_was_truncated_when_it_is_truncated_too(
    sites: tuple[Site, Site],
) -> None:
    """The steps of docs/standby.md, *When something stands still*."""
    up, bak = sites

    def truncate(site: Site, tid: bytes) -> None:
        site.ask(Truncate(tid))
        site.wait(
            lambda: (
                site.state() is ClusterState.RUNNING and site.ask(AskLastTransaction()).tid == tid
            ),
            "it does not come back",
        )

    db = up.db()
    kept = write(db, 10)
    bak.set_state(ClusterState.STARTING_BACKUP, ClusterState.BACKINGUP)
    lost = write(db)
    follows(bak, lost)
    truncate(up, kept)
    write(db)
    log = bak.cluster.simple.log("master1")
    unfit = f"transaction {lost.hex()} of this standby is not in the upstream cluster"
    bak.wait(lambda: unfit in log.read_text(), "the backup does not look at the history")
    assert bak.state() is ClusterState.BACKINGUP and bak.has(lost)

    bak.set_state(ClusterState.STOPPING_BACKUP, ClusterState.RUNNING)
    truncate(bak, kept)
    bak.set_state(ClusterState.STARTING_BACKUP, ClusterState.BACKINGUP)
    follows(bak, write(db))
    with db.transaction() as connection:
        assert connection.root()["count"] == 20
    db.close()
    check_alike(up, bak)


def test_a_backup_follows_again_when_it_has_the_number_of_partitions_of_its_upstream(
    sites: tuple[Site, Site],
) -> None:
    """Specification 27.98. The steps of docs/maintenance.md, *Another number of partitions*."""
    up, bak = sites
    db = up.db()
    bak.set_state(ClusterState.STARTING_BACKUP, ClusterState.BACKINGUP)
    known = write(db)
    follows(bak, known)
    regroup(up, 2 * PARTITIONS)
    write(db)
    unfit = f"has {2 * PARTITIONS} partitions and this one {PARTITIONS}: a standby must have as many"
    log = bak.cluster.simple.log("master1")
    bak.wait(lambda: unfit in log.read_text(), "the backup does not see the number")
    assert bak.has(known), "it takes nothing"

    bak.set_state(ClusterState.STOPPING_BACKUP, ClusterState.RUNNING)
    regroup(bak, 2 * PARTITIONS)
    bak.set_state(ClusterState.STARTING_BACKUP, ClusterState.BACKINGUP)
    follows(bak, write(db))
    db.close()
    check_alike(up, bak, 2 * PARTITIONS)


def regroup(site: Site, partitions: int) -> None:
    """Begin an operation, and wait for its success."""
    begun = site.ask(AskBeginOperation("partitions", {"partitions": partitions}, False))

    def state() -> str:
        ((_, _, _, found, *_),) = site.ask(AskOperations(begun.id)).row_list
        return found

    site.wait(lambda: state() == "SUCCEEDED", "the number of partitions is not changed")


def says_that_it_gets_nothing(bak: Site) -> bool:
    command = [sys.executable, "-m", *shlex.split(bak.cluster.simple.neoctl), "status"]
    status = subprocess.run(command, capture_output=True, text=True)
    text = "problem: this standby gets nothing from its upstream cluster 'up' since 20"
    assert status.returncode in (0, 1) and (status.returncode == 1) == (text in status.stdout), (
        status
    )
    return status.returncode == 1


def test_a_backup_that_loses_its_upstream_takes_over_with_whole_transactions(
    sites: tuple[Site, Site],
) -> None:
    up, bak = sites
    db = up.db()
    bak.set_state(ClusterState.STARTING_BACKUP, ClusterState.BACKINGUP)
    write(db, 30)
    up.cluster.simple.stop()
    db.close()
    bak.wait(lambda: says_that_it_gets_nothing(bak), "neoctl status does not say it")
    bak.set_state(ClusterState.STOPPING_BACKUP, ClusterState.RUNNING)
    db = bak.db()
    with db.transaction() as connection:
        root = connection.root()
        count = root.get("count", 0)
        assert [n for n in range(1, 31) if n in root] == list(range(1, count + 1))
    write(db)
    db.close()


def test_a_backup_has_a_backup(tmp_path: Path) -> None:
    with ExitStack() as stack:
        sites: list[Site] = []
        for name in ("one", "two", "three"):
            settings = {}
            if sites:
                above = sites[-1].cluster.simple
                settings = {"upstream_cluster": above.name, "upstream_masters": above.masters}
            cluster = Cluster(1, partitions=PARTITIONS, name=name, settings=settings)
            sites.append(Site(stack.enter_context(cluster), {}))
        one, two, three = sites
        db = one.db()
        write(db)
        for site in (two, three):
            site.set_state(ClusterState.STARTING_BACKUP, ClusterState.BACKINGUP)
        tid = write(db)
        follows(three, tid)
        db.pack()
        two.cluster.simple.kill("master1")
        tid = write(db)
        two.cluster.simple.restart("master1")
        follows(three, tid)
        db.close()
        reader = three.db()
        with reader.transaction() as connection:
            assert connection.root()["count"] == 15
        reader.close()
