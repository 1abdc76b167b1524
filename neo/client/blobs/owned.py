"""Folders that belong to one process, and are removed when it ends, however it ends.

The process holds a lock on the file ``.owner`` of its folder, and has its files in ``tmp`` there. The
kernel releases the lock with the process; so whoever can take it finds a folder without a living owner,
and removes it. The child of a fork closes the descriptor, which does not release the parent's lock, and
touches nothing in the folder.
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
TEMPORARY = "tmp"
#: A folder without this file is being made. If it is empty for so long, its process was killed then.
MAKING_SECONDS = 3600.0


class OwnedFolder:
    """A folder of this process. ``fd``: of the file with the lock. ``kept``: the folder has other files,
    and only ``tmp`` is removed."""

    def __init__(self, path: Path, fd: int, kept: bool) -> None:
        self._pid = os.getpid()
        self._kept = kept
        self.path = path
        self.temporary = path / TEMPORARY
        self.temporary.mkdir(mode=0o700, exist_ok=True)
        self._fd: int | None = fd

    @classmethod
    def new(cls, parent: str, prefix: str) -> OwnedFolder:
        """Make a folder in ``parent``. Raise OSError."""
        while True:
            path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            with suppress(BlockingIOError):  # taken for abandoned meanwhile
                if (fd := _locked(path)) is not None:
                    return cls(path, fd, kept=False)

    @classmethod
    def taken(cls, path: Path) -> OwnedFolder | None:
        """Take over a folder that one process at a time owns, and remove what the last owner left in
        ``tmp``. Return None if a living process owns it. Raise OSError."""
        try:
            fd = _locked(path)
        except BlockingIOError:
            return None
        assert fd is not None, "nobody removes such a folder"
        shutil.rmtree(path / TEMPORARY, ignore_errors=True)
        return cls(path, fd, kept=True)

    def remove(self) -> None:
        """Remove the folder, and give up the lock. In the child of a fork, only forget the folder. If a
        new folder was made under the same name since, it stays. Idempotent."""
        fd, self._fd = self._fd, None
        if fd is not None:
            if os.getpid() == self._pid and os.fstat(fd).st_nlink:
                shutil.rmtree(self.temporary if self._kept else self.path, ignore_errors=True)
            os.close(fd)


def _locked(path: Path) -> int | None:
    """Return the descriptor of the locked file; None if another process removed the folder meanwhile.
    Raise BlockingIOError if another process has the lock, OSError."""
    try:
        fd = os.open(path / OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(fd)
        raise
    if os.fstat(fd).st_nlink:
        return fd
    os.close(fd)  # removed before it was locked
    return None


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
