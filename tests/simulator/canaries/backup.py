"""Planted bugs of backup clusters."""

from __future__ import annotations

from collections.abc import Iterable

from neo.master.following.cells import BackupCells, Cell
from neo.master.following.mode import BackupMode, Outcome
from neo.master.following.positions import Positions
from neo.master.following.readers import Readers
from neo.master.serving.admin import ServeAdmin
from neo.node.peer import Peer
from neo.node.task import Future
from neo.protocol.enums import ErrorCode
from neo.protocol.ids import ZERO_TID
from neo.protocol.packets import Error
from neo.storage.database import Database
from neo.storage.following.fetch import BackupFetch, Mending
from neo.storage.following.progress import BackupProgress
from tests.simulator.planting import Canary, Patch

#: Options for runs with a backup beside a busy cluster, and processes that are killed.
KILLS = {"backup": True, "workloads": ("bank",), "faults": ("kill-server",), "seconds": 5.0}
QUIET = {"backup": True, "workloads": ("bank",), "faults": ("none",), "seconds": 5.0}
PACKS = {"backup": True, "workloads": ("pack", "bank"), "seconds": 6.0}


def _shown_too_early() -> list[Patch]:
    def advance(self: BackupCells) -> bool:
        tid = max((cell.tid for cell in self.all()), default=ZERO_TID)
        if tid <= self.tid:
            return False
        self.tid = tid
        return True

    return [(BackupCells, "advance", advance)]


def _metadata_forgotten() -> list[Patch]:
    original = BackupCells.heard

    def heard(self: BackupCells, tid: bytes, partitions: Iterable[int]) -> None:
        of_tid = int.from_bytes(tid, "big") % len(self.rows)
        original(self, tid, [p for p in partitions if p != of_tid])

    return [(BackupCells, "heard", heard)]


def _left_too_late() -> list[Patch]:
    def switch_tid(self: BackupCells) -> bytes:
        return max(cell.tid for cell in self.all())

    return [(BackupCells, "switch_tid", switch_tid)]


def _resumed_too_late() -> list[Patch]:
    def remember(self: BackupProgress) -> None:
        readable = self._readable()
        if readable:
            tid = max(self._complete.get(partition, ZERO_TID) for partition in readable).hex()
            self._tables.set_config("backup_tid", tid)
            self._database.commit_soon()

    return [(BackupProgress, "remember", remember)]


def _not_asked_whether_durable() -> list[Patch]:
    original = Positions._acknowledged

    def ask(self: Positions, nid: int) -> None:
        cells: list[tuple[Cell, bytes]] = [
            (cell, cell.told) for cell in self._cells.of_node(nid).values() if not cell.joining
        ]
        self.forgetful.discard(nid)
        original(self, cells, None)

    def stored(self: Database) -> Future[None]:
        return self._core.sleep(0.001)

    # Nodes answer before they have stored it, and the master does not ask whether they have.
    return [(Positions, "ask", ask), (Database, "stored", stored)]


def _packed_deletions_missed() -> list[Patch]:
    async def delete(self: BackupFetch, gone: object) -> None: ...

    return [(BackupFetch, "_delete", delete)]


def _no_invalidations() -> list[Patch]:
    return [(Readers, "show", lambda self, before, tid: None)]


def _mended_without_objects() -> list[Patch]:
    async def objects(self: Mending) -> None: ...

    return [(Mending, "_objects", objects)]


def _begin_told_at_once() -> list[Patch]:
    original = BackupMode.start

    def start(self: BackupMode, outcome: Outcome) -> None:
        outcome(None)
        original(self, lambda error: None)

    return [(BackupMode, "start", start)]


def _end_told_at_once() -> list[Patch]:
    def answer(self: ServeAdmin, peer: Peer, message_id: int, text: str) -> None:
        peer.answer(message_id, Error(ErrorCode.ACK.value, text))

    return [(ServeAdmin, "_answer_remembered", answer)]


CANARIES = (
    Canary(
        "backup-keeps-deleted",
        "objects deleted and packed away upstream before a backup heard of it stay in the backup",
        "backup: rows are too many",
        _packed_deletions_missed,
        30,
        PACKS,
    ),
    Canary(
        "backup-shown-too-early",
        "clients of a backup see a transaction when one cell has it, not all",
        "reads: not the last revision",
        _shown_too_early,
        20,
        QUIET,
        first=12,
    ),
    Canary(
        "backup-forgets-metadata",
        "the partition of a transaction's metadata is not fetched, only those of its objects",
        "backup: rows are missing",
        _metadata_forgotten,
        10,
        QUIET,
    ),
    Canary(
        "backup-left-too-late",
        "a backup is truncated after the last transaction that any cell has",
        "backup: not a prefix when it leaves its mode",
        _left_too_late,
        60,
        KILLS,
        first=10,
    ),
    Canary(
        "backup-resumed-too-late",
        "a storage node stores the position of its best cell, not of its worst",
        "backup: rows are missing",
        _resumed_too_late,
        60,
        KILLS,
    ),
    Canary(
        "backup-not-durable",
        "clients see transactions that a storage node would lose in a crash",
        "backup: readers see less than before",
        _not_asked_whether_durable,
        60,
        KILLS,
    ),
    Canary(
        "backup-without-invalidations",
        "clients of a backup are not told what changed",
        "backup: readers do not catch up",
        _no_invalidations,
        10,
        QUIET,
        first=2,
    ),
    Canary(
        "mended-without-objects",
        "a cell of a backup that is mended from upstream gets lost transactions, but no objects",
        "drills: a lost object does not come back",
        _mended_without_objects,
        40,
        QUIET,
        first=11,
    ),
    Canary(
        "backup-begin-told-at-once",
        "the begin of backup mode is answered before the nodes remember it",
        "backup: is none after the operator was told that it is one",
        _begin_told_at_once,
        40,
        QUIET,
    ),
    Canary(
        "backup-end-told-at-once",
        "the end of backup mode is answered before the nodes remember it",
        "backup: is one again after the operator was told that it is none",
        _end_told_at_once,
        20,
        QUIET,
    ),
)
