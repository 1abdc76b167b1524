"""Planted bugs of synchronous backups (specification 25)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from neo.master.commit.requests import CommitRequests
from neo.master.commit.sync_backups import SyncBackup, SyncBackups
from neo.master.commit.transactions import Transaction, Transactions
from neo.master.following.cells import BackupCells
from neo.master.sync.marks import Marks
from neo.master.sync.roll_call import RollCall
from neo.master.sync.synchronous import Synchronous
from neo.node.peer import Peer
from neo.protocol.ids import MAX_TID
from neo.protocol.packets import SyncMark
from neo.storage.node import StorageNode
from neo.storage.sync.received_votes import ReceivedVotes
from tests.simulator.planting import Canary, Patch

#: Options for runs with a synchronous backup beside a busy cluster.
BANK: dict[str, Any] = {
    "backup": True,
    "sync": True,
    "workloads": ("bank",),
    "disk": "memory",
    "storages": 2,
    "seconds": 6.0,
}
QUIET = {**BANK, "faults": ("none",)}
PAUSES = {**BANK, "faults": ("pause-backup",), "seconds": 15.0}
STANDING = {**BANK, "faults": ("stand-backup",), "storages": 2, "seconds": 40.0}
RESETS = {**BANK, "faults": ("pause-backup", "reset-sites"), "seconds": 15.0}
UNHEARD = {**BANK, "faults": ("kill-unheard",), "seconds": 15.0}
LINKS = {**BANK, "faults": ("cut-sites", "kill-masters")}
DEATHS = {**BANK, "faults": ("kill-server", "ambush")}
MARKS = {**BANK, "workloads": ("prepared",), "faults": ("kill-masters", "cut-sites")}


def _acknowledged_before_the_backup() -> list[Patch]:
    def pop_finished(self: Transactions[Peer]) -> Transaction[Peer] | None:
        if self._queue and not self._queue[0].waiting:
            transaction = self._queue.popleft()
            del self._by_ttid[transaction.ttid]
            return transaction
        return None

    return [(Transactions, "pop_finished", pop_finished)]


def _backup_asked_at_once() -> list[Patch]:
    original = CommitRequests.ask_locks

    def ask_locks(self: CommitRequests, transaction: Transaction[Peer], tid: bytes) -> None:
        original(self, transaction, tid)
        self._backups.offer()

    def to_offer(self: Transactions[Peer]) -> Iterator[Transaction[Peer]]:
        for transaction in self._queue:
            if not transaction.offered:
                transaction.offered = True
                yield transaction

    return [(CommitRequests, "ask_locks", ask_locks), (Transactions, "to_offer", to_offer)]


def _votes_dropped_at_restart() -> list[Patch]:
    original = StorageNode.start

    def start(self: StorageNode) -> None:
        if self.database.backend.tables.get_config("backup_tid") is not None:
            self.database.backend.commits.drop_unfinished()
        original(self)

    return [(StorageNode, "start", start)]


def _lease_ignored() -> list[Patch]:
    def required(self: SyncBackups, backup: SyncBackup) -> bool:
        return backup.peer is not None or (backup.on and self._stops)

    return [(SyncBackups, "_required", required)]


def _lease_before_complete() -> list[Patch]:
    def may_keep(self: Synchronous) -> bool:
        return self._member is not None and self._member.tid is not None

    return [(Synchronous, "may_keep", property(may_keep))]


def _rows_believed() -> list[Patch]:
    def has(
        self: ReceivedVotes, ttid: bytes, partition: int, oids: set[bytes], metadata: bool
    ) -> bool:
        vote = self.known.get(ttid)
        return vote is not None and bool(vote.partitions)

    return [(ReceivedVotes, "has", has)]


def _shown_before_announced() -> list[Patch]:
    def advance(self: BackupCells) -> bool:
        tid = self.complete
        if tid <= self.tid:
            return False
        self.tid = tid
        return True

    return [(BackupCells, "advance", advance)]


def _no_wait_for_leases() -> list[Patch]:
    original = SyncBackups.__init__

    def init(self: SyncBackups, **neighbours: Any) -> None:
        original(self, **neighbours)
        for backup in self._backups.values():
            backup.over = 0.0

    return [(SyncBackups, "__init__", init)]


def _synced_up_to_the_end() -> list[Patch]:
    original = SyncBackups.synced

    def synced(self: SyncBackups, peer: Peer, tid: bytes) -> None:
        original(self, peer, MAX_TID)

    return [(SyncBackups, "synced", synced)]


def _marks_not_copied() -> list[Patch]:
    original = Marks.join

    def join(self: Marks, tid: bytes, marks: Iterable[SyncMark]) -> None:
        original(self, tid, [mark for mark in marks if mark[0] in self])

    return [(Marks, "join", join)]


def _mark_kept() -> list[Patch]:
    return [(Synchronous, "aborted", lambda self, ttid: None)]


def _waits_again() -> list[Patch]:

    def wait(self: SyncBackups, backup: SyncBackup, transaction: Transaction[Peer]) -> None:
        transaction.backups.add(backup.name)
        transaction.waited[backup.name] = self._core.host.monotonic()

    def call(self: RollCall, nids: Collection[int], complete: Callable[[], None]) -> None:
        complete()

    return [
        (SyncBackups, "_wait", wait),
        (SyncBackups, "_overdue", lambda self, backup: 0.0),
        (RollCall, "call", call),
    ]


CANARIES = (
    Canary(
        "acknowledged-before-the-backup",
        "the master answers a commit when its own nodes have locked it",
        "sync: a transaction is acknowledged that a backup in sync does not have",
        _acknowledged_before_the_backup,
        10,
        QUIET,
    ),
    Canary(
        "backup-asked-at-once",
        "the backup is asked to lock at the same time as the own storage nodes",
        "sync: the backup locks before all nodes upstream have",
        _backup_asked_at_once,
        20,
        DEATHS,
    ),
    Canary(
        "backup-votes-dropped-at-start",
        "a storage node of a backup drops all votes when it starts, also locked and prepared ones",
        "sync: what was prepared is not in the backup; backup: rows are missing",
        _votes_dropped_at_restart,
        50,
        DEATHS,
        first=4,
    ),
    Canary(
        "sync-lease-ignored",
        "the upstream cluster goes on at once when it has lost the backup",
        "sync: a transaction is acknowledged that a backup in sync does not have",
        _lease_ignored,
        40,
        PAUSES,
        first=9,
    ),
    Canary(
        "sync-lease-too-early",
        "the backup asks for its first lease before its cells are complete",
        "sync: a backup in sync lacks what was acknowledged",
        _lease_before_complete,
        50,
        LINKS,
    ),
    Canary(
        "voted-rows-believed",
        "a node of the backup that has some of the rows answers that it has all",
        "backup: rows are missing",
        _rows_believed,
        10,
        QUIET,
    ),
    Canary(
        "shown-before-announced",
        "readers of the backup see what it has unlocked, before the upstream cluster announces it",
        "sync: the backup shows what its upstream cluster does not show",
        _shown_before_announced,
        10,
        QUIET,
    ),
    Canary(
        "no-wait-for-leases",
        "a new primary of the upstream cluster does not wait for the leases of an earlier one",
        "sync: a transaction is acknowledged that a backup in sync does not have",
        _no_wait_for_leases,
        60,
        UNHEARD,
    ),
    Canary(
        "synced-claims-too-much",
        "a backup that follows again counts as if it had everything",
        "sync: a transaction is acknowledged without a backup, though the policy is to stop",
        _synced_up_to_the_end,
        20,
        RESETS,
        first=3,
    ),
    Canary(
        "prepared-not-copied-at-join",
        "a backup that joins does not get what is prepared already",
        "sync: a backup in sync does not keep what is prepared",
        _marks_not_copied,
        10,
        MARKS,
    ),
    Canary(
        "mark-kept-after-rollback",
        "the backup keeps a transaction that was rolled back",
        "tables: rows are left in the backup",
        _mark_kept,
        20,
        MARKS,
        first=3,
    ),
    Canary(
        "waits-again-for-the-backup",
        "a transaction waits for the backup anew whenever that joins, with a node that stands still",
        "sync: a transaction waits for the backup for too long, though the policy is to continue",
        _waits_again,
        20,
        STANDING,
        first=96,
    ),
)
