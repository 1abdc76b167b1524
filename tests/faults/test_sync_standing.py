"""A storage node of a synchronous backup is stopped, while its master lives (specification 25.65).

Transactions wait for it once, and not again each time that the backup joins.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from neo.protocol.enums import ClusterState
from neo.protocol.packets import AskSync, SyncRow
from tests.faults.sites import Site
from tests.support.cluster import Cluster
from tests.support.standstill import stand_still

#: The least that is allowed, in seconds.
SYNC_TIMEOUT = 2.0
#: A vote waits 3 seconds for the node (specification 25.8), then the commit for SYNC_TIMEOUT and a lease.
#: A busy machine needs some seconds more.
STALL_SECONDS = 3 + SYNC_TIMEOUT + 2.1 + 5
#: Commits after the first one: the backup could join several times meanwhile.
COMMITS = 30


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[tuple[Site, Site]]:
    """A cluster, and its synchronous backup."""
    with ExitStack() as stack:
        def site(name: str, **settings: str) -> Site:
            cluster = Cluster(2, partitions=4, folder=tmp_path / name, name=name, settings=settings)
            return Site(stack.enter_context(cluster), {})

        east = site("east", sync_backups="west", sync_timeout=f"{SYNC_TIMEOUT:g}")
        masters = east.cluster.simple.masters
        west = site("west", upstream_cluster="east", upstream_masters=masters, sync="true")
        west.set_state(ClusterState.STARTING_BACKUP, ClusterState.BACKINGUP)
        east.wait(lambda: row(east)[1] == "sync", "the backup does not come into sync")
        yield east, west


def row(east: Site) -> SyncRow:
    (found,) = east.ask(AskSync()).backup_list
    return found


@pytest.mark.timeout(120)
def test_commits_wait_once_for_a_backup_whose_node_stands_still(sites: tuple[Site, Site]) -> None:
    """Specification 25.65, 25.66."""
    east, west = sites
    pid = west.cluster.pids()["storage1"]
    with closing(east.db()) as db:
        with db.transaction() as connection:
            connection.root()["count"] = 0
        stand_still(pid)
        try:
            longest, begin = 0.0, time.monotonic()
            for _ in range(COMMITS):
                before = time.monotonic()
                with db.transaction() as connection:
                    connection.root()["count"] += 1
                longest = max(longest, time.monotonic() - before)
            seconds = time.monotonic() - begin
            east.wait(lambda: row(east)[1] == "async", "it does not say that it goes on without it")
            west.wait(lambda: "owes its master an answer" in own(west), "the node is not named")
        finally:
            os.kill(pid, signal.SIGCONT)
        print(f"longest {longest:.2f} s, {COMMITS} commits {seconds:.2f} s")
        assert longest < STALL_SECONDS
        assert seconds < STALL_SECONDS + 3.0, "commits wait for it again and again"
        east.wait(lambda: row(east)[1] == "sync", "the backup does not come back")


def own(west: Site) -> str:
    found = west.ask(AskSync()).own
    assert found is not None
    return found[5]


@pytest.mark.timeout(120)
def test_until_when_it_was_in_sync_survives_the_end_of_all_its_processes(
    sites: tuple[Site, Site],
) -> None:
    """Specification 25.68: the upstream cluster is lost, and the backup was restarted."""
    east, west = sites
    with closing(east.db()) as db, db.transaction() as connection:
        connection.root()["count"] = 0
    begin = time.time()
    west.wait(lambda: remembered(west) > begin, "nothing is written")
    for site in sites:
        for name in list(site.cluster.simple.processes):
            site.cluster.simple.kill(name)
    killed = time.time()
    simple = west.cluster.simple
    for name in ("master1", "admin"):
        simple.restart(name)
    west.wait(lambda: "its storage nodes know" in own(west), "it does not say who knows")
    simple.restart("storage1")
    west.wait(lambda: away(west) is not None, "what a storage node remembers is not told")
    until = time.time() - (away(west) or 0.0)
    assert begin <= until <= killed
    simple.restart("storage2")
    west.wait(lambda: west.state() is ClusterState.STARTING_BACKUP, "it does not start")
    again = time.time() - (away(west) or 0.0)
    assert begin <= again <= killed


def remembered(west: Site) -> float:
    rows = west.cluster.query("storage1", "SELECT value FROM config WHERE name='_sync_until'")
    return float(rows[0][0]) if rows else 0.0


def away(west: Site) -> float | None:
    found = west.ask(AskSync()).own
    return None if found is None else found[4]
