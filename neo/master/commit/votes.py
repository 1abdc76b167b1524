"""FailedVote: storages that a client could not make vote (specification, *tpc_vote*; FACTS 7.13).

When a transaction is finished, the storages that failed to vote are disconnected: they would miss it.
Whether that is possible is promised before. Promises to two transactions may exclude each other: S1
failed for one, S2 for the other, and one of both must stay. The second one then waits until the first
has ended: if it finishes, S1 is gone and S2 is needed; if it aborts, S2 may fail.
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
    transaction: Transaction[Peer]
    message_id: int
    failed: frozenset[int]


class FailedVotes:
    """Bound of what waits: one vote per transaction; a client asks for one at a time."""

    def __init__(self, cluster: Cluster, transactions: Transactions[Peer]) -> None:
        self._cluster = cluster
        self._transactions = transactions
        self._waiting: list[_Vote] = []

    def ask(self, transaction: Transaction[Peer], message_id: int, failed: Iterable[int]) -> None:
        self._waiting.append(_Vote(transaction, message_id, frozenset(failed)))
        self.evaluate()

    def evaluate(self) -> None:
        """Answer what can be answered. Call after a transaction ended or a storage node came or went."""
        waiting, self._waiting = self._waiting, []
        for vote in waiting:
            if not self._decide(vote):
                self._waiting.append(vote)

    def _decide(self, vote: _Vote) -> bool:
        """False if it depends on how others end."""
        cluster, transaction = self._cluster, vote.transaction
        known = self._transactions.get(transaction.ttid) is transaction
        if not known or not cluster.operational_without(vote.failed):
            transaction.client.refuse(vote.message_id, ErrorCode.INCOMPLETE_TRANSACTION)
            return True
        promised = self._transactions.failures(transaction)
        if not cluster.operational_without(vote.failed | promised):
            return False
        transaction.failed = vote.failed
        transaction.client.answer(vote.message_id, Error(ErrorCode.ACK.value, ""))
        return True

    def clear(self) -> None:
        """The operation stops, and the clients are sent away."""
        self._waiting.clear()
