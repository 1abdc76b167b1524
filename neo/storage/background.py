"""Work in the background of a storage node, which gives way to clients.

Theory of operation
-------------------
A client waits for the piece of work that is in progress when its request comes, then for whatever that
piece left to the database: so while clients are at work, pieces are small, and each is followed by a
pause as long as it took. Half of the node is left to clients, and the rest of them on the processors of
the machine. While nobody asks, pieces are big and nothing pauses.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from neo.node.core import Core
from neo.node.task import Future, Task
from neo.storage.commit.locks import Locks
from neo.storage.database import Database
from neo.storage.events import Part

#: Clients are at work if one asked, or committed, within this time: many times the pause of one that
#: computes between two requests, and no loss when it was the last request.
BUSY_SECONDS = 0.1
#: More than this is no pause but a delay.
PAUSE_SECONDS_MAX = 0.2
#: Less than this is no pause: timers count milliseconds. What pieces are owed is added up until then.
PAUSE_SECONDS_MIN = 0.001
#: Rows of a piece while clients are at work: 1 to 4 ms of the database.
STEP_LENGTH = 32
#: Bytes of a piece while clients are at work.
STEP_BYTES = 64 << 10

Job = Coroutine[Any, Any, None]


class Background(Part):
    """Runs jobs until the operation stops. :meth:`asked` is called for each request of a client."""

    def __init__(self, core: Core, database: Database, locks: Locks) -> None:
        self._core = core
        self._shell = core.shell
        self._database = database
        self._locks = locks
        self.jobs: dict[Task[None], None] = {}
        self._asked = -BUSY_SECONDS
        self._owed = 0.0

    # -- jobs ------------------------------------------------------------------------------------

    def run(self, job: Job) -> None:
        """Start long work, which is cancelled when the operation stops."""
        task = self._core.spawn(job)
        self.jobs[task] = None
        task.then(lambda _: self.jobs.pop(task, None))

    def operation_stopped(self) -> None:
        for task in list(self.jobs):
            task.cancel()

    def sleep(self, seconds: float) -> Future[None]:
        """Return a future that is done after this time."""
        return self._core.sleep(seconds)

    def monotonic(self) -> float:
        """Return seconds that never jump."""
        return self._shell.monotonic()

    # -- pauses ----------------------------------------------------------------------------------

    def asked(self) -> None:
        """A client asks for something."""
        self._asked = self._shell.monotonic()

    @property
    def busy(self) -> bool:
        """Whether clients are at work."""
        return bool(self._locks) or self._shell.monotonic() - self._asked < BUSY_SECONDS

    def rows(self, idle: int) -> int:
        """Return the number of rows of the next piece, ``idle`` if no client is at work."""
        return min(idle, STEP_LENGTH) if self.busy else idle

    async def give_way(self, began: float) -> None:
        """Pause after a piece of work that began at this time of :meth:`monotonic`."""
        pause = 0.0
        if self.busy:
            self._owed += self._shell.monotonic() - began
            if self._owed >= PAUSE_SECONDS_MIN:
                pause, self._owed = min(self._owed, PAUSE_SECONDS_MAX), 0.0
        await self._core.sleep(pause)

    async def executed(self, began: float) -> None:
        """Pause in the same way after writes, when the database executed them."""
        await self._database.executed()
        await self.give_way(began)
