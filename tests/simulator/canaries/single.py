"""Planted bugs: transactions with one storage node (specification 7.51 to 7.64), conflicts (8.31, 8.32),
the log of transactions (7.61, 7.62)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from neo.client.commit.transaction import ClientTransaction
from neo.node.peer import Peer
from neo.protocol.packets import AnswerTransactionLog, AskStoreObject, NotifyConflictData
from neo.storage.backend.api import Record
from neo.storage.commit.locks import Locks
from neo.storage.commit.transactions import Change, Transaction
from neo.storage.commit.write_locks import WriteLocks
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


def _next_told_of_an_earlier_revision() -> list[Patch]:
    def load(
        self: conflicts.Revisions, oid: bytes, at: bytes | None, before: bytes | None
    ) -> Record | None:
        told = at is not None and self._locks.locked_store(oid, at) is not None
        return self._reads.load(oid, None, at) if told else original(self, oid, at, before)

    original = conflicts.Revisions.load
    return [(conflicts.Revisions, "load", load)]


def _told_and_passed_over() -> list[Patch]:
    """What the client sends again after it was told is taken for a store upon the present revision, also
    if another transaction had the object in between."""

    def conflict(self: WriteLocks, oid: bytes, change: Change) -> bytes | None:
        return None if change.serial in told else original(self, oid, change)

    def tell_next(self: WriteLocks, holder: Transaction, serial: bytes) -> None:
        told.add(serial)
        tell(self, holder, serial)

    told: set[bytes] = set()
    original, tell = WriteLocks._conflict, WriteLocks.tell_next
    return [(WriteLocks, "_conflict", conflict), (WriteLocks, "tell_next", tell_next)]


def _waiting_vote_forgotten() -> list[Patch]:
    return [(Locks, "_attempt_votes", lambda self: None)]


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
        "next-told-of-an-earlier-revision",
        "the next store is told of a conflict with the revision before the one that is locked",
        "counters: an increment is lost",
        _next_told_of_an_earlier_revision,
        10,
        ALONE,
    ),
    Canary(
        "told-and-passed-over",
        "a store upon a revision that was told before it was committed is not compared any more",
        "skew: the accounts hold less than nothing together",
        _told_and_passed_over,
        30,
        ALONE,
    ),
    Canary(
        "waiting-vote-forgotten",
        "a vote that waits for a lock is not decided when the lock is free",
        "progress: the workloads are not set up in time",
        _waiting_vote_forgotten,
        10,
        ALONE,
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
