"""A thread for the files of archives, which would keep the loop of a storage node waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Lock, Thread
from typing import Protocol, TypeVar

from neo.archive.disk import OS_FILES, Files
from neo.archive.room import Disk, disk_of
from neo.node.task import Future
from neo.storage.backend.api import Schedule

T = TypeVar("T")


class Worker(Protocol):
    """Executes calls outside of the loop, one after the other. ``files``: what they may use."""

    @property
    def files(self) -> Files: ...

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Return a future of the result, which is completed on the loop's thread."""

    async def disk(self, path: Path) -> Disk | None:
        """Return the disk of a folder; None if it is not known."""


class InlineWorker:
    """Implements Worker for files in memory: executes calls at once."""

    files: Files = OS_FILES

    def call(self, function: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.resolve(function())
        except Exception as e:  # noqa: BLE001 -- it belongs to the caller
            future.fail(e)
        return future

    async def disk(self, path: Path) -> Disk | None:
        return None


class ThreadWorker:
    """Implements Worker with a thread, which lives while there are calls. It does not keep the process: a
    file system of the network may hang for ever."""

    files: Files = OS_FILES

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._lock = Lock()
        self._calls: deque[Callable[[], None]] = deque()
        self._running = False

    def call(self, function: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            try:
                result = function()
            except Exception as e:  # noqa: BLE001 -- it belongs to the caller
                self._schedule(future.fail, e)
            else:
                self._schedule(future.resolve, result)

        with self._lock:
            self._calls.append(run)
            if not self._running:
                self._running = True
                Thread(target=self._run, name="archive", daemon=True).start()
        return future

    async def disk(self, path: Path) -> Disk | None:
        try:
            return await self.call(partial(disk_of, path))
        except OSError:
            return None

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._calls:
                    self._running = False
                    return
                run = self._calls.popleft()
            run()
