"""Bugs of replication, which make an incomplete cell readable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from neo.master.maintenance.replication import Replication
from neo.protocol.ids import add64
from neo.protocol.packets import AnswerFetchObjects, AnswerUnfinishedTransactions
from neo.storage.backend.tables import Tables
from neo.storage.commit.locks import Locks
from neo.storage.replication.fetch import Fetch
from neo.storage.replication.replicator import Replicator
from tests.simulator.planting import Canary, Patch

MOVES: dict[str, Any] = {
    "faults": ("kill-server", "operate"),
    "disk": "memory",
    "storages": 3,
    "replicas": 1,
    "seconds": 10.0,
}


def _unfinished_not_told() -> list[Patch]:
    original = Replication.unfinished

    def unfinished(self: Replication, nid: int, partitions: Any) -> AnswerUnfinishedTransactions:
        return replace(original(self, nid, partitions), ttid_list=[])

    return [(Replication, "unfinished", unfinished)]


def _one_transaction_early() -> list[Patch]:
    def finished(self: Replicator, ttid: bytes, tid: bytes) -> None:
        self.aborted(ttid)

    return [(Replicator, "finished", finished)]


def _lockless_writes_lost() -> list[Patch]:
    def replicated(self: Locks, complete: Callable[[bytes], bool]) -> None:
        for transaction in self._transactions.values():
            transaction.lockless = {oid for oid in transaction.lockless if not complete(oid)}
            if not transaction.voted:
                for oid in transaction.to_rebase():
                    self._writes.forget(transaction, oid)

    return [(Locks, "replicated", replicated)]


def _resumed_too_late() -> list[Patch]:
    original = Tables._tid_when_outdated

    def tid_when_outdated(self: Tables, partition: int, nid: int) -> int:
        last = max(self._complete_up_to(p) for p in range(8))
        return max(original(self, partition, nid), last)

    return [(Tables, "_tid_when_outdated", tid_when_outdated)]


def _objects_forgotten() -> list[Patch]:
    async def objects(self: Fetch) -> None:
        """Fetch nothing."""

    return [(Fetch, "_objects", objects)]


def _last_left_out() -> list[Patch]:
    original = Fetch.__init__

    def init(
        self: Fetch, *, first: bytes, last: bytes, **options: Any
    ) -> None:
        last = add64(last, -1) if last > first else last
        original(self, first=first, last=last, **options)

    return [(Fetch, "__init__", init)]


def _given_up_kept() -> list[Patch]:
    return [
        (Replicator, "_look_back", lambda self, cell, last: None),
        (Fetch, "_found_more", lambda self: None),
    ]


def _given_up_half_compared() -> list[Patch]:
    return [(Replicator, "_look_further", lambda self, cell: None)]


def _first_chunk_only() -> list[Patch]:
    async def ask(self: Fetch, request: Any) -> Any:
        answer = await original(self, request)
        if isinstance(answer, AnswerFetchObjects):
            return replace(answer, next_tid=None, next_oid=None)
        return answer

    original = Fetch._ask
    return [(Fetch, "_ask", ask)]


def _locked_not_waited_for() -> list[Patch]:
    return [(Locks, "when_unlocked", lambda self, read, last=b"": read())]


CANARIES = (
    Canary(
        "source-does-not-wait",
        "a source answers while transactions are locked that the destination wants",
        "cells: a readable one misses rows",
        _locked_not_waited_for,
        100,
        MOVES | {"workloads": ("bank",)},
        first=15,
    ),
    Canary(
        "unfinished-not-told",
        "the master does not tell a replicating node which transactions are in progress",
        "cells: a readable one misses rows",
        _unfinished_not_told,
        60,
        MOVES | {"workloads": ("bank",)},
        first=2,
    ),
    Canary(
        "readable-one-transaction-early",
        "what unfinished transactions committed is not fetched",
        "cells: a readable one misses rows",
        _one_transaction_early,
        60,
        MOVES | {"workloads": ("bank",)},
        first=2,
    ),
    Canary(
        "lockless-writes-lost",
        "stores that were accepted blindly are forgotten when the cell is complete",
        "cells: a readable one misses rows",
        _lockless_writes_lost,
        60,
        MOVES | {"workloads": ("bank",)},
        first=5,
    ),
    Canary(
        "replication-resumed-too-late",
        "a node that returns goes on after its last tid, whatever the partition",
        "cells: a readable one misses rows",
        _resumed_too_late,
        10,
        MOVES | {"workloads": ("bank",), "disk": "sqlite"},
        first=12,
    ),
    Canary(
        "objects-not-replicated",
        "only transactions are fetched",
        "cells: a readable one misses rows",
        _objects_forgotten,
        20,
        MOVES | {"workloads": ("bank",)},
    ),
    Canary(
        "last-transaction-left-out",
        "the upper bound of a round is taken as excluded",
        "cells: a readable one misses rows",
        _last_left_out,
        40,
        MOVES | {"workloads": ("bank",)},
    ),
    Canary(
        "first-chunk-only",
        "a fetch of objects ends after the first chunk of the source",
        "tables: objects of a transaction are missing; cells: a readable one misses rows",
        _first_chunk_only,
        20,
        MOVES | {"workloads": ("bank",)},
    ),
    Canary(
        "given-up-kept",
        "a node that the cluster was started without keeps what only it has",
        "cells: replicas are not equal",
        _given_up_kept,
        40,
        MOVES | {"workloads": ("bank",), "faults": ("forsake",), "storages": 2, "masters": 1},
    ),
    Canary(
        "given-up-half-compared",
        "a node that the cluster was started without forgets what it found when it is interrupted",
        "cells: replicas are not equal; commits: an acknowledged one is lost",
        _given_up_half_compared,
        10,
        {
            "workloads": ("bank",),
            "faults": ("forsake", "kill-server"),
            "storages": 2,
            "replicas": 1,
            "masters": 1,
        },
        first=165,
    ),
)
