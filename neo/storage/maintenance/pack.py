"""Pack: forget revisions that are not current at a tid, on every replica, whatever happens meanwhile.

Theory of operation
-------------------
A pack that was asked for is *wanted* until it is done: the greatest tid asked for is in the
configuration row ``_pack_wanted``, durably, before the first row goes. A cell is *pending* while it is
readable and was packed at an earlier tid; ``_packed.<partition>`` tells which. So a pack is cut
short by nothing: after a crash the node goes on (``_packing`` tells with which object), and a node that
did not hear of it is told again by the master when it comes back.

What a pack leaves depends on nothing but the tid and the revisions up to it, of the last object also the
deletion (:func:`neo.storage.backend.revisions.pack`). So replicas that have the same revisions end with
the same. Only complete cells are packed for that reason: one that is out of date is made equal to a
source first (``AskPackState``):

* from a source whose cell is pending nothing up to that tid is fetched: it will soon be gone;
* from one whose cell is pending an undo that is later comes as it will be then (``as_packed``);
* if the source was packed at another tid than the own cell, all that is here is compared again, because
  revisions may be gone that were replicated long ago;
* if the source's pack changed while it was compared, the round begins again.

A step is a few milliseconds of work, after which clients have their turn.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial

from neo.net.fault_sites import LATE_SECONDS, FaultSite
from neo.node.host import Host
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode
from neo.protocol.ids import MAX_TID, ZERO_OID, p64, u64
from neo.protocol.packets import AnswerPack
from neo.storage.backend.api import Record
from neo.storage.background import Background
from neo.storage.cells import Cells
from neo.storage.commit.locks import Locks
from neo.storage.database import Database
from neo.storage.events import CellsChanged, Part

logger = logging.getLogger("neo.storage")

#: Objects of a step while no client is at work.
STEP_LENGTH = 200
#: How often it is looked whether undos in progress have ended.
LOOK_SECONDS = 0.02


@dataclass(eq=False, repr=False)
class Packer(Part):
    """Bounds: one job; as many waiting questions as the master asks, which is one at a time."""

    shell: Host
    database: Database
    cells: Cells
    locks: Locks
    background: Background
    _working: bool = field(default=False, init=False)
    _first: int | None = field(default=None, init=False)
    _waiting: list[tuple[Peer, int]] = field(default_factory=list, init=False)

    # -- state -------------------------------------------------------------------------------------

    def wanted(self) -> int:
        """The tid of the last pack that was asked for, 0 if there was none."""
        return int(self.database.backend.get_config("_pack_wanted") or 0)

    def want(self, tid: bytes) -> None:
        """Pack all complete cells at ``tid``, if that is later than what was wanted until now."""
        self.database.backend.packed_elsewhere(tid)
        if self.wanted() < u64(tid) <= u64(MAX_TID):
            self.database.backend.set_config("_pack_wanted", str(u64(tid)))

    def horizon(self) -> bytes:
        """Return the tid before which revisions may be gone, be it by a pack of another node."""
        tid: bytes = p64(int(self.database.backend.get_config("_pack_tid") or 0))
        return tid

    def packed(self, partition: int) -> int:
        """The tid of the last pack that is done in a cell, 0 if there was none."""
        return int(self.database.backend.get_config(f"_packed.{partition}") or 0)

    def set_packed(self, partition: int, tid: int) -> None:
        """Where a pack of this cell was cut short does not matter any more."""
        backend = self.database.backend
        backend.set_config(f"_packed.{partition}", str(tid) if tid else None)
        if self._begun() == partition:
            backend.set_config("_packing", None)

    def _begun(self) -> int | None:
        """The partition whose pack was cut short, or is going on."""
        text = (self.database.backend.get_config("_packing") or "").partition(":")[0]
        return int(text) if text else None

    def pending(self, partition: int) -> bool:
        """Whether an own cell can be read and is to be packed. One of a backup has everything until
        then before."""
        wanted = self.wanted()
        if not self.cells.is_readable(partition) or self.packed(partition) >= wanted:
            return False
        return self.cells.backup.has(partition, p64(wanted))

    def state(self, partition: int) -> bytes:
        """The tid at which a readable cell is packed, or will be before it lets anything until then be
        fetched or compared."""
        tid: bytes = p64(self.wanted() if self.pending(partition) else self.packed(partition))
        return tid

    def as_packed(self, partition: int, oid: bytes, record: Record) -> Record:
        """What a replica gets that may be packed already: there the revision that an undo goes back
        to is gone, and nothing would tell which one has its data now."""
        tid = self.wanted()
        serial = record.data_serial
        if serial is None or u64(serial) > tid or not self.pending(partition):
            return record
        try:
            value = self.database.backend.packed_value(oid, record.serial, p64(tid))
        except KeyError:  # it goes with the pack
            return record
        return record._replace(data_serial=value)

    def _next(self) -> int | None:
        """The partition to pack: the one that was begun, then one that others wait for."""
        for partition in (self._begun(), self._first):
            if partition is not None and self._exists(partition) and self.pending(partition):
                return partition
        return next(filter(self.pending, self.cells.readable()), None)

    def _holds(self, partition: int, oid: bytes) -> bool:
        return self.cells.partitions.partition(oid) == partition

    def _exists(self, partition: int) -> bool:
        return partition < len(self.cells.partitions)

    def _start_oid(self, partition: int) -> bytes:
        """Where a pack at the wanted tid was cut short."""
        text = self.database.backend.get_config("_packing") or ""
        if text.count(":") == 2:
            begun, tid, oid = text.split(":")
            if (int(begun), int(tid)) == (partition, self.wanted()):
                return bytes.fromhex(oid)
        return ZERO_OID

    # -- events ------------------------------------------------------------------------------------

    def ask(self, peer: Peer, message_id: int, tid: bytes) -> None:
        """AskPack: answered when all own cells are packed."""
        self.want(tid)
        self._waiting.append((peer, message_id))
        self.begin()

    def begin(self) -> None:
        """Look for work: the operation began, own cells changed, or got what a pack waits for."""
        if not self._working and (self._waiting or self._next() is not None):
            self._working = True
            self.background.run(self._work())

    def hurry(self, partition: int) -> None:
        """Somebody waits for this cell."""
        self._first = partition

    def operation_started(self) -> None:
        self.begin()

    def cells_changed(self, change: CellsChanged) -> None:
        self.begin()

    def operation_stopped(self) -> None:
        """The job is cancelled."""
        self._working = False
        self._first = None
        waiting, self._waiting = self._waiting, []
        for peer, message_id in waiting:
            peer.refuse(message_id, ErrorCode.NOT_READY, "the pack goes on when the node is back")

    # -- work --------------------------------------------------------------------------------------

    async def _work(self) -> None:
        packed = durable = 0
        while (partition := self._next()) is not None:
            if (wanted := self.wanted()) > durable:
                # What is gone for readers must not be there again after a crash, for good if nobody else
                # remembers that it was to go.
                await self.database.stored()
                durable = wanted
            else:
                packed += await self._pack(partition)
        self._working = False
        if packed:
            logger.info("%s partitions are packed at %s", packed, p64(self.wanted()).hex())
        await self.database.stored()
        if not self._working:
            waiting, self._waiting = self._waiting, []
            for peer, message_id in waiting:
                peer.answer(message_id, AnswerPack(True))

    async def _pack(self, partition: int) -> bool:
        """False if the cell, or what is wanted, changed meanwhile."""
        pace, tid = self.background, self.wanted()
        oid: bytes | None = self._start_oid(partition)
        while oid is not None:
            while self.locks.undoing(partial(self._holds, partition)):
                # It refers to a revision that might go.
                await pace.sleep(LOOK_SECONDS)
            if not self.pending(partition) or self.wanted() != tid:
                return False
            began = pace.monotonic()
            oid = self.database.backend.pack(p64(tid), partition, oid, pace.rows(STEP_LENGTH))
            if oid is None:
                # Whoever replicates or checks the cell reads what is executed.
                await self.database.stored()
                if not self.pending(partition) or self.wanted() != tid:
                    return False
                self.set_packed(partition, tid)
            else:
                self.database.backend.set_config("_packing", f"{partition}:{tid}:{oid.hex()}")
            await self.database.stored()
            if self.shell.fault(FaultSite.JOB_STANDS_STILL):
                await pace.sleep(LATE_SECONDS)
            await pace.give_way(began)
        return True
