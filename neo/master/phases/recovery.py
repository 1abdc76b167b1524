"""RECOVERING: find the newest partition table, and wait until it is safe to start.

The conditions are those of the specification, *RECOVERING*, plus two: a table older than the last
one that this master served with is never taken, because commits may have happened that its nodes
have not seen (FACTS 5.5); and nobody serves before the nodes that could later begin without them know
better (:mod:`neo.master.published_tables`). The log and ``neoctl`` say which nodes are waited for.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from neo.master.backup.memory import Memory, unaware_cells
from neo.master.phases.empty_database import turn_out
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

if TYPE_CHECKING:
    from neo.master.core import MasterCore

logger = logging.getLogger("neo.master")

#: Numbers of partition tables that a restarted master leaves out: so many may have been told to nodes of
#: which nobody who is here knows. More changes at a time need as many cells.
UNKNOWN_TABLES = 1000
#: Where the operator gave up nodes, which may have gone on under other masters, numbers go on with the
#: milliseconds since 1970: of two such starts that contradict each other, the last one counts. So many
#: are left out if the clock is behind: no master is likely to have been restarted a thousand times since.
GIVEN_UP_TABLES = 1000 * UNKNOWN_TABLES

#: How long a new primary waits for all storage nodes that can be read. They notice within three seconds
#: that the one before is gone; those that come later copy what they miss.
STORAGES_SECONDS = 6.0


class Recovery:
    """One stay in RECOVERING."""

    def __init__(self, master: MasterCore) -> None:
        self.master = master
        self._done: Future[None] = Future()
        #: What storages answered; a node that is asked again is taken out meanwhile.
        self._answers: dict[int, AnswerRecovery] = {}
        #: The node that is being asked for its table.
        self._asking: Peer | None = None
        self._reported = ""
        #: Own tables of nodes that have not the newest one, as far as they are wanted; None while asked.
        self._older: dict[int, PartitionTable | None] = {}
        #: What storages remember if the database is a backup; None if not. Valid at the end.
        self.backup: Memory | None = None
        #: This master has been primary all the time since it served: it need not fear a split brain.
        self._continues = master.served_ptid is not None
        #: A new primary knows from the log which table to wait for; storages are on their way to it.
        self._patient = self._continues and not master.was_operational
        #: The operator did not wait until the cluster starts by itself.
        self.forced = False

    async def run(self) -> None:
        """Returns when the tables are ready for VERIFYING."""
        self.master.partitions.clear()
        for peer in self.master.storages():
            self.joined(peer)
        if self._patient:
            self.master.call_later(STORAGES_SECONDS, self._lose_patience)
        self.check()
        await self._done
        self.master.truncate_tid = self._truncate_tid()
        self.backup = self._backup()
        self._prepare()

    def _ended(self) -> bool:
        return self._done.done

    # -- what storages know ------------------------------------------------------------------------

    def joined(self, peer: Peer) -> None:
        """A storage is here: ask what it remembers."""
        self.master.spawn(self._ask(peer))

    async def _ask(self, peer: Peer) -> None:
        node = peer.node
        assert node is not None and node.nid is not None
        self._forget(node.nid)
        try:
            answer = await peer.ask(AskRecovery())
        except ConnectionLost:
            return
        except ErrorAnswer as e:
            logger.error("%r cannot say what it remembers: %s", peer, e)
            return
        assert isinstance(answer, AnswerRecovery)
        if self._done.done:
            return
        self._answers[node.nid] = answer
        if answer.ptid is not None:
            self.master.published.confirmed(node.nid, answer.ptid)
        await self._load_table()
        self.check()

    def _forget(self, nid: int) -> None:
        """What it answered; it will be asked again if it comes back."""
        self._answers.pop(nid, None)
        self._older.pop(nid, None)

    def _newest(self) -> tuple[int, int] | None:
        """(ptid, nid) of the node with the newest table among those that answered and are here."""
        present = self.master.identified_storages()
        return max(
            (
                (answer.ptid, nid)
                for nid, answer in self._answers.items()
                if answer.ptid is not None and nid in present
            ),
            default=None,
        )

    async def _load_table(self) -> None:
        """Get the newest table from one of the nodes that have it, others if that one is lost."""
        while not self._done.done and (newest := self._newest()) is not None:
            ptid, nid = newest
            loaded = self.master.partitions.ptid
            if self._asking is not None or (loaded is not None and loaded >= ptid):
                return
            peer = self._asking = self.master.connected[nid]
            try:
                table = await self._ask_table(peer, nid)
            finally:
                self._asking = None
            if table is None:
                continue
            if self._ended():
                return
            self.master.partitions.load(table.ptid, table.num_replicas, table.row_list)
            turn_out(self.master)
            self._show_admins(self._absent_nodes())

    async def _ask_table(self, peer: Peer, nid: int) -> AnswerPartitionTable | None:
        """None if it does not answer that: it counts no more."""
        try:
            table = await peer.ask(AskPartitionTable())
        except (ConnectionLost, ErrorAnswer) as e:
            logger.warning("%r did not give its partition table: %s", peer, e)
            self._forget(nid)
            return None
        assert isinstance(table, AnswerPartitionTable)
        return table

    def _absent_nodes(self) -> list[Node]:
        """Nodes that have cells and are not known yet: who operates the cluster looks for them."""
        nodes = self.master.nodes
        return [
            nodes.add(Node(NodeType.STORAGE, nid, state=NodeState.DOWN))
            for nid in sorted(self.master.partitions.nodes())
            if nodes.get(nid) is None
        ]

    def _show_admins(self, absent: list[Node]) -> None:
        rows = [node.row() for node in absent]
        for peer in self.master.of_type(NodeType.ADMIN):
            peer.send(NotifyNodeInformation(self.master.stamp(), rows))
            peer.send(self.master.table())

    # -- may it start? -------------------------------------------------------------------------------

    def lost(self) -> None:
        """A storage went away."""
        present = self.master.identified_storages()
        for nid in list(self._answers):
            if nid not in present:
                self._forget(nid)
        disagreement = self.master.disagreement
        if disagreement is not None and not disagreement.nids <= present:
            disagreement.changed = True
        self.check()

    def check(self) -> None:
        """Start if it is safe without asking anybody."""
        if self._done.done:
            return
        at_once = self._continues and not self._patient and not self._truncate_tid()
        reason = self._obstacle(strict=not at_once)
        if reason is None:
            self._done.resolve(None)
        elif reason != self._reported:
            self._reported = reason
            logger.info("waiting to start: %s", reason)

    def _lose_patience(self) -> None:
        """Go on without the storages that are away, if the others have all that was committed."""
        self._patient = False
        self.check()

    def obstacle_to_force(self) -> str | None:
        """Why the operator cannot make it start now; None if he can."""
        return self._obstacle(strict=False, forced=True)

    def describe(self) -> AnswerObstacle:
        """Both for people who only ask: nothing changes, so that no node is told to truncate."""
        waits = self._truncate_tid() is not None
        forced = self._reported if waits else self.obstacle_to_force()
        return AnswerObstacle(self._reported, forced or "")

    def force(self) -> None:
        """The operator asked to start."""
        assert self.obstacle_to_force() is None
        self.forced = True
        self._done.resolve(None)

    def _obstacle(self, strict: bool, forced: bool = False) -> str | None:
        """Why the cluster may not start now; None if it may."""
        if self.master.partitions.ptid is None:
            return self._obstacle_to_creation(forced)
        return self._obstacle_to_restart(strict, forced)

    def _obstacle_to_creation(self, forced: bool) -> str | None:
        storages = self.master.identified_storages()
        if not storages:
            return "no storage node is connected"
        if storages - self._answers.keys():
            return f"{_names(storages - self._answers.keys())} did not answer yet"
        if any(answer.ptid is not None for answer in self._answers.values()):
            return "the partition table is being read"
        if self.master.served_ptid is not None:
            return f"no node has the partition table {self.master.served_ptid} that was in use"
        autostart = self.master.settings.autostart
        if forced or (autostart and len(storages) >= autostart):
            return None
        if autostart:
            return f"a new database is created when {autostart} storage nodes are connected"
        return "a new database is created when the operator says so: neoctl start"

    def _obstacle_to_restart(self, strict: bool, forced: bool) -> str | None:
        table = self.master.partitions
        assert table.ptid is not None
        newest = self._newest()
        if newest is not None and newest[0] > table.ptid:
            return "the partition table is being read"
        served = self.master.served_ptid
        absent = self.master.served_nodes - self._answers.keys()
        if served is not None and table.ptid < served and absent:
            return (
                f"the newest partition table here is {table.ptid}, but {served} was in use: "
                f"commits would be lost; start {_names(absent)}"
            )
        identified = self.master.identified_storages()
        if (disagreement := self.master.disagreement) is not None:
            obstacle = disagreement.obstacle(identified, forced)
            if obstacle is not None:
                return obstacle
        alone = None if forced else self.master.published.missing(self._answers.keys())
        if alone is not None:
            return (
                f"partition table {alone.ptid} may be the last that {_names(set(alone.readable))} has:"
                " it would serve alone later, without what is committed now; start it"
            )
        readable = table.nodes(readable_only=True)
        truncate_tid = self._truncate_tid()
        required = readable if truncate_tid is None else table.nodes()
        if not strict:
            # Those that are absent from a truncation lose their cells: see _prepare.
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
        """Where to cut: as asked, or as a storage remembers from a truncation that was cut short.

        Only nodes with readable cells count: what another one remembers was done without it, and has
        been followed by commits.
        """
        readable = self.master.partitions.nodes(readable_only=True)
        remembered = [
            answer.truncate_tid
            for nid, answer in self._answers.items()
            if answer.truncate_tid is not None and nid in readable
        ]
        if self.master.truncate_tid is not None:
            remembered.append(self.master.truncate_tid)
        return min(remembered, default=None)

    def _backup(self) -> Memory | None:
        """A truncation that was asked for ends the backup mode. Only nodes with readable cells know if
        the database is one: who is away at the end loses its cells, and who has none yet, as a clone,
        has nothing to remember, even if its partition table is the newest."""
        if self.master.truncate_tid is not None:
            return None
        readable = self.master.partitions.nodes(readable_only=True)
        if not any(self._answers[nid].backup_tid for nid in readable & self._answers.keys()):
            return None
        older = {nid: table for nid, table in self._older.items() if table is not None}
        return Memory(
            {nid: answer.backup_tid for nid, answer in self._answers.items()},
            unaware_cells(self.master.partitions, older),
        )

    def _obstacle_to_backup(self, readable: set[int]) -> str | None:
        """Nodes without the newest table must say which of their cells they know to be readable: what
        they remember is about these."""
        if self._backup() is None:
            return None
        ptid = self.master.partitions.ptid
        older = {nid for nid in readable if self._answers[nid].ptid != ptid}
        for nid in sorted(older - self._older.keys()):
            self._older[nid] = None
            self.master.spawn(self._ask_older(nid))
        waiting = {nid for nid in older if self._older.get(nid) is None}
        return f"{_names(waiting)} must tell its own partition table" if waiting else None

    async def _ask_older(self, nid: int) -> None:
        table = await self._ask_table(self.master.connected[nid], nid)
        if table is None:
            return
        own = PartitionTable()
        own.load(table.ptid, table.num_replicas, table.row_list)
        if self._older.get(nid, own) is None:
            self._older[nid] = own
        self.check()

    def _obstacle_to_truncation(self, required: set[int], tid: bytes) -> str | None:
        """Every node must remember durably that it has to truncate, before any does."""
        for nid in required:
            stored = self._answers[nid].truncate_tid
            if stored is None or stored > tid:
                peer = self.master.connected[nid]
                peer.send(Truncate(tid))
                self.joined(peer)
        waiting = required - self._answers.keys()
        return f"{_names(waiting)} must remember the truncation" if waiting else None

    # -- the end -------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Node and partition tables as the next phases need them."""
        master = self.master
        identified = master.identified_storages()
        if master.partitions.ptid is None:
            settings = master.settings
            paths = {n.nid: n.devpath for n in master.nodes if n.nid is not None}
            master.partitions.create(
                settings.partitions, settings.replicas, list(identified), paths
            )
            serving = identified
        else:
            serving = identified & master.partitions.nodes()
            if master.partitions.ptid < master.published.ptid:
                # Somebody who is not here may have one that was told.
                master.partitions.ptid = master.published.ptid + 1
            elif not master.published.ptid:
                self._remember_older(master.partitions.ptid)
                master.partitions.ptid = self._later(master.partitions.ptid)
        master.published.give_up(identified)
        nodes = [node for nid in serving if (node := master.nodes.get(nid)) is not None]
        master.set_node_states(nodes, NodeState.RUNNING)
        unaware = self.backup.unaware if self.backup is not None else ()
        changes = self._forgotten_cells(identified) or master.lost_cells(unaware)
        assert master.partitions.ptid is not None
        if changes:
            ptid = master.partitions.ptid + 1
            master.partitions.change(ptid, master.partitions.replicas, changes)
        master.publish_table()
        for peer in master.of_type(NodeType.ADMIN):
            peer.send(master.table())

    def _later(self, ptid: int) -> int:
        """A number after those of all tables that an earlier master may have told."""
        if self.master.partitions.nodes(readable_only=True) <= self.master.identified_storages():
            return ptid + UNKNOWN_TABLES
        now = int(self.master.shell.time() * 1000)
        return now if now > ptid else ptid + GIVEN_UP_TABLES

    def _remember_older(self, ptid: int) -> None:
        """Tables that an earlier master told, and that nodes may still have when they are lost again."""
        for nid in sorted(self.master.partitions.nodes(readable_only=True) & self._answers.keys()):
            older = self._answers[nid].ptid
            if older is not None and older < ptid:
                self.master.published.remembered(nid, older)

    def _forgotten_cells(self, identified: set[int]) -> list[CellChange]:
        """Those of nodes that are absent from a truncation: they must not come back with what the
        others delete."""
        table = self.master.partitions
        if self.master.truncate_tid is None:
            return []
        return without(table, table.nodes() - identified)


def _names(nids: set[int]) -> str:
    return format_nids(nids) or "other nodes"
