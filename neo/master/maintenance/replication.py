"""Messages for storage nodes that replicate (specification 10.15, 10.16).

A storage node asks for the unfinished transactions. Clients send it the data of all transactions that
begin later. So it waits for the end of each unfinished one, and then fetches what it missed of these.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from neo.master.cluster import Cluster
from neo.master.commit.transactions import Transactions
from neo.master.states import SERVING
from neo.node.peer import Peer
from neo.protocol.enums import CellState
from neo.protocol.ids import format_nid
from neo.protocol.packets import (
    AbortTransaction,
    AnswerUnfinishedTransactions,
    CellChange,
    NotifyTransactionFinished,
)
from neo.topology.tweak import fed, replicated

logger = logging.getLogger("neo.master")


class Replication:
    """Bounds: cells of the table; nodes times transactions in progress."""

    def __init__(self, cluster: Cluster, transactions: Transactions[Peer]) -> None:
        self._cluster = cluster
        self._transactions = transactions
        #: (partition, nid) of OUT_OF_DATE cells whose nodes have asked for unfinished transactions.
        self._asked: set[tuple[int, int]] = set()
        #: Nodes that wait for the end of a transaction, by ttid.
        self._waiting: dict[bytes, dict[int, None]] = {}
        #: Version of the last table in which a cell was taken from a node.
        self.discarded_ptid = 0

    # -- storage nodes -----------------------------------------------------------------------------

    def unfinished(self, nid: int, partitions: Iterable[int]) -> AnswerUnfinishedTransactions:
        self._asked.update((partition, nid) for partition in partitions)
        ttids = self._transactions.ttids()
        for ttid in ttids:
            self._waiting.setdefault(ttid, {})[nid] = None
        return AnswerUnfinishedTransactions(self._cluster.last_tid, ttids)

    def waiting(self, ttid: bytes) -> list[int]:
        """Return the nodes that wait for the end of a transaction."""
        return list(self._waiting.get(ttid, ()))

    def asked(self, partition: int, nid: int) -> bool:
        """Return whether the node has asked for unfinished transactions to replicate this cell."""
        return (partition, nid) in self._asked

    def done(self, nid: int, partition: int) -> None:
        """Make a cell UP_TO_DATE (NotifyReplicationDone), unless it was lost or changed meanwhile."""
        if (partition, nid) not in self._asked:
            return
        changes = replicated(self._cluster.partitions, partition, nid)
        if changes:
            logger.info("partition %s is complete on %s", partition, format_nid(nid))
            self._cluster.change_partitions(changes)

    def discard_fed(self) -> None:
        """Take away FEEDING cells that are not needed any more, if every other master would come to the
        table as it is."""
        cluster = self._cluster
        if cluster.state in SERVING and cluster.published.complete:
            cluster.change_partitions(fed(cluster.partitions))

    # -- events ------------------------------------------------------------------------------------

    def table_confirmed(self) -> None:
        self.discard_fed()

    def operation_stopped(self) -> None:
        self._asked.clear()
        self._waiting.clear()

    def storage_lost(self, nid: int) -> None:
        self._asked = {cell for cell in self._asked if cell[1] != nid}
        for nids in self._waiting.values():
            nids.pop(nid, None)

    def cells_changed(self, ptid: int, changes: list[CellChange]) -> None:
        for partition, nid, state in changes:
            if state is not CellState.OUT_OF_DATE:
                self._asked.discard((partition, nid))
            if state is CellState.DISCARDED:
                self.discarded_ptid = max(self.discarded_ptid, ptid)

    # -- transactions ------------------------------------------------------------------------------

    def finished(self, ttid: bytes, tid: bytes) -> set[int]:
        """Tell the nodes that wait for this transaction, and return them. Call after
        NotifyUnlockInformation, so that nodes which took part have all that they voted."""
        nids = set(self._waiting.pop(ttid, ()))
        for nid in nids:
            peer = self._cluster.connected.get(nid)
            if peer is not None:
                peer.send(NotifyTransactionFinished(ttid, tid))
        return nids

    def aborted(self, ttid: bytes) -> None:
        for nid in self._waiting.pop(ttid, ()):
            peer = self._cluster.connected.get(nid)
            if peer is not None:
                peer.send(AbortTransaction(ttid, []))
