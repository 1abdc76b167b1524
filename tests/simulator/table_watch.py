"""Oracle: all changes of partition tables are legal (specification 9; decision 6).

On the master, storage nodes, the admin node and clients, each change leads to the next version of the
table, and takes each cell to a state that may follow.

A table that a master sends has a readable cell of each partition. No master sends an older version than
before, or the same version with other rows. A master does not begin with a table that is older than
that of a storage node it knows, or that could not follow from the newest of these. A master that was
restarted may give a number again that an earlier one gave: if no connected storage node has that table,
nothing depended on it.

The table of a storage node, a client or the admin node is one that a master sent, row by row. A storage
node or a client never goes back, neither to an older table of a master nor to an earlier master.

When nothing happens any more, all processes that run have the table of the master.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from neo.admin.core import AdminCore
from neo.client.connect.master import MasterHandler
from neo.master.cluster import Cluster as MasterCluster
from neo.master.phases.recovery import UNKNOWN_TABLES
from neo.master.primary import PrimaryMaster
from neo.net.channel import Channel
from neo.node.core import Core
from neo.protocol.enums import ClusterState
from neo.protocol.ids import format_nid
from neo.protocol.packets import (
    CellChange,
    CellRow,
    Message,
    NotifyPartitionChanges,
    SendPartitionTable,
)
from neo.storage.cells import Cells
from neo.storage.node import StorageNode
from neo.topology.partitions import PartitionTable
from tests.simulator.cluster import Cluster
from tests.simulator.planting import plant
from tests.simulator.replicas import illegal
from tests.simulator.world import Violation, World

#: Messages with a table or a change of it.
_TABLE = (SendPartitionTable, NotifyPartitionChanges)


#: The epoch of a master, 0 for a single one; and its number in the order of the masters' beginning.
Reign = tuple[int, int]


class Told(NamedTuple):
    master: Reign
    replicas: int
    rows: list[list[CellRow]]


class TableWatch:
    """The oracle. ``storages(cluster)`` returns the cores of the storage nodes that run."""

    def __init__(self, world: World, storages: Callable[[str], list[StorageNode]]) -> None:
        self._world = world
        self._storages = storages
        #: Tables that masters sent, by cluster and ptid.
        self._told: dict[tuple[str, int], list[Told]] = {}
        #: Master → its reign and the ptid that it sent last.
        self._masters: dict[PrimaryMaster, tuple[Reign, int]] = {}
        #: Storage node or client → the master whose table it has, and the ptid.
        self._positions: dict[object, tuple[Reign, int]] = {}

    def _fail(self, text: str) -> None:
        self._world.fail(Violation(text))

    # -- masters -----------------------------------------------------------------------------------

    def tells(self, master: PrimaryMaster) -> None:
        """Check the table that a master is about to send."""
        table, cluster = master.partitions, master.settings.cluster
        assert table.ptid is not None
        # A master that stood still must not send its table after a later master has sent one.
        epoch = 0 if master.tenure is None else master.tenure.epoch
        reign, last = self._masters.get(master, ((epoch, len(self._masters)), -1))
        self._masters[master] = reign, table.ptid
        what = f"a master tells of partition table {table.ptid} of {cluster}"
        if table.ptid < last:
            self._fail(f"{what}, after {last}")
        if master.cluster.state is ClusterState.RECOVERING:
            self._check_recovered(what, master)
        for partition in range(len(table)):
            if not table.readable(partition):
                self._fail(f"{what}, in which no node has partition {partition}")
        told = Told(reign, table.replicas, table.row_list())
        others = self._told.setdefault((cluster, table.ptid), [])
        if any(other.master == reign and other != told for other in others):
            self._fail(f"{what}, for the second time and with other rows")
        if told not in others:
            others.append(told)

    def _check_recovered(self, what: str, master: PrimaryMaster) -> None:
        """Check that the first table of a master follows from the answers of storage nodes."""
        table = master.partitions
        answered = master.cluster.identified_storages() & master.recovery._answers.keys()
        newest: PartitionTable | None = None
        for core in self._storages(master.settings.cluster):
            known = core.cells.partitions
            if core.cluster.nid in answered and known.ptid is not None:
                if newest is None or newest.ptid is None or known.ptid > newest.ptid:
                    newest = known
        if newest is None or newest.ptid is None or table.ptid is None:
            return
        found = table.ptid
        if (
            not master.cluster.published.ptid
            and newest.nodes(readable_only=True) <= master.cluster.identified_storages()
        ):
            found -= UNKNOWN_TABLES  # a new master leaves these tables out
        if found < newest.ptid:
            self._fail(f"{what}, and a storage node has {newest.ptid}")
        self._find(master.settings.cluster, newest, "a storage node")
        if len(newest) != len(table):
            begun = [pending.operation for pending in master.operations.all()]
            if not any(operation and operation.kind == "partitions" for operation in begun):
                self._fail(f"{what} of {len(table)} partitions, and a storage node has {len(newest)}")
            before, newest = newest, PartitionTable()
            newest.load(before.ptid, before.replicas, before.row_list())
            newest.regroup(len(table))
        for partition, row in enumerate(table.rows):
            old = newest.rows[partition]
            for nid in sorted(row.keys() | old.keys()):
                if row.get(nid) is not old.get(nid):
                    if wrong := illegal(old.get(nid), row.get(nid)):
                        self._fail(f"{what}; partition {partition} of {format_nid(nid)}: {wrong}")

    # -- all others --------------------------------------------------------------------------------

    def _find(self, cluster: str, table: PartitionTable, who: str) -> Reign:
        """Return the reign of the last master that sent this table."""
        assert table.ptid is not None
        here = table.replicas, table.row_list()
        told = self._told.get((cluster, table.ptid), [])
        reigns = [other.master for other in told if (other.replicas, other.rows) == here]
        if not reigns:
            self._fail(f"{who} has a partition table {table.ptid} that no master sent")
        return max(reigns, default=(0, 0))

    def has(self, who: str, cluster: str, table: PartitionTable, process: object = None) -> None:
        """Check a table that a node or client applied. ``process``: the process that must not go
        back."""
        if table.ptid is None:
            return  # an empty table tells the admin node that there is none
        position = self._find(cluster, table, who), table.ptid
        if process is not None:
            before = self._positions.get(process, position)
            if position < before:
                self._fail(f"{who} goes back from partition table {before[1]} to {table.ptid}")
            self._positions[process] = position


@contextmanager
def watched_tables(
    world: World, storages: Callable[[str], list[StorageNode]] = lambda cluster: []
) -> Iterator[None]:
    """Inside the block, fail the world at the first illegal table or change of a table."""
    watch = TableWatch(world, storages)
    change, publish = PartitionTable.change, MasterCluster.publish_table
    cells_changed = Cells._changed
    notified, cluster_changed = MasterHandler.notified, AdminCore.cluster_changed

    def watched_change(
        self: PartitionTable, ptid: int, replicas: int, changes: Iterable[CellChange]
    ) -> None:
        changes = list(changes)
        for problem in _problems(self, ptid, changes):
            world.fail(Violation(f"partition table {self.ptid} -> {ptid}: {problem}"))
        change(self, ptid, replicas, changes)

    def watched_publish(self: MasterCluster) -> None:
        assert isinstance(self.events, PrimaryMaster)
        watch.tells(self.events)
        publish(self)

    def watched_cells(self: Cells) -> None:
        cells_changed(self)
        cluster = self._cluster
        watch.has(format_nid(cluster.nid or 0), cluster.name, self.partitions, self)

    def watched_client(self: MasterHandler, channel: Channel, message: Message) -> None:
        notified(self, channel, message)
        # What a lost connection had received changes only its own tables, which are not used any more.
        if isinstance(message, _TABLE) and channel.lost is None:
            client = self._connections
            watch.has("a client", client.settings.cluster, self._partitions, client)

    def watched_admin(self: AdminCore) -> None:
        cluster_changed(self)
        primary = self.link.primary
        if primary is not None:
            watch.has("the admin node", self.settings.cluster, primary.mirror.partitions)

    with plant(
        [
            (PartitionTable, "change", watched_change),
            (MasterCluster, "publish_table", watched_publish),
            (Cells, "_changed", watched_cells),
            (MasterHandler, "notified", watched_client),
            (AdminCore, "cluster_changed", watched_admin),
        ]
    ):
        yield


def _problems(table: PartitionTable, ptid: int, changes: list[CellChange]) -> Iterator[str]:
    if table.ptid is None or ptid != table.ptid + 1:
        yield "it is not the next version"
        return
    for partition, nid, state in changes:
        if wrong := illegal(table.state(partition, nid), state):
            yield f"partition {partition} of {format_nid(nid)}: {wrong}"


def _table(core: Core | None) -> PartitionTable | None:
    if isinstance(core, AdminCore):
        return None if core.link.primary is None else core.link.primary.mirror.partitions
    return core.cells.partitions if isinstance(core, StorageNode) else None


def check_tables(cluster: Cluster) -> None:
    """Raise Violation unless all processes have the master's table. Call on a quiet cluster."""
    master = cluster.master_core
    assert master is not None
    expected = master.partitions.ptid, master.partitions.row_list()
    for process in (*cluster.storages, cluster.admin):
        if (table := _table(process.core)) is not None:
            if (table.ptid, table.row_list()) != expected:
                raise Violation(
                    f"{process.name} has partition table {table.ptid}, which is not that of the"
                    f" master, {expected[0]}"
                )
