"""Oracle: partition tables change only as they may (specification, *Partition Table*; decision 6).

Wherever a table lives, in the master, in storages, in the admin node and in clients, each change is the
next version of it, and takes each cell from one state to another that may follow.

What a master tells leaves each partition a cell that can be read. No master tells a smaller version than
before, or the same one with other rows; and when it begins, none that is older than that of a storage
node that it knows, or that could not follow from the newest of these. A master that was restarted may
give a number again that an earlier one told: if no storage node that is there has it, nothing depended on
it.

Whatever a storage node, a client or the admin node has is what a master told, row by row. A
storage node and a client never go back, neither to an older table of a master nor to an earlier master.

When nothing happens any more, all that live have the table of the master.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from neo.admin.core import MirrorHandler
from neo.client.master import MasterLink
from neo.master.cluster import Cluster as MasterCluster
from neo.master.phases.recovery import UNKNOWN_TABLES
from neo.master.primary import PrimaryMaster
from neo.net.channel import Channel
from neo.node.handler import Method
from neo.node.peer import Peer
from neo.protocol.enums import ClusterState
from neo.protocol.ids import format_nid
from neo.protocol.packets import (
    CellChange,
    CellRow,
    Message,
    NotifyPartitionChanges,
    SendPartitionTable,
)
from neo.storage import cells
from neo.storage.core import StorageCore
from neo.topology.partitions import PartitionTable
from tests.simulator.canaries.base import plant
from tests.simulator.cluster import Cluster
from tests.simulator.replicas import illegal
from tests.simulator.world import Violation, World

#: Messages that are about the table.
_TABLE = (SendPartitionTable, NotifyPartitionChanges)


#: Its epoch among several masters, 0 for a single one; and the how-manieth it is.
Reign = tuple[int, int]


class Told(NamedTuple):
    master: Reign
    replicas: int
    rows: list[list[CellRow]]


class TableWatch:
    """``storages(cluster)``: the cores of the storage nodes that run."""

    def __init__(self, world: World, storages: Callable[[str], list[StorageCore]]) -> None:
        self._world = world
        self._storages = storages
        #: Tables that were told, by cluster and ptid.
        self._told: dict[tuple[str, int], list[Told]] = {}
        #: Master → its reign and what it told last.
        self._masters: dict[PrimaryMaster, tuple[Reign, int]] = {}
        #: Storage node or client → the master whose table it has, and the ptid.
        self._positions: dict[object, tuple[Reign, int]] = {}

    def _fail(self, text: str) -> None:
        self._world.fail(Violation(text))

    # -- masters -----------------------------------------------------------------------------------

    def tells(self, master: PrimaryMaster) -> None:
        """Somebody is about to be told of its table."""
        table, cluster = master.partitions, master.settings.cluster
        assert table.ptid is not None
        # One that stood still may tell nobody of its table when a later one has told everybody.
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
                self._fail(f"{what}, in which nobody has partition {partition}")
        told = Told(reign, table.replicas, table.row_list())
        others = self._told.setdefault((cluster, table.ptid), [])
        if any(other.master == reign and other != told for other in others):
            self._fail(f"{what}, for the second time and with other rows")
        if told not in others:
            others.append(told)

    def _check_recovered(self, what: str, master: PrimaryMaster) -> None:
        """What it begins with follows from what storage nodes have answered."""
        table = master.partitions
        answered = master.cluster.identified_storages() & master.recovery._answers.keys()
        newest: PartitionTable | None = None
        for core in self._storages(master.settings.cluster):
            known = core.partitions
            if core.nid in answered and known.ptid is not None:
                if newest is None or newest.ptid is None or known.ptid > newest.ptid:
                    newest = known
        if newest is None or newest.ptid is None or table.ptid is None:
            return
        found = table.ptid
        if (
            not master.cluster.published.ptid
            and newest.nodes(readable_only=True) <= master.cluster.identified_storages()
        ):
            found -= UNKNOWN_TABLES  # a master that is new leaves them out
        if found < newest.ptid:
            self._fail(f"{what}, and a storage node has {newest.ptid}")
        self._find(master.settings.cluster, newest, "a storage node")
        for partition, row in enumerate(table.rows):
            old = newest.rows[partition]
            for nid in sorted(row.keys() | old.keys()):
                if row.get(nid) is not old.get(nid):
                    if wrong := illegal(old.get(nid), row.get(nid)):
                        self._fail(f"{what}; partition {partition} of {format_nid(nid)}: {wrong}")

    # -- all others --------------------------------------------------------------------------------

    def _find(self, cluster: str, table: PartitionTable, who: str) -> Reign:
        """The last master that told of it."""
        assert table.ptid is not None
        here = table.replicas, table.row_list()
        told = self._told.get((cluster, table.ptid), [])
        reigns = [other.master for other in told if (other.replicas, other.rows) == here]
        if not reigns:
            self._fail(f"{who} has a partition table {table.ptid} that no master told")
        return max(reigns, default=(0, 0))

    def has(self, who: str, cluster: str, table: PartitionTable, process: object = None) -> None:
        """A node or client took a table. ``process``: who must not go back."""
        if table.ptid is None:
            return  # the admin node is told that there is none
        position = self._find(cluster, table, who), table.ptid
        if process is not None:
            before = self._positions.get(process, position)
            if position < before:
                self._fail(f"{who} goes back from partition table {before[1]} to {table.ptid}")
            self._positions[process] = position


@contextmanager
def watched_tables(
    world: World, storages: Callable[[str], list[StorageCore]] = lambda cluster: []
) -> Iterator[None]:
    """Inside the block, the world fails at the first table, or change of one, that may not be."""
    watch = TableWatch(world, storages)
    change, publish = PartitionTable.change, MasterCluster.publish_table
    replace, change_cells = cells.replace, cells.change
    notified, method = MasterLink.notified, MirrorHandler.method

    def watched_change(
        self: PartitionTable, ptid: int, replicas: int, changes: Iterable[CellChange]
    ) -> None:
        changes = list(changes)
        for problem in _problems(self, ptid, changes):
            world.fail(Violation(f"partition table {self.ptid} -> {ptid}: {problem}"))
        change(self, ptid, replicas, changes)

    def watched_publish(self: MasterCluster) -> None:
        assert isinstance(self._events, PrimaryMaster)
        watch.tells(self._events)
        publish(self)

    def watched_replace(core: StorageCore, table: PartitionTable) -> None:
        replace(core, table)
        watch.has(format_nid(core.nid or 0), core.cluster, table, core)

    def watched_cells(core: StorageCore, ptid: int, replicas: int, new: list[CellChange]) -> None:
        change_cells(core, ptid, replicas, new)
        watch.has(format_nid(core.nid or 0), core.cluster, core.partitions, core)

    def watched_client(self: MasterLink, channel: Channel, message: Message) -> None:
        notified(self, channel, message)
        if isinstance(message, _TABLE):
            session = self._session
            watch.has("a client", session.settings.cluster, self._partitions, session)

    def watched_admin(self: MirrorHandler, kind: type[Message]) -> Method | None:
        handle = method(self, kind)
        if handle is None or kind not in _TABLE:
            return handle

        def watched(peer: Peer, message_id: int, message: Message) -> Message | None:
            answer = handle(peer, message_id, message)
            watch.has("the admin node", self._core.cluster, self._core.partitions)
            return answer

        return watched

    with plant(
        [
            (PartitionTable, "change", watched_change),
            (MasterCluster, "publish_table", watched_publish),
            (cells, "replace", watched_replace),
            (cells, "change", watched_cells),
            (MasterLink, "notified", watched_client),
            (MirrorHandler, "method", watched_admin),
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


def check_tables(cluster: Cluster) -> None:
    """When nothing happens any more. Raises Violation."""
    master = cluster.master_core
    assert master is not None
    expected = master.partitions.ptid, master.partitions.row_list()
    for process in (*cluster.storages, cluster.admin):
        if process.core is not None:
            table = process.core.partitions
            if (table.ptid, table.row_list()) != expected:
                raise Violation(
                    f"{process.name} has partition table {table.ptid}, which is not that of the"
                    f" master, {expected[0]}"
                )
