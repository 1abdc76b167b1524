"""The position up to which a storage node acknowledged writes, kept outside of its database.

Theory of operation
-------------------
A database that went back in time (an old copy, a lost or damaged end of its log) is consistent, so it
does not show the loss. The node therefore keeps a :class:`Position` in a file outside of it, the
:class:`PositionFile`, and refuses to open a database that has not reached that position.

The row ``_acknowledged`` of ``config`` has the *lineage*, a random id of the database, and the
*generation*. The generation never decreases, not even when transactions are deleted. SQLite increments
it in the first commit after a checkpoint, MariaDB in one group commit per 10 ms.

A position is written after the sync to which it refers. So a position that is found was reached; one
that is older than the last sync proves less. A complete database is never refused
(docs/decisions/031-acknowledged-position.md).
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

from neo.storage.backend.api import WentBack

logger = logging.getLogger("neo.storage")

#: The row of ``config``.
ROW = "_acknowledged"

#: Return a number of random bytes.
RandomBytes = Callable[[int], bytes]

_LINEAGE_BYTES = 8
_PREFIX = "neo-acknowledged 1"
_FIELDS = 6


class LogEnd(NamedTuple):
    """The last commit of SQLite's write-ahead log. ``salts``: change each time the log starts over.

    ``frames``: their number including that commit; 0 if the log is empty or cannot be read.
    """

    salts: bytes = bytes(8)
    frames: int = 0


class Position(NamedTuple):
    """A point in the history of a database. ``log``: the end of SQLite's log at that point."""

    lineage: str
    generation: int
    log: LogEnd = LogEnd()

    def row(self) -> str:
        return f"{self.lineage}:{self.generation}"

    def line(self) -> bytes:
        """Return the content of a position file: one line of constant length."""
        text = (
            f"{_PREFIX} {self.lineage} {self.generation:016x} {self.log.salts.hex()}"
            f" {self.log.frames:08x}"
        )
        return f"{text} {crc32(text.encode()):08x}\n".encode()


def from_row(row: str | None) -> Position:
    """Return the position of a row. A database of an earlier version has no row."""
    if row is None:
        return Position("", 0)
    lineage, generation = row.split(":")
    return Position(lineage, int(generation))


def from_line(line: bytes) -> Position | None:
    """Return the position in a file; None if it is damaged."""
    text, _, checksum = line.decode("ascii", "replace").rstrip("\n").rpartition(" ")
    fields = text.split(" ")
    if checksum != f"{crc32(text.encode()):08x}" or len(fields) != _FIELDS:
        return None
    if " ".join(fields[:2]) != _PREFIX:
        return None
    lineage, generation, salts, frames = fields[2:]
    return Position(lineage, int(generation, 16), LogEnd(bytes.fromhex(salts), int(frames, 16)))


def next_position(known: Position | None, random: RandomBytes = os.urandom) -> Position:
    """Return the position after ``known``, or the first one of a new lineage from ``random``."""
    if known is None or not known.lineage:
        return Position(random(_LINEAGE_BYTES).hex(), 1)
    return Position(known.lineage, known.generation + 1)


def compare(
    found: Position | None,
    promised: Position | None,
    remembered: Position | None,
    file: str,
    name: str,
    advice: str,
) -> None:
    """Raise WentBack if a database lacks acknowledged transactions.

    ``found``: its position; None if it is empty. ``promised``: the position in ``file``.
    ``remembered``: the position that this process acknowledged.
    """
    if found and promised and found.lineage and found.lineage != promised.lineage:
        # Perhaps of an empty database that was created while this one was not mounted.
        logger.warning(
            "%s belongs to another database: a loss of acknowledged transactions in %s is not seen",
            file,
            name,
        )
        promised = None
    if found is None:
        # An empty database becomes a new node with a new id, except within the same process.
        promised, found = None, Position("", 0)
    for position in (promised, remembered):
        if position is not None:
            _check(found, position, name, advice)


def _check(found: Position, promised: Position, name: str, advice: str) -> None:
    """Raise WentBack if the database ``name`` at ``found`` is behind ``promised``."""
    if found.lineage and found.lineage != promised.lineage:
        what = "it is not the database that this node used last"
    elif not found.lineage or found.generation < promised.generation:
        what = (
            "it is an older copy, or its write-ahead log is lost or damaged: it is at generation"
            f" {found.generation}, and {promised.generation} was acknowledged"
        )
    elif (
        found.generation == promised.generation
        and found.log.salts == promised.log.salts
        and found.log.frames < promised.log.frames
    ):
        what = (
            f"its write-ahead log is damaged or cut: {found.log.frames} of its frames can be read, and"
            f" {promised.log.frames} were acknowledged"
        )
    else:
        return
    raise WentBack(
        f"{name} lacks transactions that this node acknowledged: {what}. It is not served. {advice}"
    )


@dataclass
class Acknowledged:
    """The position that this process acknowledged; None before the first backend is open.

    It outlives the backend, which is replaced after a failure of the database.
    """

    position: Position | None = None


class PositionFile:
    """The file that has the position."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd: int | None = None

    def read(self, name: str) -> Position | None:
        """Return the position of the database ``name``, or None without a file. Raise OSError.

        Log a warning and return None if the file is damaged.
        """
        try:
            with open(self.path, "rb") as file:
                line = file.read()
        except FileNotFoundError:
            return None
        if (position := from_line(line)) is None:
            logger.warning(
                "%s is damaged, a new one is made: a loss of acknowledged transactions in %s is not seen",
                self.path,
                name,
            )
        return position

    def open(self, lock: bool = False) -> None:
        """Open or create the file; the caller syncs the folder. Raise OSError.

        ``lock``: lock it, and raise BlockingIOError if another process has the lock.
        """
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if lock:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise OSError(error.errno, error.strerror, self.path) from error
        self._fd = fd

    def write(self, position: Position, durable: bool = False) -> None:
        """Replace the position. It fits in one sector, which a disk writes atomically. Raise OSError.

        Without ``durable`` the position survives the process, and a power cut only by chance.
        """
        assert self._fd is not None
        try:
            os.pwrite(self._fd, position.line(), 0)
            if durable:
                os.fsync(self._fd)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.path) from error

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def sync_folder(path: str) -> None:
    """Make the name of a file durable. Raise OSError."""
    fd = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
