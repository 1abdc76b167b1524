"""A copy of another node's database becomes a node of its own (specification, *Cloning a Storage Node*).

To replicate a big database takes long; to copy a disk or a snapshot does not. The copy is opened once
with ``--new-nid``: it asks the master for a node id and for OUT_OF_DATE cells of the partitions that it
has, remembers both, and ends. Started again in the usual way, it is compared with the replicas and gets
what it lacks.

How old the copy is does not matter, and nothing is assumed about it: comparison starts from the first
transaction. CORRUPTED cells are not taken.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from neo.node.bootstrap import find_primary
from neo.node.handler import on
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.enums import CellState, NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import format_nid
from neo.protocol.packets import (
    NotifyNodeInformation,
    RequestIdentification,
    SendPartitionTable,
)
from neo.storage import cells
from neo.storage.serving.handler import StorageHandler
from neo.topology.partitions import PartitionTable

if TYPE_CHECKING:
    from neo.storage.node import StorageNode

logger = logging.getLogger("neo.storage")


class _Master(StorageHandler):
    """What follows the acceptance; nothing else is of interest."""

    def __init__(self, core: StorageNode) -> None:
        super().__init__(core)
        self.received: Future[SendPartitionTable] = Future()

    def lost(self, peer: Peer, reason: str) -> None:
        self.received.fail(ConnectionLost(reason))

    @on(NotifyNodeInformation)
    def nodes(self, peer: Peer, message_id: int, m: NotifyNodeInformation) -> None:
        """It says that this node is DOWN, as it is about to be."""

    @on(SendPartitionTable)
    def partitions(self, peer: Peer, message_id: int, m: SendPartitionTable) -> None:
        self.received.resolve(m)


async def clone(core: StorageNode) -> None:
    """Ends the node: exit code 0 when the database is a node of its own, 1 when it cannot be."""
    partitions = [
        partition
        for partition in core.partitions.assigned(core.nid or 0)
        if core.partitions.state(partition, core.nid) is not CellState.CORRUPTED
    ]
    if core.nid is None or not partitions:
        core.fail(ValueError("the database is not a copy of a storage node: no partition is in it"))
        return
    handler = _Master(core)
    request = _request(core, partitions)
    try:
        _, accepted = await find_primary(core, core.masters, request, handler, insist=False)
    except ErrorAnswer as e:
        core.fail(ValueError(f"the master refuses this clone: {e.message}"))
        return
    name = format_nid(accepted.your_nid)
    try:
        message = await handler.received
    except ConnectionLost as e:
        core.fail(ValueError(f"the master was lost: {e}; neoctl drop {name}, then clone again"))
        return
    table = PartitionTable()
    table.load(message.ptid, message.num_replicas, message.row_list)
    try:
        # Nothing is written before: the end commits it.
        cells.check(core, table)
    except ValueError as e:
        core.fail(ValueError(f"it is no copy of a node of this cluster: {e}; neoctl drop {name}"))
        return
    original, core.nid = core.nid, accepted.your_nid
    core.backend.drop_unfinished()
    core.backend.set_config("nid", str(core.nid))
    core.backend.set_config("truncate_tid", None)
    # It has no readable cell, of which alone that would tell.
    core.backup.cut()
    cells.replace(core, table)
    await core.stored()
    logger.warning(
        "this clone of %s is %s: start it without --new-nid", format_nid(original), name
    )
    core.stop(0)


def _request(core: StorageNode, partitions: list[int]) -> RequestIdentification:
    # A master of ours compares the number of partitions before it gives an id and cells.
    extra = {
        "new_nid": partitions,
        "devpath": core.devpath,
        "partitions": core.backend.partition_count(),
    }
    return RequestIdentification(NodeType.STORAGE, None, None, core.cluster, None, extra)
