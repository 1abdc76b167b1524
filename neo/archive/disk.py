"""The file system that has an archive, and files that are durable before they get their name."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol

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


class Output(Protocol):
    """A file that is being written. Methods raise OSError."""

    def write(self, data: bytes | bytearray) -> None:
        """Append all of the data."""

    def sync(self) -> None:
        """Make the data durable."""

    def close(self) -> None: ...


class Files(Protocol):
    """The file system that has the archives. Methods raise OSError."""

    def create(self, path: Path) -> Output:
        """Create a file, or empty the one that is there."""

    def open(self, path: Path) -> BinaryIO:
        """Open a file to read it."""

    def exists(self, path: Path) -> bool: ...

    def folders(self, path: Path) -> list[str]:
        """Return the names of the folders in a folder, none if it is missing."""

    def replace(self, path: Path, target: Path) -> None:
        """Give a file another name, and remove the file that has it."""

    def unlink(self, path: Path) -> None:
        """Delete a file. Raise FileNotFoundError if there is none."""

    def make_folder(self, path: Path) -> None:
        """Make a folder, if it is missing."""

    def remove_folder(self, path: Path) -> None:
        """Delete a folder with all that is in it. Others may do so at the same time."""

    def sync_folder(self, path: Path) -> None:
        """Make the names in a folder durable."""


class _OsOutput:
    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o600)

    def write(self, data: bytes | bytearray) -> None:
        written = os.write(self._fd, data)
        while written < len(data):
            written += os.write(self._fd, memoryview(data)[written:])

    def sync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


class OsFiles:
    """Implements Files: those of the operating system."""

    def create(self, path: Path) -> Output:
        return _OsOutput(path)

    def open(self, path: Path) -> BinaryIO:
        return path.open("rb")

    def exists(self, path: Path) -> bool:
        return path.exists()

    def folders(self, path: Path) -> list[str]:
        return [each.name for each in path.iterdir() if each.is_dir()] if path.is_dir() else []

    def replace(self, path: Path, target: Path) -> None:
        os.replace(path, target)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def make_folder(self, path: Path) -> None:
        path.mkdir(0o700, exist_ok=True)

    def remove_folder(self, path: Path) -> None:
        shutil.rmtree(path, onerror=_gone)

    def sync_folder(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _gone(function: object, path: str, failure: tuple[type, BaseException, object]) -> None:
    """Ignore what another node removed at the same time."""
    if not isinstance(failure[1], FileNotFoundError):
        raise failure[1]


OS_FILES = OsFiles()


class PartFile:
    """A file that is being written. It gets its name when it is complete and synced. After an OSError,
    and after ``drop``, nothing is left of it: its room is needed."""

    def __init__(self, files: Files, target: Path, writer: str = "") -> None:
        """Replace what a crash left. ``writer``: tells apart those that write the same file."""
        self.target = target
        self.size = 0
        self._files = files
        self._part = target.with_name(f"{target.name}{writer}{PART}")
        with writing(self._part):
            self._output: Output | None = files.create(self._part)

    def write(self, data: bytes | bytearray) -> None:
        """Append data. Raise OSError."""
        assert self._output is not None, self._part
        with self._dropped_if_it_fails():
            self._output.write(data)
        self.size += len(data)

    def keep(self) -> None:
        """Sync the file and give it its name. Raise OSError. ``sync_folder`` makes the name durable."""
        assert self._output is not None, self._part
        with self._dropped_if_it_fails():
            self._output.sync()
            self._files.replace(self._part, self.target)
        self._close(self._output)

    def drop(self) -> None:
        """Delete the file, if it is not kept yet. Idempotent."""
        if self._output is not None:
            self._close(self._output)
            with suppress(OSError):
                self._files.unlink(self._part)

    def _close(self, output: Output) -> None:
        with suppress(OSError):  # what it could say, the sync has said
            output.close()
        self._output = None

    @contextmanager
    def _dropped_if_it_fails(self) -> Iterator[None]:
        try:
            with writing(self._part):
                yield
        except OSError:
            self.drop()
            raise


def make_folder(files: Files, path: Path) -> None:
    """Make a folder and those above it, durably. Raise OSError.

    The last folder that exists may be one that an interrupted call has made, and has not synced: so its
    name is synced now. Who may not read the folder above it has not made it.
    """
    if files.exists(path):
        with suppress(PermissionError):
            sync_folder(files, path.parent)
        return
    make_folder(files, path.parent)
    with writing(path):
        files.make_folder(path)
    sync_folder(files, path.parent)


def sync_folder(files: Files, path: Path) -> None:
    """Make the names in a folder durable. Raise OSError."""
    with writing(path):
        files.sync_folder(path)


def write_file(files: Files, path: Path, data: bytes, writer: str = "") -> None:
    """Write a small file, durably: there is all of it or nothing. ``writer``: tells apart those that
    write the same file. Raise OSError."""
    file = PartFile(files, path, writer)
    file.write(data)
    file.keep()
    sync_folder(files, path.parent)


def read_pieces(files: Files, path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file. Raise OSError, which names it."""
    with files.open(path) as file:
        while data := file.read(STEP_BYTES):
            yield data
