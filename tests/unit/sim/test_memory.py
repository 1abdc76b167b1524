"""The backend in memory keeps the promises of every backend, and complains about misuse."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from hashlib import sha1
from typing import Any

import pytest

from neo.storage.backend.api import Backend, BackendFailure, BackendRefused, Stored, TransactionMeta
from tests.simulator.memory_disk import MemoryDisk
from tests.simulator.world import Violation, World
from tests.support.patience import unit
from tests.unit.backend.harness import Harness, p64
from tests.unit.backend.model import run_machine
from tests.unit.sim.harness import SimHarness, contract_tests

LAGS = pytest.mark.parametrize("lag", [0.0, 0.01], ids=["at once", "later"])

globals().update(contract_tests())


#: They read what they wrote without waiting for its execution.
AT_ONCE_ONLY = {"test_a_dropped_partition_is_deleted_in_steps"}


@pytest.fixture(params=[0.0, 0.01], ids=["at once", "later"])
def node(request: pytest.FixtureRequest) -> Iterator[SimHarness]:
    lag = 0.0 if request.function.__name__ in AT_ONCE_ONLY else request.param
    made = SimHarness(MemoryDisk(World(1), "disk", lag, dedup=False))
    yield made
    made.close()


def test_most_of_the_contract_is_tested_here() -> None:
    assert "test_undo_goes_back_along_origins" in globals()
    assert sum(name.startswith("test_") for name in globals()) > 40


@LAGS
@pytest.mark.parametrize("dedup", [False, True], ids=["plain", "dedup"])
def test_memory_behaves_as_the_model(lag: float, dedup: bool) -> None:
    run_machine(SimHarness(MemoryDisk(World(1), "disk", lag, dedup)), dedup, 40)


@pytest.fixture
def memory() -> SimHarness:
    return SimHarness(MemoryDisk(World(1), "disk", 0.0, dedup=False))


# -- visibility and durability -------------------------------------------------------------------


def test_with_lag_a_write_is_not_visible_before_it_is_executed() -> None:
    node = SimHarness(MemoryDisk(World(1), "disk", 0.01, dedup=False))
    backend = node.ready()
    node.vote(backend, 10, {4: b"x"})
    backend.commits.unlock(p64(10), p64(13))
    assert backend.reads.load(p64(4), None, None) is None
    node.wait(backend.engine.executed)
    assert backend.reads.load(p64(4), None, None).data == b"x"


def test_commits_that_come_during_a_sync_share_the_next_one(memory: SimHarness) -> None:
    world, backend = memory.disk.world, memory.ready()
    memory.wait(backend.engine.stored)
    done: list[float] = []
    for i in range(100):
        backend.tables.set_config("x", str(i))
        backend.engine.stored(lambda: done.append(world.now))
    memory.run_until(lambda: len(done) == 100)
    assert done[0] > 0
    assert len(set(done)) == 2


def test_a_slow_disk_takes_its_time(memory: SimHarness) -> None:
    backend = memory.ready()
    memory.disk.slow = 5.0
    memory.wait(backend.engine.stored)
    assert memory.disk.world.now > 5


# -- misuse --------------------------------------------------------------------------------------


def stored_data(node: Harness, backend: Backend) -> int:
    return node.store_data(backend, 4, b"x")


MISUSES: dict[str, Callable[[Harness, Any, int], object]] = {
    "a release too many": lambda node, b, i: (b.release_data([i]), b.release_data([i])),
    "a release of unknown data": lambda node, b, i: b.release_data([i + 1]),
    "a read of unknown data": lambda node, b, i: b.load_data(i + 1),
    "a vote with unknown data": lambda node, b, i: b.vote(p64(9), None, [Stored(p64(4), 7, None)]),
    "data in two votes": lambda node, b, i: [
        b.vote(p64(ttid), None, [Stored(p64(4), i, None)]) for ttid in (9, 12)
    ],
    "data released after the vote": lambda node, b, i: (
        b.vote(p64(9), None, [Stored(p64(4), i, None)]),
        b.release_data([i]),
    ),
    "an object voted twice": lambda node, b, i: [
        b.vote(p64(9), None, [Stored(p64(4), None, None)]) for _ in range(2)
    ],
    "metadata voted twice": lambda node, b, i: [
        b.vote(p64(9), TransactionMeta(b"", b"", b"", []), []) for _ in range(2)
    ],
    "another tid than the one locked": lambda node, b, i: (
        node.vote(b, 9, {4: b"y"}),
        b.lock(p64(9), p64(12)),
        b.unlock(p64(9), p64(15)),
    ),
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_misuse_is_a_violation(memory: SimHarness, misuse: str) -> None:
    backend = memory.ready()
    data_id = stored_data(memory, backend)
    with pytest.raises(Violation):
        MISUSES[misuse](memory, backend, data_id)


def test_a_reference_that_is_never_given_back_is_a_violation(memory: SimHarness) -> None:
    backend = memory.ready()
    memory.commit(backend, 10, {4: b"x"})
    memory.disk.check()
    backend.reads.value_at(p64(4), p64(10))
    with pytest.raises(Violation, match="held for no transaction"):
        memory.disk.check()


def test_too_long_a_description_is_refused(memory: SimHarness) -> None:
    backend = memory.ready()
    with pytest.raises(BackendRefused, match="description"):
        backend.commits.vote(p64(9), TransactionMeta(b"", bytes(1 << 17), b"", []), [])


def test_a_process_that_was_killed_cannot_use_its_database(memory: SimHarness) -> None:
    backend = memory.ready()
    memory.disk.crash()
    with pytest.raises(BackendFailure, match="not open"):
        backend.engine.stored(lambda: None)
    memory.open()


# -- speed ---------------------------------------------------------------------------------------


def test_a_transaction_costs_little(memory: SimHarness) -> None:
    """About 20 us each for two objects, in the quickest of five rounds; a slow machine gets more."""
    backend = memory.ready()
    checksum = sha1(b"x").digest()
    best = 1.0
    for attempt in range(5):
        start = time.perf_counter()
        for tid in range(1000 * attempt, 1000 * attempt + 1000):
            oids = [p64(tid % 50), p64(tid % 50 + 1)]
            stored = [Stored(o, backend.values.store_data(o, 0, checksum, b"x"), None) for o in oids]
            backend.commits.vote(p64(tid), TransactionMeta(b"", b"", b"", oids), stored)
            backend.commits.lock(p64(tid), p64(tid))
            backend.commits.unlock(p64(tid), p64(tid))
        best = min(best, (time.perf_counter() - start) / 1000)
    assert best < 0.0003 * unit()
