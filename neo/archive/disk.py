"""Files that are durable before they get their name."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: Ends the names of files that are not complete.
PART = ".part"
#: Bytes of a file that are copied or read together.
STEP_BYTES = 1 << 20
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name the file, and what to do, in an OSError."""
    try:
        yield
    except OSError as e:
        what = f"cannot be written: {os.strerror(e.errno or errno.EIO)}"
        if e.errno in _NO_ROOM:
            what = "no space is left for the archive: make room on its disk, and start the copy again"
        raise OSError(e.errno, what, str(path)) from e


class PartFile:
    """A file that is being written. It gets its name when it is complete and synced. After an OSError,
    and after ``drop``, nothing is left of it: its room is needed."""

    def __init__(self, target: Path, writer: str = "") -> None:
        """Replace what a crash left. ``writer``: tells apart those that write the same file."""
        self.target = target
        self.size = 0
        self._part = target.with_name(f"{target.name}{writer}{PART}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with writing(self._part):
            self._fd = os.open(self._part, flags, 0o600)

    def write(self, data: bytes | bytearray) -> None:
        """Append data. Raise OSError."""
        with self._dropped_if_it_fails():
            written = os.write(self._fd, data)
            while written < len(data):
                written += os.write(self._fd, memoryview(data)[written:])
        self.size += written

    def keep(self) -> None:
        """Sync the file and give it its name. Raise OSError. ``sync_folder`` makes the name durable."""
        with self._dropped_if_it_fails():
            os.fsync(self._fd)
            os.replace(self._part, self.target)
        self._close()

    def drop(self) -> None:
        """Delete the file, if it is not kept yet. Idempotent."""
        if self._fd >= 0:
            self._close()
            with suppress(OSError):
                os.unlink(self._part)

    def _close(self) -> None:
        with suppress(OSError):  # what it could say, the sync has said
            os.close(self._fd)
        self._fd = -1

    @contextmanager
    def _dropped_if_it_fails(self) -> Iterator[None]:
        try:
            with writing(self._part):
                yield
        except OSError:
            self.drop()
            raise


def make_folder(path: Path) -> None:
    """Make a folder and those above it, durably. Raise OSError."""
    if not path.is_dir():
        make_folder(path.parent)
        with writing(path):
            path.mkdir(0o700, exist_ok=True)
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable. Raise OSError."""
    with writing(path):
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def write_file(path: Path, data: bytes, writer: str = "") -> None:
    """Write a small file, durably: there is all of it or nothing. ``writer``: tells apart those that
    write the same file. Raise OSError."""
    file = PartFile(path, writer)
    file.write(data)
    file.keep()
    sync_folder(path.parent)


def read_pieces(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file. Raise OSError, which names it."""
    with open(path, "rb", buffering=0) as file:
        while data := file.read(STEP_BYTES):
            yield data
