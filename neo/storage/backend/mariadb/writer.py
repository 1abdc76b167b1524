"""The thread that writes to MariaDB: it drains a bounded queue and commits in groups.

Statements run in the order of the calls, at the latest when a caller waits for them. The content of the
queue at one moment is a batch. Its statements are sent to the server together, and all calls of
``stored`` in it share one COMMIT, which MariaDB syncs. Later calls share the next COMMIT.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from threading import Condition, Thread
from typing import Any, NamedTuple

from neo.node.meter import Histogram
from neo.storage.backend.acknowledged import ROW
from neo.storage.backend.api import Done, Schedule
from neo.storage.backend.mariadb.link import Link
from neo.storage.backend.mariadb.position import MariaDBPosition

#: Bound of the queue in bytes: enough to keep the server busy, little beside a node's memory. ``put``
#: blocks above it; one bigger value is queued alone.
BYTES_MAX = 64 << 20

#: Bound of the queue in statements, each of some hundred bytes.
STATEMENTS_MAX = 100_000

#: Length of the queue at which the thread begins although no caller waits. To wake the thread up for each
#: statement would cost more than the statement.
WAKE_BYTES = 256 << 10
WAKE_STATEMENTS = 100

#: Advances the position; part of some group commits.
_MARK = "UPDATE config SET value=? WHERE name=?"


class _Job(NamedTuple):
    """A call on the connection, or a callback for the loop after execution or commit."""

    run: Callable[..., Any] | None
    args: tuple[Any, ...]
    size: int
    executed: Done | None = None
    stored: Done | None = None


class Writer:
    """A thread that owns the connection ``link`` until ``stop``. ``failed(writer, error)`` runs on
    the loop's thread, at most once; nothing is executed after it. ``syncs``: times of its group
    commits, with what was written before them."""

    def __init__(
        self,
        link: Link,
        position: MariaDBPosition,
        schedule: Schedule,
        failed: Callable[[Writer, Exception], None],
        syncs: Histogram,
    ) -> None:
        self._link = link
        self._position = position
        self._schedule = schedule
        self._failed = failed
        self._syncs = syncs
        self._jobs: deque[_Job] = deque()
        self._size = 0
        self._idle = True
        self._wanted = False
        self._stopping = False
        self._change = Condition()
        self.error: Exception | None = None
        self._thread = Thread(target=self._run, name="MariaDB writer", daemon=True)
        self._thread.start()

    # -- on the loop's thread -------------------------------------------------------------------

    def put(self, run: Callable[..., Any], args: tuple[Any, ...], size: int = 0) -> None:
        """Queue ``run(*args)``. Block while the queue is full; drop the call after an error."""
        with self._change:
            while (
                self._size > BYTES_MAX or len(self._jobs) > STATEMENTS_MAX
            ) and self.error is None:
                self._wake()
                self._change.wait()
            self._append(_Job(run, args, size))
            if self._size > WAKE_BYTES or len(self._jobs) > WAKE_STATEMENTS:
                self._wake()

    def executed(self, done: Done) -> None:
        with self._change:
            self._append(_Job(None, (), 0, executed=done))
            self._wake()

    def stored(self, done: Done) -> None:
        with self._change:
            self._append(_Job(None, (), 0, stored=done))
            self._wake()

    def _append(self, job: _Job) -> None:
        if self.error is None:
            self._jobs.append(job)
            self._size += job.size

    def _wake(self) -> None:
        self._wanted = True
        self._change.notify_all()

    def drain(self) -> None:
        """Block until all queued statements are executed, or an error occurs."""
        with self._change:
            if self._jobs:
                self._wake()
            while (self._jobs or not self._idle) and self.error is None:
                self._change.wait()

    def stop(self) -> None:
        """Execute and commit all queued statements and end the thread."""
        with self._change:
            self._stopping = True
            self._wake()
        self._thread.join()

    # -- on the writer's thread -----------------------------------------------------------------

    def _run(self) -> None:
        try:
            while (batch := self._next_batch()) is not None:
                self._execute(batch)
            self._link.write("COMMIT")
            self._link.flush()
            self._position.closed()
        except Exception as error:  # noqa: BLE001 - without this thread, all callers would wait for ever
            with self._change:
                self.error = error
                self._jobs.clear()
                self._change.notify_all()
            self._schedule(self._failed, self, error)

    def _next_batch(self) -> list[_Job] | None:
        """Wait for a request to execute, then return the content of the queue; None at the end."""
        with self._change:
            self._idle = True
            self._change.notify_all()
            while not self._wanted:
                self._change.wait()
            self._wanted = self._stopping
            if not self._jobs:
                return None
            self._idle = False
            batch = list(self._jobs)
            self._jobs.clear()
            return batch

    def _execute(self, batch: list[_Job]) -> None:
        stored = []
        for run, args, size, executed, done in batch:
            if run is not None:
                run(*args)
            elif executed is not None:
                self._link.flush()
                self._schedule(executed)
            elif done is not None:
                stored.append(done)
            if size:
                with self._change:
                    self._size -= size
                    self._change.notify_all()
        row = self._position.next_row() if stored else None
        if row is not None:
            self._link.write(_MARK, (row, ROW))
        began = time.monotonic()
        if stored:
            self._link.write("COMMIT")
        self._link.flush()
        if stored:
            self._syncs.observe(time.monotonic() - began)
        if row is not None:
            self._position.synced()
        for done in stored:
            self._schedule(done)
