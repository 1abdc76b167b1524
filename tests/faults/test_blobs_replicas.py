"""Contents of blobs follow cells to other nodes and to a backup, through kills."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest
from ZODB.DB import DB

from neo.protocol.enums import ClusterState
from neo.protocol.packets import SetNumReplicas, TweakPartitionTable
from neo.simple.cluster import ClusterError
from tests.faults.contents import MIB, Made, check_folder, check_fresh, files, folder, parts, put
from tests.faults.sites import Site, follows
from tests.faults.states import ask, complete, table
from tests.support.cluster import Cluster
from tests.support.patience import wait_until

LARGE = {f"large {number}": Made(f"large {number}", 48 * MIB) for number in range(3)}
SMALL = {f"small {number}": Made(f"small {number}", 10_000 * number + 1) for number in range(20)}
#: A fetch is interrupted when so much of a large content is there.
INTERRUPTED_BYTES = 16 * MIB


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(storages=2, partitions=2, replicas=request.param) as running:
        yield running


def only_on(cluster: Cluster, nid: int, other: int) -> None:
    """Move all cells to one node."""
    ask(cluster, SetNumReplicas(0))
    ask(cluster, TweakPartitionTable(False, [other]))
    wait_until(
        lambda: complete(cluster, 1) and all(list(row) == [nid] for row in table(cluster)),
        f"node {other} is not emptied",
    )


def names(cluster: Cluster) -> dict[int, str]:
    """Return the names of both storage nodes by their ids, which are given in the order of arrival."""
    found = {cluster.query(name, "SELECT value FROM config WHERE name='nid'")[0][0]: name
             for name in ("storage1", "storage2")}  # fmt: skip
    return {int(nid): name for nid, name in found.items()}


def half_fetched(cluster: Cluster, name: str) -> tuple[str, os.stat_result]:
    """Wait until a node has fetched a part of a large content."""

    def large() -> tuple[str, os.stat_result] | None:
        found = parts(cluster, name).items()
        return next(((part, s) for part, s in found if s.st_size >= INTERRUPTED_BYTES), None)

    return wait_until(large, f"{name} does not fetch", poll=0.0)


def written(cluster: Cluster, name: str) -> int:
    """Return the bytes that a process wrote into files and connections."""
    text = Path(f"/proc/{cluster.pids()[name]}/io").read_text()
    return int(text.partition("wchar:")[2].split()[0])


@pytest.mark.parametrize("cluster", [0], indirect=True)
def test_cells_with_blobs_move_to_another_node_which_is_killed_meanwhile(cluster: Cluster) -> None:
    """The node goes on with the content where it was. Then the old node is dropped."""
    old, new = 1, 2
    name_of = names(cluster)
    only_on(cluster, old, new)
    contents = LARGE | SMALL
    with closing(DB(cluster.storage())) as db:
        put(db, contents)
    assert check_folder(cluster, name_of[new]) == 0

    ask(cluster, SetNumReplicas(1))
    ask(cluster, TweakPartitionTable(False, []))
    part, before = half_fetched(cluster, name_of[new])
    cluster.simple.kill(name_of[new])
    at_kill = parts(cluster, name_of[new]).get(part)
    assert at_kill is not None, "it was too fast: the content was complete"
    cluster.simple.restart(name_of[new])
    wait_until(lambda: complete(cluster, 2), "the cells are not copied")
    total = sum(made.size for made in contents.values())
    assert written(cluster, name_of[new]) < total - INTERRUPTED_BYTES // 2, "it began anew"
    assert check_folder(cluster, name_of[new]) == len(contents)

    only_on(cluster, new, old)
    cluster.simple.kill(name_of[old])
    check_fresh(cluster, contents)
    cluster.simple.restart(name_of[old])
    wait_until(lambda: not files(cluster, name_of[old]), "the contents of dropped cells stay")
    assert check_folder(cluster, name_of[old]) == 0


def test_a_backup_gets_contents_and_takes_over() -> None:
    before = SMALL | {"large": Made("large", 20 * MIB)}
    after = {f"after {number}": Made(f"after {number}", MIB) for number in range(5)}
    with ExitStack() as stack:
        up = Site(stack.enter_context(Cluster(1, partitions=4, name="up")), {})
        shape: dict[str, Any] = {"partitions": 4, "replicas": 1, "name": "bak"}
        settings = {"upstream_cluster": "up", "upstream_masters": up.cluster.simple.masters}
        bak = Site(stack.enter_context(Cluster(2, settings=settings, **shape)), {})
        with closing(up.db()) as db:
            put(db, before)
            bak.set_state(ClusterState.STARTING_BACKUP, ClusterState.BACKINGUP)
            follows(bak, put(db, after))
            check_fresh(bak.cluster, before | after)
            bak.cluster.simple.kill("storage1")
            last = {"last": Made("last", 3 * MIB)}
            tid = put(db, last)
            bak.cluster.simple.restart("storage1")
            follows(bak, tid)
        up.cluster.simple.stop()
        bak.set_state(ClusterState.STOPPING_BACKUP, ClusterState.RUNNING)
        contents = before | after | last
        for name in ("storage1", "storage2"):
            assert check_folder(bak.cluster, name) == len(contents)
        with closing(bak.db()) as db:
            put(db, {"own": Made("own", 10)})
        check_fresh(bak.cluster, contents | {"own": Made("own", 10)})


@pytest.mark.parametrize("cluster", [1], indirect=True)
def test_an_empty_folder_is_refused_unless_contents_shall_be_fetched(cluster: Cluster) -> None:
    simple = cluster.simple
    with closing(DB(cluster.storage())) as db:
        put(db, SMALL)
    assert simple.terminate("storage1") == 0
    here = folder(cluster, "storage1")
    here.rename(here.with_name("unmounted"))
    here.mkdir()
    with suppress(ClusterError):  # the node may have ended before the test sees it listen
        simple.restart("storage1")
    process = simple.processes["storage1"]
    wait_until(lambda: process.poll() == 1, "it starts without its contents")
    said = simple.log("storage1").read_text()
    assert str(here) in said and "fetch_blobs" in said.replace("-", "_"), said[-2000:]
    simple.kill("storage1")
    check_fresh(cluster, SMALL)

    conf = simple.conf.path
    conf.write_text(conf.read_text().replace("[storage1]", "[storage1]\nfetch_blobs = true"))
    simple.restart("storage1")
    wait_until(lambda: complete(cluster, 2), "it does not come back")
    wait_until(lambda: len(files(cluster, "storage1")) == len(SMALL), "it is not filled")
    assert check_folder(cluster, "storage1") == len(SMALL)
    simple.kill("storage2")
    check_fresh(cluster, SMALL)
