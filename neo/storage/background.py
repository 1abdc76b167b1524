"""Work in the background gives way to clients.

Theory of operation
-------------------
A client waits for the piece of work that is in progress when its request comes, then for whatever that
piece left to the database: so while clients are at work, pieces are small, and each is followed by a
pause as long as it took. Half of the node is left to clients, and the rest of them on the processors of
the machine. While nobody asks, pieces are big and nothing pauses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from neo.node.task import Future

if TYPE_CHECKING:
    from neo.storage.node import StorageNode

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


class Pace:
    """``asked`` is called for each request of a client."""

    def __init__(self, core: StorageNode) -> None:
        self._core = core
        self._asked = -BUSY_SECONDS
        self._owed = 0.0

    def asked(self) -> None:
        self._asked = self._core.shell.monotonic()

    @property
    def busy(self) -> bool:
        """Whether clients are at work."""
        core = self._core
        return bool(core.locks) or core.shell.monotonic() - self._asked < BUSY_SECONDS

    def rows(self, idle: int) -> int:
        """Rows of the next piece, ``idle`` if nobody else works."""
        return min(idle, STEP_LENGTH) if self.busy else idle

    async def give_way(self, began: float) -> None:
        """After a piece of work that began at this time of ``monotonic``."""
        core, pause = self._core, 0.0
        if self.busy:
            self._owed += core.shell.monotonic() - began
            if self._owed >= PAUSE_SECONDS_MIN:
                pause, self._owed = min(self._owed, PAUSE_SECONDS_MAX), 0.0
        await core.sleep(pause)

    async def executed(self, began: float) -> None:
        """The same after writes, when the database executed them."""
        core = self._core
        future: Future[None] = Future()
        core.backend.executed(core.guard(lambda: future.resolve(None)))
        await future
        await self.give_way(began)
