"""``neoctl check`` and ``repair`` of a backup whose only copy lost rows, and a clone of its only node.

With real processes and ``neoctl``.
"""

from __future__ import annotations

import configparser
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from neo.protocol.enums import CellState, ClusterState
from neo.protocol.packets import AskPartitionList
from tests.faults.damage import DAMAGED, LOSSES
from tests.faults.operator import findings, neoctl
from tests.faults.rows import cells
from tests.faults.sites import Site, follows, write
from tests.support.cluster import Cluster
from tests.support.ports import free_range
from tests.support.whole import few

PARTITIONS = 3


@pytest.fixture
def sites(request: pytest.FixtureRequest) -> Iterator[tuple[Site, Site]]:
    """Yield an upstream cluster and its backup."""
    backend = request.param
    with ExitStack() as stack:
        up = stack.enter_context(Cluster(1, backend, PARTITIONS, name="up"))
        settings = {"upstream_cluster": "up", "upstream_masters": up.simple.masters}
        bak = Cluster(1, backend, PARTITIONS, server=up.server, name="bak", settings=settings)
        stack.enter_context(bak)
        yield Site(up, {}), Site(bak, {})


def backup(up: Site, bak: Site) -> bytes:
    """Make ``bak`` a backup. Return its last tid."""
    with closing(up.db()) as db:
        tid = write(db, 20)
    bak.set_state(ClusterState.STARTING_BACKUP, ClusterState.BACKINGUP)
    follows(bak, tid)
    return tid


def come_back(site: Site, tid: bytes) -> None:
    site.cluster.simple.restart("storage1")
    follows(site, tid)
    site.wait(lambda: site.state() is ClusterState.BACKINGUP, "it does not follow again")


def found(admin: str) -> dict[str, str]:
    """Return the finding of the last check for the damaged partition."""
    (row,) = (r for r in neoctl(admin, "print", "check")["partitions"] if r["partition"] == DAMAGED)
    return dict(row)


@pytest.mark.parametrize("sites", few("sqlite", whole=["sqlite", "mariadb"]), indirect=True)
def test_the_only_copy_gets_back_what_it_lost(sites: tuple[Site, Site]) -> None:
    up, bak = sites
    tid = backup(up, bak)
    admin = bak.cluster.simple.admin_address
    assert findings(admin) == {"equal": PARTITIONS}
    assert bak.cluster.simple.terminate("storage1") == 0
    bak.cluster.query("storage1", *LOSSES)
    come_back(bak, tid)
    assert findings(admin) == {"undecided": 1, "equal": PARTITIONS - 1}
    assert found(admin)["text"].endswith(f"neoctl repair {DAMAGED}:S1")
    neoctl(admin, "repair", f"{DAMAGED}:S1")
    bak.wait(lambda: found(admin)["finding"] == "equal", "the repair does not end")
    assert findings(admin) == {"equal": PARTITIONS}
    bak.stop()
    up.stop()
    assert cells(bak.cluster.simple.conf.path) == cells(up.cluster.simple.conf.path)


@pytest.mark.parametrize("sites", few("mariadb", whole=["sqlite", "mariadb"]), indirect=True)
def test_a_copied_disk_becomes_a_node_of_the_backup(
    sites: tuple[Site, Site], tmp_path: Path
) -> None:
    up, bak = sites
    simple = bak.cluster.simple
    tid = backup(up, bak)
    assert simple.terminate("storage1") == 0
    copy = bak.cluster.copy("storage1", tmp_path)
    come_back(bak, tid)
    with closing(up.db()) as db:
        follows(bak, write(db))  # the copy lacks this
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(simple.conf.path)
    parser["storage2"] = {
        **dict(parser.items("storage1")),
        "bind": f"127.0.0.1:{free_range(1)}",
        "database": copy,
        "logfile": str(tmp_path / "storage2.log"),
    }
    if parser.has_option("storage2", "mark"):  # only with MariaDB
        parser["storage2"]["mark"] = str(tmp_path / "storage2.acknowledged")
        parser["storage2"]["blob_dir"] = str(tmp_path / "storage2.blobs")
    conf = tmp_path / "neo.conf"
    with open(conf, "w") as file:
        parser.write(file)
    command = [sys.executable, "-m", "neo.storage", "-f", str(conf), "-s", "storage2"]
    cloned = subprocess.run([*command, "--new-nid"], cwd=simple.folder)
    assert cloned.returncode == 0, (tmp_path / "storage2.log").read_text()

    def complete() -> bool:
        rows = bak.ask(AskPartitionList(0, 0, None)).row_list
        return all(
            [state for _, state in row] == [CellState.UP_TO_DATE, CellState.UP_TO_DATE]
            for row in rows
        )

    with subprocess.Popen(command, cwd=simple.folder) as node:
        try:
            bak.wait(complete, "the clone does not get what it lacks")
            assert bak.state() is ClusterState.BACKINGUP
            assert findings(simple.admin_address) == {"equal": PARTITIONS}
            with closing(up.db()) as db:
                follows(bak, write(db))
        finally:
            node.terminate()
            node.wait()
