"""The order of losses after which an older partition table would hide an acknowledged commit.

Two copies: the first node is lost, a transaction commits on the second alone, which is lost too; then
the first one comes back, with a table in which its cells are up to date (specification 4.16).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from ZODB.DB import DB

from neo.protocol.enums import ClusterState, NodeState
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import SetClusterState
from tests.faults.states import complete, nid_of, node_state, reason, status
from tests.faults.value import commit, read
from tests.support.cluster import Cluster
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.whole import few


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(storages=2, partitions=4, replicas=1, backend=request.param) as running:
        yield running


@pytest.mark.parametrize(
    ("cluster", "master_too"),
    few(("sqlite", False), ("mariadb", True), whole=product(["sqlite", "mariadb"], [False, True])),
    indirect=["cluster"],
)
def test_an_acknowledged_commit_survives_the_loss_of_one_copy_after_the_other(
    cluster: Cluster, master_too: bool
) -> None:
    simple = cluster.simple
    first, second = nid_of(cluster, "storage1"), nid_of(cluster, "storage2")
    db = DB(cluster.storage(wait_timeout=PATIENCE_SECONDS))
    try:
        commit(db, 1)
        simple.kill("storage1")
        wait_until(
            lambda: node_state(cluster, first) == NodeState.DOWN.name, "the loss is not noticed"
        )
        commit(db, 2)
        simple.kill("storage2")
        wait_until(
            lambda: node_state(cluster, second) == NodeState.DOWN.name, "the loss is not noticed"
        )
        if master_too:
            simple.kill("master1")
            simple.restart("master1")
        simple.restart("storage1")
        wait_until(
            lambda: node_state(cluster, first) == NodeState.PENDING.name, "the first is not back"
        )
        expected = "must be connected first" if master_too else "commits would be lost; start"
        wait_until(lambda: expected in reason(cluster), "the log does not say what is waited for")
        assert second in reason(cluster)
        found = status(cluster)
        assert found["state"] == ClusterState.RECOVERING.name
        texts = [problem["text"] for problem in found["problems"]]
        waits = f"the cluster waits for storage nodes: {second} ("
        assert any(text.startswith(waits) and expected in text for text in texts)
        if not master_too:
            # Not even the operator's command makes it forget the table.
            with simple.admin() as admin, pytest.raises(ErrorAnswer, match=f"start {second}"):
                admin.ask(SetClusterState(ClusterState.VERIFYING))
        simple.restart("storage2")
        simple.wait_running()
        assert read(db) == 2
        wait_until(lambda: complete(cluster, 2), "the first does not catch up")
        simple.kill("storage2")
        assert read(db) == 2
        commit(db, 3)
        assert read(db) == 3
    finally:
        db.close()
