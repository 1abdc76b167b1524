"""A simulated disk loses what was durable: the node refuses its database until it has it again."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from neo.storage.backend.api import WentBack
from neo.storage.backend.sqlite import position as sqlite_position
from tests.simulator.broken_promises import Promises
from tests.simulator.sqlite_disk import SQLiteDisk
from tests.simulator.world import Violation, World
from tests.unit.backend.harness import NP, UP
from tests.unit.sim.harness import Process, SimHarness

SEEDS = 24


def crashed(seed: int) -> SQLiteDisk:
    """A disk that lost something at the crash of its process, if the seed has something to lose."""
    disk = SQLiteDisk(World(seed), "disk")
    node = SimHarness(disk)
    backend = disk.open_backend(node.process, node.failures.append)
    backend.tables.change_cells(1, 0, [(p, 1, UP) for p in range(NP)], 1, True)
    disk.break_promise(Random(seed))
    for tid in range(1, 12):
        node.commit(backend, tid, {tid % 5: b"%d" % tid})
        node.wait(backend.engine.stored)
    node.process.dead = True
    disk.crash()
    return disk


def test_what_a_disk_lost_is_found_and_served_when_it_is_back() -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(SEEDS):
        disk = crashed(seed)
        try:
            disk.open_backend(Process(disk.world))
            outcomes["served"] += 1
        except WentBack as failure:
            assert str(disk.path) not in str(failure)
            outcomes["refused"] += 1
            disk.open_backend(Process(disk.world))
        assert {row[1] for row in disk.tables()["trans"]} == set(range(1, 12))
        disk.close()
    assert outcomes["refused"] > SEEDS / 2


def test_oracles_read_the_right_files_while_the_disk_has_damaged_ones() -> None:
    for seed in range(SEEDS):
        disk = crashed(seed)
        assert {row[1] for row in disk.tables()["trans"]} == set(range(1, 12))
        disk.close()


def test_the_oracle_notices_a_node_that_serves_with_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_position, "compare", lambda *args: None)
    noticed = 0
    for seed in range(SEEDS):
        disk = crashed(seed)
        try:
            disk.open_backend(Process(disk.world))
        except Violation as violation:
            assert "without what was acknowledged is served" in str(violation)
            noticed += 1
        disk.close()
    assert noticed > SEEDS / 2


def test_the_oracle_notices_a_node_that_refuses_what_is_whole() -> None:
    disk = SQLiteDisk(World(0), "disk")
    with pytest.raises(Violation, match="a database that lost nothing is refused"):
        Promises(disk).refused()
    disk.close()
