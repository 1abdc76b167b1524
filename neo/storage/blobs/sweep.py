"""The folder of contents is compared with the table ``content`` (specification 26.9).

A crash may leave files without rows, and rows without values. Files may be lost: an operator restored a
part of the folder, or a disk failed. So the first operation of a core, and one that freed more contents
than the backend remembers, begins with a sweep: files that nothing needs are removed, and contents
without files are noted.
"""

from __future__ import annotations

import logging

from neo.node.task import Future
from neo.protocol.blobs import CHECKSUM_BYTES, Content
from neo.protocol.words import counted
from neo.storage.background import Background
from neo.storage.blobs.contents import Contents
from neo.storage.blobs.disk import BUCKETS
from neo.storage.database import Database
from neo.storage.events import Part

logger = logging.getLogger("neo.storage")

#: Rows of a step while no client is active.
STEP_LENGTH = 1000
#: Pause after a sweep that could not read all of the folder.
RETRY_SECONDS = 30.0


class Sweep(Part):
    """Sweeps in the background. All methods run on the loop's thread."""

    def __init__(self, database: Database, contents: Contents, background: Background) -> None:
        self._references = database.backend.blobs
        self._contents = contents
        self._background = background
        #: Whether the folder is to be compared.
        self._wanted = contents.enabled
        self._running = False
        contents.sweep = self.want

    @property
    def done(self) -> bool:
        """Whether the folder was compared, as far as is known now."""
        return not self._wanted and not self._running

    def want(self) -> None:
        """Compare the folder, again if that is in progress."""
        self._wanted = True
        if not self._running:
            self._background.run(self._run())

    def operation_started(self) -> None:
        if self._wanted:
            self._background.run(self._run())

    async def _run(self) -> None:
        self._running = True
        try:
            while self._wanted:
                self._wanted = False
                try:
                    whole = await self._sweep()
                    if not whole:
                        self._wanted = True
                        await self._background.sleep(RETRY_SECONDS)
                except BaseException:
                    self._wanted = True
                    raise
        finally:
            self._running = False

    async def _sweep(self) -> bool:
        """Compare the whole folder. Return False if a part of it could not be read."""
        await self._forget_freed()
        removed = lost = 0
        whole = True
        for bucket in range(BUCKETS):
            try:
                files = await self._files(bucket)
            except OSError as e:
                logger.error("a part of the folder of contents cannot be compared: %s", e)
                whole = False
                continue
            needed, missing = await self._rows(bucket, set(files))
            useless = [checksum for checksum in files if checksum not in needed]
            removed += self._contents.leave(useless)
            for content in missing:
                lost += await self._is_lost(content)
        if removed:
            logger.info("contents that an interrupted process left are removed: %d", removed)
        if lost:
            logger.error(
                "%s not in the folder of this node: read from other nodes",
                counted(lost, "content of a blob is", "contents of blobs are"),
            )
        return whole

    async def _forget_freed(self) -> None:
        min_id: int | None = 0
        while min_id is not None:
            began = self._background.monotonic()
            min_id = self._references.forget_freed(min_id, self._background.rows(STEP_LENGTH))
            await self._background.give_way(began)

    async def _rows(self, bucket: int, files: set[bytes]) -> tuple[set[bytes], list[Content]]:
        """Return the checksums of a bucket that have rows, and those contents that are not in
        ``files``."""
        needed: set[bytes] = set()
        missing: list[Content] = []
        first = bucket << 8 * (CHECKSUM_BYTES - 1)
        after = (first - 1).to_bytes(CHECKSUM_BYTES, "big") if bucket else b""
        while True:
            began = self._background.monotonic()
            rows = self._references.contents(after, self._background.rows(STEP_LENGTH))
            for content in rows:
                after = content.checksum
                if after[0] != bucket:
                    return needed, missing
                needed.add(after)
                if after not in files:
                    missing.append(content)
            if not rows:
                return needed, missing
            await self._background.give_way(began)

    async def _is_lost(self, content: Content) -> bool:
        """Look for the file of a content again, which may have come after the list; note if it is
        lost."""
        found: Future[bool] = Future()
        checksum = content.checksum

        def read(data: bytes | Exception) -> None:
            found.resolve(not isinstance(data, FileNotFoundError))

        self._contents.disk.read(checksum, 0, 1, self._contents.guard(read))
        if await found or checksum in self._contents.lost:
            return False
        objects = self._references.objects_with(checksum, 1)
        if not objects:
            return False  # of a transaction in progress, or gone meanwhile
        self._contents.missing(content, objects[0][0])
        return True

    def _files(self, bucket: int) -> Future[list[bytes]]:
        files: Future[list[bytes]] = Future()

        def listed(names: list[bytes] | Exception) -> None:
            if isinstance(names, Exception):
                files.fail(names)
            else:
                files.resolve(names)

        self._contents.disk.names(bucket, self._contents.guard(listed))
        return files
