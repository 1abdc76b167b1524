"""Planted bugs: transactions with one storage node (specification 7.51 to 7.60), conflicts (8.31), the
log of transactions (7.61, 7.62)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from neo.client.commit.transaction import ClientTransaction
from neo.node.peer import Peer
from neo.protocol.packets import AnswerTransactionLog, AskStoreObject, NotifyConflictData
from neo.storage.commit.locks import Locks
from neo.storage.serving import client, conflicts, transaction_log
from tests.simulator.planting import Canary, Patch

ALONE = {
    "workloads": ("bank", "counters", "skew"),
    "faults": ("none",),
    "disk": "memory",
    "storages": 1,
    "replicas": 0,
    "seconds": 3.0,
}


def _voted_without_a_conflict() -> list[Patch]:
    """The vote leaves out what conflicted, and the client believes it. Each of both alone only costs the
    transaction."""

    def has_all(
        self: Locks, ttid: bytes, stored: Collection[bytes], checked: Collection[bytes]
    ) -> bool:
        transaction = self._transactions.get(ttid)
        return transaction is None or not (transaction.delayed or transaction.rebasing)

    def solve(self: ClientTransaction, oid: bytes, serial: bytes) -> None:
        if not self.voted:
            original(self, oid, serial)

    original = ClientTransaction._solve
    return [(Locks, "has_all", has_all), (ClientTransaction, "_solve", solve)]


def _lock_answered_at_once() -> list[Patch]:
    return [(Locks, "locks_at_once", lambda self, ttid: True)]


def _conflict_with_an_earlier_revision() -> list[Patch]:
    def send_revision(peer: Peer, m: AskStoreObject, reads: conflicts.Reads, serial: bytes) -> None:
        record = reads.load(m.oid, None, serial)  # the one before
        if record is not None and record.compression is not None:
            stored = record.compression, record.checksum, record.data
            peer.send(NotifyConflictData(m.ttid, m.oid, serial, *stored))

    return [(conflicts, "_send_revision", send_revision)]


def _log_cut_silently() -> list[Patch]:
    def last_transactions(
        reads: transaction_log.Reads, length: int, partitions: Sequence[int]
    ) -> AnswerTransactionLog:
        rows = original(reads, length, partitions).row_list
        return AnswerTransactionLog(rows[:2], False)

    original = transaction_log.last_transactions
    return [(client, "last_transactions", last_transactions)]


CANARIES = (
    Canary(
        "conflict-with-an-earlier-revision",
        "the revision that comes with a conflict is the one before it",
        "counters: an increment is lost",
        _conflict_with_an_earlier_revision,
        10,
        ALONE,
    ),
    Canary(
        "lock-before-the-vote-is-durable",
        "a lock is answered at once, although the vote did not wait for the disk",
        "history: what was acknowledged is lost",
        _lock_answered_at_once,
        30,
        ALONE | {"faults": ("kill-server",), "seconds": 10.0},
    ),
    Canary(
        "log-cut-silently",
        "a node answers its last two transactions for undoLog, and says that there are no older ones",
        "history: a list lacks transactions",
        _log_cut_silently,
        10,
        ALONE | {"workloads": ("bank", "iteration"), "storages": 2},
    ),
    Canary(
        "vote-without-the-conflict",
        "a vote behind a store that conflicted is accepted without it, and believed",
        "history: a write is lost",
        _voted_without_a_conflict,
        10,
        ALONE,
    ),
)
