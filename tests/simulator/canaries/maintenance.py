"""Bugs of checks, repairs, packs and truncations, and of the connections that they use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.enums import CellState
from neo.protocol.ids import MAX_TID, ZERO_OID, add64
from neo.protocol.packets import AskCheckSerialRange
from neo.storage.backend.maintenance import Maintenance
from neo.storage.backend.tables import Tables
from neo.storage.links import Links
from neo.storage.maintenance.check import Comparison
from neo.storage.maintenance.pack import Packer
from neo.storage.replication import replicator
from neo.storage.replication.fetch import Fetch
from tests.simulator.planting import Canary, Patch

REPLICAS: dict[str, Any] = {
    "faults": ("none",),
    "disk": "memory",
    "storages": 2,
    "replicas": 1,
    "seconds": 3.0,
    "workloads": ("bank",),
}
#: Options for runs in which all nodes compare with all others.
CROSSED = REPLICAS | {"storages": 4, "replicas": 3}
PACKS: dict[str, Any] = {
    "faults": ("kill-server",),
    "disk": "memory",
    "seconds": 10.0,
    "workloads": ("pack",),
}


def _objects_not_compared() -> list[Patch]:
    original = Comparison._agreed

    async def agreed(self: Comparison, request: Any) -> Any:
        return None if type(request) is AskCheckSerialRange else await original(self, request)

    return [(Comparison, "_agreed", agreed)]


def _repair_from_the_last_tid() -> list[Patch]:
    original = Tables._tid_when_outdated

    def tid_when_outdated(self: Tables, partition: int, nid: int) -> int:
        if self._cells.get((partition, nid)) == -CellState.CORRUPTED.value:
            return self._complete_up_to(partition)
        return original(self, partition, nid)

    return [(Tables, "_tid_when_outdated", tid_when_outdated)]


def _resumed_too_far() -> list[Patch]:
    original = Packer._start_oid

    def start_oid(self: Packer, partition: int) -> bytes:
        oid = original(self, partition)
        return oid if oid == ZERO_OID else add64(oid, 2 * len(self.cells.partitions))

    return [(Packer, "_start_oid", start_oid)]


def _not_compared_again() -> list[Patch]:
    async def pack_tid(self: Fetch) -> int:
        return self.pack_tid

    # ``_begin``, too: otherwise the last rows would be compared by their tail, and a pack has often
    # removed one of them.
    return [(Fetch, "_pack_tid", pack_tid), (replicator, "_begin", lambda tids: MAX_TID)]


def _truncated_on_one() -> list[Patch]:
    original = Maintenance.truncate

    def truncate(self: Maintenance, tid: bytes, partitions: Sequence[int]) -> None:
        if not self._engine.name.endswith("2"):
            original(self, tid, partitions)

    return [(Maintenance, "truncate", truncate)]


def _stale_dial_accepted() -> list[Patch]:
    original = Links.admit

    def admit(self: Links, nid: int) -> Future[None]:
        admitted = original(self, nid)
        admitted.resolve(None)
        return admitted

    # ``made``, too: otherwise the node that is asked whether it waits would notice.
    return [(Links, "admit", admit), (Links, "made", lambda self, nid: 0)]


def _closed_link_used() -> list[Patch]:
    async def back(self: Links, peer: Peer, nid: int, user: str) -> Peer:
        del self._left[peer]
        return peer

    return [(Links, "_return", back)]


CANARIES = (
    Canary(
        "objects-not-compared",
        "a check ends with the transactions, and does not look at objects",
        "drills: a lost object is not found",
        _objects_not_compared,
        20,
        REPLICAS,
        first=4,
    ),
    Canary(
        "repair-from-the-last-tid",
        "the repair of a corrupted cell assumes that the cell is complete up to its last tid",
        "cells: a readable one misses rows",
        _repair_from_the_last_tid,
        10,
        REPLICAS | {"disk": "sqlite"},
        first=4,
    ),
    Canary(
        "pack-resumed-too-far",
        "an interrupted pack goes on some objects after the place where it ended",
        "cells: an old revision is left",
        _resumed_too_far,
        150,
        PACKS | {"storages": 1, "replicas": 0},
    ),
    Canary(
        "pack-missed",
        "a node that was away during a pack replicates only what is new, without a tail",
        "drills: a check finds copies that differ",
        _not_compared_again,
        20,
        # A node is away for seconds while objects are deleted and the deletions are packed.
        PACKS | {"faults": ("unmount",), "storages": 2, "replicas": 1},
        first=12,
    ),
    Canary(
        "truncated-on-one",
        "a node forgets to truncate",
        "drills: later transactions are there",
        _truncated_on_one,
        10,
        REPLICAS | {"disk": "sqlite"},
    ),
    Canary(
        "stale-dial-accepted",
        "a node replaces a connection by one that the other dialed before it accepted the first",
        "drills: a check without faults is not complete",
        _stale_dial_accepted,
        60,
        CROSSED,
    ),
    Canary(
        "closed-link-used",
        "a node uses a connection again that the other closes, because it was told to",
        "drills: a check without faults is not complete",
        _closed_link_used,
        60,
        CROSSED,
        first=3,
    ),
)
