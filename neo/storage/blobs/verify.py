"""Contents are compared with their checksums, when the master has a partition checked (specification
26.22).

A content belongs to the partition of the first object that had it. If this node has no cell of that one,
or there was another number of partitions then, it is compared with one of the partitions that it has.

Bound: one entry for each own partition. One file is read at a time, by a thread of the folder, with the
pauses of work in the background between two files.
"""

from __future__ import annotations

import logging

from neo.node.task import Future
from neo.storage.background import Background
from neo.storage.blobs.contents import Contents
from neo.storage.blobs.disk import ContentMismatch
from neo.storage.cells import Cells
from neo.storage.database import Database
from neo.storage.events import Part

logger = logging.getLogger("neo.storage")

#: References that are read at a time.
STEP_LENGTH = 100


class Verifier(Part):
    """All methods run on the loop's thread."""

    def __init__(
        self, database: Database, contents: Contents, background: Background, cells: Cells
    ) -> None:
        self._references = database.backend.blobs
        self._contents = contents
        self._background = background
        self._cells = cells
        self._partitions: dict[int, None] = {}
        self._running = False

    @property
    def left(self) -> int:
        """The number of partitions that are not compared to the end."""
        return len(self._partitions) + self._running

    def verify(self, partition: int) -> None:
        """Compare the contents of a partition in the background. What is damaged is noted as lost."""
        if not self._contents.enabled or not 0 <= partition < len(self._cells.partitions):
            return
        self._partitions[partition] = None
        if not self._running:
            self._running = True
            self._background.run(self._run())

    def operation_stopped(self) -> None:
        """Forget the partitions; the job is cancelled."""
        self._partitions.clear()
        self._running = False

    async def _run(self) -> None:
        while self._partitions:
            partition = next(iter(self._partitions))
            del self._partitions[partition]  # who asks from now on wants a new look
            count = 0
            for group in self._groups(partition):
                count += await self._compare(group)
            if count:
                logger.info("%d contents of partition %d are compared", count, partition)
        self._running = False

    def _groups(self, partition: int) -> list[int]:
        """Return the groups of contents that are compared together with a partition. Together, the
        partitions of this node have all of them."""
        own, count = self._cells.assigned(), len(self._cells.partitions)
        if not own:
            return []
        return [
            group
            for group in self._references.content_groups()
            if partition == (group % count if group % count in own else own[group % len(own)])
        ]

    async def _compare(self, group: int) -> int:
        after, count = -1, 0
        while True:
            references = self._references.references(group, after, STEP_LENGTH)
            if not references:
                return count
            for data_id, content in references:
                began = self._background.monotonic()
                after = data_id
                verified: Future[None] = Future()

                def done(error: Exception | None, verified: Future[None] = verified) -> None:
                    if error is None:
                        verified.resolve(None)
                    else:
                        verified.fail(error)

                self._contents.disk.verify(content, self._contents.guard(done))
                try:
                    await verified
                except (OSError, ContentMismatch) as e:
                    self._contents.damaged(content, e)
                else:
                    self._contents.intact(content.checksum)
                count += 1
                await self._background.give_way(began)
