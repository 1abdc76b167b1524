"""The connection of a backup cluster's master to the primary master of the upstream cluster.

The master joins as a client that announces itself as a backup. It is told of commits by invalidations, of
storage nodes by the tables, and of the admin node that watches over the backup (specification 13).
A :class:`Follower` is told of everything in the order of arrival. That makes sources trustworthy: when a
transaction is announced, a node that missed it is known to be out of date already.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from neo.node.answering import answering
from neo.node.bootstrap import find_primary
from neo.node.core import Core
from neo.node.handler import Handler, on
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.enums import ClusterState, ErrorCode, NodeState, NodeType
from neo.protocol.errors import ConnectionLost, ErrorAnswer
from neo.protocol.packets import (
    FEATURE_OURS,
    FEATURES,
    Address,
    AskLastTransaction,
    AskLockBackup,
    AskPrepareBackup,
    AskTransactionInformation,
    FlushLog,
    InvalidateObjects,
    NotifyAborted,
    NotifyClusterInformation,
    NotifyFeatures,
    NotifyNodeInformation,
    NotifyPack,
    NotifyPartitionChanges,
    RequestIdentification,
    SendPartitionTable,
    StopOperation,
)
from neo.topology.masters import MasterCandidates
from neo.topology.mirror import Mirror, TableMessage
from neo.topology.nodes import Node

logger = logging.getLogger("neo.master")

#: Timeout for answers of a storage node of the upstream cluster.
ANSWER_SECONDS = 30.0


class Unfit(Exception):
    """The upstream cluster cannot be followed; the message says why and what to do."""


class Follower(Protocol):
    """Receives the events of the upstream cluster. ``masters``: its known masters."""

    masters: MasterCandidates

    def tables_changed(self) -> None:
        """The node table or the partition table of the upstream cluster changed."""

    def heard(self, tid: bytes, oids: list[bytes]) -> None:
        """A transaction was committed."""

    def packed(self, tid: bytes) -> None:
        """A pack was asked for."""


class SyncRequests(Protocol):
    """Receives what the upstream master asks of a synchronous backup."""

    def lock(self, peer: Peer, message_id: int, m: AskLockBackup) -> None:
        """Lock a transaction, then answer. Raise ErrorAnswer to refuse."""

    def prepare(self, peer: Peer, message_id: int, m: AskPrepareBackup) -> None:
        """Keep a transaction that is prepared, then answer. Raise ErrorAnswer to refuse."""

    def aborted(self, ttid: bytes) -> None:
        """Drop a transaction that was prepared, and is rolled back."""


class Upstream(Handler):
    """One connection with the upstream master. ``nodes`` and ``partitions``: the tables of the upstream
    cluster."""

    #: The upstream master knows synchronous backups.
    synchronous = False

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._mirror = Mirror()
        self.nodes, self.partitions = self._mirror.nodes, self._mirror.partitions
        self.nid: int | None = None
        #: The upstream cluster is being stopped: the end of the connection is expected.
        self.stopping = False
        self.ended: Future[str] = Future()

    def lost(self, peer: Peer, reason: str) -> None:
        self.ended.resolve(reason)

    def sources(self, partition: int) -> list[Address]:
        """Return the addresses of nodes from which the partition can be fetched now."""
        if self.ended.done or partition >= len(self.partitions):
            return []
        nodes = [self.nodes.get(nid) for nid in self.partitions.readable(partition)]
        return [n.address for n in nodes if n and n.address and n.state is NodeState.RUNNING]

    def admins(self) -> list[Address]:
        """Return the addresses of the admin nodes that watch over this backup."""
        return self.nodes.addresses(NodeType.ADMIN)

    # -- messages -----------------------------------------------------------------------------

    @on(NotifyNodeInformation, SendPartitionTable, NotifyPartitionChanges)
    def tables_changed(self, peer: Peer, message_id: int, m: TableMessage) -> None:
        self._mirror.apply(m)
        self._follower.masters.add(self.nodes.addresses(NodeType.MASTER))
        self._follower.tables_changed()

    @on(InvalidateObjects)
    def invalidate(self, peer: Peer, message_id: int, m: InvalidateObjects) -> None:
        self._follower.heard(m.tid, m.oid_list)

    @on(NotifyPack)
    def packed(self, peer: Peer, message_id: int, m: NotifyPack) -> None:
        self._follower.packed(m.tid)

    @on(NotifyClusterInformation)
    def state_changed(self, peer: Peer, message_id: int, m: NotifyClusterInformation) -> None:
        """Note a stop. A state without service ends the connection."""
        self.stopping = m.state is ClusterState.STOPPING

    @on(NotifyFeatures, FlushLog)
    def ignored(self, peer: Peer, message_id: int, m: object) -> None:
        """Ignore a message that does not concern a backup."""

    @on(StopOperation)
    def stopped(self, peer: Peer, message_id: int, m: StopOperation) -> None:
        peer.close()
        self.ended.resolve("its operation stops")


class SyncUpstream(Upstream):
    """The connection of a synchronous backup (specification 25)."""

    def __init__(self, follower: Follower, locks: SyncRequests) -> None:
        super().__init__(follower)
        self._locks = locks

    @on(NotifyFeatures)
    def features_known(self, peer: Peer, message_id: int, m: NotifyFeatures) -> None:
        self.synchronous = FEATURE_OURS in m.features

    @on(AskLockBackup)
    def lock(self, peer: Peer, message_id: int, m: AskLockBackup) -> None:
        self._locks.lock(peer, message_id, m)

    @on(AskPrepareBackup)
    def prepare(self, peer: Peer, message_id: int, m: AskPrepareBackup) -> None:
        self._locks.prepare(peer, message_id, m)

    @on(NotifyAborted)
    def aborted(self, peer: Peer, message_id: int, m: NotifyAborted) -> None:
        self._locks.aborted(m.ttid)


async def join(
    core: Core,
    handler: Upstream,
    masters: MasterCandidates,
    own_name: str,
    cluster: str,
    nid: int | None,
    failed: Callable[[str], None],
) -> Peer:
    """Identify to the primary master of the upstream cluster as soon as there is one. ``failed`` is
    called with the reason of each attempt that fails."""
    extra = {"backup": own_name, FEATURES: [FEATURE_OURS]}
    request = RequestIdentification(NodeType.CLIENT, nid, None, cluster, None, extra)
    peer, accepted = await find_primary(core, masters, request, handler, failed=failed)
    handler.nid = accepted.your_nid
    peer.node = Node(NodeType.MASTER, accepted.nid, peer.address, NodeState.RUNNING)
    return peer


async def last_transaction(peer: Peer, upstream: Upstream, partitions: int) -> bytes:
    """Return the last transaction of the upstream cluster. Raise Unfit, ConnectionLost or ErrorAnswer."""
    answer = await peer.ask(AskLastTransaction())
    if len(upstream.partitions) != partitions:
        raise Unfit(
            f"the upstream cluster has {len(upstream.partitions)} partitions and this one"
            f" {partitions}: a standby must have as many. Stop it from following, set partitions"
            f" {len(upstream.partitions)}, and have it follow again"
        )
    return answer.tid


async def check_history(
    core: Core, upstream: Upstream, cluster: str, tid: bytes, last: bytes
) -> None:
    """Raise Unfit unless the upstream cluster has ``tid``, the last transaction of this cluster, and
    therefore all transactions before it. Raise ConnectionLost or ErrorAnswer if the storage nodes cannot
    be asked. ``last``: the last transaction of the upstream cluster.
    """
    unfit = Unfit(
        f"transaction {tid.hex()} of this standby is not in the upstream cluster, which was truncated"
        " or has another history. Nothing is changed. If the upstream cluster is right: leave standby"
        " mode, truncate this cluster to the last transaction that both have, and let it follow again"
    )
    if tid > last and upstream.synchronous:
        raise Unfit(
            f"transaction {tid.hex()} of this standby is not finished in the upstream cluster, whose last"
            f" one is {last.hex()}: it waits there for another synchronous standby, or the upstream"
            " cluster was truncated or has another history. Nothing is changed"
        )
    if tid > last:
        raise unfit
    if tid == last or not any(tid):
        return
    sources = upstream.sources(upstream.partitions.partition(tid))
    own = upstream.nodes.get(upstream.nid)
    if not sources or own is None:
        raise ConnectionLost("the upstream cluster does not serve all partitions")
    peer = core.dial(core.host.random.choice(sources), Handler())
    request = RequestIdentification(
        node_type=NodeType.CLIENT,
        nid=upstream.nid,
        address=None,
        name=cluster,
        id_timestamp=own.id_timestamp,
        extra={},
    )
    try:
        with answering(core, peer, ANSWER_SECONDS):
            await peer.ask(request)
            await peer.ask(AskTransactionInformation(tid))
    except ErrorAnswer as e:
        if e.code is ErrorCode.TID_NOT_FOUND:
            raise unfit from None
        raise
    peer.close()
