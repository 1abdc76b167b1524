"""Lost contents are copied from other nodes (specification 26.21).

Files that an operator deleted, or a disk damaged, are noted when they are looked for: by the sweep, by a
check, by a client or a storage node that reads them. A content has only one meaning, so no comparison and
no order of the operator is needed. The nodes of each object that has it are asked: those of one object
may have lost it, too. What no node can give is tried again, after longer and longer pauses: a node that
has it may come back. """

from __future__ import annotations

import logging
from collections.abc import Iterator

from neo.protocol.blobs import Content
from neo.storage.backend.api import References
from neo.storage.background import Background
from neo.storage.blobs.contents import LOST_MAX, Contents
from neo.storage.blobs.fetch import ContentFetch
from neo.storage.cells import Cells
from neo.storage.events import Part
from neo.storage.replication.failure import FetchFailed, NoSource

logger = logging.getLogger("neo.storage")

#: The first and the longest pause between two rounds over all lost contents.
PAUSE_SECONDS = (5.0, 3600.0)
#: Revisions with a content that are looked at for objects in other partitions.
REVISIONS_MAX = 1000


class Mender(Part):
    """All methods run on the loop's thread."""

    def __init__(
        self,
        references: References,
        contents: Contents,
        fetch: ContentFetch,
        background: Background,
        cells: Cells,
    ) -> None:
        self._references = references
        self._cells = cells
        self._contents = contents
        self._fetch = fetch
        self._background = background
        self._running = False
        self._operational = False
        contents.on_lost = self._begin_mending

    def operation_started(self) -> None:
        self._operational = True
        self._begin_mending()

    def operation_stopped(self) -> None:
        """The job is cancelled."""
        self._operational = self._running = False

    def _begin_mending(self) -> None:
        if self._contents.lost and self._operational and not self._running:
            self._running = True
            self._background.run(self._run())

    async def _run(self) -> None:
        pause = PAUSE_SECONDS[0]
        while lost := dict(self._contents.lost):
            mended = 0
            for content, oid in lost.values():
                mended += await self._mend(content, oid)
            if mended:
                logger.warning("%d lost contents of blobs were copied from other nodes", mended)
            if mended and len(lost) >= LOST_MAX:
                self._contents.sweep()  # there may be more
            if self._contents.lost:
                pause = PAUSE_SECONDS[0] if mended else min(2 * pause, PAUSE_SECONDS[1])
                await self._background.sleep(pause)
        self._running = False

    async def _mend(self, content: Content, oid: bytes) -> bool:
        """Return whether a node gave the content. Note if no node that can be asked has it."""
        nowhere = True
        for each in self._objects(content, oid):
            try:
                found = await self._fetch.fetch(each, content, None)
            except FetchFailed as e:
                logger.debug("%s", e)
                nowhere &= isinstance(e, NoSource)
            else:
                self._fetch.written(content)
                if found:
                    return True
        if nowhere and content.checksum in self._contents.lost:
            self._contents.nowhere.add(content.checksum)
        else:
            self._contents.nowhere.discard(content.checksum)
        return False

    def _objects(self, content: Content, first: bytes) -> Iterator[bytes]:
        """Yield an object that has the content in each partition, ``first`` before the others."""
        partitions = self._cells.partitions
        yield first
        asked = {partitions.partition(first)}
        for oid, _ in self._references.objects_with(content.checksum, REVISIONS_MAX):
            if (partition := partitions.partition(oid)) not in asked:
                asked.add(partition)
                yield oid
