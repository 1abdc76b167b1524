"""The bound of the folder of blobs: the files that were not used for the longest time are removed.

When this process has added a part of the bound, it looks at the whole folder, in the background, and
again until the folder is within its bound. Files that an application was given within the last minute,
or that are open there, stay readable: the former are spared for that time, the latter live until they
are closed.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from neo.client.blobs.cache import (
    DOWNLOADS,
    EVICTION,
    FRESH_SECONDS,
    PART,
    PENDING,
    BlobCache,
    buckets,
    files,
)
from neo.net.host import ThreadHost

logger = logging.getLogger("neo.client")

#: Files that were handed out within this time are not removed.
SPARED_SECONDS = 60.0 + FRESH_SECONDS
#: Temporary files that nobody changed for this time are left from a process that crashed: longer than any
#: transaction or download.
ABANDONED_SECONDS = 86400.0
#: Pause before the next look while files that are spared exceed the bound; and before the thread notices
#: new files, or that the client is closed.
AGAIN_SECONDS = 5.0
NOTICE_SECONDS = 0.1
#: One eviction removes until this part of the bound is left, so that it need not begin again soon.
AIM = 0.9


class _File(NamedTuple):
    used: float  # seconds
    size: int
    path: str


class Eviction:
    """``capacity``: bound in bytes. ``check``: percentage of the bound that is added before the folder is
    listed again. Thread-safe."""

    def __init__(self, host: ThreadHost, cache: BlobCache, capacity: int, check: int) -> None:
        self._host = host
        self._cache = cache
        self._capacity = capacity
        self._step = capacity * check // 100
        self._lock = host.lock()
        #: Bytes added since the folder was listed last. The first file of a process makes it list the
        #: folder.
        self._added = self._step
        self._running = False
        cache.added = self.added

    def added(self, size: int) -> None:
        """Note a new file; begin an eviction in the background if it is time."""
        with self._lock:
            self._added += size
            if self._running or self._added <= self._step:
                return
            self._running, self._added = True, 0
        try:
            self._host.background(self._run, "neo-client-blobs")
        except BaseException:
            self._running = False
            raise

    def forked(self) -> None:
        """Forget the parent's thread. Call in the child of a fork."""
        self._lock = self._host.lock()
        self._running = False

    def _run(self) -> None:
        try:
            while (pause := self._next(self._evict())) is not None:
                until = self._host.now() + pause
                while self._added <= self._step and self._host.now() < until:
                    if not self._cache.open:
                        return
                    self._host.sleep(min(pause, NOTICE_SECONDS))
        except OSError as e:
            if self._cache.open is not None:
                logger.warning("the cache of blobs cannot be cleaned: %s", e)
        finally:
            self._running = False

    def _evict(self) -> bool:
        with self._lock:
            self._added = 0
        return self.evict()

    def _next(self, exceeds: bool) -> float | None:
        """Return the seconds before the next look: none if enough was added meanwhile, some if spared
        files exceed the bound. Return None if the next file shall begin a new thread."""
        with self._lock:
            if self._added > self._step:
                return 0.0
            self._running = exceeds
            return AGAIN_SECONDS if exceeds else None

    def evict(self) -> bool:
        """Remove files until the folder is within its bound, unless another process does so. Return
        whether it still exceeds the bound, as far as is known."""
        root = self._cache.open
        if root is None:
            return False
        fd = os.open(root / EVICTION, os.O_RDWR | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            self._remove_abandoned(root)
            found = self._list(root)
            excess = sum(file.size for file in found) - self._capacity
            if excess <= 0:
                return False
            more = self._capacity * (1 - AIM)
            return self._remove(root, sorted(found), excess + more) > more
        finally:
            os.close(fd)

    def _list(self, root: Path) -> list[_File]:
        found = []
        for bucket in buckets(root):
            for entry in files(bucket):
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    found.append(_File(status.st_mtime, status.st_size, entry.path))
        return found

    def _remove(self, root: Path, found: list[_File], excess: float) -> float:
        """Return how many bytes could not be removed."""
        for file in found:
            if excess <= 0:
                break
            # For each file, because threads wait for the lock to hand out files.
            with self._cache.lock(fcntl.LOCK_EX, root), suppress(FileNotFoundError):
                if os.stat(file.path).st_mtime > time.time() - SPARED_SECONDS:
                    continue
                os.unlink(file.path)
                excess -= file.size
        return excess

    def _remove_abandoned(self, root: Path) -> None:
        """Remove what crashed processes left."""
        old = time.time() - ABANDONED_SECONDS
        with os.scandir(root / DOWNLOADS) as entries:
            for entry in entries:
                if entry.name.startswith(PENDING) or entry.name.endswith(PART):
                    with suppress(FileNotFoundError):
                        if entry.stat().st_mtime < old:
                            os.unlink(entry.path)
