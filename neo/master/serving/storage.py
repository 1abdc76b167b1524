"""Storage nodes in service: readiness, replication, checks and deadlocks."""

from __future__ import annotations

import logging

from neo.master.cluster import Cluster
from neo.master.commit.coordinator import Coordinator
from neo.master.commit.transactions import State
from neo.master.following.mode import BackupMode
from neo.master.maintenance.check import Checks
from neo.master.maintenance.pack import Packs
from neo.master.maintenance.replication import Replication
from neo.master.operations.part import Operations
from neo.master.states import SERVING
from neo.node.handler import Handler, on
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer, PeerError
from neo.protocol.packets import (
    AnswerJoinPrepared,
    AskJoinPrepared,
    AskUnfinishedTransactions,
    Message,
    NotifyCellsBehind,
    NotifyDeadlock,
    NotifyOperationMark,
    NotifyPartitionChecked,
    NotifyPartitionCorrupted,
    NotifyReady,
    NotifyReplicationDone,
)

logger = logging.getLogger("neo.master")


class ServeStorage(Handler):
    def __init__(
        self,
        cluster: Cluster,
        coordinator: Coordinator,
        replication: Replication,
        backup: BackupMode,
        packs: Packs,
        checks: Checks,
        operations: Operations,
    ) -> None:
        self._cluster = cluster
        self._coordinator = coordinator
        self._replication = replication
        self._backup = backup
        self._packs = packs
        self._checks = checks
        self._operations = operations

    def lost(self, peer: Peer, reason: str) -> None:
        logger.warning("%r is lost: %s", peer, reason)
        self._cluster.forget(peer)

    @on(NotifyReady)
    def ready(self, peer: Peer, message_id: int, m: NotifyReady) -> None:
        cluster, nid = self._cluster, _nid(peer)
        # The peer may have sent the message before it heard that the operation stopped.
        if cluster.state in SERVING and nid in cluster.starting:
            cluster.starting.discard(nid)
            cluster.ready.add(nid)
            self._packs.ready(peer)
            self._coordinator.begin_waiting()

    @on(AskUnfinishedTransactions)
    def unfinished(self, peer: Peer, message_id: int, m: AskUnfinishedTransactions) -> None:
        self._check(m.offset_list)
        if why := self._operations.held("clients"):
            # A copy would outlive a restore that is undone. The cluster goes through RECOVERING after it.
            raise ErrorAnswer(ErrorCode.NOT_READY, why)
        peer.answer(message_id, self._replication.unfinished(_nid(peer), m.offset_list))
        self._coordinator.prepared.notify(_nid(peer))

    @on(AskJoinPrepared)
    def join(self, peer: Peer, message_id: int, m: AskJoinPrepared) -> Message:
        self._check([m.partition])
        joined = self._coordinator.prepared.join(_nid(peer), m.partition, m.ttid_list)
        return AnswerJoinPrepared(joined)

    def _check(self, partitions: list[int]) -> None:
        """Raise ErrorAnswer if the operation stops, PeerError if there is no such partition."""
        if self._cluster.state not in SERVING:
            raise ErrorAnswer(ErrorCode.NOT_READY, "the operation stops")
        count = len(self._cluster.partitions)
        if wrong := [partition for partition in partitions if partition >= count]:
            raise PeerError(f"there are {count} partitions, not {wrong[0]}")

    @on(NotifyReplicationDone)
    def replication_done(self, peer: Peer, message_id: int, m: NotifyReplicationDone) -> None:
        if self._backup.active:
            self._backup.done(_nid(peer), m.partition, m.max_tid)
        else:
            self._replication.done(_nid(peer), m.partition)

    @on(NotifyPartitionCorrupted)
    def corrupted(self, peer: Peer, message_id: int, m: NotifyPartitionCorrupted) -> None:
        if self._cluster.state in SERVING:
            self._checks.corrupted(_nid(peer), m.partition, m.nid_list)

    @on(NotifyCellsBehind)
    def behind(self, peer: Peer, message_id: int, m: NotifyCellsBehind) -> None:
        self._checks.behind(_nid(peer), m)

    @on(NotifyPartitionChecked)
    def checked(self, peer: Peer, message_id: int, m: NotifyPartitionChecked) -> None:
        self._checks.checked(_nid(peer), m.partition, m.problem)

    @on(NotifyOperationMark)
    def marked(self, peer: Peer, message_id: int, m: NotifyOperationMark) -> None:
        self._operations.marked(_nid(peer), m)

    @on(NotifyDeadlock)
    def deadlock(self, peer: Peer, message_id: int, m: NotifyDeadlock) -> None:
        """Give the transaction a new place in the queues of locks, unless that was already done."""
        transaction = self._coordinator.transactions.get(m.ttid)
        if transaction is None or transaction.client is None:
            return
        if transaction.state is not State.BEGUN:
            return
        if m.locking_tid < transaction.locking_tid:
            return
        transaction.locking_tid = self._cluster.tids.ttid()
        transaction.client.send(NotifyDeadlock(m.ttid, transaction.locking_tid))


def _nid(peer: Peer) -> int:
    assert peer.node is not None and peer.node.nid is not None
    return peer.node.nid
