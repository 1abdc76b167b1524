"""Calls of the operating system that folders of contents make, with errors that say what to do."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

from blake3 import blake3

from neo.protocol.blobs import Content
from neo.storage.blobs.disk import ContentMismatch

#: File systems of this machine, by their magic numbers in statfs(2). Their ``sync_fs`` writes all data
#: and names, and the disk's cache: ext4, XFS, Btrfs. Others may do less, so that each file is synced.
_WHOLE_SYNC = (0xEF53, 0x58465342, 0x9123683E)
#: Since this kernel syncfs(2) returns all errors: of data (5.8), and of the file system itself (5.17).
_KERNEL_MIN = (5, 17)
#: Bytes of all files of this machine that may be unwritten when a file system is synced as a whole. It
#: bounds how long contents wait for what other programs wrote, for example a copy: 0.3 s with 100 MB/s.
DIRTY_MAX = 32 << 20

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

_libc = ctypes.CDLL(None, use_errno=True)
_syncfs = _libc.syncfs
_syncfs.argtypes = (ctypes.c_int,)
_fstatfs = _libc.fstatfs
_fstatfs.argtypes = (ctypes.c_int, ctypes.c_char_p)


class SharedSync:
    """Syncs all that is new in the file system of a folder with one call, which costs as much as the sync
    of one file, or of two. Used by one thread."""

    def __init__(self, folder: Path) -> None:
        # Open from now on: the kernel returns the errors since then.
        self._fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._usable = _kernel() >= _KERNEL_MIN and _file_system(self._fd) in _WHOLE_SYNC

    def sync(self) -> bool:
        """Return whether all that was written before is durable, data and names. False: sync each file,
        to learn which one cannot be written, or because much else is unwritten."""
        return self._usable and _dirty() <= DIRTY_MAX and not _syncfs(self._fd)

    def close(self) -> None:
        os.close(self._fd)


def _kernel() -> tuple[int, ...]:
    numbers = os.uname().release.split("-")[0].split(".")
    return tuple(int(number) for number in numbers[:2] if number.isdigit())


def _file_system(fd: int) -> int:
    """Return the magic number of the file system of a file; 0 if it is not known."""
    found = ctypes.create_string_buffer(512)  # a struct statfs has at most 120 bytes
    if _fstatfs(fd, found):
        return 0
    return ctypes.c_long.from_buffer(found).value  # its first field


def _dirty() -> int:
    """Return the bytes that this machine has not written; above DIRTY_MAX if it does not tell."""
    try:
        with open("/proc/meminfo", "rb", buffering=0) as file:
            lines = dict(line.split(b":") for line in file.read(4096).splitlines() if b":" in line)
        return sum(int(lines[name].split()[0]) << 10 for name in (b"Dirty", b"Writeback"))
    except (OSError, KeyError, ValueError):
        return DIRTY_MAX + 1


def write_all(fd: int, data: bytes) -> None:
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, data[written:])


def sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def compare(name: str, size: int, found: blake3, content: Content) -> None:
    """Raise ContentMismatch unless bytes are this content. ``size``, ``found``: of the bytes."""
    if size != content.size:
        raise ContentMismatch(f"{name} has {size} bytes, and content {content} has another length")
    if found.digest() != content.checksum:
        raise ContentMismatch(f"{name} does not match its checksum {content.checksum.hex()}")


def explained(error: OSError | ContentMismatch) -> OSError | ContentMismatch:
    """Return an error that says what to do."""
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        where = f" ({error.filename})" if error.filename else ""
        return OSError(
            error.errno,
            f"no space is left for contents of blobs{where}: make room on the disk of blob_dir",
        )
    return error
