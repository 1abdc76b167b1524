"""Long work on the database, in small steps between which everybody else is served.

Each job is a workflow; it can be cancelled at any step and started again from the beginning: what is
done is found done.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from neo.net.fault_sites import LATE_SECONDS, FaultSite
from neo.node.peer import Peer
from neo.node.task import Cancelled
from neo.protocol.enums import ErrorCode
from neo.protocol.ids import ZERO_OID
from neo.protocol.packets import AnswerPack

if TYPE_CHECKING:
    from neo.storage.core import StorageCore

logger = logging.getLogger("neo.storage")

Job = Coroutine[Any, Any, None]

#: Objects, or rows, of a step: a few milliseconds of work, since nobody is served meanwhile.
STEP_LENGTH = 200


async def pack(core: StorageCore, peer: Peer, message_id: int, tid: bytes) -> None:
    """AskPack: forget what is not current at ``tid`` in all own cells; answers when done."""
    packed = 0
    # Cells that are out of date get what is left from those that are packed.
    core.backend.packed_elsewhere(tid)
    try:
        for partition in core.readable_partitions():
            oid: bytes | None = ZERO_OID
            while oid is not None:
                oid = core.backend.pack(tid, partition, oid, STEP_LENGTH)
                await core.stored()
                if core.shell.fault(FaultSite.JOB_STANDS_STILL):
                    await core.sleep(LATE_SECONDS)
            packed += 1
    except Cancelled:
        peer.refuse(message_id, ErrorCode.NOT_READY, "the pack was interrupted: ask again")
        raise
    logger.info("%s partitions are packed at %s", packed, tid.hex())
    peer.answer(message_id, AnswerPack(True))


async def prune_orphans(core: StorageCore, dry_run: bool) -> None:
    """NotifyRepair: delete, or only count, data that nothing refers to."""
    rows = size = 0
    next_id: int | None = 0
    while next_id is not None:
        found, found_size, next_id = core.backend.prune_orphans(dry_run, next_id, STEP_LENGTH)
        rows += found
        size += found_size
        await core.stored()
    done = "would be deleted" if dry_run else "deleted"
    logger.info("repair: %s orphan records (%s bytes) %s", rows, size, done)


async def drop_partitions(core: StorageCore) -> None:
    """Delete the data of partitions that are not assigned to this node any more."""
    for partition in range(len(core.partitions)):
        while core.partitions.state(partition, core.nid) is None:
            if not core.backend.drop_partition(partition, STEP_LENGTH):
                break
            await core.stored()
        await core.sleep(0)  # the table may be long, and most of it elsewhere
