"""Changes of the partition table, and what follows from them for the own cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neo.protocol.enums import CellState
from neo.protocol.ids import p64
from neo.protocol.packets import CellChange
from neo.storage import proof
from neo.storage.commit.transactions import CellMode
from neo.storage.maintenance import repair
from neo.topology.partitions import PartitionTable

if TYPE_CHECKING:
    from neo.storage.node import StorageNode

CORRUPTED = CellState.CORRUPTED


def check(core: StorageNode, table: PartitionTable) -> None:
    """Raise ValueError if the table is not one of this node's database: the master serves another one.

    Each table of a database has a greater id than all before, whoever was away (decision 6). Else a node
    that has data would forget its cells, and erase them.
    """
    assert table.ptid is not None
    count, own = core.backend.partition_count(), core.partitions
    if count not in (0, len(table)):
        raise ValueError(
            f"the database has {count} partitions and the cluster {len(table)}: it belongs to"
            " another cluster of the same name"
        )
    if own.ptid is None or own.ptid < table.ptid or core.nid not in own.nodes(readable_only=True):
        return
    if own.ptid > table.ptid or own.row_list() != table.row_list():
        raise ValueError(
            f"partition table {own.ptid} of this database cannot become {table.ptid} of the master, which"
            " serves another database: an empty one that was just created? Nothing is changed here. Stop"
            " the cluster, then start it with the nodes that have the data"
        )


def replace(core: StorageNode, table: PartitionTable) -> None:
    """SendPartitionTable. Raises ValueError if the database belongs to another cluster."""
    check(core, table)
    assert table.ptid is not None and core.nid is not None
    outdated = {
        c.partition: c.tid for c in core.backend.cells() if c.nid == core.nid and c.tid >= 0
    }
    core.backend.change_cells(table.ptid, table.replicas, table.changes(), core.nid, replace=True)
    repair.mark(core, {p for p in _corrupted(core) if table.state(p, core.nid) is not CORRUPTED})
    proof.table_replaced(core, core.partitions, table)
    dropped = set(core.partitions.assigned(core.nid)) - set(table.assigned(core.nid))
    core.partitions = table
    core.backup.told_late([p64(outdated[p]) for p in core.readable_partitions() if p in outdated])
    core.store_table()
    _changed(core, bool(dropped))


def change(core: StorageNode, ptid: int, replicas: int, changes: list[CellChange]) -> None:
    """NotifyPartitionChanges."""
    assert core.nid is not None
    own = {partition: state for partition, nid, state in changes if nid == core.nid}
    core.backend.change_cells(ptid, replicas, changes, core.nid, replace=False)
    repair.mark(core, {p for p in _corrupted(core) if own.get(p, CORRUPTED) is not CORRUPTED})
    core.partitions.change(ptid, replicas, changes)
    proof.cells_changed(core, core.readable_partitions())
    core.backup.cells_changed(changes)
    core.store_table()
    _changed(core, CellState.DISCARDED in own.values())


def _corrupted(core: StorageNode) -> set[int]:
    """Own cells that a check found to be wrong."""
    return {p for p, row in enumerate(core.partitions.rows) if row.get(core.nid or 0) is CORRUPTED}


def _changed(core: StorageNode, dropped: bool) -> None:
    """Transactions in progress follow what the own cells have become."""
    if not core.operational:
        return  # StartOperation will look for what is to be dropped or replicated
    core.replicator.update()
    core.locks.replicated(lambda oid: core.cell_mode(oid) is CellMode.NORMAL)
    core.locks.lose(lambda oid: core.cell_mode(oid) is CellMode.ABSENT)
    core.replicator.begin()
    core.packer.begin()
    if dropped:
        core.eraser.begin()
