"""What is seen of a cluster of processes, and waiting for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from neo.protocol.enums import CellState, ClusterState
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import A, AskPartitionList, Request, SetClusterState
from neoctl.client import AdminAway
from tests.faults.operator import DEADLINE_SECONDS, LOOK_SECONDS, neoctl
from tests.support.cluster import Cluster


def wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(LOOK_SECONDS)


def ask(cluster: Cluster, message: Request[A]) -> A:
    with cluster.simple.admin() as admin:
        return admin.ask(message)


def table(cluster: Cluster) -> list[dict[int, CellState]]:
    """The partition table: node ids and states for each partition. Empty while nobody answers."""
    try:
        with cluster.simple.admin() as admin:
            return [dict(row) for row in admin.ask(AskPartitionList(0, 0, None)).row_list]
    except (AdminAway, ErrorAnswer, OSError):
        return []


def complete(cluster: Cluster, copies: int) -> bool:
    """Whether there are so many copies of each partition, all of them up to date."""
    rows = table(cluster)
    return bool(rows) and all(list(row.values()) == [CellState.UP_TO_DATE] * copies for row in rows)


def stop(cluster: Cluster) -> None:
    """As an operator does: transactions in progress end first, on all nodes alike."""
    ask(cluster, SetClusterState(ClusterState.STOPPING))
    deadline = time.monotonic() + DEADLINE_SECONDS
    for name, process in cluster.simple.processes.items():
        if name != "admin":
            process.wait(deadline - time.monotonic())
    cluster.simple.stop()


def status(cluster: Cluster) -> Any:
    """``neoctl --json status``, which may tell of problems."""
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


def nid_of(cluster: Cluster, name: str) -> str:
    """Node ids are given in the order of arrival."""
    port = cluster.simple.conf.of_role("storage")[int(name[-1]) - 1].address[1]
    return next(
        node["nid"]
        for node in status(cluster)["nodes"]
        if str(node["address"]).endswith(f":{port}")
    )


def pending(cluster: Cluster) -> list[str]:
    """Node ids of storage nodes that are not taken into service."""
    rows = neoctl(cluster.simple.admin_address, "print", "node", "storage")["nodes"]
    return [row["nid"] for row in rows if row["state"] == "PENDING"]
