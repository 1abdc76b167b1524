"""The order of losses after which an older partition table would hide an acknowledged commit.

Two copies: the first node is lost, a transaction commits on the second alone, which is lost too; then
the first one comes back, with a table in which its cells are up to date (wire facts 5.5).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ZODB.DB import DB

from neo.protocol.enums import CellState, ClusterState, NodeState
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import AskPartitionList, SetClusterState
from neoctl.client import AdminAway
from tests.support.cluster import Cluster

DEADLINE_SECONDS = 90


@pytest.fixture(params=["sqlite", "mariadb"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(storages=2, partitions=4, replicas=1, backend=request.param) as running:
        yield running


def status(cluster: Cluster) -> Any:
    """``neoctl --json status``."""
    done = subprocess.run(
        [sys.executable, "-m", "neoctl", "-a", cluster.simple.admin_address, "--json", "status"],
        stdout=subprocess.PIPE,
        env={**os.environ, "NO_COLOR": "1"},
    )
    return json.loads(done.stdout)


def reason(cluster: Cluster) -> str:
    """Why it does not start, according to the last lines of the master's log."""
    text = cluster.simple.log("master1").read_text()
    return text.rpartition("waiting to start: ")[2].partition("\n")[0]


def node_state(cluster: Cluster, nid: str) -> str | None:
    nodes = status(cluster).get("nodes", ())
    return next((node["state"] for node in nodes if node["nid"] == nid), None)


def wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def complete(cluster: Cluster) -> bool:
    try:
        with cluster.simple.admin() as admin:
            rows = admin.ask(AskPartitionList(0, 0, None)).row_list
    except (AdminAway, ErrorAnswer):
        return False
    return bool(rows) and all(s is CellState.UP_TO_DATE for row in rows for _, s in row)


def commit(db: DB, value: int) -> None:
    with db.transaction() as connection:
        connection.root()["value"] = value


def read(db: DB) -> int:
    db.storage.sync()
    with db.transaction() as connection:
        value: int = connection.root()["value"]
    return value


def nid_of(cluster: Cluster, name: str) -> str:
    """Node ids are given in the order of arrival."""
    port = cluster.simple.conf.of_role("storage")[int(name[-1]) - 1].address[1]
    return next(
        node["nid"] for node in status(cluster)["nodes"] if str(node["address"]).endswith(f":{port}")
    )


@pytest.mark.parametrize("master_too", [False, True], ids=["same master", "new master"])
def test_an_acknowledged_commit_survives_the_loss_of_one_copy_after_the_other(
    cluster: Cluster, master_too: bool
) -> None:
    simple = cluster.simple
    first, second = nid_of(cluster, "storage1"), nid_of(cluster, "storage2")
    db = DB(cluster.storage(wait_timeout=DEADLINE_SECONDS))
    try:
        commit(db, 1)
        simple.kill("storage1")
        wait(lambda: node_state(cluster, first) == NodeState.DOWN.name, "the loss is not noticed")
        commit(db, 2)
        simple.kill("storage2")
        wait(lambda: node_state(cluster, second) == NodeState.DOWN.name, "the loss is not noticed")
        if master_too:
            simple.kill("master1")
            simple.restart("master1")
        simple.restart("storage1")
        wait(lambda: node_state(cluster, first) == NodeState.PENDING.name, "the first is not back")
        expected = "must be connected first" if master_too else "commits would be lost; start"
        wait(lambda: expected in reason(cluster), "the log does not say what is waited for")
        assert second in reason(cluster)
        found = status(cluster)
        assert found["state"] == ClusterState.RECOVERING.name
        texts = [problem["text"] for problem in found["problems"]]
        assert f"the cluster waits for storage nodes: {second}" in texts
        if not master_too:
            # Not even the operator can make it forget.
            with simple.admin() as admin, pytest.raises(ErrorAnswer, match=f"start {second}"):
                admin.ask(SetClusterState(ClusterState.VERIFYING))
        simple.restart("storage2")
        simple.wait_running()
        assert read(db) == 2
        wait(lambda: complete(cluster), "the first does not catch up")
        simple.kill("storage2")
        assert read(db) == 2
        commit(db, 3)
        assert read(db) == 3
    finally:
        db.close()
