"""``neoctl set partitions`` with real processes: another number of partitions, while clients write, and
while any process is killed at any moment (specification 27.90 to 27.97).

``NEO_OPERATION_ROUNDS`` and ``NEO_OPERATION_SEED`` choose a longer run, or repeat one.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ZODB.Connection import TransactionMetaData
from ZODB.DB import DB

from tests.faults.mixed import check_end, prepare
from tests.faults.mixed_load import Load
from tests.faults.operations import begun, ended, wait_moment
from tests.faults.operator import neoctl, wait_for
from tests.faults.rows import check_equal
from tests.support.cluster import Cluster
from tests.support.seeds import seed
from tests.support.whole import few

ROUNDS = int(os.environ.get("NEO_OPERATION_ROUNDS", "2"))
CLIENTS = 4
PARTITIONS = 6
NUMBERS = 6, 12, 24

#: The database and the number of masters of a cluster.
ONE, THREE = ("sqlite", 1), ("mariadb", 3)


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    backend, masters = request.param
    with Cluster(
        storages=3, partitions=PARTITIONS, replicas=1, masters=masters, backend=backend
    ) as running:
        yield running


@pytest.fixture
def load(cluster: Cluster, tmp_path: Path) -> Iterator[Load]:
    """Clients that write all the time."""
    prepare(cluster.storage(), CLIENTS)
    running = Load(cluster.simple.masters, cluster.simple.name, tmp_path, [()] * CLIENTS)
    try:
        running.wait_progress()
        yield running
    finally:
        running.kill()


def rows(cluster: Cluster) -> list[Any]:
    found: list[Any] = neoctl(cluster.simple.admin_address, "print", "pt")["partitions"]
    return found


def is_whole(cluster: Cluster) -> bool:
    """Return whether all cells are complete."""
    return all([*row["cells"].values()] == ["UP_TO_DATE"] * 2 for row in rows(cluster))


def other_tables(cluster: Cluster) -> list[str]:
    """Return the names of tables with rows for another number of partitions."""
    found = []
    for node in cluster.simple.conf.of_role("storage"):
        listing = (
            "SHOW TABLES"
            if cluster.server is not None
            else "SELECT name FROM sqlite_master WHERE type='table'"
        )
        found += [name for (name,) in cluster.query(node.name, listing) if "_by_" in name]
    return found


def wait_clean(cluster: Cluster) -> None:
    """Wait until no node has rows for another number of partitions."""

    def left() -> str:
        known = neoctl(cluster.simple.admin_address, "print", "operations")
        return f"rows are left: {other_tables(cluster)}; {known}"

    wait_for(lambda: not other_tables(cluster), left)


def check_all(cluster: Cluster, load: Load, partitions: int) -> None:
    """Stop the clients and the cluster, and compare everything."""
    load.stop()
    wait_clean(cluster)
    with closing(DB(cluster.storage())) as db:
        print(check_end(db.open(), load.folder, CLIENTS))
    cluster.simple.stop()
    check_equal(cluster.simple.conf.path, partitions, 2)


@pytest.mark.parametrize("cluster", few(ONE, whole=[ONE, THREE]), indirect=True)
def test_clients_go_on_while_the_number_changes(cluster: Cluster, load: Load) -> None:
    """All disks have the new number, also after all processes are killed."""
    for number in (24, 12):
        done = neoctl(cluster.simple.admin_address, "set", "partitions", str(number))
        assert done["state"] == "SUCCEEDED"
        assert len(rows(cluster)) == number
        load.wait_progress()
    names = [*cluster.simple.processes]
    for name in names:
        cluster.simple.kill(name)
    for name in names:
        cluster.simple.restart(name)
    load.wait_progress()
    assert len(rows(cluster)) == 12
    check_all(cluster, load, 12)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("cluster", few(THREE, whole=[ONE, THREE]), indirect=True)
def test_kill_any_process_while_the_number_changes(cluster: Cluster, load: Load) -> None:
    """The number is the old or the new one on all nodes, as the operation has ended."""
    chance, before = random.Random(seed("OPERATION")), PARTITIONS
    names = [name for name in cluster.simple.processes if name != "admin"]
    for _ in range(ROUNDS):
        after = chance.choice([number for number in NUMBERS if number != before])
        victim = chance.choice(names)
        earlier = ended(cluster)
        with begun(cluster, "set", "partitions", str(after)) as process:
            wait_moment(cluster, process, chance)
            cluster.simple.kill(victim)
            cluster.simple.restart(victim)
        last = ended(cluster)
        wait_for(lambda: is_whole(cluster), lambda: f"not all cells are complete: {rows(cluster)}")
        found = len(rows(cluster))
        if last is not None and last != earlier:  # else it was refused, or is not known any more
            assert found == (after if last["state"] == "SUCCEEDED" else before), (victim, last)
        assert found in (before, after), (victim, last)
        wait_clean(cluster)
        load.wait_progress()
        before = found
    check_all(cluster, load, before)


@pytest.mark.parametrize("cluster", few(ONE, whole=[ONE, THREE]), indirect=True)
def test_a_change_that_waits_for_a_long_transaction_is_aborted(
    cluster: Cluster, load: Load
) -> None:
    """Specification 27.34, 27.93: others are held up for a moment only."""
    admin, long = cluster.simple.admin_address, cluster.storage()
    with closing(long), begun(cluster, "set", "partitions", "12"):
        transaction = TransactionMetaData()
        long.tpc_begin(transaction)

        def switching() -> Any:
            found = neoctl(admin, "print", "operations")["operations"]
            return [row["id"] for row in found if row["done"] >= 3 / 4]

        (running,) = wait_for(switching, lambda: "the rows are not regrouped")
        load.wait_progress()
        neoctl(admin, "abort", str(running))
        long.tpc_abort(transaction)
    assert ended(cluster)["state"] == "FAILED"
    check_all(cluster, load, PARTITIONS)
