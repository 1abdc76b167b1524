"""Long work on the database, in small steps between which everybody else is served.

Each job is a workflow; it can be cancelled at any step and started again from the beginning: what is
done is found done.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neo.storage.core import StorageCore

logger = logging.getLogger("neo.storage")

Job = Coroutine[Any, Any, None]

#: Objects, or rows, of a step: a few milliseconds of work, since nobody is served meanwhile.
STEP_LENGTH = 200


async def prune_orphans(core: StorageCore, dry_run: bool) -> None:
    """NotifyRepair: delete, or only count, data that nothing refers to."""
    rows = size = 0
    next_id: int | None = 0
    while next_id is not None:
        found, found_size, next_id = core.backend.prune_orphans(dry_run, next_id, STEP_LENGTH)
        rows += found
        size += found_size
        await core.stored()
    done = "would be deleted" if dry_run else "deleted"
    logger.info("repair: %s orphan records (%s bytes) %s", rows, size, done)


async def drop_partitions(core: StorageCore) -> None:
    """Delete the data of partitions that are not assigned to this node any more."""
    for partition in range(len(core.partitions)):
        while core.partitions.state(partition, core.nid) is None:
            if not core.backend.drop_partition(partition, STEP_LENGTH):
                break
            await core.stored()
        await core.sleep(0)  # the table may be long, and most of it elsewhere
