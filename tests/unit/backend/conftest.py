from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.mariadb import Server, mariadb_server  # noqa: F401
from tests.unit.backend.harness import Harness, harness


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Harness]:
    yield from harness("SQLite", str(tmp_path / "db"))


@pytest.fixture
def mariadb(mariadb_server: Server) -> Iterator[Harness]:  # noqa: F811
    yield from harness("MySQL", mariadb_server.create_database())


@pytest.fixture(params=["sqlite", "mariadb"])
def node(request: pytest.FixtureRequest) -> Harness:
    """The tests of the contract run on each backend."""
    made: Harness = request.getfixturevalue(request.param)
    return made
