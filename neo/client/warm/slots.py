"""The folder of kept caches. Each process writes a file of its own, its *slot*.

A process holds the lock of its slot, which the kernel releases with the process. Files are replaced by
renaming, so whoever reads one needs no lock: a process whose slot has no usable file begins with the
newest one of the others.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from neo.client.warm.snapshot import UnusableError, read_anchor

#: Processes that keep a cache in one folder. Bound of the disk that is used: as many caches.
SLOTS = 16
#: Files that a process tries when it begins: each is read whole and compared with the cluster.
TRIED = 3


class Slot:
    """The file of this process. Close it with :meth:`release`."""

    def __init__(self, folder: Path, cluster: str, number: int, fd: int) -> None:
        self._folder = folder
        self._cluster = cluster
        self._number = number
        self._fd: int | None = fd
        self.path = _path(folder, cluster, number)

    def candidates(self) -> list[Path]:
        """Return files to begin with, the best one first: the own one, then those with the latest
        transactions."""
        anchors = []
        for number in range(SLOTS):
            path = _path(self._folder, self._cluster, number)
            with suppress(UnusableError, OSError), open(path, "rb") as file:
                anchor = read_anchor(file, self._cluster)
                anchors.append((number == self._number, anchor.tid, path))
        return [path for _, _, path in sorted(anchors, reverse=True)[:TRIED]]

    def replace(self, write: Callable[[BinaryIO], bool]) -> None:
        """Replace the file. ``write`` returns whether to keep what it wrote. Raise OSError; then the file
        is what it was."""
        new = self.path.with_suffix(".new")
        try:
            # Without a buffer, of which the child of a fork would write its copy.
            with open(new, "wb", buffering=0, opener=_opener) as file:
                keep = write(file)
            if keep:
                os.replace(new, self.path)
        finally:
            with suppress(OSError):
                new.unlink(missing_ok=True)

    def release(self) -> None:
        """Give up the slot. In the child of a fork, the parent keeps it. Idempotent."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def take_slot(folder: str, cluster: str) -> Slot | None:
    """Return the first free slot, None if all are taken. Make the folder if it is missing. Raise
    OSError."""
    root = Path(os.path.abspath(folder))
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number in range(SLOTS):
        fd = os.open(_path(root, cluster, number).with_suffix(".lock"), _LOCK_FLAGS, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
        except BaseException:
            os.close(fd)
            raise
        else:
            return Slot(root, cluster, number, fd)
    return None


_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


def _path(folder: Path, cluster: str, number: int) -> Path:
    return folder / f"{quote(cluster, safe='')}-{number}.cache"


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
