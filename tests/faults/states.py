"""Read and wait for states of a cluster of processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from neo.protocol.enums import CellState, ClusterState
from neo.protocol.errors import ErrorAnswer
from neo.protocol.packets import A, AskPartitionList, Request, SetClusterState
from neoctl.client import AdminAway
from tests.faults.operator import neoctl
from tests.support.cluster import Cluster
from tests.support.patience import PATIENCE_SECONDS


def ask(cluster: Cluster, message: Request[A]) -> A:
    with cluster.simple.admin() as admin:
        return admin.ask(message)


def table(cluster: Cluster) -> list[dict[int, CellState]]:
    """Return the partition table: node ids and states of each partition. Empty without an answer."""
    try:
        with cluster.simple.admin() as admin:
            return [dict(row) for row in admin.ask(AskPartitionList(0, 0, None)).row_list]
    except (AdminAway, ErrorAnswer, OSError):
        return []


def complete(cluster: Cluster, copies: int) -> bool:
    """Return whether each partition has ``copies`` copies, all of them UP_TO_DATE."""
    rows = table(cluster)
    return bool(rows) and all(list(row.values()) == [CellState.UP_TO_DATE] * copies for row in rows)


def stop(cluster: Cluster) -> None:
    """Stop the cluster as the operator does: transactions in progress end first, on all nodes alike."""
    ask(cluster, SetClusterState(ClusterState.STOPPING))
    for name, process in cluster.simple.processes.items():
        if name != "admin":
            process.wait(PATIENCE_SECONDS)
    cluster.simple.stop()


def status(cluster: Cluster) -> Any:
    """Return the output of ``neoctl --json status``, which may have problems."""
    done = subprocess.run(
        [sys.executable, "-m", "neoctl", "-a", cluster.simple.admin_address, "--json", "status"],
        stdout=subprocess.PIPE,
        env={**os.environ, "NO_COLOR": "1"},
    )
    return json.loads(done.stdout)


def reason(cluster: Cluster) -> str:
    """Return why the cluster does not start, from the last lines of the master's log."""
    text = cluster.simple.log("master1").read_text()
    return text.rpartition("waiting to start: ")[2].partition("\n")[0]


def node_state(cluster: Cluster, nid: str) -> str | None:
    nodes = status(cluster).get("nodes", ())
    return next((node["state"] for node in nodes if node["nid"] == nid), None)


def nid_of(cluster: Cluster, name: str) -> str:
    """Return the node id of a storage node; ids are given in the order of arrival."""
    port = cluster.simple.conf.of_role("storage")[int(name[-1]) - 1].address[1]
    return next(
        node["nid"]
        for node in status(cluster)["nodes"]
        if str(node["address"]).endswith(f":{port}")
    )


def pending(cluster: Cluster) -> list[str]:
    """Return the ids of PENDING storage nodes."""
    rows = neoctl(cluster.simple.admin_address, "print", "node", "storage")["nodes"]
    return [row["nid"] for row in rows if row["state"] == "PENDING"]
