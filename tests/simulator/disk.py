"""Disks of simulated machines: they outlive processes, and keep of a crash only what was synced."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulator.disk_base import SimDisk
from tests.simulator.memory_disk import MemoryDisk
from tests.simulator.sqlite_disk import SQLiteDisk
from tests.simulator.world import World

#: Makers of disks by the name of their kind. What is not given comes from the seed.
DISKS: dict[str, Callable[[World, str], SimDisk]] = {"memory": MemoryDisk, "sqlite": SQLiteDisk}


def disk_kind(world: World, name: str | None) -> Callable[[World, str], SimDisk]:
    """The named kind; else mostly the fast model, sometimes the real SQLite."""
    by_chance = "sqlite" if world.chance(0.2) else "memory"
    return DISKS[name or by_chance]


__all__ = ["DISKS", "MemoryDisk", "SQLiteDisk", "SimDisk", "disk_kind"]
