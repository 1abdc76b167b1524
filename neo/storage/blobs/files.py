"""Writes and syncs of files, as the threads of a folder of contents make them."""

from __future__ import annotations

import ctypes
import errno
import os

_sync_file_range = ctypes.CDLL(None, use_errno=True).sync_file_range
_sync_file_range.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
#: Flags of :func:`sync_range`: wait for writes that began before, and begin writes.
WAIT_BEFORE, WRITE = 1, 2

#: Errors of file systems that do not know sync_file_range: there, the sync at the end writes everything.
_NO_WRITE_BACK = (errno.ENOSYS, errno.EINVAL, errno.ESPIPE, errno.EOPNOTSUPP)


def write_all(fd: int, data: bytes) -> None:
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, data[written:])


def sync_range(fd: int, offset: int, length: int, flags: int) -> None:
    """Have the kernel write a part of a file, which does not make it durable. Raise OSError of an earlier
    write."""
    if length and _sync_file_range(fd, offset, length, flags):
        code = ctypes.get_errno()
        if code not in _NO_WRITE_BACK:
            raise OSError(code, os.strerror(code))


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Make the names in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
