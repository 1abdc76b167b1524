"""``neoctl replace``, ``add`` and ``remove`` with real processes (specification 27.70 to 27.78).

Nodes come and go while clients write, and any process is killed at any moment: all or nothing, and
nothing that was acknowledged is lost.

``NEO_OPERATION_ROUNDS`` and ``NEO_OPERATION_SEED`` choose a longer run, or repeat one.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ZODB.blob import Blob
from ZODB.DB import DB

from tests.faults.load import WRITERS, Load, check
from tests.faults.operations import begun, ended, wait_moment
from tests.faults.operator import neoctl, wait_for
from tests.faults.writer import prepare
from tests.support.cluster import Cluster
from tests.support.patience import PATIENCE_SECONDS
from tests.support.seeds import seed
from tests.support.standstill import stand_still
from tests.support.whole import few

ROUNDS = int(os.environ.get("NEO_OPERATION_ROUNDS", "2"))


class Nodes:
    """The storage nodes as the operator sees them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.admin = cluster.simple.admin_address

    def states(self) -> dict[str, str]:
        rows = neoctl(self.admin, "print", "node", "storage")["nodes"]
        return {row["nid"]: row["state"] for row in rows}

    def process(self, nid: str) -> str:
        """Return the name of the process of a node."""
        rows = neoctl(self.admin, "print", "node", "storage")["nodes"]
        (address,) = (row["address"] for row in rows if row["nid"] == nid)
        storages = self._cluster.simple.conf.of_role("storage")
        (name,) = (
            node.name for node in storages if address == f"{node.address[0]}:{node.address[1]}"
        )
        return name

    def cells(self) -> list[dict[str, str]]:
        return [row["cells"] for row in neoctl(self.admin, "print", "pt")["partitions"]]

    def with_cells(self) -> set[str]:
        return {nid for row in self.cells() for nid in row}

    def restart_what_ended(self) -> None:
        """Start the nodes that were dropped: they are new ones."""
        simple = self._cluster.simple
        for name, process in list(simple.processes.items()):
            if process.poll() is not None:
                assert process.returncode in (0, -9), name
                simple.restart(name)

    def newcomer(self) -> str:
        """Return a connected node without cells."""

        def found() -> list[str]:
            self.restart_what_ended()
            states, busy = self.states(), self.with_cells()
            return [n for n, state in states.items() if n not in busy and state != "DOWN"]

        return str(wait_for(found, lambda: "no new node comes")[0])

    def wait_complete(self, copies: int) -> None:
        wait_for(
            lambda: all([*row.values()] == ["UP_TO_DATE"] * copies for row in self.cells()),
            lambda: f"not all cells are complete: {self.cells()}",
        )


#: The database and the number of masters of a cluster.
ONE, THREE = ("sqlite", 1), ("mariadb", 3)


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    backend, masters = request.param
    with Cluster(storages=3, partitions=6, replicas=1, masters=masters, backend=backend) as running:
        yield running


@pytest.fixture
def load(cluster: Cluster, tmp_path: Path) -> Iterator[Load]:
    """Clients that write all the time."""
    prepare(cluster.storage(), WRITERS)
    running = Load(cluster, tmp_path)
    running.start()
    try:
        running.wait_commits(1)
        yield running
    finally:
        running.stop()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("cluster", few(THREE, whole=[ONE, THREE]), indirect=True)
def test_kill_any_process_while_nodes_are_replaced(cluster: Cluster, load: Load) -> None:
    """The partition table is as it was, or as it is to be, never between; nothing is lost, and clients go
    on without an operator."""
    chance, nodes = random.Random(seed("OPERATION")), Nodes(cluster)
    names = [name for name in cluster.simple.processes if name != "admin"]
    with closing(DB(cluster.storage(wait_timeout=PATIENCE_SECONDS))) as db:
        with db.transaction() as connection:
            for number in range(20):
                connection.root()[number] = Blob(chance.randbytes(chance.randrange(50_000)))
        assert neoctl(nodes.admin, "remove", "S3")["state"] == "SUCCEEDED"
        for _ in range(ROUNDS):
            play(cluster, nodes, chance.choice(names), chance)
            load.wait_commits(1)
            check(cluster, load)
        with db.transaction() as connection:
            for number in range(20):
                with connection.root()[number].open() as file:
                    file.read()


def play(cluster: Cluster, nodes: Nodes, victim: str, chance: random.Random) -> None:
    """Replace a node while a process is killed, and check the partition table."""
    new = nodes.newcomer()
    nodes.wait_complete(2)
    before = nodes.with_cells()
    old = chance.choice(sorted(before))
    after = before - {old} | {new}
    earlier = ended(cluster)
    with begun(cluster, "replace", old, new) as process:
        wait_moment(cluster, process, chance)
        cluster.simple.kill(victim)
        cluster.simple.restart(victim)
    ended(cluster)
    nodes.restart_what_ended()
    nodes.wait_complete(2)
    last = ended(cluster)
    found = nodes.with_cells()
    print(victim, old, new, last and last["state"])
    if last is not None and last != earlier:  # else it was refused
        wanted = after if last["state"] == "SUCCEEDED" else before
        assert found == wanted, (old, new, victim, last)
    assert found in (before, after), (old, new, victim, last)


@pytest.mark.parametrize("cluster", few(ONE, whole=[ONE, THREE]), indirect=True)
def test_a_move_is_aborted_while_its_new_node_is_down(cluster: Cluster) -> None:
    """Specification 27.34, 27.74: the way back needs no node but those that stay."""
    nodes = Nodes(cluster)
    with closing(DB(cluster.storage(wait_timeout=PATIENCE_SECONDS))):
        neoctl(nodes.admin, "remove", "S3")
        new = nodes.newcomer()
        nodes.wait_complete(2)
        before, process = nodes.cells(), nodes.process(new)
        sources = [cluster.simple.processes[nodes.process(nid)].pid for nid in ("S1", "S2")]
        with begun(cluster, "replace", "S1", new):
            for pid in sources:  # so that nothing is copied
                stand_still(pid)
            running = wait_for(lambda: operations(nodes, "RUNNING"), lambda: "it does not begin")
            wait_for(lambda: new in nodes.with_cells(), lambda: "no cell is given")
            cluster.simple.kill(process)
            neoctl(nodes.admin, "abort", str(running[0]["id"]))
            for pid in sources:
                os.kill(pid, signal.SIGCONT)
            wait_for(lambda: nodes.cells() == before, lambda: "the table is not as before")
            assert operations(nodes, "ROLLING_BACK")  # it waits for the new node
            cluster.simple.restart(process)
        assert ended(cluster, running[0]["id"])["state"] == "FAILED"
        assert nodes.cells() == before


def operations(nodes: Nodes, state: str) -> list[Any]:
    rows = neoctl(nodes.admin, "print", "operations")["operations"]
    return [row for row in rows if row["state"] == state]
