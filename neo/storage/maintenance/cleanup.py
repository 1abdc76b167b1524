"""Long work on the database, in small steps between which everybody else is served.

Each job is a workflow; it can be cancelled at any step and started again from the beginning: what is
done is found done.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neo.storage.node import StorageNode

logger = logging.getLogger("neo.storage")

Job = Coroutine[Any, Any, None]

#: Objects, or rows, of a step while no client is at work. Nobody is served meanwhile.
STEP_LENGTH = 200


async def prune_orphans(core: StorageNode, dry_run: bool) -> None:
    """NotifyRepair: delete, or only count, data that nothing refers to."""
    rows = size = 0
    next_id: int | None = 0
    try:
        while next_id is not None:
            began = core.shell.monotonic()
            length = core.pace.rows(STEP_LENGTH)
            found, found_size, next_id = core.backend.prune_orphans(dry_run, next_id, length)
            rows += found
            size += found_size
            await core.stored()
            await core.pace.give_way(began)
    finally:
        done = "would be deleted" if dry_run else "deleted"
        rest = "" if next_id is None else "; not all was looked at: give the command again"
        logger.info("repair: %s orphan records (%s bytes) %s%s", rows, size, done, rest)


class Eraser:
    """Deletes the data of partitions that are not assigned to this node any more: one job."""

    def __init__(self, core: StorageNode) -> None:
        self._core = core
        self._working = self._again = False

    def begin(self) -> None:
        """The operation began, or cells were taken away."""
        if not self._core.drop_partitions:
            return
        self._again = True
        if not self._working:
            self._working = True
            self._core.run_job(self._work())

    def clear(self) -> None:
        """The operation stops; the job is cancelled."""
        self._working = self._again = False

    async def _work(self) -> None:
        core = self._core
        while self._again:
            self._again = False
            for partition in range(len(core.partitions)):
                await self._erase(partition)
                await core.sleep(0)  # the table may be long, and most of it elsewhere
        self._working = False

    async def _erase(self, partition: int) -> None:
        """Until nothing is left, or the partition came back."""
        core = self._core
        while core.partitions.state(partition, core.nid) is None:
            began = core.shell.monotonic()
            if not core.backend.drop_partition(partition, core.pace.rows(STEP_LENGTH)):
                break
            await core.stored()
            await core.pace.give_way(began)
