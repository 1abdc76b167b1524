"""Pack: delete revisions that are not current at a tid, on each replica.

Theory of operation
-------------------
A pack is *wanted* until it is done: the row ``_pack_wanted`` of ``config`` has the greatest tid
requested, durably, before the first revision is deleted. A cell is *pending* while it is readable and
its last pack, in the row ``_packed.<partition>``, was at an earlier tid. So each pack completes: after
a crash the node continues with the object in the row ``_packing``, and the master tells a node that
was away when it returns.

The result of a pack depends only on the tid and the revisions up to it, including the deletion of the
last object (:func:`neo.storage.backend.revisions.pack`). So replicas with equal revisions have equal
results. Therefore only complete cells are packed. A cell that is out of date is made equal to a source
first (``AskPackState``):

* While the source's cell is pending, nothing up to the tid of the pack is fetched: it will be deleted.
* A later undo comes from such a source as the pack will leave it (``as_packed``).
* If the source was packed at another tid than the own cell, the whole cell is compared again, because
  revisions may be gone that were replicated before.
* If the source's pack changed during a comparison, that round begins again.

A step takes a few milliseconds, after which clients are served.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from neo.net.fault_sites import LATE_SECONDS, FaultSite
from neo.node.host import Host
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode
from neo.protocol.ids import MAX_TID, ZERO_OID, p64, u64
from neo.protocol.packets import AnswerPack
from neo.protocol.words import counted
from neo.storage.backend.api import Record
from neo.storage.backend.revisions import LookAhead
from neo.storage.background import Background
from neo.storage.cells import Cells
from neo.storage.commit.locks import Locks
from neo.storage.database import Database
from neo.storage.events import CellsChanged, Part
from neo.storage.packed import begun_pack, packed_tid, set_begun_pack, set_packed_tid

logger = logging.getLogger("neo.storage")

#: Objects of a step while no client is active.
STEP_LENGTH = 200
#: Period in which the end of undos in progress is polled.
LOOK_SECONDS = 0.02


@dataclass(eq=False, repr=False)
class PackProgress:
    """The pack that was requested, and how far the own cells are packed. The rows of ``config`` are all
    its state, so that two of them agree."""

    database: Database
    cells: Cells

    def wanted(self) -> int:
        """Return the tid of the last pack that was requested, 0 if there was none."""
        return int(self.database.backend.tables.get_config("_pack_wanted") or 0)

    def want(self, tid: bytes) -> None:
        """Pack all complete cells at ``tid``, if it is later than the pack that was wanted before."""
        self.database.backend.replication.packed_elsewhere(tid)
        if self.wanted() < u64(tid) <= u64(MAX_TID):
            self.database.backend.tables.set_config("_pack_wanted", str(u64(tid)))

    def horizon(self) -> bytes:
        """Return the tid before which revisions may be gone, be it by a pack of another node."""
        tid: bytes = p64(int(self.database.backend.tables.get_config("_pack_tid") or 0))
        return tid

    def packed(self, partition: int) -> int:
        """Return the tid of the last pack that is done in a cell, 0 if there was none."""
        return packed_tid(self.database.backend.tables, partition)

    def set_packed(self, partition: int, tid: int) -> None:
        """Note that a cell is packed; forget where an earlier pack was interrupted."""
        set_packed_tid(self.database.backend.tables, partition, tid)

    def pending(self, partition: int) -> bool:
        """Return whether an own cell is readable and must be packed. A cell of a backup must first be
        complete up to the tid of the pack."""
        wanted = self.wanted()
        if not self.cells.is_readable(partition) or self.packed(partition) >= wanted:
            return False
        return self.cells.backup.has(partition, p64(wanted))

    def undo_as_packed(self, oid: bytes, value_serial: bytes) -> bytes | None:
        """Return the revision that a voted undo refers to as it will be after the pack; None: it keeps
        the data alone. The pack may have to wait for this undo, but a synchronous backup may be packed
        already (specification 25.64)."""
        tid = self.wanted()
        partition = self.cells.partitions.partition(oid)
        if u64(value_serial) > tid or not self.pending(partition):
            return value_serial
        value: bytes | None = self.database.backend.reads.packed_undo(oid, value_serial, p64(tid))
        return value


@dataclass(eq=False, repr=False)
class Packer(PackProgress, Part):
    """Packs the own cells. Bounds: one job; the requests of the master, which sends one at a time."""

    host: Host
    locks: Locks
    background: Background
    _working: bool = field(default=False, init=False)
    #: The partition to pack next; -1 if none is in a hurry.
    _first: int = field(default=-1, init=False)
    _waiting: list[tuple[Peer, int]] = field(default_factory=list, init=False)

    # -- state -------------------------------------------------------------------------------------

    def _begun(self) -> tuple[int, int, bytes]:
        """Return (partition, tid, next oid) of a pack that was interrupted, or is in progress; partition
        -1 if there is none."""
        return begun_pack(self.database.backend.tables)

    def coming(self, partition: int) -> bool:
        """Return whether a readable cell will soon be packed. It may be long while a transaction that
        undoes something is locked: if it waits for a synchronous backup that needs rows of this cell to
        join (specification 25.16), these are fetched as they are, and packed there."""
        return self.pending(partition) and not self.locks.undone(self._concerns(partition))

    def state(self, partition: int) -> bytes:
        """Return the tid at which a readable cell is packed, or will be before rows up to that tid are
        fetched or compared."""
        tid: bytes = p64(self.wanted() if self.coming(partition) else self.packed(partition))
        return tid

    def _concerns(self, partition: int) -> Callable[[bytes], bool]:
        return lambda oid: self.cells.partitions.partition(oid) == partition

    def as_packed(self, partition: int, oid: bytes, record: Record) -> Record:
        """Return a record as it will be after the pack. A replica may be packed already: there the
        revision that an undo goes back to is gone, and its data could not be found."""
        tid = self.wanted()
        serial = record.data_serial
        if serial is None or u64(serial) > tid or not self.coming(partition):
            return record
        try:
            value = self.database.backend.reads.packed_value(oid, record.serial, p64(tid))
        except KeyError:  # the pack deletes it
            return record
        return record._replace(data_serial=value)

    def _next(self) -> int | None:
        """Return the next partition to pack: the one that was begun, then one that is waited for."""
        for partition in (self._begun()[0], self._first):
            if 0 <= partition < len(self.cells.partitions) and self.pending(partition):
                return partition
        return next(filter(self.pending, self.cells.readable()), None)

    def _start_oid(self, partition: int) -> bytes:
        """Return the oid at which a pack at the wanted tid was interrupted."""
        begun, tid, oid = self._begun()
        return oid if (begun, tid) == (partition, self.wanted()) else ZERO_OID

    # -- events ------------------------------------------------------------------------------------

    def ask(self, peer: Peer, message_id: int, tid: bytes) -> None:
        """Handle AskPack; answer when all own cells are packed."""
        self.want(tid)
        self._waiting.append((peer, message_id))
        self.begin()

    def begin(self) -> None:
        """Start the job if there is work. Call when own cells changed, or a cell of a backup advanced."""
        if not self._working and (self._waiting or self._next() is not None):
            self._working = True
            self.background.run(self._work())

    def hurry(self, partition: int) -> None:
        """Pack this cell next: another node waits for it."""
        self._first = partition

    def operation_started(self) -> None:
        self.begin()

    def cells_changed(self, change: CellsChanged) -> None:
        self.begin()

    def operation_stopped(self) -> None:
        """Refuse the requests that wait; the job is cancelled."""
        self._working = False
        self._first = -1
        waiting, self._waiting = self._waiting, []
        for peer, message_id in waiting:
            peer.refuse(message_id, ErrorCode.NOT_READY, "the pack goes on when the node is back")

    # -- work --------------------------------------------------------------------------------------

    async def _work(self) -> None:
        packed = durable = 0
        while (partition := self._next()) is not None:
            if (wanted := self.wanted()) > durable:
                # Else deleted revisions could be back after a crash, for good if no node knows of the
                # pack any more.
                await self.database.stored()
                durable = wanted
            else:
                packed += await self._pack(partition)
        self._working = False
        if packed:
            what = counted(packed, "partition is packed", "partitions are packed")
            logger.info("%s at %s", what, p64(self.wanted()).hex())
        await self.database.stored()
        if not self._working:
            waiting, self._waiting = self._waiting, []
            for peer, message_id in waiting:
                peer.answer(message_id, AnswerPack(True))

    async def _pack(self, partition: int) -> bool:
        """Pack one cell. Return False if the cell, or the wanted tid, changed meanwhile."""
        pace, tid = self.background, self.wanted()
        oid: bytes | None = self._start_oid(partition)
        ahead, maintenance = LookAhead(), self.database.backend.maintenance
        while oid is not None:
            while self.locks.undoing(self._concerns(partition)):
                # The undo refers to a revision that the pack may delete.
                await pace.sleep(LOOK_SECONDS)
            if not self.pending(partition) or self.wanted() != tid:
                return False
            began = pace.monotonic()
            oid = maintenance.pack(p64(tid), partition, oid, pace.rows(STEP_LENGTH), ahead)
            if oid is None:
                # Replication and checks of the cell read executed writes.
                await self.database.stored()
                if not self.pending(partition) or self.wanted() != tid:
                    return False
                self.set_packed(partition, tid)
            else:
                set_begun_pack(self.database.backend.tables, partition, tid, oid)
            await self.database.stored()
            if self.host.fault(FaultSite.JOB_STANDS_STILL):
                await pace.sleep(LATE_SECONDS)
            await pace.give_way(began)
        return True
