"""``neoctl upgrade`` restarts the storage nodes of a cluster that serves, one after the other
(specification 27.80 to 27.83)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.load import Load
from tests.faults.operator import neoctl
from tests.faults.writer import prepare
from tests.support.cluster import Cluster
from tests.support.whole import few


@pytest.mark.parametrize(
    ("backend", "masters"), few(("sqlite", 1), whole=[("sqlite", 1), ("mariadb", 3)])
)
def test_all_nodes_begin_anew_while_clients_write(
    backend: str, masters: int, tmp_path: Path
) -> None:
    with Cluster(storages=3, partitions=6, replicas=1, backend=backend, masters=masters) as cluster:
        admin = cluster.simple.admin_address
        load = Load(cluster, tmp_path)
        prepare(cluster.storage(), len(load.ledgers))
        before = {name: process.pid for name, process in cluster.simple.processes.items()}
        load.start()
        try:
            load.wait_commits(3)
            steps = neoctl(admin, "upgrade", "-n")["steps"]
            assert [step["name"] for step in steps[:2]] == [
                "begin anew",
                "wait until it is up to date",
            ]
            done = neoctl(admin, "upgrade")
            assert done["state"] == "SUCCEEDED", done
            load.wait_commits(3)
        finally:
            load.stop()
        cluster.simple.check()  # no process has ended
        assert before == {name: p.pid for name, p in cluster.simple.processes.items()}
        for number in (1, 2, 3):
            text = cluster.simple.log(f"storage{number}").read_text()
            assert text.count("this process begins anew") == 1, text
            assert text.count("listening on") == 2, text
        cells = [row["cells"] for row in neoctl(admin, "print", "pt")["partitions"]]
        assert all([*row.values()] == ["UP_TO_DATE"] * 2 for row in cells)


def test_a_node_that_is_needed_is_not_restarted() -> None:
    """Specification 27.80."""
    with Cluster(storages=2, partitions=2) as cluster:
        with pytest.raises(AssertionError, match="without S1 some partitions cannot be read"):
            neoctl(cluster.simple.admin_address, "upgrade")
