"""A copy of another node's database becomes a node of its own (specification 18).

To copy a disk or a snapshot takes less time than to replicate a large database. The copy is opened once
with ``--new-nid``: it asks the master for a node id and for OUT_OF_DATE cells of its partitions, stores
both, and ends. Started again in the usual way, it is compared with the replicas and gets what it lacks.

The copy may be of any age: the comparison starts from the first transaction. CORRUPTED cells are not
taken.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from neo.node.bootstrap import find_primary
from neo.node.core import Core
from neo.node.handler import on
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.enums import CellState, NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import format_nid
from neo.protocol.packets import (
    PARTITIONS,
    NotifyNodeInformation,
    RequestIdentification,
    SendPartitionTable,
)
from neo.storage.cells import Cells
from neo.storage.cluster import Cluster
from neo.storage.database import Database
from neo.storage.serving.handler import StorageHandler
from neo.topology.masters import MasterCandidates
from neo.topology.partitions import PartitionTable

logger = logging.getLogger("neo.storage")


class _Master(StorageHandler):
    """The handler of the master, which waits for the partition table."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.received: Future[SendPartitionTable] = Future()

    def lost(self, peer: Peer, reason: str) -> None:
        self.received.fail(ConnectionLost(reason))

    @on(NotifyNodeInformation)
    def nodes(self, peer: Peer, message_id: int, m: NotifyNodeInformation) -> None:
        """Ignore the node table: the master lists this node as DOWN, since it will end."""

    @on(SendPartitionTable)
    def partitions(self, peer: Peer, message_id: int, m: SendPartitionTable) -> None:
        self.received.resolve(m)


async def clone(
    core: Core,
    masters: MasterCandidates,
    devpath: Sequence[str],
    database: Database,
    cluster: Cluster,
    cells: Cells,
) -> None:
    """Make the database a node of its own, and stop with exit code 0, or 1 after a failure."""
    backend = database.backend
    partitions = [p for p in cells.assigned() if cells.state(p) is not CellState.CORRUPTED]
    if not partitions:
        core.fail(ValueError("the database is not a copy of a storage node: no partition is in it"))
        return
    handler = _Master(database)
    # This master compares the number of partitions before it allocates an id and cells.
    extra = {
        "new_nid": partitions,
        "devpath": list(devpath),
        PARTITIONS: backend.tables.partition_count(),
    }
    request = RequestIdentification(NodeType.STORAGE, None, None, cluster.name, None, extra)
    try:
        _, accepted = await find_primary(core, masters, request, handler, insist=False)
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
        # Before anything is written, since the end of the core commits it.
        cells.check(table)
    except ValueError as e:
        core.fail(ValueError(f"it is no copy of a node of this cluster: {e}; neoctl drop {name}"))
        return
    original, cluster.nid = cluster.nid, accepted.your_nid
    backend.commits.drop_unfinished()
    backend.tables.set_config("nid", str(cluster.nid))
    backend.tables.set_config("truncate_tid", None)
    for operation in backend.operations.journal():
        backend.operations.forget_operation(operation)  # it is the original that has a part in it
    # The rows of a backup are about readable cells, which a clone does not have.
    cells.backup.cut()
    cells.replace(table)
    await database.stored()
    logger.warning("this clone of %s is %s: start it without --new-nid", format_nid(original), name)
    core.stop(0)
