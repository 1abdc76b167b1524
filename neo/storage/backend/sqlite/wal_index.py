"""The end of SQLite's write-ahead log, read from the files beside the database.

Formats: https://sqlite.org/walformat.html (the header of the index, ``-shm``) and
https://sqlite.org/fileformat2.html#the_write_ahead_log (the log, ``-wal``).
"""

from __future__ import annotations

import mmap
import os
import sys

from neo.storage.backend.acknowledged import LogEnd

#: The index has two copies of its header: version at 0, number of frames at 16, salts at 32, as integers
#: of 4 bytes in the machine's byte order.
_INDEX_BYTES = 48
_INDEX_VERSION = (3007000).to_bytes(4, sys.byteorder)

_LOG_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24


class WalIndex:
    """The index of a log that a connection of this process has open.

    POSIX drops all locks of a process on a file when it closes any descriptor of that file. So call
    :meth:`close` after the connections of this process are closed.
    """

    def __init__(self, path: str) -> None:
        """Open the index of the database at ``path``. Raise OSError."""
        self._fd = os.open(f"{path}-shm", os.O_RDONLY | os.O_CLOEXEC)

    def end(self) -> LogEnd:
        """Return the last commit, in some microseconds. Thread-safe while no commit is made."""
        header = os.pread(self._fd, 2 * _INDEX_BYTES, 0)
        if header[:_INDEX_BYTES] != header[_INDEX_BYTES:] or header[:4] != _INDEX_VERSION:
            return LogEnd()
        return LogEnd(header[32:40], int.from_bytes(header[16:20], sys.byteorder))

    def close(self) -> None:
        os.close(self._fd)


def commits_behind(path: str, end: LogEnd) -> int:
    """Return the number of commits in the log of the database at ``path`` beyond its readable end.

    They have the salts of the log, so SQLite wrote them after the part that it can read: there is a
    gap. Frames of uncommitted transactions do not count. Raise OSError.
    """
    with open(f"{path}-wal", "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size <= _LOG_HEADER_BYTES:
            return 0
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as log:
            if log[16:24] != end.salts:
                return 0
            frame_bytes = _FRAME_HEADER_BYTES + int.from_bytes(log[8:12], "big")
            first = _LOG_HEADER_BYTES + end.frames * frame_bytes
            return sum(
                log[start + 8 : start + 16] == end.salts and any(log[start + 4 : start + 8])
                for start in range(first, size - frame_bytes + 1, frame_bytes)
            )
