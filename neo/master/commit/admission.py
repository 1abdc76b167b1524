"""Which storage nodes finish a transaction, and whether it may be finished (specification 7.26, 7.27)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from neo.master.cluster import Cluster
from neo.master.commit.requests import CommitRequests
from neo.master.commit.transactions import State, Transaction
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode
from neo.protocol.errors import ErrorAnswer
from neo.protocol.ids import MAX_TID, add64
from neo.protocol.packets import AskFinishTransaction, AskPrepareTransaction

logger = logging.getLogger("neo.master")

#: Greatest oid of a client. Backends keep oids as signed 64-bit integers; the rest is for new oids.
OID_MAX = add64(MAX_TID, -(2**48))


class Chosen(NamedTuple):
    """The partitions of a transaction, and three sets of storage nodes. ``involved``: connected nodes
    with cells of these partitions. ``nodes``: those of them that take part in the finish. ``lost``: those
    that failed to vote."""

    partitions: set[int]
    involved: set[int]
    nodes: set[int]
    lost: frozenset[int]


class Admission:
    def __init__(self, cluster: Cluster, requests: CommitRequests) -> None:
        self._cluster = cluster
        self._requests = requests

    def choose(
        self, transaction: Transaction[Peer], m: AskFinishTransaction | AskPrepareTransaction
    ) -> Chosen:
        """Choose the storage nodes of a transaction (specification 7.26)."""
        cluster, table = self._cluster, self._cluster.partitions
        partitions = {table.partition(oid) for oid in (*m.stored_list, *m.checked_list)}
        partitions.add(table.partition(m.ttid))
        nids = {nid for partition in partitions for nid in table.rows[partition]}
        involved = nids & cluster.identified_storages()
        nodes = (involved & transaction.ready & cluster.ready) - transaction.failed
        lost = transaction.failed & transaction.ready & involved
        return Chosen(partitions, involved, nodes, lost)

    def admit(
        self,
        transaction: Transaction[Peer],
        m: AskFinishTransaction | AskPrepareTransaction,
        chosen: Chosen,
    ) -> None:
        """Abort the transaction and raise ErrorAnswer if it must not be finished (specification 7.27,
        7.69). After AskFinishTransaction the master aborts, not the client."""
        cluster, before = self._cluster, transaction.follows
        if before is not None and before.state is State.BEGUN:
            self._requests.abort(transaction, cluster.ready)
            text = f"transaction {before.ttid.hex()}, which is to be committed before it, was not"
            raise ErrorAnswer(ErrorCode.INCOMPLETE_TRANSACTION, text)
        if m.stored_list and max(m.stored_list) > OID_MAX:
            # New oids follow the greatest oid in use: after this one none would be left.
            self._requests.abort(transaction, cluster.ready)
            raise ErrorAnswer(
                ErrorCode.PROTOCOL_ERROR, f"oid {max(m.stored_list).hex()} is too great"
            )
        readable = cluster.partitions.readable
        if any(chosen.nodes.isdisjoint(readable(p)) for p in chosen.partitions) or (
            chosen.lost and not cluster.operational_without(transaction.failed)
        ):
            self._requests.abort(transaction, cluster.ready)
            raise ErrorAnswer(ErrorCode.INCOMPLETE_TRANSACTION)

    def disconnect(self, lost: Iterable[int]) -> None:
        """Disconnect storage nodes that failed to vote."""
        for nid in lost:
            if (failed := self._cluster.connected.get(nid)) is not None:
                logger.error("%r failed to vote: it is disconnected", failed)
                self._cluster.disconnect(failed)
