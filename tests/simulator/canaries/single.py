"""Planted bugs of transactions with one storage node (specification 7.51 to 7.53)."""

from __future__ import annotations

from collections.abc import Collection

from neo.client.commit.transaction import ClientTransaction
from neo.storage.commit.locks import Locks
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


CANARIES = (
    Canary(
        "lock-before-the-vote-is-durable",
        "a lock is answered at once, although the vote did not wait for the disk",
        "history: what was acknowledged is lost",
        _lock_answered_at_once,
        30,
        ALONE | {"faults": ("kill-server",), "seconds": 10.0},
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
