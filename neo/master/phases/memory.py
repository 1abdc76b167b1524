"""What storage nodes remember of a backup when the cluster starts again (specification 13.3, 25.24)."""

from __future__ import annotations

from typing import NamedTuple

from neo.master.cluster import Cluster
from neo.protocol.packets import FEATURE_OURS, NotifySynced


class Memory(NamedTuple):
    """What storage nodes remember of a backup when the cluster starts again."""

    #: ``backup_tid`` of each node: up to which tid the cells are complete that it knows to be readable.
    tids: dict[int, bytes | None]
    #: (partition, nid) of readable cells whose nodes were lost when the cells became readable: the master
    #: knew that they were complete up to some tid, but the nodes did not know that they can be read.
    unaware: frozenset[tuple[int, int]]

    @property
    def least(self) -> bytes | None:
        """The tid up to which the cells of all nodes that remember one are complete."""
        return min((tid for tid in self.tids.values() if tid is not None), default=None)

    def finished(self, cluster: Cluster, tid: bytes) -> Memory:
        """Tell storage nodes that their readable cells are complete up to ``tid`` (specification 25.24).
        Return what the nodes remember then. Call after ValidateTransaction: a node that is lost in
        between, and comes back without the nodes that have the lock, drops the transaction, and so must
        not remember it.

        ``tid``: the tid of the last transaction that nodes with readable cells have locked. Only a
        synchronous backup locks transactions, and only when all its readable cells had the earlier
        transactions and the rows of this one. A transaction that one node voted and another node has
        unlocked proves nothing, because that other node may have fetched it by an order (Replicate).
        """
        table = cluster.partitions
        unaware = {nid for partition, nid in self.unaware if nid in table.readable(partition)}
        readable = table.nodes(readable_only=True) - unaware
        tids = dict(self.tids)
        for peer in cluster.running():
            assert peer.node is not None and peer.node.nid is not None
            nid, complete = peer.node.nid, self.tids.get(peer.node.nid)
            if nid in readable and complete is not None and FEATURE_OURS in peer.node.features:
                peer.send(NotifySynced(tid))
                tids[nid] = max(complete, tid)
        return self._replace(tids=tids)
