"""A readable cell of a backup gets what it lacks of the upstream cluster, and loses what is not there.

For the last copies in a backup, which a check found to differ from the upstream cluster: they cannot be
erased and copied anew, since nothing else is here to serve readers. What is equal by its ids stays, and
is read meanwhile. The operator decided that the upstream cluster is right.

A pack on either side makes the cells differ for a while: it must not run, neither before nor after.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from neo.protocol.ids import ZERO_TID, u64
from neo.protocol.packets import MendCell
from neo.storage.replication.fetch import Fetch, FetchFailed

if TYPE_CHECKING:
    from neo.storage.node import StorageNode


class Mending(Fetch):
    async def _all(self) -> None:
        if await self._pack_tid() != self.pack_tid:
            raise FetchFailed("the upstream cluster is packed at another tid: check again later")
        await super()._all()

    async def _delete(self, gone: Sequence[tuple[bytes, bytes]]) -> None:
        """These were never there. An undo that went back to one of them keeps its own data."""
        self._core.backend.delete_objects(gone)


async def mend(core: StorageNode, m: MendCell) -> None:
    """Returns when it is durable. Raises ConnectionLost, ErrorAnswer, FetchFailed, Cancelled."""
    if not core.backup.has_readable(m.partition, m.max_tid):
        raise FetchFailed(f"there is no cell that is complete up to {m.max_tid.hex()}")
    if core.packer.pending(m.partition):
        raise FetchFailed("the cell is being packed: check again later")
    source = await core.backup.links.connect(*m.source)
    packed = u64(core.packer.state(m.partition))
    await Mending(core, source, m.partition, ZERO_TID, m.max_tid, packed).run()
    await core.stored()
