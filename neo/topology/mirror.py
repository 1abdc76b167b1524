"""Apply the tables that a primary master sends, and refuse impossible ones.

Admin nodes, clients, storage nodes and the master of a backup cluster mirror the tables of a primary
master. A message that a correct master cannot send raises PeerError and changes nothing.
"""

from __future__ import annotations

from neo.protocol.enums import CellState
from neo.protocol.errors import PeerError
from neo.protocol.packets import NotifyNodeInformation, NotifyPartitionChanges, SendPartitionTable
from neo.topology.nodes import NodeTable
from neo.topology.partitions import PartitionTable

TableMessage = NotifyNodeInformation | SendPartitionTable | NotifyPartitionChanges


def check_table(message: SendPartitionTable) -> None:
    """Raise PeerError if this cannot be a whole table."""
    if any(state is CellState.DISCARDED for row in message.row_list for _, state in row):
        raise PeerError("the partition table has a DISCARDED cell")


def check_changes(
    table: PartitionTable, message: NotifyPartitionChanges, repeated: bool = False
) -> None:
    """Raise PeerError unless the changes follow the table or, if ``repeated``, led to it."""
    expected = () if table.ptid is None else (table.ptid + 1, *([table.ptid] if repeated else []))
    if message.ptid not in expected:
        raise PeerError(f"wrong partition table id: {message.ptid} does not follow {table.ptid}")
    for partition, _, _ in message.cell_list:
        if not 0 <= partition < len(table):
            raise PeerError(f"the partition table has {len(table)} rows, none of partition {partition}")


class Mirror:
    """The node table and the partition table of a cluster, as its primary master sends them."""

    def __init__(self) -> None:
        self.nodes = NodeTable()
        self.partitions = PartitionTable()

    def apply(self, message: TableMessage) -> None:
        """Apply one message. Idempotent, because a client repeats a message whose effect an exception
        from outside has interrupted. Raises PeerError."""
        if isinstance(message, NotifyNodeInformation):
            self.nodes.update(message.timestamp, message.node_list)
        elif isinstance(message, SendPartitionTable):
            check_table(message)
            self.partitions.load(message.ptid, message.num_replicas, message.row_list)
        else:
            check_changes(self.partitions, message, repeated=True)
            self.partitions.change(message.ptid, message.num_replicas, message.cell_list)
