"""Deletion of data that no cell of this node needs, in small steps between requests of others.

Each job can be cancelled at any step and started again from the beginning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from neo.node.task import Task
from neo.protocol.words import counted
from neo.storage.background import Background
from neo.storage.cells import Cells
from neo.storage.database import Database
from neo.storage.events import CellsChanged, Part

logger = logging.getLogger("neo.storage")

#: Row of ``config``: the node ended cleanly, and had finished its sweep. No node runs while it is there.
CLOSED = "_closed"

#: Objects, or rows, of a step while no client is active. No request is served during a step.
STEP_LENGTH = 200


class Eraser(Part):
    """Deletes, in one job, rows for another number of partitions and the data of partitions that are not
    assigned to this node any more."""

    def __init__(
        self,
        database: Database,
        cells: Cells,
        background: Background,
        enabled: bool,
        needed: Callable[[], bool],
    ) -> None:
        """``enabled``: False to keep the data of partitions. ``needed``: returns whether an operation
        may need rows for another number of partitions."""
        self._database = database
        self._cells = cells
        self._background = background
        self._needed = needed
        self.enabled = enabled
        self._again = False
        self._job: Task[None] | None = None
        #: The node operates, so that it has the table of the cluster.
        self._operating = False

    @property
    def working(self) -> bool:
        """Whether something is being deleted."""
        return self._job is not None and not self._job.done

    def operation_started(self) -> None:
        self._operating = True
        self._start()

    def maintenance_ended(self) -> None:
        """React to the end of an operation of ``neoctl`` on all nodes (specification 27.97)."""
        if self._operating and not self._needed():
            self._start()

    def _start(self) -> None:
        """Look for what is to be deleted. A job that was given up, because the database refused a
        statement, is followed by another one."""
        self._again = True
        if not self.working:
            self._job = self._background.run(self._work())

    def cells_changed(self, change: CellsChanged) -> None:
        if change.dropped:
            self._start()

    def operation_stopped(self) -> None:
        """Forget the request; the job is cancelled."""
        self._again = self._operating = False
        self._job = None

    async def _work(self) -> None:
        while self._again:
            self._again = False
            if not self._needed():
                await drop_regrouped(self._database, self._background, self._needed)
            elif self._database.backend.regrouping.regrouped() is not None:
                # The way back needs all rows, because rows that are deleted here would be missing there,
                # too. The end of the operation starts this job again.
                continue
            for partition in range(len(self._cells.partitions)) if self.enabled else ():
                await self._erase(partition)
                await self._background.sleep(0)  # the table may be long, and most of it elsewhere
            # The last steps, also if no client writes: they would stay in the open transaction.
            self._database.commit_soon()

    async def _erase(self, partition: int) -> None:
        """Erase until nothing is left, or the partition is assigned again."""
        background, backend = self._background, self._database.backend
        while self._cells.state(partition) is None:
            began = background.monotonic()
            if not backend.maintenance.drop_partition(partition, background.rows(STEP_LENGTH)):
                break
            await self._database.stored()
            await background.give_way(began)


class Orphans(Part):
    """Deletes data that nothing refers to: after a crash, and when an operator orders it.

    A crash between the store of an object and its vote leaves data, and a content of a blob, that belong
    to no transaction (specification 14.50). So a start that does not follow a clean end begins with a
    sweep over the table ``data``. The row CLOSED of ``config`` tells a clean end.
    """

    def __init__(self, database: Database, background: Background) -> None:
        self._database = database
        self._background = background
        #: Whether the table is to be swept.
        self._wanted = database.backend.tables.get_config(CLOSED) is None
        database.backend.tables.set_config(CLOSED, None)

    @property
    def done(self) -> bool:
        """Whether nothing that a crash left is here any more."""
        return not self._wanted

    def operation_started(self) -> None:
        if self._wanted:
            self._background.run(self._sweep())

    def ended(self) -> None:
        """Note a clean end: no data is stored whose transaction has not voted. Raise BackendFailure."""
        if not self._wanted:
            self._database.backend.tables.set_config(CLOSED, "1")

    async def _sweep(self) -> None:
        found: list[tuple[int, int]] = []
        await self._prune_all(False, found)
        self._wanted = False
        rows, size = _sums(found)
        if rows:
            logger.info(
                "records that an interrupted process left are deleted: %s (%s bytes)", rows, size
            )

    def prune(self, dry_run: bool) -> None:
        """Handle NotifyRepair: delete, or only count, data that nothing refers to."""
        self._background.run(self._prune(dry_run))

    async def _prune(self, dry_run: bool) -> None:
        found: list[tuple[int, int]] = []
        rest = "; not all was looked at: give the command again"
        try:
            await self._prune_all(dry_run, found)
            rest = ""
        finally:
            done = "would be deleted" if dry_run else "deleted"
            rows, size = _sums(found)
            logger.info(
                "repair: %s (%s bytes) %s%s", counted(rows, "orphan record"), size, done, rest
            )

    async def _prune_all(self, dry_run: bool, found: list[tuple[int, int]]) -> None:
        """Prune all data; add what each step found, as (records, bytes)."""
        background, backend = self._background, self._database.backend
        next_id: int | None = 0
        while next_id is not None:
            began = background.monotonic()
            length = background.rows(STEP_LENGTH)
            rows, size, next_id = backend.maintenance.prune_orphans(dry_run, next_id, length)
            found.append((rows, size))
            if rows and not dry_run:
                await self._database.stored()
            await background.give_way(began)


def _sums(found: list[tuple[int, int]]) -> tuple[int, int]:
    return sum(rows for rows, _ in found), sum(size for _, size in found)


async def drop_regrouped(
    database: Database, background: Background, needed: Callable[[], bool]
) -> None:
    """Delete all rows that are kept for another number of partitions, until they are needed: they may be
    those of the next operation then. The last step may not be durable yet."""
    began = background.monotonic()
    while not needed() and not database.backend.regrouping.drop_regrouped(background.rows(STEP_LENGTH)):
        await database.stored()
        await background.give_way(began)
        began = background.monotonic()
