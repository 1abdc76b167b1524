"""File operations of both logs. No other module but :mod:`neo.transactor.store` touches their files."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager


class StoreError(Exception):
    """The logs cannot be used; the message names the file, the failure and the remedy."""


@contextmanager
def failing(action: str) -> Iterator[None]:
    """Raise StoreError instead of OSError. ``action``: what cannot be done, such as "read FILE"."""
    try:
        yield
    except OSError as e:
        raise StoreError(f"cannot {action}: {e.strerror}") from None


def read_file(path: str) -> bytes:
    """Return the content of a file. Raises StoreError."""
    with failing(f"read {path}"), open(path, "rb") as f:
        return f.read()


class LogFile:
    """An append-only file. Failures are final, because its pages are in an unknown state afterwards."""

    def __init__(self, path: str, end: int) -> None:
        """Truncate the file at ``end``, and sync what is before it: a killed process may not have synced
        it. Raises StoreError."""
        self.path = path
        self.size = end
        self._dirty = False
        self._fd = -1
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640)
            os.ftruncate(self._fd, end)
            os.lseek(self._fd, end, os.SEEK_SET)
            if end:
                os.fdatasync(self._fd)
        except OSError as e:
            self.close()
            raise self._failure(e) from None

    def append(self, data: bytes) -> None:
        """Append, without a sync. Raises StoreError."""
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as e:
            raise self._failure(e) from None
        self.size += len(data)
        self._dirty = True

    def sync(self) -> None:
        """Make all data that was appended before the call durable. Raises StoreError."""
        if not self._dirty:
            return
        self._dirty = False  # data that is appended during the sync is not covered by it
        try:
            os.fdatasync(self._fd)
        except OSError as e:
            raise self._failure(e) from None

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _failure(self, error: OSError) -> StoreError:
        advice = "the node stops; nothing was promised that is not on disk"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            advice = "free some space and start the node again; no promise was lost"
        return StoreError(f"cannot write to {self.path}: {error.strerror}; {advice}")


def lock_folder(path: str) -> int:
    """Lock a folder, and return a descriptor whose closing unlocks it. Raises StoreError."""
    with failing(f"open folder {path}"):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise StoreError(f"{path} is in use: another process runs with these logs") from None
    return fd


def sync_folder(path: str) -> None:
    """Make the names in a folder durable. Raises StoreError."""
    with failing(f"sync folder {path}"):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def set_aside(path: str, name: str) -> str:
    """Rename a file to ``name`` and an unused number. Return the new name. Raises StoreError."""
    for number in range(1, 1000):
        other = f"{name}.lost-{number}"
        if not os.path.lexists(other):
            with failing(f"rename {path} to {other}"):
                os.rename(path, other)
            return other
    raise StoreError(f"too many files {name}.lost-*: move them elsewhere")
