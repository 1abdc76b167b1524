"""The connection with the primary master, and the mirror of what it sends.

One workflow, :meth:`PrimaryLink.follow`, finds the primary master, mirrors its node table, partition
table and cluster state until the connection ends, and starts again, forever.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from neo.admin.monitor import count_cells, count_down
from neo.node.bootstrap import find_primary
from neo.node.core import Core
from neo.node.handler import Handler, on
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.enums import CellState, ClusterState, NodeState, NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    Address,
    AnswerClusterState,
    AskClusterState,
    FlushLog,
    NotifyClusterInformation,
    NotifyFeatures,
    NotifyNodeInformation,
    NotifyPartitionChanges,
    NotifyUpstreamAdmin,
    RequestIdentification,
    SendPartitionTable,
)
from neo.topology.masters import MasterCandidates
from neo.topology.mirror import Mirror, TableMessage
from neo.topology.nodes import Node

logger = logging.getLogger("neo.admin")


class Events(Protocol):
    """Reactions to messages of the primary master."""

    def nodes_changed(self, masters: list[Address]) -> None:
        """The node table changed; these are the addresses of the masters in it."""

    def cluster_changed(self) -> None:
        """The state or a table of the cluster changed."""

    def upstream_admin(self, address: Address) -> None:
        """The admin node of the upstream cluster has this address."""

    def flush_log(self) -> None: ...


class Primary(Handler):
    """A connected primary master: handles its messages and mirrors its tables."""

    def __init__(self, peer: Peer, nid: int | None, events: Events) -> None:
        self.peer = peer
        self.nid = nid
        self.mirror = Mirror()
        #: None until it is known.
        self.state: ClusterState | None = None
        #: Extensions that the master has announced.
        self.features: frozenset[str] = frozenset()
        #: The reason of the end of the connection.
        self.ended: Future[str] = Future()
        self._events = events
        peer.ask(AskClusterState()).then(self._learn_state)

    def _learn_state(self, answer: Future[AnswerClusterState]) -> None:
        try:
            state = answer.result().state
        except ConnectionLost:
            return  # lost() reacts
        except ErrorAnswer as e:
            logger.error("the primary master does not tell the state of the cluster: %s", e)
            return
        # A state that was notified meanwhile is newer.
        if self.state is None:
            self.state = state
            self._events.cluster_changed()

    def counts(self) -> tuple[Counter[CellState], int]:
        """Return (cells by state, number of masters and storage nodes that are DOWN)."""
        return count_cells(self.mirror.partitions), count_down(self.mirror.nodes)

    # -- messages --------------------------------------------------------------------------------

    def lost(self, peer: Peer, reason: str) -> None:
        self.ended.resolve(reason)

    @on(NotifyNodeInformation, SendPartitionTable, NotifyPartitionChanges)
    def tables(self, peer: Peer, message_id: int, message: TableMessage) -> None:
        self.mirror.apply(message)
        if isinstance(message, NotifyNodeInformation):
            self._events.nodes_changed(self.mirror.nodes.addresses(NodeType.MASTER))
        self._events.cluster_changed()

    @on(NotifyClusterInformation)
    def state_changed(self, peer: Peer, message_id: int, message: NotifyClusterInformation) -> None:
        self.state = message.state
        logger.info("cluster state: %s", message.state.name)
        self._events.cluster_changed()

    @on(NotifyUpstreamAdmin)
    def upstream_admin(self, peer: Peer, message_id: int, message: NotifyUpstreamAdmin) -> None:
        self._events.upstream_admin(message.address)

    @on(NotifyFeatures)
    def learn_features(self, peer: Peer, message_id: int, message: NotifyFeatures) -> None:
        self.features = frozenset(message.features)

    @on(FlushLog)
    def flush_log(self, peer: Peer, message_id: int, message: FlushLog) -> None:
        self._events.flush_log()


class PrimaryLink:
    """Keeps the node connected to the primary master. ``bind``: this node's address. ``backups``: names
    of the backup clusters that this node monitors."""

    def __init__(
        self,
        node: Core,
        cluster: str,
        bind: Address,
        backups: Sequence[str],
        masters: MasterCandidates,
        events: Events,
    ) -> None:
        #: None while the node is not connected to a primary master.
        self.primary: Primary | None = None
        self._node = node
        self._cluster = cluster
        self._bind = bind
        self._extra = {"backup": list(backups), FEATURES: [FEATURE_OURS]}
        self._masters = masters
        self._events = events

    async def follow(self) -> None:
        """Stay connected to the primary master until this node stops."""
        nid = None
        while True:
            request = RequestIdentification(
                NodeType.ADMIN, nid, self._bind, self._cluster, None, self._extra
            )
            peer, accepted = await find_primary(self._node, self._masters, request, Handler())
            # Await nothing before the handler is set: the tables follow in the same bytes.
            nid = accepted.your_nid
            primary = peer.handler = self.primary = Primary(peer, accepted.nid, self._events)
            peer.node = Node(
                NodeType.MASTER, accepted.nid, peer.address, NodeState.RUNNING, identified=True
            )
            logger.info("connected to the primary master %r", peer)
            reason = await primary.ended
            self.primary = None
            if primary.state is ClusterState.STOPPING:
                logger.info("the cluster stops: %r ended", peer)
            else:
                logger.warning("lost the primary master %r: %s", peer, reason)
