from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.storage.world import End, World

Make = Callable[[], World]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
def make(tmp_path: Path, folder: Path) -> Iterator[Make]:
    """Make the node again, after the end of the one before."""
    worlds: list[World] = []

    def make() -> World:
        worlds.append(World(str(tmp_path / "node.sqlite"), blob_dir=str(folder)))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


@pytest.fixture
def world(make: Make) -> World:
    return make()


@pytest.fixture
def master(world: World) -> End:
    return world.operate()


@pytest.fixture
def client(world: World, master: End) -> End:
    return world.client(master)
