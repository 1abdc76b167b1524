"""A whole cluster on IPv6: none of its addresses and links uses IPv4."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import transaction
import ZODB
import zodburi

from neo.protocol.enums import NodeType
from neo.protocol.packets import AskNodeList
from tests.support.certificates import Authority
from tests.support.cluster import Cluster
from tests.support.patience import PATIENCE_SECONDS, wait_until


@pytest.fixture(params=["plain", "tls"])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    return Authority(tmp_path).node()._asdict() if request.param == "tls" else {}


@pytest.fixture
def cluster(options: dict[str, Any]) -> Iterator[Cluster]:
    with Cluster(storages=2, masters=3, replicas=1, host="::1", **options) as running:
        yield running


def neoctl(cluster: Cluster, options: dict[str, str], *words: str) -> str:
    files = [word for name, path in options.items() for word in (f"--{name}", path)]
    command = [sys.executable, "-m", "neoctl", "-a", cluster.simple.admin_address, *files, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_cluster_on_ipv6(cluster: Cluster, options: dict[str, str]) -> None:
    scheme = "neos" if options else "neo"
    first, *_ = cluster.simple.masters.split()
    assert first.startswith("[::1]:")
    assert cluster.uri.startswith(f"{scheme}://neo@{first},[::1]:")
    factory, _ = zodburi.resolve_uri(cluster.uri)
    db = ZODB.DB(factory())
    try:
        with db.transaction() as connection:
            connection.root.number = 1
        cluster.simple.kill("storage1")
        with db.transaction(transaction.TransactionManager()) as connection:
            assert connection.root.number == 1
            connection.root.number = 2
        cluster.simple.restart("storage1")
        # The node copies from the other one what it missed.
        wait_until(
            lambda: neoctl(cluster, options, "status").count("UUUUUUUUUUUU") == 2,
            "storage1 does not replicate",
        )
        nodes = neoctl(cluster, options, "print", "node")
        assert nodes.count("| [::1]:") == 6 and "127.0.0.1" not in nodes
        with cluster.simple.admin() as admin:
            for kind in NodeType.MASTER, NodeType.STORAGE, NodeType.ADMIN:
                rows = admin.ask(AskNodeList(kind)).node_list
                assert rows and {row[1] and row[1][0] for row in rows} == {"::1"}
    finally:
        db.close()
