"""The position file of a SQLite database: read before it is opened, written after each sync.

Invariant: commits after a checkpoint have a greater generation than those that it copied into the
database. So a database without its log, or with an older log, is behind the file if the log had an
acknowledged commit. Within a generation, the frames of the log are counted. The last commit before the
database is closed begins a generation.

The end of the log is read from the files beside the database: https://sqlite.org/walformat.html (the
header of the index, ``-shm``) and https://sqlite.org/fileformat2.html#the_write_ahead_log (``-wal``).
"""

from __future__ import annotations

import logging
import mmap
import os
import sqlite3
import sys
from pathlib import Path

from neo.storage.backend.acknowledged import (
    ROW,
    Acknowledged,
    LogEnd,
    Position,
    PositionFile,
    RandomBytes,
    compare,
    from_row,
    next_position,
)

logger = logging.getLogger("neo.storage")

#: Suffix of the name of the database.
SUFFIX = ".acknowledged"

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


class SQLitePosition:
    """Advances the position. ``acknowledged``: of this process. ``random``: the source of lineages.

    Call methods on the loop's thread, unless they say more.
    """

    def __init__(
        self, path: str, name: str, acknowledged: Acknowledged, random: RandomBytes = os.urandom
    ) -> None:
        self._path = path
        self._name = name
        self._acknowledged = acknowledged
        self._random = random
        self._file = PositionFile(path + SUFFIX)
        self._index: WalIndex | None = None
        self._position = Position("", 0)
        #: Whether a checkpoint has copied commits of this generation.
        self._copied = False

    # -- opening ----------------------------------------------------------------------------------

    def examine(self, reset: bool) -> None:
        """Compare the database with the file; change neither. ``reset``: it is erased next.

        Raise WentBack, sqlite3.Error, OSError.
        """
        promised = self._file.read(self._name)
        found = None
        try:
            if os.path.exists(self._path):
                found = self._find(promised)
        except sqlite3.DatabaseError:
            if not reset:
                raise
        if not reset:
            self._compare(found, promised)
        self._position = next_position(None if reset else found, self._random)

    def _find(self, promised: Position | None) -> Position | None:
        """Return the position of the database; None if it is empty. Raise WentBack if a damaged log
        explains an error of SQLite."""
        # On close, a connection that may write would copy the rest of a damaged log over newer pages and
        # delete the log. Only rollback journals, which other programs write, need such a connection.
        mode = "rw" if os.path.exists(f"{self._path}-journal") else "ro"
        uri = f"{Path(self._path).as_uri()}?mode={mode}"
        db = sqlite3.connect(uri, uri=True, timeout=5, isolation_level=None)
        index = None
        try:
            found, failure = Position("", 0), None
            try:
                if not db.execute("SELECT 1 FROM sqlite_master WHERE name='config'").fetchall():
                    return None
                rows = db.execute("SELECT value FROM config WHERE name=?", (ROW,)).fetchall()
                found = from_row(rows[0][0] if rows else None)
            except sqlite3.DatabaseError as error:
                failure = error
            if os.path.exists(f"{self._path}-shm"):
                index = WalIndex(self._path)
                found = found._replace(log=index.end())
            if failure is not None:
                # The rest of a log that was already copied into the database hides newer pages.
                if promised is not None and found.log.salts == promised.log.salts:
                    # Raises WentBack if frames are missing.
                    self._compare(promised._replace(log=found.log), promised)
                raise failure
            return found
        finally:
            db.close()
            if index is not None:
                index.close()

    def _compare(self, found: Position | None, promised: Position | None) -> None:
        advice = (
            "If replicas have its cells: start the node with an empty database, as 'A database is lost'"
            " in docs/maintenance.md says. If not: put back the right files, or restore all nodes from"
            " one backup. To serve what is here, and lose the rest: stop this process, remove"
            f" {self._file.path}, and start it again"
        )
        remembered = self._acknowledged.position
        compare(found, promised, remembered, self._file.path, self._name, advice)
        if found and found.log.frames and (behind := _commits_behind(self._path, found.log)):
            logger.warning(
                "%s: %s commits at the end of the write-ahead log are dropped, because those before"
                " them cannot be read. A power cut may damage commits that were not acknowledged. If"
                " there was none, the disk damaged the log: run 'neoctl check'",
                self._name,
                behind,
            )

    def first_row(self) -> str:
        """Return the row for the transaction that creates tables."""
        return self._position.row()

    def opened(self) -> None:
        """Open the file. All writes are in the database, synced. Raise OSError."""
        self._index = WalIndex(self._path)
        self._file.open()
        self._copied = True
        self._write(self._position, durable=True)

    # -- service ----------------------------------------------------------------------------------

    def next_row(self, last: bool) -> str | None:
        """Return the row for the transaction that is committed now, or None.

        ``last``: the database is closed next, which leaves no log whose frames could be counted.
        """
        if not self._copied and not last:
            return None
        self._copied = False
        self._position = self._position._replace(generation=self._position.generation + 1)
        return self._position.row()

    def copied(self) -> None:
        """Note that a checkpoint was made."""
        self._copied = True

    def synced(self, durable: bool = False) -> None:
        """Advance to the last commit, which is durable. Thread-safe. Raise OSError.

        No commit may be made meanwhile.
        """
        assert self._index is not None
        lineage, generation, _ = self._position
        self._write(Position(lineage, generation, self._index.end()), durable)

    def closed(self) -> None:
        """Write the last position. All is in the database, synced; the log is empty. Raise OSError."""
        self._write(self._position, durable=True)

    def _write(self, position: Position, durable: bool) -> None:
        self._file.write(position, durable)
        self._acknowledged.position = position

    def close(self) -> None:
        """Close the files. Call it after the connections of this process are closed."""
        self._file.close()
        if self._index is not None:
            self._index.close()
            self._index = None


def _commits_behind(path: str, end: LogEnd) -> int:
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
