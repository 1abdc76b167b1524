"""Bugs of a client: its cache, and its handling of lost connections and conflicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from neo.client.commit import undo
from neo.client.commit.finish import Finish, Voted
from neo.client.commit.importing import Group, Import
from neo.client.commit.participants import Asked
from neo.client.commit.transaction import ClientTransaction
from neo.client.connect.master import Partition
from neo.client.errors import TransactionLostError
from neo.client.history import transactions as history
from neo.client.history.scan import Range, Revision, Scanner
from neo.client.read.cache import Cache
from neo.client.read.invalidations import Invalidations
from neo.client.read.replicas import Replicas
from neo.master.commit.transactions import Transactions
from neo.protocol.packets import Conflict
from tests.simulator.planting import DEADLOCKS, Canary, Patch

QUIET = {"faults": ("none",), "disk": "memory", "seconds": 2.0}
KILLS = {"faults": ("kill-server",), "disk": "memory", "seconds": 10.0}


def _load_in_flight_not_invalidated() -> list[Patch]:
    original = Cache._close

    def close(self: Cache, oid: bytes, tid: bytes) -> None:
        loads, self._loads = self._loads, {}
        try:
            original(self, oid, tid)
        finally:
            self._loads = loads

    return [(Cache, "_close", close)]


def _cache_survives_reconnection() -> list[Patch]:
    return [(Cache, "clear", lambda self: None)]


def _zodb_not_told_at_reconnection() -> list[Patch]:
    return [(Invalidations, "_empty_caches", lambda self, db, tid: None)]


def _lost_master_means_aborted() -> list[Patch]:
    def recover(self: Finish, voted: Voted, callback: Callable[[bytes], object]) -> bytes:
        raise TransactionLostError("the master was lost, and the transaction was not committed")

    return [(Finish, "_recover", recover)]


def _finished_before_the_one_before() -> list[Patch]:
    def advance(self: Import) -> None:
        voting, stored = self._voting, self._stored
        for transaction, _ in voting.members:
            self._steps.tpc_vote(transaction)
            self._steps.ask_finish(transaction)
        self._finish()
        self._finishing = voting.members
        for transaction, _ in stored.members:
            self._steps.ask_votes(transaction)
        self._voting, self._stored = stored, Group()

    return [(Import, "_advance", advance)]


def _chain_not_kept() -> list[Patch]:
    return [(Transactions, "chain", lambda self, ttids, client: None)]


def _first_master_for_ever() -> list[Patch]:
    original = ClientTransaction.vote

    def vote(self: ClientTransaction, durable: bool = False) -> None:
        first = self._primary.__dict__.setdefault("first", self._master)
        if self._master is not first:
            raise TransactionLostError("the master was lost: another one is there")
        original(self, durable)

    return [(ClientTransaction, "vote", vote)]


def _last_tid_before_cache() -> list[Patch]:
    def invalidate(self: Invalidations, tid: bytes, oids: list[bytes], of: object) -> None:
        if self._over(tid, of):
            return
        self.last_tid = tid
        with self._lock:
            self.cache.invalidate(tid, oids)
            db = self._adapter()
            if db is not None:
                db.invalidate(tid, oids)

    return [(Invalidations, "invalidate", invalidate)]


def _rebase_conflict_ignored() -> list[Patch]:
    def rebase_failed(
        self: ClientTransaction, asked: Asked, oid: bytes, conflict: Conflict
    ) -> None: ...

    return [(ClientTransaction, "_rebase_failed", rebase_failed)]


def _undo_overwrites() -> list[Patch]:
    """Later changes are not merged."""
    original = undo._undo_object

    def undo_object(*arguments: Any) -> None:
        original(*arguments[:-1], True)  # type: ignore[call-arg]

    return [(undo, "_undo_object", undo_object)]


def _second_page_forgotten() -> list[Patch]:
    def ascending_from(
        replicas: Replicas, partition: Partition, page: list[bytes], max_tid: bytes
    ) -> Iterator[bytes]:
        yield from page

    return [(history, "_ascending_from", ascending_from)]


def _page_ends_too_late() -> list[Patch]:
    """The next page begins after a revision that was not read."""
    original = Scanner._page

    def page(self: Scanner, rows: Any, what: Range) -> Iterator[Revision]:
        whole = list(original(self, rows, what))
        yield from whole[:-1] if len(whole) > 1 else whole

    return [(Scanner, "_page", page)]


CANARIES = (
    Canary(
        "load-in-flight-not-invalidated",
        "an invalidation that comes while an object is loaded does not reach the answer",
        "reads: the cache gives a revision that is not the last one any more",
        _load_in_flight_not_invalidated,
        80,
        QUIET | {"workloads": ("deadlocks",), "storages": 2, "seconds": 5.0},
    ),
    Canary(
        "cache-survives-reconnection",
        "the cache keeps its records over a lost connection to the master",
        "reads: the invalidations of the time between are missing",
        _cache_survives_reconnection,
        60,
        KILLS | {"workloads": ("bank", "counters")},
        first=4,
    ),
    Canary(
        "zodb-survives-reconnection",
        "connections of ZODB keep their objects over a lost connection to the master",
        "workloads: a sum is wrong",
        _zodb_not_told_at_reconnection,
        60,
        KILLS | {"workloads": ("bank", "counters")},
    ),
    Canary(
        "lost-master-means-aborted",
        "the loss of the master in tpc_finish is taken for an abort",
        "history: a transaction is visible that the application knows to be lost",
        _lost_master_means_aborted,
        40,
        KILLS | {"workloads": ("bank",)},
    ),
    Canary(
        "first-master-for-ever",
        "a commit compares its master with the first that the client had, not with the one it began at",
        "progress: a client that connected again commits nothing any more",
        _first_master_for_ever,
        40,
        KILLS | {"workloads": ("bank",)},
        first=1,
    ),
    Canary(
        "chain-not-kept",
        "the master finishes transactions of a chain without the ones before them",
        "history: a copy has a gap",
        _chain_not_kept,
        60,
        QUIET | {"workloads": ("restore", "counters"), "storages": 1, "replicas": 0, "seconds": 5.0},
    ),
    Canary(
        "finished-before-the-one-before",
        "a copy asks to finish a transaction before the one before it is committed",
        "history: a copy has a gap",
        _finished_before_the_one_before,
        60,
        QUIET | {"workloads": ("restore", "counters"), "seconds": 5.0},
    ),
    Canary(
        "last-tid-before-cache",
        "the last tid is set before the caches are invalidated",
        "reads: the cache gives the revision before at the new view",
        _last_tid_before_cache,
        100,
        QUIET | {"workloads": ("phases", "increments"), "seconds": 5.0},
        first=12,
    ),
    Canary(
        "rebase-conflict-ignored",
        "an object that could not be rebased is taken for rebased",
        "history: a transaction is half there",
        _rebase_conflict_ignored,
        30,
        DEADLOCKS,
    ),
    Canary(
        "undo-overwrites",
        "an undo takes the undone revision for the current one, and overwrites what came later",
        "workloads: a counter misses steps",
        _undo_overwrites,
        40,
        QUIET | {"workloads": ("undo",), "seconds": 5.0},
    ),
    Canary(
        "second-page-forgotten",
        "an iterator ends with the first page of tids of each partition",
        "history: transactions are missing in a listing",
        _second_page_forgotten,
        60,
        QUIET | {"workloads": ("iteration", "bank"), "seconds": 5.0},
    ),
    Canary(
        "page-ends-too-late",
        "the last revision of a page of a pipeline is taken for the first of the next one",
        "history: transactions or objects are missing in what a pipeline read",
        _page_ends_too_late,
        20,
        QUIET | {"workloads": ("iteration", "bank"), "seconds": 5.0},
    ),
)
