"""How revisions go from an own cell that is out of date, because its source has not got them.

An undo that goes back to one of them was perhaps written by a client, and is here without the revisions
between, of which a pack of the source may have made one the origin of the undo: only the source can tell.
And in a cell that is repaired its data is not to be trusted. So it loses its data, as if it had been
accepted blindly, and is fetched before the cell is announced (:mod:`neo.storage.replication.replicator`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neo.storage.node import StorageNode

#: How often it is looked whether undos in progress have ended.
LOOK_SECONDS = 0.02


async def remove(
    core: StorageNode, partition: int, revisions: Sequence[tuple[bytes, bytes]]
) -> None:
    """Delete (tid, oid) of a partition. Transactions in progress may undo to them: they end first."""
    while core.locks.undoing(lambda oid: core.partitions.partition(oid) == partition):
        await core.sleep(LOOK_SECONDS)
    core.backend.unlink_undone(revisions)
    core.backend.delete_objects(revisions)
