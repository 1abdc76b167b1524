"""FailedVote: storages that a client could not make vote (specification, *tpc_vote*; FACTS 7.13).

When a transaction is finished, the storages that failed to vote are disconnected: they would miss it.
Whether that is possible is promised before. Promises to two transactions may exclude each other: S1
failed for one, S2 for the other, and one of both must stay. The second one then waits until the first
has ended: if it finishes, S1 is gone and S2 is needed; if it aborts, S2 may fail.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from neo.master.commit.transactions import Transaction
from neo.node.peer import Peer
from neo.protocol.enums import ErrorCode
from neo.protocol.packets import Error

if TYPE_CHECKING:
    from neo.master.core import MasterCore


class _Vote(NamedTuple):
    transaction: Transaction[Peer]
    message_id: int
    failed: frozenset[int]


def operational_without(master: MasterCore, failed: Iterable[int]) -> bool:
    return master.partitions.operational(master.ready - set(failed))


class FailedVotes:
    """Bound of what waits: one vote per transaction; a client asks for one at a time."""

    def __init__(self, master: MasterCore) -> None:
        self._master = master
        self._waiting: list[_Vote] = []

    def ask(self, transaction: Transaction[Peer], message_id: int, failed: Iterable[int]) -> None:
        self._waiting.append(_Vote(transaction, message_id, frozenset(failed)))
        self.evaluate()

    def evaluate(self) -> None:
        """Transactions ended, or storages are ready or lost: answer what can be answered."""
        waiting, self._waiting = self._waiting, []
        for vote in waiting:
            if not self._decide(vote):
                self._waiting.append(vote)

    def _decide(self, vote: _Vote) -> bool:
        """False if it depends on how others end."""
        master, transaction = self._master, vote.transaction
        known = master.coordinator.transactions.get(transaction.ttid) is transaction
        if not known or not operational_without(master, vote.failed):
            transaction.client.refuse(vote.message_id, ErrorCode.INCOMPLETE_TRANSACTION)
            return True
        promised = master.coordinator.transactions.failures(transaction)
        if not operational_without(master, vote.failed | promised):
            return False
        transaction.failed = vote.failed
        transaction.client.answer(vote.message_id, Error(ErrorCode.ACK.value, ""))
        return True

    def clear(self) -> None:
        """The operation stops, and the clients are sent away."""
        self._waiting.clear()
