"""What a synchronous backup is made of."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from neo.master.following.cells import BackupCells
from neo.master.following.orders import Orders
from neo.master.following.positions import Positions
from neo.master.following.readers import Readers
from neo.master.following.sources import Sources
from neo.master.sync.pipeline import Pipeline
from neo.protocol.packets import SyncMark


@dataclass(frozen=True, eq=False, repr=False)
class Copy:
    """What this cluster has of the upstream one, and how it gets the rest."""

    cells: BackupCells
    positions: Positions
    sources: Sources
    orders: Orders
    #: The transactions that this cluster is asked to lock.
    pipeline: Pipeline
    readers: Readers
    #: What storage nodes keep prepared.
    marks: Collection[SyncMark]
