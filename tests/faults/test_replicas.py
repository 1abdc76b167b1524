"""Storage nodes come and go, and cells move, while clients write: nothing is lost, replicas are equal.

Real processes. ``NEO_REPLICA_ROUNDS`` and ``NEO_REPLICA_SEED`` choose a longer run or repeat one.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from neo.protocol.enums import NodeState, NodeType
from neo.protocol.packets import (
    AnswerNodeList,
    AskNodeList,
    SetNumReplicas,
    TweakPartitionTable,
)
from tests.faults.load import WRITERS, Load, check
from tests.faults.operator import neoctl
from tests.faults.rows import check_equal
from tests.faults.states import ask, complete, nid_of, pending, stop, table
from tests.faults.writer import prepare
from tests.support.cluster import Cluster
from tests.support.seeds import seed
from tests.support.standstill import stand_still
from tests.support.whole import few

ROUNDS = int(os.environ.get("NEO_REPLICA_ROUNDS", "8"))
STORAGES, PARTITIONS = 3, 6


@pytest.fixture
def backend() -> str:
    return "sqlite"


@pytest.fixture
def cluster(backend: str) -> Iterator[Cluster]:
    with Cluster(STORAGES, backend, PARTITIONS, replicas=1) as running:
        yield running


def away(choices: random.Random, cluster: Cluster, load: Load, victim: str) -> None:
    """Make the node unreachable for a while, in which the others go on."""
    process = cluster.simple.processes[victim]
    how = choices.choice(("killed", "terminated", "stopped"))
    print(f"{victim} is {how}")
    if how == "stopped":
        stand_still(process.pid)
        time.sleep(choices.random())  # the node stands still for a random time
        process.send_signal(signal.SIGCONT)
        return
    if how == "killed":
        cluster.simple.kill(victim)
    else:
        cluster.simple.terminate(victim)
    load.wait_commits(1 + choices.randrange(10))
    cluster.simple.restart(victim)


def test_nodes_come_and_go(cluster: Cluster, tmp_path: Path) -> None:
    choices = random.Random(seed("REPLICA"))
    prepare(cluster.storage(), WRITERS)
    load = Load(cluster, tmp_path)
    load.start()
    try:
        load.wait_commits(1)
        for _ in range(ROUNDS):
            load.wait_commits(choices.randrange(4))
            away(choices, cluster, load, f"storage{choices.randrange(STORAGES) + 1}")
            load.wait_commits(1)
            load.wait(lambda: complete(cluster, 2), "the node does not catch up")
            check(cluster, load)
    finally:
        load.stop()
    stop(cluster)
    check_equal(cluster.simple.conf.path, PARTITIONS, 2)


@pytest.mark.parametrize("backend", few("mariadb", whole=["sqlite", "mariadb"]))
def test_cells_move_while_clients_write(cluster: Cluster, tmp_path: Path) -> None:
    """Every node is emptied in turn; between, the number of replicas changes. In the end the last node
    is dropped, and erases its database."""
    prepare(cluster.storage(), WRITERS)
    load = Load(cluster, tmp_path)
    load.start()
    try:
        load.wait_commits(1)
        for nid in range(1, STORAGES + 1):
            empty(load, cluster, nid)
            ask(cluster, SetNumReplicas(2))
            ask(cluster, TweakPartitionTable(False, []))
            load.wait(lambda: complete(cluster, STORAGES), "not every node has a copy of all")
            load.wait_commits(2)
            ask(cluster, SetNumReplicas(1))
            ask(cluster, TweakPartitionTable(False, []))
            load.wait(lambda: complete(cluster, 2), "superfluous copies stay")
            load.wait_commits(2)
        drop(load, cluster, f"storage{STORAGES}")
        check(cluster, load)
    finally:
        load.stop()
    stop(cluster)
    rest = [f"storage{number}" for number in range(1, STORAGES)]
    check_equal(cluster.simple.conf.path, PARTITIONS, 2, rest)


def empty(load: Load, cluster: Cluster, nid: int) -> None:
    """Move the node's cells to the other nodes."""
    ask(cluster, TweakPartitionTable(False, [nid]))
    load.wait(
        lambda: complete(cluster, 2) and not any(nid in row for row in table(cluster)),
        f"node {nid} is not emptied",
    )
    load.wait_commits(2)


def drop(load: Load, cluster: Cluster, name: str) -> None:
    """Drop a node without cells.

    If it comes back before that, it stays in service. If it was dropped while it was away, it is a new
    node when it comes back, and erases its database when it is dropped again.
    """
    address = cluster.simple.conf.of_role("storage")[int(name[-1]) - 1].address

    def node() -> tuple[int | None, NodeState] | None:
        answer = ask(cluster, AskNodeList(NodeType.STORAGE))
        assert isinstance(answer, AnswerNodeList)
        return next(((row[2], row[3]) for row in answer.node_list if row[1] == address), None)

    known = node()
    assert known is not None and known[0] is not None
    nid = known[0]
    empty(load, cluster, nid)
    cluster.simple.restart(name)
    load.wait(lambda: node() == (nid, NodeState.RUNNING), f"{name} does not come back")
    neoctl(cluster.simple.admin_address, "kill", f"S{nid}")
    process = cluster.simple.processes[name]
    load.wait(lambda: process.poll() == 0, f"{name} does not end")
    load.wait(lambda: node() == (nid, NodeState.DOWN), f"{name} is not down")
    neoctl(cluster.simple.admin_address, "drop", f"S{nid}")
    cluster.simple.restart(name)
    load.wait(lambda: node() == (nid, NodeState.PENDING), f"{name} does not come back")
    neoctl(cluster.simple.admin_address, "drop", f"S{nid}")
    process = cluster.simple.processes[name]
    load.wait(lambda: process.poll() == 0, f"{name} does not end")
    for kept in ("pt", "trans", "obj", "data"):
        assert cluster.query(name, f"SELECT * FROM {kept}") == [], kept
    load.wait_commits(2)


def test_a_deleted_database_ends_its_node_and_is_filled_from_the_replicas(
    cluster: Cluster, tmp_path: Path
) -> None:
    prepare(cluster.storage(), WRITERS)
    load = Load(cluster, tmp_path)
    load.start()
    try:
        load.wait_commits(1)
        nid = nid_of(cluster, "storage1")
        database = Path(cluster.database("storage1"))
        for path in (database, *database.parent.glob(f"{database.name}-*")):
            path.unlink()
        process = cluster.simple.processes["storage1"]
        load.wait(lambda: process.poll() is not None, "the node goes on")
        assert process.returncode == 1
        load.logged("storage1", "is gone: it was deleted, moved or replaced while this node ran")
        assert not database.exists()
        load.wait_commits(2)
        cluster.simple.restart("storage1")
        # The old disk may only be away, so that this is a new node: the operator decides.
        load.wait(lambda: "S4" in pending(cluster), "the new one is not shown")
        neoctl(cluster.simple.admin_address, "replace", nid, "S4")
        load.wait(lambda: complete(cluster, 2), "the node is not filled")
        check(cluster, load)
    finally:
        load.stop()
    stop(cluster)
    check_equal(cluster.simple.conf.path, PARTITIONS, 2)
