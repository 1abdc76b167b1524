"""RUNNING: commits of clients, and the storages that take part in them (specification, *Commit*)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from neo.master.backup.memory import Memory
from neo.master.backup.start import make_backup
from neo.master.commit.transactions import Transaction
from neo.master.commit.votes import operational_without
from neo.master.states import SERVING
from neo.net.fault_sites import LATE_SECONDS, FaultSite
from neo.node.handler import Handler, on
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode, NodeState
from neo.protocol.errors import ErrorAnswer, PeerError
from neo.protocol.ids import MAX_TID, add64
from neo.protocol.packets import (
    AbortTransaction,
    AnswerFinalTID,
    AnswerLastTransaction,
    AnswerNewOIDs,
    AskBeginTransaction,
    AskFinalTID,
    AskFinishTransaction,
    AskLastTransaction,
    AskNewOIDs,
    AskPack,
    AskUnfinishedTransactions,
    FailedVote,
    Message,
    NotifyCellsBehind,
    NotifyDeadlock,
    NotifyPartitionChecked,
    NotifyPartitionCorrupted,
    NotifyReady,
    NotifyReplicationDone,
    StartOperation,
)

if TYPE_CHECKING:
    from neo.master.core import MasterCore

logger = logging.getLogger("neo.master")

#: Backends keep oids as signed 64-bit integers; beyond this there must be room for new ones.
OID_MAX = add64(MAX_TID, -(2**48))
#: A client asks for a hundred at a time; nobody needs more than this at once.
MAX_NEW_OIDS = 100_000


def begin_service(master: MasterCore) -> None:
    """Storages may serve clients."""
    for peer in master.storages():
        if peer.node is not None and peer.node.state is NodeState.RUNNING:
            start_storage(master, peer)
    master.replication.discard_fed()


def begin_backup(master: MasterCore, memory: Memory | None) -> None:
    """The cluster is STARTING_BACKUP; see :func:`~neo.master.backup.start.make_backup`."""
    master.backup = make_backup(master, memory)
    begin_service(master)
    master.backup.start()


def start_storage(master: MasterCore, peer: Peer) -> None:
    """Transactions wait until it is ready, so that it is known who has all their data."""
    assert peer.node is not None and peer.node.nid is not None
    if peer.node.nid not in master.ready:  # else it only learns of the backup mode
        master.starting.add(peer.node.nid)
    peer.node.blank = False
    peer.send(StartOperation(master.backup is not None))


class ServeClient(Handler):
    def __init__(self, master: MasterCore) -> None:
        self.master = master

    def lost(self, peer: Peer, reason: str) -> None:
        master = self.master
        # Storages drop what they hold for it when they hear that it is gone.
        master.forget(peer)
        master.coordinator.client_lost(peer)

    @on(AskLastTransaction)
    def last_transaction(self, peer: Peer, message_id: int, m: AskLastTransaction) -> Message:
        return AnswerLastTransaction(self.master.last_tid)

    @on(AskNewOIDs)
    def new_oids(self, peer: Peer, message_id: int, m: AskNewOIDs) -> Message:
        if not 0 < m.num_oids <= MAX_NEW_OIDS:
            raise ErrorAnswer(
                ErrorCode.PROTOCOL_ERROR, f"{m.num_oids} oids asked: 1 to {MAX_NEW_OIDS} are given"
            )
        return AnswerNewOIDs(self.master.oids.take(m.num_oids))

    # -- tpc_begin -------------------------------------------------------------------------------

    @on(AskBeginTransaction)
    def begin(self, peer: Peer, message_id: int, m: AskBeginTransaction) -> None:
        # One waits per thread of a client: the number is bounded by that of the applications.
        self.master.coordinator.begin(peer, message_id, m.tid)

    # -- tpc_vote --------------------------------------------------------------------------------

    def _transaction(self, peer: Peer, ttid: bytes) -> Transaction[Peer]:
        transaction = self.master.coordinator.transactions.get(ttid)
        if transaction is None or transaction.client is not peer:
            self.master.coordinator.open.check(ttid, peer)
            raise ErrorAnswer(ErrorCode.PROTOCOL_ERROR, f"unknown transaction {ttid.hex()}")
        if transaction.locking:
            raise PeerError(f"transaction {ttid.hex()} is already being finished")
        return transaction

    @on(FailedVote)
    def failed_vote(self, peer: Peer, message_id: int, m: FailedVote) -> None:
        transaction = self._transaction(peer, m.ttid)
        self.master.coordinator.failed_votes.ask(transaction, message_id, m.failed)

    @on(AbortTransaction)
    def abort(self, peer: Peer, message_id: int, m: AbortTransaction) -> None:
        transaction = self.master.coordinator.transactions.get(m.ttid)
        if transaction is None or transaction.client is not peer or transaction.locking:
            if transaction is None and self.master.coordinator.open.aborted(m.ttid, peer, m.nid_list):
                return
            raise PeerError(f"abort of unknown or finishing transaction {m.ttid.hex()}")
        self.master.coordinator.abort(transaction, m.nid_list)

    # -- tpc_finish ------------------------------------------------------------------------------

    @on(AskFinishTransaction)
    def finish(self, peer: Peer, message_id: int, m: AskFinishTransaction) -> None:
        master = self.master
        transaction = self._transaction(peer, m.ttid)
        if m.stored_list and max(m.stored_list) > OID_MAX:
            # The generator goes on after the greatest oid: this one would use up all of them.
            master.coordinator.abort(transaction, master.ready)
            raise ErrorAnswer(
                ErrorCode.PROTOCOL_ERROR, f"oid {max(m.stored_list).hex()} is too great"
            )
        if transaction.tid is not None and master.coordinator.late(transaction.tid):
            master.coordinator.abort(transaction, master.ready)
            raise ErrorAnswer(
                ErrorCode.INCOMPLETE_TRANSACTION,
                f"tid {transaction.tid.hex()} was overtaken by other transactions",
            )
        transaction.message_id = message_id
        involved = self._involved(m)
        lost = transaction.failed & transaction.ready & involved
        nodes = (involved & transaction.ready & master.ready) - transaction.failed
        if not self._complete(m, nodes) or (
            lost and not operational_without(master, transaction.failed)
        ):
            # From AskFinishTransaction on it is the master who aborts.
            master.coordinator.abort(transaction, master.ready)
            raise ErrorAnswer(ErrorCode.INCOMPLETE_TRANSACTION)
        tid = master.coordinator.lock(transaction, m.stored_list, nodes)
        for nid in lost:
            if (failed := master.connected.get(nid)) is not None:
                logger.error("%r did not take part in a vote, it is disconnected", failed)
                master.disconnect(failed)
        master.coordinator.abort_elsewhere(transaction, involved)
        master.coordinator.ask_locks(transaction, tid)

    def _involved(self, m: AskFinishTransaction) -> set[int]:
        """Connected storages with any cell of the partitions of the transaction (FACTS 7.3)."""
        table = self.master.partitions
        partitions = {table.partition(oid) for oid in (*m.stored_list, *m.checked_list)}
        partitions.add(table.partition(m.ttid))
        nids = {nid for partition in partitions for nid in table.rows[partition]}
        return nids & self.master.identified_storages()

    def _complete(self, m: AskFinishTransaction, nodes: set[int]) -> bool:
        """Every stored or checked object and the metadata reach a node that has them readable, and
        that has kept them locked."""
        table = self.master.partitions
        partitions = {table.partition(oid) for oid in (*m.stored_list, *m.checked_list)}
        partitions.add(table.partition(m.ttid))
        return all(nodes.intersection(table.readable(p)) for p in partitions)

    @on(AskFinalTID)
    def final_tid(self, peer: Peer, message_id: int, m: AskFinalTID) -> Message | None:
        """A client that lost us in tpc_finish wants to know how it ended (FACTS 7.4)."""
        master = self.master
        if m.ttid > master.tids.last:
            return AnswerFinalTID(None)
        transaction = master.coordinator.transactions.get(m.ttid)
        if transaction is None:
            return AnswerFinalTID(MAX_TID)
        if transaction.locking:
            master.coordinator.wait_final_tid(transaction, peer, message_id)
            return None
        # AskFinishTransaction may still arrive by the connection that the client has given up. From
        # now on the client knows that nothing was committed, so it must be refused then.
        master.coordinator.abort(transaction, master.ready)
        return AnswerFinalTID(None)

    # -- pack ------------------------------------------------------------------------------------

    @on(AskPack)
    def pack(self, peer: Peer, message_id: int, m: AskPack) -> None:
        self.master.packs.ask(peer, message_id, m.tid)


class ServeStorage(Handler):
    def __init__(self, master: MasterCore) -> None:
        self.master = master

    def lost(self, peer: Peer, reason: str) -> None:
        master = self.master
        logger.warning("%r is lost: %s", peer, reason)
        master.forget(peer)

    @on(NotifyReady)
    def ready(self, peer: Peer, message_id: int, m: NotifyReady) -> None:
        assert peer.node is not None and peer.node.nid is not None
        # It may have been sent before the peer heard that the operation stopped.
        if self.master.state in SERVING and peer.node.nid in self.master.starting:
            self.master.starting.discard(peer.node.nid)
            self.master.ready.add(peer.node.nid)
            self.master.packs.ready(peer)
            self.master.coordinator.begin_waiting()

    @on(AskUnfinishedTransactions)
    def unfinished(self, peer: Peer, message_id: int, m: AskUnfinishedTransactions) -> Message:
        assert peer.node is not None and peer.node.nid is not None
        if self.master.state not in SERVING:
            raise ErrorAnswer(ErrorCode.NOT_READY, "the operation stops")
        count = len(self.master.partitions)
        if wrong := [partition for partition in m.offset_list if partition >= count]:
            raise PeerError(f"there are {count} partitions, not {wrong[0]}")
        return self.master.replication.unfinished(peer.node.nid, m.offset_list)

    @on(NotifyReplicationDone)
    def replication_done(self, peer: Peer, message_id: int, m: NotifyReplicationDone) -> None:
        assert peer.node is not None and peer.node.nid is not None
        if self.master.backup is None:
            self.master.replication.done(peer.node.nid, m.partition)
        else:
            self.master.backup.done(peer.node.nid, m.partition, m.max_tid)

    @on(NotifyPartitionCorrupted)
    def corrupted(self, peer: Peer, message_id: int, m: NotifyPartitionCorrupted) -> None:
        assert peer.node is not None and peer.node.nid is not None
        if self.master.state in SERVING:
            self.master.checks.corrupted(peer.node.nid, m.partition, m.nid_list)

    @on(NotifyCellsBehind)
    def behind(self, peer: Peer, message_id: int, m: NotifyCellsBehind) -> None:
        assert peer.node is not None and peer.node.nid is not None
        self.master.checks.behind(peer.node.nid, m)

    @on(NotifyPartitionChecked)
    def checked(self, peer: Peer, message_id: int, m: NotifyPartitionChecked) -> None:
        assert peer.node is not None and peer.node.nid is not None
        self.master.checks.checked(peer.node.nid, m.partition, m.problem)

    @on(NotifyDeadlock)
    def deadlock(self, peer: Peer, message_id: int, m: NotifyDeadlock) -> None:
        """Give the transaction a new place in the queues, unless that was already done."""
        transaction = self.master.coordinator.transactions.get(m.ttid)
        if transaction is None or transaction.locking:
            return
        if m.locking_tid < transaction.locking_tid:
            return
        transaction.locking_tid = self.master.tids.ttid()
        client, news = transaction.client, NotifyDeadlock(m.ttid, transaction.locking_tid)
        if self.master.shell.fault(FaultSite.DEADLOCK_LATE):
            self.master.call_later(LATE_SECONDS, lambda: client.send(news))
        else:
            client.send(news)
