"""Which pack is wanted, and which one each cell has had (specification 12).

Everything else about packs is in :mod:`neo.storage.maintenance.pack`.
"""

from __future__ import annotations

from neo.protocol.ids import MAX_TID, p64, u64
from neo.storage.cells import Cells
from neo.storage.database import Database
from neo.storage.packed import packed_tid, set_packed_tid


class PackState:
    def __init__(self, database: Database, cells: Cells) -> None:
        self._database = database
        self._cells = cells

    def wanted(self) -> int:
        """Return the tid of the last pack that was requested, 0 if there was none."""
        return int(self._database.backend.get_config("_pack_wanted") or 0)

    def want(self, tid: bytes) -> None:
        """Pack all complete cells at ``tid``, if it is later than the pack that was wanted before."""
        self._database.backend.packed_elsewhere(tid)
        if self.wanted() < u64(tid) <= u64(MAX_TID):
            self._database.backend.set_config("_pack_wanted", str(u64(tid)))

    def horizon(self) -> bytes:
        """Return the tid before which revisions may be gone, be it by a pack of another node."""
        tid: bytes = p64(int(self._database.backend.get_config("_pack_tid") or 0))
        return tid

    def packed(self, partition: int) -> int:
        """Return the tid of the last pack that is done in a cell, 0 if there was none."""
        return packed_tid(self._database.backend, partition)

    def set_packed(self, partition: int, tid: int) -> None:
        """Note that a cell is packed; forget where an earlier pack was interrupted."""
        set_packed_tid(self._database.backend, partition, tid)

    def pending(self, partition: int) -> bool:
        """Return whether an own cell is readable and must be packed. A cell of a backup must first be
        complete up to the tid of the pack."""
        wanted = self.wanted()
        if not self._cells.is_readable(partition) or self.packed(partition) >= wanted:
            return False
        return self._cells.backup.has(partition, p64(wanted))

    def undo_as_packed(self, oid: bytes, value_serial: bytes) -> bytes | None:
        """Return the revision that a voted undo refers to as it will be after the pack; None: it keeps
        the data alone. The pack may have to wait for this undo, but a synchronous backup may be packed
        already (specification 25.64)."""
        tid = self.wanted()
        partition = self._cells.partitions.partition(oid)
        if u64(value_serial) > tid or not self.pending(partition):
            return value_serial
        value: bytes | None = self._database.backend.packed_undo(oid, value_serial, p64(tid))
        return value
