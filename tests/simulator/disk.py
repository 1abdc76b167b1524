"""Disks of simulated machines. They outlive processes; only what was synced survives a crash."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulator.disk_base import SimDisk
from tests.simulator.memory_disk import MemoryDisk
from tests.simulator.sqlite_disk import SQLiteDisk
from tests.simulator.world import World

#: Makers of disks by the name of their kind. The seed chooses parameters that are not given.
DISKS: dict[str, Callable[[World, str], SimDisk]] = {"memory": MemoryDisk, "sqlite": SQLiteDisk}


def disk_kind(world: World, name: str | None) -> Callable[[World, str], SimDisk]:
    """Return the named kind; without a name mostly the fast model, sometimes the real SQLite."""
    by_chance = "sqlite" if world.chance(0.2) else "memory"
    return DISKS[name or by_chance]


__all__ = ["DISKS", "MemoryDisk", "SQLiteDisk", "SimDisk", "disk_kind"]
