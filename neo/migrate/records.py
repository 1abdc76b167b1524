"""Check the transaction records of a FileStorage's file, one at a time.

ZODB documents the format in ``ZODB/FileStorage/format.py``. There is no checksum, but redundancy that
must agree: the length of a transaction stands before and after it, each of its data records repeats its
tid and its position, and pointers to earlier data records name the same object.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from struct import Struct
from typing import NamedTuple

from neo.protocol.ids import u64

#: tid, length without its copy at the end, status, lengths of user, description and extension.
TRANSACTION = Struct(">8sQcHHH")
#: oid, tid, position of the previous revision, position of the transaction, 0, length of the data.
_RECORD = Struct(">8s8sQQHQ")
_NUMBER = 8
UNFINISHED = b"c"
#: Offset of the status in the header of a transaction.
STATUS_AT = 16
#: Bytes that are read together.
_CHUNK = 1 << 20
#: Bytes that a disk reads or fails to read together.
_BLOCK = 4096
# The length of a transaction below 1 TiB begins with three zeros; the status follows five bytes later.
_HEADER = re.compile(rb"\x00\x00\x00.{5}[ p]", re.DOTALL)


class Damage(Exception):
    """A transaction record is not credible; the message says why."""


class Found(NamedTuple):
    """A consistent transaction record; the next one begins at ``end``."""

    tid: bytes
    end: int
    records: int


class Records:
    """Transaction records of an open file. ``size``: the end of the file, perhaps as of its opening."""

    def __init__(self, fd: int, is_damaged: Callable[[int], bool], thorough: bool = False) -> None:
        """``is_damaged``: returns whether a position lies in a range that was given up. ``thorough``:
        read the data of all records too, because the disk may fail to give it."""
        self._fd = fd
        self._thorough = thorough
        self._is_damaged = is_damaged
        self.size = os.fstat(fd).st_size
        #: Positions of transactions with a record that a later one contradicts. Either may be damaged.
        self.suspects: set[int] = set()

    def read(self, position: int, size: int) -> bytes:
        """Return the bytes at a position: fewer at the end of the file, none beyond it. Raise Damage if
        the disk does not give them."""
        if position >= self.size:  # a damaged pointer can be greater than any offset
            return b""
        found = b""
        try:
            # A read that reaches a bad block gives what is before it.
            while more := os.pread(self._fd, size - len(found), position + len(found)):
                found += more
                if len(found) >= min(size, self.size - position):
                    break
        except OSError as e:
            at = position + len(found)
            raise Damage(f"bytes at {at} cannot be read: {e.strerror}") from None
        return found

    def _readable(self, position: int, size: int) -> bytes:
        """Return the bytes at a position, with zeros for those that the disk does not give."""
        try:
            return self.read(position, size)
        except Damage:
            pass
        found = b""
        for place in range(position, min(position + size, self.size), _BLOCK):
            length = min(_BLOCK, position + size - place, self.size - place)
            try:
                found += self.read(place, length)
            except Damage:
                found += bytes(length)
        return found

    def number(self, position: int) -> int:
        found: int = u64(self.read(position, _NUMBER))
        return found

    def transaction(self, position: int, after: bytes) -> Found:
        """Return the transaction at a position.

        Raise Damage, also if its tid is not greater than ``after``.
        """
        found = self._transaction(position, after)
        if not found.records and found.end < self.size and self._contradicts(found, after):
            raise Damage("its tid is not smaller than the tid of the next one")
        return found

    def _contradicts(self, found: Found, after: bytes) -> bool:
        """Compare the tid of a transaction without records, which is not repeated, with the next one."""
        if self.read(found.end, _NUMBER) > found.tid:
            return False
        try:
            return self._transaction(found.end, after).records > 0
        except Damage:
            return False

    def _transaction(self, position: int, after: bytes) -> Found:
        header = self.read(position, TRANSACTION.size)
        if len(header) < TRANSACTION.size:
            raise Damage("the file ends in its header")
        tid, length, status, *lengths = TRANSACTION.unpack(header)
        begin, end = position + TRANSACTION.size + sum(lengths), position + length
        if end + _NUMBER > self.size:
            raise Damage("it reaches beyond the end of the file")
        if self.number(end) != length:
            raise Damage("its length is not repeated at its end")
        if begin > end:
            raise Damage("its header is longer than the transaction")
        if status not in b" p":
            raise Damage(f"its status is {status!r}")
        if tid <= after:
            raise Damage(f"its tid 0x{tid.hex()} is not greater than the tid before")
        count = 0
        while begin < end:
            begin = self._record(begin, end, position, tid)
            count += 1
        return Found(tid, end + _NUMBER, count)

    def _record(self, position: int, end: int, transaction: int, tid: bytes) -> int:
        """Return the position of the next data record. Raise Damage."""
        if position + _RECORD.size > end:
            raise Damage(f"its data record at {position} is longer than the transaction")
        oid, serial, previous, place, zero, size = _RECORD.unpack(self.read(position, _RECORD.size))
        if serial != tid or place != transaction or zero:
            raise Damage(f"its data record at {position} belongs to another transaction")
        following: int = position + _RECORD.size + (size or _NUMBER)
        if following > end:
            raise Damage(f"its data record at {position} is longer than the transaction")
        if self._thorough and size:
            self._check_readable(oid, tid, position + _RECORD.size, size)
        if previous and not (previous < position and self._is_damaged(previous)):
            self._check_pointer(previous, position, oid)
        back = 0 if size else self.number(position + _RECORD.size)
        if back:
            if self._is_damaged(back):
                raise Damage(f"the data of object 0x{oid.hex()} is in the damage at {back}")
            self._check_pointer(back, position, oid)
        if size == _NUMBER and self._is_pointer(position, oid):
            raise Damage(f"its data record at {position} has a pointer in the place of data")
        return following

    def _check_readable(self, oid: bytes, tid: bytes, start: int, size: int) -> None:
        """Raise Damage unless the disk gives the data of a record."""
        try:
            for place in range(start, start + size, _CHUNK):
                self.read(place, min(_CHUNK, start + size - place))
        except Damage as damage:
            name = f"object 0x{oid.hex()} of transaction 0x{tid.hex()}"
            raise Damage(f"the data of {name}: {damage}") from None

    def _is_pointer(self, position: int, oid: bytes) -> bool:
        """Return whether the eight bytes of data point to an earlier record of the same object.

        No pickle begins with a zero. So a length that should be zero is damaged.
        """
        try:
            self._check_pointer(self.number(position + _RECORD.size), position, oid)
        except Damage:
            return False
        return True

    def _check_pointer(self, target: int, position: int, oid: bytes) -> None:
        """Raise Damage unless there is an earlier record of the same object."""
        header = self.read(target, _RECORD.size)
        if target < position and len(header) == _RECORD.size:
            other, serial, earlier, place, _, _ = _RECORD.unpack(header)
            believed = place < target and self.read(place, _NUMBER) == serial
            if believed and other == oid:
                return
            # An earlier revision has confirmed the oid.
            if believed and (not earlier or self._is_damaged(earlier)):
                self.suspects.add(place)
        raise Damage(
            f"its data record at {position} points to {target}, where object 0x{oid.hex()} is not"
        )

    def resume(self, position: int, after: bytes) -> tuple[int, Found] | None:
        """Return the first transaction after a damaged one; None if there is none up to the end of the
        file.
        """
        for place in self._candidates(position):
            try:
                found = self.transaction(place, after)
                if not found.records and found.end != self.size:
                    # Random bytes may look like an empty transaction; the next one must confirm it.
                    self.transaction(found.end, found.tid)
            except Damage:
                continue
            return place, found
        return None

    def _candidates(self, position: int) -> Iterator[int]:
        header = self._readable(position, TRANSACTION.size)
        if len(header) == TRANSACTION.size:
            length = TRANSACTION.unpack(header)[1]
            end = position + length
            if length >= TRANSACTION.size and end + _NUMBER <= self.size:
                if u64(self._readable(end, _NUMBER)) == length:
                    yield end + _NUMBER
        for start in range(position + 1, self.size, _CHUNK):
            chunk = self._readable(start + _NUMBER, _CHUNK + STATUS_AT)
            match = _HEADER.search(chunk)
            while match is not None and match.start() < _CHUNK:
                yield start + match.start()
                match = _HEADER.search(chunk, match.start() + 1)
