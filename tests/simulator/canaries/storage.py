"""Bugs of a storage node: locks, durability, rows that are left behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from neo.node.peer import Peer
from neo.protocol.packets import (
    AcceptIdentification,
    AnswerInformationLocked,
    AnswerObject,
    AnswerStoreTransaction,
    AnswerVoteTransaction,
    AskObject,
    Message,
)
from neo.storage.backend import revisions
from neo.storage.backend.api import Done, Stored
from neo.storage.backend.revisions import Packed, Revision
from neo.storage.backend.sqlite.engine import SQLite
from neo.storage.commit import write_locks
from neo.storage.commit.locks import Locks
from neo.storage.commit.participant import Participant
from neo.storage.commit.transactions import Change, Client, Request, Transaction
from neo.storage.commit.write_locks import WriteLocks
from neo.storage.database import Database
from neo.storage.node import StorageNode
from neo.storage.serving.client import ServeClient
from tests.simulator.planting import DEADLOCKS, Canary, Patch

KILLS = {"faults": ("kill-server",), "disk": "memory", "seconds": 10.0}
QUIET = {"faults": ("none",), "disk": "memory", "seconds": 2.0}


def _not_synced(*answers: type[Message]) -> list[Patch]:
    """These answers are sent when everything is executed, not when it is durable."""
    original = Database.answer_stored

    def answer_stored(
        self: Database,
        peer: Peer,
        message_id: int,
        answer: Message,
        before: Callable[[], None] = lambda: None,
        alone: bool = False,
    ) -> None:
        def send() -> None:
            before()
            peer.answer(message_id, answer)

        if isinstance(answer, answers):
            self.backend.engine.executed(self.guard(send))
        else:
            original(self, peer, message_id, answer, before, alone)

    return [(Database, "answer_stored", answer_stored)]


def _vote_not_synced() -> list[Patch]:
    return _not_synced(AnswerStoreTransaction, AnswerVoteTransaction)


def _lock_not_synced() -> list[Patch]:
    return _not_synced(AnswerInformationLocked)


def _log_not_synced() -> list[Patch]:
    def stored(self: SQLite, done: Done, alone: bool = False) -> None:
        original(self, lambda: None, alone)
        self._schedule(done)

    original = SQLite.stored
    return [(SQLite, "stored", stored)]


def _unlocked_too_early() -> list[Patch]:
    def unlock(self: Participant, ttid: bytes) -> bool:
        tid = self.locks.final_tid(ttid)
        if tid is None:
            return False
        self._backend.commits.unlock(ttid, tid)
        self._unlocked(ttid)
        return True

    return [(Participant, "unlock", unlock)]


def _released_at_vote() -> list[Patch]:
    original = Locks.vote

    def vote(self: Locks, ttid: bytes, client: Client, metadata: bool) -> list[Stored]:
        stored = original(self, ttid, client, metadata)
        self._writes.release(self._transactions[ttid])
        self._writes.execute()
        return stored

    return [(Locks, "vote", vote)]


def _lock_kept_after_abort() -> list[Patch]:
    def drop(self: Locks, transaction: Transaction) -> None:
        del self._transactions[transaction.ttid]
        if not transaction.voted:
            self._writes.discard_all(transaction)
        for request in list(transaction.delayed):
            self._writes.undelay(request)

    return [(Locks, "_drop", drop)]


def _locks_kept_after_stop() -> list[Patch]:
    return [(Participant, "operation_stopped", lambda self: None)]


def _locks_of_lost_client() -> list[Patch]:
    return [(Participant, "client_lost", lambda self, nid: None)]


def _conflicts_compared_wrongly() -> list[Patch]:
    def conflict(self: WriteLocks, oid: bytes, change: Change) -> bytes | None:
        last = self._last_serial(oid)
        return last if last is not None and change.serial > last else None

    return [(WriteLocks, "_conflict", conflict)]


def _rebase_without_conflicts() -> list[Patch]:
    original = WriteLocks._check_and_hold

    def check_and_hold(self: WriteLocks, request: Request) -> None:
        transaction, oid = request.transaction, request.oid
        if request.change is None and oid in transaction.changes:
            self.undelay(request)
            self._hold(oid, transaction)
            request.succeed(None)
        else:
            original(self, request)

    return [(WriteLocks, "_check_and_hold", check_and_hold)]


def _deadlock_not_seen() -> list[Patch]:
    return [(write_locks, "may_deadlock", lambda transaction, holders: False)]


def _reads_do_not_wait() -> list[Patch]:
    def when_readable(self: Locks, oid: bytes, read: Callable[[], None]) -> None:
        read()

    patches: list[Patch] = [(Locks, "read_locked", lambda self, oid: False)]
    return [*patches, (Locks, "when_readable", when_readable)]


def _next_serial_lost() -> list[Patch]:
    original = ServeClient._load

    def load(self: ServeClient, m: AskObject) -> Message:
        answer = original(self, m)
        assert isinstance(answer, AnswerObject)
        return replace(answer, next_serial=None)

    return [(ServeClient, "_load", load)]


def _unfinished_kept() -> list[Patch]:
    return [(Participant, "operation_started", lambda self: None)]


def _unfinished_dropped_too_early() -> list[Patch]:
    original = StorageNode._joined

    def joined(self: StorageNode, peer: Peer, accepted: AcceptIdentification) -> None:
        original(self, peer, accepted)
        self.database.backend.commits.drop_unfinished()

    return [(StorageNode, "_joined", joined)]


def _data_not_released() -> list[Patch]:
    return [(Participant, "discard", lambda self, stored: None)]


def _pack_takes_the_current() -> list[Patch]:
    def pack(known: Sequence[Revision], tid: int, *is_last: Callable[[], bool]) -> Packed:
        packed = original(known, tid, *is_last)
        if packed.removed and len(packed.removed) < len(known):
            return Packed([*packed.removed, known[len(packed.removed)]], packed.changed)
        return packed

    original = revisions.pack
    return [(revisions, "pack", pack)]


CANARIES = (
    Canary(
        "vote-not-synced",
        "a vote is answered when it is written, not when it is durable",
        "history: an acknowledged transaction is lost, or half there",
        _vote_not_synced,
        40,
        KILLS | {"workloads": ("bank",), "faults": ("kill-server", "slow-disk")},
        first=3,
    ),
    Canary(
        "lock-not-synced",
        "a lock is answered when it is written, not when it is durable",
        "history: an acknowledged transaction is lost",
        _lock_not_synced,
        20,
        KILLS | {"workloads": ("bank",)},
    ),
    Canary(
        "log-not-synced",
        "the SQLite backend calls back before its log is synced",
        "history: an acknowledged transaction is lost",
        _log_not_synced,
        60,
        KILLS | {"faults": ("kill-server", "slow-disk"), "disk": "sqlite", "workloads": ("bank",)},
    ),
    Canary(
        "unlocked-too-early",
        "locks go when the unlock is handed to the database, not when it is executed there",
        "reads: the revision before is read, and the update based on it lost",
        _unlocked_too_early,
        40,
        QUIET | {"workloads": ("bank",)},
    ),
    Canary(
        "released-at-vote",
        "write locks are released at the vote",
        "history: an update is lost; or the core's own assertions",
        _released_at_vote,
        20,
        QUIET | {"workloads": ("bank",)},
    ),
    Canary(
        "lock-kept-after-abort",
        "an aborted transaction stays in the table of locks",
        "progress: threads wait for it for ever; validate()",
        _lock_kept_after_abort,
        20,
        QUIET | {"workloads": ("bank",)},
    ),
    Canary(
        "locks-kept-after-stop",
        "locks survive the end of the operation",
        "progress, tables: transactions that are gone hold objects and data",
        _locks_kept_after_stop,
        40,
        KILLS | {"workloads": ("bank",), "storages": 3},
        first=8,
    ),
    Canary(
        "locks-of-lost-client",
        "transactions of a client that the master lost stay when they have voted",
        "progress, tables: their locks and rows are left",
        _locks_of_lost_client,
        50,
        {"faults": ("kill-client",), "disk": "memory", "seconds": 5.0, "workloads": ("bank",)},
    ),
    Canary(
        "conflicts-compared-wrongly",
        "the base serial is compared with the last one the wrong way round",
        "history: an update is lost",
        _conflicts_compared_wrongly,
        10,
        QUIET | {"workloads": ("bank",)},
    ),
    Canary(
        "rebase-without-conflicts",
        "a rebase locks an object again without a check for a conflict",
        "history: an update is lost",
        _rebase_without_conflicts,
        40,
        DEADLOCKS,
    ),
    Canary(
        "deadlock-not-seen",
        "a transaction waits for a holder with a greater locking tid",
        "locks: transactions wait for each other",
        _deadlock_not_seen,
        30,
        QUIET | {"workloads": ("deadlocks",)},
    ),
    Canary(
        "reads-do-not-wait",
        "reads are answered during tpc_finish",
        "reads: old data at a view that includes the transaction",
        _reads_do_not_wait,
        20,
        QUIET | {"workloads": ("bank",), "storages": 3},
    ),
    Canary(
        "next-serial-lost",
        "a load of an old revision is answered as if it were the current one",
        "reads: the client's cache keeps it as current",
        _next_serial_lost,
        20,
        QUIET | {"workloads": ("deadlocks",), "seconds": 5.0},
    ),
    Canary(
        "unfinished-kept",
        "transactions that verification did not validate are not deleted when the operation starts",
        "tables: rows are left in tobj and ttrans",
        _unfinished_kept,
        20,
        KILLS | {"workloads": ("bank",)},
    ),
    Canary(
        "unfinished-dropped-too-early",
        "unfinished transactions are deleted when the node joins, before verification",
        "history: an acknowledged transaction is lost, or half there",
        _unfinished_dropped_too_early,
        20,
        KILLS | {"workloads": ("bank",), "storages": 3},
    ),
    Canary(
        "data-not-released",
        "the data of stores that end in a conflict or an abort is kept",
        "tables: data that nothing refers to",
        _data_not_released,
        10,
        QUIET | {"workloads": ("bank",)},
    ),
    Canary(
        "pack-takes-the-current",
        "a pack removes one revision too many: the one that is current at its time",
        "history, workloads: objects that can be reached are gone",
        _pack_takes_the_current,
        20,
        QUIET | {"workloads": ("pack", "bank"), "seconds": 5.0},
    ),
)
