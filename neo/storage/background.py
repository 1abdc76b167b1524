"""Work in the background of a storage node, which gives way to clients.

Theory of operation
-------------------
A request of a client waits for the step of work in progress, and for the writes that this step left to
the database. So while clients are active, steps are small, and a pause as long as the step follows each.
That leaves half of the node's time to clients. While no client is active, steps are large and nothing
pauses.

When the database is careful (:mod:`~neo.storage.database`), what a job does between two awaits is one
attempt. A job with a statement that is refused is given up until the next start of the operation.
"""

from __future__ import annotations

import logging
import types
from collections.abc import Coroutine, Generator
from typing import Any

from neo.node.core import Core
from neo.node.task import Future, Task
from neo.storage.backend.api import BackendRefused, StatementRefused
from neo.storage.commit.locks import Locks
from neo.storage.database import Database
from neo.storage.events import Part

logger = logging.getLogger("neo.storage")

#: Clients are active if one sent a request, or was committing, within this time. It is many times the
#: pause of a client that computes between two requests, and costs little after the last request.
BUSY_SECONDS = 0.1
#: Longest pause.
PAUSE_SECONDS_MAX = 0.2
#: Shortest pause, since timers count milliseconds. Shorter ones are added up.
PAUSE_SECONDS_MIN = 0.001
#: Rows of a step while clients are active: 1 to 4 ms of the database.
STEP_LENGTH = 32
#: Bytes of a step while clients are active.
STEP_BYTES = 64 << 10

Job = Coroutine[Any, Any, None]


class Background(Part):
    """Runs jobs until the operation stops. Handlers call :meth:`asked` for each request of a client."""

    def __init__(self, core: Core, database: Database, locks: Locks) -> None:
        self._core = core
        self._host = core.host
        self._database = database
        self._locks = locks
        self.jobs: dict[Task[None], None] = {}
        self._asked = -BUSY_SECONDS
        self._owed = 0.0

    # -- jobs ------------------------------------------------------------------------------------

    def run(self, job: Job) -> Task[None]:
        """Start a job, which is cancelled when the operation stops."""
        if self._database.careful:
            job = self._carefully(job)
        task = self._core.spawn(job)
        self.jobs[task] = None
        task.then(lambda _: self.jobs.pop(task, None))
        return task

    async def _carefully(self, job: Job) -> None:
        """Run a job in attempts; give it up if the database refuses a statement."""
        try:
            await _in_attempts(self._database, job)
        except BackendRefused as e:
            if not isinstance(e.__cause__, StatementRefused):
                raise
            logger.error(
                "%s is given up until this node starts again, and its last step undone: %s",
                getattr(job, "__qualname__", "a job"),
                e,
            )

    def operation_stopped(self) -> None:
        for task in list(self.jobs):
            task.cancel()

    def sleep(self, seconds: float) -> Future[None]:
        """Return a future that is done after this time."""
        return self._core.sleep(seconds)

    def monotonic(self) -> float:
        """Return seconds that never jump."""
        return self._host.monotonic()

    # -- pauses ----------------------------------------------------------------------------------

    def asked(self) -> None:
        """Note a request of a client."""
        self._asked = self._host.monotonic()

    @property
    def busy(self) -> bool:
        """Whether clients are active."""
        return bool(self._locks) or self._host.monotonic() - self._asked < BUSY_SECONDS

    def rows(self, idle: int) -> int:
        """Return the number of rows of the next step, ``idle`` if no client is active."""
        return min(idle, STEP_LENGTH) if self.busy else idle

    async def give_way(self, began: float) -> None:
        """Pause after a step that began at this time of :meth:`monotonic`."""
        pause = 0.0
        if self.busy:
            self._owed += self._host.monotonic() - began
            if self._owed >= PAUSE_SECONDS_MIN:
                pause, self._owed = min(self._owed, PAUSE_SECONDS_MAX), 0.0
        await self._core.sleep(pause)

    async def executed(self, began: float) -> None:
        """Wait until the database has executed all writes, then pause as :meth:`give_way`."""
        await self._database.executed()
        await self.give_way(began)


@types.coroutine
def _in_attempts(database: Database, job: Job) -> Generator[Future[Any], None, None]:
    """Run a job; each stretch between two awaits is an attempt."""
    error: Exception | None = None
    while True:
        with database.attempt():
            try:
                awaited = job.send(None) if error is None else job.throw(error)
            except StopIteration:
                return
        error = None
        try:
            yield awaited
        except Exception as e:  # noqa: BLE001  # passed on to the job
            error = e
