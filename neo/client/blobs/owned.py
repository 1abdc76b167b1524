"""Folders that belong to one process, and are removed when it ends, however it ends.

The process holds a lock on the file ``.owner`` of its folder. The kernel releases the lock with the
process; so whoever can take it finds a folder without a living owner, and removes it. The child of a
fork closes the descriptor, which does not release the parent's lock, and touches nothing in the folder.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

OWNER = ".owner"
#: A folder without this file is being made. If it is empty for so long, its process was killed then.
MAKING_SECONDS = 3600.0


class OwnedFolder:
    """A new folder of this process, in ``parent``."""

    def __init__(self, parent: str, prefix: str) -> None:
        self._pid = os.getpid()
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            try:
                fd = os.open(self.path / OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                continue  # taken for abandoned meanwhile
            fcntl.flock(fd, fcntl.LOCK_EX)
            if os.fstat(fd).st_nlink:
                break
            os.close(fd)  # removed before it was locked
        self._fd: int | None = fd

    def remove(self) -> None:
        """Remove the folder, and give up the lock. In a child of a fork: only forget it. Idempotent."""
        fd, self._fd = self._fd, None
        if fd is not None:
            if os.getpid() == self._pid:
                shutil.rmtree(self.path, ignore_errors=True)
            os.close(fd)


def remove_abandoned(parent: str, prefix: str) -> None:
    """Remove the folders of this user whose processes have ended. Raise OSError."""
    with os.scandir(parent) as entries:
        found = [entry for entry in entries if entry.name.startswith(prefix)]
    for entry in found:
        with suppress(FileNotFoundError):
            status = entry.stat(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False) and status.st_uid == os.geteuid():
                _remove_abandoned(entry.path, status.st_mtime)


def _remove_abandoned(path: str, changed: float) -> None:
    try:
        fd = os.open(os.path.join(path, OWNER), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        if changed < time.time() - MAKING_SECONDS:
            with suppress(OSError):  # it is not empty: not one of ours
                os.rmdir(path)
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    except BlockingIOError:
        pass  # its process lives
    finally:
        os.close(fd)
