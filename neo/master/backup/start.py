"""What is known of the cells of a backup when it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neo.master.backup.following import Backup
from neo.master.backup.memory import Memory
from neo.protocol.ids import ZERO_TID

if TYPE_CHECKING:
    from neo.master.core import MasterCore


def make_backup(master: MasterCore, memory: Memory | None) -> Backup:
    """To enter STARTING_BACKUP. ``memory``: what storage nodes remember; None: until now the cluster
    was RUNNING, so that all readable cells have everything.

    If some node knows that its cells are readable, and does not remember to be a backup, the beginning
    was interrupted before anything was fetched: it is as if it began now. What it remembers is not
    about a cell of which it does not know that it is readable. If no other cell can replace that one,
    the node is asked again: it has heard of it now.
    """
    table, last = master.partitions, master.last_tid
    running = master.running_storages()
    known, unaware = memory or ({}, frozenset())
    cells = [
        (partition, nid)
        for partition in range(len(table))
        for nid in table.readable(partition)
        if nid in running
    ]
    new = any(known.get(nid) is None for partition, nid in cells if (partition, nid) not in unaware)
    rows: list[dict[int, bytes]] = [{} for _ in range(len(table))]
    for partition, nid in cells:
        tid = ZERO_TID if (partition, nid) in unaware else known.get(nid) or ZERO_TID
        rows[partition][nid] = last if new else tid
    return Backup(master, rows, last, new, unaware.intersection(cells))
