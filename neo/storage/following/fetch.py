"""Fetches of a cell of a backup: to follow a source that is packed, and to repair the cell.

Theory of operation
-------------------
The cell is complete up to a tid, which clients may read, and continues from there. If the source was
packed at a tid that the cell has reached, nothing that matters is missing: the same pack follows here,
with the same result. A pack at a later tid may have deleted

* revisions that are still to be fetched: later ones of the same objects follow, and the pack here deletes
  the revisions before them, which are not current any more;
* deletions that are still to be fetched, with all revisions of their objects: without them these
  revisions would stay here forever.

So a cell that is *behind* a pack fetches the later rows, then compares its older ones. An object whose
last revision up to the pack is not at the source was deleted there: a deletion at the tid of the pack is
written. Clients that read an earlier state do not see it, other cells fetch it as any revision, and the
pack here removes it together with what it deletes.
"""

from __future__ import annotations

from collections.abc import Sequence

from neo.node.peer import Peer
from neo.protocol.ids import ZERO_HASH, ZERO_TID, add64, p64, u64
from neo.protocol.packets import MendCell
from neo.storage.backend.api import Record
from neo.storage.following.links import UpstreamLinks
from neo.storage.maintenance.pack import Packer
from neo.storage.replication.failure import FetchFailed
from neo.storage.replication.fetch import Fetch, Receiver


class BackupFetch(Fetch):
    """Fetches rows from ``first`` on, while clients read the rows before."""

    def __init__(
        self, receiver: Receiver, source: Peer, partition: int, first: bytes, last: bytes
    ) -> None:
        super().__init__(receiver, source, partition, first, last, 0)
        #: The tid of the source's pack, while rows before ``first`` are compared.
        self._pack: bytes | None = None

    async def _all(self) -> None:
        first = self._first
        packed = await self._pack_tid()
        behind = packed >= u64(first)
        if behind and packed > u64(self._last):
            # The comparison needs all that was committed up to the pack.
            raise FetchFailed(f"{self.source} was packed at {p64(packed).hex()}, which is later")
        await self._transactions()
        await self._objects()
        if behind and first > ZERO_TID:
            self._pack = p64(packed)
            self._first, self._last = ZERO_TID, add64(first, -1)
            await self._objects()
        if u64(first) <= await self._pack_tid() != packed:
            raise FetchFailed(f"{self.source} was packed meanwhile")

    def _found_more(self) -> None:
        """Continue: a pack deleted the rows, or ``neoctl check`` will report the difference."""

    async def _delete(self, gone: Sequence[tuple[bytes, bytes]]) -> None:
        backend = self._backend
        if self._pack is None:
            # All rows came in the order of tids: the revisions that undos go back to are here.
            backend.replication.delete_objects(gone, packed=True)
            backend.replication.packed_elsewhere(gone[-1][0])
            return
        for tid, oid in gone:
            if backend.reads.serial_at(oid, self._pack) == tid:
                backend.replication.add_object(oid, Record(self._pack, None, None, ZERO_HASH, b"", None))


class Mending(Fetch):
    """Makes a readable cell of a backup equal to that of the upstream cluster.

    It repairs the last copy in a backup after a check found a difference: the cell cannot be erased and
    copied anew, because no other serves readers meanwhile. Rows with equal ids stay. The operator decided
    that the upstream cluster is right.

    A pack on either side makes the cells differ for a while, so none may run, before or after.
    """

    async def _all(self) -> None:
        if await self._pack_tid() != self.pack_tid:
            raise FetchFailed("the upstream cluster is packed at another tid: check again later")
        await super()._all()

    async def _delete(self, gone: Sequence[tuple[bytes, bytes]]) -> None:
        """Delete revisions that the upstream cluster never had. Undos of them keep their data."""
        self._backend.replication.delete_objects(gone)


async def mend(m: MendCell, receiver: Receiver, upstream: UpstreamLinks, packer: Packer) -> None:
    """Repair a cell and return when that is durable. Raises ConnectionLost, ErrorAnswer, FetchFailed,
    Cancelled."""
    if not receiver.cells.backup.has_readable(m.partition, m.max_tid):
        raise FetchFailed(f"there is no cell that is complete up to {m.max_tid.hex()}")
    if packer.pending(m.partition):
        raise FetchFailed("the cell is being packed: check again later")
    source = await upstream.connect(*m.source)
    packed = u64(packer.state(m.partition))
    await Mending(receiver, source, m.partition, ZERO_TID, m.max_tid, packed).run()
    await receiver.database.stored()
