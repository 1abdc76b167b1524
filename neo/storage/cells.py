"""The own cells of a storage node: what the partition table makes of them, and what is in them."""

from __future__ import annotations

from neo.protocol.enums import CellState
from neo.protocol.ids import p64
from neo.protocol.packets import CellChange
from neo.storage.backend.api import FIRST_PLACE, Place, Tables
from neo.storage.cluster import Cluster
from neo.storage.commit.transactions import CellMode
from neo.storage.database import Database
from neo.storage.events import CellsChanged
from neo.storage.following.progress import BackupProgress
from neo.storage.packed import regroup_packed
from neo.storage.proof import Proof, in_groups, read_partitions, write_partitions
from neo.topology.partitions import PartitionTable, grouped

CORRUPTED = CellState.CORRUPTED
#: A row of ``config``: the partitions whose own cell was CORRUPTED. The data of such a cell cannot be
#: trusted, whatever its ids: replication erases the data first, then the entry in this row.
_ERASE = "_erase"
#: Rows of a step, between which no request is served.
REGROUPED_TOGETHER = 1000


class Cells:
    """``partitions``: the last table from the master; after a start, the one in the database."""

    def __init__(self, database: Database, cluster: Cluster) -> None:
        self._database = database
        self._tables = database.backend.tables
        self._regrouping = database.backend.regrouping
        self._cluster = cluster
        self.partitions = load_partitions(self._tables)
        #: Partitions whose own cell is OUT_OF_DATE in the table, but complete: it detects conflicts.
        self.complete: set[int] = set()
        self.proof = Proof(self._tables)
        self.backup = BackupProgress(database, self.readable)

    # -- questions -------------------------------------------------------------------------------

    def state(self, partition: int) -> CellState | None:
        """Return the state of the own cell of a partition, which must exist."""
        return self.partitions.state(partition, self._cluster.nid)

    def is_readable(self, partition: int) -> bool:
        """Return whether the own cell of a partition, which must exist, is readable."""
        state = self.partitions.state(partition, self._cluster.nid)
        return state is not None and state.readable

    def has_readable(self, id_: bytes) -> bool:
        """Return whether the own cell of an oid or a tid is readable."""
        state = self.partitions.state_of(id_, self._cluster.nid)
        return state is not None and state.readable

    def mode(self, oid: bytes) -> CellMode:
        """Return how a store of this object is treated."""
        state = self.partitions.state_of(oid, self._cluster.nid)
        if state is None or not state.writable:
            return CellMode.ABSENT
        if state.readable or self.partitions.partition(oid) in self.complete:
            return CellMode.NORMAL
        return CellMode.LOCKLESS

    def assigned(self) -> list[int]:
        """Return the partitions of which this node has a cell, in any state."""
        nid = self._cluster.nid
        return [] if nid is None else self.partitions.assigned(nid)

    def readable(self) -> list[int]:
        """Return the partitions whose own cell is readable."""
        nid = self._cluster.nid
        return [] if nid is None else self.partitions.readable_by(nid)

    # -- the partition table ---------------------------------------------------------------------

    def check(self, table: PartitionTable) -> None:
        """Raise ValueError if the table is not one of this node's database: the master serves another.

        Each table of a database has a greater id than all before, whichever nodes were away (decision
        6). Else a node that has data would forget its cells, and erase them.
        """
        assert table.ptid is not None
        count, own = self._tables.partition_count(), self.partitions
        own_number = count in (0, len(table)) or len(table) == self._regrouping.regrouped()
        if not own_number and self.assigned():
            raise ValueError(
                f"the database has {count} partitions and the cluster {len(table)}: it belongs to"
                " another cluster of the same name, or the number was changed while this node was away:"
                " then move the database away, and start the node with an empty one"
            )
        if own.ptid is None or own.ptid < table.ptid:
            return
        if self._cluster.nid not in own.nodes(readable_only=True):
            return
        if own.ptid > table.ptid or own.row_list() != table.row_list():
            raise ValueError(
                f"partition table {own.ptid} of this database cannot become {table.ptid} of the master,"
                " which serves another database: an empty one that was just created? Nothing is changed"
                " here. Stop the cluster, then start it with the nodes that have the data"
            )

    def replace(self, table: PartitionTable) -> CellsChanged:
        """Take the table of SendPartitionTable. Raises ValueError as :meth:`check`."""
        self.check(table)
        nid, tables = self._cluster.nid, self._tables
        if tables.partition_count() not in (0, len(table)):
            self._switch(len(table))
        assert table.ptid is not None and nid is not None
        outdated = {c.partition: c.tid for c in tables.cells() if c.nid == nid and c.tid >= 0}
        tables.change_cells(table.ptid, table.replicas, table.changes(), nid, replace=True)
        self._mark({p for p in self._corrupted() if table.state(p, nid) is not CORRUPTED})
        self.proof.table_replaced(nid, self.partitions, table)
        dropped = set(self.partitions.assigned(nid)) - set(table.assigned(nid))
        self.partitions = table
        self.backup.lower([p64(outdated[p]) for p in self.readable() if p in outdated])
        self._changed()
        return CellsChanged((), bool(dropped))

    def _switch(self, partitions: int) -> None:
        """Use the rows for another number of partitions (specification 27.94). Raises ValueError."""
        tables = self._tables
        if self._regrouping.regrouped() != partitions:
            self._regroup(partitions)
        groups = grouped(tables.partition_count(), partitions)
        self.proof.regroup(groups)
        write_partitions(tables, _ERASE, in_groups(read_partitions(tables, _ERASE), groups))
        regroup_packed(tables, groups)
        self._regrouping.switch_partitions(partitions)
        self.partitions.regroup(partitions)
        self.complete.clear()

    def _regroup(self, partitions: int) -> None:
        """Have rows for another number of partitions on a node without cells, which took no part in the
        operation. It has few rows, or none."""
        while not self._regrouping.drop_regrouped(REGROUPED_TOGETHER):
            pass
        if why := self._regrouping.begin_regrouping(partitions):
            raise ValueError(why)
        place: Place | None = FIRST_PLACE
        while place is not None:
            place = self._regrouping.regroup(place, REGROUPED_TOGETHER)

    def change(self, ptid: int, replicas: int, changes: list[CellChange]) -> CellsChanged:
        """Apply the changes of NotifyPartitionChanges."""
        nid = self._cluster.nid
        assert nid is not None
        own = {partition: state for partition, owner, state in changes if owner == nid}
        self._tables.change_cells(ptid, replicas, changes, nid, replace=False)
        self._mark({p for p in self._corrupted() if own.get(p, CORRUPTED) is not CORRUPTED})
        self.partitions.change(ptid, replicas, changes)
        self.proof.cells_changed(nid, self.readable())
        unreadable = [partition for partition, state in own.items() if not state.readable]
        self.backup.lost(unreadable)
        self._changed()
        return CellsChanged(unreadable, CellState.DISCARDED in own.values())

    def _changed(self) -> None:
        self.complete &= self.outdated()
        self._database.store_table()

    def outdated(self) -> set[int]:
        """Return the partitions whose own cell is out of date."""
        return {p for p in self.assigned() if self.state(p) is CellState.OUT_OF_DATE}

    # -- cells that were CORRUPTED ---------------------------------------------------------------

    def _corrupted(self) -> set[int]:
        """Return the partitions whose own cell is CORRUPTED."""
        nid = self._cluster.nid or 0
        return {p for p, row in enumerate(self.partitions.rows) if row.get(nid) is CORRUPTED}

    def _mark(self, partitions: set[int]) -> None:
        """Mark own cells that are not CORRUPTED any more: replication must erase their data."""
        marks = read_partitions(self._tables, _ERASE)
        if not marks.issuperset(partitions):
            write_partitions(self._tables, _ERASE, marks | partitions)

    def is_marked(self, partition: int) -> bool:
        """Return whether replication must erase the data of an own cell."""
        return partition in read_partitions(self._tables, _ERASE)

    def unmark(self, partition: int) -> None:
        """Remove the mark: the data is erased."""
        marks = read_partitions(self._tables, _ERASE)
        write_partitions(self._tables, _ERASE, marks - {partition})


def load_partitions(tables: Tables) -> PartitionTable:
    """Return the partition table that the database has; an empty one if there is none."""
    table = PartitionTable()
    ptid = tables.get_config("ptid")
    if ptid is not None:
        rows: list[list[tuple[int, CellState]]] = [[] for _ in range(tables.partition_count())]
        for partition, nid, tid in tables.cells():
            state = CellState.OUT_OF_DATE if tid >= 0 else CellState(-tid)
            rows[partition].append((nid, state))
        table.load(int(ptid), int(tables.get_config("replicas") or 0), rows)
    return table
