"""The room that a backup needs and has, before it begins (specification 27.56)."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path

from neo.archive.folder import ArchiveFolder
from neo.archive.format import ArchiveError
from neo.archive.manifest import Manifest
from neo.protocol.ids import add64
from neo.protocol.packets import AnswerRoom, AskRoom
from neo.storage.blobs.contents import Contents
from neo.storage.cells import Cells
from neo.storage.cluster import Cluster
from neo.storage.database import Database
from neo.storage.operations.worker import Worker

#: Transactions that are counted, of one partition. With more new ones the copy is estimated as too small.
COUNTED_MAX = 10_000


class Room:
    def __init__(
        self, database: Database, cluster: Cluster, cells: Cells, contents: Contents, worker: Worker
    ) -> None:
        self._database = database
        self._cluster = cluster
        self._cells = cells
        self._contents = contents
        self._worker = worker

    async def measure(self, m: AskRoom) -> AnswerRoom:
        """Return what the partitions take in the database and the folder of contents, or the part of it
        that is new."""
        disk = await self._worker.disk(Path(m.path))
        if disk is None:
            return AnswerRoom(0, None, "")
        folder = ArchiveFolder(m.path, self._worker.files)
        chain = [] if m.full else await self._worker.call(partial(_chain, folder, self._cluster.name))
        backend, cells = self._database.backend, max(len(self._cells.assigned()), 1)
        size = backend.engine.size() + backend.blobs.content_totals()[1]
        needed = size * len(m.partition_list) // cells
        if chain and m.partition_list:
            needed = int(needed * self._new(chain, m.tid, m.partition_list[0]))
        return AnswerRoom(needed, disk.free, disk.name)

    def _new(self, chain: list[Manifest], tid: bytes, partition: int) -> float:
        """Return which part of the transactions came after the last copy, in a partition that stands for
        all: tids are spread over them."""
        if partition >= chain[-1].partitions:
            return 1.0
        first = add64(chain[-1].tid, 1)
        new = len(self._database.backend.reads.tids_ascending(first, tid, COUNTED_MAX, partition))
        known = sum(copy.files[partition].transactions for copy in chain)
        return new / max(new + known, 1)


def _chain(folder: ArchiveFolder, cluster: str) -> list[Manifest]:
    """Return the copies that the next one follows; none if it cannot follow any, which the backup will
    say."""
    with suppress(ArchiveError, OSError):
        newest = folder.newest(cluster)
        return [] if newest is None else folder.chain(newest)
    return []
