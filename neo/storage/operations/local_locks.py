"""Locks on data of one storage node, by name: for steps of operations that hold different locks of the
cluster and change the same thing here (specification 27.35).

A lock is held during a run, or an undo, and given to those that wait in their order. They are as many as
the steps of the operations in progress, at most.
"""

from __future__ import annotations

from collections import deque

from neo.node.task import Cancelled, Future

#: The names of the locks: for files of archives, and for rows that steps write.
ARCHIVE, ROWS = "archive", "rows"


class LocalLocks:
    def __init__(self) -> None:
        #: For each lock that is held, the futures of the waiting tasks.
        self._waiting: dict[str, deque[Future[None]]] = {}

    async def take(self, name: str) -> None:
        """Hold a lock, as soon as nobody else does."""
        waiting = self._waiting.get(name)
        if waiting is None:
            self._waiting[name] = deque()
            return
        turn: Future[None] = Future()
        waiting.append(turn)
        try:
            await turn
        except Cancelled:
            if turn.done:
                self.give(name)
            else:
                waiting.remove(turn)
            raise

    def give(self, name: str) -> None:
        """Give a lock that is held to the next one."""
        waiting = self._waiting[name]
        if waiting:
            waiting.popleft().resolve(None)
        else:
            del self._waiting[name]
