"""A locked file, which says to other processes that a file or a folder is in use.

The kernel keeps a lock as long as a process has the file open, and the child of a fork has it open, too.
A child that outlives its parent would keep the lock, although it never uses what is locked. So each child
closes its copies, which leaves the parent's lock alone.
"""

from __future__ import annotations

import fcntl
import os
import weakref
from pathlib import Path


class LockFile:
    """A file that this process has locked. Raise BlockingIOError if another one has, OSError."""

    def __init__(self, path: str | Path, mode: int = 0o666) -> None:
        self.path = path
        self._fd: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            self.close()
            raise
        _locked.add(self)

    def write(self, text: str) -> None:
        """Replace the content of the file. Raise OSError."""
        assert self._fd is not None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, text.encode(), 0)

    def close(self) -> None:
        """Release the lock. Idempotent."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


_locked: weakref.WeakSet[LockFile] = weakref.WeakSet()


def _forked() -> None:
    for file in list(_locked):
        file.close()


os.register_at_fork(after_in_child=_forked)
