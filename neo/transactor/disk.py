"""File operations of both logs. No other module but :mod:`neo.transactor.store` touches their files."""

from __future__ import annotations

import errno
import fcntl
import os


class StoreError(Exception):
    """The logs cannot be used; the message names the file, the failure and the remedy."""


def read_file(path: str) -> bytes:
    """Return the content of a file. Raises StoreError."""
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError as e:
        raise StoreError(f"cannot read {path}: {e.strerror}") from None


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
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as e:
        raise StoreError(f"cannot open folder {path}: {e.strerror}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise StoreError(f"{path} is in use: another process runs with these logs") from None
    return fd


def sync_folder(path: str) -> None:
    """Make the names in a folder durable. Raises StoreError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as e:
        raise StoreError(f"cannot sync folder {path}: {e.strerror}") from None


def set_aside(path: str) -> str:
    """Rename a file or folder to an unused name beside it. Return the new name. Raises StoreError."""
    for number in range(1, 1000):
        other = f"{path}.lost-{number}"
        if not os.path.lexists(other):
            try:
                os.rename(path, other)
            except OSError as e:
                raise StoreError(f"cannot rename {path} to {other}: {e.strerror}") from None
            return other
    raise StoreError(f"too many files {path}.lost-*: move them elsewhere")
