from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from neo.client import NEOStorage
from tests.support.mariadb import Server, running_server
from tests.support.whole import few
from tests.zodb.embedded_fleet import EmbeddedFleet
from tests.zodb.fleet import Fleet

GetFleet = Callable[..., Fleet]
#: Every cluster has a synchronous backup (docs/testing.md).
SYNC = bool(os.environ.get("NEO_ZODB_SYNC"))
BACKENDS = ("sqlite", "mariadb", "embedded")
#: For a test of the client alone, whatever the database of its cluster is.
on_one_backend = pytest.mark.parametrize("cluster", few("sqlite", whole=BACKENDS), indirect=True)


@pytest.fixture(scope="session")
def fleets() -> Iterator[GetFleet]:
    """Return the function from (storages, backend, number, replicas, sync) to the process that runs such
    clusters, started on demand."""
    running: dict[tuple[int, str, int, int, bool], Fleet] = {}
    servers: list[Server] = []
    with ExitStack() as stack:

        def get(
            storages: int, backend: str, number: int = 0, replicas: int = 0, sync: bool = SYNC
        ) -> Fleet:
            key = storages, backend, number, replicas, sync
            if key not in running:
                if backend == "mariadb" and not servers:
                    servers.append(stack.enter_context(running_server()))
                server = servers[0] if backend == "mariadb" else None
                kind = EmbeddedFleet if backend == "embedded" else Fleet
                fleet = kind(storages, backend, server, replicas, sync=sync)
                running[key] = stack.enter_context(fleet)
            return running[key]

        yield get


@pytest.fixture(params=few("sqlite", "mariadb", whole=BACKENDS))
def cluster(fleets: GetFleet, request: pytest.FixtureRequest) -> Fleet:
    fleet = fleets(3, request.param, 0)
    fleet.start()
    return fleet


@pytest.fixture
def storage(cluster: Fleet) -> Iterator[NEOStorage]:
    storage = cluster.storage()
    yield storage
    storage.close()
