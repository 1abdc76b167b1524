"""How a cell of a backup goes on from a source that may have been packed meanwhile.

Theory of operation
-------------------
The cell is complete up to a tid that clients may see, and goes on from there. A pack of the source at a
tid that the cell has reached took nothing that matters: the same pack follows here, and leaves the
same. One at a later tid may have taken

* revisions that are to be fetched: others of the same objects follow, and the pack here removes
  what is then not current any more;
* deletions that are to be fetched, with all that was deleted: nothing would tell of them, and what
  was deleted would stay here for ever.

So a cell that is *behind* a pack fetches what is later, then compares what it had before. An object whose
last revision up to the pack is not at the source any more was deleted: a deletion is written, at the tid
of the pack. Clients that see an earlier state are not disturbed, other cells fetch it like any other, and
the pack here removes it together with what it hides.
"""

from __future__ import annotations

from collections.abc import Sequence

from neo.node.peer import Peer
from neo.protocol.ids import ZERO_HASH, ZERO_TID, add64, p64, u64
from neo.protocol.packets import MendCell
from neo.storage.backend.api import Record
from neo.storage.maintenance.pack import Packer
from neo.storage.replication.backup_links import UpstreamLinks
from neo.storage.replication.fetch import Fetch, FetchFailed, Receiver


class BackupFetch(Fetch):
    """As :class:`Fetch`; what is before ``first`` can be read meanwhile."""

    def __init__(
        self, receiver: Receiver, source: Peer, partition: int, first: bytes, last: bytes
    ) -> None:
        super().__init__(receiver, source, partition, first, last, 0)
        #: The pack of the source, while what is older than ``first`` is compared.
        self._pack: bytes | None = None

    async def _all(self) -> None:
        first = self._first
        packed = await self._pack_tid()
        behind = packed >= u64(first)
        if behind and packed > u64(self._last):
            # What was committed until then must be here before the comparison.
            raise FetchFailed(f"{self.source} was packed at {p64(packed).hex()}, which comes later")
        await self._transactions()
        await self._objects()
        if behind and first > ZERO_TID:
            self._pack = p64(packed)
            self._first, self._last = ZERO_TID, add64(first, -1)
            await self._objects()
        if u64(first) <= await self._pack_tid() != packed:
            raise FetchFailed(f"{self.source} was packed meanwhile")

    def _found_more(self) -> None:
        """A pack took it away, or ``neoctl check`` will tell."""

    async def _delete(self, gone: Sequence[tuple[bytes, bytes]]) -> None:
        backend = self._backend
        if self._pack is None:
            # All came in the order of tids: what undos go back to is here.
            backend.delete_objects(gone, packed=True)
            backend.packed_elsewhere(gone[-1][0])
            return
        for tid, oid in gone:
            if backend.serial_at(oid, self._pack) == tid:
                backend.add_object(oid, Record(self._pack, None, None, ZERO_HASH, b"", None))


class Mending(Fetch):
    """Makes a readable cell of a backup equal to that of the upstream cluster.

    For the last copies in a backup, which a check found to differ from the upstream cluster: they cannot
    be erased and copied anew, since nothing else is here to serve readers. What is equal by its ids
    stays, and is read meanwhile. The operator decided that the upstream cluster is right.

    A pack on either side makes the cells differ for a while: it must not run, neither before nor after.
    """

    async def _all(self) -> None:
        if await self._pack_tid() != self.pack_tid:
            raise FetchFailed("the upstream cluster is packed at another tid: check again later")
        await super()._all()

    async def _delete(self, gone: Sequence[tuple[bytes, bytes]]) -> None:
        """These were never there. An undo that went back to one of them keeps its own data."""
        self._backend.delete_objects(gone)


async def mend(m: MendCell, receiver: Receiver, upstream: UpstreamLinks, packer: Packer) -> None:
    """Returns when it is durable. Raises ConnectionLost, ErrorAnswer, FetchFailed, Cancelled."""
    if not receiver.cells.backup.has_readable(m.partition, m.max_tid):
        raise FetchFailed(f"there is no cell that is complete up to {m.max_tid.hex()}")
    if packer.pending(m.partition):
        raise FetchFailed("the cell is being packed: check again later")
    source = await upstream.connect(*m.source)
    packed = u64(packer.state(m.partition))
    await Mending(receiver, source, m.partition, ZERO_TID, m.max_tid, packed).run()
    await receiver.database.stored()
