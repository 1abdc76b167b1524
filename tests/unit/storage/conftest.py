from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from neo.storage.replication import replicator
from tests.support.mariadb import mariadb_server  # noqa: F401
from tests.unit.storage.lock_node import LockNode
from tests.unit.storage.world import C2, End, World


@pytest.fixture
def blob_dir() -> str | None:
    """Where the nodes of a test keep contents of blobs, if they do."""
    return None


@pytest.fixture
def make_world(tmp_path: Path, blob_dir: str | None) -> Iterator[Callable[[], World]]:
    """Make a node on the same database again, after the end of the one before."""
    worlds: list[World] = []

    def make() -> World:
        if worlds:
            worlds[-1].close()
        worlds.append(World(str(tmp_path / "node.sqlite"), blob_dir=blob_dir))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


@pytest.fixture(autouse=True)
def short_tails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replication begins with the last row of a cell: few rows are enough to see where it begins."""
    monkeypatch.setattr(replicator, "TAIL_LENGTH", 1)


@pytest.fixture
def world(make_world: Callable[[], World]) -> World:
    return make_world()


@pytest.fixture
def master(world: World) -> End:
    return world.operate()


@pytest.fixture
def client(world: World, master: End) -> End:
    return world.client(master)


@pytest.fixture
def other(world: World, master: End) -> End:
    return world.client(master, C2)


@pytest.fixture
def node() -> LockNode:
    return LockNode()
