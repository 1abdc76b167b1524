"""What storage nodes remember of a backup when the cluster starts again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from neo.topology.partitions import PartitionTable


class Memory(NamedTuple):
    """What is known of the readable cells."""

    #: ``backup_tid`` of each node: up to what the cells are complete that it knows to be readable.
    tids: dict[int, bytes | None]
    #: (partition, nid) of cells of which their nodes do not know it.
    unaware: frozenset[tuple[int, int]]

    @property
    def least(self) -> bytes | None:
        """The tid up to which all are complete, of those that remember one."""
        return min((tid for tid in self.tids.values() if tid is not None), default=None)


def unaware_cells(
    newest: PartitionTable, older: Mapping[int, PartitionTable]
) -> frozenset[tuple[int, int]]:
    """Cells whose nodes were lost when they became readable: the master knew that they were complete up
    to some tid, but the nodes not that they could be read. ``older``: own tables of nodes that have not
    the newest."""
    return frozenset(
        (partition, nid)
        for nid, own in older.items()
        for partition in set(newest.readable_by(nid)).difference(own.readable_by(nid))
    )
