"""Figures of clients' caches, from the client through master and admin node (specification 17.65)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ZODB.utils import maxtid, p64

from neo.protocol.packets import AnswerClientCaches, AskClientCaches, CacheRow, Message
from tests.simulator.cluster import Cluster, Shape
from tests.simulator.console import Command
from tests.simulator.memory_disk import MemoryDisk
from tests.simulator.run import Options
from tests.simulator.trial import attempt
from tests.simulator.world import World
from tests.unit.client.committing import finish, storing

CAPACITY = 100_000
#: Figures are asked for three times a second, and all commits are traced.
SEED = 20000004


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    world = World(1)
    cluster = Cluster(world, Shape(1, 2), lambda name: MemoryDisk(world, name))
    cluster.start()
    yield cluster
    for disk in cluster.disks.values():
        disk.close()


def started(cluster: Cluster, work: Callable[[Any], None]) -> Any:
    """Start a client that works, and then keeps its storage open. Return its process."""
    process = cluster.client()
    working = [True]

    def run() -> None:
        storage = cluster.storage(process, cache_size=CAPACITY)
        work(storage)
        working.clear()
        storage._session.host.sleep(1000.0)

    process.spawn(run)
    cluster.world.run_until(lambda: not working, 60.0, "the client has worked")
    return process


def caches(cluster: Cluster) -> list[CacheRow]:
    heard: list[Message | None] = []
    Command(cluster, AskClientCaches(), heard.append)
    cluster.world.run_until(lambda: bool(heard), 60.0, "an answer")
    (answer,) = heard
    assert isinstance(answer, AnswerClientCaches)
    return answer.row_list


def test_an_idle_client_tells_what_its_cache_did(cluster: Cluster) -> None:
    def work(storage: Any) -> None:
        finish(storage, storing(storage, p64(2), b"data"))
        for _ in range(3):
            storage.loadBefore(p64(2), maxtid)  # from its own commit

    def read(storage: Any) -> None:
        for _ in range(5):
            storage.loadBefore(p64(2), maxtid)  # the first one from the storage node

    process, reader = started(cluster, work), started(cluster, read)
    first, second = caches(cluster)
    for row, name, hits, misses in ((first, process.name, 3, 0), (second, reader.name, 4, 1)):
        assert row[1:3] == (name, CAPACITY) and 0 < row[3] < CAPACITY
        assert row[4:] == (1, hits, misses)


def test_a_client_that_stands_still_delays_an_answer_once(cluster: Cluster) -> None:
    process, other = (started(cluster, lambda storage: None) for _ in range(2))
    process.pause()
    world = cluster.world
    begin = world.now
    assert [row[1] for row in caches(cluster)] == [other.name]
    waited = world.now
    assert [row[1] for row in caches(cluster)] == [other.name]
    assert world.now - waited < 0.5 < waited - begin
    process.resume()
    world.run(1.0)
    assert [row[1] for row in caches(cluster)] == [process.name, other.name]


def test_monitored_runs_are_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    """Two runs of a seed are the same, with figures asked for and spans recorded."""
    options = Options(
        seconds=1.0, monitored=True, workloads=("bank",), storages=1, masters=1, backup=False,
        archives=False, operations=False,
    )  # fmt: skip
    assert "--monitored yes" in options.arguments()
    trial = attempt(SEED, options)
    assert trial.result is not None, trial.report(20)
