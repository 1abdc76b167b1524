"""Handlers of the connections to the primary master and to storage nodes; the view of the cluster."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from neo.net.channel import Channel
from neo.protocol.enums import ClusterState, NodeState, NodeType
from neo.protocol.errors import PeerError
from neo.protocol.ids import partition_of
from neo.protocol.packets import (
    Address,
    FlushLog,
    InvalidateObjects,
    Message,
    NotifyClusterInformation,
    NotifyDeadlock,
    NotifyFeatures,
    NotifyTransactionEnded,
    NotPrimaryMaster,
    StopOperation,
)
from neo.topology.mirror import Mirror, TableMessage

if TYPE_CHECKING:
    from neo.client.session import Session

logger = logging.getLogger("neo.client")


class View(NamedTuple):
    """The location of objects: per partition, ids of running nodes with a readable, a writable cell.

    Immutable, so any thread may read it; the handler replaces it.
    """

    readable: tuple[tuple[int, ...], ...]
    writable: tuple[tuple[int, ...], ...]
    addresses: dict[int, Address]

    def partition(self, id_: bytes) -> int:
        return partition_of(id_, len(self.readable))


class MasterLink:
    """The handler of the channel to a master. All methods but :attr:`view` run in its leading thread."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._mirror = Mirror()
        self._nodes, self._partitions = self._mirror.nodes, self._mirror.partitions
        self.view = View((), (), {})
        #: Set by a master that is not the primary.
        self.redirected: NotPrimaryMaster | None = None
        #: Set when the cluster stops serving: storage nodes with readable cells that it lacks.
        self.missing: list[int] | None = None
        #: The cluster is STOPPING: the end of the connection is expected.
        self.stops = False
        #: True after the answer to AskLastTransaction.
        self.joined = False

    def id_timestamp(self, nid: int) -> float | None:
        """Return the time at which the master identified this client; storage nodes compare it."""
        node = self._nodes.get(nid)
        return None if node is None else node.id_timestamp

    def lost(self, channel: Channel, reason: str) -> None:
        if not self.joined or self._session.closed:
            return
        if self.stops:
            logger.info("the cluster stops: connection to primary master %s ended", channel.name)
        else:
            logger.warning("connection to primary master %s lost: %s", channel.name, reason)

    def notified(self, channel: Channel, message: Message) -> None:
        if isinstance(message, InvalidateObjects):
            self._session.invalidations.invalidate(message.tid, message.oid_list, channel)
        elif isinstance(message, TableMessage):
            self._mirror.apply(message)
            self._session.masters_known(self._nodes.addresses(NodeType.MASTER))
            self._look()
        elif isinstance(message, NotifyDeadlock):
            self._session.deadlock(message.ttid, message.locking_tid)
        elif isinstance(message, NotifyTransactionEnded):
            self._session.ended_by_operator(message.ttid)
        elif isinstance(message, NotPrimaryMaster):
            self.redirected = message
            channel.close("it is not the primary master")
        elif isinstance(message, StopOperation):
            self.missing = self._missing()
            channel.close(self.why_stopped())
        elif isinstance(message, NotifyClusterInformation):
            if message.state is ClusterState.STOPPING:
                self.stops = True
                self._session.stopping()
        elif isinstance(message, FlushLog):
            self._session.host.reopen_logs()
        elif not isinstance(message, NotifyFeatures):
            raise PeerError(f"unexpected {type(message).__name__}")

    def _missing(self) -> list[int]:
        nids = {
            nid
            for partition, running in enumerate(self.view.readable)
            if not running
            for nid in self._partitions.readable(partition)
        }
        return sorted(nids)

    def why_stopped(self) -> str:
        """Return why the cluster stopped serving. Call only if ``missing`` is not None. Any thread."""
        reasons = map(self._session.last_words, self.missing or ())
        return "; ".join(["the cluster stopped serving", *reasons])

    def _look(self) -> None:
        addresses = {
            node.nid: node.address
            for node in self._nodes.of_type(NodeType.STORAGE)
            if node.nid is not None and node.address is not None and node.state is NodeState.RUNNING
        }
        count = range(len(self._partitions))
        self.view = View(
            tuple(tuple(n for n in self._partitions.readable(p) if n in addresses) for p in count),
            tuple(tuple(n for n in self._partitions.writable(p) if n in addresses) for p in count),
            addresses,
        )


class StorageLink:
    """The handler of the channel to a storage node."""

    def __init__(self) -> None:
        self.features: frozenset[str] = frozenset()

    def lost(self, channel: Channel, reason: str) -> None:
        logger.info("connection to storage node %s ended: %s", channel.name, reason)

    def notified(self, channel: Channel, message: Message) -> None:
        if isinstance(message, NotifyFeatures):
            self.features = frozenset(message.features)
        elif not isinstance(message, FlushLog):
            raise PeerError(f"unexpected {type(message).__name__}")
