"""FailedVote: storage nodes that failed to vote (specification 7.23, 7.24).

When a transaction is finished, the storage nodes that failed to vote are disconnected, because they
miss it. The master promises beforehand that this is possible. Promises to two transactions may exclude
each other: S1 failed for one, S2 for the other, and one of both must stay. The second transaction then
waits until the first one has ended. If that one finishes, S1 is gone and S2 is needed; if it aborts, S2
may fail.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from neo.master.cluster import Cluster
from neo.master.commit.transactions import Transaction, Transactions
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode
from neo.protocol.packets import Error


class _Vote(NamedTuple):
    client: Peer
    transaction: Transaction[Peer]
    message_id: int
    failed: frozenset[int]


class FailedVotes:
    """Bound: one waiting vote per transaction, because a client sends one at a time."""

    def __init__(self, cluster: Cluster, transactions: Transactions[Peer]) -> None:
        self._cluster = cluster
        self._transactions = transactions
        self.waiting: list[_Vote] = []

    def ask(
        self,
        client: Peer,
        transaction: Transaction[Peer],
        message_id: int,
        failed: Iterable[int],
    ) -> None:
        self.waiting.append(_Vote(client, transaction, message_id, frozenset(failed)))
        self.evaluate()

    def evaluate(self) -> None:
        """Answer what can be answered. Call after a transaction ended or a storage node came or went."""
        waiting, self.waiting = self.waiting, []
        for vote in waiting:
            if not self._decide(vote):
                self.waiting.append(vote)

    def _decide(self, vote: _Vote) -> bool:
        """Answer a vote. Return False if that depends on the end of other transactions."""
        cluster, transaction = self._cluster, vote.transaction
        known = self._transactions.get(transaction.ttid) is transaction
        if not known or not cluster.operational_without(vote.failed):
            vote.client.refuse(vote.message_id, ErrorCode.INCOMPLETE_TRANSACTION)
            return True
        promised = self._transactions.failures(transaction)
        if not cluster.operational_without(vote.failed | promised):
            return False
        transaction.failed = vote.failed
        vote.client.answer(vote.message_id, Error(ErrorCode.ACK.value, ""))
        return True

    def clear(self) -> None:
        """Forget all votes: the operation stops, and clients are disconnected."""
        self.waiting.clear()
