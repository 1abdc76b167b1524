"""RECOVERING: find the newest partition table, and wait until it is safe to start.

The conditions are those of specification 4.16 to 4.19, plus two. A table older than the last one
that this master served with is never taken, because its nodes may have missed commits (specification
4.16). And the cluster does not start before the nodes that could later start without the others have the
current table (:mod:`neo.master.published_tables`). The log and ``neoctl`` name the nodes that are
awaited.
"""

from __future__ import annotations

import logging

from neo.master.cluster import Cluster
from neo.master.phases.comparison import Comparison
from neo.master.phases.empty_database import turn_out
from neo.master.phases.memory import Memory
from neo.master.settings import MasterSettings
from neo.node.core import Core
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.enums import NodeState, NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.ids import format_nids
from neo.protocol.packets import (
    AnswerObstacle,
    AnswerPartitionTable,
    AnswerRecovery,
    AskPartitionTable,
    AskRecovery,
    CellChange,
    NotifyNodeInformation,
    Truncate,
)
from neo.topology.nodes import Node
from neo.topology.partitions import PartitionTable
from neo.topology.tweak import without

logger = logging.getLogger("neo.master")

#: Versions of the partition table that a restarted master skips, because an earlier master may have
#: published so many to nodes that are not connected now. Only a cluster with more cells than this makes
#: more changes at a time.
UNKNOWN_TABLES = 1000
#: If the operator gave up nodes, which may have gone on under other masters, the next version is the
#: number of milliseconds since 1970: of two starts that contradict each other, the later one has the
#: greater version. If the clock is behind, the master skips this many versions, as a thousand restarts
#: would.
GIVEN_UP_TABLES = 1000 * UNKNOWN_TABLES

#: Time that a new primary waits for all nodes with readable cells. They notice the loss of the old
#: primary within three seconds; nodes that come later copy what they miss.
STORAGES_SECONDS = 6.0


class Recovery:
    """One stay in RECOVERING."""

    def __init__(
        self,
        cluster: Cluster,
        core: Core,
        settings: MasterSettings,
        comparison: Comparison,
        was_operational: bool,
        partitions: int | None,
    ) -> None:
        """``was_operational``: this master has verified the database before. ``partitions``: the number
        that the table gets, if all nodes are there; None: as it is."""
        self._cluster = cluster
        self._core = core
        self._settings = settings
        self._comparison = comparison
        self._partitions = partitions
        #: Done when the cluster may start: all nodes that it needs are there, and remember a truncation.
        self.ended: Future[None] = Future()
        #: Answers of storage nodes by id; that of a node that is asked again is removed meanwhile.
        self._answers: dict[int, AnswerRecovery] = {}
        #: The node that is being asked for its table.
        self._asking: Peer | None = None
        self._reported = ""
        #: Tables of nodes that do not have the newest one, as far as needed; None while a node is asked.
        self._older: dict[int, PartitionTable | None] = {}
        #: The backup's position that storage nodes keep; None if the database is no backup. Valid at the
        #: end.
        self.backup: Memory | None = None
        #: The last table in use is known, so an older one cannot be taken: no split brain is possible.
        self._continues = cluster.served_ptid is not None
        #: A new primary knows from the log which table to wait for; storage nodes are about to connect.
        self._patient = self._continues and not was_operational
        #: The operator started the cluster.
        self.forced = False

    async def run(self) -> None:
        """Return when the tables are ready for VERIFYING."""
        self._cluster.partitions.clear()
        for peer in self._cluster.storages():
            self.joined(peer)
        if self._patient:
            self._core.call_later(STORAGES_SECONDS, self._lose_patience)
        self.check()
        await self.ended
        self._cluster.truncate_tid = self._truncate_tid()
        self.backup = self._backup()
        self._prepare()

    # -- answers of storage nodes ------------------------------------------------------------------------

    def joined(self, peer: Peer) -> None:
        """Ask a connected storage node what it remembers."""
        self._core.spawn(self._ask(peer))

    async def _ask(self, peer: Peer) -> None:
        node = peer.node
        assert node is not None and node.nid is not None
        self._forget(node.nid)
        try:
            answer = await peer.ask(AskRecovery())
        except ConnectionLost:
            return
        except ErrorAnswer as e:
            logger.error("%r failed to answer AskRecovery: %s", peer, e)
            return
        if self.ended.done:
            return
        self._answers[node.nid] = answer
        if answer.ptid is not None:
            self._cluster.published.confirmed(node.nid, answer.ptid)
        await self._load_table()
        self.check()

    def _forget(self, nid: int) -> None:
        """Remove the answers of a node. It is asked again if it comes back."""
        self._answers.pop(nid, None)
        self._older.pop(nid, None)

    def _newest(self) -> tuple[int, int] | None:
        """Return (ptid, nid) of the connected node with the newest table; None if no node has one."""
        present = self._cluster.identified_storages()
        return max(
            (
                (answer.ptid, nid)
                for nid, answer in self._answers.items()
                if answer.ptid is not None and nid in present
            ),
            default=None,
        )

    async def _load_table(self) -> None:
        """Get the newest table from a node that has it, or from another one if that node is lost."""
        while not self.ended.done and (newest := self._newest()) is not None:
            ptid, nid = newest
            loaded = self._cluster.partitions.ptid
            if self._asking is not None or (loaded is not None and loaded >= ptid):
                return
            peer = self._asking = self._cluster.connected[nid]
            try:
                table = await self._ask_table(peer, nid)
            finally:
                self._asking = None
            if table is not None and not self.ended.done:
                self._cluster.partitions.load(table.ptid, table.num_replicas, table.row_list)
                turn_out(self._cluster)
                self._show_admins()

    async def _ask_table(self, peer: Peer, nid: int) -> AnswerPartitionTable | None:
        """Return the table of a node. None if it does not answer; its other answer is removed then."""
        try:
            table = await peer.ask(AskPartitionTable())
        except (ConnectionLost, ErrorAnswer) as e:
            logger.warning("%r failed to answer AskPartitionTable: %s", peer, e)
            self._forget(nid)
            return None
        return table

    def _show_admins(self) -> None:
        """Show operators the table, and nodes with cells that were not known yet."""
        nodes = self._cluster.nodes
        rows = [
            nodes.add(Node(NodeType.STORAGE, nid, state=NodeState.DOWN)).row()
            for nid in sorted(self._cluster.partitions.nodes())
            if nodes.get(nid) is None
        ]
        for peer in self._cluster.of_type(NodeType.ADMIN):
            peer.send(NotifyNodeInformation(self._cluster.stamp(), rows))
            peer.send(self._cluster.table())

    # -- conditions ----------------------------------------------------------------------------------

    def lost(self) -> None:
        """React to the loss of a storage node."""
        present = self._cluster.identified_storages()
        for nid in list(self._answers):
            if nid not in present:
                self._forget(nid)
        self._comparison.storages_lost(present)
        self.check()

    def check(self) -> None:
        """Start if that is safe without a command of the operator."""
        if self.ended.done:
            return
        at_once = self._continues and not self._patient and not self._truncate_tid()
        reason = self._obstacle(strict=not at_once)
        if reason is None:
            self.ended.resolve(None)
        elif reason != self._reported:
            self._reported = reason
            logger.info("waiting to start: %s", reason)

    def _lose_patience(self) -> None:
        """Start without the storage nodes that are away, if the others have all that was committed."""
        self._patient = False
        self.check()

    def obstacle_to_force(self) -> str | None:
        """Return why the operator cannot start the cluster now; None if that is possible."""
        return self._obstacle(strict=False, forced=True)

    def describe(self) -> AnswerObstacle:
        """Return why the cluster does not start, and why the operator cannot start it. Change nothing: in
        particular, order no truncation."""
        waits = self._truncate_tid() is not None
        forced = self._reported if waits else self.obstacle_to_force()
        return AnswerObstacle(self._reported, forced or "")

    def force(self) -> None:
        """Start, as the operator asked."""
        assert self.obstacle_to_force() is None
        self.forced = True
        self.ended.resolve(None)

    def _obstacle(self, strict: bool, forced: bool = False) -> str | None:
        """Return why the cluster may not start now; None if it may. ``strict``: all nodes with readable
        cells must be connected."""
        if self._cluster.partitions.ptid is None:
            return self._obstacle_to_creation(forced)
        return self._obstacle_to_restart(strict, forced)

    def _obstacle_to_creation(self, forced: bool) -> str | None:
        storages = self._cluster.identified_storages()
        if not storages:
            return "no storage node is connected"
        if storages - self._answers.keys():
            return f"{_names(storages - self._answers.keys())} did not answer yet"
        if any(answer.ptid is not None for answer in self._answers.values()):
            return "the partition table is being read"
        if self._cluster.served_ptid is not None:
            return f"no node has the partition table {self._cluster.served_ptid} that was in use"
        autostart = self._settings.autostart
        if forced or (autostart and len(storages) >= autostart):
            return None
        if autostart:
            return f"a new database is created when {autostart} storage nodes are connected"
        return "a new database is created when the operator says so: neoctl start"

    def _obstacle_to_restart(self, strict: bool, forced: bool) -> str | None:
        table = self._cluster.partitions
        assert table.ptid is not None
        newest = self._newest()
        if newest is not None and newest[0] > table.ptid:
            return "the partition table is being read"
        served = self._cluster.served_ptid
        absent = self._cluster.served_nodes - self._answers.keys()
        if served is not None and table.ptid < served and absent:
            return (
                f"the newest partition table here is {table.ptid}, but {served} was in use: "
                f"commits would be lost; start {_names(absent)}"
            )
        identified = self._cluster.identified_storages()
        if (disagreement := self._comparison.disagreement) is not None:
            obstacle = disagreement.obstacle(identified, forced)
            if obstacle is not None:
                return obstacle
        alone = None if forced else self._cluster.published.missing(self._answers.keys())
        if alone is not None:
            return (
                f"partition table {alone.ptid} may be the last that {_names(set(alone.readable))} has:"
                " it would serve alone later, without what is committed now; start it"
            )
        readable = table.nodes(readable_only=True)
        truncate_tid = self._truncate_tid()
        required = readable if truncate_tid is None else table.nodes()
        if not strict:
            # Nodes that are absent from a truncation lose their cells: see _prepare.
            required = required & identified
        missing = required - identified
        if missing:
            return f"{_names(missing)} must be connected first"
        if not required:
            return f"no storage node with readable data is connected: start {_names(readable)}"
        silent = required - self._answers.keys()
        if silent:
            return f"{_names(silent)} did not answer yet"
        if not table.operational(identified):
            return f"some partitions cannot be read without {_names(table.missing(identified))}"
        if truncate_tid is not None:
            return self._obstacle_to_truncation(required, truncate_tid)
        return self._obstacle_to_backup(readable & identified)

    def _truncate_tid(self) -> bytes | None:
        """Return the tid to truncate to: as the operator asked, or as a storage node remembers from a
        truncation that was interrupted.

        Only nodes with readable cells count: a truncation that another node remembers was done without
        it, and commits have followed.
        """
        readable = self._cluster.partitions.nodes(readable_only=True)
        remembered = [
            answer.truncate_tid
            for nid, answer in self._answers.items()
            if answer.truncate_tid is not None and nid in readable
        ]
        if self._cluster.truncate_tid is not None:
            remembered.append(self._cluster.truncate_tid)
        return min(remembered, default=None)

    def _backup(self) -> Memory | None:
        """Return what storage nodes remember of a backup; None if the database is none, or if the
        operator ends backup mode by a truncation. Only nodes with readable cells know whether it is
        one: a node that is away at the end loses its cells, and a node that has none yet, as a clone,
        remembers nothing, even if its partition table is the newest."""
        if self._cluster.truncate_tid is not None:
            return None
        readable = self._cluster.partitions.nodes(readable_only=True)
        if not any(self._answers[nid].backup_tid for nid in readable & self._answers.keys()):
            return None
        return Memory(
            {nid: answer.backup_tid for nid, answer in self._answers.items()},
            frozenset(
                (partition, nid)
                for nid, own in self._older.items()
                if own is not None
                for partition in set(self._cluster.partitions.readable_by(nid))
                - set(own.readable_by(nid))
            ),
        )

    def _obstacle_to_backup(self, readable: set[int]) -> str | None:
        """Ask each node without the newest table for its own table: the node remembers the progress of a
        backup for the cells that are readable in that one. Return what is missing."""
        if self._backup() is None:
            return None
        ptid = self._cluster.partitions.ptid
        older = {nid for nid in readable if self._answers[nid].ptid != ptid}
        for nid in sorted(older - self._older.keys()):
            self._older[nid] = None
            self._core.spawn(self._ask_older(nid))
        waiting = {nid for nid in older if self._older.get(nid) is None}
        return f"{_names(waiting)} must tell its own partition table" if waiting else None

    async def _ask_older(self, nid: int) -> None:
        table = await self._ask_table(self._cluster.connected[nid], nid)
        if table is None:
            return
        own = PartitionTable()
        own.load(table.ptid, table.num_replicas, table.row_list)
        if self._older.get(nid, own) is None:
            self._older[nid] = own
        self.check()

    def _obstacle_to_truncation(self, required: set[int], tid: bytes) -> str | None:
        """Tell nodes to truncate. Each must remember that durably, before any node truncates."""
        for nid in required:
            stored = self._answers[nid].truncate_tid
            if stored is None or stored > tid:
                peer = self._cluster.connected[nid]
                peer.send(Truncate(tid))
                self.joined(peer)
        waiting = required - self._answers.keys()
        return f"{_names(waiting)} must remember the truncation" if waiting else None

    # -- the end -------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Make the node table and the partition table as the next phases need them."""
        cluster = self._cluster
        identified = cluster.identified_storages()
        if cluster.partitions.ptid is None:
            settings = self._settings
            paths = {n.nid: n.devpath for n in cluster.nodes if n.nid is not None}
            cluster.partitions.create(
                settings.partitions, settings.replicas, list(identified), paths
            )
            serving = identified
        else:
            serving = identified & cluster.partitions.nodes()
            if cluster.partitions.ptid < cluster.published.ptid:
                # A node that is not connected may have a table that was published.
                cluster.partitions.ptid = cluster.published.ptid + 1
            elif not cluster.published.ptid:
                self._remember_older(cluster.partitions.ptid)
                cluster.partitions.ptid = self._later(cluster.partitions.ptid)
            self._regroup(identified)
        cluster.published.give_up(identified)
        nodes = [node for nid in serving if (node := cluster.nodes.get(nid)) is not None]
        cluster.set_node_states(nodes, NodeState.RUNNING)
        unaware = self.backup.unaware if self.backup is not None else ()
        changes: list[CellChange] = []
        if cluster.truncate_tid is not None:
            # Nodes that are absent from a truncation must not bring back rows that the others delete.
            absent = cluster.partitions.nodes() - identified
            changes = without(cluster.partitions, absent)
        changes = changes or cluster.lost_cells(unaware)
        assert cluster.partitions.ptid is not None
        if changes:
            ptid = cluster.partitions.ptid + 1
            cluster.partitions.change(ptid, cluster.partitions.replicas, changes)
        cluster.publish_table()
        for peer in cluster.of_type(NodeType.ADMIN):
            peer.send(cluster.table())

    def _regroup(self, identified: set[int]) -> None:
        """Make the table for another number of partitions, for which all nodes have rows (specification
        27.94)."""
        table = self._cluster.partitions
        if self._partitions is None or self._cluster.truncate_tid is not None or self.backup is not None:
            return
        if table.ptid is not None and table.whole() and table.nodes() <= identified:
            before = len(table)
            table.regroup(self._partitions)
            table.ptid += 1
            logger.warning("%s partitions become %s: table %s", before, len(table), table.ptid)

    def _later(self, ptid: int) -> int:
        """Return a version after those of all tables that an earlier master may have published."""
        readable = self._cluster.partitions.nodes(readable_only=True)
        if readable <= self._cluster.identified_storages():
            return ptid + UNKNOWN_TABLES
        now = int(self._core.host.time() * 1000)
        return now if now > ptid else ptid + GIVEN_UP_TABLES

    def _remember_older(self, ptid: int) -> None:
        """Note tables that an earlier master published, and that nodes may still have when they are
        lost."""
        readable = self._cluster.partitions.nodes(readable_only=True)
        for nid in sorted(readable & self._answers.keys()):
            older = self._answers[nid].ptid
            if older is not None and older < ptid:
                self._cluster.published.remembered(nid, older)


def _names(nids: set[int]) -> str:
    return format_nids(nids) or "other nodes"
