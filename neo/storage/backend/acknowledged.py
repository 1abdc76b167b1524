"""How far a storage node has acknowledged, kept outside of its database.

Theory of operation
-------------------
A database that went back in time (an old copy, a lost or damaged end of its log) looks like any other.
So the node keeps a :class:`Position` in a file outside of it, a :class:`Mark`, and refuses to open a
database that has not reached it.

The row ``_acknowledged`` of ``config`` has the *lineage*, a random id of the database, and the
*generation*, which grows and never goes back: not when transactions are deleted either. SQLite's is
incremented by the first commit after each checkpoint, that of MariaDB by a group commit each 10 ms.

A position is written after the sync that it speaks of. So if it is found, that sync was done; and if it
is older than the last sync, it proves less. It never refuses a database that is complete
(docs/decisions/031-acknowledged-position.md).
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable
from typing import NamedTuple
from zlib import crc32

from neo.storage.backend.api import WentBack
from neo.storage.backend.sqlite.wal_index import LogEnd

logger = logging.getLogger("neo.storage")

#: The row of ``config``.
ROW = "_acknowledged"

#: Returns that many random bytes.
RandomBytes = Callable[[int], bytes]

_LINEAGE_BYTES = 8
_PREFIX = "neo-acknowledged 1"
_FIELDS = 6


class Position(NamedTuple):
    """A moment in the life of a database. ``log``: the end of SQLite's log at that moment."""

    lineage: str
    generation: int
    log: LogEnd = LogEnd()

    def row(self) -> str:
        return f"{self.lineage}:{self.generation}"

    def line(self) -> bytes:
        """Return the content of a mark: one line of constant length."""
        text = (
            f"{_PREFIX} {self.lineage} {self.generation:016x} {self.log.salts.hex()}"
            f" {self.log.frames:08x}"
        )
        return f"{text} {crc32(text.encode()):08x}\n".encode()


def from_row(row: str | None) -> Position:
    """Return the position of a row; without one, that of a database of an earlier version."""
    if row is None:
        return Position("", 0)
    lineage, generation = row.split(":")
    return Position(lineage, int(generation))


def from_line(line: bytes) -> Position | None:
    """Return the position of a mark; None if it is damaged."""
    text, _, checksum = line.decode("ascii", "replace").rstrip("\n").rpartition(" ")
    fields = text.split(" ")
    if checksum != f"{crc32(text.encode()):08x}" or len(fields) != _FIELDS:
        return None
    if " ".join(fields[:2]) != _PREFIX:
        return None
    lineage, generation, salts, frames = fields[2:]
    return Position(lineage, int(generation, 16), LogEnd(bytes.fromhex(salts), int(frames, 16)))


def next_position(known: Position | None, random: RandomBytes = os.urandom) -> Position:
    """Return the position of a database that is opened; it was at ``known``, if it is not new.

    ``random``: the source of a new lineage.
    """
    if known is None or not known.lineage:
        return Position(random(_LINEAGE_BYTES).hex(), 1)
    return Position(known.lineage, known.generation + 1)


def compare(
    found: Position | None,
    promised: Position | None,
    remembered: Position | None,
    mark: str,
    name: str,
    advice: str,
) -> None:
    """Raise WentBack if a database lacks what was acknowledged.

    ``found``: its position, None if it is empty. ``promised``: by the file ``mark``. ``remembered``: by
    this process.
    """
    if found and promised and found.lineage and found.lineage != promised.lineage:
        # Perhaps of an empty one that was made while this one was not mounted.
        logger.warning(
            "%s is of another database: it cannot be told whether %s has all that was acknowledged",
            *(mark, name),
        )
        promised = None
    if found is None:
        # A new node with an id of its own, which takes nobody's place; but not within a process.
        promised, found = None, Position("", 0)
    for position in (promised, remembered):
        if position is not None:
            _check(found, position, name, advice)


def _check(found: Position, promised: Position, name: str, advice: str) -> None:
    """Raise WentBack if a database that is at ``found`` lacks what ``promised`` speaks of.

    ``name``: of the database. ``advice``: what to do.
    """
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


class Acknowledged:
    """What a process acknowledged so far. It outlives the backend, which is made again after a failure
    of the database. ``position``: None before the first backend is open."""

    def __init__(self) -> None:
        self.position: Position | None = None


class Mark:
    """The file with the position."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd: int | None = None

    def read(self, name: str) -> Position | None:
        """Return the position of the database ``name``; None, with a warning unless there is no file, if
        nothing is known. Raises OSError."""
        try:
            with open(self.path, "rb") as file:
                line = file.read()
        except FileNotFoundError:
            return None
        if (position := from_line(line)) is None:
            logger.warning(
                "%s is damaged: it cannot be told whether %s has all that was acknowledged; a new one is"
                " made",
                *(self.path, name),
            )
        return position

    def open(self, lock: bool = False) -> None:
        """Open or create the file. The caller syncs the folder. Raises OSError; BlockingIOError if it
        shall be locked, and another process has the lock."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if lock:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise OSError(error.errno, error.strerror, self.path) from error
        self._fd = fd

    def write(self, position: Position, durable: bool = False) -> None:
        """Replace the position: within one sector, which a disk writes whole or not at all. Not durable,
        it survives the process, and reaches the disk when the system writes it. Raises OSError."""
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
