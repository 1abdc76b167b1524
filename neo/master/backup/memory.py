"""What storage nodes remember of a backup when the cluster starts again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from neo.topology.partitions import PartitionTable


class Memory(NamedTuple):
    """What is known of the readable cells."""

    #: ``backup_tid`` of each node: up to which tid the cells are complete that it knows to be readable.
    tids: dict[int, bytes | None]
    #: (partition, nid) of readable cells whose nodes do not know that they are readable.
    unaware: frozenset[tuple[int, int]]

    @property
    def least(self) -> bytes | None:
        """The tid up to which the cells of all nodes that remember one are complete."""
        return min((tid for tid in self.tids.values() if tid is not None), default=None)


def unaware_cells(
    newest: PartitionTable, older: Mapping[int, PartitionTable]
) -> frozenset[tuple[int, int]]:
    """Return the cells whose nodes were lost when the cells became readable: the master knew that they
    were complete up to some tid, but the nodes did not know that they can be read. ``older``: tables of
    the nodes that do not have the newest one."""
    return frozenset(
        (partition, nid)
        for nid, own in older.items()
        for partition in set(newest.readable_by(nid)).difference(own.readable_by(nid))
    )
