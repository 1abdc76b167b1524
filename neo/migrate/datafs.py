"""Read the file of a FileStorage on both sides of damage.

ZODB's iterator ends at damage as it ends at the end of the file, and the index hides both. DataFile
reads all headers once when it is opened. Bytes that belong to no credible transaction are a *gap*.

The file may belong to an application that is still writing. A transaction that is being written when
the file is opened is not copied. A pack replaces the file; the old one stays open here.

A FileStorage has no checksums. So four kinds of damage cannot be detected:

* changed bytes inside the data of a record, or inside user, description or extension of a transaction;
* a pointer from an undo to earlier data that became zero: the record then reads as that of a deletion;
* without index: another oid of an object that has one revision only;
* without index: a file that was cut exactly between two transactions.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Generator
from operator import attrgetter
from typing import Any, NamedTuple

from ZODB.FileStorage import TransactionRecord, packed_version
from ZODB.FileStorage.FileStorage import TransactionRecordIterator
from ZODB.fsIndex import fsIndex
from ZODB.interfaces import IBlobStorage, IStorageIteration
from zope.interface import alsoProvides, implementer

from neo.migrate.blobs import Folder
from neo.migrate.errors import MigrateError
from neo.migrate.records import STATUS_AT, TRANSACTION, UNFINISHED, Damage, Found, Records
from neo.protocol.ids import ZERO_TID

_MAGIC_SIZE = len(packed_version)
_NUMBER = 8
#: Bytes between two progress reports.
_REPORTED = 1 << 22
#: How often the end of the file is checked again while an application writes.
_LOOKS = 10
#: Greatest number of gaps in a message.
LISTED = 10


class Extent(NamedTuple):
    """Bytes ``start`` to ``end`` are whole transactions, with tids ``first`` to ``last``."""

    start: int
    end: int
    first: bytes
    last: bytes


class Gap(NamedTuple):
    """Bytes ``start`` to ``end`` are lost: the transactions between ``after`` and ``before``.

    ``after`` is ZERO_TID when the gap is at the beginning, ``before`` None when it is at the end.
    """

    start: int
    end: int
    after: bytes
    before: bytes | None
    why: str

    def __str__(self) -> str:
        after = f"0x{self.after.hex()}" if self.after != ZERO_TID else "the beginning"
        before = f"0x{self.before.hex()}" if self.before is not None else "the end"
        return f"bytes {self.start} to {self.end}, between transaction {after} and {before}: {self.why}"


class _Rows(TransactionRecordIterator):
    """The records of a transaction. Raise Damage, with the object, if the disk does not give one."""

    _oid: bytes | None = None

    def _read_data_header(self, pos: int, *more: Any, **options: Any) -> Any:
        header = super()._read_data_header(pos, *more, **options)
        self._oid = header.oid
        return header

    def __next__(self) -> Any:
        self._oid = None
        try:
            return super().__next__()
        except OSError as e:
            name = "a record" if self._oid is None else f"object 0x{self._oid.hex()}"
            raise Damage(f"{name}, in {self._file.name!r}: {e.strerror}") from None


class _Transaction(TransactionRecord):
    def __iter__(self) -> _Rows:
        return _Rows(self)


@implementer(IStorageIteration)
class DataFile:
    """The readable transactions of a FileStorage's file when it was opened.

    ``gaps``: lost ranges. ``problems``: other contradictions, after which the copy may be incomplete.
    ``unfinished``: describes a transaction at the end of the file that was never finished; FileStorage
    truncates it when it opens the file for writing.
    """

    def __init__(
        self,
        path: str,
        report: Callable[[int, int], None] | None = None,
        blobs: str | None = None,
        thorough: bool = False,
    ) -> None:
        """Read all headers. ``report``: called from time to time with position and size in bytes.
        ``blobs``: the folder of its blobs. ``thorough``: read all data too, so that what the disk does
        not give is a gap.

        Raise MigrateError if this is not a FileStorage, or no folder, and OSError.
        """
        self._path = path
        if blobs is not None:
            self.loadBlob = Folder(blobs).load
            alsoProvides(self, IBlobStorage)
        self._file = open(path, "rb")
        self.problems: list[str] = []
        self.unfinished: str | None = None
        self._extents: list[Extent] = []
        #: (position, reason) of damage, in the order of the file.
        self._wrong: list[tuple[int, str]] = []
        self._records = Records(self._file.fileno(), self._is_damaged, thorough)
        try:
            self._check_magic()
            self._survey(report or (lambda position, size: None))
            index = self._check_index()
            for position in sorted(self._records.suspects):
                self._exclude(position)
            self._wrong.sort()
            self._note_unfinished(index)
            self.gaps = self._gaps(index)
        except BaseException:
            self._file.close()
            raise

    # -- the storage -------------------------------------------------------------------------------

    def getName(self) -> str:
        return self._path

    def lastTransaction(self) -> bytes:
        return self._extents[-1].last if self._extents else ZERO_TID

    def close(self) -> None:
        self._file.close()

    def iterator(
        self, start: bytes | None = None, stop: bytes | None = None
    ) -> Generator[Any, None, None]:
        """Yield transactions with their records, both bounds included."""
        for extent in self._extents:
            if stop is not None and extent.first > stop:
                return
            if start is None or extent.last >= start:
                yield from self._transactions(extent, start, stop)

    def _transactions(
        self, extent: Extent, start: bytes | None, stop: bytes | None
    ) -> Generator[Any, None, None]:
        position = extent.start
        while position < extent.end:
            header = self._records.read(position, TRANSACTION.size)
            tid, length, status, *lengths = TRANSACTION.unpack(header)
            if stop is not None and tid > stop:
                return
            end = position + length
            if start is None or tid >= start:
                place = position + TRANSACTION.size
                texts = []
                for size in lengths:
                    texts.append(self._records.read(place, size))
                    place += size
                yield _Transaction(
                    tid, status.decode(), *texts, place, end, self._file, position
                )
            position = end + _NUMBER

    # -- what is damaged -----------------------------------------------------------------------------

    def _check_magic(self) -> None:
        try:
            magic = self._records.read(0, _MAGIC_SIZE)
        except Damage as damage:
            why = f"its {damage}"
        else:
            if not magic:
                raise MigrateError(f"{self._path!r} is empty: not even the header of a FileStorage")
            if magic == packed_version:
                return
            why = f"it begins with {magic!r}, not {packed_version!r}"
        found = self._records.resume(_MAGIC_SIZE - 1, ZERO_TID)
        if found is None or not found[1].records:
            raise MigrateError(f"{self._path!r} is not a FileStorage: {why}")
        self._wrong.append((0, why))

    def _survey(self, report: Callable[[int, int], None]) -> None:
        records, position, after, looks = self._records, _MAGIC_SIZE, ZERO_TID, 0
        reported = _REPORTED
        while position < records.size:
            if position >= reported:
                report(position, records.size)
                reported = position + _REPORTED
            try:
                found = records.transaction(position, after)
            except Damage as damage:
                self._wrong.append((position, str(damage)))
                resumed = records.resume(position, after)
                if resumed is None:
                    size = os.fstat(self._file.fileno()).st_size
                    if size <= records.size or looks == _LOOKS:
                        return
                    # An application has written more.
                    del self._wrong[-1]
                    records.size = size
                    looks += 1
                    continue
                position, found = resumed
                self._extents.append(Extent(position, position, found.tid, found.tid))
            self._extend(position, found)
            position, after = found.end, found.tid

    def _extend(self, position: int, found: Found) -> None:
        if self._extents and self._extents[-1].end == position:
            last = self._extents[-1]
            self._extents[-1] = last._replace(end=found.end, last=found.tid)
        else:
            self._extents.append(Extent(position, found.end, found.tid, found.tid))

    def _at(self, position: int) -> int | None:
        """Return the number of the extent around a position."""
        number = bisect_right(self._extents, position, key=attrgetter("start")) - 1
        return number if number >= 0 and position < self._extents[number].end else None

    def _is_damaged(self, position: int) -> bool:
        # Without damage there is one extent, from the beginning to the current position.
        return bool(self._wrong) and self._at(position) is None

    def _exclude(self, position: int) -> None:
        """Remove a transaction, because one of its records contradicts a later one."""
        number = self._at(position)
        if number is None:
            return
        extent = self._extents.pop(number)
        end = position + self._records.number(position + _NUMBER) + _NUMBER
        if end < extent.end:
            first = self._records.read(end, _NUMBER)
            self._extents.insert(number, extent._replace(start=end, first=first))
        if position > extent.start:
            before = position - self._records.number(position - _NUMBER) - _NUMBER
            last = self._records.read(before, _NUMBER)
            self._extents.insert(number, extent._replace(end=position, last=last))
        self._wrong.append((position, "a later revision says that a record has another oid"))

    def _check_index(self) -> int | None:
        """Return the end of the part of the file that the index covers; None without a readable index."""
        name = f"{self._path}.index"
        if not os.path.exists(name):
            return None
        try:
            loaded = fsIndex.load(name)
            position, index = int(loaded["pos"]), loaded["index"]
            for oid, place in index.items():
                if self._at(place) is not None and self._records.read(place, _NUMBER) != oid:
                    self.problems.append(
                        f"{name} says that object 0x{oid.hex()} is at {place}, where another one is: "
                        f"either file is damaged; if it is the index, remove it and start again"
                    )
                    break
        except Exception as e:  # noqa: BLE001 - a damaged pickle may raise anything
            self.problems.append(
                f"{name} cannot be read ({type(e).__name__}: {e}): only the index tells whether the data "
                "file was cut between two transactions; if it was not, remove the index and start again"
            )
            return None
        return position

    def _note_unfinished(self, index: int | None) -> None:
        """Describe a transaction at the end that was voted and never finished, so never acknowledged."""
        size = self._records.size
        end = self._extents[-1].end if self._extents else _MAGIC_SIZE
        if not self._wrong or self._wrong[-1][0] != end or (index or 0) > end:
            return
        try:
            if self._records.read(end + STATUS_AT, 1) != UNFINISHED:
                return
        except Damage:
            return
        del self._wrong[-1]
        self._records.size = end
        self.unfinished = (
            f"bytes {end} to {size} are a transaction that was never finished; it is not copied"
        )

    def _gaps(self, index: int | None) -> tuple[Gap, ...]:
        """Return the ranges between extents."""
        found: list[Gap] = []
        start, after = 0 if self._wrong and not self._wrong[0][0] else _MAGIC_SIZE, ZERO_TID
        for extent in self._extents:
            if extent.start > start:
                found.append(self._gap(start, extent.start, after, extent.first))
            start, after = extent.end, extent.last
        if start < self._records.size:
            found.append(self._gap(start, self._records.size, after, None))
        if index is not None and index > self._records.size:
            why = f"{self._path}.index knows a longer file: its end was cut off"
            found.append(Gap(self._records.size, index, after, None, why))
        return tuple(found)

    def _gap(self, start: int, end: int, after: bytes, before: bytes | None) -> Gap:
        places = (f"at {place}, {why}" for place, why in self._wrong if start <= place < end)
        return Gap(start, end, after, before, next(places, "it cannot be read"))


def listed(gaps: tuple[Gap, ...]) -> str:
    """Return the first gaps, one per line."""
    lines = [f"  {gap}" for gap in gaps[:LISTED]]
    if len(gaps) > LISTED:
        lines.append(f"  and {len(gaps) - LISTED} more")
    return "\n".join(lines)
