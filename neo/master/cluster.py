"""The state that all parts of a primary master share: tables, ids, connected peers, broadcasts.

Parts read and change the cluster through this object; it knows none of them. What others must react to
is reported to ``events``, which the primary master implements: by this object and by parts, none of which
knows who reacts.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Container, Iterable
from functools import partial
from typing import Protocol

from neo.master.ids import OidGenerator, TidGenerator
from neo.master.published_tables import PublishedTables
from neo.master.states import ADMITTED, TRANSITIONS, Event, hears_of
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.enums import CellState, ClusterState, NodeState, NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.packets import (
    AnswerRecovery,
    AskRecovery,
    CellChange,
    Message,
    NotifyClusterInformation,
    NotifyNodeInformation,
    NotifyPartitionChanges,
    SendPartitionTable,
    StartOperation,
    StopOperation,
)
from neo.topology.nodes import Node, NodeTable
from neo.topology.partitions import PartitionTable, running_storages

logger = logging.getLogger("neo.master")


class Events(Protocol):
    """The receiver of what happens in the cluster. It tells the parts before it returns, in an order that
    it decides."""

    def storage_lost(self, node: Node, was_running: bool) -> None:
        """The connection with a storage node ended; the node table shows it."""

    def storage_dropped(self, nid: int) -> None:
        """A storage node left for good; the node table shows it."""

    def cells_changed(self, ptid: int, changes: list[CellChange]) -> None:
        """The partition table has a new version, which was sent to all nodes."""

    def table_confirmed(self) -> None:
        """A storage node, or the log, made a published partition table durable."""

    def commits_advanced(self) -> None:
        """A storage node has done what a transaction waits for, or a transaction does not wait for a
        synchronous backup any more."""

    def transactions_ended(self) -> None:
        """Transactions may have ended."""

    def preset_tid_free(self) -> None:
        """All storage nodes know how a transaction with an imposed tid ended."""

    def backup_advanced(self) -> None:
        """A storage node of this backup cluster has reported what it has, or has rows that it was asked
        for."""

    def upstream_lost(self) -> None:
        """The upstream cluster is lost, or cannot be followed."""

    def operation_over(self, kind: str) -> None:
        """An operation of this kind has succeeded or was undone, and its locks are free."""


class TableLog(Protocol):
    """The log of several masters, which remembers the partition table for the next primary."""

    @property
    def waits(self) -> bool:
        """Whether a table is being logged."""

    def log_table(self, ptid: int, nodes: set[int]) -> None:
        """Log a partition table in which ``nodes`` are readable."""


class Cluster:
    def __init__(
        self,
        name: str,
        node: Node,
        nodes: NodeTable,
        partitions: PartitionTable,
        time: Callable[[], float],
        events: Events,
        log: TableLog | None,
    ) -> None:
        """``node``: this master. ``time``: seconds since 1970. ``log``: None if this master is alone."""
        self.name = name
        self.node = node
        self.nodes = nodes
        self.partitions = partitions
        self.state = ClusterState.RECOVERING
        #: Identified peers by node id.
        self.connected: dict[int, Peer] = {}
        self.tids = TidGenerator(time)
        self.oids = OidGenerator()
        self.last_tid = bytes(8)
        #: Storage nodes that were told to start and are not ready yet, and those that are ready.
        self.starting: set[int] = set()
        self.ready: set[int] = set()
        #: The operator wants the database as it was at this tid.
        self.truncate_tid: bytes | None = None
        #: The greatest table that transactions are known to depend on: an older one may have missed
        #: commits. Nodes that voted with a table have it durably.
        self.served_ptid: int | None = None
        #: Nodes with a readable cell in that table.
        self.served_nodes: set[int] = set()
        self.published = PublishedTables()
        self._time = time
        self.events = events
        self._log = log
        self._timestamp = 0.0

    def change_state(self, event: Event) -> None:
        """Take the transition that the table of states has for this event, and tell all nodes."""
        old, self.state = self.state, TRANSITIONS[self.state, event]
        logger.info("cluster state: %s -> %s", old.name, self.state.name)
        self.broadcast(NotifyClusterInformation(self.state))

    # -- peers -----------------------------------------------------------------------------------

    def of_type(self, *types: NodeType) -> list[Peer]:
        return [p for p in self.connected.values() if p.node is not None and p.node.type in types]

    def storages(self) -> list[Peer]:
        return self.of_type(NodeType.STORAGE)

    def running(self) -> list[Peer]:
        """Return the storage nodes that are RUNNING."""
        return [p for p in self.storages() if p.node and p.node.state is NodeState.RUNNING]

    def identified_storages(self) -> set[int]:
        return {nid for nid, peer in self.connected.items() if nid >= 0}

    def running_storages(self) -> set[int]:
        return running_storages(self.nodes)

    def operational_without(self, nids: Iterable[int]) -> bool:
        """Return whether all partitions can be read if these of the ready storage nodes are lost."""
        return self.partitions.operational(self.ready - set(nids))

    def admitted(self, node_type: NodeType) -> bool:
        return node_type in ADMITTED[self.state]

    def disconnect(self, peer: Peer) -> None:
        """Close the connection with an identified peer, as if it had been lost."""
        peer.close()
        self.forget(peer)

    def forget(self, peer: Peer) -> None:
        """Update the tables for an identified peer whose connection ended, and tell the other nodes."""
        node = peer.node
        if node is None or node.nid is None or self.connected.get(node.nid) is not peer:
            return
        del self.connected[node.nid]
        node.identified = False
        if node.type is NodeType.STORAGE:
            self._storage_lost(node, node.nid)
        else:
            self.remove_node(node)

    def _storage_lost(self, node: Node, nid: int) -> None:
        was_running = node.state is NodeState.RUNNING
        self.starting.discard(nid)
        self.ready.discard(nid)
        assigned = self.partitions.assigned(nid)
        node.spare = was_running and not assigned
        # While no table is known, the nodes that the cluster served with are awaited.
        awaited = self.partitions.ptid is None and nid in self.served_nodes
        if was_running or awaited or assigned:
            self.set_node_states([node], NodeState.DOWN)
        else:
            self.remove_node(node)
        self.events.storage_lost(node, was_running)

    def start_storage(self, peer: Peer, backup: bool) -> None:
        """Tell a storage node to operate. ``backup``: the cluster follows another one. Transactions wait
        until the node is ready, so that it is known which nodes have all their data."""
        assert peer.node is not None and peer.node.nid is not None
        if peer.node.nid not in self.ready:  # else it only learns of the backup mode
            self.starting.add(peer.node.nid)
        peer.node.blank = False
        peer.send(StartOperation(backup))

    def stop_operation(self) -> None:
        """Tell clients and storage nodes that the cluster does not operate any more."""
        self.starting.clear()
        self.ready.clear()
        self.stop_clients()
        storages = self.storages()
        for peer in storages:
            peer.send(StopOperation())
        self.set_node_states([p.node for p in storages if p.node], NodeState.PENDING)

    def stop_clients(self) -> None:
        """Disconnect all clients, because the next state does not serve them."""
        for peer in self.of_type(NodeType.CLIENT):
            peer.send(StopOperation())
            self.disconnect(peer)

    # -- node table ------------------------------------------------------------------------------

    def stamp(self) -> float:
        """Return a time that is greater than any returned before, even if the clock goes back."""
        self._timestamp = max(self._time(), math.nextafter(self._timestamp, math.inf))
        return self._timestamp

    def broadcast(self, message: Message, *types: NodeType) -> None:
        """Send a message to all identified peers, or to those of some types."""
        for peer in list(self.connected.values()):
            if peer.node is not None and (not types or peer.node.type in types):
                peer.send(message)

    def notify_nodes(self, nodes: Iterable[Node]) -> None:
        """Tell all peers about changed nodes, as far as their types are told of these."""
        nodes = list(nodes)
        timestamp = self.stamp()
        for peer in list(self.connected.values()):
            if peer.node is not None:
                listener = peer.node
                rows = [node.row() for node in nodes if hears_of(listener, node)]
                if rows:
                    peer.send(NotifyNodeInformation(timestamp, rows))

    def set_node_states(self, nodes: Iterable[Node], state: NodeState) -> None:
        changed = [node for node in nodes if node.state is not state]
        for node in changed:
            node.state = state
            if state is NodeState.RUNNING and node.nid in self.connected:
                self.connected[node.nid].trust()
        if changed:
            self.notify_nodes(changed)

    def remove_node(self, node: Node) -> None:
        """Remove a node without cells from the table, and tell the other nodes."""
        node.state = NodeState.UNKNOWN
        self.nodes.remove(node)
        self.notify_nodes([node])

    # -- partition table -------------------------------------------------------------------------

    def table(self) -> SendPartitionTable:
        return SendPartitionTable(
            self.partitions.ptid, self.partitions.replicas, self.partitions.row_list()
        )

    def change_partitions(self, changes: list[CellChange], replicas: int | None = None) -> None:
        """Make the next version of the table and send it to all nodes but masters. Without changes there
        is none."""
        if not changes and replicas is None:
            return
        assert self.partitions.ptid is not None
        if replicas is None:
            replicas = self.partitions.replicas
        ptid = self.partitions.ptid + 1
        self.partitions.change(ptid, replicas, changes)
        self.publish_table()
        self.broadcast(
            NotifyPartitionChanges(ptid, replicas, changes),
            NodeType.ADMIN,
            NodeType.CLIENT,
            NodeType.STORAGE,
        )
        self.events.cells_changed(ptid, changes)
        self.ask_confirmations()

    def publish_table(self) -> None:
        """Record that nodes are about to be told of the partition table as it is."""
        ptid, readable = self.partitions.ptid, self.partitions.nodes(readable_only=True)
        assert ptid is not None
        self.published.publish(ptid, readable)
        if self._log is not None:
            self._log.log_table(ptid, readable)
            if not self._log.waits:
                self.published.logged(ptid)

    def ask_confirmations(self) -> None:
        """Ask the storage nodes when the table that they were sent is durable, if there is no log."""
        for nid in sorted(self.published.awaited()) if self._log is None else ():
            peer = self.connected.get(nid)
            if peer is not None:
                self._ask_confirmation(peer, nid, self.published.ptid)

    def _ask_confirmation(self, peer: Peer, nid: int, ptid: int) -> None:
        self.when_durable(peer, partial(self._table_durable, nid, ptid))

    def _table_durable(self, nid: int, ptid: int, durable: bool) -> None:
        if durable:
            self.published.confirmed(nid, ptid)
            self.events.table_confirmed()

    def when_durable(self, peer: Peer, callback: Callable[[bool], None]) -> None:
        """Call back with True when a storage node has on its disk all that it was sent until now; with
        False when it is lost.

        An answer to AskRecovery is durable. Nodes of other implementations may not expect this question
        here; for them the callback is called at once.
        """

        if peer.node is not None and peer.node.features:
            peer.ask(AskRecovery()).then(partial(self._durable, peer, callback))
        else:
            callback(True)

    def _durable(
        self, peer: Peer, callback: Callable[[bool], None], answer: Future[AnswerRecovery]
    ) -> None:
        try:
            answer.result()
        except ConnectionLost:
            callback(False)
        except ErrorAnswer as e:
            logger.error("%r does not confirm what it was told: %s", peer, e)
            self.disconnect(peer)
            callback(False)
        else:
            callback(True)

    def served(self, ptid: int) -> None:
        """Record that an acknowledged transaction depends on this table."""
        if self.served_ptid is None or ptid > self.served_ptid:
            self.served_ptid = ptid
            self.served_nodes = self.partitions.nodes(readable_only=True)

    def lost_cells(self, unaware: Container[tuple[int, int]] = ()) -> list[CellChange]:
        """Return the changes for readable cells of nodes that do not run, where another readable cell
        runs (specification 9.9). ``unaware``: (partition, nid) of cells that count as lost though their
        nodes run."""
        running = self.running_storages()
        changes: list[CellChange] = []
        for partition, row in enumerate(self.partitions.rows):
            readable = self.partitions.readable(partition)
            good = [n for n in readable if n in running and (partition, n) not in unaware]
            if good:
                changes += [
                    (partition, nid, left_behind(row[nid])) for nid in readable if nid not in good
                ]
        return changes


def left_behind(state: CellState) -> CellState:
    """Return the next state of a readable cell that misses transactions from now on."""
    return CellState.DISCARDED if state is CellState.FEEDING else CellState.OUT_OF_DATE
