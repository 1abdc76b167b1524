"""``neoctl start`` without a lost node, which comes back later."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from ZODB.DB import DB

from neo.protocol.enums import ClusterState, NodeState
from neo.protocol.ids import u64
from tests.faults.operator import neoctl
from tests.faults.rows import check_equal
from tests.faults.states import complete, nid_of, node_state, reason, status, stop
from tests.faults.value import commit, read
from tests.support.cluster import Cluster
from tests.support.patience import PATIENCE_SECONDS, wait_until

PARTITIONS = 4


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(storages=2, partitions=PARTITIONS, replicas=1) as running:
        yield running


def recovering_without(cluster: Cluster, nid: str) -> None:
    """Wait until the cluster says that it waits for this node."""
    wait_until(
        lambda: f"{nid} must be connected first" in reason(cluster), "it does not say what it lacks"
    )
    found = status(cluster)
    assert found["state"] == ClusterState.RECOVERING.name
    texts = [problem["text"] for problem in found["problems"]]
    waits = f"the cluster waits for storage nodes: {nid} ({nid} must be connected first)"
    assert waits in texts


@pytest.mark.parametrize(("given_up", "goes_on"), [(0, True), (5, True), (5, False)])
def test_a_node_that_was_left_out_becomes_equal_when_it_is_back(
    cluster: Cluster, given_up: int, goes_on: bool
) -> None:
    """``given_up``: number of commits that only the lost node has when it comes back. ``goes_on``:
    other commits were made meanwhile."""
    simple = cluster.simple
    first, second = nid_of(cluster, "storage1"), nid_of(cluster, "storage2")
    with closing(DB(cluster.storage(wait_timeout=PATIENCE_SECONDS))) as db:
        filled: set[int] = set()
        while len(filled) < PARTITIONS:
            commit(db, 5)
            filled.add(u64(db.lastTransaction()) % PARTITIONS)
        if given_up:
            simple.kill("storage1")
            wait_until(
                lambda: node_state(cluster, first) == NodeState.DOWN.name,
                "the master does not notice the loss",
            )
        for value in range(given_up):
            commit(db, -value)
    for name in list(simple.processes):
        simple.kill(name)
    for name in ("master1", "admin", "storage1"):
        simple.restart(name)
    recovering_without(cluster, second)
    assert neoctl(simple.admin_address, "start") == {"message": "Cluster state changed"}
    simple.wait_running()
    with closing(DB(cluster.storage())) as db:
        assert read(db) == 5
        if goes_on:
            commit(db, 6)
        simple.restart("storage2")
        wait_until(lambda: complete(cluster, 2), "it does not catch up")
        commit(db, 7)
        simple.kill("storage1")
        assert read(db) == 7
        simple.restart("storage1")
        wait_until(lambda: complete(cluster, 2), "the other one does not catch up")
    stop(cluster)
    check_equal(simple.conf.path, PARTITIONS, 2)
