"""What is known of the cells of a backup when it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neo.master.backup.following import Backup
from neo.protocol.ids import ZERO_TID

if TYPE_CHECKING:
    from neo.master.core import MasterCore


def make_backup(master: MasterCore, backup_tids: dict[int, bytes | None] | None) -> Backup:
    """To enter STARTING_BACKUP. ``backup_tids``: what storage nodes remember; None: until now the
    cluster was RUNNING, so that all readable cells have everything.

    If some node does not remember to be a backup, the beginning was interrupted before anything was
    fetched: it is as if it began now.
    """
    table, last = master.partitions, master.last_tid
    running = master.running_storages()
    known = backup_tids or {}
    new = any(known.get(nid) is None for nid in table.nodes(readable_only=True) & running)
    rows = [
        {
            nid: last if new else known[nid] or ZERO_TID
            for nid in table.readable(partition)
            if nid in running
        }
        for partition in range(len(table))
    ]
    return Backup(master, rows, last, new)
