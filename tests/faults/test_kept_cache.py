"""Caches that are kept in a folder, with real clusters: no wrong revision, whatever happened."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from persistent.list import PersistentList
from persistent.mapping import PersistentMapping
from transaction import TransactionManager
from ZODB.DB import DB

from tests.faults.operator import neoctl
from tests.support.cluster import Cluster
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.seeds import seed

OBJECTS = 300
#: Part of the loads that may go to the cluster after a restart.
COLD_PART = 0.02


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(storages=2) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def filled(cluster: Cluster) -> list[int]:
    """Give all objects new values, and return these."""
    with closing(DB(cluster.storage())) as db, db.transaction() as connection:
        values = list(range(OBJECTS))
        connection.root()["all"] = PersistentList(PersistentMapping(n=n) for n in values)
        connection.root()["own"] = 0
    return values


def change(cluster: Cluster, places: list[int], to: int) -> bytes:
    """Change some objects, each in a transaction. Return the last tid."""
    with closing(DB(cluster.storage())) as db:
        for place in places:
            with db.transaction() as connection:
                connection.root()["all"][place]["n"] = to
        return bytes(db.lastTransaction())


def command(cluster: Cluster, folder: Path, save_seconds: float = 0) -> list[str]:
    name = "tests.faults.cached_reader"
    return [sys.executable, "-m", name, cluster.uri, str(folder), str(save_seconds)]


def read(cluster: Cluster, folder: Path) -> tuple[list[int], int]:
    """Return what a process with the kept cache reads, and its loads from the cluster."""
    done = subprocess.run(
        command(cluster, folder), capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS
    )
    values, loads = json.loads(done.stdout)
    return values, loads


def files(folder: Path) -> set[tuple[str, int]]:
    """Return the names of the saved caches, and when each was saved."""
    return {(each.name, each.stat().st_mtime_ns) for each in folder.glob("*.cache")}


def test_after_a_restart_nearly_nothing_is_loaded(
    cluster: Cluster, filled: list[int], tmp_path: Path
) -> None:
    """Specification 16.47, 16.48: also after changes, an undo and a pack."""
    assert read(cluster, tmp_path) == (filled, OBJECTS + 2)
    values, loads = read(cluster, tmp_path)
    assert values == filled
    assert loads <= COLD_PART * OBJECTS
    places = [3, 4, 5]
    change(cluster, places, -1)
    values, loads = read(cluster, tmp_path)
    assert values == [-1 if n in places else n for n in filled]
    assert loads <= COLD_PART * OBJECTS + len(places)
    with closing(DB(cluster.storage())) as db:
        manager = TransactionManager()
        db.undo(db.undoLog(0, 1)[0]["id"], manager.get())
        manager.commit()
        db.pack()
    expected = [-1 if n in (3, 4) else n for n in filled]
    assert read(cluster, tmp_path)[0] == current(cluster) == expected
    values, loads = read(cluster, tmp_path)
    assert values == expected
    assert loads <= COLD_PART * OBJECTS


def current(cluster: Cluster) -> list[int]:
    """Return what a process without a kept cache reads."""
    with closing(DB(cluster.storage(cache_size=0))) as db, db.transaction() as connection:
        return [each["n"] for each in connection.root()["all"]]


def test_kill_processes_that_keep_their_caches(
    cluster: Cluster, filled: list[int], tmp_path: Path
) -> None:
    """Specification 16.49, 16.51: others commit meanwhile, and two processes run at a time."""
    random = Random(seed("KEPT"))
    expected = list(filled)
    for round_ in range(4):
        readers = [
            subprocess.Popen(command(cluster, tmp_path, 0.02), stdout=subprocess.PIPE, text=True)
            for _ in range(1 + round_ % 2)
        ]
        try:
            for reader in readers:
                assert reader.stdout is not None
                assert json.loads(reader.stdout.readline())[0] == expected
            place = random.randrange(OBJECTS)
            change(cluster, [place], round_)
            expected[place] = round_
            wait_until(lambda: list(tmp_path.glob("*.cache")), "a cache is saved")
        finally:
            for reader in readers:
                reader.kill()
                reader.communicate()
    values, loads = read(cluster, tmp_path)
    assert values == expected == current(cluster)
    assert loads <= COLD_PART * OBJECTS + 2  # the object that was changed last, and the root


def test_a_truncation_and_later_commits_are_noticed(cluster: Cluster, tmp_path: Path) -> None:
    """Specification 16.48."""
    kept = change(cluster, [1], 1000)
    change(cluster, [1, 2], 2000)
    before, _ = read(cluster, tmp_path)
    assert before[1:3] == [2000, 2000]
    neoctl(cluster.simple.admin_address, "truncate", f"0x{kept.hex()}")

    def truncated() -> bool:
        with closing(cluster.storage()) as storage:
            return bool(storage.lastTransaction() == kept)

    wait_until(truncated, "the database is truncated")
    change(cluster, [2], 3000)
    assert read(cluster, tmp_path)[0] == current(cluster)
    assert current(cluster)[1:3] == [1000, 3000]


def test_another_cluster_of_the_same_name_is_noticed(
    cluster: Cluster, tmp_path: Path, filled: list[int]
) -> None:
    """Specification 16.48."""
    change(cluster, [1], 1000)
    read(cluster, tmp_path)
    with Cluster(storages=1) as other:
        with closing(DB(other.storage())) as db, db.transaction() as connection:
            objects: Any = PersistentList(PersistentMapping(n=-n) for n in filled)
            connection.root()["all"] = objects
        assert read(other, tmp_path)[0] == [-n for n in filled]
    assert read(cluster, tmp_path)[0] == current(cluster)
