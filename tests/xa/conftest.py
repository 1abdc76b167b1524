from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.postgres import Server, running_server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture
def postgres(postgres_server: Server) -> Server:
    """Return a server with nothing in its database."""
    held = postgres_server.query("SELECT gid FROM pg_prepared_xacts")
    postgres_server.query(*(f"ROLLBACK PREPARED '{gid}'" for (gid,) in held), "SELECT 1")
    postgres_server.query("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    return postgres_server
