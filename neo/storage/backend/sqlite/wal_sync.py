"""The thread that syncs the log of a SQLite database and makes checkpoints.

It has at most one job: its owner submits the next one after the report of the last (``busy``). A sync
for one transaction that is alone is made by the owner's thread while the disk is quick
(docs/decisions/057-sync-in-the-loop.md).
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import NamedTuple

from neo.storage.backend.api import Done, Schedule
from neo.storage.backend.sqlite.files import Files
from neo.storage.backend.sqlite.position import SQLitePosition

#: Longest sync, on average, that the owner's thread makes itself. To wake up the syncer's thread, and
#: to be woken up by it, takes about a tenth of that; other clients wait for so long.
QUICK_SECONDS = 1e-3
#: Syncs of which the average is, nearly: one that takes a second counts for about a hundred.
AVERAGED = 16


class Pace:
    """How long syncs take: an average in which older ones count less and less."""

    def __init__(self) -> None:
        self._known = 0
        self._seconds = 0.0

    def add(self, seconds: float) -> None:
        self._known = min(self._known + 1, AVERAGED)
        self._seconds += (seconds - self._seconds) / self._known

    @property
    def quick(self) -> bool:
        """Whether the next sync is probably quick. False while little is known."""
        return self._known == AVERAGED and self._seconds < QUICK_SECONDS


class Report(NamedTuple):
    """The result of a checkpoint."""

    log_pages: int
    complete: bool


class Syncer:
    """A thread, started at once. ``synced(syncer, covered, report)`` and ``failed(syncer, error)``
    run on the loop's thread; ``failed`` is called at most once, and no callback follows it."""

    def __init__(
        self,
        path: str,
        files: Files,
        position: SQLitePosition,
        schedule: Schedule,
        synced: Callable[[Syncer, list[Done], Report | None], None],
        failed: Callable[[Syncer, Exception], None],
    ) -> None:
        self._path = path
        self._files = files
        self._position = position
        self._schedule = schedule
        self._synced = synced
        self._failed = failed
        self._jobs: SimpleQueue[tuple[list[Done], bool] | None] = SimpleQueue()
        self.busy = False
        #: Changed by the thread that has the job.
        self._pace = Pace()
        #: The log; -1 before the thread has opened it.
        self._log = -1
        self._thread = Thread(target=self._run, name=f"sync {path}", daemon=True)
        self._thread.start()

    def sync(self, covered: list[Done], checkpoint: bool, alone: bool = False) -> None:
        """Make all commits durable; then call ``synced``. ``alone``: in this thread, if that is quick and
        no checkpoint is due; ``synced`` is called later all the same."""
        assert not self.busy
        self.busy = True
        if not alone or checkpoint or not self._pace.quick:
            self._jobs.put((covered, checkpoint))
            return
        try:
            self._sync_log()
        except Exception as error:  # noqa: BLE001 - as in the thread: the owner hears of it by ``failed``
            self._schedule(self._failed, self, error)
        else:
            self._schedule(self._finished, covered, None)

    def stop(self) -> None:
        """Finish the current job and end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._log = os.open(f"{self._path}-wal", os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._work()
            finally:
                os.close(self._log)
        except Exception as error:  # noqa: BLE001 - without this thread, all callers would wait for ever
            self._schedule(self._failed, self, error)

    def _sync_log(self) -> None:
        begin = time.monotonic()
        os.fdatasync(self._log)
        self._pace.add(time.monotonic() - begin)
        # Check before the acknowledgement, and before a connection would create a new file.
        self._files.check()
        self._position.synced()

    def _work(self) -> None:
        db: sqlite3.Connection | None = None
        try:
            while (job := self._jobs.get()) is not None:
                covered, checkpoint = job
                self._sync_log()
                report = None
                if checkpoint:
                    if db is None:
                        db = self._connect()
                    report = self._checkpoint(db)
                self._schedule(self._finished, covered, report)
        finally:
            if db is not None:
                db.close()

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, timeout=5, isolation_level=None)
        db.execute("PRAGMA synchronous=NORMAL")
        return db

    def _checkpoint(self, db: sqlite3.Connection) -> Report:
        """Sync the log, copy its pages into the database, and sync the database."""
        _, log_pages, copied = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        self._position.synced(durable=True)
        return Report(log_pages, log_pages == copied)

    def _finished(self, covered: list[Done], report: Report | None) -> None:
        self.busy = False
        self._synced(self, covered, report)
