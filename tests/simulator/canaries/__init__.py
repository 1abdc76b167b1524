"""Planted bugs, which prove that the simulator finds bugs.

Each canary replaces one piece of product code by a wrong one, as an error of a programmer would. It is
switched on by name (``--canary``), and must be found within its number of seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.simulator.canaries import (
    archives,
    backup,
    blobs,
    client,
    election,
    interrupts,
    kept,
    locks,
    maintenance,
    mark,
    master,
    old_disks,
    one_process,
    operation,
    operations,
    partitions,
    prepared,
    replication,
    scrub,
    single,
    storage,
    sync,
)
from tests.simulator.planting import Canary, plant

CANARIES: dict[str, Canary] = {
    canary.name: canary
    for module in (
        *(master, storage, client, replication, operation, backup, maintenance, election),
        *(old_disks, mark, scrub, locks, interrupts, prepared, sync, blobs, operations),
        *(partitions, archives, one_process, single, kept),
    )
    for canary in module.CANARIES
}


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Inside the block, plant the named bug, or none if there is no name."""
    with plant(CANARIES[name].patches() if name else []):
        yield


__all__ = ["CANARIES", "Canary", "planted"]
